//! The receivers of offers: all other peers have the same probability, and none is drawn twice.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use shoal_relay::{Address, Announce, OfferKey, Settings, Swarms};
use shoal_transport::stream::Handle;
use shoal_types::{Action, InfoHash, PeerId};

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
        let mut peer_id = PeerId([b'x'; 20]);
        peer_id.0[..4].copy_from_slice(&number.to_be_bytes());
        let handle = Handle { index: number, generation: 0 };
        let address = Address { worker: 0, handle };
        let offers: Vec<OfferKey> =
            (0..offers).map(|offer| self.swarms.offer_key(&offer.to_be_bytes())).collect();
        let source = self.swarms.source(Ipv4Addr::from(number).into());
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
    let others: Vec<u32> =
        (0..if seeds { leechers } else { leechers + seeders }).filter(|&n| n != announcer).collect();
    let mut seen: BTreeMap<u32, u32> = others.iter().map(|&number| (number, 0)).collect();
    for _ in 0..ROUNDS {
        let mut sample = swarm.announce(announcer, action, offers);
        assert_eq!(sample.len(), offers.min(others.len()));
        for other in &sample {
            *seen.get_mut(other).expect("never the announcer, and no seeders for a seeder") += 1;
        }
        sample.sort_unstable();
        sample.dedup();
        assert_eq!(sample.len(), offers.min(others.len()), "no peer twice");
    }
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
        [(1, Action::Leech, &[0, 2, 3, 4][..]), (4, Action::Seed, &[0, 1, 2])]
    {
        for offers in [4, 5, 100] {
            let mut chosen = swarm.announce(announcer, action, offers);
            chosen.sort_unstable();
            assert_eq!(chosen, expected);
        }
    }
    assert_eq!(Swarm::of(1, 0).announce(0, Action::Leech, 10), []);
}
