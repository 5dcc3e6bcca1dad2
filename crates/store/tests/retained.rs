//! Torrents that lose their last peer keep their completed downloads, as many and as long as the operator says. Random
//! operations at random times, and on a naive model, must agree.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/export.rs"]
mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use shoal_base::{Action, Counts, InfoHash, PeerV4, PeerV6};
use shoal_store::{
    Ages, Announce, Export, Family, Restored, Settings, Store, SwarmPart, SwarmSet, Swarms, Walk,
};
use shoal_testkit::allocator::CountingAllocator;
use support::{OwnPart, export, export_next};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const TIMEOUT_S: u32 = 1800;
const HOUR_S: u32 = 3600;

/// A tick of expiry is a 64th of the timeout, and a sweep takes an eighth: no peer outlives this.
const FORGOTTEN_S: u32 = TIMEOUT_S + TIMEOUT_S / 64 + 2 * (TIMEOUT_S / 8) + STEP_S;

/// The store is swept so often.
const STEP_S: u32 = 300;

/// A count is forgotten by a sweep of an hour, which may begin just before it is due.
const SWEEPS_S: u32 = 2 * HOUR_S + 2 * STEP_S;

fn settings() -> Settings {
    Settings { peers_per_source_max: 64, ..Settings::new(1 << 28, TIMEOUT_S, [1, 2, 3, 4]) }
}

fn store_of(shards: usize) -> Store {
    Store::with_shards(&settings(), shards).unwrap()
}

fn info_hash(number: u32) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

/// A family whose peers are of a source each.
trait Numbered: Family {
    const SET: SwarmSet;
    fn numbered(number: u32) -> Self;
    fn swarms(store: &Store) -> &Swarms<Self>;
}

impl Numbered for PeerV4 {
    const SET: SwarmSet = SwarmSet::V4;

    fn numbered(number: u32) -> Self {
        let [_, high, middle, low] = number.to_be_bytes();
        Self([10, high, middle, low, 0x1a, 0xe1])
    }

    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v4
    }
}

impl Numbered for PeerV6 {
    const SET: SwarmSet = SwarmSet::V6;

    fn numbered(number: u32) -> Self {
        let mut bytes = [0x20; 18];
        bytes[2..6].copy_from_slice(&number.to_be_bytes());
        Self(bytes)
    }

    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v6
    }
}

fn announce<P: Numbered>(store: &Store, torrent: u32, peer: u32, action: Action, now_s: u32) -> Counts {
    let announce = Announce { peer: P::numbered(peer), action, peers_wanted: 0 };
    let (place, rng) = (store.locate(&info_hash(torrent)), &mut fastrand::Rng::with_seed(1));
    P::swarms(store).announce(&place, &announce, now_s, rng, &mut []).unwrap().counts
}

fn scrape<P: Numbered>(store: &Store, torrent: u32) -> Counts {
    store.counts(&info_hash(torrent))[P::SET.index()]
}

/// Lets a torrent be downloaded this many times, and then be left by all.
fn complete(store: &Store, torrent: u32, downloads: u32, now_s: u32) {
    let peers = 1000 * (torrent + 1)..1000 * (torrent + 1) + downloads;
    peers.clone().for_each(|peer| _ = announce::<PeerV4>(store, torrent, peer, Action::Complete, now_s));
    peers.for_each(|peer| _ = announce::<PeerV4>(store, torrent, peer, Action::Stop, now_s));
}

/// Sweeps until `end_s`.
fn pass(store: &Store, now_s: &mut u32, end_s: u32) {
    while *now_s < end_s {
        *now_s = end_s.min(*now_s + STEP_S);
        store.expire_in(usize::MAX, *now_s, usize::MAX);
    }
}

fn restore(store: &Store, parts: &[OwnPart], elapsed_s: u32, now_s: u32) -> Restored {
    let ages = Ages::new(TIMEOUT_S, TIMEOUT_S, elapsed_s);
    let mut restored = Restored::default();
    for part in parts {
        restored += store.restore(part.set, &[part.part()], &ages, now_s);
    }
    restored
}

#[derive(Clone, Debug)]
enum Step {
    Join { torrent: u32 },
    Complete { torrent: u32, downloads: u32 },
    Leave { torrent: u32 },
    Remove { torrent: u32 },
    Restart { elapsed_s: u32 },
    Pass { seconds: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let torrent = 0..6_u32;
    prop_oneof![
        2 => torrent.clone().prop_map(|torrent| Step::Join { torrent }),
        6 => (torrent.clone(), prop_oneof![9 => 1..5_u32, 1 => 250..270_u32])
            .prop_map(|(torrent, downloads)| Step::Complete { torrent, downloads }),
        5 => torrent.clone().prop_map(|torrent| Step::Leave { torrent }),
        1 => torrent.prop_map(|torrent| Step::Remove { torrent }),
        1 => (0..3 * HOUR_S).prop_map(|elapsed_s| Step::Restart { elapsed_s }),
        5 => prop_oneof![1..600_u32, 1..4 * HOUR_S].prop_map(|seconds| Step::Pass { seconds }),
    ]
}

/// A torrent of the model.
#[derive(Clone, Debug, Default)]
struct Torrent {
    completed: u32,
    /// Its peers, with the time of their announces.
    peers: BTreeMap<u32, u32>,
    /// The earliest and the latest time at which it may have lost its last peer.
    emptied_s: (u32, u32),
}

impl Torrent {
    /// Forgets peers that are certainly overdue.
    fn pass(&mut self, now_s: u32) {
        if let Some(last_s) = self.peers.values().max().copied() {
            self.emptied_s = (last_s + TIMEOUT_S, last_s + FORGOTTEN_S);
        }
        self.peers.retain(|_, announced_s| *announced_s + FORGOTTEN_S >= now_s);
    }

    /// Compares the downloads. They may be forgotten if the time has come, and then they stay forgotten. A restart rounds the
    /// time to hours, and takes overdue peers for ones that left before it.
    fn check(&mut self, completed: u32, now_s: u32, restarts: u32) {
        let ((first_s, last_s), error_s) = (self.emptied_s, restarts * HOUR_S);
        let is_empty = self.peers.is_empty();
        let due_s = u32::from(HOURS) * HOUR_S;
        let may_be_forgotten = is_empty && now_s + TIMEOUT_S + HOUR_S + error_s >= first_s + due_s;
        let must_be_forgotten = is_empty && now_s > last_s + due_s + SWEEPS_S + error_s;
        if may_be_forgotten && completed == 0 || must_be_forgotten {
            self.completed = 0;
        }
        assert_eq!(completed, self.completed, "{self:?} at {now_s}");
    }
}

const HOURS: u16 = 6;

/// Runs steps on a store and on the model.
fn check<P: Numbered>(steps: &[Step]) {
    let (mut now_s, mut restarts, mut confused) = (1_000_000, 0, 0);
    let (mut store, mut torrents, mut peers) = (store_of(4), vec![Torrent::default(); 6], 0_u32);
    store.retain_completed(1000, HOURS);
    pass(&store, &mut now_s, 1_000_001);
    for step in steps {
        match *step {
            Step::Join { torrent } | Step::Complete { torrent, .. } => {
                let model = &mut torrents[torrent as usize];
                let (action, count) = match step {
                    Step::Complete { downloads, .. } => (Action::Complete, *downloads),
                    _ => (Action::Leech, 1),
                };
                for _ in 0..count {
                    peers += 1;
                    let counts = announce::<P>(&store, torrent, peers, action, now_s);
                    let mut downloads = u32::from(action == Action::Complete);
                    // The store takes one of 2¹⁴ downloads for an earlier one. Only an empty torrent may be forgotten.
                    if downloads == 1 && !model.peers.is_empty() && counts.completed == model.completed {
                        (downloads, confused) = (0, confused + 1);
                        assert!(confused < 3, "{confused} downloads are not counted");
                    }
                    model.check(counts.completed - downloads, now_s, HOURS.into());
                    model.completed += downloads;
                    model.peers.insert(peers, now_s);
                }
            }
            Step::Leave { torrent } => {
                let model = &mut torrents[torrent as usize];
                if !model.peers.is_empty() {
                    // If expiry was faster, it was by less than half a timeout.
                    let last_s = model.peers.values().max().copied().unwrap();
                    model.emptied_s = ((last_s + TIMEOUT_S).min(now_s), now_s);
                }
                for (peer, _) in std::mem::take(&mut model.peers) {
                    announce::<P>(&store, torrent, peer, Action::Stop, now_s);
                }
            }
            Step::Remove { torrent } => {
                store.remove(&info_hash(torrent));
                torrents[torrent as usize] = Torrent::default();
            }
            Step::Restart { elapsed_s } => {
                let parts = export(&store, now_s);
                store = store_of(8);
                store.retain_completed(1000, HOURS);
                // Monotonic time begins anew. The model has it as if it had gone on.
                now_s += elapsed_s;
                restarts += 1;
                restore(&store, &parts, elapsed_s, now_s);
            }
            Step::Pass { seconds } => {
                let end_s = now_s + seconds;
                pass(&store, &mut now_s, end_s);
            }
        }
        for (number, model) in (0..).zip(&mut torrents) {
            model.pass(now_s);
            model.check(scrape::<P>(&store, number).completed, now_s, restarts);
        }
        let empty = torrents.iter().filter(|model| model.peers.is_empty() && model.completed > 0).count();
        assert!(store.retained()[P::SET.index()] >= empty as u64, "{torrents:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn ipv4_agrees_with_the_model(steps in prop::collection::vec(step(), 1..80)) {
        check::<PeerV4>(&steps);
    }

    #[test]
    fn ipv6_agrees_with_the_model(steps in prop::collection::vec(step(), 1..80)) {
        check::<PeerV6>(&steps);
    }
}

#[test]
fn nothing_is_retained_by_default() {
    let store = store_of(4);
    complete(&store, 1, 3, 1000);
    assert_eq!(scrape::<PeerV4>(&store, 1), Counts::default());
    assert_eq!(store.retained(), [0, 0]);
}

#[test]
fn torrents_without_downloads_are_not_retained() {
    let store = store_of(4);
    store.retain_completed(1000, 24);
    for torrent in 0..100 {
        announce::<PeerV4>(&store, torrent, 1, Action::Leech, 1000);
        announce::<PeerV4>(&store, torrent, 1, Action::Stop, 1000);
    }
    assert_eq!(store.retained(), [0, 0]);
}

#[test]
fn counts_of_all_sizes_return_with_the_next_peer() {
    let store = store_of(4);
    store.retain_completed(1000, 24);
    for (torrent, downloads) in [(1, 1), (2, 254), (3, 255), (4, 256), (5, 900)] {
        complete(&store, torrent, downloads, 1000);
        let expected = Counts { completed: downloads, ..Counts::default() };
        assert_eq!(scrape::<PeerV4>(&store, torrent), expected);
        assert_eq!(announce::<PeerV4>(&store, torrent, 7, Action::Stop, 1000), expected, "of no member");
        let leecher = Counts { leechers: 1, ..expected };
        assert_eq!(announce::<PeerV4>(&store, torrent, 7, Action::Leech, 1000), leecher);
        assert_eq!(scrape::<PeerV4>(&store, torrent), leecher);
        assert_eq!(store.retained(), [0, 0], "the swarm has it");
        announce::<PeerV4>(&store, torrent, 7, Action::Stop, 1000);
        assert_eq!(scrape::<PeerV4>(&store, torrent), expected);
        store.remove(&info_hash(torrent));
        assert_eq!(scrape::<PeerV4>(&store, torrent), Counts::default());
    }
}

#[test]
fn a_flood_of_torrents_displaces_none_with_more_downloads() {
    let store = store_of(8);
    store.retain_completed(2000, 24);
    (0..100).for_each(|torrent| complete(&store, torrent, 64, 1000));
    (1000..40_000).for_each(|torrent| complete(&store, torrent, 1, 1000));
    let [retained, _] = store.retained();
    assert!((1900..=2000).contains(&retained), "{retained}");
    let lost = (0..100).filter(|&torrent| scrape::<PeerV4>(&store, torrent).completed != 64).count();
    assert_eq!(lost, 0);
}

#[test]
fn of_equal_torrents_the_oldest_goes_first() {
    let store = store_of(8);
    store.retain_completed(2000, 100);
    let mut now_s = 0;
    for (generation, torrents) in [0..2000, 2000..4000, 4000..6000].into_iter().enumerate() {
        pass(&store, &mut now_s, u32::try_from(generation).unwrap() * 5 * HOUR_S + 1);
        torrents.for_each(|torrent| complete(&store, torrent, 2 + torrent % 2, now_s));
    }
    let alive = |range: std::ops::Range<u32>| {
        range.filter(|&torrent| scrape::<PeerV4>(&store, torrent).completed > 0).count()
    };
    let [first, second, third] = [0..2000, 2000..4000, 4000..6000].map(alive);
    // Only the lines of a newcomer are examined, so some of the second generation outlive some of the third.
    assert!(first < 20 && third > 1300 && second < 600, "{first} {second} {third}");
    assert!(first + second + third > 1900);
}

#[test]
fn lower_limits_apply_with_the_next_sweeps() {
    let store = store_of(2);
    store.retain_completed(20_000, 100);
    let mut now_s = 1000;
    (0..20_000).for_each(|torrent| complete(&store, torrent, 1, now_s));
    let bytes = |store: &Store| store.totals()[0].bytes;
    let full = bytes(&store);
    store.retain_completed(10_000, 100);
    pass(&store, &mut now_s, 1000 + 24 * HOUR_S);
    assert!((9_000..=10_000).contains(&store.retained()[0]), "{:?}", store.retained());
    store.retain_completed(0, 100);
    pass(&store, &mut now_s, 1000 + 30 * HOUR_S);
    assert_eq!(store.retained(), [0, 0]);
    assert!(bytes(&store) < full / 4, "the memory returns: {} of {full}", bytes(&store));
}

#[test]
fn a_walk_lists_torrents_without_peers_once() {
    let store = store_of(32);
    store.retain_completed(100_000, 100);
    (0..2000).for_each(|torrent| complete(&store, torrent, 1 + torrent % 3, 1000));
    (1500..3000).for_each(|torrent| _ = announce::<PeerV6>(&store, torrent, torrent, Action::Leech, 1000));
    let (mut walk, mut listed, mut all) = (Walk::default(), Vec::new(), BTreeMap::new());
    while store.list(&mut walk, &mut listed) || !listed.is_empty() {
        assert!(listed.len() <= Walk::LISTED_MAX);
        for torrent in listed.drain(..) {
            assert!(all.insert(torrent.info_hash, torrent.counts).is_none(), "listed twice");
        }
    }
    let expected = |torrent: u32| Counts {
        leechers: u32::from((1500..3000).contains(&torrent)),
        completed: if torrent < 2000 { 1 + torrent % 3 } else { 0 },
        seeders: 0,
    };
    let expected: BTreeMap<_, _> = (0..3000).map(|torrent| (info_hash(torrent), expected(torrent))).collect();
    assert_eq!(all.len(), expected.len());
    assert_eq!(all.iter().zip(&expected).find(|(one, other)| one != other), None);
}

#[test]
fn counts_of_swarms_whose_peers_are_overdue_return_without_them() {
    let store = store_of(4);
    for torrent in 0..50 {
        let peers = if torrent % 2 == 0 { 1..3 } else { 1..600_u32 };
        peers.for_each(|peer| _ = announce::<PeerV4>(&store, torrent, peer, Action::Complete, 5000));
    }
    let parts = export(&store, 5000);
    for (elapsed_s, is_there) in [(2 * HOUR_S, true), (100 * HOUR_S, false)] {
        let restored = store_of(2);
        restored.retain_completed(1000, 48);
        let numbers = restore(&restored, &parts, elapsed_s, 9000);
        assert_eq!((numbers.peers, numbers.retained), (0, if is_there { 50 } else { 0 }));
        for torrent in 0..50 {
            let completed = if !is_there {
                0
            } else if torrent % 2 == 0 {
                2
            } else {
                599
            };
            assert_eq!(scrape::<PeerV4>(&restored, torrent).completed, completed);
        }
    }
}

#[test]
fn a_large_swarm_that_empties_during_an_export_keeps_its_count() {
    let store = store_of(1);
    store.retain_completed(1000, 48);
    (1..600).for_each(|peer| _ = announce::<PeerV4>(&store, 1, peer, Action::Complete, 5000));
    let (mut run, mut parts) = (Export::default(), Vec::new());
    // The windows come before the large swarms that they contain.
    export_next(&mut run, &store, 5000, &mut parts);
    while parts.is_empty() && run.set() == Some(SwarmSet::V4) && store.totals()[0].swarms > 0 {
        (1..600).for_each(|peer| _ = announce::<PeerV4>(&store, 1, peer, Action::Stop, 5000));
    }
    while run.set().is_some() {
        export_next(&mut run, &store, 5000, &mut parts);
    }
    assert_eq!(parts.iter().map(|part| part.completed).sum::<u32>(), 599, "{parts:?}");
    assert!(parts.iter().all(|part| part.ages.is_empty()));
}

/// Returns the bytes that an entry takes, of a million in one family, with tables and lists.
fn bytes_per_entry() -> f64 {
    const ENTRIES: u32 = 1_000_000;
    let store = store_of(32);
    store.retain_completed(2 * ENTRIES, 48);
    let heap = shoal_testkit::allocator::held_bytes();
    let ages = Ages::new(TIMEOUT_S, TIMEOUT_S, 0);
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..ENTRIES {
        let mut id = InfoHash([0; 20]);
        rng.fill(&mut id.0);
        let part = SwarmPart { id, completed: 1, age_s: 0, seeders: 0, peers: &[], ages: &[] };
        store.restore(SwarmSet::V4, &[part], &ages, 1000);
    }
    assert_eq!(store.retained()[0], u64::from(ENTRIES));
    let heap = shoal_testkit::allocator::held_bytes() - heap;
    let bytes = store.totals()[0].bytes + u64::try_from(heap).unwrap();
    bytes as f64 / f64::from(ENTRIES)
}

#[test]
fn an_entry_takes_at_most_32_bytes() {
    let bytes = bytes_per_entry();
    println!("{bytes:.1} bytes each of a million");
    assert!(bytes <= 32.0, "{bytes}");
}
