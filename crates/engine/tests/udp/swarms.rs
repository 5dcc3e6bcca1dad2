//! Replies to verified clients about swarms.

use std::collections::HashSet;
use std::net::SocketAddr;

use shoal_base::{Event, InfoHash};
use shoal_config::Config;
use shoal_engine::counter::{Family, Kind, Outcome};
use shoal_engine::refusal::Refusal;
use shoal_wire::udp::Announce;

use crate::harness::{
    HASH, Swarm, Tracker, addr, announce_request, bytes_of, client_v4, client_v6, configured, error_of,
    leecher, seeder, store_settings, swarm_of, with_event,
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
fn no_client_can_stop_another_hosts_peer() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(client_v4(1), &seeder(6881));
    tracker.announce(client_v4(2), &with_event(Event::Stopped, seeder(6881)));
    assert_eq!(tracker.scrape(client_v4(9), &[HASH]), [[1, 0, 0]]);
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
fn a_scrape_tells_of_the_family_that_asks() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(client_v4(1), &seeder(6881));
    tracker.announce(client_v6(1), &leecher(6881));
    assert_eq!(tracker.scrape(client_v4(2), &[HASH]), [[1, 0, 0]]);
    assert_eq!(tracker.scrape(client_v6(2), &[HASH]), [[0, 0, 1]]);
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
