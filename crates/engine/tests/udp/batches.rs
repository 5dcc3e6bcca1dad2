//! A batch has the same effect as its datagrams one at a time.

use std::net::SocketAddr;

use shoal_base::transport::datagram::BATCH_MAX;
use shoal_base::{Event, InfoHash};
use shoal_config::Config;
use shoal_wire::udp::{Announce, Request};

use crate::harness::{
    TRANSACTION, Tracker, announce_request, bytes_of, client_v4, client_v6, entries_of, leecher, seeder,
    swarm_of, with_event,
};

/// A request and its source, as one of few peers of few torrents.
type Sent = (SocketAddr, Vec<u8>);

/// The part of a reply that does not depend on chance: the counts of the swarm or of each torrent.
fn counts((source, request): &Sent, reply: &[u8]) -> Vec<[u32; 3]> {
    match Request::decode(request) {
        Ok(Request::Announce { .. }) => {
            let swarm = swarm_of(*source, reply);
            vec![[swarm.seeders, u32::MAX, swarm.leechers]]
        }
        _ => entries_of(reply),
    }
}

fn request(tracker: &mut Tracker, rng: &mut fastrand::Rng, torrents: u8, scrapes_of: usize) -> Sent {
    let number = rng.u32(0..4);
    let source = if rng.bool() { client_v4(number) } else { client_v6(number) };
    let mut info_hash = || InfoHash([rng.u8(0..torrents); 20]);
    let (of_announce, of_scrape): (_, Vec<_>) = (info_hash(), (0..scrapes_of).map(|_| info_hash()).collect());
    let id = tracker.connect(source);
    let info_hashes = &of_scrape[..];
    let announce = match rng.u32(0..6) {
        0 => {
            return (
                source,
                bytes_of(&Request::Scrape { connection_id: id, transaction_id: TRANSACTION, info_hashes }),
            );
        }
        1 => with_event(Event::Stopped, leecher(1)),
        2 => with_event(Event::Completed, seeder(1)),
        3 => leecher(0),
        4 => leecher(1),
        _ => seeder(1),
    };
    (source, bytes_of(&announce_request(id, &Announce { info_hash: of_announce, ..announce })))
}

/// Sends the same random requests as batches and one by one.
fn check(batches: usize, torrents: u8, scrapes_of: usize) {
    let config = Config::default();
    let (mut batched, mut single) = (Tracker::new(&config), Tracker::new(&config));
    let mut rng = fastrand::Rng::with_seed(torrents.into());
    for _ in 0..batches {
        let requests: Vec<Sent> =
            (0..BATCH_MAX).map(|_| request(&mut single, &mut rng, torrents, scrapes_of)).collect();
        let replies = batched.batch(&requests);
        for (request, reply) in requests.iter().zip(replies) {
            let expected = single.datagram(request.0, &request.1);
            assert_eq!(counts(request, &reply), counts(request, &expected));
        }
    }
}

#[test]
fn requests_to_one_swarm_and_therefore_one_shard_are_applied_in_the_order_of_arrival() {
    check(50, 1, 3);
}

#[test]
fn requests_to_many_swarms_are_applied_as_if_they_came_one_at_a_time() {
    check(50, 12, 5);
}

#[test]
fn announces_behind_scrapes_are_answered_whatever_room_those_leave() {
    let config = Config::default();
    for lengths in [[120, 64, 120], [74, 74, 36], [74, 64, 120], [120, 1, 1], [60, 62, 62], [1, 120, 63]] {
        let mut tracker = Tracker::new(&config);
        let connection_id = tracker.connect(client_v4(1));
        let request = |length: usize| {
            let info_hashes = &vec![InfoHash([7; 20]); length][..];
            bytes_of(&Request::Scrape { connection_id, transaction_id: TRANSACTION, info_hashes })
        };
        let announce = bytes_of(&announce_request(connection_id, &leecher(1)));
        for scrapes in 1..BATCH_MAX {
            let lengths = lengths.iter().cycle().take(scrapes);
            let mut requests: Vec<Sent> = lengths.map(|&length| (client_v4(1), request(length))).collect();
            requests.resize(BATCH_MAX, (client_v4(1), announce.clone()));
            assert!(tracker.batch(&requests).iter().all(|reply| !reply.is_empty()));
        }
    }
}

#[test]
fn scrapes_that_exceed_the_room_for_waiting_requests_keep_their_place() {
    check(20, 12, 120);
    check(20, 1, 74);
}
