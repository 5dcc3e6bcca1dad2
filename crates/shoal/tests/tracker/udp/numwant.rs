//! How many peers an announce is answered with, and which.

use std::collections::HashMap;

use crate::client::{Announce, Announced};
use crate::udp::{Way, hash, over_every_way};

over_every_way!(
    numwant_is_kept_up_to_the_cap,
    a_reply_fits_the_payload_limit,
    no_peer_is_handed_twice_in_a_reply,
    every_peer_is_handed_out_about_equally_often,
);

/// The bytes before the peers (BEP 15), and those of a peer.
fn reply_bytes(way: Way, peers: usize) -> usize {
    20 + peers * if way.v6 { 18 } else { 6 }
}

fn numwant_is_kept_up_to_the_cap(way: Way) {
    let tracker = way.start(&[("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0")]);
    let client = way.client(&tracker);
    client.announce_all((1..=300).map(|port| Announce::leecher(hash(1), port)));
    // 67 peers of IPv6 fit the default payload limit, fewer than the cap of 200.
    let cap = if way.v6 { 67 } else { 200 };
    for (numwant, expected) in
        [(-1, 50), (i32::MIN, 50), (0, 0), (1, 1), (2, 2), (3, 3), (50, 50), (201, cap), (i32::MAX, cap)]
    {
        let reply = client.announce(&Announce { numwant, ..Announce::leecher(hash(1), 1) });
        assert_eq!(reply.peers.len(), expected, "numwant {numwant}");
        assert_eq!(reply.leechers, 300);
    }
}

fn a_reply_fits_the_payload_limit(way: Way) {
    let limit = [
        ("SHOAL_UDP_REPLY_BYTES_MAX", "600"),
        ("SHOAL_ANNOUNCE_NUMWANT_MAX", "96"),
        ("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0"),
    ];
    let tracker = way.start(&limit);
    let client = way.client(&tracker);
    client.announce_all((1..=300).map(|port| Announce::leecher(hash(1), port)));
    let packet = Announce { numwant: 1000, ..Announce::leecher(hash(1), 1) }.packet(client.connect(), 5);
    let expected = if way.v6 { 32 } else { 96 };
    assert_eq!(client.ask(&packet).len(), reply_bytes(way, expected));
}

fn ports(reply: &Announced) -> Vec<u16> {
    let mut ports: Vec<u16> = reply.peers.iter().map(|peer| peer.port()).collect();
    ports.sort_unstable();
    ports
}

fn no_peer_is_handed_twice_in_a_reply(way: Way) {
    let tracker = way.start(&[("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0")]);
    let client = way.client(&tracker);
    for swarm_peers in [3, 20, 70, 500] {
        let swarm = hash(swarm_peers.into());
        client.announce_all((1..=swarm_peers).map(|port| Announce::leecher(swarm, port)));
        for numwant in [2, 10, 60] {
            let announce = Announce { numwant, ..Announce::leecher(swarm, 1) };
            for reply in client.announce_all(std::iter::repeat_n(announce, 50)) {
                let mut distinct = ports(&reply);
                distinct.dedup();
                assert_eq!(distinct.len(), reply.peers.len());
                assert_eq!(distinct.len(), usize::from(swarm_peers - 1).min(numwant.unsigned_abs() as usize));
            }
        }
    }
}

fn every_peer_is_handed_out_about_equally_often(way: Way) {
    let tracker = way.start(&[("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0")]);
    let client = way.client(&tracker);
    client.announce_all((1..=30).map(|port| Announce::seeder(hash(1), port)));
    client.announce_all((31..=101).map(|port| Announce::leecher(hash(1), port)));
    let announce = Announce { numwant: 10, ..Announce::leecher(hash(1), 101) };
    let mut handed = HashMap::<u16, u32>::new();
    for reply in client.announce_all(std::iter::repeat_n(announce, 3000)) {
        ports(&reply).into_iter().for_each(|port| *handed.entry(port).or_default() += 1);
    }
    // 3000 replies of 10 out of 100: each peer 300 times on average, with a deviation of about 16. The store
    // rotates over lines of peers, so a peer's share wanders more than that; half and double are far outside.
    assert_eq!(handed.len(), 100);
    assert!(handed.values().all(|&times| (150..600).contains(&times)), "{handed:?}");
}
