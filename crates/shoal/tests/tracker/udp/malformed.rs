//! Datagrams that no client should send: dropped, counted, and never the end of the service.

use crate::client::{Announce, ERROR, head, scrape_packet, word};
use crate::udp::{Way, hash, over_every_way};

over_every_way!(
    truncated_requests_get_no_answer_and_are_counted,
    an_empty_scrape_gets_no_answer,
    oversized_datagrams_get_no_answer_and_are_counted,
    an_unknown_action_gets_an_error,
    random_datagrams_get_no_answer,
    mangled_requests_leave_the_service_going,
);

fn truncated_requests_get_no_answer_and_are_counted(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let whole = Announce::leecher(hash(1), 1001).packet(client.connect(), 5);
    for bytes in 0..whole.len() {
        client.send(&whole[..bytes]);
        if bytes % 16 == 0 {
            client.assert_silence(&format!("{bytes} bytes of an announce"));
        }
    }
    client.assert_silence("truncated announces");
    assert_eq!(tracker.metric("shoal_drops_total", &[way.family(), "reason=\"truncated\""]), 98);
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 0);
}

/// BEP 15 leaves no way to ask for all torrents.
fn an_empty_scrape_gets_no_answer(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let connection_id = client.connect();
    client.send(&scrape_packet(connection_id, 5, &[]));
    client.send(&[&scrape_packet(connection_id, 5, &[])[..], &[0; 19]].concat());
    client.assert_silence("a scrape of nothing");
    assert_eq!(tracker.metric("shoal_drops_total", &[way.family(), "reason=\"truncated\""]), 2);
}

fn oversized_datagrams_get_no_answer_and_are_counted(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let packet = Announce::leecher(hash(1), 1001).packet(client.connect(), 5);
    let largest = if way.v6 { 65_507 - 20 } else { 65_507 };
    for bytes in [2049, 4096, 9000, largest] {
        let mut oversized = packet.clone();
        oversized.resize(bytes, 0);
        client.send(&oversized);
        client.assert_silence(&format!("{bytes} bytes"));
    }
    assert_eq!(tracker.metric("shoal_drops_total", &[way.family(), "reason=\"oversized\""]), 4);
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 0);
}

/// Action 3 is for replies; 4 was once an IPv6 announce of one tracker, which no client uses.
fn an_unknown_action_gets_an_error(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let connection_id = client.connect();
    for action in [3, 4, 5, 255, u32::MAX] {
        let reply = client.ask(&[&head(connection_id, action, 5)[..], &[0; 82]].concat());
        assert_eq!((word(&reply, 0), word(&reply, 4)), (ERROR, 5), "action {action}");
    }
}

fn random_datagrams_get_no_answer(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let mut rng = fastrand::Rng::with_seed(15);
    for round in 0..40 {
        for _ in 0..50 {
            let mut packet = vec![0; rng.usize(0..300)];
            rng.fill(&mut packet);
            client.send(&packet);
        }
        client.assert_silence(&format!("random datagrams of round {round}"));
    }
    assert_eq!(tracker.metric("shoal_drops_total", &[way.family()]), 2000);
}

/// Good requests with some bytes changed: any answer is fine, or none, as long as the tracker lives.
fn mangled_requests_leave_the_service_going(way: Way) {
    let mut tracker = way.start(&[]);
    let (mangler, client) = (way.client(&tracker), way.client(&tracker));
    let connection_id = mangler.connect();
    let announce = Announce::leecher(hash(1), 1001).packet(connection_id, 5);
    let scrape = scrape_packet(connection_id, 5, &[hash(1), hash(2), hash(3)]);
    let mut rng = fastrand::Rng::with_seed(41);
    for round in 0..2000 {
        let mut packet = if round % 2 == 0 { announce.clone() } else { scrape.clone() };
        for _ in 0..rng.usize(1..4) {
            let byte = rng.usize(8..packet.len());
            packet[byte] = rng.u8(..);
        }
        mangler.send(&packet);
        if round % 50 == 0 {
            client.announce(&Announce::seeder(hash(9), 1001));
        }
    }
    client.announce(&Announce::seeder(hash(9), 1001));
    assert_eq!(tracker.page("/health").status, 200);
    assert_eq!(tracker.stop().code(), Some(0));
}
