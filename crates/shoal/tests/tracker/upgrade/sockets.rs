//! WebSockets at an upgrade: peers of both processes meet, and no message is lost.

use std::mem;

use serde_json::{Value, json};
use shoal_testkit::client::websocket::fragment;
use shoal_wire::websocket::frame::Opcode;

use crate::http::{Way, over_every_way};
use crate::kit::browser::{Browser, announce, answer, frame, name};
use crate::kit::harness::{PATIENCE, eventually};
use crate::upgrade::Upgraded;
use crate::ws::limits::{large_offers, lost};

over_every_way!(
    peers_meet_across_an_upgrade,
    an_offer_of_before_an_upgrade_is_answered_after_it,
    counts_are_right_after_an_upgrade,
    limits_of_sources_count_each_peer_once,
    a_message_in_progress_arrives,
    who_reads_slowly_loses_nothing,
    sockets_survive_several_upgrades,
    encrypted_ones_are_closed_with_1012,
);

/// An announce of a seeder.
fn seeds(torrent: char, peer: char, offers: usize) -> Value {
    let mut seeder = announce(torrent, peer, offers);
    seeder["left"] = json!(0);
    seeder
}

/// The numbers of seeders and leechers of torrent `t`.
fn counts(browser: &mut Browser) -> (u64, u64) {
    let scrape = browser.ask(&json!({"action": "scrape", "info_hash": name('t')}));
    let file = &scrape["files"][name('t')];
    (file["complete"].as_u64().unwrap(), file["incomplete"].as_u64().unwrap())
}

/// Lets one client make an offer, and the other one answer it.
fn exchange((from, from_announce): (&mut Browser, &Value), (to, to_name): (&mut Browser, char)) {
    assert!(from.ask(from_announce)["interval"].is_number());
    let offer = to.receive();
    assert_eq!(offer["peer_id"], from_announce["peer_id"], "{offer}");
    to.send_json(&answer(to_name, &offer));
    let answer = from.receive();
    assert!(answer["answer"].is_object() && answer["peer_id"] == name(to_name), "{answer}");
}

fn peers_meet_across_an_upgrade(way: Way) {
    let mut upgraded = Upgraded::new(way.start(&[]));
    let mut before = Browser::open(way, &upgraded.tracker);
    assert_eq!(before.ask(&seeds('t', 'a', 0))["complete"], 1);
    upgraded.upgrade();
    let mut after = Browser::open(way, &upgraded.tracker);
    eventually("the old connection has moved", || {
        (after.ask(&announce('t', 'b', 0))["complete"] == 1).then_some(())
    });
    exchange((&mut before, &seeds('t', 'a', 1)), (&mut after, 'b'));
    exchange((&mut after, &announce('t', 'b', 1)), (&mut before, 'a'));
    // The old process ends with its last encrypted connection.
    before.leave();
    assert!(upgraded.tracker.wait(PATIENCE).success());
    after.check();
}

fn an_offer_of_before_an_upgrade_is_answered_after_it(way: Way) {
    let upgraded = Upgraded::new(way.start(&[("SHOAL_WEBTORRENT_UPGRADE_CLOSE_S", "60")]));
    // Both connections get other places in the new process.
    let fillers: Vec<_> = (0..5).map(|_| Browser::open(way, &upgraded.tracker)).collect();
    let [mut offerer, mut answerer] = [(); 2].map(|()| Browser::open(way, &upgraded.tracker));
    answerer.ask(&announce('t', 'b', 0));
    offerer.ask(&announce('t', 'a', 3));
    let offer = answerer.receive();
    drop(fillers);
    upgraded.upgrade();
    // Only the peer that received the offer may answer it, and only once.
    let mut other = Browser::open(way, &upgraded.tracker);
    eventually("both have moved", || (counts(&mut other) == (0, 2)).then_some(()));
    other.ask(&announce('t', 'c', 0));
    other.send_json(&answer('c', &offer));
    eventually("an answer of another peer is lost", || {
        (lost(&upgraded.tracker, "unawaited") == 1).then_some(())
    });
    for _ in 0..2 {
        answerer.send_json(&answer('b', &offer));
    }
    assert_eq!(offerer.receive()["peer_id"], name('b'));
    eventually("a second answer is lost", || (lost(&upgraded.tracker, "unawaited") == 2).then_some(()));
}

fn counts_are_right_after_an_upgrade(way: Way) {
    let upgraded = Upgraded::new(way.start(&[("SHOAL_WEBTORRENT_UPGRADE_CLOSE_S", "60")]));
    let peers = || ('a'..='z').chain('A'..='Z');
    let message = |peer: char| {
        if peer.is_ascii_lowercase() { seeds('t', peer, 0) } else { announce('t', peer, 0) }
    };
    let mut browsers: Vec<_> = peers().map(|_| Browser::open(way, &upgraded.tracker)).collect();
    for (browser, peer) in browsers.iter_mut().zip(peers()) {
        browser.ask(&message(peer));
    }
    upgraded.upgrade();
    let mut observer = Browser::open(way, &upgraded.tracker);
    eventually("all have moved", || (counts(&mut observer) == (26, 26)).then_some(()));
    // Another announce is one of the same peer.
    for (browser, peer) in browsers.iter_mut().zip(peers()) {
        let reply = browser.ask(&message(peer));
        assert_eq!((&reply["complete"], &reply["incomplete"]), (&json!(26), &json!(26)), "{reply}");
    }
    // One leaves in an orderly way, and the others do not.
    browsers.pop().unwrap().leave();
    eventually("one has left", || (counts(&mut observer) == (26, 25)).then_some(()));
    drop(browsers);
    eventually("all have left", || (counts(&mut observer) == (0, 0)).then_some(()));
    observer.check();
}

fn limits_of_sources_count_each_peer_once(way: Way) {
    let upgraded = Upgraded::new(way.start(&[("SHOAL_LIMITS_PEERS_PER_SOURCE_MAX", "2")]));
    let mut browser = Browser::open(way, &upgraded.tracker);
    for torrent in ['t', 'u'] {
        assert_eq!(browser.ask(&announce(torrent, 'a', 0))["incomplete"], 1);
    }
    for _ in 0..2 {
        upgraded.upgrade();
        let mut other = Browser::open(way, &upgraded.tracker);
        eventually("it has moved", || (counts(&mut other) == (0, 1)).then_some(()));
        assert_eq!(browser.ask(&announce('v', 'a', 0))["incomplete"], 0, "it has two");
    }
    browser.leave();
    let mut other = Browser::open(way, &upgraded.tracker);
    eventually("it has left", || (counts(&mut other) == (0, 0)).then_some(()));
    for torrent in ['v', 'w'] {
        assert_eq!(other.ask(&announce(torrent, 'b', 0))["incomplete"], 1);
    }
    assert_eq!(other.ask(&announce('x', 'b', 0))["incomplete"], 0);
}

fn a_message_in_progress_arrives(way: Way) {
    let upgraded = Upgraded::new(way.start(&[]));
    let mut browser = Browser::open(way, &upgraded.tracker);
    let text = announce('t', 'a', 0).to_string();
    let (first, second) = text.as_bytes().split_at(50);
    // A whole fragment, and the beginning of the next one.
    let last = fragment(Opcode::Continuation, true, second);
    let (begin, rest) = last.split_at(9);
    browser.send_raw(&[&fragment(Opcode::Text, false, first)[..], begin].concat());
    let mut other = Browser::open(way, &upgraded.tracker);
    let whole = frame(&announce('t', 'b', 0));
    other.send_raw(&whole[..30]);
    upgraded.upgrade();
    browser.send_raw(rest);
    assert_eq!(browser.receive()["incomplete"], 1);
    other.send_raw(&whole[30..]);
    assert_eq!(other.receive()["incomplete"], 2);
    browser.check();
}

fn who_reads_slowly_loses_nothing(way: Way) {
    let settings = [("SHOAL_WEBTORRENT_RELAY_RATE_MAX", "0"), ("SHOAL_WEBTORRENT_OFFERS_MAX", "1")];
    let upgraded = Upgraded::new(way.start(&settings));
    let mut slow = Browser::open(way, &upgraded.tracker);
    slow.ask(&announce('t', 's', 0));
    let (mut sender, offers) = (Browser::open(way, &upgraded.tracker), large_offers('a', 1));
    // The sockets of the kernel take some MiB before anything waits.
    let mut made = 0;
    while lost(&upgraded.tracker, "queue_full") < 10 {
        assert!(made < 200_000, "nothing waits");
        (0..20).for_each(|_| drop(sender.ask(&offers)));
        made += 20;
    }
    // The other worker may still have to count.
    let (mut before, mut looks) = (0, 0);
    let lost = eventually("all losses are counted", || {
        let lost = lost(&upgraded.tracker, "queue_full");
        looks = if mem::replace(&mut before, lost) == lost { looks + 1 } else { 0 };
        (looks == 20).then_some(lost)
    });
    upgraded.upgrade();
    // It has a message on the way as well.
    slow.send_json(&announce('u', 's', 0));
    let (mut received, mut is_answered) = (0, false);
    while received < made - lost || !is_answered {
        let message = slow.receive();
        received += u64::from(message["offer"].is_object());
        is_answered |= message["info_hash"] == name('u');
    }
    assert_eq!(received, made - lost);
    sender.ask(&offers);
    assert!(slow.receive()["offer"].is_object());
}

fn sockets_survive_several_upgrades(way: Way) {
    let upgraded = Upgraded::new(way.start(&[]));
    let mut first = Browser::open(way, &upgraded.tracker);
    first.ask(&seeds('t', 'a', 0));
    for peer in 'b'..'e' {
        upgraded.upgrade();
        let mut other = Browser::open(way, &upgraded.tracker);
        eventually("the first one has moved", || {
            (other.ask(&announce('t', peer, 0))["complete"] == 1).then_some(())
        });
        exchange((&mut other, &announce('t', peer, 1)), (&mut first, 'a'));
        other.leave();
    }
}

fn encrypted_ones_are_closed_with_1012(way: Way) {
    let mut upgraded = Upgraded::new(way.start(&[("SHOAL_WEBTORRENT_UPGRADE_CLOSE_S", "1")]));
    let mut browsers: Vec<_> = ('a'..'g').map(|_| Browser::open(way, &upgraded.tracker)).collect();
    for (browser, peer) in browsers.iter_mut().zip('a'..) {
        browser.ask(&announce('t', peer, 0));
    }
    upgraded.upgrade();
    assert!(upgraded.tracker.wait(PATIENCE).success());
    if way.tls() {
        for browser in &mut browsers {
            assert_eq!(browser.close_code(), Some(1012));
        }
    }
    let mut new = Browser::open(way, &upgraded.tracker);
    let staying = if way.tls() { 0 } else { 6 };
    eventually("the closed ones have left", || (counts(&mut new) == (0, staying)).then_some(()));
    if !way.tls() {
        browsers.iter_mut().for_each(Browser::check);
    }
}
