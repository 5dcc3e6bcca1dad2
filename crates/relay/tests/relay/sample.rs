//! The receivers of offers: which peers are drawn, and with which probability. None is drawn twice.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use shoal_base::transport::stream::Handle;
use shoal_base::{Action, InfoHash, PeerId};
use shoal_relay::{Address, Announce, OfferKey, Settings, Swarms};

struct Swarm {
    swarms: Swarms,
    rng: fastrand::Rng,
}

impl Swarm {
    /// Creates a swarm. Leechers are numbered from 0, then seeders; they join in random order.
    fn of(leechers: u32, seeders: u32) -> Self {
        let settings = Settings::new(10_000, 100, [1, 2]);
        let mut swarm = Self { swarms: Swarms::new(&settings), rng: fastrand::Rng::with_seed(4) };
        let mut numbers: Vec<u32> = (0..leechers + seeders).collect();
        swarm.rng.shuffle(&mut numbers);
        for number in numbers {
            swarm.announce(number, if number < leechers { Action::Leech } else { Action::Seed }, 0);
        }
        swarm
    }

    fn announce(&mut self, number: u32, action: Action, offers: usize) -> Vec<u32> {
        self.announce_from(number, number, action, offers)
    }

    /// Announces peer `number` from the address `source`. Returns the numbers of the receivers.
    fn announce_from(&mut self, number: u32, source: u32, action: Action, offers: usize) -> Vec<u32> {
        let mut peer_id = PeerId([b'x'; 20]);
        peer_id.0[..4].copy_from_slice(&number.to_be_bytes());
        let handle = Handle { index: number, generation: 0 };
        let address = Address { worker: 0, handle };
        let offers: Vec<OfferKey> =
            (0..offers).map(|offer| self.swarms.offer_key(&offer.to_be_bytes())).collect();
        let source = self.swarms.source(Ipv4Addr::from(source).into());
        let announce =
            Announce { address, source, peer_id, action, may_join: true, is_exempt: false, offers: &offers };
        let key = self.swarms.swarm_key(&InfoHash([7; 20]));
        let mut targets = Vec::new();
        self.swarms.announce(&key, &announce, 0, &mut self.rng, &mut targets).unwrap();
        targets.iter().map(|target| target.address.handle.index).collect()
    }
}

/// Announces as peer `announcer` many times, and compares the number of times that each other peer was drawn with its
/// distribution.
fn check(leechers: u32, seeders: u32, announcer: u32, offers: usize) {
    const ROUNDS: u32 = 4000;
    let mut swarm = Swarm::of(leechers, seeders);
    let seeds = announcer >= leechers;
    let action = if seeds { Action::Seed } else { Action::Leech };
    // The offers of a seeder go to leechers first, and what is left over to seeders.
    let all: Vec<u32> = (0..leechers + seeders).filter(|&n| n != announcer).collect();
    let (others, certain, offers_left) = match (seeds, offers.checked_sub(leechers as usize)) {
        (true, None) => ((0..leechers).collect(), 0, offers),
        (true, Some(left)) => (all.into_iter().filter(|&n| n >= leechers).collect(), leechers, left),
        (false, _) => (all, 0, offers),
    };
    let mut seen: BTreeMap<u32, u32> = others.iter().map(|&number| (number, 0)).collect();
    for _ in 0..ROUNDS {
        let mut sample = swarm.announce(announcer, action, offers);
        let first = sample.drain(..certain as usize).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(first, (0..certain).collect());
        let offers = offers_left;
        assert_eq!(sample.len(), offers.min(others.len()));
        for other in &sample {
            *seen.get_mut(other).expect("never the announcer, and no seeders before leechers") += 1;
        }
        sample.sort_unstable();
        sample.dedup();
        assert_eq!(sample.len(), offers.min(others.len()), "no peer twice");
    }
    let offers = offers_left;
    let chance = (offers as f64 / others.len() as f64).min(1.0);
    let (mean, variance) = (f64::from(ROUNDS) * chance, f64::from(ROUNDS) * chance * (1.0 - chance));
    if variance == 0.0 {
        assert!(seen.values().all(|&count| count == ROUNDS));
        return;
    }
    let deviations = seen.values().map(|&count| (f64::from(count) - mean) / variance.sqrt());
    let worst = deviations.clone().map(f64::abs).fold(0.0, f64::max);
    assert!(
        worst < 5.5,
        "a peer is {worst} standard deviations off: {leechers}, {seeders}, {announcer}, {offers}"
    );
    let mean_square = deviations.map(|z| z * z).sum::<f64>() / others.len() as f64;
    let bound = 1.0 + 6.0 * (2.0 / others.len() as f64).sqrt();
    assert!(mean_square < bound, "mean square {mean_square}, bound {bound}: {leechers}, {seeders}, {offers}");
}

#[test]
fn all_peers_have_the_same_probability() {
    for offers in [1, 2, 3, 10, 30] {
        check(20, 12, 5, offers);
        check(60, 40, 5, offers);
        check(60, 40, 59, offers);
        check(100, 20, 110, offers);
        check(0, 50, 7, offers);
        check(50, 0, 0, offers);
    }
}

#[test]
fn in_a_small_swarm_all_peers_are_drawn() {
    let mut swarm = Swarm::of(3, 2);
    for (announcer, action, expected) in
        [(1, Action::Leech, &[0, 2, 3, 4][..]), (4, Action::Seed, &[0, 1, 2, 3])]
    {
        for offers in [4, 5, 100] {
            let mut chosen = swarm.announce(announcer, action, offers);
            chosen.sort_unstable();
            assert_eq!(chosen, expected);
        }
    }
    assert_eq!(Swarm::of(1, 0).announce(0, Action::Leech, 10), []);
}

#[test]
fn a_seeder_offers_to_leechers_first() {
    let mut swarm = Swarm::of(3, 20);
    for offers in [1, 3, 5, 30] {
        let chosen = swarm.announce(20, Action::Seed, offers);
        let to_leechers = chosen.iter().take_while(|&&number| number < 3).count();
        assert_eq!((to_leechers, chosen.len()), (offers.min(3), offers.min(22)));
    }
    // Applications in which every browser has everything.
    let mut swarm = Swarm::of(0, 2);
    assert_eq!(swarm.announce(0, Action::Seed, 5), [1]);
}

/// One address with many peers gets a small part of the offers of others, in whatever order they have joined.
#[test]
fn a_source_with_many_peers_gets_as_many_offers_of_others_as_one() {
    const HONEST: u32 = 50;
    for (greedy, comes_first, action) in [
        (1000, true, Action::Leech),
        (1000, false, Action::Leech),
        (10_000, true, Action::Seed),
        (20, false, Action::Seed),
    ] {
        let mut swarm = Swarm::of(0, 0);
        swarm.swarms = Swarms::new(&Settings::new(100_000, 100, [1, 2]));
        let join_greedy =
            |swarm: &mut Swarm| (0..greedy).for_each(|n| drop(swarm.announce_from(1000 + n, 77, action, 5)));
        if comes_first {
            join_greedy(&mut swarm);
        }
        (0..HONEST).for_each(|n| drop(swarm.announce(n, action, 0)));
        if !comes_first {
            join_greedy(&mut swarm);
        }
        let (mut to_greedy, mut to_honest) = (0.0, 0.0);
        for _ in 0..40 {
            for honest in 0..HONEST {
                let chosen = swarm.announce(honest, action, 5);
                assert_eq!(chosen.len(), 5);
                for n in chosen {
                    *(if n >= 1000 { &mut to_greedy } else { &mut to_honest }) += 1.0;
                }
            }
        }
        let share = to_greedy / (to_greedy + to_honest);
        assert!((0.01..0.03).contains(&share), "{share}: 1 of 50 is expected");
    }
}

/// The browsers of one address are each other's peers, alone in a swarm and beside others.
#[test]
fn all_peers_of_an_address_get_offers() {
    const NEIGHBOURS: u32 = 200;
    for others in [0, 50] {
        let mut swarm = Swarm::of(0, 0);
        (0..others).for_each(|n| drop(swarm.announce(n, Action::Leech, 0)));
        (0..NEIGHBOURS).for_each(|n| drop(swarm.announce_from(1000 + n, 77, Action::Leech, 0)));
        let mut received: BTreeMap<u32, u32> = BTreeMap::new();
        for _ in 0..4 {
            for n in 0..NEIGHBOURS {
                let chosen = swarm.announce_from(1000 + n, 77, Action::Leech, 5);
                assert_eq!(chosen.len(), 5);
                chosen.into_iter().for_each(|receiver| *received.entry(receiver).or_default() += 1);
            }
            for n in 0..others {
                assert_eq!(swarm.announce(n, Action::Leech, 5).len(), 5);
            }
        }
        let served = received.keys().filter(|&&n| n >= 1000).count();
        assert_eq!(served, NEIGHBOURS as usize, "each of them got an offer of a neighbour");
        let most = received.values().max().copied().unwrap_or(0);
        assert!(most < 60, "none is flooded: {most}");
    }
}

/// The browsers of a school stay each other's peers, whatever another address holds.
#[test]
fn many_peers_of_another_address_leave_neighbours_to_each_other() {
    for (neighbours, others, greedy, offers) in
        [(50, 0, 100, 5), (50, 0, 1000, 5), (200, 50, 1000, 10), (50, 0, 4000, 5)]
    {
        let mut swarm = Swarm::of(0, 0);
        (0..greedy).for_each(|n| drop(swarm.announce_from(10_000 + n, 66, Action::Leech, 0)));
        (0..others).for_each(|n| drop(swarm.announce(n, Action::Leech, 0)));
        (0..neighbours).for_each(|n| drop(swarm.announce_from(1000 + n, 77, Action::Leech, 0)));
        let (mut to_greedy, mut all) = (0, 0);
        for _ in 0..4 {
            for n in 0..neighbours {
                let chosen = swarm.announce_from(1000 + n, 77, Action::Leech, offers);
                assert_eq!(chosen.len(), offers);
                to_greedy += chosen.iter().filter(|&&n| n >= 10_000).count();
                all += chosen.len();
            }
        }
        // With eighty times as many peers as the others, it gets some places of draws that fail.
        let allowed = if greedy > 1000 { 4 } else { 20 };
        assert!(to_greedy * allowed < all, "{to_greedy} of {all} offers beside {greedy} peers");
    }
}

/// A leecher gets the offers of seeders, whatever its neighbours are.
#[test]
fn a_leecher_represents_its_address_before_a_seeder() {
    for leecher_is_first in [false, true] {
        let mut swarm = Swarm::of(0, 12);
        let join = |swarm: &mut Swarm, leeches: bool| {
            let (number, action) = if leeches { (101, Action::Leech) } else { (100, Action::Seed) };
            swarm.announce_from(number, 77, action, 0);
        };
        for _ in 0..3 {
            join(&mut swarm, leecher_is_first);
            join(&mut swarm, !leecher_is_first);
            for seeder in 0..12 {
                assert_eq!(swarm.announce(seeder, Action::Seed, 10)[0], 101);
            }
        }
    }
}

/// If there are not enough other sources, all offers find receivers.
#[test]
fn the_peers_of_a_source_get_what_is_left_over() {
    let mut swarm = Swarm::of(2, 0);
    for n in 0..30 {
        swarm.announce_from(1000 + n, 77, if n % 2 == 0 { Action::Leech } else { Action::Seed }, 0);
    }
    for (announcer, action) in [(0, Action::Leech), (1, Action::Seed)] {
        let mut chosen = swarm.announce(announcer, action, 10);
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), 10);
        assert!(chosen.contains(&(1 - announcer)), "the other source is among them");
        let mut chosen = swarm.announce(announcer, action, 40);
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), 31);
    }
}
