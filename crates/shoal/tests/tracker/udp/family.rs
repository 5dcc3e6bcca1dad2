//! Addresses and families: who answers from where, and what the families do not share.

use std::net::SocketAddr;

use crate::client::{Announce, Client, Counts};
use crate::udp::{Way, hash, over_every_back_end};

over_every_back_end!(
    a_reply_leaves_from_the_address_that_was_asked,
    ipv4_and_ipv6_swarms_are_apart,
    both_families_are_served_at_once,
);

/// On the wildcard address the kernel would answer from 127.0.0.1, and a connected socket would not hear it.
fn a_reply_leaves_from_the_address_that_was_asked(way: Way) {
    let tracker = way.start(&[("SHOAL_UDP_LISTEN", "0.0.0.0:0,[::]:0")]);
    let (v4, v6) = (tracker.udp[0].port(), tracker.udp[1].port());
    for asked in ["127.0.0.1", "127.0.0.2", "127.9.8.7"] {
        let asked = SocketAddr::new(asked.parse().unwrap(), v4);
        let client = Client::new(asked);
        assert_eq!(client.announce(&Announce::leecher(hash(1), 1001)).leechers, 1, "{asked}");
    }
    Client::new(SocketAddr::new("::1".parse().unwrap(), v6)).connect();
}

fn ipv4_and_ipv6_swarms_are_apart(way: Way) {
    let tracker = way.start(&[]);
    let [v4, v6] = [Client::new(tracker.udp[0]), Client::new(tracker.udp[1])];
    v4.announce(&Announce::seeder(hash(1), 1001));
    v6.announce(&Announce::seeder(hash(1), 1002));
    v6.announce(&Announce::seeder(hash(1), 1003));
    assert_eq!(v4.scrape(&[hash(1)]), [Counts { seeders: 1, ..Counts::default() }]);
    assert_eq!(v6.scrape(&[hash(1)]), [Counts { seeders: 2, ..Counts::default() }]);
    let (to_v4, to_v6) =
        (v4.announce(&Announce::leecher(hash(1), 1004)), v6.announce(&Announce::leecher(hash(1), 1004)));
    assert!(to_v4.peers.len() == 1 && to_v4.peers.iter().all(SocketAddr::is_ipv4), "{to_v4:?}");
    assert!(to_v6.peers.len() == 2 && to_v6.peers.iter().all(SocketAddr::is_ipv6), "{to_v6:?}");
}

fn both_families_are_served_at_once(way: Way) {
    let tracker = way.start(&[("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0")]);
    std::thread::scope(|scope| {
        for (client, address) in (0_u16..).zip(tracker.udp.iter().chain(&tracker.udp)) {
            scope.spawn(move || {
                let ports = (client * 1000 + 1)..=(client * 1000 + 500);
                Client::new(*address).announce_all(ports.map(|port| Announce::leecher(hash(1), port)));
            });
        }
    });
    for family in ["family=\"v4\"", "family=\"v6\""] {
        assert_eq!(tracker.metric("shoal_peers", &[family, "role=\"leecher\""]), 1000);
    }
}
