//! The effect of one announce, and the fields that it may contain.

use crate::client::{Announce, Counts, STARTED, STOPPED};
use crate::udp::{Way, hash, over_every_way};

over_every_way!(
    connect_announce_and_scrape,
    stopped_gets_no_peers_and_leaves,
    stopped_creates_no_swarm,
    a_client_at_port_0_is_handed_peers_and_is_not_registered,
    private_addresses_are_refused_on_request_but_may_leave,
    trailing_bytes_are_ignored,
    intervals_are_jittered,
);

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

fn stopped_gets_no_peers_and_leaves(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    client.announce(&Announce::leecher(hash(1), 1001));
    client.announce(&Announce::seeder(hash(1), 1002));
    let gone = client.announce(&Announce { event: STOPPED, numwant: 50, ..Announce::leecher(hash(1), 1001) });
    assert_eq!((gone.leechers, gone.seeders, gone.peers.len()), (0, 1, 0));
    assert!((900..=2363).contains(&gone.interval_s), "a cold start");
    client.announce(&Announce { event: STOPPED, ..Announce::seeder(hash(1), 1002) });
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 0);
}

fn stopped_creates_no_swarm(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let reply = client.announce(&Announce { event: STOPPED, ..Announce::leecher(hash(1), 1001) });
    assert_eq!((reply.leechers, reply.seeders, reply.peers.len()), (0, 0, 0));
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 0);
}

fn a_client_at_port_0_is_handed_peers_and_is_not_registered(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    client.announce(&Announce::leecher(hash(1), 0));
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 0);
    client.announce(&Announce::seeder(hash(1), 1001));
    let hidden = client.announce(&Announce::leecher(hash(1), 0));
    assert_eq!((hidden.leechers, hidden.seeders, hidden.peers.len()), (0, 1, 1));
    client.announce(&Announce { event: STOPPED, ..Announce::leecher(hash(1), 0) });
    assert_eq!(tracker.metric("shoal_peers", &[way.family()]), 1);
}

fn private_addresses_are_refused_on_request_but_may_leave(way: Way) {
    let tracker = way.start(&[("SHOAL_ADDRESS_PRIVATE", "refuse")]);
    let client = way.client(&tracker);
    let words = client.refusal(&Announce::leecher(hash(1), 1001).packet(client.connect(), 5));
    assert!(words.contains("private"), "{words}");
    client.announce(&Announce { event: STOPPED, ..Announce::leecher(hash(1), 1001) });
}

fn trailing_bytes_are_ignored(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let connection_id = client.connect();
    let tail = |bytes: usize| vec![0xee; bytes];
    for bytes in [1, 3, 19, 500, 1900] {
        let connect = [crate::client::connect_packet(5), tail(bytes)].concat();
        assert_eq!(client.ask(&connect).len(), 16, "{bytes}");
        let announce = [Announce::leecher(hash(1), 1001).packet(connection_id, 5), tail(bytes)].concat();
        assert_eq!(client.read_announced(&client.ask(&announce), 5).leechers, 1, "{bytes}");
    }
    // Less than a whole hash is not a hash.
    let scrape = [crate::client::scrape_packet(connection_id, 5, &[hash(1)]), tail(19)].concat();
    assert_eq!(client.ask(&scrape).len(), 8 + 12);
}

fn intervals_are_jittered(way: Way) {
    let tracker =
        way.start(&[("SHOAL_ANNOUNCE_INTERVAL_S", "600"), ("SHOAL_ANNOUNCE_INTERVAL_JITTER_S", "60")]);
    // The tracker has just begun without peers.
    let announce = Announce::leecher(hash(1), 1001);
    let replies = way.client(&tracker).announce_all(std::iter::repeat_n(announce, 200));
    let mut intervals: Vec<u32> = replies.iter().map(|reply| reply.interval_s).collect();
    assert!(intervals.iter().all(|interval| (300..=900).contains(interval)), "{intervals:?}");
    intervals.sort_unstable();
    intervals.dedup();
    assert!(intervals.len() > 20, "{intervals:?}");
}
