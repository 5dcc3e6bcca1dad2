//! The list of all torrents: a torrent that is present during the whole walk is listed once, whatever changes
//! meanwhile.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use shoal_base::{Action, Counts, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, Listed, Settings, Store, Walk};

const TIMEOUT_S: u32 = 1800;

fn info_hash(number: u32) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

/// A store, and the naive model of it: the peers of each swarm, by torrent, family and peer.
struct World {
    store: Store,
    rng: fastrand::Rng,
    now_s: u32,
    members: BTreeMap<(u32, bool, u8), bool>,
}

impl World {
    fn new() -> Self {
        let settings = Settings::new(1 << 28, TIMEOUT_S, [11, 22, 33, 44]);
        Self {
            store: Store::new(&settings).unwrap(),
            rng: fastrand::Rng::with_seed(1),
            now_s: 1_000_000,
            members: BTreeMap::new(),
        }
    }

    fn announce(&mut self, torrent: u32, v6: bool, peer: u8, action: Action) {
        let (hash, now_s, rng) = (info_hash(torrent), self.now_s, &mut self.rng);
        if v6 {
            let peer = PeerV6([0x20, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, peer, 1, 1]);
            let announce = Announce { peer, action, peers_wanted: 0 };
            let place = self.store.v6.locate(&hash);
            self.store.v6.announce(&place, &announce, now_s, rng, &mut []).unwrap();
        } else {
            let announce = Announce { peer: PeerV4([10, 0, 0, peer, 1, 1]), action, peers_wanted: 0 };
            let place = self.store.v4.locate(&hash);
            self.store.v4.announce(&place, &announce, now_s, rng, &mut []).unwrap();
        }
        if action == Action::Stop {
            self.members.remove(&(torrent, v6, peer));
        } else {
            self.members.insert((torrent, v6, peer), action == Action::Seed);
        }
    }

    /// Removes all peers that were there before.
    fn let_all_expire(&mut self) {
        for _ in 0..2 * TIMEOUT_S / 20 {
            self.now_s += 20;
            while self.store.v4.expire(self.now_s, 64).behind {}
            while self.store.v6.expire(self.now_s, 64).behind {}
        }
        self.members.clear();
    }

    /// Returns the torrents that have a swarm, by family.
    fn swarms(&self) -> BTreeSet<(u32, bool)> {
        self.members.keys().map(|&(torrent, v6, _)| (torrent, v6)).collect()
    }

    fn counts(&self) -> BTreeMap<InfoHash, Counts> {
        let mut all = BTreeMap::<InfoHash, Counts>::new();
        for (&(torrent, _, _), &seeds) in &self.members {
            let counts = all.entry(info_hash(torrent)).or_default();
            counts.seeders += u32::from(seeds);
            counts.leechers += u32::from(!seeds);
        }
        all
    }
}

/// Walks over all torrents, and calls `change` before each call.
fn walk(world: &mut World, mut change: impl FnMut(&mut World)) -> Vec<Listed> {
    let (mut walk, mut all, mut listed) = (Walk::default(), Vec::new(), Vec::new());
    let mut calls = 0;
    loop {
        change(world);
        let more = world.store.list(&mut walk, &mut listed);
        all.extend_from_slice(&listed);
        calls += 1;
        assert!(listed.len() <= Walk::LISTED_MAX, "a piece is bounded");
        assert!(calls < 100_000, "the walk ends");
        if !more {
            return all;
        }
    }
}

fn by_hash(listed: &[Listed]) -> BTreeMap<InfoHash, Counts> {
    let map: BTreeMap<_, _> = listed.iter().map(|torrent| (torrent.info_hash, torrent.counts)).collect();
    assert_eq!(map.len(), listed.len(), "no torrent twice");
    map
}

#[test]
fn an_unchanged_store_is_listed_completely() {
    let mut world = World::new();
    assert_eq!(walk(&mut world, |_| ()), []);
    for torrents in [1_u32, 30, 1000, 20_000] {
        for torrent in 0..torrents {
            // Families in every combination, and swarms of every form.
            let peers = [1, 2, 9][torrent as usize % 3] + if torrent == 11 { 170 } else { 0 };
            for peer in 0..peers {
                if !torrent.is_multiple_of(4) {
                    world.announce(
                        torrent,
                        false,
                        peer,
                        [Action::Leech, Action::Seed][usize::from(peer % 2)],
                    );
                }
                if !torrent.is_multiple_of(5) {
                    world.announce(torrent, true, peer, Action::Seed);
                }
            }
        }
        assert_eq!(by_hash(&walk(&mut world, |_| ())), world.counts());
    }
}

#[test]
fn completed_downloads_are_those_of_both_families() {
    let mut world = World::new();
    world.announce(7, false, 1, Action::Complete);
    world.announce(7, false, 2, Action::Complete);
    world.announce(7, true, 1, Action::Complete);
    let counts = Counts { seeders: 3, leechers: 0, completed: 3 };
    assert_eq!(walk(&mut world, |_| ()), [Listed { info_hash: info_hash(7), counts }]);
}

#[test]
fn a_walk_continues_while_all_peers_expire() {
    let mut world = World::new();
    (0..20_000).for_each(|torrent| world.announce(torrent, torrent % 2 == 0, 1, Action::Leech));
    let mut calls = 0;
    let listed = walk(&mut world, |world| {
        calls += 1;
        if calls == 5 {
            world.let_all_expire();
            (0..100).for_each(|torrent| world.announce(torrent, false, 1, Action::Seed));
        }
    });
    assert!(by_hash(&listed).len() < 20_000, "some expired before the walk reached them");
}

/// A change of the store between two calls.
#[derive(Clone, Debug)]
enum Change {
    Nothing,
    Arrive { first: u32, torrents: u32, v6: bool },
    Leave { first: u32, torrents: u32, v6: bool },
}

fn change() -> impl Strategy<Value = Change> {
    let range = || (0..6000_u32, 1..900_u32, any::<bool>());
    prop_oneof![
        2 => Just(Change::Nothing),
        3 => range().prop_map(|(first, torrents, v6)| Change::Arrive { first, torrents, v6 }),
        3 => range().prop_map(|(first, torrents, v6)| Change::Leave { first, torrents, v6 }),
    ]
}

fn apply(world: &mut World, change: &Change) {
    match *change {
        Change::Nothing => {}
        Change::Arrive { first, torrents, v6 } => {
            (first..first + torrents).for_each(|torrent| world.announce(torrent, v6, 1, Action::Leech));
        }
        Change::Leave { first, torrents, v6 } => {
            (first..first + torrents).for_each(|torrent| world.announce(torrent, v6, 1, Action::Stop));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn torrents_that_stay_are_listed_once_and_no_torrent_twice(
        before in prop::collection::vec(change(), 0..12),
        during in prop::collection::vec(change(), 1..40),
    ) {
        let mut world = World::new();
        before.iter().for_each(|step| apply(&mut world, step));
        let (mut stayed, mut ever) = (None, BTreeSet::new());
        let mut steps = during.iter();
        let listed = walk(&mut world, |world| {
            let there = world.swarms();
            let stayed = stayed.get_or_insert_with(|| there.clone());
            if let Some(step) = steps.next() {
                apply(world, step);
            }
            let there = world.swarms();
            stayed.retain(|swarm| there.contains(swarm));
            ever.extend(there.iter().map(|&(torrent, _)| info_hash(torrent)));
        });
        let listed = by_hash(&listed);
        let stayed = stayed.unwrap();
        for &(torrent, v6) in &stayed {
            let counts = listed.get(&info_hash(torrent));
            prop_assert!(counts.is_some(), "torrent {torrent} was present all the time");
            // Peer 1 of this family was present, and perhaps the one of the other family.
            let both = stayed.contains(&(torrent, !v6));
            prop_assert!((1 + u32::from(both)..=2).contains(&counts.unwrap().leechers));
        }
        prop_assert!(listed.keys().all(|hash| ever.contains(hash)));
    }
}
