//! Limits of sources: what is refused, in which form, and how it is counted.

use std::sync::Arc;

use shoal_base::InfoHash;
use shoal_engine::counter::{Drop, Family, Kind, Outcome};
use shoal_engine::limits::SourceRates;
use shoal_engine::refusal::Refusal;
use shoal_engine::watch::Watch;
use shoal_wire::udp::{Announce, Request};

use crate::harness::{
    HASH, TRANSACTION, Tracker, announce_request, client_v4, client_v6, configured, error_of, leecher, policy,
};

/// The secret of the sources. As in production, its bits are random.
const SECRET: [u64; 4] =
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];

const REFUSED: Outcome = Outcome::Refused(Refusal::RateLimited);

/// Returns a tracker that serves two requests of a source at once, and then one each second.
fn tracker(silent: bool) -> Tracker {
    Tracker::new(&configured(|config| {
        config.limits.udp_requests_per_s = 1;
        config.limits.burst_s = 2;
        config.limits.udp_silent = silent;
    }))
}

#[test]
fn a_source_that_asks_too_often_is_told_so_and_recovers() {
    for client in [client_v4, client_v6] {
        let mut tracker = tracker(false);
        let id = tracker.connect(client(1));
        let announce = leecher(6881);
        let request = announce_request(id, &announce);
        let scrape = Request::Scrape { connection_id: id, transaction_id: TRANSACTION, info_hashes: &[HASH] };
        assert_eq!(tracker.announce(client(1), &announce).peers.len(), 0);
        assert_eq!(tracker.scrape(client(1), &[HASH]), [[0, 0, 1]]);
        for refused in [&request, &scrape] {
            assert_eq!(error_of(&tracker.ask(client(1), refused)), Refusal::RateLimited.message());
        }
        assert_eq!(tracker.replies(Kind::Announce, REFUSED) + tracker.replies(Kind::Scrape, REFUSED), 2);
        tracker.now.monotonic_ms += 1000;
        tracker.announce(client(1), &announce);
        assert_eq!(error_of(&tracker.ask(client(1), &request)), Refusal::RateLimited.message());
    }
}

#[test]
fn refusals_can_be_silent() {
    let mut tracker = tracker(true);
    let id = tracker.connect(client_v4(1));
    let announce = leecher(6881);
    (0..2).for_each(|_| drop(tracker.announce(client_v4(1), &announce)));
    assert!(tracker.ask(client_v4(1), &announce_request(id, &announce)).is_empty());
    assert_eq!(tracker.counters.drops(Family::V4, Drop::RateLimited), 1);
    assert_eq!(tracker.announce(client_v4(2), &announce).peers.len(), 1, "another source");
}

#[test]
fn a_request_with_a_wrong_id_takes_nothing_from_its_source() {
    let mut tracker = tracker(false);
    let announce = leecher(6881);
    let wrong = announce_request(shoal_wire::udp::ConnectionId(7), &announce);
    (0..10).for_each(|_| assert!(tracker.ask(client_v4(1), &wrong).is_empty()));
    assert_eq!(tracker.drops(Drop::WrongConnectionId), 10);
    tracker.announce(client_v4(1), &leecher(6881));
}

#[test]
fn connection_ids_have_a_limit_of_their_own() {
    let mut tracker = Tracker::new(&configured(|config| {
        config.limits.udp_connects_per_s = 1;
        config.limits.burst_s = 3;
    }));
    let connect = Request::Connect { transaction_id: TRANSACTION };
    let answered = (0..10).filter(|_| !tracker.ask(client_v4(1), &connect).is_empty()).count();
    assert_eq!((answered, tracker.drops(Drop::RateLimited)), (3, 7));
    assert!(!tracker.ask(client_v4(2), &connect).is_empty());
}

#[test]
fn a_batch_of_one_source_is_cut_off_in_the_order_of_arrival() {
    let mut tracker = tracker(true);
    let id = tracker.connect(client_v4(1));
    let datagrams: Vec<_> = (1..=20)
        .map(|port| (client_v4(1), crate::harness::bytes_of(&announce_request(id, &leecher(port)))))
        .collect();
    let replies = tracker.batch(&datagrams);
    assert!(replies.iter().enumerate().all(|(index, reply)| reply.is_empty() == (index >= 2)));
}

#[test]
fn each_announce_counts_towards_a_ban_that_few_torrents_earn() {
    for client in [client_v4, client_v6] {
        let config = configured(|config| config.bans.torrents_per_h = 5);
        let sources = Arc::new(SourceRates::new(SECRET));
        let mut tracker = Tracker::new(&config);
        tracker.set_policy(policy(&config).with_watch(Watch::of(&config, &sources)));
        for number in 1..=6 {
            assert_eq!(sources.take_suspects(), [], "before torrent {number}");
            tracker.announce(client(1), &Announce { info_hash: InfoHash([number; 20]), ..leecher(6881) });
        }
        assert_eq!(sources.take_suspects().len(), 1);
    }
}
