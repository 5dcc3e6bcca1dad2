//! The memory of the store: its ceiling, and its way back down.

use std::net::SocketAddr;

use crate::kit::client::{Announce, COMPLETED, Client, Counts, ERROR, STOPPED, word};
use crate::kit::harness::eventually;
use crate::kit::page::send;
use crate::udp::{Way, hash, over_every_back_end, over_every_way};

over_every_back_end!(one_address_cannot_make_new_torrents_of_others_be_refused);
// The store knows nothing of the back end, and this takes a while.
over_every_way!(
    v4,
    "mmsg",
    false,
    a_source_that_fills_the_store_is_refused_and_existing_swarms_go_on,
    memory_shrinks_after_a_peak
);
over_every_way!(
    v6,
    "mmsg",
    true,
    a_source_that_fills_the_store_is_refused_and_existing_swarms_go_on,
    memory_shrinks_after_a_peak
);

/// One address fills the store.
const NO_LIMIT: (&str, &str) = ("SHOAL_LIMITS_UDP_REQUESTS_PER_S", "0");

/// Many more swarms than fit the smallest ceiling.
const SWARMS_MAX: u32 = 2_000_000;

/// Announces new torrents until one is refused: how many were taken, and the words of the refusal.
fn fill(client: &Client) -> (u32, String) {
    const ON_THE_WAY_MAX: u32 = 64;
    let connection_id = client.connect();
    for first in (0..SWARMS_MAX).step_by(ON_THE_WAY_MAX as usize) {
        let some = first..first + ON_THE_WAY_MAX;
        let packets =
            some.clone().map(|number| Announce::seeder(hash(number), 1001).packet(connection_id, number));
        packets.for_each(|packet| client.send(&packet));
        let replies: Vec<Vec<u8>> = some.map(|_| client.receive()).collect();
        if let Some(refusal) = replies.iter().find(|reply| word(reply, 0) == ERROR) {
            return (word(refusal, 4), String::from_utf8(refusal[8..].to_vec()).expect("errors are text"));
        }
    }
    panic!("{SWARMS_MAX} swarms were taken");
}

fn a_source_that_fills_the_store_is_refused_and_existing_swarms_go_on(way: Way) {
    let tracker = way.start(&[("SHOAL_STORE_MEMORY_MAX", "8MiB"), NO_LIMIT]);
    let client = way.client(&tracker);
    let (taken, words) = fill(&client);
    assert!(words.contains("full"), "{words}");
    assert!(taken > 10_000, "{taken}");
    assert!(tracker.metric("shoal_replies_total", &[way.family(), "outcome=\"source_over_share\""]) > 0);

    // The peers of a full store stay, may change, and may leave.
    for number in [0, taken / 2, taken - 1] {
        let again = client.announce(&Announce::leecher(hash(number), 1001));
        assert_eq!((again.seeders, again.leechers), (0, 1));
        client.announce(&Announce { event: COMPLETED, ..Announce::seeder(hash(number), 1001) });
        assert_eq!(client.scrape(&[hash(number)]), [Counts { seeders: 1, completed: 0, leechers: 0 }]);
        client.announce(&Announce { event: STOPPED, ..Announce::seeder(hash(number), 1001) });
        assert_eq!(client.scrape(&[hash(number)]), [Counts::default()]);
    }
    // The other family shares the ceiling, and says so too.
    let other = Client::new(tracker.udp[usize::from(!way.v6)]);
    other.connect();
    assert_eq!(tracker.page("/health").status, 200);

    // Peers that leave make room for others.
    let leaving =
        (0..taken).map(|number| Announce { event: STOPPED, ..Announce::seeder(hash(number), 1001) });
    client.announce_all(leaving);
    client.announce_all((0..1000).map(|number| Announce::seeder(hash(SWARMS_MAX + number), 1001)));
}

/// The bar of one address, by UDP and by HTTP.
fn one_address_cannot_make_new_torrents_of_others_be_refused(way: Way) {
    const OTHERS: u32 = 5000;
    let tracker = way.start(&[("SHOAL_STORE_MEMORY_MAX", "8MiB"), NO_LIMIT]);
    let greedy = way.client(&tracker);
    fill(&greedy);
    let other = Client::from_ip("127.0.0.2".parse().unwrap(), tracker.udp[0]);
    other.announce_all((0..200).map(|number| Announce::seeder(hash(SWARMS_MAX + number), 1001)));
    let announce = |address: SocketAddr, number: u32| {
        let info_hash: String = hash(number).iter().map(|byte| format!("%{byte:02x}")).collect();
        let path = format!("/announce?info_hash={info_hash}&peer_id=-XX0001-abcdefghijkl&port=1001&left=1");
        send(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).body
    };
    // Peers of the greedy address may have been evicted meanwhile.
    fill(&greedy);
    // The greedy address by HTTP, and another source by HTTP.
    let refused = announce(tracker.http[0], SWARMS_MAX + OTHERS);
    assert!(refused.contains("nearly full"), "{refused}");
    let taken = announce(tracker.http[1], SWARMS_MAX + OTHERS + 1);
    assert!(taken.contains("interval"), "{taken}");
}

/// Small stores stay as they are: each of their parts keeps some pages at hand.
fn memory_shrinks_after_a_peak(way: Way) {
    const SWARMS: u32 = 200_000;
    let tracker = way.start(&[NO_LIMIT]);
    let client = way.client(&tracker);
    let memory = || tracker.metric("shoal_store_memory_bytes", &[way.family()]);
    let resident = || tracker.metric("process_resident_memory_bytes", &[]);
    client.announce_all((0..SWARMS).map(|number| Announce::seeder(hash(number), 1001)));
    let (peak, resident_peak) = (memory(), resident());
    let leaving = |number| Announce { event: STOPPED, ..Announce::seeder(hash(number), 1001) };
    client.announce_all((0..SWARMS).map(leaving));
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 0);
    // Spare memory goes back to the kernel in small steps beside the traffic.
    eventually("the store is smaller again", || (memory() < peak / 2).then_some(()));
    eventually("the process is smaller again", || (resident() < resident_peak).then_some(()));
}
