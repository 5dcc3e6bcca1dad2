//! How sources share the room when it becomes short, and which downloads are counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use shoal_base::transport::stream::Handle;
use shoal_base::{Action, InfoHash, PeerId};
use shoal_relay::{
    Address, Announce, Announced, OfferKey, OfferTarget, PEER_BYTES, Rejection, Settings, Swarms,
};

const PEERS_MAX: u32 = 8000;
const LIFETIME_S: u32 = 400;
const GREEDY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

struct World {
    swarms: Swarms,
    rng: fastrand::Rng,
    targets: Vec<OfferTarget>,
    now_s: u32,
}

impl World {
    fn new(peers_max: u64, memory_bytes_max: u64) -> Self {
        let settings = Settings { memory_bytes_max, ..Settings::new(peers_max, LIFETIME_S, [3, 4]) };
        Self {
            swarms: Swarms::new(&settings),
            rng: fastrand::Rng::with_seed(1),
            targets: Vec::new(),
            now_s: 0,
        }
    }

    /// Announces a peer of the connection with the same number, in one of a hundred swarms.
    fn announce(
        &mut self,
        ip: IpAddr,
        peer: u32,
        action: Action,
        offers: &[OfferKey],
    ) -> Result<Announced, Rejection> {
        let announce = Announce {
            address: at(peer),
            source: self.swarms.source(ip),
            peer_id: peer_id(peer),
            action,
            may_join: true,
            is_exempt: false,
            offers,
        };
        let key = self.swarms.swarm_key(&info_hash(peer));
        self.swarms.announce(&key, &announce, self.now_s, &mut self.rng, &mut self.targets)
    }

    fn join(&mut self, ip: IpAddr, peer: u32) -> Result<Announced, Rejection> {
        self.announce(ip, peer, Action::Leech, &[])
    }

    fn leave(&mut self, peer: u32) {
        assert!(
            self.swarms.leave(&self.swarms.swarm_key(&info_hash(peer)), &peer_id(peer), at(peer)).was_present
        );
    }

    /// Announces peers, each from the address that `ip` returns, until one is refused. Returns their number.
    fn fill(&mut self, first: u32, ip: impl Fn(u32) -> IpAddr) -> (u32, Rejection) {
        for number in 0.. {
            if let Err(rejection) = self.join(ip(number), first + number) {
                return (number, rejection);
            }
        }
        unreachable!("the maximum number of peers is reached before");
    }

    fn peers(&self) -> u64 {
        self.swarms.totals().leechers + self.swarms.totals().seeders
    }
}

fn at(connection: u32) -> Address {
    Address { worker: 0, handle: Handle { index: connection, generation: 1 } }
}

fn info_hash(peer: u32) -> InfoHash {
    InfoHash([u8::try_from(peer % 100).unwrap(); 20])
}

fn peer_id(peer: u32) -> PeerId {
    let mut id = [b'x'; 20];
    id[..4].copy_from_slice(&peer.to_be_bytes());
    PeerId(id)
}

/// Returns one of many IPv4 addresses.
fn modest(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

/// Returns an address in one of many /64 networks of one /48.
fn subnet(number: u32) -> IpAddr {
    Ipv6Addr::from(0x2001_0db8_0000_0000_u128 << 64 | u128::from(number % (1 << 16)) << 64 | 1).into()
}

/// Returns an address in one of 1,300 /48 networks of one /32.
fn site(number: u32) -> IpAddr {
    Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(number % 1300) << 80 | u128::from(number) << 64).into()
}

/// Returns a world for each of the two ceilings.
fn worlds() -> [World; 2] {
    [World::new(PEERS_MAX.into(), u64::MAX), World::new(u64::MAX, u64::from(PEERS_MAX) * PEER_BYTES)]
}

#[test]
fn one_address_stops_at_half_and_modest_sources_are_served_up_to_the_ceiling() {
    for mut world in worlds() {
        assert_eq!(world.fill(0, |_| GREEDY), (PEERS_MAX / 2, Rejection::OverShare));
        world.join(GREEDY, 7).expect("a known peer is always accepted");
        assert_eq!(world.fill(PEERS_MAX, modest), (PEERS_MAX / 2, Rejection::Full));
        assert_eq!(world.join(GREEDY, PEERS_MAX - 1), Err(Rejection::OverShare));
    }
}

#[test]
fn an_ipv6_site_is_one_source() {
    for mut world in worlds() {
        let (came, rejection) = world.fill(0, subnet);
        assert_eq!(rejection, Rejection::OverShare);
        assert!((PEERS_MAX / 2..PEERS_MAX * 6 / 10).contains(&came), "{came}");
        assert_eq!(world.fill(PEERS_MAX, modest), (PEERS_MAX - came, Rejection::Full));
    }
}

#[test]
fn an_ipv6_allocation_has_a_larger_share_and_no_more() {
    for mut world in worlds() {
        let (came, rejection) = world.fill(0, site);
        assert_eq!(rejection, Rejection::OverShare);
        assert!((PEERS_MAX / 2..PEERS_MAX * 3 / 4).contains(&came), "{came}");
        assert_eq!(world.fill(PEERS_MAX, modest), (PEERS_MAX - came, Rejection::Full));
    }
}

#[test]
fn the_sweep_makes_room_for_modest_sources() {
    for mut world in worlds() {
        let (greedy, _) = world.fill(0, |_| GREEDY);
        let (came, _) = world.fill(PEERS_MAX, modest);
        for now_s in 1..LIFETIME_S / 2 {
            world.now_s = now_s;
            while world.swarms.expire(now_s, 100).behind {}
        }
        let totals = world.swarms.totals();
        assert_eq!((totals.expired, totals.leechers + totals.evicted), (0, (greedy + came).into()));
        assert!((1..u64::from(greedy)).contains(&totals.evicted), "{totals:?}");
        (PEERS_MAX..PEERS_MAX + came).for_each(|peer| world.leave(peer));
        let left = world.peers();
        assert_eq!(left, u64::from(greedy) - totals.evicted, "no modest peer was removed");
        for peer in 0..greedy {
            // The last ones may be over their share again.
            let _ = world.join(GREEDY, peer);
        }
        assert_eq!(world.peers(), u64::from(greedy), "there is no limit while there is room for all");
    }
}

#[test]
fn pending_offers_of_a_greedy_source_do_not_fill_the_memory() {
    let [_, mut world] = worlds();
    let (greedy, _) = world.fill(0, |_| GREEDY);
    for round in 0_u32..8 {
        let offers: Vec<_> = (0_u32..10)
            .map(|offer| world.swarms.offer_key(&[round, offer].map(u32::to_be_bytes).concat()))
            .collect();
        for peer in 0..greedy {
            world.announce(GREEDY, peer, Action::Leech, &offers).unwrap();
            assert_eq!(world.targets, [], "there is no memory for its pending offers");
        }
    }
    world.join(modest(1), PEERS_MAX).unwrap();
    let offer = world.swarms.offer_key(b"x");
    world.announce(modest(1), PEERS_MAX, Action::Leech, &[offer]).unwrap();
    assert_eq!(world.targets.len(), 1, "the offers of others are relayed");
}

#[test]
fn peers_that_left_no_longer_count() {
    let [mut world, _] = worlds();
    let (greedy, _) = world.fill(0, |_| GREEDY);
    (0..greedy).for_each(|peer| world.leave(peer));
    assert_eq!(world.fill(PEERS_MAX, |_| GREEDY), (greedy, Rejection::OverShare));
}

#[test]
fn a_seeder_downloads_nothing() {
    let mut world = World::new(PEERS_MAX.into(), u64::MAX);
    let completed =
        |world: &mut World, action| world.announce(modest(1), 7, action, &[]).unwrap().counts.completed;
    assert_eq!([Action::Seed, Action::Complete].map(|action| completed(&mut world, action)), [0, 0]);
    world.leave(7);
    assert_eq!([Action::Leech, Action::Complete].map(|action| completed(&mut world, action)), [0, 1]);
}

#[test]
fn a_count_and_the_peers_that_are_counted_are_forgotten_together() {
    let mut world = World::new(PEERS_MAX.into(), u64::MAX);
    for _ in 0..10 {
        let completed =
            |peer| world.announce(modest(peer), peer, Action::Complete, &[]).unwrap().counts.completed;
        assert_eq!([100, 200].map(completed), [1, 2]);
        [100, 200].into_iter().for_each(|peer| world.leave(peer));
    }
}

#[test]
fn a_download_is_counted_once_even_if_the_peer_returns() {
    let mut world = World::new(PEERS_MAX.into(), u64::MAX);
    // A peer that stays, so that the swarm remains.
    world.join(modest(9), 0).unwrap();
    let completed = |world: &mut World, ip, peer| {
        let counts = world.announce(ip, peer, Action::Complete, &[]).unwrap().counts;
        world.leave(peer);
        counts.completed
    };
    for _ in 0..20 {
        assert_eq!(completed(&mut world, modest(1), 100), 1);
    }
    assert_eq!(completed(&mut world, modest(2), 200), 2, "another peer is counted");
    // With other peer ids, a few downloads of one address are counted.
    let last = (3..60).map(|peer| completed(&mut world, GREEDY, peer * 100)).last();
    assert_eq!(last, Some(2 + 8));
    world.now_s = 3 * LIFETIME_S;
    assert_eq!(completed(&mut world, modest(1), 100), 11, "much later, it may be another download");
}
