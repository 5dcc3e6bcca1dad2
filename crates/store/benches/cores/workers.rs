//! The measurement: real threads, one for each worker, that announce batches to one store as the tracker does.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use shoal_base::{Action, InfoHash, PeerV4};
use shoal_store::{Announce, LockedShard, Place, Store};

use crate::data::{self, Random, SHARDS};
use crate::model::{BATCH, Demand, PASSES};

/// The number of peers in a reply, as in the published load.
const PEERS_WANTED: usize = 30;

const REPLY_BYTES: usize = 6 * PEERS_WANTED;

/// The number of peers of each swarm that is not hot.
const COLD_PEERS: usize = 5;

/// The sizes of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) torrents: usize,
    pub(crate) hot_peers: usize,
    /// The duration of a round.
    pub(crate) round: Duration,
}

/// A peer of a swarm, with the action of its refreshes.
type Member = (InfoHash, PeerV4, Action);

/// A store with many small swarms and a hot one.
pub(crate) struct World {
    store: Store,
    cold: Vec<Member>,
    hot: Vec<Member>,
}

impl World {
    pub(crate) fn new(size: Size) -> Self {
        let (store, mut rng) = (data::store(), fastrand::Rng::with_seed(21));
        let mut swarm = |peers: usize| -> Vec<Member> {
            let info_hash = data::info_hash(&mut rng);
            let member = |at: usize| {
                let (peer, action) = (
                    PeerV4::random(&mut rng),
                    if at.is_multiple_of(2) { Action::Seed } else { Action::Leech },
                );
                data::put(&store.v4, &info_hash, peer, action, &mut rng);
                (info_hash, peer, action)
            };
            (0..peers).map(member).collect()
        };
        let cold = (0..size.torrents).flat_map(|_| swarm(COLD_PEERS)).collect();
        let hot = swarm(size.hot_peers);
        Self { store, cold, hot }
    }
}

/// An announce of a batch.
struct Request {
    place: Place,
    announce: Announce<PeerV4>,
    rng: fastrand::Rng,
    is_large: bool,
    reply: [u8; REPLY_BYTES],
}

/// A worker and its batch, which goes through the same passes as those of the engine (`engine::udp::batch`).
struct Worker<'w> {
    world: &'w World,
    rng: fastrand::Rng,
    hot_share: f64,
    batch: Vec<Request>,
    /// The indices of the requests of each shard.
    chains: [Vec<usize>; SHARDS],
    /// The shards with requests, in the order of their first ones.
    shards: Vec<usize>,
}

impl<'w> Worker<'w> {
    fn new(world: &'w World, number: usize, hot_share: f64) -> Self {
        let rng = fastrand::Rng::with_seed(100 + number as u64);
        let (batch, chains, shards) = (Vec::new(), [const { Vec::new() }; SHARDS], Vec::new());
        Self { world, rng, hot_share, batch, chains, shards }
    }

    /// Draws a batch of refreshes, locates their swarms, and chains them by shard.
    fn draw(&mut self) {
        self.batch.clear();
        self.chains.iter_mut().for_each(Vec::clear);
        self.shards.clear();
        for index in 0..BATCH {
            let members = if self.rng.f64() < self.hot_share { &self.world.hot } else { &self.world.cold };
            let (info_hash, peer, action) = members[self.rng.usize(..members.len())];
            let place = self.world.store.v4.locate(&info_hash);
            let announce = Announce { peer, action, peers_wanted: PEERS_WANTED };
            let (rng, shard) = (self.rng.fork(), place.shard());
            self.batch.push(Request { place, announce, rng, is_large: false, reply: [0; REPLY_BYTES] });
            if self.chains[shard].is_empty() {
                self.shards.push(shard);
            }
            self.chains[shard].push(index);
        }
    }

    /// Takes the batch through one of the passes.
    fn pass(&mut self, pass: usize) {
        match pass {
            0 => self.visit(|_| true, |shard, request| shard.prefetch_swarm(&mut request.place)),
            1 => self.visit(|_| true, |shard, request| shard.prefetch_entry(&mut request.place)),
            2 => self.visit(
                |_| true,
                |shard, request| request.is_large = shard.prefetch_found(&mut request.place),
            ),
            3 => self.visit(
                |request| request.is_large,
                |shard, Request { place, announce, rng, is_large, .. }| {
                    if *is_large {
                        shard.prefetch_peers(place, announce, false, rng.clone());
                    }
                },
            ),
            _ => self.visit(
                |_| true,
                |shard, Request { place, announce, rng, reply, .. }| {
                    let announced = shard.announce(place, announce, 1000, rng, reply);
                    assert!(announced.is_ok(), "the store has room");
                },
            ),
        }
    }

    /// Visits the requests of all shards that have wanted ones. Shards whose lock is taken come last.
    fn visit(
        &mut self,
        is_wanted: impl Fn(&Request) -> bool,
        mut visit: impl FnMut(&mut LockedShard<'_, PeerV4>, &mut Request),
    ) {
        let Self { world, batch, chains, shards, .. } = self;
        let mut visit_chain = |mut shard: LockedShard<'_, PeerV4>, batch: &mut [Request], chain: &[usize]| {
            chain.iter().for_each(|&index| visit(&mut shard, &mut batch[index]));
        };
        let mut busy = [None; SHARDS];
        for (&shard, busy) in shards.iter().zip(&mut busy) {
            if !chains[shard].iter().any(|&index| is_wanted(&batch[index])) {
                continue;
            }
            match world.store.v4.try_lock(shard) {
                Some(locked) => visit_chain(locked, batch, &chains[shard]),
                None => *busy = Some(shard),
            }
        }
        for shard in busy.into_iter().flatten() {
            visit_chain(world.store.v4.lock(shard), batch, &chains[shard]);
        }
    }
}

/// Runs `work` in `workers` threads, each on a core of its own, and returns the results.
fn on_cores<T: Send>(workers: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(workers);
    let run = |worker| {
        let mut core = CpuSet::new();
        core.set(worker);
        // Where this is forbidden, the kernel usually spreads the threads as well.
        let _ = sched_setaffinity(None, &core);
        start.wait();
        work(worker)
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || run(worker))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect()
    })
}

/// Returns the announces per second of one worker in each of `worlds`, all at the same time. The same world may be
/// there several times.
pub(crate) fn announces_per_s(worlds: &[&World], hot_share: f64, extra_ns: f64, round: Duration) -> f64 {
    let rates = on_cores(worlds.len(), |number| {
        let mut worker = Worker::new(worlds[number], number, hot_share);
        let (start, mut batches) = (Instant::now(), 0_u32);
        loop {
            worker.draw();
            spin(extra_ns * BATCH as f64);
            (0..PASSES).for_each(|pass| worker.pass(pass));
            batches += 1;
            let elapsed = start.elapsed();
            if elapsed >= round {
                return f64::from(batches) * BATCH as f64 / elapsed.as_secs_f64();
            }
        }
    });
    rates.iter().sum()
}

/// Keeps the core busy, in place of work that this benchmark leaves out.
fn spin(ns: f64) {
    if ns > 0.0 {
        let (start, time) = (Instant::now(), Duration::from_secs_f64(ns / 1e9));
        while start.elapsed() < time {}
    }
}

/// Returns the demand of an announce where `workers` use the store in turn. Only one of them works at a time, so none
/// waits for a lock, but the cache lines that it needs were often written by another core last.
pub(crate) fn demand(world: &World, workers: usize, hot_share: f64, round: Duration) -> Demand {
    let (turn, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let demands = on_cores(workers, |number| {
        let mut worker = Worker::new(world, number, hot_share);
        let start = Instant::now();
        let (mut batches, mut outside, mut holds) = (0_u32, Duration::ZERO, [Duration::ZERO; PASSES]);
        while !is_over.load(Ordering::Acquire) {
            // Without a pause, for which a hypervisor may take the processor away.
            if turn.load(Ordering::Acquire) % workers != number {
                continue;
            }
            let mut before = Instant::now();
            let mut lap = || core::mem::replace(&mut before, Instant::now()).elapsed();
            worker.draw();
            outside += lap();
            for (pass, hold) in holds.iter_mut().enumerate() {
                worker.pass(pass);
                *hold += lap();
            }
            batches += 1;
            is_over.fetch_or(start.elapsed() >= round, Ordering::AcqRel);
            turn.fetch_add(1, Ordering::AcqRel);
        }
        let each = |time: Duration| time.as_secs_f64() * 1e9 / (f64::from(batches.max(1)) * BATCH as f64);
        Demand { outside_ns: each(outside), holds_ns: holds.map(each) }
    });
    let mean = |of: &dyn Fn(&Demand) -> f64| demands.iter().map(of).sum::<f64>() / demands.len() as f64;
    let holds_ns = core::array::from_fn(|pass| mean(&|demand| demand.holds_ns[pass]));
    Demand { outside_ns: mean(&|demand| demand.outside_ns), holds_ns }
}
