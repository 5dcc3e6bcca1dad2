//! Offers and answers: their receivers, their number and their contents.

use shoal_config::Config;
use shoal_engine::counter::Loss;

use crate::harness::{Client, HASH, Tracker, answer, leecher, offer_heard, offers, relay_settings, reply};

/// Creates this many leechers with a socket each, numbered from 100.
fn leechers(tracker: &mut Tracker, count: u32) -> Vec<Client> {
    let mut join = |n| {
        let mut client = tracker.newcomer();
        assert_eq!(tracker.ask(&mut client, &leecher(n, "")).len(), 1);
        client
    };
    (100..100 + count).map(&mut join).collect()
}

/// Returns the messages that all of them have received.
fn all_heard(tracker: &mut Tracker, clients: &[Client]) -> Vec<Vec<String>> {
    clients.iter().map(|client| tracker.received(client)).collect()
}

/// Returns a client that made an offer, and the client that received it.
fn couple(tracker: &mut Tracker) -> [Client; 2] {
    let [mut one, mut other] = [tracker.newcomer(), tracker.newcomer()];
    tracker.ask(&mut other, &leecher(2, ""));
    tracker.ask(&mut one, &leecher(1, &format!(r#","offers":{}"#, offers("x", 1))));
    assert_eq!(tracker.received(&other), [offer_heard(1, "x-0")]);
    [one, other]
}

#[test]
fn an_unawaited_answer_is_dropped() {
    let mut tracker = Tracker::new(&Config::default());
    let [one, mut other] = couple(&mut tracker);
    let mut stranger = tracker.newcomer();
    tracker.ask(&mut stranger, &leecher(3, ""));
    for (n, to, offer_id) in [(2, 1, "x-1"), (3, 1, "x-0"), (2, 3, "x-0"), (2, 2, "x-0"), (1, 2, "x-0")] {
        tracker.say(&mut other, &answer(n, to, offer_id));
    }
    // The answer comes from another connection, once with its own peer id and once with that of the answerer.
    tracker.say(&mut stranger, &answer(3, 1, "x-0"));
    tracker.say(&mut stranger, &answer(2, 1, "x-0"));
    let other_torrent = answer(2, 1, "x-0").replace(HASH, "bbbbbbbbbbbbbbbbbbbb");
    tracker.say(&mut other, &other_torrent);
    for client in [&one, &other, &stranger] {
        assert_eq!(tracker.received(client), [""; 0]);
    }
    tracker.say(&mut other, &answer(2, 1, "x-0"));
    assert_eq!(tracker.received(&one).len(), 1, "all that has not used the debt up");
}

#[test]
fn an_answer_to_one_that_has_gone_is_dropped() {
    let mut tracker = Tracker::new(&Config::default());
    let [one, mut other] = couple(&mut tracker);
    tracker.leave(one);
    assert_eq!(tracker.ask(&mut other, &answer(2, 1, "x-0")), [""; 0]);
    // A later client with the same peer id does not receive it either.
    let mut next = tracker.newcomer();
    tracker.ask(&mut next, &leecher(1, ""));
    tracker.say(&mut other, &answer(2, 1, "x-0"));
    assert_eq!(tracker.received(&next), [""; 0]);
}

#[test]
fn an_answer_that_is_too_large_is_refused() {
    let mut tracker = Tracker::new(&Config::default());
    let [one, mut other] = couple(&mut tracker);
    let large = format!(r#""{}""#, "x".repeat(16 << 10));
    let received =
        tracker.ask(&mut other, &answer(2, 1, "x-0").replace(r#""answer"}"#, &format!("{large}}}")));
    assert_eq!((received.len(), received[0].contains("failure reason")), (1, true));
    assert_eq!(tracker.received(&one), [""; 0]);
}

#[test]
fn what_a_client_has_relayed_is_limited_and_its_announces_are_answered() {
    let relay = shoal_relay::Settings { relay_rate_max: 3000, ..relay_settings() };
    let mut tracker = Tracker::of(1, &Config::default(), &relay);
    let others = leechers(&mut tracker, 9);
    let mut client = tracker.newcomer();
    let mut announce = |tracker: &mut Tracker, name: &str| {
        let more = format!(r#","offers":{}"#, offers(name, 9));
        assert_eq!(tracker.ask(&mut client, &leecher(1, &more)), [reply(0, 10)]);
        all_heard(tracker, &others).concat().len()
    };
    // The allowance is eight seconds of the rate, and the last offer may exceed it.
    let burst = usize::try_from(24_000_u64.div_ceil(shoal_relay::MESSAGE_BYTES_MIN)).unwrap();
    assert_eq!(burst, 12);
    let first = announce(&mut tracker, "a");
    assert_eq!(first + announce(&mut tracker, "b"), burst);
    assert_eq!(announce(&mut tracker, "c"), 0);
    assert_eq!(tracker.count(|counters| counters.losses(Loss::RateLimited)), 27 - burst as u64);
    tracker.pass(60);
    assert_eq!(announce(&mut tracker, "d"), burst.min(9));
}

#[test]
fn a_receiver_gets_a_bounded_number_of_offers_of_one_address() {
    let relay = shoal_relay::Settings { relay_rate_max: 256 * 1024, ..relay_settings() };
    let mut tracker = Tracker::of(1, &Config::default(), &relay);
    let victim = leechers(&mut tracker, 1);
    let of_address = |tracker: &mut Tracker, ip: &str, number: u32| {
        let mut received = 0;
        for _ in 0..8 {
            // Each of the sockets is within its own limit.
            let mut client = tracker.connect(ip.parse().unwrap());
            for _ in 0..30 {
                let more = format!(r#","offers":{}"#, offers("x", 1));
                tracker.ask(&mut client, &leecher(number, &more));
                received += all_heard(tracker, &victim).concat().len();
            }
            tracker.leave(client);
        }
        received
    };
    assert_eq!(of_address(&mut tracker, "192.0.2.7", 2), 128);
    assert_eq!(tracker.count(|counters| counters.losses(Loss::RateLimited)), 8 * 30 - 128);
    assert_eq!(of_address(&mut tracker, "192.0.2.8", 3), 128, "another address");
    tracker.pass(1);
    assert_eq!(of_address(&mut tracker, "192.0.2.7", 2), 16);
}

#[test]
fn a_queue_that_is_full_takes_no_more_offers_and_loses_none_of_its_own_replies() {
    let mut tracker = Tracker::new(&Config::default());
    let (mut one, mut other) = (tracker.newcomer(), tracker.newcomer());
    tracker.ask(&mut one, &leecher(1, ""));
    tracker.set_unsent(&one, 64 * 1024);
    let more = format!(r#","offers":{}"#, offers("x", 1));
    assert_eq!(tracker.ask(&mut other, &leecher(2, &more)), [reply(0, 2)]);
    assert_eq!(tracker.count(|counters| counters.losses(Loss::QueueFull)), 1);
    assert_eq!(tracker.ask(&mut one, &leecher(1, &more)), [""; 0], "it waits");
    tracker.set_unsent(&one, 0);
    assert_eq!(tracker.received(&one), [reply(0, 2)]);
}
