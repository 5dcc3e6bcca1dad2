//! Addresses and families: who answers from where.

use std::net::SocketAddr;

use crate::kit::client::{Announce, Client};
use crate::udp::{Way, hash, over_every_back_end};

over_every_back_end!(a_reply_leaves_from_the_address_that_was_asked, both_families_are_served_at_once);

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
