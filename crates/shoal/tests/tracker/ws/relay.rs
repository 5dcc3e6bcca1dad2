//! Offers and answers between clients.

use serde_json::{Value, json};

use crate::browser::{Browser, announce, answer, name, offer, offer_id};
use crate::frozen::freeze;
use crate::harness::{Tracker, eventually};
use crate::http::{Way, over_every_way};
use crate::web;

over_every_way!(two_clients_exchange_an_offer_and_an_answer, http_is_served_on_the_same_port);

fn two_clients_exchange_an_offer_and_an_answer(way: Way) {
    let tracker = way.start(&[]);
    let (mut a, mut b) = (Browser::open(way, &tracker), Browser::open(way, &tracker));
    let reply = a.ask(&announce('t', 'a', 2));
    assert_eq!(reply["action"], "announce");
    assert_eq!(reply["info_hash"], name('t'));
    assert_eq!((&reply["complete"], &reply["incomplete"]), (&json!(0), &json!(1)));
    assert!((60..=180).contains(&reply["interval"].as_u64().unwrap()), "{reply}");

    assert_eq!(b.ask(&announce('t', 'b', 1))["incomplete"], 2);
    let received = a.receive();
    assert_eq!((&received["peer_id"], &received["offer_id"]), (&json!(name('b')), &json!(offer_id('b', 0))));
    assert_eq!(received["offer"], offer('b', 0)["offer"]);
    a.send_json(&answer('a', &received));
    let answered = b.receive();
    assert_eq!((&answered["peer_id"], &answered["offer_id"]), (&json!(name('a')), &received["offer_id"]));
    assert_eq!(answered["answer"]["type"], "answer");

    // No client awaits it a second time, or from a client to which no offer went.
    a.send_json(&answer('a', &received));
    a.check();
    b.check();
}

fn http_is_served_on_the_same_port(way: Way) {
    let tracker = way.start(&[]);
    let mut browser = Browser::open(way, &tracker);
    browser.ask(&announce('t', 'a', 0));
    let answer = way.connect(&tracker).get(&web::announce([b't'; 20], 1, ""));
    // Their swarm is another one.
    assert!(
        answer.body.windows(14).any(|bytes| bytes == b"10:incompletei1e".get(..14).unwrap()),
        "{answer:?}"
    );
    assert_eq!(tracker.metric("shoal_webtorrent_peers", &[]), 1);
}

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
fn both_families_meet() {
    let way = Way::PLAIN;
    let tracker = way.start(&[]);
    let mut a = Browser::knock(tracker.http[0], false, &[]).unwrap();
    let mut b = Browser::knock(tracker.http[1], false, &[]).unwrap();
    a.ask(&announce('t', 'a', 0));
    assert_eq!(b.ask(&announce('t', 'b', 1))["incomplete"], 2);
    assert_eq!(a.receive()["peer_id"], name('b'));
}

#[test]
fn a_client_that_leaves_is_gone_at_once() {
    let way = Way::PLAIN;
    let tracker = way.start(&[]);
    let (mut a, mut b) = (Browser::open(way, &tracker), Browser::open(way, &tracker));
    for torrent in ['t', 'u', 'v'] {
        a.ask(&announce(torrent, 'a', 0));
    }
    assert_eq!(tracker.metric("shoal_webtorrent_swarms", &[]), 3);
    a.leave();
    let is_gone = || (tracker.metric("shoal_webtorrent_peers", &[]) == 0).then_some(());
    eventually("its peers have left", is_gone);
    assert_eq!(tracker.metric("shoal_webtorrent_swarms", &[]), 0);
    let reply = b.ask(&announce('t', 'b', 1));
    assert_eq!(reply["incomplete"], 1);
    let scrape = b.ask(&json!({"action": "scrape", "info_hash": [name('t'), name('u')]}));
    let incomplete = |torrent| scrape["files"][name(torrent)]["incomplete"].clone();
    assert_eq!((incomplete('t'), incomplete('u')), (json!(1), json!(0)));
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

#[test]
fn the_browsers_of_one_address_get_offers_and_answers() {
    everyone_meets(0);
}

#[test]
fn the_browsers_of_one_address_get_offers_and_answers_beside_others() {
    everyone_meets(50);
}

/// Lets 200 browsers of one address and `others` of other networks announce, until each of the 200 has got an offer and an
/// answer.
fn everyone_meets(others: u8) {
    const NEIGHBOURS: usize = 200;
    // A browser is left out of a round with a probability of less than one in a hundred.
    const ROUNDS: usize = 6;
    let way = Way::PLAIN;
    let tracker = way.start(&[]);
    let neighbours = (0..NEIGHBOURS).map(|_| Browser::open(way, &tracker));
    let of_network = |n| Browser::knock_from([127, 1, n, 1], tracker.http[0], &[]).unwrap();
    let mut browsers: Vec<Browser> = neighbours.chain((1..=others).map(of_network)).collect();
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

/// As behind a NAT, all have the same address.
#[test]
fn the_same_peer_id_on_two_connections_is_two_peers() {
    let way = Way::PLAIN;
    let tracker = way.start(&[]);
    let (mut older, mut newer) = (Browser::open(way, &tracker), Browser::open(way, &tracker));
    assert_eq!(older.ask(&announce('t', 'a', 0))["incomplete"], 1);
    assert_eq!(newer.ask(&announce('t', 'a', 0))["incomplete"], 2);
    older.leave();
    assert_eq!(newer.ask(&announce('t', 'a', 0))["incomplete"], 1);
}
