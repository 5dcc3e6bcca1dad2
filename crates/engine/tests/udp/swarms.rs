//! Replies to verified clients about swarms.

use std::collections::HashSet;
use std::net::SocketAddr;

use shoal_base::{Event, InfoHash};
use shoal_config::Config;
use shoal_engine::counter::{Family, Kind, Outcome};
use shoal_engine::refusal::Refusal;
use shoal_wire::udp::{Announce, Request};

use crate::harness::{
    HASH, Swarm, TRANSACTION, Tracker, addr, announce_request, bytes_of, client_v4, client_v6, configured,
    entries_of, error_of, leecher, seeder, store_settings, swarm_of, with_event,
};

/// Both families behave alike, so most tests run over both.
const FAMILIES: [fn(u32) -> SocketAddr; 2] = [client_v4, client_v6];

fn numwant(num_want: i32, announce: Announce) -> Announce {
    Announce { num_want: num_want.into(), ..announce }
}

fn hash(n: u8) -> InfoHash {
    InfoHash([n; 20])
}

fn distinct(swarm: &Swarm) -> HashSet<SocketAddr> {
    let peers: HashSet<SocketAddr> = swarm.peers.iter().copied().collect();
    assert_eq!(peers.len(), swarm.peers.len(), "a duplicate in {swarm:?}");
    peers
}

#[test]
fn two_peers_find_each_other_and_not_themselves() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&Config::default());
        let first = tracker.announce(client(1), &seeder(6881));
        assert_eq!((first.seeders, first.leechers, &first.peers[..]), (1, 0, &[][..]));
        let second = tracker.announce(client(2), &leecher(6881));
        assert_eq!((second.seeders, second.leechers, &second.peers[..]), (1, 1, &[client(1)][..]));
        let again = tracker.announce(client(1), &seeder(6881));
        assert_eq!((again.seeders, again.leechers, &again.peers[..]), (1, 1, &[client(2)][..]));
    }
}

#[test]
fn an_identity_is_address_and_port() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(addr("192.0.2.1:9"), &leecher(1));
    tracker.announce(addr("192.0.2.1:9"), &leecher(2));
    let third = tracker.announce(addr("192.0.2.1:8"), &leecher(3));
    assert_eq!(third.leechers, 3, "one peer id, one source port, three announced ports");
    assert_eq!(distinct(&third), HashSet::from([addr("192.0.2.1:1"), addr("192.0.2.1:2")]));
}

#[test]
fn the_ip_field_is_not_trusted() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(client_v4(1), &Announce { ip: [9, 9, 9, 9], ..leecher(6881) });
    assert_eq!(tracker.announce(client_v4(2), &leecher(6881)).peers, [client_v4(1)]);
}

#[test]
fn families_are_apart_and_mapped_addresses_are_ipv4() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(addr("192.0.2.1:1"), &leecher(6881));
    tracker.announce(addr("[2001:db8::1]:1"), &leecher(6881));
    assert_eq!(tracker.announce(addr("[2001:db8::2]:1"), &leecher(6881)).peers, [addr("[2001:db8::1]:6881")]);

    let mapped = tracker.announce(addr("[::ffff:192.0.2.2]:1"), &leecher(6881));
    assert_eq!(mapped.peers, [addr("192.0.2.1:6881")]);
    assert_eq!(tracker.counters.requests(Family::V4, Kind::Announce), 2);
    assert_eq!(tracker.counters.replies(Family::V6, Kind::Announce, Outcome::Ok), 2);
}

#[test]
fn a_seeder_is_handed_leechers_only() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&Config::default());
        tracker.announce(client(1), &seeder(6881));
        tracker.announce(client(2), &leecher(6881));
        assert_eq!(tracker.announce(client(3), &seeder(6881)).peers, [client(2)]);
        assert_eq!(distinct(&tracker.announce(client(4), &leecher(6881))).len(), 3);
    }
}

#[test]
fn an_unknown_amount_left_is_that_of_a_leecher() {
    for left_bytes in [-1, i64::MIN, i64::MAX] {
        let mut tracker = Tracker::new(&Config::default());
        let announce = Announce { left_bytes: left_bytes.into(), ..leecher(6881) };
        assert_eq!(tracker.announce(client_v4(1), &announce).leechers, 1, "{left_bytes}");
    }
}

#[test]
fn completed_makes_a_seeder_whatever_is_left_and_counts_once() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&Config::default());
        tracker.announce(client(1), &leecher(6881));
        for _ in 0..3 {
            let swarm = tracker.announce(client(1), &with_event(Event::Completed, leecher(6881)));
            assert_eq!((swarm.seeders, swarm.leechers), (1, 0));
            assert_eq!(tracker.scrape(client(9), &[HASH]), [[1, 1, 0]]);
        }
    }
}

#[test]
fn a_seeder_may_become_a_leecher_again() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(client_v4(1), &seeder(6881));
    let swarm = tracker.announce(client_v4(1), &leecher(6881));
    assert_eq!((swarm.seeders, swarm.leechers), (0, 1));
}

#[test]
fn stopped_leaves_gets_no_peers_and_creates_no_swarm() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&Config::default());
        tracker.announce(client(1), &seeder(6881));
        tracker.announce(client(2), &leecher(6881));
        let gone = tracker.announce(client(2), &with_event(Event::Stopped, numwant(50, leecher(6881))));
        assert_eq!((gone.seeders, gone.leechers, &gone.peers[..]), (1, 0, &[][..]));
        assert!(gone.interval_s >= 1800, "a normal reply");

        let unknown = Announce { info_hash: hash(9), ..with_event(Event::Stopped, leecher(6881)) };
        let gone = tracker.announce(client(3), &unknown);
        assert_eq!((gone.seeders, gone.leechers, &gone.peers[..]), (0, 0, &[][..]));
        assert_eq!(tracker.scrape(client(9), &[hash(9)]), [[0, 0, 0]]);
    }
}

#[test]
fn no_client_can_stop_another_hosts_peer() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(client_v4(1), &seeder(6881));
    tracker.announce(client_v4(2), &with_event(Event::Stopped, seeder(6881)));
    assert_eq!(tracker.scrape(client_v4(9), &[HASH]), [[1, 0, 0]]);
}

#[test]
fn a_client_at_port_0_is_handed_peers_and_is_not_registered() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(client_v4(1), &seeder(6881));
    tracker.announce(client_v4(2), &leecher(6882));
    let hidden = tracker.announce(client_v4(3), &leecher(0));
    assert_eq!((hidden.seeders, hidden.leechers, hidden.peers.len()), (1, 1, 2));
    let hidden = tracker.announce(client_v4(3), &seeder(0));
    assert_eq!((hidden.seeders, hidden.leechers, hidden.peers.len()), (1, 1, 1));
    tracker.announce(client_v4(3), &with_event(Event::Completed, leecher(0)));
    tracker.announce(client_v4(3), &with_event(Event::Stopped, leecher(0)));
    assert_eq!(tracker.scrape(client_v4(9), &[HASH]), [[1, 0, 1]]);
}

#[test]
fn private_addresses_are_served_unless_the_operator_refuses_them() {
    let private = ["127.0.0.1:1", "10.0.0.1:1", "[::1]:1", "[fe80::1]:1", "[::ffff:192.168.0.1]:1"];
    let mut open = Tracker::new(&Config::default());
    let mut strict =
        Tracker::new(&configured(|config| config.address.private = shoal_config::PrivateAddresses::Refuse));
    for source in private.map(addr) {
        open.announce(source, &leecher(6881));
        let words = strict.refusal(source, &leecher(6881));
        assert_eq!(words, "private addresses are not served by this tracker");
    }
    strict.announce(client_v4(1), &leecher(6881));
}

#[test]
fn numwant_is_obeyed_to_the_number() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&configured(|config| {
            config.announce.numwant_default = 5;
            config.announce.numwant_max = 20;
        }));
        for n in 0..40 {
            tracker.announce(client(n), &numwant(0, leecher(6881)));
        }
        for (num_want, expected) in
            [(0, 0), (1, 1), (2, 2), (3, 3), (20, 20), (21, 20), (i32::MAX, 20), (-1, 5), (i32::MIN, 5)]
        {
            let swarm = tracker.announce(client(7), &numwant(num_want, leecher(6881)));
            assert_eq!(distinct(&swarm).len(), expected, "numwant {num_want}");
            assert!(!swarm.peers.contains(&client(7)));
        }
    }
}

#[test]
fn a_reply_fits_the_path_whatever_is_wanted() {
    let small = configured(|config| {
        config.announce.numwant_max = 1000;
        config.udp.reply_bytes_max = 548;
    });
    let default = configured(|config| config.announce.numwant_max = 1000);
    let huge = configured(|config| {
        config.announce.numwant_max = 1000;
        config.udp.reply_bytes_max = 9000;
    });
    for (settings, bytes) in [(small, 548), (default, 1232), (huge, 1452)] {
        let mut tracker = Tracker::new(&settings);
        for client in FAMILIES {
            for n in 0..400 {
                tracker.announce(client(n), &numwant(0, leecher(6881)));
            }
        }
        let announce = numwant(1000, leecher(6881));
        let reply = tracker.announce_raw(client_v4(1), &announce);
        assert_eq!(reply.len(), 20 + (bytes - 20) / 6 * 6);
        distinct(&swarm_of(client_v4(1), &reply));
        let reply = tracker.announce_raw(client_v6(1), &announce);
        assert_eq!(reply.len(), 20 + (bytes - 20) / 18 * 18);
        distinct(&swarm_of(client_v6(1), &reply));
    }
}

#[test]
fn intervals_carry_jitter() {
    let mut tracker = Tracker::new(&Config::default());
    let intervals: HashSet<u32> =
        (0..100).map(|n| tracker.announce(client_v4(n), &leecher(6881)).interval_s).collect();
    assert!(intervals.iter().all(|interval_s| (1800..=2100).contains(interval_s)));
    assert!(intervals.len() > 20, "{intervals:?}");
}

#[test]
fn every_number_of_hashes_up_to_the_cap_is_scraped_in_order_and_the_rest_left_out() {
    for client in FAMILIES {
        let mut tracker = Tracker::new(&Config::default());
        for n in 0..=u8::MAX {
            if n % 3 == 0 {
                tracker.announce(client(n.into()), &Announce { info_hash: hash(n), ..seeder(6881) });
            }
        }
        let hashes: Vec<InfoHash> = (0..=u8::MAX).map(hash).collect();
        for asked in 1..=150 {
            let entries = tracker.scrape(client(1), &hashes[..asked]);
            assert_eq!(entries.len(), asked.min(74));
            for (n, entry) in entries.iter().enumerate() {
                assert_eq!(*entry, [u32::from(n % 3 == 0), 0, 0], "hash {n} of {asked}");
            }
        }
    }
}

#[test]
fn a_scrape_never_exceeds_the_reply_limit() {
    let settings = configured(|config| config.udp.reply_bytes_max = 548);
    let mut tracker = Tracker::new(&settings);
    let hashes = vec![HASH; 200];
    assert_eq!(tracker.scrape(client_v4(1), &hashes).len(), (548 - 8) / 12);
    assert_eq!(tracker.scrape(client_v6(1), &hashes).len(), (548 - 8) / 12);
}

#[test]
fn a_scrape_with_a_broken_tail_is_answered_for_its_whole_hashes() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(client_v4(1), &seeder(6881));
    let connection_id = tracker.connect(client_v4(1));
    let request =
        Request::Scrape { connection_id, transaction_id: TRANSACTION, info_hashes: &[hash(1), HASH] };
    let mut request = bytes_of(&request);
    request.extend([0xaa; 19]);
    assert_eq!(entries_of(&tracker.datagram(client_v4(1), &request)), [[0, 0, 0], [1, 0, 0]]);
}

#[test]
fn a_scrape_tells_of_the_family_that_asks() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(client_v4(1), &seeder(6881));
    tracker.announce(client_v6(1), &leecher(6881));
    assert_eq!(tracker.scrape(client_v4(2), &[HASH]), [[1, 0, 0]]);
    assert_eq!(tracker.scrape(client_v6(2), &[HASH]), [[0, 0, 1]]);
}

#[test]
fn announces_with_options_and_other_trailing_bytes_are_served() {
    let mut tracker = Tracker::new(&Config::default());
    let id = tracker.connect(client_v4(1));
    for tail in [&b"\x02\x05/path\x00"[..], b"\x02\xffshort", b"\x00junk", &[0xff; 1000]] {
        let mut request = bytes_of(&announce_request(id, &leecher(6881)));
        request.extend(tail);
        let reply = tracker.datagram(client_v4(1), &request);
        assert_eq!(swarm_of(client_v4(1), &reply).leechers, 1);
    }
}

#[test]
fn a_batch_is_applied_in_the_order_of_arrival() {
    let mut tracker = Tracker::new(&Config::default());
    let datagrams: Vec<_> = (0..64)
        .map(|n| {
            let source = if n % 2 == 0 { client_v4(n) } else { client_v6(n) };
            let connection_id = tracker.connect(source);
            (source, bytes_of(&announce_request(connection_id, &numwant(50, leecher(6881)))))
        })
        .collect();
    let replies = tracker.batch(&datagrams);
    for (n, ((source, _), reply)) in datagrams.iter().zip(&replies).enumerate() {
        let swarm = swarm_of(*source, reply);
        assert_eq!(distinct(&swarm).len(), n / 2, "sees those before it, of its family");
        assert_eq!(usize::try_from(swarm.leechers), Ok(n / 2 + 1));
    }
}

#[test]
fn a_nearly_full_store_says_so_and_existing_swarms_go_on() {
    // The error is one of many that a strict tracker gives, but the client did not cause it.
    let settings = configured(|config| config.connection_id.answer_wrong = true);
    let store = shoal_store::Settings { memory_bytes_max: 4 << 20, ..store_settings() };
    let mut tracker = Tracker::with_store(&settings, &store);
    tracker.announce(client_v4(1), &seeder(6881));
    let connection_id = tracker.connect(client_v4(2));
    let refused = (0_u32..2_000_000).find_map(|n| {
        let mut info_hash = [0; 20];
        info_hash[..4].copy_from_slice(&n.to_be_bytes());
        let announce = Announce { info_hash: InfoHash(info_hash), ..leecher(6881) };
        let reply = tracker.ask(client_v4(2), &announce_request(connection_id, &announce));
        (reply[3] == 3).then_some(reply)
    });
    assert_eq!(error_of(&refused.expect("4 MiB fill up")), Refusal::SourceOverShare.message());
    assert_eq!(tracker.replies(Kind::Announce, Outcome::Refused(Refusal::SourceOverShare)), 1);
    let swarm = tracker.announce(client_v4(1), &seeder(6881));
    assert_eq!((swarm.seeders, swarm.leechers), (1, 0));
    // A new torrent from another source.
    let announce = Announce { info_hash: InfoHash([0xee; 20]), ..leecher(6881) };
    assert_eq!(tracker.announce(client_v4(1), &announce).leechers, 1);
}
