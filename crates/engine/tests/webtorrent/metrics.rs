//! The counters.

use std::sync::Arc;

use shoal_config::Config;
use shoal_engine::counter::{Counters, Family, Kind, Loss, Outcome, Relay};
use shoal_engine::refusal::Refusal;
use shoal_relay::{Mailboxes, Swarms};

use crate::harness::{
    HASH, OTHER_HASH, Tracker, announce, answer, configured, leecher, offers, relay_settings, seeder, v4, v6,
};

#[test]
fn requests_and_replies_are_counted_by_family_kind_and_outcome() {
    let config = configured(|config| config.webtorrent.torrents_per_connection_max = 1);
    let mut tracker = Tracker::new(&config);
    let (mut one, mut other) = (tracker.connect(v4(1)), tracker.connect(v6(2)));
    tracker.say(&mut one, &seeder(1, ""));
    tracker.say(&mut other, &leecher(2, ""));
    tracker.say(&mut other, &announce(OTHER_HASH, 2, ""));
    tracker.say(&mut other, r#"{"action":"scrape"}"#);
    tracker.say(&mut other, &format!(r#"{{"action":"scrape","info_hash":"{HASH}"}}"#));
    tracker.say(&mut other, r#"{"action":"scrape","info_hash":7}"#);
    tracker.say(&mut other, r#"{"action":"announce"}"#);
    tracker.say(&mut other, "?");
    tracker.say(&mut other, &answer(2, 1, "x"));
    let expected = [
        (Family::V4, Kind::Announce, Outcome::Ok),
        (Family::V6, Kind::Announce, Outcome::Refused(Refusal::TooManyTorrents)),
        (Family::V6, Kind::Announce, Outcome::Ok),
        (Family::V6, Kind::FullScrape, Outcome::Refused(Refusal::FullScrapeOff)),
        (Family::V6, Kind::Scrape, Outcome::Ok),
        (Family::V6, Kind::Scrape, Outcome::Refused(Refusal::BadMessage)),
        (Family::V6, Kind::Announce, Outcome::Refused(Refusal::BadMessage)),
        (Family::V6, Kind::Other, Outcome::Refused(Refusal::BadMessage)),
    ];
    for family in Family::ALL {
        for kind in Kind::ALL {
            let of_kind = |entry: &&(Family, Kind, Outcome)| (entry.0, entry.1) == (family, kind);
            let replies = expected.iter().filter(of_kind).count() as u64;
            let answers = u64::from((family, kind) == (Family::V6, Kind::Answer));
            let requests = tracker.count(|counters| counters.requests(family, kind));
            assert_eq!(requests, replies + answers, "{family:?} {kind:?}");
            for outcome in Outcome::all() {
                let count = u64::from(expected.contains(&(family, kind, outcome)));
                let replies = |counters: &Counters| counters.replies(family, kind, outcome);
                assert_eq!(tracker.count(replies), count, "{family:?} {kind:?} {outcome:?}");
            }
        }
    }
}

#[test]
fn relayed_and_lost_messages_are_counted() {
    let mut tracker = Tracker::new(&Config::default());
    let (mut one, mut other) = (tracker.newcomer(), tracker.newcomer());
    tracker.say(&mut other, &leecher(2, ""));
    tracker.say(&mut one, &leecher(1, &format!(r#","offers":{}"#, offers("x", 3))));
    tracker.say(&mut one, &leecher(1, &format!(r#","offers":{}"#, offers("y", 3))));
    tracker.say(&mut other, &answer(2, 1, "x-0"));
    tracker.say(&mut other, &answer(2, 1, "x-0"));
    tracker.say(&mut other, &answer(2, 9, "x-0"));
    let relays = Relay::ALL.map(|relay| tracker.count(|counters| counters.relays(relay)));
    assert_eq!(relays, [2, 1]);
    let losses = Loss::ALL.map(|loss| tracker.count(|counters| counters.losses(loss)));
    assert_eq!(losses, [1, 1, 0, 0, 0, 0]);
}

#[test]
fn what_finds_no_room_is_counted() {
    let swarms = Arc::new(Swarms::new(&relay_settings()));
    let mut tracker = Tracker::with(2, &Config::default(), swarms, &Mailboxes::with_bytes_max(2, 1000));
    let (mut one, mut other) = (tracker.connect_to(0, v4(1)), tracker.connect_to(1, v4(2)));
    tracker.say(&mut other, &leecher(2, ""));
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        tracker.say(&mut one, &leecher(1, &format!(r#","offers":{}"#, offers(name, 1))));
        // Uncollected messages fill the mailbox.
        tracker.turn(0);
    }
    tracker.turn(0);
    let received = tracker.received(&other).len() - 1;
    assert!((1..8).contains(&received), "{received} offers fit");
    let lost = tracker.count(|counters| counters.losses(Loss::MailboxFull));
    assert_eq!(lost, 8 - received as u64);
}
