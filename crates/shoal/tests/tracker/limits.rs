//! Limits of sources: upgrades, connections, clients that a proxy names, and reloads.

use std::io::Write;

use nix::sys::signal::Signal;

use crate::browser::{self, Browser};
use crate::client::{Announce, Client, ERROR, word};
use crate::harness::{Tracker, eventually};
use crate::http::Way;
use crate::udp::hash;
use crate::web::{Answer, Web, announce, tcp};

/// Requests that a source may send at once, at one a second.
const BURST: usize = 3;
const BURST_S: (&str, &str) = ("SHOAL_LIMITS_BURST_S", "3");

/// A number of requests of which some are refused even if a busy machine takes seconds for them.
const REQUESTS: usize = 50;

const REASON: &str = "your address sends more requests than this tracker allows, try again later";

fn is_refused(answer: &Answer) -> bool {
    let body = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, 200);
    let refused = body.contains(REASON);
    // BEP 31.
    assert_eq!(body.contains("8:retry ini1e"), refused, "{body}");
    refused
}

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
fn the_source_is_the_client_that_a_trusted_proxy_names() {
    let tracker = Tracker::start(&[
        ("SHOAL_LIMITS_HTTP_REQUESTS_PER_S", "1"),
        BURST_S,
        ("SHOAL_PROXY_TRUSTED", "127.0.0.1/32"),
        ("SHOAL_PROXY_HEADER", "x-real-ip"),
    ]);
    let mut web = Web::connect(tracker.http[0], false);
    let mut refused = |client: &str| {
        let target = announce(hash(1), 1, "");
        web.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\nX-Real-IP: {client}\r\n\r\n").as_bytes());
        is_refused(&web.answer())
    };
    let of_one: Vec<bool> = (0..REQUESTS).map(|_| refused("198.51.100.7")).collect();
    assert!(!of_one[0] && of_one.contains(&true));
    assert!((0..BURST).all(|_| !refused("198.51.100.8")), "another client of the same proxy");
    let of_network: Vec<bool> =
        (0..REQUESTS).map(|number| refused(&format!("2001:db8::{number:x}"))).collect();
    assert!(of_network.contains(&true), "a /64 is one source");
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
