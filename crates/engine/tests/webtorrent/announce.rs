//! Effects of an announce, and the messages that its sender receives.

use crate::harness::{
    HASH, OTHER_HASH, Tracker, announce, configured, failure, leecher, offer_heard, offers, peer_id,
    relay_settings, reply, seeder, v4, v6,
};
use shoal_config::Config;

#[test]
fn counts_are_those_of_the_swarm_with_the_announcer_and_of_both_families() {
    let mut tracker = Tracker::new(&Config::default());
    let (mut first, mut second) = (tracker.connect(v4(1)), tracker.connect(v6(1)));
    assert_eq!(tracker.ask(&mut first, &leecher(1, "")), [reply(0, 1)]);
    assert_eq!(tracker.ask(&mut second, &seeder(2, "")), [reply(1, 1)]);
    assert_eq!(tracker.ask(&mut first, &leecher(1, "")), [reply(1, 1)], "once, however often it announces");
    assert_eq!(tracker.ask(&mut first, &announce(OTHER_HASH, 1, "")).len(), 1);
    assert_eq!((tracker.counts(HASH), tracker.counts(OTHER_HASH)), ([1, 1, 0], [0, 1, 0]));
}

#[test]
fn the_reply_comes_first() {
    let mut tracker = Tracker::new(&Config::default());
    let mut socket = tracker.newcomer();
    tracker.say(&mut socket, &leecher(1, ""));
    // Two peers share one socket: the offer comes back over it.
    tracker.say(&mut socket, &leecher(2, &format!(r#","offers":{}"#, offers("x", 1))));
    assert_eq!(tracker.received(&socket), [reply(0, 1), reply(0, 2), offer_heard(2, "x-0")]);
}

#[test]
fn a_client_that_does_not_know_what_is_left_is_a_leecher() {
    for left in
        ["", r#""left":null"#, r#""left":-1"#, r#""left":99999999999999999999999"#, r#""left":"much""#]
    {
        let mut tracker = Tracker::new(&Config::default());
        let mut client = tracker.newcomer();
        assert_eq!(tracker.ask(&mut client, &announce(HASH, 1, left)), [reply(0, 1)], "{left}");
    }
}

#[test]
fn unknown_events_are_updates() {
    for event in [r#""paused""#, r#""<regular>""#, r#""started""#, r#""""#, "null", "7"] {
        let mut tracker = Tracker::new(&Config::default());
        let mut client = tracker.newcomer();
        let received = tracker.ask(&mut client, &seeder(1, &format!(r#","event":{event}"#)));
        assert_eq!(received, [reply(1, 0)], "{event}");
    }
}

#[test]
fn completed_makes_a_seeder_whatever_is_left_and_counts_once() {
    for left in ["", r#""left":null,"#, r#""left":5,"#] {
        let mut tracker = Tracker::new(&Config::default());
        let mut client = tracker.newcomer();
        tracker.say(&mut client, &leecher(1, ""));
        for _ in 0..3 {
            tracker.say(&mut client, &announce(HASH, 1, &format!(r#"{left}"event":"completed""#)));
        }
        assert_eq!(tracker.received(&client)[1..], [reply(1, 0), reply(1, 0), reply(1, 0)]);
        assert_eq!(tracker.counts(HASH), [1, 0, 1]);
    }
}

#[test]
fn stopped_leaves_with_a_normal_reply_and_creates_nothing() {
    let mut tracker = Tracker::new(&Config::default());
    let (mut one, mut other) = (tracker.newcomer(), tracker.newcomer());
    tracker.say(&mut one, &seeder(1, ""));
    tracker.say(&mut other, &leecher(2, ""));
    tracker.received(&one);
    tracker.received(&other);
    let stopped = format!(r#","event":"stopped","offers":{}"#, offers("x", 3));
    assert_eq!(tracker.ask(&mut other, &leecher(2, &stopped)), [reply(1, 0)]);
    assert_eq!(tracker.received(&one), [""; 0], "its offers go to no peer");
    assert_eq!(tracker.ask(&mut other, &leecher(2, &stopped)), [reply(1, 0)], "again");
    assert_eq!(tracker.ask(&mut one, &seeder(1, &stopped)), [reply(0, 0)]);
    assert_eq!(tracker.swarms.totals().swarms, 0);
    tracker.say(&mut one, &announce(OTHER_HASH, 1, r#""event":"stopped""#));
    assert_eq!(tracker.swarms.totals().swarms, 0);
}

#[test]
fn when_a_socket_closes_all_its_peers_leave() {
    let mut tracker = Tracker::new(&Config::default());
    let (mut one, mut other) = (tracker.newcomer(), tracker.newcomer());
    for torrent in ["aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccc"] {
        tracker.say(&mut one, &announce(torrent, 1, ""));
        tracker.say(&mut one, &announce(torrent, 2, ""));
        tracker.say(&mut other, &announce(torrent, 3, ""));
    }
    assert_eq!(tracker.swarms.totals().leechers, 9);
    tracker.leave(one);
    assert_eq!(tracker.swarms.totals().leechers, 3);
    tracker.leave(other);
    assert_eq!(tracker.swarms.totals().swarms, 0);
}

#[test]
fn who_is_silent_is_forgotten_and_may_come_back() {
    let mut tracker = Tracker::new(&Config::default());
    let (mut one, mut other) = (tracker.newcomer(), tracker.newcomer());
    tracker.say(&mut one, &leecher(1, ""));
    for _ in 0..10 {
        tracker.say(&mut other, &leecher(2, ""));
        tracker.pass(100);
    }
    assert_eq!(tracker.counts(HASH), [0, 1, 0]);
    tracker.received(&one);
    assert_eq!(tracker.ask(&mut one, &leecher(1, "")), [reply(0, 2)]);
    tracker.leave(one);
    assert_eq!(tracker.counts(HASH), [0, 1, 0]);
}

#[test]
fn intervals_carry_jitter() {
    let settings = configured(|config| {
        config.webtorrent.interval_s = 100;
        (config.announce.interval_s, config.announce.interval_jitter_s) = (1000, 30);
    });
    let relay = relay_settings();
    let (swarms, mailboxes) = (shoal_relay::Swarms::new(&relay).into(), shoal_relay::Mailboxes::new(1));
    let mut tracker = Tracker::with(1, &settings, swarms, &mailboxes);
    let mut client = tracker.newcomer();
    let mut seen = [false; 4];
    for _ in 0..200 {
        let received = tracker.ask(&mut client, &leecher(1, "")).remove(0);
        let interval =
            received.split(r#""interval":"#).nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        seen[interval.parse::<usize>().unwrap() - 100] = true;
    }
    assert_eq!(seen, [true; 4]);
}

#[test]
fn private_addresses_are_refused_if_the_operator_says_so() {
    let strict = configured(|config| config.address.private = shoal_config::PrivateAddresses::Refuse);
    for (ip, settings, reason) in [
        ("192.168.1.1", Config::default(), None),
        ("192.168.1.1", strict.clone(), Some("private addresses are not served by this tracker")),
        ("fe80::1", strict.clone(), Some("private addresses are not served by this tracker")),
        ("224.0.0.1", Config::default(), Some("your address cannot be announced")),
        ("77.1.1.1", strict, None),
    ] {
        let mut tracker = Tracker::new(&settings);
        let mut client = tracker.connect(ip.parse().unwrap());
        let refused = |reason| failure("announce", Some(HASH), reason);
        let expected = reason.map_or_else(|| reply(0, 1), refused);
        assert_eq!(tracker.ask(&mut client, &leecher(1, "")), [expected], "{ip}");
        assert_eq!(tracker.ask(&mut client, &leecher(1, r#","event":"stopped""#)), [reply(0, 0)]);
    }
}

#[test]
fn a_full_tracker_says_so_and_serves_who_is_there() {
    let relay = shoal_relay::Settings { peers_max: 2, ..relay_settings() };
    let mut tracker = Tracker::of(1, &Config::default(), &relay);
    let mut client = tracker.newcomer();
    tracker.say(&mut client, &leecher(1, ""));
    tracker.say(&mut client, &leecher(2, ""));
    tracker.received(&client);
    let full = failure("announce", Some(HASH), "the tracker is full, try again later");
    assert_eq!(tracker.ask(&mut client, &leecher(3, "")), [full]);
    assert_eq!(tracker.ask(&mut client, &leecher(2, "")), [reply(0, 2)]);
    tracker.say(&mut client, &leecher(1, r#","event":"stopped""#));
    tracker.received(&client);
    assert_eq!(tracker.ask(&mut client, &leecher(3, "")), [reply(0, 2)]);
}

#[test]
fn bad_messages_are_told_what_is_wrong_and_about_what() {
    let mut tracker = Tracker::new(&Config::default());
    let mut client = tracker.newcomer();
    let peer_id = peer_id(1);
    for (message, action, info_hash) in [
        ("nonsense".to_owned(), "", None),
        (String::new(), "", None),
        ("[]".to_owned(), "", None),
        ("{}".to_owned(), "", None),
        (r#"{"action":"dance"}"#.to_owned(), "", None),
        (r#"{"action":"announce"}"#.to_owned(), "", None),
        (format!(r#"{{"action":"announce","info_hash":"{HASH}"}}"#), "announce", Some(HASH)),
        (format!(r#"{{"action":"announce","info_hash":"{HASH}","peer_id":"x"}}"#), "announce", Some(HASH)),
        (format!(r#"{{"action":"announce","peer_id":"{peer_id}"}}"#), "", None),
        (format!(r#"{{"action":"announce","info_hash":"{HASH}","peer_id""#), "announce", Some(HASH)),
        (r#"{"action":"scrape","info_hash":"short"}"#.to_owned(), "scrape", None),
        (format!(r#"{{"action":"scrape","info_hash":"{HASH}""#), "scrape", Some(HASH)),
    ] {
        let received = tracker.ask(&mut client, &message);
        let start = failure(action, info_hash, "");
        assert_eq!(received.len(), 1, "{message}");
        assert!(received[0].starts_with(start.trim_end_matches(r#""}"#)), "{message}: {}", received[0]);
        assert!(received[0].len() > start.len(), "{message}: {} has words", received[0]);
    }
    assert_eq!(tracker.ask(&mut client, &leecher(1, "")), [reply(0, 1)], "the client stays");
}

#[test]
fn a_source_that_asks_too_often_is_refused_and_stays_connected() {
    let mut tracker = Tracker::new(&configured(|config| {
        config.limits.webtorrent_requests_per_s = 1;
        config.limits.burst_s = 2;
    }));
    let mut client = tracker.newcomer();
    let refused = |action, info_hash| {
        failure(
            action,
            info_hash,
            "your address sends more requests than this tracker allows, try again later",
        )
    };
    for _ in 0..2 {
        assert_eq!(tracker.ask(&mut client, &leecher(1, "")), [reply(0, 1)]);
    }
    assert_eq!(tracker.ask(&mut client, &leecher(1, "")), [refused("announce", Some(HASH))]);
    let scrape = format!(r#"{{"action":"scrape","info_hash":"{HASH}"}}"#);
    assert_eq!(tracker.ask(&mut client, &scrape), [refused("scrape", None)]);
    tracker.now.monotonic_ms += 1000;
    assert_eq!(tracker.ask(&mut client, &leecher(1, "")), [reply(0, 1)]);
}
