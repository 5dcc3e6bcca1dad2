//! Effects of an announce, and the messages that its sender receives.

use crate::harness::{HASH, Tracker, configured, failure, leecher, peer_id, relay_settings, reply};
use shoal_config::Config;

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
