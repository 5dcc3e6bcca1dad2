//! Connection ids: who may use which, and what happens without one.

use crate::kit::client::{Announce, Client, connect_packet};
use crate::udp::{Way, hash, over_every_way};

over_every_way!(
    a_flood_of_wrong_ids_leaves_the_service_going,
    trackers_with_the_same_key_accept_the_ids_of_each_other,
    trackers_with_random_keys_do_not_accept_the_ids_of_each_other,
);

const KEY: (&str, &str) = ("SHOAL_CONNECTION_ID_KEY", "00112233445566778899aabbccddeeff");

/// Whether an announce with this id is answered.
fn is_accepted(client: &Client, connection_id: u64) -> bool {
    client.send(&Announce::leecher(hash(1), 1001).packet(connection_id, 5));
    client.send(&connect_packet(6));
    match client.receive().len() {
        16 => false,
        20 => {
            assert_eq!(client.receive().len(), 16);
            true
        }
        bytes => panic!("a strange reply of {bytes} bytes"),
    }
}

fn a_flood_of_wrong_ids_leaves_the_service_going(way: Way) {
    /// Few enough for the receive buffer, so that every one of them can be accounted for.
    const BURST: u64 = 1000;
    const BURSTS: u64 = 20;
    let tracker = way.start(&[]);
    let (attacker, client) = (way.client(&tracker), way.client(&tracker));
    for burst in 0..BURSTS {
        for number in 0..BURST {
            attacker.send(&Announce::leecher(hash(1), 1001).packet(burst * BURST + number, 5));
        }
        client.announce(&Announce::seeder(hash(2), 1001));
        attacker.assert_silence("the flood");
    }
    let drops = tracker.metric("shoal_drops_total", &[way.family(), "reason=\"wrong_connection_id\""]);
    assert_eq!(drops, BURST * BURSTS);
    assert_eq!(tracker.metric("shoal_peers", &[way.family(), "role=\"leecher\""]), 0);
    assert_eq!(tracker.metric("shoal_peers", &[way.family(), "role=\"seeder\""]), 1);
}

fn trackers_with_the_same_key_accept_the_ids_of_each_other(way: Way) {
    let (one, other) = (way.start(&[KEY]), way.start(&[KEY]));
    let connection_id = way.client(&one).connect();
    assert!(is_accepted(&way.client(&other), connection_id));
    assert!(!one.log().contains("00112233"), "the key is in the log");
}

fn trackers_with_random_keys_do_not_accept_the_ids_of_each_other(way: Way) {
    let (one, other) = (way.start(&[]), way.start(&[]));
    let connection_id = way.client(&one).connect();
    assert!(!is_accepted(&way.client(&other), connection_id));
}
