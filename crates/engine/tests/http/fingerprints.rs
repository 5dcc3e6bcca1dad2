//! A store of fingerprints serves every protocol as one of whole info hashes does.

use crate::harness::{HASH, Tracker, hash, query, v4, v6};

#[test]
fn swarms_of_fingerprints_serve_both_protocols_and_both_families() {
    let mut tracker = Tracker::with_fingerprints();
    tracker.announce(v4(1), &query(&HASH, 1001, 0));
    tracker.announce(v6(1), &query(&HASH, 1002, 5));
    let peers = tracker.announce_udp(v4(2), 1003, 7);
    assert_eq!(peers, [std::net::SocketAddr::new(v4(1), 1001)]);
    assert_eq!(tracker.counts(&HASH), [1, 2, 0]);
    assert_eq!(tracker.counts(&hash(1)), [0, 0, 0], "a torrent without announces");
    assert_eq!(tracker.store.totals().map(|totals| totals.swarms), [1, 1]);
}
