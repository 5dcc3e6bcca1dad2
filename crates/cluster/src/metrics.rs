//! The metrics of a node of a cluster. A tracker without a cluster has none of them.

use core::fmt;
use core::time::Duration;

use shoal_control::metrics::{Page, Unit};
use shoal_control::stats::{CountMap, CreditStats, SharedStateStats};

use crate::protocol::{Counters, NodeState, Status};
use crate::{Observed, SwarmCounters};

pub(crate) fn encode(observed: &Observed, page: &mut Page<'_>) -> fmt::Result {
    let status = observed.status.latest();
    encode_link(observed, page)?;
    encode_nodes(&status, page)?;
    encode_counters(&status.counters, page)?;
    encode_swarms(&observed.swarms, page)?;
    observed.shared.as_ref().map_or(Ok(()), |shared| encode_shared(&shared.stats(), page))?;
    observed.credit.as_ref().map_or(Ok(()), |credit| encode_credit(&credit.stats(), page))
}

fn encode_link(observed: &Observed, page: &mut Page<'_>) -> fmt::Result {
    let link = &observed.link;
    let (received, sent) = (&link.received, &link.sent);
    page.gauge(
        "shoal_cluster_connected",
        "Whether NATS is there: 1 or 0.",
        None,
        u64::from(link.is_connected()),
    )?;
    page.counter("shoal_cluster_connects", "Connections to NATS that were made.", link.connects())?;
    page.counters(
        "shoal_cluster_messages",
        "Messages of the cluster that NATS has carried.",
        directions(received.messages.read(), sent.messages.read()),
    )?;
    page.counters(
        "shoal_cluster_bytes",
        "Bytes of the messages of the cluster, without the overhead of NATS.",
        directions(received.bytes.read(), sent.bytes.read()),
    )?;
    page.counters(
        "shoal_cluster_messages_dropped",
        "Messages of the cluster that were dropped, because a queue was full (slow_consumer: how often that happened) or the server does not permit their size (too_large).",
        [
            ([("reason", "overflow")], link.overflowed.read()),
            ([("reason", "slow_consumer")], link.slow_consumer.read()),
            ([("reason", "unsent")], link.unsent.read() + observed.status.latest().counters.unsent),
            ([("reason", "too_large")], link.too_large.read()),
        ],
    )?;
    page.counter(
        "shoal_cluster_headers_ignored",
        "Headers of messages of NATS that were left out, because they are malformed or too large.",
        link.ignored_headers.read(),
    )
}

fn encode_nodes(status: &Status, page: &mut Page<'_>) -> fmt::Result {
    page.gauge(
        "shoal_cluster_ready",
        "Whether the node has what the others have, so that clients can be sent to it: 1 or 0.",
        None,
        u64::from(status.is_ready),
    )?;
    let nodes = NodeState::ALL.map(|state| {
        let count = status.nodes.iter().filter(|node| node.state == state).count();
        ([("state", state.name())], count as u64)
    });
    page.gauges("shoal_cluster_nodes", "Other nodes of the cluster, by state.", None, nodes)?;
    let behind: u64 = status.nodes.iter().map(|node| node.behind).sum();
    page.gauge(
        "shoal_cluster_batches_behind",
        "Batches of other nodes that were sent and not applied here.",
        None,
        behind,
    )?;
    let lag_ms =
        status.nodes.iter().filter(|node| node.state != NodeState::Lost).filter_map(|node| node.lag_ms).max();
    page.gauge(
        "shoal_cluster_lag",
        "How long the last batch of another node was on its way, of the node with the longest time.",
        Some(Unit::Seconds),
        Duration::from_millis(lag_ms.unwrap_or(0)).as_secs_f64(),
    )
}

fn encode_counters(counters: &Counters, page: &mut Page<'_>) -> fmt::Result {
    page.counters(
        "shoal_cluster_deltas",
        "Changes of peers: those of other nodes that were applied, and those of this node.",
        directions(counters.deltas_in, counters.deltas_out),
    )?;
    page.counters(
        "shoal_cluster_batches",
        "Batches of changes: those of other nodes that were applied, and those of this node.",
        directions(counters.batches_in, counters.batches_out),
    )?;
    page.counter(
        "shoal_cluster_batches_lost",
        "Batches of changes that never came, so that a snapshot had to replace them.",
        counters.lost,
    )?;
    let kind = |kind, count| ([("kind", kind)], count);
    page.counters(
        "shoal_cluster_batches_irregular",
        "Batches of other nodes that came twice (duplicate), too early (reordered) or were requested again, those that were sent again for others, and streams that differ from those of their nodes (diverged).",
        [
            kind("duplicate", counters.duplicates),
            kind("reordered", counters.reordered),
            kind("requested", counters.requested),
            kind("resent", counters.resent),
            kind("diverged", counters.diverged),
        ],
    )?;
    let reason = |reason, count| ([("reason", reason)], count);
    page.counters(
        "shoal_cluster_messages_refused",
        "Messages of other nodes that were refused: not well-formed, of another version, in the name of this node, or too many.",
        [
            reason("malformed", counters.malformed),
            reason("other_version", counters.other_version),
            reason("forged", counters.forged),
            reason("too_many", counters.refused),
        ],
    )?;
    page.counters(
        "shoal_cluster_resyncs",
        "Snapshots of other nodes that were received to the end, or not, and those that the other node refused because it was busy.",
        [
            ([("outcome", "complete")], counters.resyncs),
            ([("outcome", "failed")], counters.failed_resyncs),
            ([("outcome", "refused")], counters.refused_resyncs),
        ],
    )?;
    page.counter("shoal_cluster_exports", "Snapshots that were begun for other nodes.", counters.exports)?;
    page.counters(
        "shoal_cluster_relayed",
        "Messages with offers and answers between clients of different nodes.",
        directions(counters.relayed_in, counters.relayed_out),
    )
}

/// The state that all nodes share.
fn encode_shared(shared: &SharedStateStats, page: &mut Page<'_>) -> fmt::Result {
    page.gauge(
        "shoal_cluster_shared_followed",
        "Whether the node follows the shared state of the cluster: 1 or 0.",
        None,
        u64::from(shared.state == "followed"),
    )?;
    page.gauges(
        "shoal_cluster_shared_entries",
        "Entries of the shared state of the cluster, by kind.",
        None,
        by("kind", &shared.entries),
    )?;
    page.counter(
        "shoal_cluster_shared_syncs",
        "How often the whole shared state of the cluster was read.",
        shared.syncs,
    )?;
    page.counters(
        "shoal_cluster_shared_ignored",
        "Keys and values of the shared state of the cluster that were ignored: this version cannot read them, or the node has as many entries as it keeps.",
        by("reason", &shared.ignored),
    )
}

/// The announces of users on their way to the stream.
fn encode_credit(credit: &CreditStats, page: &mut Page<'_>) -> fmt::Result {
    page.gauge(
        "shoal_cluster_credit_accepted",
        "Whether the stream takes the announces of users: 1 or 0.",
        None,
        u64::from(credit.state == "accepted"),
    )?;
    page.counter("shoal_cluster_credit_stored", "Announces of users that the stream has.", credit.stored)?;
    page.gauge(
        "shoal_cluster_credit_waiting",
        "Announces of users that wait for the stream.",
        None,
        credit.waiting,
    )?;
    page.gauge(
        "shoal_cluster_credit_spool",
        "Size of the files in which announces of users wait for the stream.",
        Some(Unit::Bytes),
        credit.spool_bytes,
    )?;
    page.counters(
        "shoal_cluster_credit_lost",
        "Announces of users that were lost: too many at once (ring_full), too many waited (spool_full), or a file could not be read again (unreadable).",
        by("reason", &credit.lost),
    )?;
    page.counters(
        "shoal_cluster_credit_skipped",
        "Announces with a token that count for no user: it names none, or is not valid and the client leaves.",
        by("reason", &credit.skipped),
    )
}

/// The peers of other nodes, and the changes of this node that no other node was told.
fn encode_swarms(counters: &SwarmCounters, page: &mut Page<'_>) -> fmt::Result {
    page.sums([&*counters.replication].into_iter())?;
    page.sums(counters.clients.iter().map(|clients| &**clients))?;
    page.counter(
        "shoal_cluster_deltas_unrecorded",
        "Changes of peers that other nodes were not told, because the ring of a worker was full.",
        counters.unrecorded.iter().map(|lost| lost.read()).sum(),
    )
}

/// Returns the series of a label.
fn by<'c>(
    label: &'static str,
    counts: &'c CountMap,
) -> impl Iterator<Item = ([(&'static str, &'c str); 1], u64)> {
    counts.iter().map(move |(value, count)| ([(label, &**value)], *count))
}

fn directions(incoming: u64, outgoing: u64) -> [([(&'static str, &'static str); 1], u64); 2] {
    [([("direction", "in")], incoming), ([("direction", "out")], outgoing)]
}
