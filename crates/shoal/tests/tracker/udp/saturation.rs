//! Under a load that never lets up, everything else still gets its turn.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::kit::client::{Announce, Client, connect_packet, scrape_packet};
use crate::kit::harness::eventually;
use crate::udp::{Way, hash, over_every_back_end};

over_every_back_end!(
    a_flooded_family_starves_neither_the_other_nor_housekeeping,
    an_overloaded_worker_refuses_scrapes_and_answers_announces,
);

/// The shortest times that the configuration takes.
const SHORT_LIVES: [(&str, &str); 3] = [
    ("SHOAL_ANNOUNCE_INTERVAL_S", "1"),
    ("SHOAL_ANNOUNCE_INTERVAL_JITTER_S", "0"),
    ("SHOAL_ANNOUNCE_PEER_TIMEOUT_S", "2"),
];

/// One worker, whose IPv4 socket is never empty, must serve IPv6, forget silent peers and answer for its health.
fn a_flooded_family_starves_neither_the_other_nor_housekeeping(way: Way) {
    let tracker = way.start(&[&SHORT_LIVES[..], &[("SHOAL_WORKERS_COUNT", "1")]].concat());
    let client = Client::new(tracker.udp[1]);
    client.announce_all((1..=100).map(|port| Announce::seeder(hash(1), port)));
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flood = Client::new(tracker.udp[0]);
            while !enough.load(Ordering::Relaxed) {
                flood.send(&connect_packet(1));
            }
        });
        eventually("the silent peers are forgotten", || {
            assert_eq!(tracker.page("/health").status, 200);
            (client.scrape(&[hash(1)])[0].seeders == 0).then_some(())
        });
        enough.store(true, Ordering::Relaxed);
    });
}

/// One worker, whose IPv4 socket is never empty, answers over IPv6 what it does not shed.
fn an_overloaded_worker_refuses_scrapes_and_answers_announces(way: Way) {
    let tracker = way.start(&[("SHOAL_WORKERS_COUNT", "1")]);
    let client = Client::new(tracker.udp[1]);
    assert_eq!(client.scrape(&[hash(1)])[0].seeders, 0);
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let flood = Client::new(tracker.udp[0]);
                while !enough.load(Ordering::Relaxed) {
                    flood.send(&connect_packet(1));
                }
            });
        }
        eventually("the worker is overloaded", || {
            (tracker.metric("shoal_overload_stage", &[]) == 3).then_some(())
        });
        let refusal = client.refusal(&scrape_packet(client.connect(), 9, &[hash(1)]));
        let announced = client.announce(&Announce::seeder(hash(1), 1001));
        enough.store(true, Ordering::Relaxed);
        assert!(refusal.contains("overloaded"), "{refusal}");
        assert_eq!(announced.seeders, 1);
    });
    tracker.wait_for_line("overloaded: more requests arrive than workers answer");
    assert_eq!(tracker.metric("shoal_replies_total", &["kind=\"scrape\"", "outcome=\"overloaded\""]), 1);
}
