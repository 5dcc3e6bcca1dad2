//! The CPU time of being a node.

use super::nodes::{cpu_s, saturate, start_node, wait_for_others};
use super::tracker::Tracker;
use super::{Run, percentile};

/// Pairs of measurements, and the seconds of each.
const PAIRS: usize = 7;
const SECONDS: u32 = 6;

/// The CPU time of a measurement in nanoseconds.
struct Cost {
    per_reply: f64,
    /// That of another node, per change that it received.
    per_change: f64,
    /// The changes per reply.
    changes: f64,
}

pub(crate) fn run(run: &mut Run) {
    let Some(lab) = run.lab.clone() else { return };
    let nats = shoal_testkit::nats::Server::start(&shoal_testkit::nats::Options::default()).unwrap();
    let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let servers = [nats.url()];
    let start =
        |index: usize, name: &str, servers: &[String]| start_node(directories[index].path(), name, servers);
    let alone = start(0, "alone", &[]);
    let (one, other) = (start(1, "one", &servers), start(2, "other", &servers));
    wait_for_others(&one, 1);
    wait_for_others(&other, 1);
    let changes_in = || other.metric("shoal_cluster_deltas_total{direction=\"in\"}").unwrap();
    let measure = |tracker: &Tracker| {
        let (before_s, other_s, changes) = (cpu_s(tracker), cpu_s(&other), changes_in());
        let replies = saturate(&lab, tracker, SECONDS);
        let changes = changes_in() - changes;
        Cost {
            per_reply: (cpu_s(tracker) - before_s) * 1e9 / replies,
            per_change: (cpu_s(&other) - other_s) * 1e9 / changes,
            changes: changes / replies,
        }
    };
    // The first pair fills both.
    let pairs: Vec<[Cost; 2]> = (0..=PAIRS).map(|_| [measure(&alone), measure(&one)]).skip(1).collect();
    let median =
        |read: fn(&[Cost; 2]) -> f64| percentile(&mut pairs.iter().map(read).collect::<Vec<_>>(), 50);
    run.figures.print("publishing/alone", median(|[alone, _]| alone.per_reply), "ns per reply");
    run.figures.print("publishing/node", median(|[_, node]| node.per_reply), "ns per reply");
    run.figures.print("publishing/changes", median(|[_, node]| node.changes), "per reply");
    let added = median(|[alone, node]| 100.0 * (node.per_reply / alone.per_reply - 1.0));
    run.judge("publishing/added", added, "%", 5.0);
    let per_change = median(|[alone, node]| (node.per_reply - alone.per_reply) / node.changes);
    run.figures.print("publishing/each", per_change, "ns per change");
    let changes_lost = one.metric("shoal_cluster_batches_lost_total").unwrap()
        + other.metric("shoal_cluster_batches_lost_total").unwrap();
    run.figures.print("publishing/batches-lost", changes_lost, "");
    run.figures.print("applying/process", median(|[_, node]| node.per_change), "ns per change");
}
