//! The node, as the statistics of the control listener tell it.

use shoal_control::stats::{Cluster, ClusterNode, CreditStats, SharedStateStats};

use crate::Observed;
use crate::credit;
use crate::protocol::{NodeState, NodeStatus, Status};
use crate::shared::{Phase, Summary};

/// Returns the state of the node, at most a quarter of a second old.
pub(crate) fn collect(observed: &Observed) -> Cluster {
    let (link, flow) = (&observed.link, observed.link.flow());
    let status = observed.status.latest();
    let Status { name, id, state, is_ready, nodes, counters } = &*status;
    let counts =
        |counts: &[(&str, u64)]| counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
    let counters = serde_json::to_value(counters).and_then(serde_json::from_value);
    Cluster {
        name: observed.cluster.clone(),
        node: name.clone(),
        id: id.clone(),
        state: state_name(*state),
        ready: *is_ready,
        connected: link.is_connected(),
        connects: link.connects(),
        server: link.server(),
        fault: link.fault(),
        messages: counts(&[("in", flow.messages_in), ("out", flow.messages_out)]),
        bytes: counts(&[("in", flow.bytes_in), ("out", flow.bytes_out)]),
        dropped: counts(&[
            ("overflow", link.overflowed()),
            ("slow_consumer", link.slow_consumer()),
            ("unsent", link.unsent()),
            ("too_large", link.too_large()),
        ]),
        counters: counters.unwrap_or_default(),
        nodes: nodes.iter().map(node).collect(),
        shared: observed.shared.as_ref().map(|shared| shared_stats(shared.summary())),
        credit: observed.credit.as_ref().map(|credit| credit_stats(credit.summary())),
    }
}

fn shared_stats(summary: Summary) -> SharedStateStats {
    let entries = summary.entries().map(|(kind, count)| (kind.to_owned(), count)).into();
    let ignored = summary.ignored.map(|(reason, count)| (reason.to_owned(), count)).into();
    let Summary { phase, bucket, unwritten, fill_fault, values_fault, syncs, .. } = summary;
    let (state, fault) = match phase {
        Phase::Followed => ("followed", fill_fault),
        Phase::Away(reason) => ("away", reason),
        Phase::Unavailable(reason) => ("unavailable", Some(reason)),
    };
    SharedStateStats {
        bucket,
        state: state.to_owned(),
        fault,
        unwritten: unwritten as u64,
        values_fault,
        entries,
        ignored,
        syncs,
    }
}

fn credit_stats(summary: credit::Summary) -> CreditStats {
    let (state, fault) = match summary.phase {
        credit::Phase::Accepted => ("accepted", None),
        credit::Phase::Away(reason) => ("away", reason),
        credit::Phase::Refused(reason) => ("refused", Some(reason)),
    };
    let counts =
        |counts: &[(&str, u64)]| counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
    CreditStats {
        stream: summary.stream,
        state: state.to_owned(),
        fault,
        stored: summary.stored,
        waiting: summary.waiting,
        spool_bytes: summary.spool_bytes,
        lost: counts(&summary.lost),
        skipped: counts(&summary.skipped),
    }
}

fn node(status: &NodeStatus) -> ClusterNode {
    let NodeStatus { name, id, state, heard_ms_ago, round_trip_ms, lag_ms, behind, deltas_per_s } = status;
    ClusterNode {
        name: name.clone(),
        id: id.clone(),
        state: state_name(*state),
        seen_ms_ago: *heard_ms_ago,
        round_trip_ms: *round_trip_ms,
        lag_ms: *lag_ms,
        behind: *behind,
        deltas_per_s: *deltas_per_s,
    }
}

/// Returns the name of a state in the protocol's spelling.
pub(crate) fn state_name(state: NodeState) -> String {
    serde_json::to_value(state).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_names() {
        assert_eq!(state_name(NodeState::OtherVersion), "other-version");
        assert_eq!(state_name(NodeState::Alone), "alone");
    }
}
