//! A store adopts the swarms of another one while it goes on: the union, in which the later announce wins.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::support::{OwnPart, export};
use shoal_base::{Action, Counts, InfoHash, PeerV4, PeerV6};
use shoal_store::{Adopted, Ages, Announce, PeerChange, Settings, Store, SwarmPart, SwarmSet};

const TIMEOUT_S: u32 = 2700;
const TICK_S: u32 = TIMEOUT_S.div_ceil(64);

/// The most by which an announce at the other store may seem to be earlier than it was.
const DOUBT_S: u32 = 3 * TICK_S + 10;

/// Maximum number of peers of each swarm. Their forms are single, small and large.
const SIZES: [u16; 5] = [1, 2, 40, 250, 2000];

fn settings(secret: u64) -> Settings {
    Settings::new(1 << 30, TIMEOUT_S, [secret, 22, 33, 44])
}

fn hash(swarm: usize) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[0] = u8::try_from(swarm).unwrap();
    InfoHash(bytes)
}

fn address(number: u16, is_v6: bool) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    if is_v6 {
        SocketAddr::from(([0x2001, 0xdb8, number, 0, 0, 0, 0, 1], 6881))
    } else {
        SocketAddr::from(([77, 1, high, low], 6881))
    }
}

fn announce(
    store: &Store,
    info_hash: &InfoHash,
    address: SocketAddr,
    action: Action,
    now_s: u32,
) -> PeerChange {
    let rng = &mut fastrand::Rng::with_seed(1);
    let place = store.locate(info_hash);
    let announced = match address {
        SocketAddr::V4(address) => {
            let peer = PeerV4::new(*address.ip(), address.port());
            store.v4.announce(&place, &Announce { peer, action, peers_wanted: 0 }, now_s, rng, &mut [])
        }
        SocketAddr::V6(address) => {
            let peer = PeerV6::new(*address.ip(), address.port());
            store.v6.announce(&place, &Announce { peer, action, peers_wanted: 0 }, now_s, rng, &mut [])
        }
    };
    announced.unwrap().change
}

fn adopt(store: &Store, parts: &[OwnPart], now_s: u32) -> Adopted {
    let mut adopted = Adopted::default();
    let ages = Ages::of_other_store(TIMEOUT_S, TIMEOUT_S);
    for part in parts {
        adopted += store.adopt(part.set, &[part.part()], &ages, now_s);
    }
    adopted
}

/// The knowledge about a peer.
#[derive(Clone, Copy, Debug)]
struct Known {
    seeds: bool,
    announced_s: u32,
}

type Model = BTreeMap<(usize, SocketAddr), Known>;

/// A store and the naive model of it.
struct World {
    store: Store,
    model: Model,
    stopped: BTreeSet<(usize, SocketAddr)>,
    /// Downloads that were counted.
    completed: BTreeMap<(usize, bool), u32>,
}

impl World {
    fn new(store: Store) -> Self {
        Self { store, model: Model::new(), stopped: BTreeSet::new(), completed: BTreeMap::new() }
    }

    fn random_announce(&mut self, rng: &mut fastrand::Rng, now_s: u32) {
        let swarm = rng.usize(..SIZES.len());
        let address = address(rng.u16(..SIZES[swarm]), rng.bool());
        let action = [Action::Leech, Action::Seed, Action::Complete, Action::Stop][rng.usize(..4)];
        // Most peers stay.
        let action = if action == Action::Stop && rng.bool() { Action::Leech } else { action };
        let change = announce(&self.store, &hash(swarm), address, action, now_s);
        if change == PeerChange::Completed {
            *self.completed.entry((swarm, address.is_ipv6())).or_default() += 1;
        }
        if action == Action::Stop {
            self.model.remove(&(swarm, address));
            self.stopped.insert((swarm, address));
        } else {
            let seeds = action != Action::Leech;
            self.model.insert((swarm, address), Known { seeds, announced_s: now_s });
        }
    }

    fn counts(&self, swarm: usize) -> Counts {
        let [v4, v6] = self.store.counts(&hash(swarm));
        v4.plus(v6)
    }

    /// Returns all peers of the store with their roles and ages in seconds.
    fn peers(&self, now_s: u32) -> BTreeMap<(usize, SocketAddr), (bool, u32)> {
        let mut all = BTreeMap::new();
        for swarm in 0..SIZES.len() {
            let peers = self.store.peers(&hash(swarm), 10_000, now_s);
            let Counts { seeders, leechers, .. } = self.counts(swarm);
            assert_eq!(peers.len(), (seeders + leechers) as usize);
            for peer in peers {
                assert_eq!(
                    all.insert((swarm, peer.address), (peer.seeds, peer.age_s)),
                    None,
                    "no peer twice"
                );
            }
        }
        all
    }
}

/// Checks a peer of the store that has adopted, by what both knew of it before.
fn check_peer(
    here: Option<Known>,
    there: Option<Known>,
    was_stopped: bool,
    now: Option<(bool, u32)>,
    now_s: u32,
) {
    let context = || format!("{here:?} here, {there:?} there: {now:?} at {now_s}");
    match (here, there, now) {
        (None, None, now) => assert_eq!(now, None, "no peer is invented"),
        (Some(here), None, now) => assert_eq!(now.map(|now| now.0), Some(here.seeds), "{}", context()),
        (None, Some(there), None) => {
            let is_old = now_s - there.announced_s + DOUBT_S > TIMEOUT_S;
            assert!(is_old || was_stopped, "{}", context());
        }
        (None, Some(there), Some((seeds, age_s))) => {
            assert_eq!(seeds, there.seeds, "{}", context());
            assert!(age_s + TICK_S > now_s - there.announced_s, "younger than it is: {}", context());
        }
        (Some(_), Some(_), None) => panic!("a peer is removed: {}", context()),
        (Some(here), Some(there), Some((seeds, age_s))) => {
            let latest_s = here.announced_s.max(there.announced_s);
            assert!(age_s + TICK_S > now_s - latest_s, "younger than it is: {}", context());
            assert!(age_s <= now_s - latest_s + DOUBT_S, "older than it is: {}", context());
            if there.announced_s <= here.announced_s {
                assert_eq!(seeds, here.seeds, "a newer role is overridden: {}", context());
            } else if there.announced_s - here.announced_s > DOUBT_S {
                assert_eq!(seeds, there.seeds, "an older role remains: {}", context());
            }
        }
    }
}

fn merge(to: Store, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut from = World::new(Store::with_shards(&settings(1), 4).unwrap());
    let mut to = World::new(to);
    let mut now_s = 1_000_000;
    for _ in 0..rng.usize(500..6000) {
        if rng.u8(..100) == 0 && now_s < 1_002_500 {
            now_s += rng.u32(..120);
        }
        if rng.bool() { &mut from } else { &mut to }.random_announce(&mut rng, now_s);
    }
    now_s += rng.u32(..100);
    let parts = export(&from.store, now_s);
    to.stopped.clear();
    to.completed.clear();
    let before: Vec<[Counts; 2]> = (0..SIZES.len()).map(|swarm| to.store.counts(&hash(swarm))).collect();
    let mut adopted = Adopted::default();
    for parts in parts.chunks(3) {
        for _ in 0..rng.usize(..20) {
            to.random_announce(&mut rng, now_s);
        }
        adopted += adopt(&to.store, parts, now_s + rng.u32(..2));
    }
    let now_s = now_s + 2;
    let peers = to.peers(now_s);
    let addresses: BTreeSet<_> =
        from.model.keys().chain(to.model.keys()).chain(peers.keys()).copied().collect();
    for peer in addresses {
        let (here, there) = (to.model.get(&peer).copied(), from.model.get(&peer).copied());
        check_peer(here, there, to.stopped.contains(&peer), peers.get(&peer).copied(), now_s);
    }
    assert!(adopted.added > 0 && adopted.refused == 0, "{adopted:?}");
    for (swarm, before) in before.into_iter().enumerate() {
        let (there, after) = (from.store.counts(&hash(swarm)), to.store.counts(&hash(swarm)));
        for (is_v6, ((before, there), after)) in
            [false, true].into_iter().zip(before.into_iter().zip(there).zip(after))
        {
            // A swarm that loses its last peer loses its count as well.
            if to.stopped.iter().all(|(other, peer)| (*other, peer.is_ipv6()) != (swarm, is_v6)) {
                let known = before.completed.max(there.completed);
                let meanwhile = to.completed.get(&(swarm, is_v6)).copied().unwrap_or(0);
                let range = known..=known + meanwhile;
                assert!(range.contains(&after.completed), "{} in {range:?}", after.completed);
            }
        }
    }
    // The same once more brings nothing but peers that have left meanwhile.
    let again = adopt(&to.store, &parts, now_s);
    assert!(again.added <= to.stopped.len() as u64, "{again:?}");
}

#[test]
fn the_union_is_adopted_and_the_later_announce_wins() {
    for seed in 0..24 {
        merge(Store::with_shards(&settings(2), 16).unwrap(), seed);
        merge(Store::with_shards(&settings(3), 4).unwrap(), seed);
    }
}

fn pair() -> [Store; 2] {
    [1, 2].map(|secret| Store::with_shards(&settings(secret), 4).unwrap())
}

const NOW_S: u32 = 50_000;

#[test]
fn completed_downloads_are_the_higher_of_both_counts() {
    let [from, to] = pair();
    for (store, count) in [(&from, 5), (&to, 3)] {
        (0..count).for_each(|number| {
            announce(store, &hash(0), address(number, false), Action::Complete, NOW_S);
        });
    }
    let parts = export(&from, NOW_S);
    for _ in 0..2 {
        adopt(&to, &parts, NOW_S);
        assert_eq!(to.counts(&hash(0))[0], Counts { seeders: 5, leechers: 0, completed: 5 });
    }
    adopt(&from, &export(&to, NOW_S), NOW_S);
    assert_eq!(from.counts(&hash(0))[0].completed, 5);
}

#[test]
fn a_download_that_the_other_store_has_counted_is_not_counted_again() {
    for size in SIZES {
        let [from, to] = pair();
        for store in [&from, &to] {
            for number in 1..size {
                announce(store, &hash(0), address(number, false), Action::Leech, NOW_S);
            }
        }
        let peer = address(0, false);
        announce(&from, &hash(0), peer, Action::Complete, NOW_S);
        // It is known here as well, and has announced later.
        announce(&to, &hash(0), peer, Action::Leech, NOW_S + 60);
        let adopted = adopt(&to, &export(&from, NOW_S + 60), NOW_S + 60);
        assert_eq!((adopted.added, adopted.known), (0, size.into()));
        assert_eq!(to.counts(&hash(0))[0], Counts { seeders: 0, leechers: size.into(), completed: 1 });
        let change = announce(&to, &hash(0), peer, Action::Complete, NOW_S + 120);
        assert_eq!((change, to.counts(&hash(0))[0].completed), (PeerChange::Joined, 1));
    }
}

#[test]
fn retained_downloads_are_the_higher_of_both_counts() {
    let [from, to] = pair();
    for store in [&from, &to] {
        store.retain_completed(1000, 24);
    }
    let complete = |store: &Store, swarm, count: u16| {
        (0..count).for_each(|number| {
            announce(store, &hash(swarm), address(number, true), Action::Complete, NOW_S);
        });
        (0..count).for_each(|number| {
            announce(store, &hash(swarm), address(number, true), Action::Stop, NOW_S);
        });
    };
    complete(&from, 0, 4);
    complete(&from, 1, 4);
    complete(&from, 2, 4);
    complete(&to, 1, 3);
    complete(&to, 2, 6);
    adopt(&to, &export(&from, NOW_S), NOW_S);
    assert_eq!([0, 1, 2].map(|swarm| to.counts(&hash(swarm))[1].completed), [4, 4, 6]);
    assert_eq!(to.retained(), [0, 3]);
}

#[test]
fn peers_of_private_networks_go_into_their_own_swarms() {
    let [_, to] = pair();
    let id = to.private_id(&hash(0), shoal_store::PrivateNetwork::Ten);
    let part = SwarmPart { id, completed: 0, age_s: 0, seeders: 0, peers: &[10, 0, 0, 1, 0, 80], ages: &[0] };
    let adopted = to.adopt(SwarmSet::PrivateV4, &[part], &Ages::of_other_store(TIMEOUT_S, TIMEOUT_S), NOW_S);
    assert_eq!((adopted.added, to.counts(&hash(0))[0].leechers), (1, 0));
    assert!(to.remove(&hash(0)), "it is a swarm of the torrent");
}

#[test]
fn a_ceiling_of_memory_holds() {
    let from = Store::with_shards(&settings(1), 4).unwrap();
    for swarm in 0..40_000_u32 {
        let mut hash = InfoHash([1; 20]);
        hash.0[..4].copy_from_slice(&swarm.to_be_bytes());
        announce(&from, &hash, address(1, swarm % 2 == 0), Action::Leech, NOW_S);
        announce(&from, &hash, address(2, swarm % 2 == 0), Action::Seed, NOW_S);
    }
    let settings = Settings { memory_bytes_max: 2 << 20, ..settings(2) };
    let to = Store::with_shards(&settings, 1).unwrap();
    let adopted = adopt(&to, &export(&from, NOW_S), NOW_S);
    assert_eq!(adopted.added + adopted.refused, 80_000);
    assert!(adopted.refused > 0 && adopted.added > 1000, "{adopted:?}");
    let totals = to.totals();
    assert!(totals[0].bytes + totals[1].bytes <= 2 << 20);
    let peers: u64 = totals.iter().map(|totals| totals.seeders + totals.leechers).sum();
    assert_eq!(peers, adopted.added);
}

#[test]
fn an_announce_that_is_told_late_yields_to_later_ones() {
    for size in SIZES {
        let store = Store::with_shards(&settings(1), 4).unwrap();
        for number in 1..size {
            announce(&store, &hash(0), address(number, false), Action::Leech, NOW_S);
        }
        let place = store.locate(&hash(0));
        let SocketAddr::V4(peer) = address(0, false) else { unreachable!("it is of IPv4") };
        let peer = PeerV4::new(*peer.ip(), peer.port());
        let late = |action, at_s| {
            let announce = Announce { peer, action, peers_wanted: 0 };
            let rng = &mut fastrand::Rng::with_seed(1);
            store.v4.lock(place.shard()).announce_late(&place, &announce, at_s, rng).unwrap().change
        };
        assert_eq!(late(Action::Leech, NOW_S - 300), PeerChange::Joined);
        announce(&store, &hash(0), address(0, false), Action::Seed, NOW_S);
        assert_eq!(late(Action::Leech, NOW_S - 100), PeerChange::Nothing);
        assert_eq!(late(Action::Stop, NOW_S - TIMEOUT_S), PeerChange::Nothing);
        assert_eq!(store.counts(&hash(0))[0].seeders, 1);
        assert_eq!(late(Action::Leech, NOW_S), PeerChange::Joined);
        assert_eq!(late(Action::Stop, NOW_S + 100), PeerChange::Left);
        assert_eq!(late(Action::Stop, NOW_S + 100), PeerChange::Nothing);
    }
}
