//! The counts of peers and torrents of each source, against a naive count, in swarms of every form.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use shoal_base::source::{Excess, HoldingLimits, Holdings};
use shoal_base::{Action, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, Family, Rejection, Settings, Store, Swarms};

const TIMEOUT_S: u32 = 600;

/// Number of slots of a source in a large swarm, by `peers_per_source_max`.
const SLOTS: usize = 16;

struct World {
    store: Store,
    holdings: Arc<Holdings>,
    rng: fastrand::Rng,
    /// The peers that are stored: torrent, source, number within the source.
    stored: BTreeSet<(u32, u32, u16)>,
    now_s: u32,
}

/// A family whose peers are numbered by source and by number within the source.
trait Peers: Family {
    fn peer(source: u32, number: u16) -> Self;
    fn ip(source: u32) -> IpAddr;
    fn swarms(store: &Store) -> &Swarms<Self>;
}

impl Peers for PeerV4 {
    fn peer(source: u32, number: u16) -> Self {
        Self::new(Ipv4Addr::from(0x2d00_0000 + source), number + 1)
    }

    fn ip(source: u32) -> IpAddr {
        Ipv4Addr::from(0x2d00_0000 + source).into()
    }

    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v4
    }
}

impl Peers for PeerV6 {
    /// Returns a peer of a /64 of its own, of which a /48 has a few.
    fn peer(source: u32, number: u16) -> Self {
        let address = subnet(source) | u128::from(number % 5);
        Self::new(Ipv6Addr::from(address), number + 1)
    }

    fn ip(source: u32) -> IpAddr {
        Ipv6Addr::from(subnet(source)).into()
    }

    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v6
    }
}

/// Returns the /64 of a source, of which four are in the same /48.
fn subnet(source: u32) -> u128 {
    (0x2001_0db8_u128 << 96) + (u128::from(source) << (64 + 14))
}

impl World {
    fn new(peers_max: u32, torrents_max: u32, swarm_share_max: u32) -> Self {
        let holdings = Holdings::new(HoldingLimits { peers_max, torrents_max }, [3, 4]).map(Arc::new);
        let settings = Settings {
            memory_bytes_max: 1 << 28,
            peer_timeout_s: TIMEOUT_S,
            peers_per_source_max: 64,
            swarm_share_max,
            holdings: holdings.clone(),
            hash_key: [5, 1 << 60, 7 << 33, 9],
        };
        let store = Store::new(&settings).unwrap();
        // Where only a share is limited, nothing is counted.
        let holdings = holdings.unwrap_or_else(|| {
            Arc::new(Holdings::new(HoldingLimits { peers_max: 1, torrents_max: 1 }, [1, 2]).unwrap())
        });
        let (stored, rng) = (BTreeSet::new(), fastrand::Rng::with_seed(7));
        Self { store, holdings, rng, stored, now_s: 1000 }
    }

    fn announce<P: Peers>(
        &mut self,
        torrent: u32,
        source: u32,
        number: u16,
        action: Action,
    ) -> Result<(), Rejection> {
        let swarms = P::swarms(&self.store);
        let mut info_hash = InfoHash([9; 20]);
        info_hash.0[..4].copy_from_slice(&torrent.to_be_bytes());
        let announce = Announce { peer: P::peer(source, number), action, peers_wanted: 0 };
        let place = swarms.locate(&info_hash);
        swarms.announce(&place, &announce, self.now_s, &mut self.rng, &mut [])?;
        match action {
            Action::Stop => self.stored.remove(&(torrent, source, number)),
            _ => self.stored.insert((torrent, source, number)),
        };
        Ok(())
    }

    /// Compares all counts with naive ones. In large swarms, a source has as many torrents as slots with peers.
    fn check<P: Peers>(&self, sources: u32, is_exact: bool) {
        let mut naive: BTreeMap<u32, (usize, BTreeMap<u32, usize>)> = BTreeMap::new();
        for &(torrent, source, _) in &self.stored {
            let (peers, torrents) = naive.entry(source).or_default();
            *peers += 1;
            *torrents.entry(torrent).or_default() += 1;
        }
        for source in 0..sources {
            let (peers, torrents) = naive.remove(&source).unwrap_or_default();
            let counted = self.holdings.count(self.holdings.hasher().source(P::ip(source)));
            assert_eq!(counted.0 as usize, peers, "peers of {source}");
            let most = torrents.values().map(|&peers| if is_exact { 1 } else { peers.min(SLOTS) }).sum();
            let counted = counted.1 as usize;
            assert!((torrents.len()..=most).contains(&counted), "torrents of {source}: {counted}");
        }
    }

    fn expire<P: Peers>(&mut self) {
        let swarms = P::swarms(&self.store);
        for _ in 0..4 * TIMEOUT_S {
            self.now_s += 1;
            while swarms.expire(self.now_s, 64).behind {}
        }
        self.stored.clear();
    }
}

fn counts_follow_the_swarms<P: Peers>(torrents: u32, sources: u32, numbers: u16, is_exact: bool) {
    let mut world = World::new(1_000_000, 1_000_000, 0);
    for round in 0..6 {
        for _ in 0..15_000 {
            let (torrent, source) = (world.rng.u32(..torrents), world.rng.u32(..sources));
            let number = world.rng.u16(..numbers);
            // Swarms grow in even rounds and shrink in odd ones, so that their forms change to and fro.
            let stops = world.rng.usize(..10) < [1, 9][round % 2];
            let joins = [Action::Leech, Action::Seed, Action::Complete][world.rng.usize(..3)];
            let action = if stops { Action::Stop } else { joins };
            match world.announce::<P>(torrent, source, number, action) {
                Ok(()) | Err(Rejection::Excess(Excess::PeersInSwarm)) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        world.check::<P>(sources, is_exact);
    }
    let mut info_hash = InfoHash([9; 20]);
    info_hash.0[..4].copy_from_slice(&0_u32.to_be_bytes());
    P::swarms(&world.store).remove(&info_hash);
    world.stored.retain(|&(torrent, ..)| torrent != 0);
    world.check::<P>(sources, is_exact);
    world.expire::<P>();
    world.check::<P>(sources, true);
}

#[test]
fn counts_are_exact_in_small_swarms() {
    counts_follow_the_swarms::<PeerV4>(2000, 40, 3, true);
    counts_follow_the_swarms::<PeerV6>(2000, 40, 3, true);
}

#[test]
fn counts_follow_swarms_that_change_between_small_and_large() {
    counts_follow_the_swarms::<PeerV4>(6, 200, 20, false);
    counts_follow_the_swarms::<PeerV6>(6, 200, 20, false);
    counts_follow_the_swarms::<PeerV4>(20, 150, 8, false);
}

fn limits_hold_and_are_lifted_by_leaving<P: Peers>() {
    let mut world = World::new(50, 0, 0);
    for torrent in 0..50 {
        world.announce::<P>(torrent, 1, 1, Action::Leech).unwrap();
    }
    let refused = Err(Rejection::Excess(Excess::Peers));
    assert_eq!(world.announce::<P>(60, 1, 1, Action::Leech), refused, "a new swarm");
    assert_eq!(world.announce::<P>(3, 1, 2, Action::Leech), refused, "a second peer");
    for action in [Action::Leech, Action::Complete, Action::Seed] {
        (0..50).for_each(|torrent| world.announce::<P>(torrent, 1, 1, action).unwrap());
    }
    world.announce::<P>(60, 2, 1, Action::Leech).unwrap();
    world.announce::<P>(3, 1, 1, Action::Stop).unwrap();
    world.announce::<P>(60, 1, 1, Action::Leech).unwrap();
    assert_eq!(world.announce::<P>(61, 1, 1, Action::Leech), refused);
    world.expire::<P>();
    world.announce::<P>(61, 1, 1, Action::Leech).unwrap();
    // Many ports of one torrent count as many peers.
    let mut world = World::new(10, 0, 0);
    let admitted = (0..64).filter(|&port| world.announce::<P>(1, 1, port, Action::Leech).is_ok()).count();
    assert_eq!(admitted, 10);
}

#[test]
fn a_source_holds_no_more_peers_than_allowed() {
    limits_hold_and_are_lifted_by_leaving::<PeerV4>();
    limits_hold_and_are_lifted_by_leaving::<PeerV6>();
}

fn torrents_are_limited<P: Peers>() {
    let mut world = World::new(0, 10, 0);
    let refused = Err(Rejection::Excess(Excess::Torrents));
    (0..10).for_each(|torrent| world.announce::<P>(torrent, 1, 1, Action::Leech).unwrap());
    assert_eq!(world.announce::<P>(10, 1, 1, Action::Leech), refused);
    // Further peers of the same torrents are no further torrents.
    for number in 2..6 {
        (0..10).for_each(|torrent| world.announce::<P>(torrent, 1, number, Action::Seed).unwrap());
    }
    (1..6).for_each(|number| world.announce::<P>(5, 1, number, Action::Stop).unwrap());
    world.announce::<P>(10, 1, 1, Action::Leech).unwrap();
    assert_eq!(world.announce::<P>(5, 1, 1, Action::Leech), refused);
    world.announce::<P>(5, 2, 1, Action::Leech).unwrap();
}

#[test]
fn a_source_takes_part_in_no_more_torrents_than_allowed() {
    torrents_are_limited::<PeerV4>();
    torrents_are_limited::<PeerV6>();
}

/// Returns how many peers one source gets in a swarm of this many others, of a source each.
fn peers_of_greedy<P: Peers>(honest: u32, swarm_share_max: u32) -> u32 {
    let mut world = World::new(0, 0, swarm_share_max);
    // A /48 of its own for each, since that is what a share of IPv6 counts.
    (0..honest).for_each(|number| world.announce::<P>(1, number << 16, 1, Action::Leech).unwrap());
    let mut got = 0;
    for number in 0..2000 {
        match world.announce::<P>(1, 0x00ff_ffff, number, Action::Leech) {
            Ok(()) => got += 1,
            Err(excess) => {
                assert!(matches!(excess, Rejection::Excess(Excess::ShareOfSwarm | Excess::PeersInSwarm)));
            }
        }
    }
    got
}

fn a_share_is_limited<P: Peers>() {
    for honest in [1, 10, 36, 60, 100, 200, 250] {
        let got = peers_of_greedy::<P>(honest, 10);
        let share = (honest + got) / 10;
        assert!(got >= 4 && got <= share.max(4), "{got} beside {honest}");
        assert!(got + 1 >= share.min(40), "{got} beside {honest}");
    }
    assert!(peers_of_greedy::<P>(100, 0) >= 64);
    assert!(peers_of_greedy::<P>(100, 100) >= 64);
}

#[test]
fn a_source_has_no_more_than_its_share_of_a_swarm() {
    a_share_is_limited::<PeerV4>();
    a_share_is_limited::<PeerV6>();
}
