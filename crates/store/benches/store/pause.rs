//! The longest single call: while one swarm grows, while the table of swarms grows, and while everything or most of it expires.
//!
//! The machine may interrupt a process at any time, which is not due to the store. Work of the store itself happens at
//! the same call in every run. The runs are therefore repeated; for each stretch of calls the minimum of the maxima is
//! taken, and the largest of these is the result. The plain maximum is printed too.

use std::time::Instant;

use shoal_base::{Action, InfoHash, PeerV4};
use shoal_store::{Announce, Swarms};

use crate::data::{self, Random};
use crate::report::{Case, Figure};

const RUNS: usize = 4;

/// Number of calls in a stretch.
const STRETCH: usize = 1024;

/// The budget that a worker gives expiry at a time.
const BUDGET: usize = 512;

pub(crate) fn cases(tiny: bool) -> Vec<Case> {
    let count = if tiny { 5000 } else { 10_000_000 };
    let names = [
        "pause/v4/peers",
        "pause/v4/swarms",
        "pause/v4/expire/peers",
        "pause/v4/expire/swarms",
        "pause/v4/expire/most-peers",
        "pause/v4/expire/most-swarms",
    ];
    let run: [fn(usize) -> Vec<u64>; 6] = [
        |count| grow(count, |_| InfoHash([0x22; 20])),
        |count| grow(count, data::info_hash),
        |count| expire(count, |_| InfoHash([0x22; 20])),
        |count| expire(count, data::info_hash),
        |count| expire_most(count, |_| InfoHash([0x22; 20])),
        |count| expire_most(count, data::info_hash),
    ];
    let case = |(name, run): (&str, fn(usize) -> Vec<u64>)| {
        let count = if name.contains("most") { count / 4 } else { count };
        let name = format!("{name}={count}");
        Case::new(name.clone(), move || longest(&name, || run(count)))
    };
    names.into_iter().zip(run).map(case).collect()
}

/// Repeats a run, which returns the longest call of each stretch in ns.
fn longest(name: &str, run: impl Fn() -> Vec<u64>) -> Vec<Figure> {
    let runs: Vec<Vec<u64>> = (0..RUNS).map(|_| run()).collect();
    let stretches = runs.iter().map(Vec::len).min().unwrap_or(0);
    let least = |stretch: usize| runs.iter().map(|run| run[stretch]).min().unwrap_or(0);
    let own = (0..stretches).map(least).max().unwrap_or(0);
    let plain = runs.iter().flatten().max().copied().unwrap_or(0);
    vec![
        Figure::new(name, own as f64 / 1e3, "us, longest call of the store's own doing"),
        Figure::new(format!("{name}/plain"), plain as f64 / 1e3, "us, longest call in any run"),
    ]
}

/// The longest call of each stretch.
#[derive(Default)]
struct Stretches {
    longest: Vec<u64>,
    calls: usize,
}

impl Stretches {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = call();
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.calls.is_multiple_of(STRETCH) {
            self.longest.push(0);
        }
        self.calls += 1;
        if let Some(longest) = self.longest.last_mut() {
            *longest = ns.max(*longest);
        }
        result
    }
}

fn grow(count: usize, info_hash: impl Fn(&mut fastrand::Rng) -> InfoHash) -> Vec<u64> {
    let (store, mut rng) = (data::store(), fastrand::Rng::with_seed(3));
    let mut stretches = Stretches::default();
    data::with_memory_thread(&store, || {
        fill(&store.v4, count, &info_hash, &mut rng, |put| stretches.time(put))
    });
    stretches.longest
}

/// Fills a store, stops all announces, and times each step of expiry until no peer is left.
fn expire(count: usize, info_hash: impl Fn(&mut fastrand::Rng) -> InfoHash) -> Vec<u64> {
    let (store, mut rng) = (data::store(), fastrand::Rng::with_seed(3));
    fill(&store.v4, count, &info_hash, &mut rng, |put| put());
    let mut stretches = Stretches::default();
    let mut now_s = 1000;
    while store.v4.totals().seeders > 0 {
        now_s += 1;
        while stretches.time(|| store.v4.expire(now_s, BUDGET)).behind {}
        assert!(now_s < 10_000, "all peers expire in time");
    }
    stretches.longest
}

/// As `expire`, but every fourth peer stays. The rests of two segments then fit in one, so all segments are merged.
fn expire_most(count: usize, info_hash: impl Fn(&mut fastrand::Rng) -> InfoHash) -> Vec<u64> {
    let (store, mut rng) = (data::store(), fastrand::Rng::with_seed(3));
    fill(&store.v4, count, &info_hash, &mut rng, |put| put());
    rng.seed(3);
    for number in 0..count {
        let (info_hash, peer) = (info_hash(&mut rng), PeerV4::random(&mut rng));
        if number.is_multiple_of(4) {
            let announce = Announce { peer, action: Action::Seed, peers_wanted: 0 };
            let place = store.v4.locate(&info_hash);
            assert!(store.v4.announce(&place, &announce, 2600, &mut fastrand::Rng::new(), &mut []).is_ok());
        }
    }
    let mut stretches = Stretches::default();
    for now_s in 3700..5200 {
        while stretches.time(|| store.v4.expire(now_s, BUDGET)).behind {}
    }
    stretches.longest
}

fn fill(
    swarms: &Swarms<PeerV4>,
    count: usize,
    info_hash: &impl Fn(&mut fastrand::Rng) -> InfoHash,
    rng: &mut fastrand::Rng,
    mut each: impl FnMut(&mut dyn FnMut()),
) {
    for _ in 0..count {
        let (info_hash, peer) = (info_hash(rng), PeerV4::random(rng));
        each(&mut || data::put(swarms, &info_hash, peer, Action::Seed, &mut fastrand::Rng::with_seed(1)));
    }
}
