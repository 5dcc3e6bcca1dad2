//! Offers and answers between clients.

use serde_json::{Value, json};

use crate::http::Way;
use crate::kit::browser::{Browser, announce, answer, name};
use crate::kit::frozen::freeze;
use crate::kit::harness::Tracker;

/// A client that gets no answer while worker 0 is stopped is served by it.
#[test]
fn clients_of_different_workers_meet() {
    let way = Way::PLAIN;
    let tracker = way.start(&[]);
    let mut browsers: Vec<Browser> = Vec::new();
    let (mut of_0, mut of_1) = (None, None);
    while of_0.is_none() || of_1.is_none() {
        assert!(browsers.len() < 64, "the kernel gives all connections to one worker");
        let mut browser = Browser::open(way, &tracker);
        browser.check();
        let place = if is_served_by_worker_0(&tracker, &mut browser) { &mut of_0 } else { &mut of_1 };
        match place {
            None => *place = Some(browser),
            Some(_) => browsers.push(browser),
        }
    }
    let (mut a, mut b) = (of_0.unwrap(), of_1.unwrap());
    for round in 0..100 {
        a.ask(&announce('t', 'a', 0));
        b.ask(&announce('t', 'b', 3));
        let received = a.receive();
        assert_eq!(received["peer_id"], name('b'), "{round}");
        a.send_json(&answer('a', &received));
        assert_eq!(b.receive()["offer_id"], received["offer_id"], "{round}");
    }
}

fn is_served_by_worker_0(tracker: &Tracker, browser: &mut Browser) -> bool {
    let worker_0 = freeze(tracker, "worker-0");
    let answered = browser.answers_soon();
    drop(worker_0);
    if !answered {
        browser.receive_pong();
    }
    !answered
}

#[test]
fn what_happened_is_counted() {
    let way = Way::PLAIN;
    let tracker = way.start(&[]);
    let (mut a, mut b) = (Browser::open(way, &tracker), Browser::open(way, &tracker));
    a.ask(&announce('t', 'a', 0));
    b.ask(&announce('t', 'b', 1));
    let received = a.receive();
    a.send_json(&answer('a', &received));
    b.receive();
    a.send_json(&answer('a', &received));
    let failure: Value = a.ask(&json!({"action": "announce", "info_hash": name('t')}));
    assert!(failure["failure reason"].is_string(), "{failure}");
    let requests = |kind: &str| {
        tracker.metric("shoal_requests_total", &["protocol=\"webtorrent\"", &format!("kind=\"{kind}\"")])
    };
    assert_eq!((requests("announce"), requests("answer")), (3, 2));
    let relays =
        |outcome: &str| tracker.metric("shoal_webtorrent_relays_total", &[&format!("outcome=\"{outcome}\"")]);
    assert_eq!((relays("offer"), relays("answer"), relays("unawaited")), (1, 1, 1));
}

/// Lets 200 browsers of one address and some of other networks announce, until each of the 200 has got an offer and an
/// answer.
#[test]
fn the_browsers_of_one_address_get_offers_and_answers_beside_others() {
    const NEIGHBOURS: usize = 200;
    const OTHERS: u8 = 50;
    // A browser is left out of a round with a probability of less than one in a hundred.
    const ROUNDS: usize = 6;
    let way = Way::PLAIN;
    let tracker = way.start(&[]);
    let neighbours = (0..NEIGHBOURS).map(|_| Browser::open(way, &tracker));
    let of_network = |n| Browser::knock_from([127, 1, n, 1], tracker.http[0], &[]).unwrap();
    let mut browsers: Vec<Browser> = neighbours.chain((1..=OTHERS).map(of_network)).collect();
    let as_peer = |mut message: Value, number: usize| {
        message["peer_id"] = json!(format!("-WW0103-{number:012}"));
        message
    };
    let (mut offered, mut answered) = ([0; NEIGHBOURS], [0; NEIGHBOURS]);
    for _ in 0..ROUNDS {
        for (number, browser) in browsers.iter_mut().enumerate() {
            browser.send_json(&as_peer(announce('t', 'x', 5), number));
        }
        // The answers to the last offers of the first pass arrive in the second.
        for _ in 0..2 {
            for (number, browser) in browsers.iter_mut().enumerate() {
                for message in browser.receive_all() {
                    let counts = if message["offer"].is_object() {
                        browser.send_json(&as_peer(answer('x', &message), number));
                        &mut offered
                    } else if message["answer"].is_object() {
                        &mut answered
                    } else {
                        continue;
                    };
                    counts.get_mut(number).into_iter().for_each(|count| *count += 1);
                }
            }
        }
        if offered.iter().chain(&answered).all(|&count| count > 0) {
            return;
        }
    }
    panic!("offers: {offered:?}\nanswers: {answered:?}");
}
