//! The node, as the statistics of the control listener tell it.

use shoal_control::stats::{Cluster, ClusterNode};

use crate::Observed;
use crate::protocol::{NodeState, NodeStatus, Status};

/// Returns the state of the node at this moment, a quarter of a second old at most.
pub(crate) fn collect(observed: &Observed) -> Cluster {
    let link = &observed.link;
    let (received, sent) = (&link.received, &link.sent);
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
        messages: counts(&[("in", received.messages.read()), ("out", sent.messages.read())]),
        bytes: counts(&[("in", received.bytes.read()), ("out", sent.bytes.read())]),
        dropped: counts(&[
            ("overflow", link.overflowed.read()),
            ("slow_consumer", link.slow_consumer.read()),
            ("unsent", link.unsent.read()),
            ("too_large", link.too_large.read()),
        ]),
        counters: counters.unwrap_or_default(),
        nodes: nodes.iter().map(node).collect(),
        shared: observed.shared.as_ref().map(|shared| shared.stats()),
        credit: observed.credit.as_ref().map(|credit| credit.stats()),
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

/// Returns the name of a state, as the protocol spells it.
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
