//! Effects of an announce, and the peers in its reply.

use std::net::IpAddr;

use shoal_config::Config;
use shoal_engine::counter::{Family, Kind, Outcome};

use crate::harness::{FAMILIES, HASH, Tracker, at, configured, distinct, leecher, seeder, v4, v6, with};

#[test]
fn peers_of_both_families_find_each_other() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(v4(1), &leecher(1001));
    let swarm = tracker.announce(v6(1), &seeder(1002));
    assert_eq!((swarm.complete, swarm.incomplete), (1, 1), "counts are those of both families");
    assert_eq!(swarm.peers, [at(v4(1), 1001)]);
    let swarm = tracker.announce(v4(2), &leecher(1003));
    assert_eq!(swarm.peers, [at(v4(1), 1001), at(v6(1), 1002)]);
    // A UDP reply has no field for the other family (BEP 15).
    assert_eq!(tracker.announce_udp(v6(3), 1004, 5), [at(v6(1), 1002)]);
}

#[test]
fn a_client_with_a_crypto_port_is_registered_there() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&Config::default());
        tracker.announce(client(1), &with("cryptoport=1009", &leecher(0)));
        assert_eq!(tracker.announce(client(2), &leecher(1002)).peers, [at(client(1), 1009)]);
        tracker.announce(client(1), &with("cryptoport=1009", &with("event=stopped", &leecher(0))));
        assert_eq!(tracker.announce(client(2), &leecher(1002)).peers, []);
    }
}

#[test]
fn a_client_may_leave_without_saying_its_port() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(v4(1), &leecher(1001));
    let left = tracker.announce(v4(1), &with("event=stopped", &crate::harness::named(&HASH)));
    assert_eq!((left.incomplete, left.peers), (1, vec![]), "it is unknown which of its peers leaves");
}

#[test]
fn a_seeder_is_handed_leechers_only() {
    for (client, other) in [(FAMILIES[0], FAMILIES[1]), (FAMILIES[1], FAMILIES[0])] {
        let mut tracker = Tracker::new(&Config::default());
        for n in 0..200 {
            tracker.announce(client(n), &seeder(1));
            tracker.announce(other(n), &seeder(1));
        }
        tracker.announce(client(1000), &leecher(2));
        tracker.announce(other(1000), &leecher(3));
        for parameter in ["", "event=completed"] {
            let swarm = tracker.announce(client(5), &with(parameter, &seeder(1)));
            let mut leechers = [at(client(1000), 2), at(other(1000), 3)];
            leechers.sort_unstable();
            assert_eq!(distinct(&swarm), leechers);
        }
        assert_eq!(distinct(&tracker.announce(client(6), &leecher(1))).len(), 50);
    }
}

#[test]
fn numwant_is_obeyed_to_the_number_and_over_both_families() {
    for client in FAMILIES {
        let settings = configured(|config| {
            config.announce.numwant_default = 5;
            config.announce.numwant_max = 20;
        });
        let mut tracker = Tracker::new(&settings);
        for n in 0..15 {
            tracker.announce(v4(n), &with("numwant=0", &leecher(1)));
            tracker.announce(v6(n), &with("numwant=0", &leecher(1)));
        }
        let numwants =
            [("0", 0), ("1", 1), ("2", 2), ("3", 3), ("20", 20), ("21", 20), ("9999999999999", 20)];
        for (numwant, expected) in numwants.into_iter().chain([("-1", 5), ("-99999999999", 5), ("", 5)]) {
            let asked = with(&format!("numwant={numwant}"), &leecher(1));
            let peers = distinct(&tracker.announce(client(7), &asked));
            assert_eq!(peers.len(), expected, "numwant {numwant}");
            assert!(!peers.contains(&at(client(7), 1)), "not itself");
            let own = peers.iter().filter(|peer| peer.is_ipv4() == client(7).is_ipv4()).count();
            assert_eq!(own, expected.min(14), "its own family first");
        }
    }
}

#[test]
fn a_thousand_peers_fit_a_reply() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&configured(|config| config.announce.numwant_max = 1000));
        for n in 0..1200 {
            tracker.announce(client(n), &with("numwant=0", &leecher(1)));
        }
        let swarm = tracker.announce(client(1), &with("numwant=1000", &leecher(1)));
        assert_eq!(distinct(&swarm).len(), 1000);
    }
}

#[test]
fn replies_say_when_to_come_again() {
    let mut tracker = Tracker::new(&configured(|config| config.announce.min_interval_s = 60));
    let intervals: Vec<i64> = (0..100)
        .map(|n| {
            let reply = tracker.ask(v4(n), &leecher(1));
            assert_eq!(reply.integer("min interval"), 60);
            reply.integer("interval")
        })
        .collect();
    assert!(intervals.iter().all(|interval_s| (1800..=2100).contains(interval_s)));
    let distinct: std::collections::BTreeSet<i64> = intervals.into_iter().collect();
    assert!(distinct.len() > 20, "intervals carry jitter: {distinct:?}");

    let mut tracker = Tracker::new(&configured(|config| config.announce.min_interval_s = 0));
    assert_eq!(tracker.ask(v4(1), &leecher(1)).find("min interval"), None);
    let hasty = configured(|config| {
        config.announce.min_interval_s = 300;
        config.announce.interval_s = 10;
        config.announce.interval_jitter_s = 0;
    });
    assert_eq!(Tracker::new(&hasty).ask(v4(1), &leecher(1)).integer("min interval"), 10);
}

#[test]
fn a_client_is_told_its_address() {
    let mut tracker = Tracker::new(&Config::default());
    assert_eq!(tracker.ask(v4(258), &leecher(1)).bytes("external ip"), [77, 1, 1, 2]);
    let IpAddr::V6(ip) = v6(9) else { unreachable!("the ninth client over IPv6") };
    assert_eq!(tracker.ask(v6(9), &leecher(1)).bytes("external ip"), ip.octets());
}

#[test]
fn claims_about_the_address_are_ignored() {
    let mut tracker = Tracker::new(&Config::default());
    for claim in ["ip=9.9.9.9", "ipv4=9.9.9.9:1", "ipv6=2001:db8::9", "ipv6=%5B2001%3Adb8%3A%3A9%5D%3A7"] {
        tracker.announce(v4(1), &with(claim, &leecher(6881)));
    }
    assert_eq!(tracker.announce(v4(2), &leecher(1)).peers, [at(v4(1), 6881)]);
}

#[test]
fn no_client_can_stop_another_hosts_peer() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(v4(1), &seeder(6881));
    tracker.announce(v4(2), &with("event=stopped", &seeder(6881)));
    assert_eq!(tracker.counts(&HASH), [1, 0, 0]);
}

#[test]
fn announces_are_counted_by_family() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(v4(1), &leecher(1));
    tracker.announce(v6(1), &leecher(1));
    tracker.announce(v6(2), &leecher(1));
    assert_eq!(tracker.counters.requests(Family::V4, Kind::Announce), 1);
    assert_eq!(tracker.counters.replies(Family::V6, Kind::Announce, Outcome::Ok), 2);
}
