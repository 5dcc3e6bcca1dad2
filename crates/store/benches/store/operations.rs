//! The method of chihaya's and optmem's storage benchmarks: 1,000 random info hashes and 1,000 random peers; every
//! operation on one hash and one peer, on 1,000 peers, on 1,000 hashes, and on both (a thousand pairs). Announces ask
//! for 50 peers of swarms that hold all 1,000, half of them seeders; unlike there, ours also stores the announcer.

use std::hint::black_box;
use std::time::Duration;

use shoal_base::{Action, InfoHash, PeerV4};
use shoal_store::{Announce, Swarms};

use crate::data;
use crate::report::{Case, Figure};

const COUNT: usize = 1000;
const WANTED: usize = 50;

/// Number of rounds, of which the median is the result.
const ROUNDS: usize = 9;

const ROUND_TIME: Duration = Duration::from_millis(120);

/// The hashes and peers that an operation goes through.
#[derive(Clone, Copy)]
struct Spread {
    suffix: &'static str,
    info_hashes: usize,
    peers: usize,
}

const SPREADS: [Spread; 4] = [
    Spread { suffix: "", info_hashes: 1, peers: 1 },
    Spread { suffix: "1k", info_hashes: 1, peers: COUNT },
    Spread { suffix: "1kInfohash", info_hashes: COUNT, peers: 1 },
    Spread { suffix: "1kInfohash1k", info_hashes: COUNT, peers: COUNT },
];

struct World {
    info_hashes: Vec<InfoHash>,
    peers: Vec<PeerV4>,
    rng: fastrand::Rng,
    /// Space of a reply.
    out: [u8; 1432],
}

type Operation = fn(&mut World, &Swarms<PeerV4>, usize, usize);

fn put(world: &mut World, swarms: &Swarms<PeerV4>, info_hash: usize, peer: usize, action: Action) {
    data::put(swarms, &world.info_hashes[info_hash], world.peers[peer], action, &mut world.rng);
}

fn announce(world: &mut World, swarms: &Swarms<PeerV4>, info_hash: usize, peer: usize, action: Action) {
    let announce = Announce { peer: world.peers[peer], action, peers_wanted: WANTED };
    let place = swarms.locate(&world.info_hashes[info_hash]);
    let answer = swarms.announce(&place, &announce, 1000, &mut world.rng, &mut world.out);
    assert!(answer.is_ok_and(|answer| answer.peers == WANTED), "the swarm holds more peers than are wanted");
    black_box(&world.out);
}

const ON_EMPTY: [(&str, Operation); 5] = [
    ("Put", |world, swarms, i, p| put(world, swarms, i, p, Action::Seed)),
    ("PutDelete", |world, swarms, i, p| {
        put(world, swarms, i, p, Action::Seed);
        put(world, swarms, i, p, Action::Stop);
    }),
    ("DeleteNonexist", |world, swarms, i, p| put(world, swarms, i, p, Action::Stop)),
    ("PutGraduateDelete", |world, swarms, i, p| {
        put(world, swarms, i, p, Action::Leech);
        put(world, swarms, i, p, Action::Complete);
        put(world, swarms, i, p, Action::Stop);
    }),
    ("GraduateNonexist", |world, swarms, i, p| put(world, swarms, i, p, Action::Complete)),
];

/// Operations on filled swarms: the announcer is one of their leechers or seeders, and keeps its role.
const ON_FULL: [(&str, Operation); 3] = [
    ("AnnounceLeecher", |world, swarms, i, p| announce(world, swarms, i, p / 2, Action::Leech)),
    ("AnnounceSeeder", |world, swarms, i, p| announce(world, swarms, i, COUNT - 1 - p / 2, Action::Seed)),
    ("ScrapeSwarm", |world, swarms, i, _| {
        let place = swarms.locate(&world.info_hashes[i]);
        black_box(swarms.scrape(&place));
    }),
];

pub(crate) fn cases(tiny: bool) -> Vec<Case> {
    let on_empty = ON_EMPTY.map(|(name, operation)| (name, operation, false));
    let on_full = ON_FULL.map(|(name, operation)| (name, operation, true));
    let mut cases = Vec::new();
    for (name, operation, filled) in on_empty.into_iter().chain(on_full) {
        for spread in SPREADS {
            let name = format!("time/{name}{}", spread.suffix);
            cases
                .push(Case::new(name.clone(), move || vec![measure(&name, operation, spread, filled, tiny)]));
        }
    }
    cases
}

fn measure(name: &str, operation: Operation, spread: Spread, filled: bool, tiny: bool) -> Figure {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut world = World {
        info_hashes: (0..COUNT).map(|_| data::info_hash(&mut rng)).collect(),
        peers: (0..COUNT).map(|_| data::Random::random(&mut rng)).collect(),
        rng,
        out: [0; 1432],
    };
    let store = data::store();
    if filled {
        for info_hash in 0..spread.info_hashes {
            for peer in 0..COUNT {
                let action = if peer < COUNT / 2 { Action::Leech } else { Action::Seed };
                put(&mut world, &store.v4, info_hash, peer, action);
            }
        }
    }
    let (rounds, time) = if tiny { (1, Duration::ZERO) } else { (ROUNDS, ROUND_TIME) };
    let mut figures: Vec<f64> =
        (0..rounds).map(|_| round(&mut world, &store.v4, operation, spread, time)).collect();
    figures.sort_by(f64::total_cmp);
    Figure::new(name, figures[figures.len() / 2], "ns")
}

/// Runs one round of at least `time`. Returns the ns per operation.
fn round(
    world: &mut World,
    swarms: &Swarms<PeerV4>,
    operation: Operation,
    spread: Spread,
    time: Duration,
) -> f64 {
    // A pass over every hash or every peer, whichever is more; over both, each hash has a peer of its own.
    let steps = spread.info_hashes.max(spread.peers).max(256);
    let (start, mut passes) = (data::thread_time(), 0_usize);
    loop {
        for step in 0..steps {
            let peer = step * 3 % spread.peers;
            operation(world, swarms, step % spread.info_hashes, peer);
        }
        passes += 1;
        let elapsed = data::thread_time() - start;
        if elapsed >= time {
            return elapsed.as_secs_f64() * 1e9 / (passes * steps) as f64;
        }
    }
}
