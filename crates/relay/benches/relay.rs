//! Micro-benchmarks of the swarms: the mean time of a call and the longest call, while one swarm or the number of swarms
//! grows, and while all peers leave or expire.
//!
//! `cargo bench -p shoal-relay --bench relay -- [--json] [--filter TEXT]`; without `--bench` (as under `cargo test`) every
//! case runs once at a tiny size, so that the tests cover it.
//!
//! Times are CPU time of the thread, so that other processes do not count. Interrupts still do. Work of the swarms
//! themselves happens at the same call in every run, so the runs are repeated: for each stretch of calls the minimum of
//! the maxima is taken, and the largest of these is the longest call.
#![forbid(unsafe_code)]

use std::net::Ipv4Addr;

use rustix::time::{ClockId, clock_gettime};
use shoal_base::transport::stream::Handle;
use shoal_base::{Action, InfoHash, PeerId};
use shoal_relay::{Address, Announce, OfferKey, OfferTarget, Settings, SwarmKey, Swarms};

const RUNS: usize = 4;

/// Number of calls in a stretch.
const STRETCH: usize = 1024;

/// The budget that a worker gives expiry at a time.
const BUDGET: usize = 512;

const LIFETIME_S: u32 = 400;

/// Whether all peers are in one swarm or each is in its own.
#[derive(Clone, Copy)]
enum Layout {
    OneSwarm,
    ManySwarms,
}

/// A run with a number of peers.
type Case = fn(u32) -> Times;

/// The times of the calls of one run.
#[derive(Default)]
struct Times {
    /// The longest call of each stretch, in ns.
    longest: Vec<u64>,
    calls: usize,
    total_ns: u64,
    /// The time that it takes to read the clock twice.
    overhead_ns: u64,
}

/// Returns the CPU time that the thread has used.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

struct World {
    swarms: Swarms,
    layout: Layout,
    rng: fastrand::Rng,
    targets: Vec<OfferTarget>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let filter =
        arguments.iter().position(|argument| argument == "--filter").and_then(|at| arguments.get(at + 1));
    let (peers, runs) = if flag("--bench") { (1_000_000, RUNS) } else { (3000, 1) };
    let cases: [(&str, Case); 6] = [
        ("peers/join", |peers| join(&mut World::new(Layout::OneSwarm), peers)),
        ("peers/announce", announce),
        ("peers/leave", |peers| leave(&mut World::filled(Layout::OneSwarm, peers), peers)),
        ("peers/expire", |peers| expire(&World::filled(Layout::OneSwarm, peers))),
        ("swarms/join", |peers| join(&mut World::new(Layout::ManySwarms), peers)),
        ("swarms/leave", |peers| leave(&mut World::filled(Layout::ManySwarms, peers), peers)),
    ];
    for (name, case) in cases {
        if filter.is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        let runs: Vec<Times> = (0..runs).map(|_| case(peers)).collect();
        let mean_ns = runs.iter().map(|run| run.total_ns / run.calls.max(1) as u64).min().unwrap_or(0);
        let stretches = runs.iter().map(|run| run.longest.len()).min().unwrap_or(0);
        let least = |stretch: usize| runs.iter().map(|run| run.longest[stretch]).min().unwrap_or(0);
        let longest_ns = (0..stretches).map(least).max().unwrap_or(0);
        for (figure, value, unit) in
            [("mean", mean_ns as f64, "ns"), ("longest", longest_ns as f64 / 1e3, "us")]
        {
            let name = format!("{name}={peers}/{figure}");
            if flag("--json") {
                println!(r#"{{"name":"{name}","value":{value},"unit":"{unit}"}}"#);
            } else {
                println!("{name:<32} {value:>10.1} {unit}");
            }
        }
    }
}

fn join(world: &mut World, peers: u32) -> Times {
    let mut times = Times::new();
    for peer in 0..peers {
        world.announce(peer, &[], 0, &mut times);
    }
    times
}

/// Announces of known peers, each with ten offers.
fn announce(peers: u32) -> Times {
    let mut world = World::filled(Layout::OneSwarm, peers);
    let offers: Vec<OfferKey> = (0..10_u8).map(|offer| world.swarms.offer_key(&[offer])).collect();
    let mut times = Times::new();
    let mut order = fastrand::Rng::with_seed(2);
    for _ in 0..peers.min(200_000) {
        world.announce(order.u32(..peers), &offers, 0, &mut times);
    }
    times
}

fn leave(world: &mut World, peers: u32) -> Times {
    let mut order: Vec<u32> = (0..peers).collect();
    fastrand::Rng::with_seed(3).shuffle(&mut order);
    let mut times = Times::new();
    for peer in order {
        let (key, peer_id, address) = (world.key(peer), peer_id(peer), address(peer));
        assert!(times.measure(|| world.swarms.leave(&key, &peer_id, address)).was_present);
    }
    times
}

fn expire(world: &World) -> Times {
    let mut times = Times::new();
    for now_s in LIFETIME_S.. {
        while times.measure(|| world.swarms.expire(now_s, BUDGET)).behind {}
        if world.swarms.totals().swarms == 0 {
            break;
        }
    }
    times
}

impl Times {
    fn new() -> Self {
        let overheads = (0..1000).map(|_| {
            let start_ns = cpu_ns();
            cpu_ns() - start_ns
        });
        Self { overhead_ns: overheads.min().unwrap_or(0), ..Self::default() }
    }

    fn measure<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let start_ns = cpu_ns();
        let result = call();
        let ns = (cpu_ns() - start_ns).saturating_sub(self.overhead_ns);
        if self.calls.is_multiple_of(STRETCH) {
            self.longest.push(0);
        }
        self.calls += 1;
        self.total_ns += ns;
        if let Some(longest) = self.longest.last_mut() {
            *longest = ns.max(*longest);
        }
        result
    }
}

impl World {
    fn new(layout: Layout) -> Self {
        let settings = Settings::new(1 << 30, LIFETIME_S, [1, 2]);
        Self { swarms: Swarms::new(&settings), layout, rng: fastrand::Rng::with_seed(1), targets: Vec::new() }
    }

    fn filled(layout: Layout, peers: u32) -> Self {
        let mut world = Self::new(layout);
        join(&mut world, peers);
        world
    }

    fn key(&self, peer: u32) -> SwarmKey {
        let mut info_hash = InfoHash([7; 20]);
        if let Layout::ManySwarms = self.layout {
            info_hash.0[..4].copy_from_slice(&peer.to_be_bytes());
        }
        self.swarms.swarm_key(&info_hash)
    }

    fn announce(&mut self, peer: u32, offers: &[OfferKey], now_s: u32, times: &mut Times) {
        let key = self.key(peer);
        let announce = Announce {
            address: address(peer),
            source: self.swarms.source(Ipv4Addr::from(peer).into()),
            peer_id: peer_id(peer),
            action: if peer.is_multiple_of(3) { Action::Seed } else { Action::Leech },
            may_join: true,
            is_exempt: false,
            offers,
        };
        let Self { swarms, rng, targets, .. } = self;
        let announced = times.measure(|| swarms.announce(&key, &announce, now_s, rng, targets));
        assert!(announced.is_ok());
    }
}

fn address(peer: u32) -> Address {
    Address { worker: 0, handle: Handle { index: peer, generation: 0 } }
}

fn peer_id(peer: u32) -> PeerId {
    let mut id = PeerId([b'x'; 20]);
    id.0[..4].copy_from_slice(&peer.to_be_bytes());
    id
}
