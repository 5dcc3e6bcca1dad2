//! How the throughput of the tracker grows with its workers, if a share of all announces concerns one swarm.
//!
//! `cargo xtask bench cores [--json]`. Announces of real threads are measured as far as there are cores, at most two;
//! a queueing model, which is fed with the times that were measured, predicts the rest ([`model`]). Nothing passes a
//! network: the workers draw the requests themselves. Without `--bench` (as under `cargo test`) everything runs once at
//! a tiny size.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../store/data.rs"]
#[expect(dead_code, reason = "the other benchmarks of the store use the rest")]
mod data;
mod model;
mod workers;

use std::thread::available_parallelism;
use std::time::Duration;

use model::{Demand, Demands, PASSES, Plan};
use workers::{Size, World};

/// The shares of announces that concern the hot swarm.
const HOT_SHARES: [f64; 4] = [0.0, 0.01, 0.1, 0.5];

/// The passes in which a worker takes locks.
const PASS_NAMES: [&str; PASSES] =
    ["prefetch-swarm", "prefetch-entry", "prefetch-found", "prefetch-peers", "apply"];

const CORES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// CPU time of the kernel for each datagram received and sent, as measured with `echo` (bench-runs/ways-tried.md).
const KERNEL_NS: f64 = 2700.0;

/// Time of an announce in addition to that in the store, and the name of the figures: the store alone, in which locks
/// matter most, and with the kernel.
const WORKS: [(f64, &str); 2] = [(0.0, "store"), (KERNEL_NS, "with-kernel")];

/// The largest difference from mean value analysis that the simulation may have, due to its finite length.
const CHECK_MAX: f64 = 0.03;

/// The number of batches of a simulation for one worker; for more workers there are more.
const BATCHES: usize = 4_000;

const FULL: Size = Size { torrents: 200_000, hot_peers: 100_000, round: Duration::from_millis(30) };
const TINY: Size = Size { torrents: 100, hot_peers: 100, round: Duration::from_millis(1) };

/// The number of rounds of each measurement. The best counts, since a disturbance only makes a round slower. Rounds are
/// short, so that some are undisturbed even on a virtual machine whose host is busy.
const ROUNDS: usize = 60;

/// Prints figures, as text or as lines of JSON.
struct Output {
    json: bool,
}

impl Output {
    fn title(&self, title: &str) {
        if !self.json {
            println!("\n{title}");
        }
    }

    fn figure(&self, name: &str, value: f64, unit: &str) {
        if self.json {
            println!(r#"{{"name":"cores/{name}","value":{value:.3},"unit":"{unit}"}}"#);
        } else {
            println!("{name:<40} {value:>12.3} {unit}");
        }
    }
}

fn main() {
    let flag = |name: &str| std::env::args().any(|argument| argument == name);
    let is_tiny = !flag("--bench");
    let (size, rounds) = if is_tiny { (TINY, 1) } else { (FULL, ROUNDS) };
    let output = Output { json: flag("--json") };
    let difference = model::check();
    assert!(difference < CHECK_MAX, "the simulation differs from mean value analysis by {difference}");
    output.title("The simulation against mean value analysis");
    output.figure("model/largest-difference", difference * 100.0, "%");

    let cores = available_parallelism().map_or(1, |cores| cores.get().min(2));
    let worlds = [World::new(size), World::new(size)];
    let demands: Vec<Demands> =
        (1..=cores).map(|workers| measure_demands(&output, &worlds[0], workers, (size, rounds))).collect();
    compare(&output, &worlds, &demands, (size, rounds));
    predict(&output, demands[cores - 1], is_tiny);
}

/// Measures what an announce costs if this many workers share a store, and none of them waits.
fn measure_demands(output: &Output, world: &World, workers: usize, (size, rounds): (Size, usize)) -> Demands {
    let sum = |demand: &Demand| demand.outside_ns + demand.holds_ns.iter().sum::<f64>();
    let [hot, cold] = [1.0, 0.0].map(|hot_share| {
        let demands = (0..rounds).map(|_| workers::demand(world, workers, hot_share, size.round));
        demands.min_by(|a, b| sum(a).total_cmp(&sum(b))).unwrap_or_default()
    });
    output.title(&format!("CPU time of an announce in a batch, {workers} worker(s) in turn"));
    for (name, demand) in [("hot", hot), ("cold", cold)] {
        output.figure(&format!("demand/{workers}/{name}/outside"), demand.outside_ns, "ns");
        for (pass, hold_ns) in PASS_NAMES.into_iter().zip(demand.holds_ns) {
            output.figure(&format!("demand/{workers}/{name}/{pass}"), hold_ns, "ns under the lock");
        }
    }
    Demands { hot, cold }
}

/// Measures the throughput of as many workers as there are demands, and compares it with the prediction.
fn compare(output: &Output, worlds: &[World; 2], demands: &[Demands], (size, rounds): (Size, usize)) {
    let [first, second] = worlds;
    let cores = demands.len();
    let works = WORKS.into_iter().flat_map(|work| HOT_SHARES.map(|hot_share| (work, hot_share)));
    let mut best: Vec<_> = works.map(|work| (work, [0.0_f64; 3])).collect();
    // All in turn, so that a disturbance spoils a round of each rather than all rounds of one.
    for _ in 0..rounds {
        for (((extra_ns, _), hot_share), rates) in &mut best {
            let arrangements = [&[first][..], &[first, first], &[first, second]];
            for (rate, worlds) in rates.iter_mut().zip(arrangements) {
                let worlds = &worlds[..worlds.len().min(cores)];
                *rate = rate.max(workers::announces_per_s(worlds, *hot_share, *extra_ns, size.round));
            }
        }
    }
    for (((extra_ns, work), hot_share), [one, shared, apart]) in best {
        let name = |rest: &str| format!("{work}/hot={}/{rest}", hot_share * 100.0);
        output.title(&format!("Measured and predicted: {work}, {} % on one swarm", hot_share * 100.0));
        for (workers, rate) in [(1, one), (2, shared)].into_iter().take(cores) {
            let (shards, demands) = (data::SHARDS, demands[workers - 1]);
            let batches = BATCHES * rounds.min(4);
            let plan = Plan { workers, shards, hot_share, demands, extra_ns, batches };
            let predicted = model::announces_per_s(&plan);
            output.figure(&name(&format!("{workers}/measured")), rate / 1e6, "M/s");
            output.figure(&name(&format!("{workers}/predicted")), predicted / 1e6, "M/s");
            output.figure(&name(&format!("{workers}/error")), (predicted / rate - 1.0) * 100.0, "%");
        }
        output.figure(&name("gain"), shared / one, "times one worker");
        output.figure(&name("gain-apart"), apart / one, "times one worker, a store each");
    }
}

/// Prints what the model predicts for more cores.
fn predict(output: &Output, demands: Demands, is_tiny: bool) {
    for (extra_ns, work) in WORKS {
        output.title(&format!("Predicted: {work}"));
        for (hot_share, workers) in HOT_SHARES.into_iter().flat_map(|hot| CORES.map(|cores| (hot, cores))) {
            let batches = if is_tiny { 2 * workers } else { BATCHES * workers.clamp(4, 16) };
            let plan =
                Plan { workers, shards: model::shards(workers), hot_share, demands, extra_ns, batches };
            let rate = model::announces_per_s(&plan);
            let alone = model::announces_per_s(&Plan { workers: 1, ..plan });
            let name = format!("predicted/{work}/hot={}/cores={workers}", hot_share * 100.0);
            output.figure(&name, rate / 1e6, "M/s");
            output.figure(&format!("{name}/gain"), rate / alone, "times one worker");
        }
    }
}
