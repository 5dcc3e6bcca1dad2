//! Log lines on the nodes of the cluster. Each line reports a difference between two statuses of this node.
//!
//! A user of NATS can make invented nodes appear at any rate, so each minute has a maximum of logged events, and the
//! others are counted.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::{Counters, NodeState, NodeStatus, Status};
use tokio::time::Instant;

use shoal_runtime::printable;
use shoal_runtime::repeated::Repeated;

/// Maximum number of logged events of nodes in a period. The next period logs the number of the others.
const EVENTS_MAX: u32 = 32;
const PERIOD: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct Events {
    state: Option<NodeState>,
    counters: Counters,
    /// The state of each other node, by its identity.
    nodes: BTreeMap<String, NodeState>,
    period: Period,
    failed_log: Repeated,
    lost_log: Repeated,
    name_log: Repeated,
}

#[derive(Debug, Default)]
struct Period {
    begun: Option<Instant>,
    logged: u32,
    unlogged: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Appeared(NodeState),
    Became(NodeState),
    Gone,
}

impl Events {
    /// Logs the differences between the previous status and this one.
    pub(super) fn note(&mut self, status: &Status, now: Instant) {
        self.note_own_state(status);
        for (name, id, change) in self.changes(status) {
            if let Some(unlogged) = self.period.note(now) {
                log(&name, &id, change, unlogged);
            }
        }
        self.note_counters(&status.counters, now);
        self.note_names(status, now);
    }

    fn note_own_state(&mut self, status: &Status) {
        let before = self.state.replace(status.state);
        if before == Some(status.state) {
            return;
        }
        let nodes = status.nodes.len();
        match status.state {
            NodeState::Joining => tracing::info!(nodes, "this node joins the cluster"),
            NodeState::Ready => tracing::info!(nodes, "this node has what the others have"),
            NodeState::Resyncing => {
                tracing::warn!(nodes, "this node has missed something, and collects it while it serves");
            }
            // The connection logs its own loss.
            NodeState::Alone | NodeState::OtherVersion | NodeState::Lost => {}
        }
    }

    /// Returns the name, the identity and the change of each changed node.
    fn changes(&mut self, status: &Status) -> Vec<(String, String, Change)> {
        let mut before = core::mem::take(&mut self.nodes);
        let mut changes = Vec::new();
        for node in &status.nodes {
            let change = match before.remove(&node.id) {
                None => Change::Appeared(node.state),
                Some(state) if state != node.state => Change::Became(node.state),
                Some(_) => {
                    self.nodes.insert(node.id.clone(), node.state);
                    continue;
                }
            };
            self.nodes.insert(node.id.clone(), node.state);
            changes.push((node.name.clone(), node.id.clone(), change));
        }
        changes.extend(before.into_keys().map(|id| (String::new(), id, Change::Gone)));
        changes
    }

    fn note_counters(&mut self, counters: &Counters, now: Instant) {
        let before = core::mem::replace(&mut self.counters, *counters);
        if counters.failed_resyncs > before.failed_resyncs
            && let Some(unlogged) = self.failed_log.note(now)
        {
            tracing::warn!(
                unlogged,
                "a snapshot of another node was not received to the end; it is requested again"
            );
        }
        if counters.lost > before.lost
            && let Some(unlogged) = self.lost_log.note(now)
        {
            let batches = counters.lost - before.lost;
            tracing::warn!(batches, unlogged, "batches of other nodes are lost; a snapshot replaces them");
        }
    }

    fn note_names(&mut self, status: &Status, now: Instant) {
        if let Some(name) = name_of_two(status)
            && let Some(unlogged) = self.name_log.note(now)
        {
            let name = printable::line(name);
            tracing::warn!(name, unlogged, "two nodes have this name; give each its own by `cluster.node`");
        }
    }
}

impl Period {
    /// Records an event. If it is to be logged, returns the number of unlogged events of the previous period.
    fn note(&mut self, now: Instant) -> Option<u64> {
        let mut unlogged = 0;
        if self.begun.is_none_or(|begun| begun + PERIOD <= now) {
            unlogged = self.unlogged;
            *self = Self { begun: Some(now), ..Self::default() };
        }
        if self.logged == EVENTS_MAX {
            self.unlogged += 1;
            return None;
        }
        self.logged += 1;
        Some(unlogged)
    }
}

/// Returns a name that two present nodes share, if there is one.
fn name_of_two(status: &Status) -> Option<&str> {
    let is_there = |node: &&NodeStatus| !matches!(node.state, NodeState::Lost | NodeState::OtherVersion);
    let mut names: Vec<_> = status.nodes.iter().filter(is_there).map(|node| node.name.as_str()).collect();
    names.push(&status.name);
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

fn log(name: &str, id: &str, change: Change, unlogged: u64) {
    let (node, id) = (printable::line(name), printable::line(id));
    match change {
        Change::Appeared(NodeState::OtherVersion) | Change::Became(NodeState::OtherVersion) => {
            tracing::warn!(
                node,
                id,
                unlogged,
                "a node uses another version of the protocol, and shares nothing with this one"
            );
        }
        Change::Appeared(state) => tracing::info!(node, id, ?state, unlogged, "a node is in the cluster"),
        Change::Became(NodeState::Lost) => {
            tracing::warn!(node, id, unlogged, "a node has left, or none of its messages arrives any more");
        }
        Change::Became(state) => tracing::info!(node, id, ?state, unlogged, "a node has changed its state"),
        Change::Gone => tracing::info!(id, unlogged, "a node is forgotten"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, id: &str, state: NodeState) -> NodeStatus {
        NodeStatus {
            name: name.to_owned(),
            id: id.to_owned(),
            state,
            heard_ms_ago: 0,
            round_trip_ms: None,
            lag_ms: None,
            behind: 0,
            deltas_per_s: 0.0,
        }
    }

    fn status(nodes: Vec<NodeStatus>) -> Status {
        let counters = Counters::default();
        let (name, id) = ("own".to_owned(), "1".to_owned());
        Status { name, id, state: NodeState::Ready, is_ready: true, nodes, counters }
    }

    #[test]
    fn each_change_of_a_node_is_told_once() {
        let mut events = Events::default();
        let mut changes = |nodes| {
            let changes = events.changes(&status(nodes));
            changes.into_iter().map(|(name, id, change)| (name + &id, change)).collect::<Vec<_>>()
        };
        let text = str::to_owned;
        assert_eq!(changes(vec![]), []);
        let ready = || node("a", "2", NodeState::Ready);
        assert_eq!(changes(vec![ready()]), [(text("a2"), Change::Appeared(NodeState::Ready))]);
        assert_eq!(changes(vec![ready()]), []);
        let lost = || node("a", "2", NodeState::Lost);
        assert_eq!(changes(vec![lost()]), [(text("a2"), Change::Became(NodeState::Lost))]);
        assert_eq!(changes(vec![lost()]), []);
        assert_eq!(changes(vec![]), [(text("2"), Change::Gone)]);
    }

    #[test]
    fn a_flood_of_nodes_fills_no_log() {
        let (mut period, start) = (Period::default(), Instant::now());
        let logged = (0..1000).filter(|_| period.note(start).is_some()).count();
        assert_eq!(logged, EVENTS_MAX as usize);
        assert_eq!(period.note(start + PERIOD), Some(1000 - u64::from(EVENTS_MAX)));
        assert_eq!(period.note(start + PERIOD), Some(0));
    }

    #[test]
    fn a_name_of_two_nodes_is_found_unless_one_is_lost() {
        let twins = |state| status(vec![node("a", "2", NodeState::Ready), node("a", "3", state)]);
        assert_eq!(name_of_two(&twins(NodeState::Joining)), Some("a"));
        assert_eq!(name_of_two(&twins(NodeState::Lost)), None);
        assert_eq!(name_of_two(&status(vec![node("own", "2", NodeState::Ready)])), Some("own"));
    }
}
