//! Offers and answers: their receivers, their number and their contents.

use std::collections::BTreeSet;

use shoal_config::Config;
use shoal_engine::counter::Loss;

use crate::harness::{
    Client, HASH, SDP, Tracker, answer, configured, leecher, offer_heard, offers, peer_id, relay_settings,
    reply, seeder, v4, v6,
};

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

#[test]
fn numwant_is_obeyed_to_the_number() {
    let settings = configured(|config| config.webtorrent.offers_max = 8);
    let numwants = [("0", 0), ("1", 1), ("2", 2), ("3", 3), ("8", 8), ("9", 8), ("99999999999999999999", 8)];
    for (numwant, expected) in numwants.into_iter().chain([("-1", 8), ("-7", 8), ("null", 8)]) {
        let mut tracker = Tracker::new(&settings);
        let others = leechers(&mut tracker, 20);
        let mut client = tracker.newcomer();
        let more = format!(r#","numwant":{numwant},"offers":{}"#, offers("x", 12));
        assert_eq!(tracker.ask(&mut client, &leecher(1, &more)), [reply(0, 21)]);
        let received = all_heard(&mut tracker, &others);
        assert!(received.iter().all(|received| received.len() <= 1), "each to another: numwant {numwant}");
        let offers: BTreeSet<String> = received.into_iter().flatten().collect();
        let first: BTreeSet<String> = (0..expected).map(|n| offer_heard(1, &format!("x-{n}"))).collect();
        assert_eq!(offers, first, "numwant {numwant}");
    }
}

#[test]
fn no_more_offers_than_there_are_or_peers() {
    for (offered, peers) in [(2, 5), (5, 2), (0, 3), (3, 0)] {
        let mut tracker = Tracker::new(&Config::default());
        let others = leechers(&mut tracker, peers);
        let mut client = tracker.newcomer();
        let more = format!(r#","numwant":50,"offers":{}"#, offers("x", offered));
        assert_eq!(tracker.ask(&mut client, &leecher(1, &more)).len(), 1, "never to itself");
        let received: usize = all_heard(&mut tracker, &others).iter().map(Vec::len).sum();
        assert_eq!(received, offered.min(others.len()));
    }
}

#[test]
fn offers_and_answers_pass_verbatim() {
    let objects = [
        SDP,
        r#"{"fake_offer":[1,2.50,{"deep" : null}]}"#,
        r#"{ "type" :"offer" , "sdp":"é\u00e9\/\\" ,"more":[ ]}"#,
        "{}",
        r#""v=0\r\nof an application""#,
    ];
    for object in objects {
        let mut tracker = Tracker::new(&Config::default());
        let (mut one, mut other) = (tracker.connect(v4(1)), tracker.connect(v6(1)));
        tracker.ask(&mut one, &leecher(1, ""));
        // An id is relayed as it was written, and is the same however it was written.
        let more = format!(r#","offers":[{{"offer_id":"\u00ff\u0041","offer":{object}}}]"#);
        tracker.ask(&mut other, &leecher(2, &more));
        let (peer_id_1, peer_id_2) = (peer_id(1), peer_id(2));
        let expected = format!(
            r#"{{"action":"announce","info_hash":"{HASH}","peer_id":"{peer_id_2}","offer_id":"\u00ff\u0041","offer":{object}}}"#
        );
        assert_eq!(tracker.received(&one), [expected]);
        let answer = format!(
            r#"{{"action":"announce","info_hash":"{HASH}","peer_id":"{peer_id_1}","to_peer_id":"{peer_id_2}","offer_id":"ÿA","answer":{object}}}"#
        );
        assert_eq!(tracker.ask(&mut one, &answer), [""; 0], "an answer gets no reply");
        let expected = format!(
            r#"{{"action":"announce","info_hash":"{HASH}","peer_id":"{peer_id_1}","offer_id":"ÿA","answer":{object}}}"#
        );
        assert_eq!(tracker.received(&other), [expected]);
    }
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
fn an_answer_changes_nothing_about_its_sender() {
    let mut tracker = Tracker::new(&Config::default());
    let mut client = tracker.newcomer();
    assert_eq!(tracker.ask(&mut client, &answer(2, 1, "x-0")), [""; 0]);
    assert_eq!(tracker.swarms.totals().swarms, 0);
    let [one, mut other] = couple(&mut tracker);
    tracker.say(&mut other, &seeder(2, ""));
    tracker.say(&mut other, &answer(2, 1, "x-0"));
    assert_eq!(tracker.counts(HASH), [1, 1, 0], "it says nothing of what is left");
    assert_eq!(tracker.received(&one).len(), 1);
    // Nor does one that is malformed.
    for wrong in ["7", "[]", "null", "true"] {
        let malformed = answer(2, 1, "x-0").replace(r#"{"type":"answer"}"#, wrong);
        let replies = tracker.ask(&mut other, &malformed);
        assert!(replies.iter().any(|reply| reply.contains("failure reason")), "{replies:?}");
        assert_eq!(tracker.counts(HASH), [1, 1, 0], "{wrong}");
    }
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
fn tiny_offers_are_limited_by_their_number() {
    let relay = shoal_relay::Settings { relay_rate_max: 64 * 1024, ..relay_settings() };
    let mut tracker = Tracker::of(1, &Config::default(), &relay);
    let others = leechers(&mut tracker, 9);
    let mut client = tracker.newcomer();
    let tiny: Vec<String> = (0..9).map(|n| format!(r#"{{"offer":{{}},"offer_id":"{n}"}}"#)).collect();
    let more = format!(r#","offers":[{}]"#, tiny.join(","));
    let mut received = 0;
    for _ in 0..100 {
        assert_eq!(tracker.ask(&mut client, &leecher(1, &more)), [reply(0, 10)]);
        received += all_heard(&mut tracker, &others).concat().len();
    }
    assert_eq!(received, 8 * 64 / 2);
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

#[test]
fn one_that_leaves_its_replies_unread_is_to_be_disconnected() {
    let mut tracker = Tracker::new(&Config::default());
    let mut client = tracker.newcomer();
    tracker.set_unsent(&client, 1);
    let mut said = 0;
    while tracker.say(&mut client, &leecher(1, "")) {
        said += 1;
        assert!(said < 10_000);
    }
    assert_eq!(said, (256 * 1024_usize).div_ceil(reply(0, 1).len() + 2));
    assert_eq!(tracker.count(|counters| counters.losses(Loss::ReplyQueueFull)), 1);
}
