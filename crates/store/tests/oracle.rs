//! Random sequences of operations on the store and on a naive model of it must agree.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use shoal_base::{Action, Counts, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, Family, PeerChange, Settings, Store, Swarms};
use zerocopy::{FromBytes, Immutable, KnownLayout};

const TIMEOUT_S: u32 = 1800;

/// A tick of expiry is a 64th of the timeout, and a sweep takes an eighth: no peer outlives this.
const FORGOTTEN_S: u32 = TIMEOUT_S + TIMEOUT_S / 64 + 2 * (TIMEOUT_S / 8) + 60;

const SETTINGS: Settings = Settings {
    memory_bytes_max: 1 << 30,
    peer_timeout_s: TIMEOUT_S,
    peers_per_source_max: 65_535,
    swarm_share_max: 0,
    holdings: None,
    hash_key: [11, 22, 33, 44],
};

fn info_hash(number: u16) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    bytes[18..].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

/// A family that can number its peers.
trait Numbered: Family + FromBytes + Immutable + KnownLayout + Ord + Copy + std::fmt::Debug {
    /// Whether each peer is of a source of its own. Only a few downloads of one source are counted.
    const HAVE_SOURCES: bool;
    fn numbered(number: u16) -> Self;
    fn swarms(store: &Store) -> &Swarms<Self>;
}

impl Numbered for PeerV4 {
    const HAVE_SOURCES: bool = true;

    fn numbered(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        Self([10, 0, high, low, low, high | 1])
    }

    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v4
    }
}

impl Numbered for PeerV6 {
    const HAVE_SOURCES: bool = false;

    fn numbered(number: u16) -> Self {
        let mut bytes = [0x20; 18];
        bytes[14..16].copy_from_slice(&number.to_be_bytes());
        Self(bytes)
    }

    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v6
    }
}

#[derive(Clone, Debug)]
enum Step {
    Announce { swarm: u16, peer: u16, action: Action, wanted: usize },
    Many { swarm: u16, peers: std::ops::Range<u16>, action: Action },
    Scrape { swarm: u16 },
    Remove { swarm: u16 },
    Pass { seconds: u32 },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => Just(Action::Leech),
        3 => Just(Action::Seed),
        2 => Just(Action::Complete),
        3 => Just(Action::Stop),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..4_u16, 0..400_u16, action(), 0..80_usize)
            .prop_map(|(swarm, peer, action, wanted)| Step::Announce { swarm, peer, action, wanted }),
        4 => (0..4_u16, 0..400_u16, 1..400_u16, action())
            .prop_map(|(swarm, first, count, action)| Step::Many { swarm, peers: first..first + count, action }),
        2 => (0..5_u16).prop_map(|swarm| Step::Scrape { swarm }),
        1 => (0..5_u16).prop_map(|swarm| Step::Remove { swarm }),
        1 => (1..700_u32).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

#[derive(Clone, Copy, Debug)]
struct ModelPeer {
    seeds: bool,
    counted: bool,
    announced_s: u32,
}

/// Returns whether a store may report a change, of a peer whose state was `before` at its announce at `now_s`.
fn is_possible(change: PeerChange, before: Option<ModelPeer>, action: Action, now_s: u32) -> bool {
    let seeds = action != Action::Leech;
    match before {
        None if action == Action::Stop => change == PeerChange::Nothing,
        Some(_) if action == Action::Stop => change == PeerChange::Left,
        // The store may remember the download from an earlier time.
        _ if change == PeerChange::Completed => {
            action == Action::Complete && before.is_none_or(|peer| !peer.counted)
        }
        Some(peer) if peer.seeds == seeds => {
            // A period is 16 ticks here. Within a tick of its length, both are possible.
            let (age_s, tick_s) = (now_s - peer.announced_s, TIMEOUT_S.div_ceil(64));
            match change {
                PeerChange::Unchanged => age_s < 16 * tick_s,
                PeerChange::Renewed => age_s > 0,
                _ => false,
            }
        }
        _ => change == PeerChange::Joined,
    }
}

#[derive(Debug, Default)]
struct ModelSwarm<P> {
    created_s: u32,
    peers: BTreeMap<P, ModelPeer>,
    /// Minimum and maximum number of downloads: as if every count were remembered, and as if each were forgotten as
    /// soon as its peer leaves.
    completed: (u32, u32),
}

/// The model: maps of structs, with every rule in its simplest form.
#[derive(Debug)]
struct Model<P> {
    swarms: BTreeMap<InfoHash, ModelSwarm<P>>,
    downloaders: BTreeSet<(InfoHash, P)>,
}

/// The expected answer of the store: these counts, and at least this number of downloads.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    counts: Counts,
    completed_min: u32,
}

impl Expected {
    #[track_caller]
    fn check(&self, counts: Counts) {
        // The store may take a download for one that it remembers, with a probability of 2⁻¹⁴.
        let completed_min = self.completed_min.saturating_sub(2);
        assert!((completed_min..=self.counts.completed).contains(&counts.completed), "{self:?} {counts:?}");
        assert_eq!(Counts { completed: self.counts.completed, ..counts }, self.counts);
    }
}

impl<P: Numbered> Model<P> {
    /// Applies an announce. Returns the counts of the swarm afterwards, even if its last peer has left.
    fn announce(&mut self, hash: InfoHash, peer: P, action: Action, now_s: u32) -> Expected {
        if action == Action::Stop {
            if let Some(swarm) = self.swarms.get_mut(&hash) {
                swarm.peers.remove(&peer);
            }
        } else {
            let swarm = self.swarms.entry(hash).or_insert_with(|| ModelSwarm {
                created_s: now_s,
                peers: BTreeMap::new(),
                completed: (0, 0),
            });
            let before = swarm.peers.get(&peer);
            let counted = before.is_some_and(|peer| peer.counted);
            let completes = action == Action::Complete && !counted;
            swarm.completed.0 +=
                u32::from(completes && P::HAVE_SOURCES && self.downloaders.insert((hash, peer)));
            swarm.completed.1 += u32::from(completes);
            let seeds = action != Action::Leech;
            // One that joins as a seeder has downloaded nothing.
            let counted = counted || completes || seeds && before.is_none();
            swarm.peers.insert(peer, ModelPeer { seeds, counted, announced_s: now_s });
        }
        let counts = self.counts(hash);
        self.swarms.retain(|_, swarm| !swarm.peers.is_empty());
        counts
    }

    fn counts(&self, hash: InfoHash) -> Expected {
        let Some(swarm) = self.swarms.get(&hash) else { return Expected::default() };
        let seeders = u32::try_from(swarm.peers.values().filter(|peer| peer.seeds).count()).unwrap();
        let leechers = u32::try_from(swarm.peers.len()).unwrap() - seeders;
        let (completed_min, completed) = swarm.completed;
        Expected { counts: Counts { seeders, leechers, completed }, completed_min }
    }

    /// Returns the peers that an announcer may receive.
    fn candidates(&self, hash: InfoHash, announcer: P) -> BTreeSet<P> {
        let Some(swarm) = self.swarms.get(&hash) else { return BTreeSet::new() };
        let Some(me) = swarm.peers.get(&announcer) else { return BTreeSet::new() };
        let others =
            swarm.peers.iter().filter(|(peer, other)| **peer != announcer && !(me.seeds && other.seeds));
        others.map(|(peer, _)| *peer).collect()
    }
}

struct World<'s, P: Numbered> {
    swarms: &'s Swarms<P>,
    model: Model<P>,
    rng: fastrand::Rng,
    now_s: u32,
    /// The downloads that the store has counted so far.
    completed: u64,
}

impl<P: Numbered> World<'_, P> {
    fn announce(&mut self, swarm: u16, peer: u16, action: Action, wanted: usize) {
        let (hash, peer) = (info_hash(swarm), P::numbered(peer));
        let mut out = [0; 80 * 18];
        let mut place = self.swarms.locate(&hash);
        self.swarms.lock(place.shard()).prefetch_swarm(&mut place);
        let announce = Announce { peer, action, peers_wanted: wanted };
        self.swarms.lock(place.shard()).prefetch_entry(&mut place);
        self.swarms.lock(place.shard()).prefetch_found(&mut place);
        self.swarms.lock(place.shard()).prefetch_peers(&place, &announce, self.rng.bool(), self.rng.clone());
        let answer = self.swarms.announce(&place, &announce, self.now_s, &mut self.rng, &mut out).unwrap();
        let before = self.model.swarms.get(&hash).and_then(|swarm| swarm.peers.get(&peer).copied());
        let is_possible = is_possible(answer.change, before, action, self.now_s);
        assert!(is_possible, "{:?} by {action:?} after {before:?} at {} s", answer.change, self.now_s);
        // The store counts each download that it reports, and no other.
        let counted = u64::from(answer.change == PeerChange::Completed);
        let completed = self.swarms.totals().completed;
        assert_eq!(completed, self.completed + counted);
        self.completed = completed;
        self.model.announce(hash, peer, action, self.now_s).check(answer.counts);
        let candidates = self.model.candidates(hash, peer);
        assert_eq!(answer.peers, wanted.min(candidates.len()));
        let given = <[P]>::ref_from_bytes(&out[..answer.peers * size_of::<P>()]).unwrap();
        let distinct: BTreeSet<P> = given.iter().copied().collect();
        assert_eq!(distinct.len(), answer.peers, "no peer twice");
        assert!(distinct.is_subset(&candidates), "only peers that the announcer may receive");
    }

    /// Advances time in the steps in which a worker would call, and checks that each peer expires within the allowed
    /// time.
    fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds.div_ceil(20) {
            self.now_s += 20;
            while self.swarms.expire(self.now_s, 50).behind {}
        }
        for number in 0..4 {
            let hash = info_hash(number);
            let counts = self.swarms.scrape(&self.swarms.locate(&hash));
            let now_s = self.now_s;
            let Some(swarm) = self.model.swarms.get_mut(&hash) else { continue };
            let surely = swarm.peers.values().filter(|peer| now_s - peer.announced_s <= TIMEOUT_S).count();
            let perhaps = swarm.peers.values().filter(|peer| now_s - peer.announced_s <= FORGOTTEN_S).count();
            let held = (counts.seeders + counts.leechers) as usize;
            assert!((surely..=perhaps).contains(&held), "{surely} <= {held} <= {perhaps}");
        }
        self.forget_what_is_overdue();
    }

    /// Brings both to the same state: announces recent peers again, and waits for the others to expire.
    fn forget_what_is_overdue(&mut self) {
        let now_s = self.now_s;
        for (hash, swarm) in &mut self.model.swarms {
            let place = self.swarms.locate(hash);
            swarm.peers.retain(|peer, state| {
                if now_s - state.announced_s > TIMEOUT_S {
                    let announce = Announce { peer: *peer, action: Action::Stop, peers_wanted: 0 };
                    self.swarms.announce(&place, &announce, now_s, &mut self.rng, &mut []).unwrap();
                    return false;
                }
                true
            });
        }
        self.model.swarms.retain(|_, swarm| !swarm.peers.is_empty());
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Announce { swarm, peer, action, wanted } => self.announce(*swarm, *peer, *action, *wanted),
            Step::Many { swarm, peers, action } => {
                peers.clone().for_each(|peer| self.announce(*swarm, peer, *action, 3));
            }
            Step::Scrape { swarm } => {
                let hash = info_hash(*swarm);
                self.model.counts(hash).check(self.swarms.scrape(&self.swarms.locate(&hash)));
            }
            Step::Remove { swarm } => {
                let hash = info_hash(*swarm);
                let has_existed = self.model.swarms.remove(&hash).is_some();
                assert_eq!(self.swarms.remove(&hash), has_existed);
                assert_eq!(self.swarms.scrape(&self.swarms.locate(&hash)), Counts::default());
            }
            Step::Pass { seconds } => self.pass(*seconds),
        }
        self.check_totals();
        self.check_ages();
    }

    /// Checks each age to half of the shortest unit, or to a twelfth and a little more at the limits of scales.
    fn check_ages(&self) {
        for number in 0..4 {
            let hash = info_hash(number);
            let shown = self.swarms.age_s(&self.swarms.locate(&hash), self.now_s);
            let age_s = self.model.swarms.get(&hash).map(|swarm| self.now_s - swarm.created_s);
            match (shown, age_s) {
                (Some(shown_s), Some(age_s)) => {
                    let error_s_max = 150.max(age_s / 11);
                    assert!(shown_s.abs_diff(age_s) <= error_s_max, "{age_s} s are shown as {shown_s} s");
                }
                (None, None) => {}
                (shown, _) => panic!("{shown:?} is shown, and it is {age_s:?}"),
            }
        }
    }

    fn check_totals(&self) {
        let totals = self.swarms.totals();
        assert_eq!(totals.swarms, self.model.swarms.len() as u64);
        let peers = || self.model.swarms.values().flat_map(|swarm| swarm.peers.values());
        assert_eq!(totals.seeders, peers().filter(|peer| peer.seeds).count() as u64);
        assert_eq!(totals.leechers, peers().filter(|peer| !peer.seeds).count() as u64);
    }
}

fn agree<P: Numbered>(steps: &[Step], seed: u64) {
    check::<P>(&Store::new(&SETTINGS).unwrap(), steps, seed);
    check::<P>(&Store::with_shards(&SETTINGS, 4).unwrap(), steps, seed);
}

fn check<P: Numbered>(store: &Store, steps: &[Step], seed: u64) {
    let mut world = World {
        swarms: P::swarms(store),
        model: Model { swarms: BTreeMap::new(), downloaders: BTreeSet::new() },
        rng: fastrand::Rng::with_seed(seed),
        now_s: 1_000_000,
        completed: 0,
    };
    for step in steps {
        world.step(step);
    }
    // In the end all peers expire.
    for _ in 0..FORGOTTEN_S / 20 {
        world.now_s += 20;
        while world.swarms.expire(world.now_s, 64).behind {}
    }
    let totals = world.swarms.totals();
    assert_eq!((totals.swarms, totals.seeders, totals.leechers), (0, 0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_agrees_with_the_model_over_ipv4(
        steps in prop::collection::vec(step(), 1..120), seed in any::<u64>(),
    ) {
        agree::<PeerV4>(&steps, seed);
    }

    #[test]
    fn the_store_agrees_with_the_model_over_ipv6(
        steps in prop::collection::vec(step(), 1..120), seed in any::<u64>(),
    ) {
        agree::<PeerV6>(&steps, seed);
    }
}
