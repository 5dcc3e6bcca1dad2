//! What one announce does and what it may contain.

use crate::client::{Announce, COMPLETED, Counts, STARTED, STOPPED};
use crate::udp::{Way, hash, over_every_way};

over_every_way!(
    connect_announce_and_scrape,
    the_announcer_is_counted_but_not_handed_to_itself,
    a_peer_is_known_by_ip_and_port_and_not_by_peer_id,
    completed_makes_a_seeder_and_counts_once_for_each_peer,
    stopped_gets_no_peers_and_leaves,
    stopped_creates_no_swarm,
    left_that_is_huge_or_negative_is_a_leecher,
    an_unknown_event_is_an_update,
    a_seeder_may_become_a_leecher_again,
    the_ip_field_is_never_trusted,
    port_0_is_refused_but_may_leave,
    private_addresses_are_refused_on_request_but_may_leave,
    options_of_bep_41_are_accepted,
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

fn the_announcer_is_counted_but_not_handed_to_itself(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    for _ in 0..3 {
        let alone = client.announce(&Announce::leecher(hash(1), 1001));
        assert_eq!((alone.leechers, alone.seeders, alone.peers.len()), (1, 0, 0));
    }
    client.announce(&Announce::leecher(hash(1), 1002));
    for _ in 0..20 {
        let peers = client.announce(&Announce::leecher(hash(1), 1001)).peers;
        assert_eq!(peers.iter().map(|peer| peer.port()).collect::<Vec<_>>(), [1002]);
    }
}

fn a_peer_is_known_by_ip_and_port_and_not_by_peer_id(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let mut packet = Announce::leecher(hash(1), 1001).packet(client.connect(), 5);
    for peer_id in [[b'a'; 20], [b'b'; 20], [0; 20]] {
        packet[36..56].copy_from_slice(&peer_id);
        assert_eq!(client.read_announced(&client.ask(&packet), 5).leechers, 1);
    }
}

fn completed_makes_a_seeder_and_counts_once_for_each_peer(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    client.announce(&Announce { event: STARTED, ..Announce::leecher(hash(1), 1001) });
    for left in [0, 1 << 20, -1] {
        let done = client.announce(&Announce { event: COMPLETED, left, ..Announce::seeder(hash(1), 1001) });
        assert_eq!((done.leechers, done.seeders), (0, 1), "left {left}");
    }
    assert_eq!(client.scrape(&[hash(1)]), [Counts { seeders: 1, completed: 1, leechers: 0 }]);
    client.announce(&Announce { event: COMPLETED, ..Announce::seeder(hash(1), 1002) });
    client.announce(&Announce::seeder(hash(1), 1003));
    assert_eq!(client.scrape(&[hash(1)]), [Counts { seeders: 3, completed: 2, leechers: 0 }]);
}

fn stopped_gets_no_peers_and_leaves(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    client.announce(&Announce::leecher(hash(1), 1001));
    client.announce(&Announce::seeder(hash(1), 1002));
    let gone = client.announce(&Announce { event: STOPPED, numwant: 50, ..Announce::leecher(hash(1), 1001) });
    assert_eq!((gone.leechers, gone.seeders, gone.peers.len()), (0, 1, 0));
    assert!(gone.interval_s >= 1800);
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

fn left_that_is_huge_or_negative_is_a_leecher(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    for (port, left) in (1001..).zip([1, -1, i64::MAX, i64::MIN]) {
        client.announce(&Announce { left, ..Announce::leecher(hash(1), port) });
    }
    assert_eq!(client.scrape(&[hash(1)]), [Counts { seeders: 0, completed: 0, leechers: 4 }]);
}

fn an_unknown_event_is_an_update(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    for event in [0, 4, 9, u32::MAX] {
        let reply = client.announce(&Announce { event, ..Announce::seeder(hash(1), 1001) });
        assert_eq!((reply.seeders, reply.leechers), (1, 0), "event {event}");
    }
    assert_eq!(client.scrape(&[hash(1)])[0].completed, 0);
}

fn a_seeder_may_become_a_leecher_again(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    for _ in 0..3 {
        let leeching = client.announce(&Announce::leecher(hash(1), 1001));
        assert_eq!((leeching.seeders, leeching.leechers), (0, 1));
        let seeding = client.announce(&Announce::seeder(hash(1), 1001));
        assert_eq!((seeding.seeders, seeding.leechers), (1, 0));
    }
}

fn the_ip_field_is_never_trusted(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let claims = [[8, 8, 8, 8], [224, 0, 0, 1], [255; 4], [127, 0, 0, 9]];
    for (port, ip) in (1001..).zip(claims) {
        client.announce(&Announce { ip, ..Announce::leecher(hash(1), port) });
    }
    let peers = client.announce(&Announce::seeder(hash(1), 2000)).peers;
    assert_eq!(peers.len(), claims.len());
    assert!(peers.iter().all(|peer| peer.ip() == client.address().ip()), "{peers:?}");
}

fn port_0_is_refused_but_may_leave(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let words = client.refusal(&Announce::leecher(hash(1), 0).packet(client.connect(), 5));
    assert!(words.contains("port 0"), "{words}");
    client.announce(&Announce { event: STOPPED, ..Announce::leecher(hash(1), 0) });
    assert_eq!(tracker.metric("shoal_swarms", &[way.family()]), 0);
    assert_eq!(tracker.metric("shoal_replies_total", &[way.family(), "outcome=\"port_zero\""]), 1);
}

fn private_addresses_are_refused_on_request_but_may_leave(way: Way) {
    let tracker = way.start(&[("SHOAL_ADDRESS_REFUSE_PRIVATE", "true")]);
    let client = way.client(&tracker);
    let words = client.refusal(&Announce::leecher(hash(1), 1001).packet(client.connect(), 5));
    assert!(words.contains("private"), "{words}");
    client.announce(&Announce { event: STOPPED, ..Announce::leecher(hash(1), 1001) });
}

/// BEP 41: 0 ends the options, 1 is padding, 2 is URL data with a length, several of which are concatenated.
fn options_of_bep_41_are_accepted(way: Way) {
    let tracker = way.start(&[]);
    let client = way.client(&tracker);
    let long_url = [&[2, 255][..], &[b'u'; 255], &[2, 10], b"/announce?", &[0]].concat();
    let options: [&[u8]; 9] = [
        b"\x00",
        b"\x01\x01\x01",
        b"\x02\x09/announce",
        b"\x02\x09/announce\x02\x06?key=1\x00",
        b"\x01\x02\x00\x01\x00whatever follows the end",
        b"\x02",
        b"\x02\xff/announce",
        b"\x7f\x03abc\x02\x01/",
        &long_url,
    ];
    for (port, options) in (1001..).zip(options) {
        let packet = [&Announce::seeder(hash(1), port).packet(client.connect(), 5)[..], options].concat();
        let reply = client.read_announced(&client.ask(&packet), 5);
        assert_eq!(reply.seeders, u32::from(port - 1000), "{options:02x?}");
    }
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
    let announce = Announce::leecher(hash(1), 1001);
    let replies = way.client(&tracker).announce_all(std::iter::repeat_n(announce, 200));
    let mut intervals: Vec<u32> = replies.iter().map(|reply| reply.interval_s).collect();
    assert!(intervals.iter().all(|interval| (600..=660).contains(interval)), "{intervals:?}");
    intervals.sort_unstable();
    intervals.dedup();
    assert!(intervals.len() > 20, "{intervals:?}");
}
