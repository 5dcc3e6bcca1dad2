//! The attacker on the bus of a cluster.

use std::collections::BTreeSet;

use anyhow::Result;
use shoal_cluster::protocol::message::{Decoded, Message, decode, encode};
use shoal_cluster::protocol::{NodeId, SHARDS};

use crate::measure;
use crate::measure::count;
use crate::siege::cluster::metric;
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::nats::NatsClient;

/// Messages between two flushes, so that the attacker is as fast as the server and no faster.
const BURST: u32 = 500;

/// An attacker who knows the nodes from their hellos.
pub(super) struct Attacker<'c> {
    pub(super) context: &'c Context<'c>,
    pub(super) client: NatsClient,
    pub(super) nodes: Vec<NodeId>,
}

impl<'c> Attacker<'c> {
    pub(super) fn new(context: &'c Context<'c>) -> Result<Self> {
        let port = context.cluster()?.port;
        let mut listener = NatsClient::with_rights(port)?;
        listener.subscribe(&hello_subject())?;
        let (mut nodes, deadline) = (BTreeSet::new(), measure::now() + 5 * TIMEOUT);
        while nodes.len() < 2 {
            if let Ok(Decoded::Message { from, .. }) = decode(&listener.receive(deadline)?) {
                nodes.insert(from);
            }
        }
        Ok(Self { context, client: NatsClient::with_rights(port)?, nodes: nodes.into_iter().collect() })
    }

    pub(super) fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<()> {
        self.context.spend(1, count(payload.len()));
        self.client.publish(subject, payload)
    }

    pub(super) fn send(&mut self, from: NodeId, subject: &str, message: &Message<'_>) -> Result<()> {
        self.publish(subject, &encode(from, message))
    }

    /// Returns every subject of the cluster.
    pub(super) fn subjects(&self) -> Vec<String> {
        let of_nodes = self.nodes.iter().copied().map(node_subject);
        (0..SHARDS).map(delta_subject).chain([hello_subject()]).chain(of_nodes).collect()
    }

    /// Calls `burst` with a number until the window is over.
    pub(super) fn repeat(&mut self, mut burst: impl FnMut(&mut Self, u32) -> Result<()>) -> Result<()> {
        for number in 0.. {
            burst(self, number)?;
            if number % BURST == BURST - 1 {
                self.client.flush()?;
                if self.context.is_window_over() {
                    break;
                }
            }
        }
        self.client.flush()
    }

    /// Checks that a metric, the sum of all series that begin like this, has risen.
    pub(super) fn check_counted(&self, begin: &str) -> Result<()> {
        // The status is published a few times a second.
        let deadline = measure::now() + 3 * TIMEOUT;
        let mut counted = metric(self.context.tracker, begin)?;
        while counted == 0 && measure::now() < deadline {
            self.context.sleep_ms(100);
            counted = metric(self.context.tracker, begin)?;
        }
        self.context.check(begin, counted > 0, counted.to_string());
        Ok(())
    }
}

/// The name of the cluster in subjects.
const PREFIX: &str = "shoal.shoal";

pub(super) fn hello_subject() -> String {
    format!("{PREFIX}.hello")
}

pub(super) fn delta_subject(shard: usize) -> String {
    format!("{PREFIX}.delta.{shard}")
}

pub(super) fn node_subject(node: NodeId) -> String {
    format!("{PREFIX}.node.{node}")
}
