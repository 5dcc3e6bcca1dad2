//! The types of the interface of a node.

use core::fmt;
use core::num::ParseIntError;
use core::str::FromStr;

use bytes::Bytes;
use serde::Serialize;
use shoal_base::metrics::labels;
use shoal_base::{Delta, Presence};

/// The identity of a node's run: a random number that it draws at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for NodeId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the cluster, see [`ClusterName`](shoal_config::ClusterName).
    pub cluster: String,
    /// The name under which others show this node. It is cut off after 64 bytes.
    pub name: String,
    /// The identity of this run.
    pub id: NodeId,
    /// Maximum size of the batches that are retained for resends, in bytes.
    pub retained_bytes_max: usize,
}

/// The swarms of a node, as the protocol changes and reads them.
pub trait Swarms {
    /// The progress of an export.
    type Export;

    /// Applies deltas of other nodes, in this order. Their announces were `age_ms` ago, usually 0: a resent batch is
    /// older.
    fn apply(&mut self, deltas: &[Delta], age_ms: u64);

    /// Applies deltas of WebTorrent peers that are connected to the node `from`, in this order.
    fn apply_presences(&mut self, from: NodeId, presences: &[Presence]);

    /// Handles a message of another node for clients of this one, see
    /// [`Node::send_to`](crate::protocol::Node::send_to).
    fn deliver(&mut self, from: NodeId, message: &[u8]);

    /// Forgets the WebTorrent peers of a lost node.
    fn forget(&mut self, node: NodeId);

    /// Begins an export.
    fn begin_export(&mut self, scope: Scope) -> Self::Export;

    /// Appends the next block of an export to `block`, which is empty. Returns whether more may follow. A block is at
    /// most [`Swarms::BLOCK_BYTES_MAX`] long, and may be empty.
    fn export(&mut self, export: &mut Self::Export, block: &mut Vec<u8>) -> bool;

    /// Merges a block of the node `from` into the swarms. Newer knowledge of this node remains. Fails if the bytes are
    /// no valid block.
    fn adopt(&mut self, from: NodeId, block: &[u8]) -> Result<(), Damaged>;

    /// Maximum size of a block in bytes.
    const BLOCK_BYTES_MAX: usize = 256 * 1024;
}

/// The content of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All peers of UDP and HTTP, from announces at any node.
    Addresses,
    /// The WebTorrent peers that are connected to the node, which knows them best.
    Connected,
}

/// The error of a damaged block, or of one from a store with other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the block is damaged, or another kind of store has written it")]
pub struct Damaged;

/// A message for the bus.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The subject.
    pub subject: String,
    /// The message.
    pub payload: Bytes,
}

labels! {
    /// The state of a node.
    pub enum NodeState {
        /// It collects the swarms of the others, and is not ready.
        Joining = "joining",
        /// It has what the others have.
        Ready = "ready",
        /// It has missed something, and collects the swarms again while it serves.
        Resyncing = "resyncing",
        /// It has no connection to the bus, or none to a server that knows another node.
        Alone = "alone",
        /// It uses another version of the protocol.
        OtherVersion = "other-version",
        /// No message of it has arrived for some seconds.
        Lost = "lost",
    }
}

/// Counters of a node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Deltas of this node.
    pub deltas_out: u64,
    /// Deltas of other nodes that were applied.
    pub deltas_in: u64,
    /// Batches of this node.
    pub batches_out: u64,
    /// Batches of other nodes that were applied.
    pub batches_in: u64,
    /// Bytes of all messages of this node.
    pub bytes_out: u64,
    /// Bytes of all messages of other nodes.
    pub bytes_in: u64,
    /// Batches that came twice.
    pub duplicates: u64,
    /// Batches that came before an earlier one.
    pub reordered: u64,
    /// Batches that were requested again.
    pub requested: u64,
    /// Batches that were sent again for other nodes.
    pub resent: u64,
    /// Lost batches, which a snapshot has to replace.
    pub lost: u64,
    /// Streams of batches whose digest differs from their node's digest.
    pub diverged: u64,
    /// Messages that are not well-formed.
    pub malformed: u64,
    /// Messages of another version of the protocol.
    pub other_version: u64,
    /// Messages in the name of this node that it has not sent.
    pub forged: u64,
    /// Requests and batches that were refused because there were too many.
    pub refused: u64,
    /// Messages that this node did not send because too many waited.
    pub unsent: u64,
    /// Snapshots that were received to the end.
    pub resyncs: u64,
    /// Snapshots that were begun and not received to the end.
    pub failed_resyncs: u64,
    /// Snapshots that another node refused because it was busy with others. They are requested again.
    pub refused_resyncs: u64,
    /// Snapshots that were begun for other nodes.
    pub exports: u64,
    /// Messages for clients of other nodes.
    pub relayed_out: u64,
    /// Messages of other nodes for clients.
    pub relayed_in: u64,
}

/// The state of a node and what it knows of the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// Its state.
    pub state: NodeState,
    /// Whether clients can be sent to it, see [`Node::is_ready`](crate::protocol::Node::is_ready).
    pub is_ready: bool,
    /// The other nodes, by name.
    pub nodes: Vec<NodeStatus>,
    /// Its counters.
    pub counters: Counters,
}

/// The knowledge of a node about another one.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// Its last known state.
    pub state: NodeState,
    /// The time since its last message, in milliseconds.
    pub heard_ms_ago: u64,
    /// The time of a message there and back, in milliseconds, once it was measured.
    pub round_trip_ms: Option<u64>,
    /// How long its last batch was on its way, in milliseconds, once that is known.
    pub lag_ms: Option<u64>,
    /// Batches that it has sent and that are not applied here.
    pub behind: u64,
    /// Deltas a second that it has sent recently.
    pub deltas_per_s: f64,
}
