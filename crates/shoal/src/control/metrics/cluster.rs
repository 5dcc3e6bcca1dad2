//! The metrics of a node of a cluster. A tracker without a cluster has none of them.

use core::fmt;

use shoal_cluster::NodeState;

use super::page::Page;
use crate::cluster::Observed;
use crate::stats::state_name;

/// Every state of another node.
const STATES: [NodeState; 6] = [
    NodeState::Joining,
    NodeState::Ready,
    NodeState::Resyncing,
    NodeState::Alone,
    NodeState::OtherVersion,
    NodeState::Lost,
];

pub(super) fn encode(observed: &Observed, page: &mut Page<'_>) -> fmt::Result {
    let (link, flow, status) = (&observed.link, observed.link.flow(), observed.status.latest());
    let directions =
        |incoming, outgoing| [([("direction", "in")], incoming), ([("direction", "out")], outgoing)];
    page.gauge(
        "shoal_cluster_connected",
        "Whether NATS is there: 1 or 0.",
        None,
        link.is_connected().into(),
    )?;
    page.counter("shoal_cluster_connects", "Connections to NATS that were made.", link.connects())?;
    let nodes = STATES.map(|state| {
        let count = status.nodes.iter().filter(|node| node.state == state).count();
        ([("state", state_name(state))], count as u64)
    });
    page.gauges("shoal_cluster_nodes", "Other nodes of the cluster, by state.", None, nodes)?;
    page.counters(
        "shoal_cluster_messages",
        "Messages of the cluster that NATS has carried.",
        directions(flow.messages_in, flow.messages_out),
    )?;
    page.counters(
        "shoal_cluster_bytes",
        "Bytes of the messages of the cluster, without the overhead of NATS.",
        directions(flow.bytes_in, flow.bytes_out),
    )?;
    page.counters(
        "shoal_cluster_messages_dropped",
        "Messages of the cluster that were dropped, because a queue was full (slow_consumer: how often that happened).",
        [
            ([("reason", "overflow")], link.overflowed()),
            ([("reason", "slow_consumer")], link.slow_consumer()),
            ([("reason", "unsent")], link.unsent()),
        ],
    )?;
    let counters = &status.counters;
    page.counters(
        "shoal_cluster_deltas",
        "Changes of peers: those of other nodes that were applied, and those of this node.",
        directions(counters.deltas_in, counters.deltas_out),
    )?;
    page.counter(
        "shoal_cluster_batches_lost",
        "Batches of changes that never came, so that a snapshot had to replace them.",
        counters.lost,
    )?;
    page.counter(
        "shoal_cluster_messages_malformed",
        "Messages of the cluster that were not well-formed.",
        counters.malformed,
    )?;
    page.counters(
        "shoal_cluster_resyncs",
        "Snapshots of other nodes that were received to the end, or not.",
        [([("outcome", "complete")], counters.resyncs), ([("outcome", "failed")], counters.failed_resyncs)],
    )
}
