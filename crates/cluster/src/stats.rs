//! The node, as the control listener sees it.

use core::fmt;
use std::sync::Arc;

use shoal_control::cluster::{Node, SharedValues};
use shoal_control::metrics::Page;
use shoal_control::stats::{Cluster, ClusterNode};

use crate::protocol::{NodeStatus, Status};
use crate::{Observed, metrics};

impl Node for Observed {
    fn is_ready(&self) -> bool {
        self.status.latest().is_ready
    }

    fn stats(&self) -> Cluster {
        let link = &self.link;
        let (received, sent) = (&link.received, &link.sent);
        let status = self.status.latest();
        let Status { name, id, state, is_ready, nodes, counters } = &*status;
        let counts =
            |counts: &[(&str, u64)]| counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        let counters = serde_json::to_value(counters).and_then(serde_json::from_value);
        Cluster {
            name: self.cluster.clone(),
            node: name.clone(),
            id: id.clone(),
            state: state.name().to_owned(),
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
            shared: self.shared.as_ref().map(|shared| shared.stats()),
            credit: self.credit.as_ref().map(|credit| credit.stats()),
        }
    }

    fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        metrics::encode(self, page)
    }

    fn values(&self) -> Option<Arc<dyn SharedValues>> {
        self.shared.clone().map(|state| state as Arc<dyn SharedValues>)
    }
}

fn node(status: &NodeStatus) -> ClusterNode {
    let NodeStatus { name, id, state, heard_ms_ago, round_trip_ms, lag_ms, behind, deltas_per_s } = status;
    ClusterNode {
        name: name.clone(),
        id: id.clone(),
        state: state.name().to_owned(),
        seen_ms_ago: *heard_ms_ago,
        round_trip_ms: *round_trip_ms,
        lag_ms: *lag_ms,
        behind: *behind,
        deltas_per_s: *deltas_per_s,
    }
}
