//! Scrapes: counts of several torrents in the order of the request.

use crate::client::{Announce, COMPLETED, Counts};
use crate::udp::{Way, hash, over_every_way};

over_every_way!(
    every_number_of_hashes_up_to_the_cap_is_answered_in_order,
    beyond_the_cap_the_first_hashes_are_answered,
    unknown_torrents_are_zeros,
);

const CAP: u32 = 74;

/// The peers of swarm `number`.
fn expected(number: u32) -> Counts {
    Counts { seeders: number % 4 + number % 2, completed: number % 2, leechers: number % 3 }
}

/// Returns announces that fill swarm `number` with these peers.
fn members(number: u32) -> Vec<Announce> {
    let mut port = 0;
    let mut next = |count: u32, announce: fn([u8; 20], u16) -> Announce| -> Vec<Announce> {
        let ports = port..port + u16::try_from(count).unwrap();
        port = ports.end;
        ports.map(|port| announce(hash(number), 1000 + port)).collect()
    };
    let Counts { completed, leechers, .. } = expected(number);
    let completing = |info_hash, port| Announce { event: COMPLETED, ..Announce::seeder(info_hash, port) };
    [next(number % 4, Announce::seeder), next(completed, completing), next(leechers, Announce::leecher)]
        .concat()
}

fn every_number_of_hashes_up_to_the_cap_is_answered_in_order(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    client.announce_all((0..CAP).flat_map(members));
    for count in 1..=CAP {
        let forth: Vec<u32> = (0..count).collect();
        let back: Vec<u32> = (0..count).rev().collect();
        for numbers in [forth, back] {
            let hashes: Vec<[u8; 20]> = numbers.iter().map(|&number| hash(number)).collect();
            let counts: Vec<Counts> = numbers.iter().map(|&number| expected(number)).collect();
            assert_eq!(client.scrape(&hashes), counts, "{count} hashes");
        }
    }
}

/// The reply still lines up with the request, so a client that asked for too many is not left without an answer.
fn beyond_the_cap_the_first_hashes_are_answered(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    client.announce_all((0..CAP).flat_map(members));
    for count in [CAP + 1, 90, 100, 101] {
        let hashes: Vec<[u8; 20]> = (0..count).map(hash).collect();
        let counts: Vec<Counts> = (0..CAP).map(expected).collect();
        assert_eq!(client.scrape(&hashes), counts, "{count} hashes");
    }
}

fn unknown_torrents_are_zeros(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    client.announce(&Announce::seeder(hash(1), 1001));
    let one = Counts { seeders: 1, ..Counts::default() };
    assert_eq!(client.scrape(&[hash(2), hash(1), hash(3)]), [Counts::default(), one, Counts::default()]);
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 1);
}
