//! A cluster of three nodes and three NATS servers on one machine.
//!
//! `cargo xtask bench cluster [--json] [--filter TEXT]`; without `--bench` (as under `cargo test`) each case runs once, small
//! and without load, so that the tests cover it. Exit code 1 if a figure is above its bar.
//!
//! **handed-out**: the milliseconds from the announce of a new peer at one node to the reply in which another one hands it
//! out, without load and beside announces of new peers at every node.
//!
//! **traffic**: the bytes of a change on the connection to NATS, under the same load.
//!
//! **publishing**: the CPU time of an announce at a tracker that is a node, against one that is not, when peers come and go
//! with few announces in between. The generator keeps both saturated.
//!
//! **applying**: the CPU time of the whole process of another node, per change that it receives meanwhile: the change itself,
//! its part of the connection and of a process that waits, on a processor whose caches the first node fills.
//!
//! **relay**: the time from an offer or an answer of a WebTorrent client to its receiver, at the same node and at another one.
//!
//! **kills**: requests that stay unanswered at the other nodes while a node is killed, and then one NATS server after the
//! other. The load keeps its schedule.
//!
//! **takedown**: the time from a request to the control listener of a node, which denies a torrent, to the refusal at another node.
//!
//! **hop**: the price of asking another node for each announce, which no node does. It is the ground for a decision about
//! swarms that are divided among nodes.
//!
//! Trackers run on processor 0 of two, everything else on processor 1.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says where, and that is enough")]

mod browsers;
mod cost;
#[path = "../support/figures.rs"]
mod figures;
mod handed_out;
mod hop;
mod kills;
mod nodes;
mod takedown;
#[path = "../support/tracker.rs"]
mod tracker;

use std::path::PathBuf;
use std::process::ExitCode;

use rustix::thread::{CpuSet, sched_setaffinity};

use self::figures::Figures;

/// The options of a run.
struct Run {
    figures: Figures,
    /// `shoal-lab`, which puts load on trackers. Without it, the cases are small.
    lab: Option<PathBuf>,
    /// Whether a figure is above its bar.
    is_above: bool,
}

impl Run {
    /// Prints a figure that has a bar.
    fn judge(&mut self, name: &str, value: f64, unit: &str, bar: f64) {
        self.figures.print(name, value, unit);
        self.figures.print(&format!("{name}/bar"), bar, unit);
        // A small case measures nothing.
        self.is_above |= self.lab.is_some() && value > bar;
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let after = |name: &str| {
        arguments.iter().position(|argument| argument == name).map(|at| arguments[at + 1].clone())
    };
    let is_chosen = |name: &str| after("--filter").is_none_or(|text| name.contains(&text));
    let lab = after("--lab").map(PathBuf::from).filter(|_| has("--bench"));
    let mut run = Run { figures: Figures { json: has("--json") }, lab, is_above: false };
    if run.lab.is_some() {
        let mut processor = CpuSet::new();
        processor.set(1);
        sched_setaffinity(None, &processor).unwrap();
    }
    type Case = (&'static str, fn(&mut Run));
    let cases: [Case; 6] = [
        ("handed-out traffic", handed_out::run),
        ("publishing applying", cost::run),
        ("relay", browsers::run),
        ("kills", kills::run),
        ("hop", hop::run),
        ("takedown", takedown::run),
    ];
    for (_, case) in cases.iter().filter(|(name, _)| is_chosen(name)) {
        case(&mut run);
    }
    if run.is_above { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Returns a percentile of the values.
fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100);
    values[rank.max(1) - 1]
}
