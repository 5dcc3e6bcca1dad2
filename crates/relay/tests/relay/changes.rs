//! The watch of changes: every torrent whose counts change is told, whatever the cause.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use proptest::prelude::*;
use shoal_base::transport::stream::Handle;
use shoal_base::{Action, Counts, InfoHash, PeerId};
use shoal_relay::{Address, Announce, Settings, Swarms};

const LIFETIME_S: u32 = 80;

fn swarms() -> Swarms {
    Swarms::new(&Settings::new(1 << 20, LIFETIME_S, [3, 9]))
}

fn info_hash(number: u32) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

fn announce(swarms: &Swarms, torrent: u32, peer: u32, action: Action, now_s: u32) {
    let mut peer_id = PeerId([1; 20]);
    peer_id.0[..4].copy_from_slice(&peer.to_be_bytes());
    let announce = Announce {
        address: Address { worker: 0, handle: Handle { index: peer, generation: 1 } },
        source: swarms.source(Ipv4Addr::from(peer).into()),
        peer_id,
        action,
        may_join: true,
        is_exempt: false,
        offers: &[],
    };
    let rng = &mut fastrand::Rng::with_seed(1);
    swarms.announce(&swarms.swarm_key(&info_hash(torrent)), &announce, now_s, rng, &mut Vec::new()).unwrap();
}

fn counts(swarms: &Swarms, torrent: u32) -> Counts {
    swarms.scrape(&swarms.swarm_key(&info_hash(torrent)))
}

fn taken(swarms: &Swarms, spare: &mut Vec<InfoHash>) -> (BTreeSet<InfoHash>, bool) {
    let mut all = BTreeSet::new();
    let has_lost = swarms.take_changes(spare, |info_hashes| all.extend(info_hashes.iter().copied()));
    (all, has_lost)
}

#[derive(Clone, Debug)]
enum Step {
    Announce { torrent: u32, peer: u32, action: Action },
    Remove { torrent: u32 },
    Pass { seconds: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let action = prop::sample::select(vec![Action::Leech, Action::Seed, Action::Complete, Action::Stop]);
    prop_oneof![
        20 => (0..5_u32, 0..6_u32, action)
            .prop_map(|(torrent, peer, action)| Step::Announce { torrent, peer, action }),
        1 => (0..5_u32).prop_map(|torrent| Step::Remove { torrent }),
        3 => (1..LIFETIME_S).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

proptest! {
    /// Joins, departures, changes of role, completed downloads, expiry and removals are told.
    #[test]
    fn every_change_of_counts_is_told(steps in prop::collection::vec(step(), 1..150)) {
        let (swarms, mut spare, mut now_s) = (swarms(), Vec::new(), 1000);
        swarms.watch_changes();
        let mut known: BTreeMap<u32, Counts> = (0..5).map(|torrent| (torrent, Counts::default())).collect();
        for step in steps {
            match step {
                Step::Announce { torrent, peer, action } => announce(&swarms, torrent, peer, action, now_s),
                Step::Remove { torrent } => drop(swarms.remove(&swarms.swarm_key(&info_hash(torrent)))),
                Step::Pass { seconds } => {
                    for _ in 0..seconds {
                        now_s += 1;
                        while swarms.expire(now_s, 1000).behind {}
                    }
                }
            }
            let (told, has_lost) = taken(&swarms, &mut spare);
            prop_assert!(!has_lost);
            for (torrent, before) in &mut known {
                let now = counts(&swarms, *torrent);
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
    let (swarms, mut spare) = (swarms(), Vec::new());
    announce(&swarms, 1, 1, Action::Leech, 1000);
    swarms.watch_changes();
    announce(&swarms, 1, 1, Action::Leech, 1001);
    announce(&swarms, 1, 2, Action::Stop, 1001);
    assert_eq!(taken(&swarms, &mut spare), (BTreeSet::new(), false));
    announce(&swarms, 1, 1, Action::Seed, 1002);
    assert_eq!(taken(&swarms, &mut spare), ([info_hash(1)].into(), false));
    swarms.ignore_changes();
    announce(&swarms, 1, 1, Action::Leech, 1003);
    assert_eq!(taken(&swarms, &mut spare), (BTreeSet::new(), false));
}

#[test]
fn too_many_changes_are_told_as_lost() {
    let (swarms, mut spare) = (swarms(), Vec::new());
    swarms.watch_changes();
    (0..200_000).for_each(|torrent| announce(&swarms, torrent, 1, Action::Leech, 1000));
    let (told, has_lost) = taken(&swarms, &mut spare);
    assert!(has_lost && told.len() <= 1 << 16);
    announce(&swarms, 7, 2, Action::Leech, 1000);
    assert_eq!(taken(&swarms, &mut spare), ([info_hash(7)].into(), false), "the watch goes on");
}

#[test]
fn peers_are_listed_with_their_ages() {
    let swarms = swarms();
    let key = swarms.swarm_key(&info_hash(1));
    assert_eq!(swarms.peers(&key, 10, 1000), []);
    for peer in 0..100 {
        announce(&swarms, 1, peer, if peer < 10 { Action::Seed } else { Action::Leech }, 1000 + peer);
    }
    for max in [0, 1, 7, 50, 1000] {
        let listed = swarms.peers(&key, max, 1200);
        assert_eq!(listed.len(), max.min(100));
        assert_eq!(listed.iter().any(|peer| peer.seeds), max > 0);
        for peer in listed {
            let number = u32::from_be_bytes([0, 1, 2, 3].map(|index| peer.peer_id.0[index]));
            assert_eq!((peer.seeds, peer.age_s), (number < 10, 200 - number));
        }
    }
}

#[test]
fn a_swarm_has_an_age_until_its_last_peer_leaves() {
    let (swarms, key) = (swarms(), swarms().swarm_key(&info_hash(1)));
    assert_eq!(swarms.age_s(&key, 1000), None);
    assert!(!swarms.set_age_s(&key, 77, 1000));
    announce(&swarms, 1, 1, Action::Leech, 1000);
    announce(&swarms, 1, 2, Action::Leech, 1300);
    assert_eq!([999, 1000, 1500].map(|now_s| swarms.age_s(&key, now_s)), [Some(0), Some(0), Some(500)]);
    assert!(swarms.set_age_s(&key, 1_000_000, 1500));
    assert_eq!(swarms.age_s(&key, 1600), Some(1_000_100), "older than the clock");
    announce(&swarms, 1, 1, Action::Stop, 1600);
    announce(&swarms, 1, 2, Action::Stop, 1600);
    assert_eq!(swarms.age_s(&key, 1600), None);
    announce(&swarms, 1, 1, Action::Leech, 1700);
    assert_eq!(swarms.age_s(&key, 1701), Some(1));
}
