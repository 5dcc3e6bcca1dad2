//! Which requests are answered, and how much an unverified source can make the tracker send.

use shoal_config::Config;
use shoal_engine::counter::{Drop, Family, Kind, Outcome};
use shoal_engine::refusal::Refusal;
use shoal_wire::udp::{ConnectionId, Reply, Request};

use crate::harness::{
    HASH, TRANSACTION, Tracker, addr, announce_request, bytes_of, client_v4, client_v6, configured, error_of,
    leecher,
};

const WRONG: ConnectionId = ConnectionId(0x0bad_0bad_0bad_0bad);

fn answers_wrong_ids() -> Config {
    configured(|config| config.connection_id.answer_wrong = true)
}

#[test]
fn a_wrong_id_gets_silence_by_default_and_is_counted() {
    let mut tracker = Tracker::new(&Config::default());
    let scrape = Request::Scrape { connection_id: WRONG, transaction_id: TRANSACTION, info_hashes: &[HASH] };
    assert!(tracker.ask(client_v4(1), &announce_request(WRONG, &leecher(6881))).is_empty());
    assert!(tracker.ask(client_v6(1), &scrape).is_empty());
    assert_eq!(tracker.counters.drops(Family::V4, Drop::WrongConnectionId), 1);
    assert_eq!(tracker.counters.drops(Family::V6, Drop::WrongConnectionId), 1);
    assert_eq!((tracker.requests(Kind::Announce), tracker.requests(Kind::Scrape)), (1, 1));
}

#[test]
fn a_wrong_id_gets_an_error_if_so_configured_but_never_more_than_was_sent() {
    let mut tracker = Tracker::new(&answers_wrong_ids());
    let announce = bytes_of(&announce_request(WRONG, &leecher(6881)));
    assert_eq!(error_of(&tracker.datagram(client_v4(1), &announce)), "bad connection ID");

    let info_hashes = &[HASH];
    let scrape = Request::Scrape { connection_id: WRONG, transaction_id: TRANSACTION, info_hashes };
    assert_eq!(error_of(&tracker.ask(client_v6(1), &scrape)), "bad connection ID");

    let outcome = Outcome::Refused(Refusal::WrongConnectionId);
    assert_eq!(tracker.replies(Kind::Announce, outcome), 1);
    assert_eq!(tracker.replies(Kind::Scrape, outcome), 1);
    assert_eq!(tracker.drops(Drop::WrongConnectionId), 0);

    // An unknown action may be the error of another tracker.
    let bare = [&WRONG.0.to_be_bytes()[..], &[0, 0, 0, 9], &[1; 30]].concat();
    assert!(tracker.datagram(client_v4(1), &bare).is_empty());
    assert_eq!(tracker.drops(Drop::WrongConnectionId), 1);
}

#[test]
fn two_trackers_do_not_answer_each_other() {
    let mut trackers = [0; 2].map(|_| Tracker::new(&answers_wrong_ids()));
    let addresses = [addr("192.0.2.1:6969"), addr("192.0.2.2:6969")];
    let bare = [&WRONG.0.to_be_bytes()[..], &[0, 0, 0, 9], &[1, 2, 3, 4], b"and room for an error"].concat();
    for forged in [bare, bytes_of(&announce_request(WRONG, &leecher(6881)))] {
        let mut datagram = forged;
        let mut sent = 0;
        while !datagram.is_empty() && sent < 10 {
            let [to, from] = [sent % 2, (sent + 1) % 2];
            datagram = trackers[to].datagram(addresses[from], &datagram);
            sent += 1;
        }
        assert!(sent <= 2, "the error about the forged datagram is the last reply: {sent}");
    }
}

#[test]
fn the_protocol_id_is_no_connection_id() {
    let mut tracker = Tracker::new(&Config::default());
    let id = ConnectionId(shoal_wire::udp::PROTOCOL_ID);
    assert!(tracker.ask(client_v4(1), &announce_request(id, &leecher(6881))).is_empty());
}

#[test]
fn an_unknown_action_is_refused_in_words_if_the_source_is_verified() {
    let mut tracker = Tracker::new(&Config::default());
    for action in [3_u8, 4, 5, 255] {
        let id = tracker.connect(client_v6(1));
        let mut request = bytes_of(&announce_request(id, &leecher(6881)));
        request[11] = action;
        assert_eq!(error_of(&tracker.datagram(client_v6(1), &request)), "unknown action");
        assert!(tracker.datagram(client_v6(2), &request).is_empty());
    }
    assert_eq!(tracker.requests(Kind::Other), 8);
    assert_eq!(tracker.replies(Kind::Other, Outcome::Refused(Refusal::UnknownAction)), 4);
    assert_eq!(tracker.drops(Drop::WrongConnectionId), 4);
}

#[test]
fn truncated_datagrams_are_dropped_and_counted() {
    let mut tracker = Tracker::new(&answers_wrong_ids());
    let id = tracker.connect(client_v4(1));
    let scrape = Request::Scrape { connection_id: id, transaction_id: TRANSACTION, info_hashes: &[HASH] };
    let announce = bytes_of(&announce_request(id, &leecher(6881)));
    let mut dropped = 0;
    for whole in [bytes_of(&Request::Connect { transaction_id: TRANSACTION }), announce, bytes_of(&scrape)] {
        for bytes in 0..whole.len() {
            assert!(tracker.datagram(client_v4(1), &whole[..bytes]).is_empty(), "{bytes}");
            dropped += 1;
        }
    }
    assert_eq!(tracker.drops(Drop::Truncated), dropped);
}

#[test]
fn a_connect_without_the_protocol_id_is_dropped_and_counted() {
    let mut tracker = Tracker::new(&answers_wrong_ids());
    assert!(tracker.datagram(client_v4(1), &[0; 16]).is_empty());
    assert_eq!(tracker.drops(Drop::WrongProtocolId), 1);
}

#[test]
fn nothing_is_sent_to_where_nothing_can_arrive() {
    let mut tracker = Tracker::new(&Config::default());
    let connect = bytes_of(&Request::Connect { transaction_id: TRANSACTION });
    let sources =
        ["192.0.2.1:0", "[2001:db8::1]:0", "0.0.0.0:6881", "255.255.255.255:6881", "[ff02::1]:6881"];
    for source in sources {
        assert!(tracker.datagram(addr(source), &connect).is_empty(), "{source}");
    }
    assert_eq!(tracker.drops(Drop::UnanswerableSource), 5);
}

#[test]
fn batches_of_any_size_are_answered_one_by_one() {
    let mut tracker = Tracker::new(&Config::default());
    for size in [0_u32, 1, 63, 64, 65, 200] {
        let datagrams: Vec<_> = (0..size)
            .map(|n| {
                let transaction_id = shoal_wire::udp::TransactionId(n);
                let request = match n % 3 {
                    0 => bytes_of(&Request::Connect { transaction_id }),
                    1 => vec![0; 15],
                    _ => bytes_of(&announce_request(WRONG, &leecher(6881))),
                };
                (client_v4(n), request)
            })
            .collect();
        let replies = tracker.batch(&datagrams);
        for (n, reply) in (0..size).zip(&replies) {
            let expected_bytes = if n % 3 == 0 { 16 } else { 0 };
            assert_eq!(reply.len(), expected_bytes);
            if let Ok(Reply::Connect { transaction_id, .. }) = Reply::decode(reply) {
                assert_eq!(transaction_id.0, n);
            }
        }
    }
}
