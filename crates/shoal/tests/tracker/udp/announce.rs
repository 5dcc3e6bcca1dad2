//! One exchange of each kind as a client and the operator see it, and a datagram that is too long.

use crate::kit::client::{Announce, Counts, STARTED};
use crate::udp::{Way, hash, over_every_way};

over_every_way!(connect_announce_and_scrape, oversized_datagrams_get_no_answer_and_are_counted);

fn connect_announce_and_scrape(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let first = client.announce(&Announce { event: STARTED, ..Announce::leecher(hash(1), 1001) });
    assert_eq!((first.leechers, first.seeders, first.peers.len()), (1, 0, 0));
    let second = client.announce(&Announce { event: STARTED, ..Announce::seeder(hash(1), 1002) });
    assert_eq!((second.leechers, second.seeders), (1, 1));
    let mut first_peer = client.address();
    first_peer.set_port(1001);
    assert_eq!(second.peers, [first_peer]);
    assert_eq!(client.scrape(&[hash(1)]), [Counts { seeders: 1, completed: 0, leechers: 1 }]);

    let requests = |kind| tracker.metric("shoal_requests_total", &[way.family(), kind]);
    assert_eq!(requests("kind=\"announce\""), 2);
    assert_eq!(requests("kind=\"scrape\""), 1);
    assert_eq!(requests("kind=\"connect\""), 3);
    let answered =
        tracker.metric("shoal_replies_total", &[way.family(), "kind=\"announce\"", "outcome=\"ok\""]);
    assert_eq!(answered, 2);
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 1);
    assert_eq!(tracker.metric("shoal_peers", &[way.family(), "role=\"seeder\""]), 1);
    assert_eq!(tracker.metric("shoal_peers", &[way.family(), "role=\"leecher\""]), 1);
}

fn oversized_datagrams_get_no_answer_and_are_counted(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let packet = Announce::leecher(hash(1), 1001).packet(client.connect(), 5);
    let largest = if way.v6 { 65_507 - 20 } else { 65_507 };
    for bytes in [2049, 4096, 9000, largest] {
        let mut oversized = packet.clone();
        oversized.resize(bytes, 0);
        client.send(&oversized);
        client.assert_silence(&format!("{bytes} bytes"));
    }
    assert_eq!(tracker.metric("shoal_drops_total", &[way.family(), "reason=\"oversized\""]), 4);
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 0);
}
