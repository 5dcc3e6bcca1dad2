//! Whose a peer is, and how many a connection may have.

use shoal_engine::webtorrent::Settings;

use crate::harness::{
    HASH, OTHER_HASH, Tracker, announce, answer, answer_heard, failure, leecher, offer_heard, offers, reply,
    seeder, settings, v4, v6,
};

const TAKEN: &str = "another peer of this torrent has this peer_id";
const TOO_MANY: &str = "this connection has as many torrents as this tracker allows";

#[test]
fn nobody_takes_over_the_peer_of_another_address() {
    let mut tracker = Tracker::new(&settings());
    let (mut owner, mut thief) = (tracker.connect(v4(1)), tracker.connect(v6(2)));
    tracker.ask(&mut owner, &seeder(1, ""));
    assert_eq!(tracker.ask(&mut thief, &leecher(1, "")), [failure("announce", Some(HASH), TAKEN)]);
    assert_eq!(tracker.ask(&mut thief, &leecher(1, r#","event":"stopped""#)), [reply(1, 0)]);
    assert_eq!(tracker.counts(HASH), [1, 0, 0], "nor does it make it leave");
    tracker.leave(thief);
    assert_eq!(tracker.counts(HASH), [1, 0, 0]);
    // In another torrent the name is free, and once its owner has gone it is here too.
    let mut next = tracker.connect(v4(3));
    assert!(!tracker.ask(&mut next, &announce(OTHER_HASH, 1, ""))[0].contains("failure"));
    tracker.leave(owner);
    assert_eq!(tracker.ask(&mut next, &leecher(1, "")), [reply(0, 1)]);
}

#[test]
fn a_reconnect_from_the_same_address_takes_over() {
    let mut tracker = Tracker::new(&settings());
    let (mut old, mut new) = (tracker.connect(v4(1)), tracker.connect(v4(1)));
    let mut other = tracker.connect(v4(2));
    tracker.ask(&mut other, &leecher(2, ""));
    tracker.ask(&mut old, &leecher(1, &format!(r#","offers":{}"#, offers("x", 1))));
    assert_eq!(tracker.heard(&other), [offer_heard(1, "x-0")]);
    assert_eq!(tracker.ask(&mut new, &leecher(1, "")), [reply(0, 2)], "there is still one of it");
    // Whoever made the offer hears the answer, over the connection that it now has.
    tracker.say(&mut other, &answer(2, 1, "x-0"));
    assert_eq!(tracker.heard(&new), [answer_heard(2, "x-0")]);
    assert_eq!(tracker.heard(&old), [""; 0]);
    // The end of the old connection does not touch what is the new one's.
    tracker.leave(old);
    assert_eq!(tracker.counts(HASH), [0, 2, 0]);
    tracker.leave(new);
    assert_eq!(tracker.counts(HASH), [0, 1, 0]);
}

#[test]
fn one_socket_may_carry_several_peers_and_torrents() {
    let mut tracker = Tracker::new(&settings());
    let (mut socket, mut other) = (tracker.newcomer(), tracker.newcomer());
    for n in 1..4 {
        tracker.say(&mut socket, &leecher(n, ""));
        tracker.say(&mut socket, &announce(OTHER_HASH, n, ""));
    }
    tracker.heard(&socket);
    assert_eq!((tracker.counts(HASH), tracker.counts(OTHER_HASH)), ([0, 3, 0], [0, 3, 0]));
    tracker.ask(&mut other, &leecher(9, &format!(r#","offers":{}"#, offers("x", 9))));
    assert_eq!(tracker.heard(&socket).len(), 3, "an offer for each of its peers");
    tracker.say(&mut socket, &leecher(2, r#","event":"stopped""#));
    assert_eq!(tracker.counts(HASH), [0, 3, 0], "the other two, and the other one");
    tracker.leave(socket);
    assert_eq!((tracker.counts(HASH), tracker.counts(OTHER_HASH)), ([0, 1, 0], [0, 0, 0]));
}

#[test]
fn a_socket_has_no_more_peers_than_the_operator_allows() {
    let settings = Settings { torrents_per_socket_max: 2, ..settings() };
    let mut tracker = Tracker::new(&settings);
    let mut client = tracker.newcomer();
    tracker.ask(&mut client, &leecher(1, ""));
    tracker.ask(&mut client, &announce(OTHER_HASH, 1, ""));
    let refused = || failure("announce", Some(HASH), TOO_MANY);
    assert_eq!(tracker.ask(&mut client, &leecher(2, "")), [refused()]);
    assert_eq!(tracker.ask(&mut client, &leecher(1, "")), [reply(0, 1)], "those that it has are served");
    tracker.ask(&mut client, &announce(OTHER_HASH, 1, r#""event":"stopped""#));
    assert_eq!(tracker.ask(&mut client, &leecher(2, "")), [reply(0, 2)], "one that leaves makes room");
    assert_eq!(tracker.ask(&mut client, &leecher(3, "")), [refused()]);
    // Those that were forgotten for their silence make room as well, and so do those that were taken over.
    tracker.pass(1000);
    assert_eq!(tracker.ask(&mut client, &leecher(3, "")), [reply(0, 1)]);
    assert_eq!(tracker.ask(&mut client, &leecher(4, "")), [reply(0, 2)]);
    assert_eq!(tracker.ask(&mut client, &leecher(5, "")), [refused()]);
}

#[test]
fn one_that_leaves_makes_room_although_it_was_forgotten_before() {
    let settings = Settings { torrents_per_socket_max: 200, ..settings() };
    let mut tracker = Tracker::new(&settings);
    let mut client = tracker.newcomer();
    (1..=200).for_each(|n| drop(tracker.ask(&mut client, &leecher(n, ""))));
    for _ in 0..4 {
        tracker.pass(300);
        (2..=200).for_each(|n| drop(tracker.ask(&mut client, &leecher(n, ""))));
    }
    assert_eq!(tracker.counts(HASH), [0, 199, 0]);
    tracker.ask(&mut client, &leecher(1, r#","event":"stopped""#));
    assert_eq!(tracker.ask(&mut client, &leecher(201, "")), [reply(0, 200)]);
}

#[test]
fn a_takeover_counts_as_one_more_of_the_socket() {
    let settings = Settings { torrents_per_socket_max: 1, ..settings() };
    let mut tracker = Tracker::new(&settings);
    let (mut old, mut new) = (tracker.connect(v4(1)), tracker.connect(v4(1)));
    tracker.ask(&mut old, &leecher(1, ""));
    tracker.ask(&mut new, &leecher(2, ""));
    assert_eq!(tracker.ask(&mut new, &leecher(1, "")), [failure("announce", Some(HASH), TOO_MANY)]);
    tracker.ask(&mut new, &leecher(2, r#","event":"stopped""#));
    assert_eq!(tracker.ask(&mut new, &leecher(1, "")), [reply(0, 1)]);
    // The old one has lost its only peer.
    assert_eq!(tracker.ask(&mut old, &leecher(3, "")), [reply(0, 2)]);
}
