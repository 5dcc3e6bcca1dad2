//! Effects of an announce, and the peers in its reply.

use std::net::{IpAddr, SocketAddr};

use shoal_base::InfoHash;
use shoal_config::Config;
use shoal_engine::counter::{Family, Kind, Outcome};

use crate::bencode::Value;
use crate::harness::{
    FAMILIES, HASH, Tracker, at, configured, distinct, hash, leecher, query, seeder, swarm_of, v4, v6, with,
};

#[test]
fn two_peers_find_each_other_and_not_themselves() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&Config::default());
        let first = tracker.announce(client(1), &seeder(6881));
        assert_eq!((first.complete, first.incomplete, &first.peers[..]), (1, 0, &[][..]));
        let second = tracker.announce(client(2), &leecher(6882));
        assert_eq!((second.complete, second.incomplete), (1, 1));
        assert_eq!(second.peers, [at(client(1), 6881)]);
        let again = tracker.announce(client(1), &seeder(6881));
        assert_eq!(again.peers, [at(client(2), 6882)]);
    }
}

#[test]
fn peers_of_http_and_udp_find_each_other() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&Config::default());
        tracker.announce(client(1), &leecher(1001));
        assert_eq!(tracker.announce_udp(client(2), 1002, 5), [at(client(1), 1001)]);
        let swarm = tracker.announce(client(3), &leecher(1003));
        assert_eq!(distinct(&swarm), [at(client(1), 1001), at(client(2), 1002)]);
        assert_eq!(swarm.incomplete, 3);
    }
}

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
fn a_client_at_port_0_is_handed_peers_and_is_not_registered() {
    for (client, other) in [(FAMILIES[0], FAMILIES[1]), (FAMILIES[1], FAMILIES[0])] {
        let mut tracker = Tracker::new(&Config::default());
        tracker.announce(client(1), &seeder(1001));
        tracker.announce(other(2), &leecher(1002));
        let peers = [at(v4(1), 1001), at(v4(2), 1002), at(v6(1), 1001), at(v6(2), 1002)];
        let peers: Vec<_> = peers
            .into_iter()
            .filter(|peer| [at(client(1), 1001), at(other(2), 1002)].contains(peer))
            .collect();
        for hidden in [leecher(0), with("hide=1", &leecher(1003)), with("event=started", &leecher(0))] {
            let swarm = tracker.announce(client(3), &hidden);
            assert_eq!((swarm.complete, swarm.incomplete, &swarm.peers), (1, 1, &peers), "{hidden}");
        }
        // A seeder is handed leechers only, and its download is not counted.
        for hidden in [seeder(0), with("event=completed", &leecher(0))] {
            let swarm = tracker.announce(client(3), &hidden);
            assert_eq!((swarm.downloaded, swarm.peers), (0, vec![at(other(2), 1002)]), "{hidden}");
        }
        assert_eq!(tracker.announce(client(3), &with("event=stopped", &leecher(0))).peers, []);
        assert_eq!(tracker.counts(&HASH), [1, 1, 0]);
        assert_eq!(tracker.announce(client(4), &query(&hash(9), 0, 1)).peers, []);
        assert_eq!(tracker.counts(&hash(9)), [0, 0, 0], "no swarm comes of it");
    }
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
fn stopped_leaves_gets_no_peers_and_creates_no_swarm() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&Config::default());
        tracker.announce(v4(1), &seeder(1));
        tracker.announce(v6(1), &leecher(1));
        tracker.announce(client(2), &leecher(1));
        let reply = tracker.ask(client(2), &with("event=stopped&numwant=50", &leecher(1)));
        assert_eq!(reply.bytes("peers"), b"", "always there, as µTorrent insists on it");
        assert!(reply.integer("interval") >= 1800, "a normal reply");
        let swarm = swarm_of(&reply);
        assert_eq!((swarm.complete, swarm.incomplete, &swarm.peers[..]), (1, 1, &[][..]));

        let gone = tracker.announce(client(3), &with("event=stopped", &query(&hash(9), 1, 1)));
        assert_eq!((gone.complete, gone.incomplete, &gone.peers[..]), (0, 0, &[][..]));
        assert_eq!(tracker.store.totals().map(|totals| totals.swarms), [1, 1]);
    }
}

#[test]
fn no_client_can_stop_another_hosts_peer() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(v4(1), &seeder(6881));
    tracker.announce(v4(2), &with("event=stopped", &seeder(6881)));
    assert_eq!(tracker.counts(&HASH), [1, 0, 0]);
}

#[test]
fn completed_makes_a_seeder_whatever_is_left_and_counts_once() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&Config::default());
        tracker.announce(client(1), &leecher(1));
        for _ in 0..3 {
            let swarm = tracker.announce(client(1), &with("event=completed", &leecher(1)));
            assert_eq!((swarm.complete, swarm.incomplete, swarm.downloaded), (1, 0, 1));
        }
        assert_eq!(tracker.counts(&HASH), [1, 0, 1]);
    }
}

#[test]
fn a_client_that_does_not_know_what_is_left_is_a_leecher() {
    let info_hash = crate::harness::named(&HASH);
    for left in ["", "&left=", "&left=-1", "&left=18446744073709551615", "&left=99999999999999999999999"] {
        let mut tracker = Tracker::new(&Config::default());
        let asked = format!("{info_hash}&peer_id=-XX0001-abcdefghijkl&port=1{left}");
        assert_eq!(tracker.announce(v4(1), &asked).incomplete, 1, "{left:?}");
    }
}

#[test]
fn unknown_events_are_updates() {
    for event in ["event=", "event=paused", "event=started", "event=%00", "event"] {
        let mut tracker = Tracker::new(&Config::default());
        let swarm = tracker.announce(v4(1), &with(event, &leecher(1)));
        assert_eq!((swarm.complete, swarm.incomplete), (0, 1), "{event}");
    }
}

#[test]
fn who_wants_no_compact_list_is_sent_dictionaries_without_peer_ids() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(v4(1), &leecher(1001));
    tracker.announce(v6(1), &leecher(1002));
    let asked = leecher(1003).replace("compact=1", "compact=0");
    let reply = tracker.ask(v4(2), &asked);
    let peer_of = |value: &Value| -> SocketAddr {
        assert_eq!(value.dictionary().len(), 2, "no peer id: the store has none");
        at(value.text("ip").parse().unwrap(), value.integer("port").try_into().unwrap())
    };
    let Some(Value::List(peers)) = reply.find("peers") else { panic!("no list of peers: {reply:?}") };
    let peers: Vec<SocketAddr> = peers.iter().map(peer_of).collect();
    assert_eq!(peers, [at(v4(1), 1001), at(v6(1), 1002)]);
}

#[test]
fn parameters_of_real_clients_are_taken() {
    let mut tracker = Tracker::new(&Config::default());
    let raw = "compact=1&no_peer_id=1&numwant=200&event=started&key=DEADBEEF&trackerid=x&supportcrypto=1&\
               requirecrypto=1&corrupt=0&redundant=0&ipv6=2001%3Adb8%3A%3A1&left=16384&downloaded=0&uploaded=0&\
               port=51413&peer_id=-TR4040-aaaaaaaaaaaa&&info_hash=\
               %AA%aa%Aa%aA%AA%AA%AA%AA%AA%AA%AA%AA%AA%AA%AA%AA%AA%AA%AA%AA";
    tracker.announce(v4(1), raw);
    assert_eq!(tracker.announce(v4(2), &leecher(1)).peers, [at(v4(1), 51413)]);
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

#[test]
fn every_info_hash_is_one_of_its_own() {
    let mut tracker = Tracker::new(&Config::default());
    // Bytes with a meaning in a query, raw and escaped.
    let hashes = [InfoHash([b'&'; 20]), InfoHash([b'='; 20]), InfoHash([b'%'; 20]), InfoHash([0; 20])];
    for info_hash in &hashes {
        assert_eq!(tracker.announce(v4(1), &query(info_hash, 1, 0)).complete, 1);
    }
    for info_hash in &hashes {
        assert_eq!(tracker.counts(info_hash), [1, 0, 0]);
    }
}
