//! Several nodes, a bus and clients on virtual time, under faults.
//!
//! Everything follows from a seed: `SHOAL_SIMULATION_SEED=N` replays one schedule and prints what happens in it, and
//! `SHOAL_SIMULATION_SCHEDULES=N` runs another number of them. A schedule has churn and faults for a while; then the faults
//! end, and two intervals later every node must have exactly the live peers.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may fail by panicking, and prints a replay"
)]

mod bus;
mod fault;
mod swarms;
mod world;

use std::panic;
use std::thread;

use world::World;

/// The number of schedules, unless the environment says otherwise.
const SCHEDULES: u64 = 1_000;

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs a schedule, and names its seed if it fails.
fn run(seed: u64, is_verbose: bool) {
    let result = panic::catch_unwind(|| World::new(seed, is_verbose).run());
    assert!(result.is_ok(), "schedule {seed} failed; replay it with SHOAL_SIMULATION_SEED={seed}");
}

#[test]
fn every_schedule_converges_to_the_live_peers() {
    if let Some(seed) = environment("SHOAL_SIMULATION_SEED") {
        return run(seed, true);
    }
    let schedules = environment("SHOAL_SIMULATION_SCHEDULES").unwrap_or(SCHEDULES);
    thread::scope(|scope| {
        for first in 0..2 {
            scope.spawn(move || (first..schedules).step_by(2).for_each(|seed| run(seed, false)));
        }
    });
}

#[test]
fn a_schedule_can_be_replayed() {
    let [one, other] = [(); 2].map(|()| World::new(7, false).run());
    assert_eq!(one, other);
}

#[test]
fn nodes_that_start_at_once_are_ready_within_seconds() {
    for nodes in [2, 3, 8, 24] {
        let ready_ms = World::calm(nodes).ready_ms();
        assert!(ready_ms < 6_000, "{nodes} nodes are ready after {ready_ms} ms");
    }
}
