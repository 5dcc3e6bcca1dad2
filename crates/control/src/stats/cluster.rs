//! The node of a cluster, as the statistics tell it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::CountMap;

/// The node of a cluster and what it knows of the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Cluster {
    /// The name of the cluster.
    pub name: String,
    /// The name of this node.
    pub node: String,
    /// The identity of this run of the node, 16 hexadecimal digits.
    pub id: String,
    /// `joining`, `ready`, `resyncing`, or `alone` without a connection to NATS.
    pub state: String,
    /// Whether it has what the others have, so that clients can be sent to it. A node without NATS is, after some seconds.
    pub ready: bool,
    /// Whether it is connected to NATS.
    pub connected: bool,
    /// How often it has connected.
    pub connects: u64,
    /// The name of the NATS server, while it is connected.
    pub server: Option<String>,
    /// Why NATS is away, while it is, or why it does not suffice.
    pub fault: Option<String>,
    /// Messages of NATS, `in` and `out`.
    pub messages: CountMap,
    /// Bytes of these messages, without the overhead of NATS.
    pub bytes: CountMap,
    /// Messages that were dropped, by reason: `overflow` (too many waited for the node), `slow_consumer` (too many waited in
    /// the client of NATS), `unsent` (too many waited for the connection) and `too_large` (the server does not permit their size).
    pub dropped: CountMap,
    /// Counts of the protocol between the nodes, such as `deltas_in` and `lost`.
    pub counters: CountMap,
    /// The other nodes, by name.
    pub nodes: Vec<ClusterNode>,
    /// The state that all nodes share, unless each has its own.
    pub shared: Option<SharedStateStats>,
    /// The credit of users, if a stream takes it.
    pub credit: Option<CreditStats>,
}

/// The state that all nodes of a cluster share, as this one knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = SharedState)]
pub struct SharedStateStats {
    /// The name of its bucket.
    pub bucket: String,
    /// `followed`; `away` if it cannot be reached at present; `unavailable` if the NATS server has no JetStream or does not
    /// permit its use. In these states, the node goes on with what it has.
    pub state: String,
    /// Why it is not followed, or why the bucket cannot be filled.
    pub fault: Option<String>,
    /// Entries that apply at this node and that the bucket lacks, since it is a new one or has lost them. Nodes write them.
    pub unwritten: u64,
    /// Why the values of the configuration do not apply at this node, if so.
    pub values_fault: Option<String>,
    /// The number of `torrents` of both lists, of `bans`, and of `values` of the configuration.
    pub entries: CountMap,
    /// Keys and values that were ignored, by reason: `unreadable` if this version cannot read them, `full` if the node has as many
    /// entries as it keeps.
    pub ignored: CountMap,
    /// How often the whole bucket was read.
    pub syncs: u64,
}

/// The announces of users on their way to the stream from which another program credits them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = Credit)]
pub struct CreditStats {
    /// The name of the stream.
    pub stream: String,
    /// `accepted`; `away` if the stream cannot be reached at present; `refused` if it is full, or may not or cannot be used. In
    /// these states, announces wait.
    pub state: String,
    /// Why it does not take them.
    pub fault: Option<String>,
    /// Announces that the stream has.
    pub stored: u64,
    /// Announces that wait for it.
    pub waiting: u64,
    /// The size of the files in which they wait, in bytes.
    pub spool_bytes: u64,
    /// Announces that were lost, by reason: `ring_full` (too many at once), `spool_full` (too many waited) and `unreadable`.
    pub lost: CountMap,
    /// Announces with a token that count for no user, by reason: `without_subject`, and `invalid_token` of clients that leave.
    pub skipped: CountMap,
}

/// Another node, as this one knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// The identity of its run.
    pub id: String,
    /// As in [`Cluster`], and `other-version` or `lost`.
    pub state: String,
    /// Milliseconds since its last message.
    pub seen_ms_ago: u64,
    /// The time of a message there and back in milliseconds.
    pub round_trip_ms: Option<u64>,
    /// The time that its last batch was on its way, in milliseconds.
    pub lag_ms: Option<u64>,
    /// Batches that it has sent and that are not applied here.
    pub behind: u64,
    /// Deltas a second that it has sent lately.
    pub deltas_per_s: f64,
}
