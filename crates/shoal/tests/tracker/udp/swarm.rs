//! Swarms over time: peers that fall silent.

use crate::client::{Announce, Counts};
use crate::harness::eventually;
use crate::udp::{Way, hash, over_every_way};

over_every_way!(a_silent_peer_is_forgotten_and_one_that_announces_is_not);

/// The shortest times that the configuration takes.
pub(crate) const SHORT_LIVES: [(&str, &str); 3] = [
    ("SHOAL_ANNOUNCE_INTERVAL_S", "1"),
    ("SHOAL_ANNOUNCE_INTERVAL_JITTER_S", "0"),
    ("SHOAL_ANNOUNCE_PEER_TIMEOUT_S", "2"),
];

fn a_silent_peer_is_forgotten_and_one_that_announces_is_not(way: Way) {
    let any_number = [("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0")];
    let tracker = way.start(&[&SHORT_LIVES[..], &any_number].concat());
    let client = way.client(&tracker);
    client.announce_all((1..=40).map(|port| Announce::seeder(hash(1), port)));
    client.announce(&Announce::seeder(hash(2), 1));
    eventually("the silent peers are forgotten", || {
        client.announce(&Announce::leecher(hash(1), 100));
        let counts = client.scrape(&[hash(1), hash(2)]);
        (counts == [Counts { leechers: 1, ..Counts::default() }, Counts::default()]).then_some(())
    });
    assert_eq!(tracker.metric("shoal_peers_expired_total", &[way.family()]), 41);
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 1);
}
