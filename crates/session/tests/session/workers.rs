//! Clients of different workers.

use shoal_base::transport::stream::StreamService;
use std::sync::Arc;

use shoal_config::Config;
use shoal_relay::Mailboxes;

use crate::harness::{NOW, Tracker};
use crate::webtorrent::{
    ALICE, BOB, Client, announce, announce_with, answer, assert_counts, responder_of, round, swarms,
};

fn workers() -> [Tracker; 2] {
    let (swarms, mailboxes) = (swarms(), Mailboxes::new(2));
    [0, 1].map(|worker| {
        let responder = responder_of(worker, Config::default(), &Arc::clone(&swarms), &mailboxes);
        Tracker::assemble(|_| {}, |_| {}, Some(responder), None)
    })
}

#[test]
fn offers_and_answers_cross_from_worker_to_worker() {
    let [mut here, mut there] = workers();
    let (mut alice, mut bob) = (Client::new(&mut here), Client::new(&mut there));
    alice.ask(&mut here, &announce(ALICE));
    assert_counts(&bob.ask(&mut there, &announce(BOB))[0], 0, 2);

    alice.ask(&mut here, &announce_with(ALICE, &["the offer"]));
    assert_eq!(round(&mut there, &mut [&mut bob]), 0);
    assert_eq!(here.service.end_round().collect::<Vec<_>>(), [1]);
    there.service.begin_round(NOW);
    assert_eq!(round(&mut there, &mut [&mut bob]), 1);
    assert!(bob.read()[0].text().contains("the offer"));

    bob.send(&mut there, &answer(BOB, ALICE, 0, "the answer"));
    // This also holds if the caller ignores the workers to wake.
    drop(there.service.end_round());
    here.service.begin_round(NOW);
    assert_eq!(round(&mut here, &mut [&mut alice]), 1);
    assert!(alice.read()[0].text().contains("the answer"));
    assert_eq!(here.service.end_round().count() + there.service.end_round().count(), 0);
}

#[test]
fn without_webtorrent_there_is_nothing_to_hand_over() {
    let mut tracker = Tracker::without_webtorrent();
    tracker.service.begin_round(NOW);
    assert_eq!(tracker.service.next_to_write(), None);
    assert_eq!(tracker.service.end_round().count(), 0);
}
