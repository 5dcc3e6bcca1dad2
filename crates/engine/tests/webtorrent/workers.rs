//! Clients of different workers.

use crate::harness::{
    Tracker, answer, answer_heard, leecher, offer_heard, offers, relay_settings, reply, v4,
};
use shoal_config::Config;

#[test]
fn offers_and_answers_cross_and_each_worker_is_woken_once() {
    let mut tracker = Tracker::of(3, &Config::default(), &relay_settings());
    let mut one = tracker.connect_to(0, v4(1));
    let mut other = tracker.connect_to(2, v4(2));
    tracker.say(&mut other, &leecher(2, ""));
    assert!(tracker.turn(2).is_empty(), "replies do not cross");
    tracker.say(&mut one, &leecher(1, &format!(r#","offers":{}"#, offers("x", 1))));
    tracker.say(&mut one, &leecher(1, &format!(r#","offers":{}"#, offers("y", 1))));
    assert_eq!(tracker.turn(0), [2]);
    assert!(tracker.turn(0).is_empty());
    assert_eq!(tracker.received(&one), [reply(0, 2), reply(0, 2)]);
    assert_eq!(tracker.received(&other), [reply(0, 1), offer_heard(1, "x-0"), offer_heard(1, "y-0")]);
    tracker.say(&mut other, &answer(2, 1, "y-0"));
    tracker.say(&mut other, &answer(2, 1, "x-0"));
    assert_eq!(tracker.turn(2), [0]);
    assert_eq!(tracker.received(&one), [answer_heard(2, "y-0"), answer_heard(2, "x-0")]);
}

#[test]
fn what_crosses_to_one_that_goes_meanwhile_is_dropped() {
    let mut tracker = Tracker::of(2, &Config::default(), &relay_settings());
    let (mut one, mut other) = (tracker.connect_to(0, v4(1)), tracker.connect_to(1, v4(2)));
    tracker.say(&mut other, &leecher(2, ""));
    tracker.turn(1);
    tracker.say(&mut one, &leecher(1, &format!(r#","offers":{}"#, offers("x", 1))));
    assert_eq!(tracker.turn(0), [1]);
    tracker.leave(other);
    assert_eq!(tracker.received(&one), [reply(0, 2)]);
    assert_eq!(tracker.ask(&mut one, &leecher(1, "")), [reply(0, 1)]);
}

#[test]
fn a_reconnect_may_come_to_another_worker() {
    let mut tracker = Tracker::of(2, &Config::default(), &relay_settings());
    let (mut old, mut new) = (tracker.connect_to(0, v4(1)), tracker.connect_to(1, v4(1)));
    let mut other = tracker.connect_to(0, v4(2));
    tracker.ask(&mut old, &leecher(1, ""));
    assert_eq!(tracker.ask(&mut new, &leecher(1, "")), [reply(0, 2)]);
    tracker.received(&old);
    assert!(tracker.is_pinged(&old));
    tracker.leave(old);
    tracker.say(&mut other, &leecher(2, &format!(r#","offers":{}"#, offers("x", 1))));
    assert_eq!(tracker.received(&new), [offer_heard(2, "x-0")]);
}
