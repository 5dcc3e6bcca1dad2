//! The statistics in the shapes of opentracker: XML for its mode "everything", and four lines for MRTG for most others
//! (two numbers, the uptime, and a name). "top10" and "top100" are lists of numbers and info hashes.
//!
//! Elements without a number in Shoal are left out. TCP means HTTP and WebTorrent in every mode.

use shoal_config::OpentrackerMode;
use shoal_engine::counter::Drop;

use super::{Figures, requests, sum, uptime_s};
use crate::insight::Torrent;
use crate::stats::Traffic;

const PLAIN_TEXT: &str = "text/plain";

/// Returns the content type and the text of a mode, unless workers answer it themselves.
pub(super) fn render(mode: OpentrackerMode, figures: &Figures) -> Option<(&'static str, String)> {
    let (torrents, seeders) = (sum(figures, |totals| totals.swarms), sum(figures, |totals| totals.seeders));
    let peers = seeders + sum(figures, |totals| totals.leechers);
    let serving = format!("serving {torrents} torrents");
    let text = match mode {
        OpentrackerMode::Everything => return Some(("application/xml", everything(figures))),
        OpentrackerMode::Peer => mrtg([peers, seeders], &serving, "Shoal"),
        OpentrackerMode::Torr => mrtg([torrents, 0], &serving, "Shoal"),
        OpentrackerMode::Conn => mrtg(handled(figures, |_| true), &uptime(figures), "Shoal, all protocols"),
        OpentrackerMode::Udp4 => mrtg(handled(figures, is_udp), &uptime(figures), "Shoal, UDP"),
        OpentrackerMode::Tcp4 => mrtg(handled(figures, is_tcp), &uptime(figures), "Shoal, TCP"),
        OpentrackerMode::Top10 => top(figures, 10),
        OpentrackerMode::Top100 => top(figures, 100),
        // All torrents are too many for a text.
        OpentrackerMode::Tpbs => return None,
        OpentrackerMode::Scrp => {
            let scrapes = [requests(figures, is_tcp, "scrape"), requests(figures, is_udp, "scrape")];
            mrtg(scrapes, &uptime(figures), "Shoal, scrapes")
        }
    };
    Some((PLAIN_TEXT, text))
}

fn is_udp(traffic: &Traffic) -> bool {
    traffic.protocol == "udp"
}

/// HTTP and WebTorrent.
fn is_tcp(traffic: &Traffic) -> bool {
    !is_udp(traffic)
}

/// Returns the numbers of requests and of successful ones.
fn handled(figures: &Figures, is_counted: impl Fn(&Traffic) -> bool) -> [u64; 2] {
    let counted = || figures.stats.traffic.iter().filter(|traffic| is_counted(traffic));
    let all = counted().flat_map(|traffic| traffic.requests.values()).sum();
    [all, counted().map(|traffic| traffic.ok).sum()]
}

fn mrtg([first, second]: [u64; 2], third: &str, name: &str) -> String {
    format!("{first}\n{second}\n{third}\n{name}\n")
}

/// Returns the torrents with the most peers, and the torrents among them with the most seeders.
fn top(figures: &Figures, count: usize) -> String {
    let mut by_seeders = figures.top.clone();
    by_seeders.sort_by_key(|torrent| std::cmp::Reverse(torrent.total().seeders));
    let list = |torrents: &[Torrent], number: fn(&Torrent) -> u32| -> String {
        let line = |torrent: &Torrent| format!("\t{}\t{:?}\n", number(torrent), torrent.info_hash);
        torrents.iter().take(count).map(line).collect()
    };
    let peers = list(&figures.top, Torrent::peers);
    let seeders = list(&by_seeders, |torrent| torrent.total().seeders);
    format!("Top {count} torrents by peers:\n{peers}Top {count} torrents by seeds:\n{seeders}")
}

fn uptime(figures: &Figures) -> String {
    let seconds = uptime_s(figures);
    format!("{seconds} seconds ({} hours)", seconds / 3600)
}

fn everything(figures: &Figures) -> String {
    let torrents = sum(figures, |totals| totals.swarms);
    let seeders = sum(figures, |totals| totals.seeders);
    let peers = seeders + sum(figures, |totals| totals.leechers);
    let udp = |kind: &str| requests(figures, is_udp, kind);
    let tcp = |kind: &str| requests(figures, is_tcp, kind);
    let wrong = Drop::WrongConnectionId.name();
    let wrong_ids = figures.stats.datagrams.iter().filter_map(|family| family.drops.get(wrong)).sum::<u64>();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<stats>\n\
         <version>Shoal</version>\n\
         <uptime>{}</uptime>\n\
         <torrents><count_mutex>{torrents}</count_mutex><count_iterator>{torrents}</count_iterator></torrents>\n\
         <peers><count>{peers}</count></peers>\n\
         <seeds><count>{seeders}</count></seeds>\n\
         <connections>\n\
         <tcp><accept>{}</accept><announce>{}</announce><scrape>{}</scrape></tcp>\n\
         <udp><overall>{}</overall><connect>{}</connect><announce>{}</announce><scrape>{}</scrape>\
         <missmatch>{}</missmatch></udp>\n\
         </connections>\n</stats>\n",
        uptime_s(figures),
        figures.stats.connections.accepted,
        tcp("announce"),
        tcp("scrape"),
        handled(figures, is_udp)[0],
        udp("connect"),
        udp("announce"),
        udp("scrape"),
        wrong_ids,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stats;

    #[test]
    fn tcp_is_http_and_webtorrent_in_every_mode() {
        let of = |protocol: &str, count: u64| Traffic {
            protocol: protocol.to_owned(),
            requests: [("announce".to_owned(), count), ("scrape".to_owned(), 10 * count)].into(),
            ok: count,
            ..Traffic::default()
        };
        let traffic = vec![of("udp", 1), of("http", 2), of("webtorrent", 4)];
        let figures = Figures { stats: Stats { traffic, ..Stats::default() }, ..Figures::default() };
        let text = |mode| render(mode, &figures).unwrap().1;
        assert!(text(OpentrackerMode::Tcp4).starts_with("66\n6\n"));
        assert!(text(OpentrackerMode::Udp4).starts_with("11\n1\n"));
        assert!(text(OpentrackerMode::Scrp).starts_with("60\n10\n"));
        assert!(
            text(OpentrackerMode::Everything).contains("<announce>6</announce><scrape>60</scrape></tcp>")
        );
    }
}
