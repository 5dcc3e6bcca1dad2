//! Lists of torrents: when they are asked, and what is refused.

use std::sync::Arc;

use shoal_access::torrents::{TableBuilder, TorrentLists};
use shoal_access::{Access, HashKey};
use shoal_base::{Event, InfoHash};
use shoal_engine::counter::{Kind, Outcome};
use shoal_engine::refusal::Refusal;
use shoal_wire::udp::Announce;

use crate::harness::{
    HASH, Tracker, announce_request, bytes_of, client_v4, client_v6, configured, error_of, leecher, policy,
    seeder, swarm_of, with_event,
};

const LISTED: InfoHash = InfoHash([0xbb; 20]);
const REFUSED: Outcome = Outcome::Refused(Refusal::TorrentNotAllowed);

/// Returns rules that allow only `LISTED`.
fn access() -> Access {
    let key = HashKey::new([1, 2, 3, 4]);
    let mut table = TableBuilder::default();
    table.add(LISTED, None).expect("a table has room for one");
    let torrents = TorrentLists::new(key, Some(vec![Arc::new(table.build(&key))]), Vec::new());
    Access { torrents: Some(Arc::new(torrents)), ..Access::default() }
}

/// Returns a tracker with the lists, and with a swarm of a seeder for `HASH`, which was there before.
fn tracker(permits_swarms: bool) -> Tracker {
    let config = configured(|_| ());
    let mut tracker = Tracker::new(&config);
    for client in [client_v4(9), client_v6(9)] {
        tracker.announce(client, &seeder(9));
    }
    let policy = policy(&config).with_access(access());
    tracker.set_policy(if permits_swarms { policy.with_permitted_swarms() } else { policy });
    tracker
}

fn of_listed(announce: Announce) -> Announce {
    Announce { info_hash: LISTED, ..announce }
}

fn of_unlisted(announce: Announce) -> Announce {
    Announce { info_hash: InfoHash([0xcc; 20]), ..announce }
}

#[test]
fn lists_are_asked_about_every_torrent_until_all_swarms_are_permitted() {
    for client in [client_v4, client_v6] {
        let mut tracker = tracker(false);
        let not_allowed = Refusal::TorrentNotAllowed.message();
        assert_eq!(tracker.refusal(client(1), &leecher(1)), not_allowed);
        assert_eq!(tracker.refusal(client(1), &of_unlisted(leecher(1))), not_allowed);
        assert_eq!(tracker.announce(client(1), &of_listed(leecher(1))).leechers, 1);
        assert_eq!(tracker.replies(Kind::Announce, REFUSED), 2);
    }
}

#[test]
fn later_they_are_asked_about_torrents_without_a_swarm() {
    for client in [client_v4, client_v6] {
        let mut tracker = tracker(true);
        assert_eq!(tracker.announce(client(1), &leecher(1)).peers.len(), 1);
        let not_allowed = Refusal::TorrentNotAllowed.message();
        for port in [0, 1] {
            assert_eq!(tracker.refusal(client(1), &of_unlisted(leecher(port))), not_allowed);
        }
        assert_eq!(tracker.scrape(client(1), &[HASH, InfoHash([0xcc; 20])]), [[1, 0, 1], [0, 0, 0]]);
        tracker.announce(client(1), &of_unlisted(with_event(Event::Stopped, leecher(1))));
        assert_eq!(tracker.announce(client(1), &of_listed(leecher(1))).leechers, 1);
        assert_eq!(tracker.replies(Kind::Announce, REFUSED), 2);
    }
}

#[test]
fn a_torrent_that_begins_like_one_with_a_swarm_is_not_taken_for_it() {
    let mut tracker = tracker(true);
    for number in 1..=200 {
        // The passes before the announce compare the first two bytes.
        let mut info_hash = HASH;
        info_hash.0[19] ^= number;
        let announce = Announce { info_hash, ..leecher(1) };
        assert_eq!(tracker.refusal(client_v4(1), &announce), Refusal::TorrentNotAllowed.message());
    }
}

#[test]
fn each_announce_of_a_batch_is_decided_alone() {
    let mut tracker = tracker(true);
    let announces = [leecher(1), of_unlisted(leecher(1)), of_listed(leecher(1)), of_listed(seeder(2))];
    let datagrams: Vec<_> = announces
        .iter()
        .zip(1..)
        .map(|(announce, number)| {
            let id = tracker.connect(client_v4(number));
            (client_v4(number), bytes_of(&announce_request(id, announce)))
        })
        .collect();
    let replies = tracker.batch(&datagrams);
    assert_eq!(error_of(&replies[1]), Refusal::TorrentNotAllowed.message());
    let leechers = [0, 2, 3].map(|index| swarm_of(client_v4(1), &replies[index]).leechers);
    assert_eq!(leechers, [1, 1, 1]);
    assert_eq!(swarm_of(client_v4(1), &replies[3]).seeders, 1, "a swarm that began in this batch");
}
