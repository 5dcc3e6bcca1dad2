//! The model: a closed queueing network, simulated event by event.
//!
//! Each worker repeats a cycle for ever: it works alone on a batch (receiving, decoding, hashing, sending), and then takes
//! it through some passes. In each pass it takes the lock of each shard that the batch concerns, once, for as long as all
//! requests of the batch to that shard need. Shards whose lock is taken come last in a pass. A worker that has nothing
//! else left to do spins until a lock is free, so nothing else happens on its core.
//!
//! This is the machine-repairman model with one repairman for each shard. Shards are not equally busy, holds are not
//! exponential, and a batch visits several shards; therefore it is simulated. For the network without these
//! complications the exact solution is known (mean value analysis: Reiser and Lavenberg, "Mean-Value Analysis of Closed
//! Multichain Queuing Networks", JACM 27(2), 1980), and [`check`] compares the simulation with it.
//!
//! The model knows neither the bandwidth of the memory, nor several sockets, nor the locks of the kernel: beyond the
//! cores that were measured it shows what the locks of the store alone permit.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Announces in a batch, as many as a worker receives in one go.
pub(crate) const BATCH: usize = 64;

/// Passes of a batch that take locks: four that prefetch, and the one that applies.
pub(crate) const PASSES: usize = 5;

/// Batches of a simulation that is compared with the exact solution.
const CHECK_BATCHES: usize = 40_000;

/// The share of the batches of a simulation that does not count, because the workers start in step.
const WARM_UP: f64 = 0.2;

/// CPU times in nanoseconds of one announce in a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    /// The time outside the locks.
    pub(crate) outside_ns: f64,
    /// The time under the lock of its shard in each pass.
    pub(crate) holds_ns: [f64; PASSES],
}

/// The demands of announces on one swarm that all share, and of announces on all other swarms.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demands {
    pub(crate) hot: Demand,
    pub(crate) cold: Demand,
}

/// A number of workers at work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) workers: usize,
    pub(crate) shards: usize,
    /// The share of the announces that concern the hot swarm, from 0 to 1.
    pub(crate) hot_share: f64,
    pub(crate) demands: Demands,
    /// Time outside the locks for each announce in addition to the demand: the kernel's, for example.
    pub(crate) extra_ns: f64,
    /// The number of batches to simulate.
    pub(crate) batches: usize,
}

/// A stay at a shard, and the time for which its lock is held.
type Visit = (usize, f64);

/// The visits of a batch that are left, by pass.
#[derive(Default)]
struct Passes {
    /// The visits of each pass, the current one first.
    left: VecDeque<VecDeque<Visit>>,
    /// The visits of the current pass whose lock was taken.
    busy: VecDeque<Visit>,
}

impl Passes {
    /// Returns the next visit. Locks are free from `free_at` on.
    fn next(&mut self, now: f64, free_at: &[f64]) -> Option<Visit> {
        loop {
            match self.left.front_mut()?.pop_front() {
                Some(visit) if free_at[visit.0] > now => self.busy.push_back(visit),
                Some(visit) => return Some(visit),
                None => match self.busy.pop_front() {
                    Some(visit) => return Some(visit),
                    None => drop(self.left.pop_front()),
                },
            }
        }
    }
}

/// Returns the number of shards that the store of this many workers has: four for each.
pub(crate) fn shards(workers: usize) -> usize {
    (4 * workers).next_power_of_two().clamp(8, 256)
}

/// Returns the announces per second of all workers together.
pub(crate) fn announces_per_s(plan: &Plan) -> f64 {
    let mut rng = fastrand::Rng::with_seed(11);
    simulate(plan.workers, plan.shards, plan.batches, |passes| draw_batch(plan, &mut rng, passes))
}

/// Draws the passes of a batch, and returns its time outside the locks.
fn draw_batch(plan: &Plan, rng: &mut fastrand::Rng, passes: &mut Passes) -> f64 {
    let mut outside_ns = 0.0;
    let mut holds_ns = BTreeMap::<usize, [f64; PASSES]>::new();
    for _ in 0..BATCH {
        // The hot swarm is in the first shard.
        let is_hot = rng.f64() < plan.hot_share;
        let shard = if is_hot { 0 } else { rng.usize(..plan.shards) };
        let demand = if is_hot { plan.demands.hot } else { plan.demands.cold };
        outside_ns += demand.outside_ns + plan.extra_ns;
        let of_shard = holds_ns.entry(shard).or_default();
        of_shard.iter_mut().zip(demand.holds_ns).for_each(|(sum, hold_ns)| *sum += hold_ns);
    }
    let mut order: Vec<usize> = holds_ns.keys().copied().collect();
    rng.shuffle(&mut order);
    let visits_of = |pass: usize| {
        let visits = order.iter().map(|shard| (*shard, holds_ns[shard][pass]));
        visits.filter(|&(_, hold_ns)| hold_ns > 0.0).collect()
    };
    passes.left.extend((0..PASSES).map(visits_of));
    outside_ns
}

/// Simulates workers whose batches come from `draw`, which writes the passes and returns the time outside the locks.
/// Returns the announces per second.
fn simulate(workers: usize, shards: usize, batches: usize, mut draw: impl FnMut(&mut Passes) -> f64) -> f64 {
    let mut free_at = vec![0.0_f64; shards];
    let mut passes: Vec<Passes> = (0..workers).map(|_| Passes::default()).collect();
    // Each worker with the time of its next event. The bits of floats that are not negative have the order of the floats.
    let mut events: BinaryHeap<Reverse<(u64, usize)>> =
        (0..workers).map(|worker| Reverse((0_f64.to_bits(), worker))).collect();
    let (mut drawn, mut warm) = (0, (0, 0.0));
    while let Some(Reverse((now, worker))) = events.pop() {
        let now = f64::from_bits(now);
        let next = if let Some((shard, hold_ns)) = passes[worker].next(now, &free_at) {
            // Workers come in the order of time, so each lock serves them first come, first served. Spinning workers
            // have no such order, but the throughput does not depend on who is next.
            free_at[shard] = free_at[shard].max(now) + hold_ns;
            free_at[shard]
        } else {
            if drawn == batches {
                return (drawn - warm.0) as f64 * BATCH as f64 / (now - warm.1) * 1e9;
            }
            drawn += 1;
            if drawn as f64 <= WARM_UP * batches as f64 {
                warm = (drawn, now);
            }
            now + draw(&mut passes[worker])
        };
        events.push(Reverse((next.to_bits(), worker)));
    }
    0.0
}

/// Compares the simulation with mean value analysis where that is exact: exponential times, each batch at one shard.
/// Returns the largest relative difference.
pub(crate) fn check() -> f64 {
    let (outside_ns, hold_ns) = (40_000.0, 10_000.0);
    let differences = [(1, 8), (4, 2), (16, 8), (64, 8), (128, 256)].map(|(workers, shards)| {
        let mut rng = fastrand::Rng::with_seed(7);
        let exponential = |rng: &mut fastrand::Rng, mean: f64| -mean * (1.0 - rng.f64()).ln();
        let simulated = simulate(workers, shards, CHECK_BATCHES, |passes| {
            passes.left.push_back([(rng.usize(..shards), exponential(&mut rng, hold_ns))].into());
            exponential(&mut rng, outside_ns)
        });
        let exact = mean_value_analysis(workers, shards, outside_ns, hold_ns) * BATCH as f64;
        (simulated / exact - 1.0).abs()
    });
    differences.into_iter().fold(0.0, f64::max)
}

/// Returns the batches per second of a closed network in which each batch visits one of the shards.
fn mean_value_analysis(workers: usize, shards: usize, outside_ns: f64, hold_ns: f64) -> f64 {
    let visits = 1.0 / shards as f64;
    let (mut queue, mut rate) = (0.0, 0.0);
    for workers in 1..=workers {
        // A worker that arrives finds the queue that one worker fewer would leave.
        let response_ns = hold_ns * (1.0 + queue);
        rate = workers as f64 / (outside_ns + response_ns);
        queue = rate * visits * response_ns;
    }
    rate * 1e9
}
