//! Connection ids: who may use which, and what happens without one.

use crate::client::{Announce, Client, connect_packet, head, scrape_packet};
use crate::udp::{Way, hash, over_every_way};

over_every_way!(
    a_wrong_id_gets_no_answer_and_is_counted,
    a_wrong_id_may_get_an_error_no_larger_than_the_request,
    a_wrong_protocol_id_gets_no_answer_and_is_counted,
    a_flood_of_wrong_ids_leaves_the_service_going,
    trackers_with_the_same_key_accept_the_ids_of_each_other,
    a_restart_with_the_same_key_accepts_older_ids,
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

fn a_wrong_id_gets_no_answer_and_is_counted(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let good = client.connect();
    let wrong = [0, 1, u64::MAX, good ^ 1, good ^ (1 << 63), 0x0417_2710_1980];
    for connection_id in wrong {
        client.send(&Announce::leecher(hash(1), 1001).packet(connection_id, 5));
        client.send(&scrape_packet(connection_id, 5, &[hash(1)]));
        client.send(&head(connection_id, 77, 5));
        client.assert_silence(&format!("connection id {connection_id:x}"));
    }
    let drops = tracker.metric("shoal_drops_total", &[way.family(), "reason=\"wrong_connection_id\""]);
    assert_eq!(drops, 3 * wrong.len() as u64);
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 0);
}

fn a_wrong_id_may_get_an_error_no_larger_than_the_request(way: Way) {
    let tracker = way.start(&[("SHOAL_CONNECTION_ID_ANSWER_WRONG", "true")]);
    let client = way.client(&tracker);
    for packet in [Announce::leecher(hash(1), 1001).packet(1, 5), scrape_packet(1, 5, &[hash(1)])] {
        let words = client.refusal(&packet);
        assert!(words.to_lowercase().contains("connection id"), "{words}");
        assert!(8 + words.len() <= packet.len());
    }
    // An error would be larger than this request, whose sender may be forged.
    client.send(&head(1, 77, 5));
    client.assert_silence("a short request with a wrong id");
}

fn a_wrong_protocol_id_gets_no_answer_and_is_counted(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    for protocol_id in [0, 0x0417_2710_1981, u64::MAX] {
        client.send(&head(protocol_id, 0, 5));
        client.assert_silence("a connect request of another protocol");
    }
    assert_eq!(tracker.metric("shoal_drops_total", &[way.family(), "reason=\"wrong_protocol_id\""]), 3);
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

fn a_restart_with_the_same_key_accepts_older_ids(way: Way) {
    let mut before = way.start(&[KEY]);
    let connection_id = way.client(&before).connect();
    assert_eq!(before.stop().code(), Some(0));
    assert!(is_accepted(&way.client(&way.start(&[KEY])), connection_id));
}

fn trackers_with_random_keys_do_not_accept_the_ids_of_each_other(way: Way) {
    let (one, other) = (way.start(&[]), way.start(&[]));
    let connection_id = way.client(&one).connect();
    assert!(!is_accepted(&way.client(&other), connection_id));
}
