//! A store of fingerprints gives the same answers as one of whole info hashes, in less memory.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use shoal_base::{Action, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, Family, FingerprintKey, Settings, Store, SwarmId, Swarms};

const TORRENTS: u32 = 60_000;

const SETTINGS: Settings = Settings {
    memory_bytes_max: 1 << 28,
    peer_timeout_s: 1800,
    peers_per_source_max: 64,
    swarm_share_max: 0,
    holdings: None,
    hash_key: [5, 6, 7, 8],
};

fn fingerprints(key: u8) -> Store<shoal_store::Fingerprint> {
    Store::of_fingerprints(&SETTINGS, 1, FingerprintKey::new(&[key; 16])).unwrap()
}

/// Info hashes that differ in a few bits only.
fn info_hash(number: u32) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

fn peers(number: u32) -> (PeerV4, PeerV6) {
    let [a, b, c, d] = number.to_be_bytes();
    let mut v6 = [0x20; 18];
    v6[2..6].copy_from_slice(&number.to_be_bytes());
    (PeerV4([10, a, b, c, d, 1]), PeerV6(v6))
}

fn announce<P: Family, I: SwarmId>(swarms: &Swarms<P, I>, number: u32, peer: P, action: Action) {
    let announce = Announce { peer, action, peers_wanted: 0 };
    let place = swarms.locate(&info_hash(number));
    swarms.announce(&place, &announce, 1000, &mut fastrand::Rng::with_seed(1), &mut []).unwrap();
}

/// Lets a peer of each family announce each torrent, and another one every third torrent.
fn fill<I: SwarmId>(store: &Store<I>) {
    for number in 0..TORRENTS {
        let (v4, v6) = peers(number);
        // Few downloads are completed, because the table of recent ones is small and forgets some.
        let action = if number % 100 == 0 { Action::Complete } else { Action::Leech };
        announce(&store.v4, number, v4, action);
        announce(&store.v6, number, v6, Action::Seed);
        if number % 3 == 0 {
            announce(&store.v4, number, peers(number + TORRENTS).0, Action::Leech);
        }
    }
}

#[test]
fn both_modes_give_the_same_answers_and_fingerprints_take_less_memory() {
    let (whole, short) = (Store::with_shards(&SETTINGS, 1).unwrap(), fingerprints(1));
    fill(&whole);
    fill(&short);
    // The last ones do not exist.
    for number in 0..TORRENTS + 1000 {
        let hash = info_hash(number);
        let [of_whole, of_short] = [
            whole.v4.scrape(&whole.v4.locate(&hash)).plus(whole.v6.scrape(&whole.v6.locate(&hash))),
            short.v4.scrape(&short.v4.locate(&hash)).plus(short.v6.scrape(&short.v6.locate(&hash))),
        ];
        assert_eq!(of_whole, of_short, "{number}");
    }
    let bytes =
        |of_whole: u64, of_short: u64| assert!(of_short * 100 < of_whole * 88, "{of_short} {of_whole}");
    bytes(whole.v4.totals().bytes, short.v4.totals().bytes);
    bytes(whole.v6.totals().bytes, short.v6.totals().bytes);
    assert_eq!(whole.v4.totals().swarms, short.v4.totals().swarms);
}

#[test]
fn a_store_of_fingerprints_shrinks_when_its_torrents_expire() {
    let store = fingerprints(2);
    fill(&store);
    let full = [store.v4.totals().bytes, store.v6.totals().bytes];
    let mut now_s = 1000;
    while store.v4.totals().swarms + store.v6.totals().swarms > 0 {
        now_s += 10;
        assert!(now_s < 1000 + 1800 + 600, "all peers expire in time");
        while store.v4.expire(now_s, 256).behind {}
        while store.v6.expire(now_s, 256).behind {}
    }
    // Two more sweeps, so that segments that have become empty are merged.
    for _ in 0..60 {
        now_s += 10;
        while store.v4.expire(now_s, 256).behind {}
        while store.v6.expire(now_s, 256).behind {}
    }
    let empty = [store.v4.totals().bytes, store.v6.totals().bytes];
    assert!(empty[0] * 10 < full[0] && empty[1] * 10 < full[1], "{empty:?} {full:?}");
}

#[test]
fn the_key_decides_where_a_torrent_lies() {
    let shard = |key| {
        let store = Store::of_fingerprints(&SETTINGS, 64, FingerprintKey::new(&[key; 16])).unwrap();
        store.v4.locate(&info_hash(1)).shard()
    };
    assert_eq!(shard(1), shard(1));
    assert!((2..40).any(|key| shard(key) != shard(1)));
}
