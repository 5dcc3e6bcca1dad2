//! The watch of changes: every torrent whose counts change is told, whatever the cause.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use shoal_base::{Action, Counts, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, PrivateNetwork, Settings, Store};

const TIMEOUT_S: u32 = 640;

fn settings() -> Settings {
    Settings::new(1 << 26, TIMEOUT_S, [1, 2, 3, 4])
}

fn info_hash(number: u32) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

fn announce(store: &Store, torrent: u32, peer: u32, is_v6: bool, action: Action, now_s: u32) {
    let (place, rng) = (store.v4.locate(&info_hash(torrent)), &mut fastrand::Rng::with_seed(1));
    let result = if is_v6 {
        let mut bytes = [1; 18];
        bytes[..4].copy_from_slice(&peer.to_be_bytes());
        store.v6.announce(
            &place,
            &Announce { peer: PeerV6(bytes), action, peers_wanted: 0 },
            now_s,
            rng,
            &mut [],
        )
    } else {
        let mut bytes = [1; 6];
        bytes[..4].copy_from_slice(&peer.to_be_bytes());
        store.v4.announce(
            &place,
            &Announce { peer: PeerV4(bytes), action, peers_wanted: 0 },
            now_s,
            rng,
            &mut [],
        )
    };
    result.expect("there is room");
}

fn taken(store: &Store, spare: &mut Vec<InfoHash>) -> (BTreeSet<InfoHash>, bool) {
    let mut all = BTreeSet::new();
    let has_lost = store.take_changes(spare, |info_hashes| all.extend(info_hashes.iter().copied()));
    (all, has_lost)
}

#[derive(Clone, Debug)]
enum Step {
    Announce {
        torrent: u32,
        peer: u32,
        is_v6: bool,
        action: Action,
    },
    /// Many peers join at once, so that the swarm takes another form.
    Crowd {
        torrent: u32,
        peers: u32,
    },
    Remove {
        torrent: u32,
    },
    Pass {
        seconds: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let action = prop::sample::select(vec![Action::Leech, Action::Seed, Action::Complete, Action::Stop]);
    prop_oneof![
        20 => (0..8_u32, 0..6_u32, any::<bool>(), action)
            .prop_map(|(torrent, peer, is_v6, action)| Step::Announce { torrent, peer, is_v6, action }),
        2 => (0..8_u32, 1..400_u32).prop_map(|(torrent, peers)| Step::Crowd { torrent, peers }),
        1 => (0..8_u32).prop_map(|torrent| Step::Remove { torrent }),
        3 => (1..TIMEOUT_S).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

proptest! {
    /// Joins, departures, changes of role, completed downloads, expiry and removals are told, and nothing else.
    #[test]
    fn every_change_of_counts_is_told(steps in prop::collection::vec(step(), 1..80)) {
        let store = Store::with_shards(&settings(), 1).unwrap();
        store.watch_changes();
        let (mut spare, mut now_s) = (Vec::new(), 1000);
        let mut known: BTreeMap<u32, [Counts; 2]> = (0..8).map(|torrent| (torrent, [Counts::default(); 2])).collect();
        for step in steps {
            match step {
                Step::Announce { torrent, peer, is_v6, action } => {
                    announce(&store, torrent, peer, is_v6, action, now_s);
                }
                Step::Crowd { torrent, peers } => {
                    for peer in 100..100 + peers {
                        announce(&store, torrent, peer, false, Action::Leech, now_s);
                    }
                }
                Step::Remove { torrent } => drop(store.remove(&info_hash(torrent))),
                Step::Pass { seconds } => {
                    // The sweep follows the clock in steps.
                    for _ in 0..8 {
                        now_s += seconds.div_ceil(8);
                        store.expire_in(store.shards(), now_s, 1 << 20);
                    }
                }
            }
            let (told, has_lost) = taken(&store, &mut spare);
            prop_assert!(!has_lost);
            for (torrent, before) in &mut known {
                let now = store.counts(&info_hash(*torrent));
                if now != *before {
                    prop_assert!(told.contains(&info_hash(*torrent)), "torrent {torrent}: {before:?} to {now:?}");
                }
                *before = now;
            }
        }
    }
}

#[test]
fn announces_that_change_no_count_are_not_told() {
    let store = Store::with_shards(&settings(), 8).unwrap();
    store.watch_changes();
    let mut spare = Vec::new();
    for number in 0..300 {
        announce(&store, number % 3, number, number % 2 == 0, Action::Leech, 1000);
    }
    assert_eq!(taken(&store, &mut spare).0.len(), 3);
    for number in 0..300 {
        announce(&store, number % 3, number, number % 2 == 0, Action::Leech, 1010);
        announce(&store, number % 3, 1_000_000, false, Action::Stop, 1010);
    }
    assert_eq!(taken(&store, &mut spare), (BTreeSet::new(), false));
}

#[test]
fn too_many_changes_are_told_as_lost() {
    let store = Store::with_shards(&settings(), 8).unwrap();
    store.watch_changes();
    let mut spare = Vec::new();
    (0..200_000).for_each(|torrent| announce(&store, torrent, 1, false, Action::Leech, 1000));
    let (told, has_lost) = taken(&store, &mut spare);
    assert!(has_lost && told.len() <= 1 << 16);
    announce(&store, 7, 2, false, Action::Leech, 1000);
    assert_eq!(taken(&store, &mut spare), ([info_hash(7)].into(), false), "the watch goes on");
}

#[test]
fn nothing_is_told_before_the_watch_and_after_it() {
    let store = Store::with_shards(&settings(), 8).unwrap();
    let mut spare = Vec::new();
    announce(&store, 1, 1, false, Action::Leech, 1000);
    assert_eq!(taken(&store, &mut spare), (BTreeSet::new(), false));
    store.watch_changes();
    announce(&store, 2, 1, false, Action::Leech, 1000);
    store.ignore_changes();
    announce(&store, 3, 1, false, Action::Leech, 1000);
    assert_eq!(taken(&store, &mut spare), (BTreeSet::new(), false));
    store.watch_changes();
    assert_eq!(taken(&store, &mut spare), (BTreeSet::new(), false), "earlier changes are forgotten");
}

#[test]
fn private_networks_are_not_watched() {
    let store = Store::with_shards(&settings(), 8).unwrap();
    store.watch_changes();
    let private = &store.private;
    let place = private.locate(&info_hash(1), PrivateNetwork::Ten);
    let peer = Announce { peer: PeerV4([10; 6]), action: Action::Leech, peers_wanted: 0 };
    private.v4.announce(&place, &peer, 1000, &mut fastrand::Rng::with_seed(1), &mut []).unwrap();
    assert_eq!(taken(&store, &mut Vec::new()), (BTreeSet::new(), false));
}

#[test]
fn peers_are_listed_with_their_ages() {
    let store = Store::with_shards(&settings(), 8).unwrap();
    assert_eq!(store.peers(&info_hash(1), 10, 1000), []);
    // In each of the three forms of a swarm: one peer, a block of some, and two tables.
    for peers in [1, 100, 3000_u32] {
        for peer in 0..peers {
            let action = if peer % 3 == 0 { Action::Seed } else { Action::Leech };
            announce(&store, peers, peer, false, action, 1000 + peer % 2 * 320);
            announce(&store, peers, peer, true, action, 1000);
        }
        for max in [0, 1, 7, 50, 10_000] {
            let listed = store.peers(&info_hash(peers), max, 1330);
            let wanted = max.min(peers as usize);
            let v4: Vec<_> = listed.iter().filter(|peer| peer.address.is_ipv4()).collect();
            assert_eq!((v4.len(), listed.len()), (wanted, 2 * wanted), "{max} of {peers}");
            let distinct: BTreeSet<_> = listed.iter().map(|peer| peer.address).collect();
            assert_eq!(distinct.len(), listed.len());
            assert_eq!(v4.iter().any(|peer| peer.seeds), max > 0, "{max} of {peers}");
            for peer in v4 {
                let std::net::SocketAddr::V4(address) = peer.address else { panic!("it is IPv4") };
                let number = address.ip().to_bits();
                assert_eq!(peer.seeds, number.is_multiple_of(3));
                let age_s = 330 - number % 2 * 320;
                assert!(peer.age_s.abs_diff(age_s) <= 10, "{} s, not {age_s} s", peer.age_s);
            }
        }
    }
}
