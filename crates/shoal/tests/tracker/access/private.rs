//! Clients in private networks: served as others, kept apart, or refused.

use std::collections::BTreeSet;

use crate::kit::client::{Announce, Client, STOPPED};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::web::{Web, announce};
use crate::udp::hash;

/// A tracker that serves HTTP clients which a proxy names, and UDP clients of this host.
fn start(private: &str) -> Tracker {
    Tracker::start(&[
        ("SHOAL_ADDRESS_PRIVATE", private),
        ("SHOAL_PROXY_TRUSTED", "127.0.0.1/32"),
        ("SHOAL_PROXY_HEADER", "x-real-ip"),
        ("SHOAL_HTTP_FULL_SCRAPE", "true"),
    ])
}

/// The content of a reply.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    leechers: u32,
    /// The ports of its peers, by which the tests know them.
    ports: BTreeSet<u16>,
}

/// Announces a leecher over HTTP for a client that the proxy names.
fn ask(web: &mut Web, client: &str, port: u16, more: &str) -> Vec<u8> {
    let target = announce(hash(1), port, &format!("&compact=1&numwant=50{more}"));
    web.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\nX-Real-IP: {client}\r\n\r\n").as_bytes());
    web.answer().body
}

fn reply(body: &[u8]) -> Reply {
    /// Returns the number after `key`, up to `end`, and the rest.
    fn number<'b>(body: &'b [u8], key: &[u8], end: u8) -> Option<(usize, &'b [u8])> {
        let at = body.windows(key.len()).position(|window| window == key)? + key.len();
        let digits = body[at..].iter().position(|byte| *byte == end)?;
        Some((std::str::from_utf8(&body[at..at + digits]).ok()?.parse().ok()?, &body[at + digits + 1..]))
    }
    let text = String::from_utf8_lossy(body);
    let (leechers, _) = number(body, b"10:incompletei", b'e').unwrap_or_else(|| panic!("{text}"));
    let mut ports = BTreeSet::new();
    for (key, bytes) in [(&b"5:peers"[..], 6), (b"6:peers6", 18)] {
        if let Some((length, rest)) = number(body, key, b':') {
            let peers = rest[..length].chunks(bytes);
            ports.extend(peers.map(|peer| u16::from_be_bytes([peer[bytes - 2], peer[bytes - 1]])));
        }
    }
    Reply { leechers: u32::try_from(leechers).unwrap(), ports }
}

/// The peers, by their ports.
const PEERS: [(&str, u16); 8] = [
    ("203.0.113.1", 1000),
    ("2001:db8::1", 1001),
    ("192.168.1.2", 1002),
    ("192.168.200.3", 1003),
    ("10.0.0.4", 1004),
    ("100.64.0.5", 1005),
    ("fd00::6", 1006),
    ("fe80::7", 1007),
];

#[test]
fn peers_of_private_networks_are_kept_apart() {
    let tracker = start("apart");
    let mut web = Web::connect(tracker.http[0], false);
    for (client, port) in PEERS {
        ask(&mut web, client, port, "");
    }
    let udp = Client::new(tracker.udp[0]);
    udp.announce(&Announce::leecher(hash(1), 1008));
    let public = BTreeSet::from([1000, 1001]);
    for (client, own) in [
        ("203.0.113.9", &[][..]),
        ("2001:db8::9", &[]),
        ("172.16.0.9", &[]),
        ("192.168.77.9", &[1002, 1003]),
        ("10.200.0.9", &[1004]),
        ("100.127.0.9", &[1005]),
        ("fd99::9", &[1006]),
        ("fe80::9", &[1007]),
        ("127.5.0.9", &[1008]),
    ] {
        // It joins, sees the peers that it may see, and leaves.
        let expected: BTreeSet<u16> = own.iter().chain(&public).copied().collect();
        let leechers = u32::try_from(expected.len() + 1).unwrap();
        let seen = reply(&ask(&mut web, client, 2000, ""));
        assert_eq!(seen, Reply { leechers, ports: expected.clone() }, "{client}");
        assert_eq!(reply(&ask(&mut web, client, 2000, "")), seen, "{client} again");
        let left = reply(&ask(&mut web, client, 2000, "&event=stopped"));
        assert_eq!(left.leechers, leechers - 1, "{client}");
    }
    // Over UDP, a reply has peers of its own family only.
    let neighbour = Client::from_ip("127.0.0.9".parse().unwrap(), tracker.udp[0]);
    let seen = neighbour.announce(&Announce::leecher(hash(1), 2000));
    let ports: BTreeSet<u16> = seen.peers.iter().map(|peer| peer.port()).collect();
    assert_eq!((ports, seen.leechers), (BTreeSet::from([1000, 1008]), 3));
    let left = neighbour.announce(&Announce { event: STOPPED, ..Announce::leecher(hash(1), 2000) });
    assert_eq!(left.leechers, 2);
    // Scrapes count public peers, and no other torrent is listed.
    assert_eq!(udp.scrape(&[hash(1)])[0].leechers, 1);
    web.send(b"GET /scrape HTTP/1.0\r\nHost: t\r\nX-Real-IP: 203.0.113.1\r\n\r\n");
    let files = web.until_closed().unwrap();
    let listed = files.windows(10).filter(|window| window == b"8:complete").count();
    assert_eq!(listed, 1, "{}", files.escape_ascii());
    let peers = |family: &str| tracker.metric("shoal_peers", &[&format!("family=\"{family}\"")]);
    assert_eq!((peers("v4"), peers("v6")), (6, 3), "all are counted");
}

#[test]
fn peers_of_private_networks_expire_and_leave_with_their_torrent() {
    let directory = tempfile::tempdir().unwrap();
    let deny = directory.path().join("deny");
    std::fs::write(&deny, "").unwrap();
    let tracker = Tracker::start(&[
        ("SHOAL_ADDRESS_PRIVATE", "apart"),
        ("SHOAL_ACCESS_TORRENTS_DENY", deny.to_str().unwrap()),
        ("SHOAL_ANNOUNCE_PEER_TIMEOUT_S", "4"),
        ("SHOAL_ANNOUNCE_INTERVAL_S", "1"),
        ("SHOAL_ANNOUNCE_INTERVAL_JITTER_S", "0"),
    ]);
    let peers = || tracker.metric("shoal_peers", &[]);
    for &udp in &tracker.udp {
        let client = Client::new(udp);
        assert_eq!(client.announce(&Announce::leecher(hash(1), 1)).leechers, 1);
        assert_eq!(client.announce(&Announce::leecher(hash(2), 1)).leechers, 1);
    }
    let line: String = hash(1).iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(&deny, line + "\n").unwrap();
    eventually("the swarms end", || (peers() <= 2).then_some(()));
    eventually("the others expire", || (peers() == 0).then_some(()));
}

#[test]
fn private_addresses_are_served_or_refused() {
    let tracker = start("serve");
    let mut web = Web::connect(tracker.http[0], false);
    for (number, (client, port)) in (1..).zip(PEERS) {
        assert_eq!(reply(&ask(&mut web, client, port, "")).leechers, number);
    }
    let tracker = start("refuse");
    let mut web = Web::connect(tracker.http[0], false);
    for (client, port) in PEERS {
        let body = ask(&mut web, client, port, "");
        let refused = String::from_utf8_lossy(&body).contains("private addresses are not served");
        assert_eq!(refused, port > 1001, "{client}");
    }
}
