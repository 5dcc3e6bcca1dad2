//! Which connection a peer belongs to, and how many peers a connection may have.

use crate::harness::{
    HASH, OTHER_HASH, Tracker, announce, answer, answer_heard, configured, failure, hash, leecher,
    offer_heard, offers, relay_settings, reply, v4,
};

use shoal_config::Config;

const TOO_MANY: &str = "this connection has as many torrents as this tracker allows";
const TOO_MANY_IDS: &str = "this connection has as many peer ids in this torrent as this tracker allows";

fn with_offers(n: u32, name: &str, count: usize) -> String {
    leecher(n, &format!(r#","offers":{}"#, offers(name, count)))
}

/// A tracker under two URLs: its clients have two connections, and announce the same peer id on both.
#[test]
fn one_peer_id_on_two_connections_is_two_peers() {
    for worker in [0, 1] {
        let mut tracker = Tracker::of(2, &Config::default(), &relay_settings());
        let (mut one, mut other) = (tracker.connect(v4(1)), tracker.connect_to(worker, v4(1)));
        let mut third = tracker.connect(v4(2));
        tracker.ask(&mut third, &leecher(2, ""));
        assert_eq!(tracker.ask(&mut one, &with_offers(1, "x", 5)), [reply(0, 2)]);
        assert_eq!(tracker.received(&third), [offer_heard(1, "x-0")]);
        assert_eq!(tracker.ask(&mut other, &with_offers(1, "y", 5)), [reply(0, 3)], "it is answered at once");
        assert_eq!(tracker.received(&one), [""; 0], "a client gets no offers of its own");
        assert_eq!(tracker.received(&third), [offer_heard(1, "y-0")]);
        // The answers find the connections that made the offers, in any order and once.
        for offer_id in ["y-0", "x-0", "x-0", "y-0"] {
            tracker.say(&mut third, &answer(2, 1, offer_id));
        }
        assert_eq!(tracker.received(&one), [answer_heard(2, "x-0")]);
        assert_eq!(tracker.received(&other), [answer_heard(2, "y-0")]);
        // Both are receivers.
        tracker.ask(&mut third, &leecher(2, &format!(r#","offers":{}"#, offers("z", 5))));
        assert_eq!(tracker.received(&one).len() + tracker.received(&other).len(), 2);
        // Each leaves for itself.
        assert_eq!(tracker.ask(&mut other, &leecher(1, r#","event":"stopped""#)), [reply(0, 2)]);
        assert_eq!(tracker.ask(&mut other, &leecher(1, r#","event":"stopped""#)), [reply(0, 2)]);
        tracker.leave(other);
        tracker.leave(one);
        assert_eq!(tracker.counts(HASH), [0, 1, 0]);
    }
}

/// Connections of an attacker that announce the peer id of a client, before and after the client does, change nothing for it.
#[test]
fn nothing_is_taken_over_however_many_connections_have_the_peer_id() {
    for thieves_before in [0, 40, 80] {
        let mut tracker = Tracker::new(&Config::default());
        let mut thieves: Vec<_> = (0..80).map(|_| tracker.connect(v4(100))).collect();
        let (mut owner, mut other) = (tracker.connect(v4(1)), tracker.connect(v4(2)));
        tracker.ask(&mut other, &leecher(2, ""));
        for thief in &mut thieves[..thieves_before] {
            tracker.ask(thief, &with_offers(1, "t", 10));
        }
        tracker.received(&other);
        tracker.ask(&mut owner, &with_offers(1, "x", 1));
        assert_eq!(tracker.received(&other), [offer_heard(1, "x-0")]);
        for thief in &mut thieves[thieves_before..] {
            tracker.ask(thief, &with_offers(1, "t", 10));
        }
        for thief in &mut thieves {
            tracker.say(thief, &leecher(1, r#","event":"stopped""#));
            tracker.say(thief, &leecher(1, ""));
        }
        tracker.say(&mut other, &answer(2, 1, "x-0"));
        assert_eq!(tracker.received(&owner).last(), Some(&answer_heard(2, "x-0")), "{thieves_before}");
        for thief in &thieves {
            assert!(!tracker.received(thief).contains(&answer_heard(2, "x-0")));
        }
    }
}

#[test]
fn the_older_connection_is_pinged_when_the_peer_id_is_announced_on_another() {
    for worker in [0, 1] {
        let mut tracker = Tracker::of(2, &Config::default(), &relay_settings());
        let (mut old, mut new) = (tracker.connect(v4(1)), tracker.connect_to(worker, v4(9)));
        tracker.ask(&mut old, &leecher(1, ""));
        tracker.ask(&mut old, &leecher(1, ""));
        assert!(!tracker.is_pinged(&old));
        assert_eq!(tracker.ask(&mut new, &leecher(1, "")), [reply(0, 2)]);
        tracker.received(&old);
        assert!(tracker.is_pinged(&old) && !tracker.is_pinged(&new));
        tracker.ask(&mut new, &leecher(1, ""));
        tracker.received(&old);
        assert!(!tracker.is_pinged(&old), "once");
        // While it has unsent output, it is not pinged.
        tracker.say(&mut new, &leecher(1, r#","event":"stopped""#));
        tracker.set_unsent(&old, 1000);
        tracker.ask(&mut new, &leecher(1, ""));
        tracker.received(&old);
        assert!(!tracker.is_pinged(&old));
        tracker.set_unsent(&old, 0);
        tracker.received(&old);
        assert!(tracker.is_pinged(&old));
        // It is dead, and its peer leaves with it.
        tracker.leave(old);
        assert_eq!(tracker.ask(&mut new, &leecher(1, "")), [reply(0, 1)]);
    }
}

#[test]
fn a_socket_has_a_few_peer_ids_in_each_torrent() {
    let mut tracker = Tracker::new(&Config::default());
    let mut client = tracker.newcomer();
    for n in 1..=4 {
        assert_eq!(tracker.ask(&mut client, &leecher(n, "")), [reply(0, n)]);
        tracker.ask(&mut client, &announce(OTHER_HASH, n, ""));
    }
    let refused = || failure("announce", Some(HASH), TOO_MANY_IDS);
    assert_eq!(tracker.ask(&mut client, &leecher(5, "")), [refused()]);
    assert_eq!(tracker.ask(&mut client, &leecher(4, "")), [reply(0, 4)], "those that it has are served");
    tracker.ask(&mut client, &leecher(1, r#","event":"stopped""#));
    assert_eq!(tracker.ask(&mut client, &leecher(5, "")), [reply(0, 4)], "one that leaves makes room");
    assert_eq!(tracker.ask(&mut client, &leecher(6, "")), [refused()]);
    // So do peers that were removed, for example because a list denies their torrent.
    tracker.swarms.remove(&tracker.swarms.swarm_key(&hash(HASH)));
    assert_eq!(tracker.ask(&mut client, &leecher(6, "")), [reply(0, 1)]);
}

#[test]
fn a_socket_has_no_more_peers_than_the_operator_allows() {
    let settings = configured(|config| config.webtorrent.torrents_per_connection_max = 2);
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
    // Peers that were removed for silence make room as well.
    tracker.pass(1000);
    assert_eq!(tracker.ask(&mut client, &leecher(3, "")), [reply(0, 1)]);
    assert_eq!(tracker.ask(&mut client, &leecher(4, "")), [reply(0, 2)]);
    assert_eq!(tracker.ask(&mut client, &leecher(5, "")), [refused()]);
}

#[test]
fn one_that_leaves_makes_room_although_it_was_forgotten_before() {
    let settings = configured(|config| config.webtorrent.torrents_per_connection_max = 200);
    let mut tracker = Tracker::new(&settings);
    let mut client = tracker.newcomer();
    let torrent = |n: u32| format!("{n:020}");
    (1..=200).for_each(|n| drop(tracker.ask(&mut client, &announce(&torrent(n), 1, ""))));
    for _ in 0..4 {
        tracker.pass(300);
        (2..=200).for_each(|n| drop(tracker.ask(&mut client, &announce(&torrent(n), 1, ""))));
    }
    assert_eq!((tracker.counts(&torrent(1)), tracker.counts(&torrent(2))), ([0; 3], [0, 1, 0]));
    tracker.ask(&mut client, &announce(&torrent(1), 1, r#""event":"stopped""#));
    assert_eq!(tracker.ask(&mut client, &leecher(1, "")), [reply(0, 1)]);
}
