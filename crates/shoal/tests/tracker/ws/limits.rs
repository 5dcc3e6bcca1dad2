//! Clients that are silent, do not read, are too many, or send too much.

use serde_json::{Value, json};

use crate::http::Way;
use crate::kit::browser::{Browser, announce, frame, name, offer_id};
use crate::kit::harness::{Tracker, eventually};

#[test]
fn who_is_silent_is_pinged_and_then_closed() {
    let way = Way::PLAIN;
    let tracker = way.start(&[("SHOAL_WEBTORRENT_PING_INTERVAL_S", "1")]);
    let (mut polite, mut silent) = (Browser::open(way, &tracker), Browser::open(way, &tracker));
    silent.ask(&announce('t', 's', 0));
    polite.ask(&announce('t', 'p', 0));
    // This one answers its pings while it waits; the other one is not read from, so its library answers none.
    polite.receive_pings(3);
    silent.close_code();
    let peers = || (tracker.metric("shoal_webtorrent_peers", &[]) == 1).then_some(());
    eventually("the silent one is forgotten", peers);
    polite.check();
}

#[test]
fn who_never_ends_a_message_is_closed() {
    let way = Way::PLAIN;
    let tracker = way.start(&[("SHOAL_HTTP_REQUEST_TIMEOUT_S", "1")]);
    let mut browser = Browser::open(way, &tracker);
    browser.send_raw(&frame(&announce('t', 'a', 0))[..20]);
    assert_eq!(browser.close_code(), Some(1001));
    assert_eq!(tracker.metric("shoal_connections_ended_total", &["reason=\"slow_request\""]), 1);
}

/// Offers to the leechers of a torrent, of 8 KiB each, from a seeder.
pub(crate) fn large_offers(peer: char, count: usize) -> Value {
    let mut large = announce('t', peer, 0);
    let sdp = "x".repeat(8 << 10);
    let offer = |number: usize| json!({"offer_id": offer_id(peer, number), "offer": {"sdp": sdp}});
    let offers: Vec<Value> = (0..count).map(offer).collect();
    (large["left"], large["numwant"], large["offers"]) = (json!(0), json!(count), json!(offers));
    large
}

pub(crate) fn lost(tracker: &Tracker, outcome: &str) -> u64 {
    tracker.metric("shoal_webtorrent_relays_total", &[&format!("outcome=\"{outcome}\"")])
}

fn slow_readers(tracker: &Tracker) -> u64 {
    tracker.metric("shoal_connections_ended_total", &["reason=\"slow_reader\""])
}

/// A client that reads late and steadily is sent less, stays connected, and is served meanwhile.
#[test]
fn offers_of_others_are_lost_and_never_end_a_connection() {
    let way = Way::PLAIN;
    let settings = [("SHOAL_WEBTORRENT_RELAY_RATE_MAX", "0"), ("SHOAL_WEBTORRENT_OFFERS_MAX", "1")];
    let tracker = way.start(&settings);
    let mut slow = Browser::open(way, &tracker);
    slow.ask(&announce('t', 's', 0));
    let mut hostile: Vec<_> =
        ('a'..'i').map(|peer| (Browser::open(way, &tracker), large_offers(peer, 1))).collect();
    let mut flood = |rounds: usize| {
        for (browser, offers) in &mut hostile {
            for _ in 0..rounds {
                assert_eq!(browser.ask(offers)["incomplete"], 1);
            }
        }
    };
    // The sockets of the kernel take some MiB before anything waits.
    let mut rounds = 0;
    while lost(&tracker, "queue_full") < 100 {
        rounds += 1;
        assert!(rounds < 10_000, "nothing is lost");
        flood(4);
    }
    // Its message is read at once, although it has not read the messages of others.
    slow.send_json(&announce('u', 's', 0));
    eventually("its message is read", || (tracker.metric("shoal_webtorrent_peers", &[]) == 10).then_some(()));
    // It reads an offer for eight that are made, and its reply is among them in the end.
    let mut is_answered = false;
    for _ in 0..300 {
        flood(1);
        is_answered |= slow.receive().get("interval").is_some();
    }
    while !is_answered {
        is_answered |= slow.receive().get("interval").is_some();
    }
    slow.send_json(&announce('v', 's', 0));
    while slow.receive()["info_hash"] != name('v') {}
    assert_eq!(slow_readers(&tracker), 0);
}

/// One that asks and never reads is closed.
#[test]
fn who_does_not_read_its_own_replies_is_closed() {
    let way = Way::PLAIN;
    let tracker = way.start(&[("SHOAL_HTTP_SEND_TIMEOUT_S", "1")]);
    let (mut slow_reader, mut other) = (Browser::open(way, &tracker), Browser::open(way, &tracker));
    other.ask(&announce('t', 'o', 0));
    let hashes: Vec<String> = ('a'..='y').map(name).collect();
    let scrape = frame(&json!({"action": "scrape", "info_hash": hashes}));
    while slow_reader.try_send_raw(&scrape).is_ok() {}
    eventually("it is closed", || (slow_readers(&tracker) == 1).then_some(()));
    other.check();
    assert_eq!(other.ask(&announce('t', 'o', 0))["incomplete"], 1);
}

#[test]
fn a_websocket_that_has_not_announced_makes_room() {
    let way = Way::PLAIN;
    let settings = [("SHOAL_HTTP_CONNECTIONS_MAX", "3"), ("SHOAL_WORKERS_COUNT", "1")];
    let tracker = way.start(&settings);
    let open = |last| Browser::knock_from([127, 0, 0, last], way.address(&tracker), &[]).unwrap();
    let (mut a, mut b) = (open(2), open(3));
    a.ask(&announce('t', 'a', 0));
    // An idle HTTP connection is closed first, although it was active last.
    let mut http = way.connect(&tracker);
    assert_eq!(http.get("/").status, 404);
    let mut c = open(4);
    assert_eq!(http.until_closed().unwrap(), b"");
    c.ask(&announce('t', 'c', 0));
    a.check();
    let mut d = open(5);
    assert_eq!(d.ask(&announce('t', 'd', 0))["incomplete"], 3);
    assert_eq!(b.close_code(), Some(1001));
    for browser in [&mut a, &mut c] {
        browser.check();
    }
}

#[test]
fn a_websocket_through_a_proxy_counts_towards_its_client() {
    let way = Way::PLAIN;
    let tracker = way.start(&[
        ("SHOAL_WEBTORRENT_CONNECTIONS_PER_SOURCE_MAX", "2"),
        ("SHOAL_PROXY_TRUSTED", "127.0.0.1/32"),
        ("SHOAL_PROXY_HEADER", "x-real-ip"),
    ]);
    let knock = |client| Browser::knock(way.address(&tracker), false, &[("X-Real-IP", client)]);
    let mut all: Vec<_> = (0..2).map(|_| knock("198.51.100.7").unwrap()).collect();
    assert_eq!(knock("198.51.100.7").err(), Some(503));
    all.extend((0..2).map(|_| knock("198.51.100.8").unwrap()));
    all.iter_mut().for_each(Browser::check);
}

#[test]
fn one_address_takes_no_more_than_half_of_the_peers() {
    let way = Way::PLAIN;
    let tracker = way.start(&[("SHOAL_WEBTORRENT_PEERS_MAX", "100")]);
    let open = |last| Browser::knock_from([127, 0, 0, last], way.address(&tracker), &[]).unwrap();
    let torrent = |number: u8| {
        let mut announce = announce('t', 'a', 0);
        let info_hash: String = format!("{number:020}");
        announce["info_hash"] = json!(info_hash);
        announce
    };
    let is_taken_in = |browser: &mut Browser, number| browser.ask(&torrent(number))["incomplete"] == 1;
    let mut greedy = open(2);
    let evicted = || tracker.metric("shoal_webtorrent_peers_evicted_total", &[]);
    let taken: u64 = (0..120).map(|number| u64::from(is_taken_in(&mut greedy, number))).sum();
    // A sweep that has passed by now has removed peers of it, in whose place it may have others.
    assert!((50..=50 + evicted()).contains(&taken), "{taken}");
    let refusal = greedy.ask(&torrent(130));
    let reason = refusal["failure reason"].as_str().unwrap();
    assert!(reason.contains("nearly full"), "{refusal}");
    let refused = ["protocol=\"webtorrent\"", "outcome=\"source_over_share\""];
    assert_eq!(tracker.metric("shoal_replies_total", &refused), 121 - taken);
    // Of others there is room for as many as are left.
    let mut others = [open(3), open(4), open(5)];
    for number in 140..190_u8 {
        assert!(is_taken_in(&mut others[usize::from(number % 3)], number), "{number}");
    }
    let last = others[0].ask(&torrent(200));
    let is_full = last["failure reason"].as_str().is_some_and(|reason| reason.contains("full"));
    assert!(is_full || evicted() > 0, "{last}");
    assert!(is_taken_in(&mut greedy, 0) || evicted() > 0, "a peer that is in stays in");
}
