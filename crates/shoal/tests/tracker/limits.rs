//! Limits of sources: upgrades, connections and reloads.

mod bans;
pub(crate) mod holding;
pub(crate) mod memory;

use std::io::Write;

use nix::sys::signal::Signal;

use crate::http::Way;
use crate::kit::browser::Browser;
use crate::kit::client::{Announce, Client, ERROR, word};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::web::{announce, tcp};
use crate::udp::hash;

/// Requests that a source may send at once, at one a second.
const BURST: usize = 3;
const BURST_S: (&str, &str) = ("SHOAL_LIMITS_BURST_S", "3");

/// A number of requests of which some are refused even if a busy machine takes seconds for them.
const REQUESTS: usize = 50;

#[test]
fn upgrades_beyond_the_limit_get_429() {
    let way = Way::PLAIN;
    let tracker = way.start(&[("SHOAL_LIMITS_WEBTORRENT_REQUESTS_PER_S", "1"), BURST_S]);
    let knock = |way: Way| Browser::knock(way.address(&tracker), way.tls(), &[]).err();
    let refused: Vec<_> = (0..REQUESTS).filter_map(|_| knock(way)).collect();
    assert!(!refused.is_empty() && refused.iter().all(|status| *status == 429), "{refused:?}");
    let upgrades = tracker.metric("shoal_websocket_upgrades_total", &["outcome=\"rate_limited\""]);
    assert_eq!(upgrades, refused.len() as u64);
    assert_eq!(knock(way.over_other_family()), None);
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let way = Way::PLAIN;
    let tracker = way.start(&[("SHOAL_LIMITS_TCP_CONNECTS_PER_S", "1"), BURST_S]);
    for _ in 0..BURST {
        assert_eq!(way.connect(&tracker).get(&announce(hash(1), 1, "")).status, 200);
    }
    let ended = || tracker.metric("shoal_connections_ended_total", &["reason=\"refused_rate\""]);
    eventually("one is refused", || {
        let mut stream = tcp(way.address(&tracker));
        // The tracker closes without reading, so this may fail.
        let _ = stream.write_all(b"GET /announce HTTP/1.1\r\nHost: t\r\n\r\n");
        (ended() > 0).then_some(())
    });
    assert_eq!(way.over_other_family().connect(&tracker).get(&announce(hash(1), 1, "")).status, 200);
}

/// Returns the replies to some announces of one client, of which those beyond the limit are errors.
fn announces_over_udp(client: &Client) -> Vec<bool> {
    let id = client.connect();
    let packet = Announce::leecher(hash(1), 6881).packet(id, 5);
    (0..REQUESTS).map(|_| word(&client.ask(&packet), 0) == ERROR).collect()
}

#[test]
fn a_reload_sets_and_lifts_limits() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    std::fs::write(&file, "").unwrap();
    let tracker = Tracker::start_with_path(&file, &[]);
    let client = Client::new(tracker.udp[0]);
    for (text, limited) in
        [("", false), ("[limits]\nudp_requests_per_s = 1\nburst_s = 1\n", true), ("", false)]
    {
        std::fs::write(&file, text).unwrap();
        tracker.signal(Signal::SIGHUP);
        tracker.wait_for_line("the configuration was read again");
        eventually("every worker follows", || {
            (announces_over_udp(&client).contains(&true) == limited).then_some(())
        });
    }
}
