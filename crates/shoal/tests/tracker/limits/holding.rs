//! Limits on the peers and torrents of a source at a time, and on its share of a torrent: over every protocol and family,
//! and over all protocols together.

use nix::sys::signal::Signal;

use crate::http::{Way, over_every_way};
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client, STOPPED, word};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::web::{Web, announce};
use crate::udp::hash;

over_every_way!(
    all_protocols_count_towards_one_limit_of_peers,
    peers_beyond_the_limit_are_refused_with_the_reason_on_request,
    all_protocols_count_towards_one_limit_of_torrents,
);

const PEERS_REASON: &str = "your address has as many peers as this tracker allows";
const TORRENTS_REASON: &str = "your address has as many torrents as this tracker allows";

/// Clients of one host over every protocol.
struct Host {
    web: Web,
    udp: Client,
    page: Browser,
}

impl Host {
    fn new(way: Way, tracker: &Tracker) -> Self {
        Self {
            web: way.connect(tracker),
            udp: Client::new(tracker.udp[usize::from(way.is_v6())]),
            page: Browser::open(way, tracker),
        }
    }

    fn get(&mut self, torrent: u32, port: u16, more: &str) -> String {
        get(&mut self.web, torrent, port, more)
    }
}

/// Announces over HTTP. Returns the body.
fn get(web: &mut Web, torrent: u32, port: u16, more: &str) -> String {
    String::from_utf8_lossy(&web.get(&announce(hash(torrent), port, more)).body).into_owned()
}

/// Returns whether the only peer of a torrent is the client that got this reply over HTTP.
fn is_in(body: &str) -> bool {
    assert!(body.contains("8:interval"), "{body}");
    body.contains("10:incompletei1e")
}

fn unregistered(tracker: &Tracker, protocol: &str, reason: &str) -> u64 {
    let labels = [format!("protocol=\"{protocol}\""), format!("reason=\"{reason}\"")];
    tracker.metric("shoal_peers_unregistered_total", &[&labels[0], &labels[1]])
}

fn all_protocols_count_towards_one_limit_of_peers(way: Way) {
    let tracker = way.start(&[("SHOAL_LIMITS_PEERS_PER_SOURCE_MAX", "5")]);
    let mut host = Host::new(way, &tracker);
    for torrent in [1, 2] {
        assert!(is_in(&host.get(torrent, 1, "")));
        assert_eq!(host.udp.announce(&Announce::leecher(hash(torrent + 10), 1)).leechers, 1);
    }
    assert_eq!(host.page.ask(&browser::announce('t', 'a', 0))["incomplete"], 1);
    // That was the last one. Renewals are served as ever, and further peers are answered.
    for _ in 0..3 {
        assert!(is_in(&host.get(1, 1, "")) && !is_in(&host.get(3, 1, "")));
        assert_eq!(host.udp.announce(&Announce::seeder(hash(11), 1)).seeders, 1);
        assert_eq!(host.udp.announce(&Announce::leecher(hash(13), 1)).leechers, 0);
        assert_eq!(host.page.ask(&browser::announce('t', 'a', 0))["incomplete"], 1);
        assert_eq!(host.page.ask(&browser::announce('u', 'a', 0))["incomplete"], 0);
    }
    for protocol in ["http", "udp", "webtorrent"] {
        assert_eq!(unregistered(&tracker, protocol, "peers_per_source"), 3);
    }
    // One that leaves makes room, whatever its protocol.
    assert_eq!(host.udp.announce(&Announce { event: STOPPED, ..Announce::seeder(hash(11), 1) }).seeders, 0);
    assert_eq!(host.page.ask(&browser::announce('u', 'a', 0))["incomplete"], 1);
    let Host { mut web, page, .. } = host;
    drop(page);
    eventually("the page has left", || is_in(&get(&mut web, 3, 1, "")).then_some(()));
    // The other family is another source.
    assert!(is_in(&get(&mut way.over_other_family().connect(&tracker), 9, 1, "")));
}

fn peers_beyond_the_limit_are_refused_with_the_reason_on_request(way: Way) {
    let tracker =
        way.start(&[("SHOAL_LIMITS_PEERS_PER_SOURCE_MAX", "1"), ("SHOAL_LIMITS_REFUSE_EXCESS", "true")]);
    let mut host = Host::new(way, &tracker);
    assert!(is_in(&host.get(1, 1, "")));
    let refused = host.get(2, 1, "");
    // BEP 31.
    assert!(refused.contains(PEERS_REASON) && refused.contains("8:retry ini30e"), "{refused}");
    let packet = Announce::leecher(hash(2), 1).packet(host.udp.connect(), 5);
    assert_eq!(host.udp.refusal(&packet), PEERS_REASON);
    assert_eq!(host.page.ask(&browser::announce('t', 'a', 0))["failure reason"], PEERS_REASON);
    host.page.check();
    assert!(is_in(&host.get(1, 1, "")));
    for protocol in ["http", "udp", "webtorrent"] {
        let labels = [&*format!("protocol=\"{protocol}\""), "outcome=\"peers_per_source\""];
        assert_eq!(tracker.metric("shoal_replies_total", &labels), 1);
        assert_eq!(unregistered(&tracker, protocol, "peers_per_source"), 0);
    }
}

fn all_protocols_count_towards_one_limit_of_torrents(way: Way) {
    let tracker =
        way.start(&[("SHOAL_LIMITS_TORRENTS_PER_SOURCE_MAX", "3"), ("SHOAL_LIMITS_REFUSE_EXCESS", "true")]);
    let mut host = Host::new(way, &tracker);
    assert!(is_in(&host.get(1, 1, "")));
    assert_eq!(host.udp.announce(&Announce::leecher(hash(2), 1)).leechers, 1);
    assert_eq!(host.page.ask(&browser::announce('t', 'a', 0))["incomplete"], 1);
    // Another peer of the same torrents is none of another one.
    assert!(host.get(2, 2, "").contains("10:incompletei2e"));
    assert_eq!(host.udp.announce(&Announce::leecher(hash(1), 2)).leechers, 2);
    assert!(host.get(3, 1, "").contains(TORRENTS_REASON));
    let packet = Announce::leecher(hash(3), 1).packet(host.udp.connect(), 5);
    assert_eq!(host.udp.refusal(&packet), TORRENTS_REASON);
    assert_eq!(host.page.ask(&browser::announce('u', 'a', 0))["failure reason"], TORRENTS_REASON);
    // A torrent counts until the last of its peers has left.
    assert!(host.get(2, 2, "&event=stopped").contains("10:incompletei1e"));
    assert!(host.get(3, 1, "").contains(TORRENTS_REASON));
    assert_eq!(host.udp.announce(&Announce { event: STOPPED, ..Announce::leecher(hash(2), 1) }).leechers, 0);
    assert!(is_in(&host.get(3, 1, "")));
}

/// Announces over HTTP for a client that a trusted proxy names. Returns the body.
fn by_proxy(web: &mut Web, client: &str, torrent: u32, port: u16) -> String {
    let target = announce(hash(torrent), port, "&compact=1");
    web.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\nX-Real-IP: {client}\r\n\r\n").as_bytes());
    String::from_utf8_lossy(&web.answer().body).into_owned()
}

const BY_PROXY: [(&str, &str); 2] =
    [("SHOAL_PROXY_TRUSTED", "127.0.0.1/32"), ("SHOAL_PROXY_HEADER", "x-real-ip")];

#[test]
fn the_source_is_the_client_that_a_trusted_proxy_names_and_its_network() {
    let tracker = Tracker::start(&[&BY_PROXY[..], &[("SHOAL_LIMITS_PEERS_PER_SOURCE_MAX", "2")]].concat());
    let mut web = Web::connect(tracker.http[0], false);
    let mut fits = |client: &str, torrent| is_in(&by_proxy(&mut web, client, torrent, 1));
    assert_eq!([1, 2, 3].map(|torrent| fits("198.51.100.7", torrent)), [true, true, false]);
    assert_eq!([4, 5, 6].map(|torrent| fits("198.51.100.8", torrent)), [true, true, false]);
    // A /64 is one source; a /48 has eight times as many.
    let clients = ["2001:db8::1", "2001:db8::2", "2001:db8::3"];
    let torrents = [10, 11, 12];
    let fit: Vec<bool> =
        clients.iter().zip(torrents).map(|(client, torrent)| fits(client, torrent)).collect();
    assert_eq!(fit, [true, true, false]);
    let of_site = (0..30).filter(|&number| fits(&format!("2001:db8:1:{number:x}::1"), 100 + number)).count();
    assert_eq!(of_site, 16);
}

#[test]
fn a_source_gets_no_more_than_its_share_of_a_torrent() {
    for (honest, greedy) in [("203.0.113.", "198.51.100.7"), ("2001:db8:", "2001:db9::7")] {
        let settings = [&BY_PROXY[..], &[("SHOAL_LIMITS_SWARM_SHARE_MAX", "10")]].concat();
        let tracker = Tracker::start(&settings);
        let mut web = Web::connect(tracker.http[0], false);
        let end = if honest.ends_with(':') { "::1" } else { "" };
        for number in 1..=90 {
            by_proxy(&mut web, &format!("{honest}{number}{end}"), 1, 6881);
        }
        let mut got = 0;
        for port in 1..40 {
            let body = by_proxy(&mut web, greedy, 1, port);
            got = got.max(
                body.split_once("10:incompletei").unwrap().1.split('e').next().unwrap().parse().unwrap(),
            );
        }
        assert_eq!(got, 90 + 10, "a tenth of the torrent is its own");
        assert_eq!(unregistered(&tracker, "http", "swarm_share"), 39 - 10);
    }
}

#[test]
fn a_page_gets_no_more_than_its_share_of_a_torrent() {
    let tracker =
        Tracker::start(&[("SHOAL_LIMITS_SWARM_SHARE_MAX", "10"), ("SHOAL_LIMITS_REFUSE_EXCESS", "true")]);
    let pages: Vec<_> = (0..6).map(|_| Browser::open(Way::PLAIN, &tracker)).collect();
    let replies = pages.into_iter().zip('a'..).map(|(mut page, id)| {
        let reply = page.ask(&browser::announce('t', id, 0));
        (page, reply)
    });
    let replies: Vec<_> = replies.collect();
    let counts: Vec<_> = replies.iter().map(|(_, reply)| reply["incomplete"].as_u64()).collect();
    assert_eq!(counts, [Some(1), Some(2), Some(3), Some(4), None, None]);
    let reason = "too large a part of this torrent's peers has your address";
    assert!(replies[4..].iter().all(|(_, reply)| reply["failure reason"] == reason));
}

#[test]
fn exempt_networks_have_no_limit_on_their_peers() {
    let tracker = Tracker::start(&[
        ("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "1"),
        ("SHOAL_LIMITS_PEERS_PER_SOURCE_MAX", "3"),
        ("SHOAL_LIMITS_TORRENTS_PER_SOURCE_MAX", "3"),
        ("SHOAL_LIMITS_EXEMPT", "127.0.0.8/29,::1"),
    ]);
    let exempt = Client::from_ip("127.0.0.9".parse().unwrap(), tracker.udp[0]);
    let other = Client::new(tracker.udp[0]);
    for port in 1..8 {
        assert_eq!(exempt.announce(&Announce::leecher(hash(1), port)).leechers, u32::from(port));
        let torrent = hash(20 + u32::from(port));
        assert_eq!(exempt.announce(&Announce::leecher(torrent, 1)).leechers, 1);
        assert_eq!(other.announce(&Announce::leecher(hash(2), port)).leechers, 1);
    }
    assert_eq!(unregistered(&tracker, "udp", "peers_per_address"), 6);
    let mut host = Host::new(Way::new(true, false), &tracker);
    assert!((40..50).all(|torrent| is_in(&host.get(torrent, 1, ""))));
    for torrent in 't'..='z' {
        assert_eq!(host.page.ask(&browser::announce(torrent, 'a', 0))["incomplete"], 1);
    }
}

#[test]
fn a_source_that_stops_announcing_makes_room() {
    let tracker = Tracker::start(&[
        ("SHOAL_LIMITS_PEERS_PER_SOURCE_MAX", "2"),
        ("SHOAL_LIMITS_TORRENTS_PER_SOURCE_MAX", "2"),
        ("SHOAL_ANNOUNCE_PEER_TIMEOUT_S", "3"),
        ("SHOAL_ANNOUNCE_INTERVAL_S", "1"),
        ("SHOAL_ANNOUNCE_INTERVAL_JITTER_S", "0"),
    ]);
    let client = Client::new(tracker.udp[0]);
    for torrent in [1, 2] {
        assert_eq!(client.announce(&Announce::leecher(hash(torrent), 1)).leechers, 1);
    }
    eventually("the peers expire", || {
        (client.announce(&Announce::leecher(hash(3), 1)).leechers == 1).then_some(())
    });
}

#[test]
fn a_share_without_a_limit_for_each_address_is_refused() {
    let settings = [("SHOAL_LIMITS_SWARM_SHARE_MAX", "10"), ("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0")];
    let output = crate::kit::harness::run(&[], &settings);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("limits.swarm_share_max") && said.contains("at least 1"), "{said}");
}

#[test]
fn a_reload_sets_no_limits_for_which_there_is_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    let no_limits = "[limits]\nudp_requests_per_s = 0\nhttp_requests_per_s = 0\nwebtorrent_requests_per_s = 0\n\
                     tcp_connects_per_s = 0\n";
    std::fs::write(&file, no_limits).unwrap();
    let tracker = Tracker::start_with_path(
        &file,
        &[("SHOAL_MEMORY_MAX", "64MiB"), ("SHOAL_STORE_MEMORY_MAX", "auto"), ("SHOAL_WORKERS_COUNT", "1")],
    );
    std::fs::write(&file, "[limits]\nudp_requests_per_s = 1\nburst_s = 1\n").unwrap();
    tracker.signal(Signal::SIGHUP);
    let line = tracker.wait_for_line("the configuration stays as it was");
    assert!(line["error"].as_str().unwrap().contains("restart the tracker"), "{line}");
    let client = Client::new(tracker.udp[0]);
    let packet = Announce::leecher(hash(1), 1).packet(client.connect(), 5);
    assert!((0..10).all(|_| word(&client.ask(&packet), 0) == 1));
}
