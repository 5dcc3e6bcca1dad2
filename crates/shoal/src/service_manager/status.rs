//! The status that the service manager shows (`systemctl status shoal`).

use std::sync::Arc;
use std::time::Duration;

use shoal_base::Totals;
use shoal_engine::counter::{Family, Kind};
use shoal_engine::policy::Protocol;
use tokio::time::Instant;

use crate::service_manager::{SERVING, ServiceManager};
use shoal_control::Sources;
use shoal_control::drain::Drain;
use shoal_control::pause;

/// How often the status changes.
const EVERY: Duration = Duration::from_secs(5);

/// Reports the status to the manager periodically, until it is dropped. The rate covers the time since the last
/// report.
pub(crate) async fn report(manager: ServiceManager, sources: Arc<Sources>, drain: Drain) {
    if !manager.is_there() {
        return;
    }
    let mut told = String::new();
    let (mut announces, mut counted) = (announces_of(&sources), Instant::now());
    loop {
        tokio::time::sleep(EVERY).await;
        let (now, total) = (Instant::now(), announces_of(&sources));
        let elapsed_s = now.duration_since(counted).as_secs().max(1);
        let rate = total.saturating_sub(announces).div_ceil(elapsed_s);
        (announces, counted) = (total, now);
        let doing = if drain.current().is_some() { "draining" } else { SERVING };
        let paused = pause::names(&sources.live.latest().policy);
        let status = manager.with_fault(&text(doing, &totals_of(&sources), rate, &paused));
        if status != told {
            manager.status(&status);
            told = status;
        }
    }
}

/// Returns the swarms of all families. A torrent with peers of several families counts once for each.
fn totals_of(sources: &Sources) -> Totals {
    let [v4, v6] = sources.store.totals();
    let webtorrent = sources.swarms.as_ref().map(|swarms| swarms.totals());
    v4.plus(v6).plus(webtorrent.unwrap_or_default())
}

fn announces_of(sources: &Sources) -> u64 {
    let of = |protocol, family| sources.sum(protocol, |counters| counters.requests(family, Kind::Announce));
    Protocol::ALL.into_iter().flat_map(|protocol| Family::ALL.map(|family| of(protocol, family))).sum()
}

fn text(doing: &str, totals: &Totals, announces_per_s: u64, paused: &[String]) -> String {
    let (peers, swarms) = (totals.seeders + totals.leechers, totals.swarms);
    let mut text = format!("{doing}: {peers} peers in {swarms} swarms, {announces_per_s} announces/s");
    if !paused.is_empty() {
        text = format!("{text}; paused: {}", paused.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_the_swarms_and_the_rate() {
        let totals = Totals { swarms: 2, seeders: 3, leechers: 4, ..Totals::default() };
        assert_eq!(text("draining", &totals, 5, &[]), "draining: 7 peers in 2 swarms, 5 announces/s");
        let paused = ["udp v4", "udp v6"].map(str::to_owned);
        assert!(text("serving", &totals, 5, &paused).ends_with("announces/s; paused: udp v4, udp v6"));
    }
}
