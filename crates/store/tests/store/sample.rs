//! The sample that an announcer receives: every other peer equally likely, none twice, never the announcer itself.

use std::collections::BTreeMap;

use shoal_base::{Action, InfoHash, PeerV4};
use shoal_store::{Announce, Settings, Store};

const HASH: InfoHash = InfoHash([0x77; 20]);

fn peer(number: u32) -> PeerV4 {
    let [a, b, c, d] = number.to_be_bytes();
    PeerV4([10, a, b, c, d, 80])
}

struct Swarm {
    store: Store,
    rng: fastrand::Rng,
}

impl Swarm {
    /// Leechers numbered from 0, then seeders.
    fn of(leechers: u32, seeders: u32) -> Self {
        let settings = Settings::new(1 << 28, 1800, [5, 1 << 60, 7 << 33, 0xabcdef]);
        let mut swarm = Self { store: Store::new(&settings).unwrap(), rng: fastrand::Rng::with_seed(9) };
        for number in 0..leechers + seeders {
            swarm.announce(number, if number < leechers { Action::Leech } else { Action::Seed }, 0);
        }
        swarm
    }

    fn announce(&mut self, number: u32, action: Action, wanted: usize) -> Vec<PeerV4> {
        let mut out = [0; 300 * 6];
        let announce = Announce { peer: peer(number), action, peers_wanted: wanted };
        let place = self.store.v4.locate(&HASH);
        let answer = self.store.v4.announce(&place, &announce, 0, &mut self.rng, &mut out).unwrap();
        out[..answer.peers * 6].chunks_exact(6).map(|bytes| PeerV4(bytes.try_into().unwrap())).collect()
    }
}

/// Announces as peer `announcer` many times, and compares the frequency of each other peer with its expectation.
fn check(leechers: u32, seeders: u32, announcer: u32, wanted: usize) {
    const ROUNDS: u32 = 6000;
    let mut swarm = Swarm::of(leechers, seeders);
    let seeds = announcer >= leechers;
    let action = if seeds { Action::Seed } else { Action::Leech };
    let others: Vec<u32> =
        (0..if seeds { leechers } else { leechers + seeders }).filter(|&n| n != announcer).collect();
    let mut seen: BTreeMap<PeerV4, u32> = others.iter().map(|&number| (peer(number), 0)).collect();
    for _ in 0..ROUNDS {
        let mut sample = swarm.announce(announcer, action, wanted);
        assert_eq!(sample.len(), wanted.min(others.len()));
        for other in &sample {
            *seen.get_mut(other).expect("only others, and no seeders for a seeder") += 1;
        }
        sample.sort_unstable();
        sample.dedup();
        assert_eq!(sample.len(), wanted.min(others.len()), "no peer twice");
    }
    let chance = (wanted as f64 / others.len() as f64).min(1.0);
    let (mean, variance) = (f64::from(ROUNDS) * chance, f64::from(ROUNDS) * chance * (1.0 - chance));
    if variance == 0.0 {
        assert!(seen.values().all(|&count| count == ROUNDS));
        return;
    }
    let deviations = seen.values().map(|&count| (f64::from(count) - mean) / variance.sqrt());
    let worst = deviations.clone().map(f64::abs).fold(0.0, f64::max);
    assert!(
        worst < 5.5,
        "a peer is {worst} standard deviations off: {leechers}, {seeders}, {announcer}, {wanted}"
    );
    // If every count were binomial, the mean square of the deviations would be 1. Neighbours are drawn together, so
    // about nine of them count as one for its spread.
    let mean_square = deviations.map(|z| z * z).sum::<f64>() / others.len() as f64;
    let spread = (2.0 * 9.0 / others.len() as f64).sqrt();
    let bound = 1.0 + 5.0 * spread;
    assert!(mean_square < bound, "mean square {mean_square}, bound {bound}: {leechers}, {seeders}, {wanted}");
}

#[test]
fn small_swarms_give_each_peer_the_same_chance() {
    for wanted in [1, 7, 30, 50, 200] {
        check(60, 40, 5, wanted);
        check(100, 20, 110, wanted);
    }
}

#[test]
fn swarms_that_barely_outgrew_their_block_give_each_peer_the_same_chance() {
    for wanted in [1, 30, 50, 149] {
        check(150, 0, 149, wanted);
        check(80, 80, 3, wanted);
    }
}

#[test]
fn large_swarms_give_each_peer_the_same_chance() {
    for wanted in [1, 10, 50, 74, 200] {
        check(500, 500, 77, wanted);
        check(1300, 200, 1400, wanted);
    }
}

#[test]
fn a_table_in_the_middle_of_its_growth_gives_each_peer_the_same_chance() {
    // Sizes from before to after a growth by an eighth, in which a gap opens and closes.
    for leechers in (700..1000).step_by(60) {
        check(leechers, 1, 0, 50);
    }
}

#[test]
fn a_seeder_receives_leechers_only() {
    let mut swarm = Swarm::of(3, 400);
    let mut sample = swarm.announce(100, Action::Seed, 50);
    sample.sort_unstable();
    assert_eq!(sample, [peer(0), peer(1), peer(2)]);
}
