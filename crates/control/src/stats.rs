//! The statistics of a tracker at one moment, in the shape that every reader of them gets as JSON: the status page,
//! `shoal top` and the API.
//!
//! `collect` reads them from the counters of the workers. Counts only grow while the tracker runs; a reader that wants
//! rates compares two snapshots and divides by the difference of `monotonic_ms`. Maps and lists by reason contain what has
//! occurred, and omit zeros. Fields are only ever added: a reader ignores those that it does not know, and takes missing
//! ones as empty.
//!
//! `latest` collects them each second for all readers, and `history` keeps a few of them for the charts of the status page.

mod cluster;
mod collect;
pub(crate) mod history;
pub(crate) mod latest;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::last_day::DayStats;
use crate::pause::PausedPart;

pub use cluster::{Cluster, ClusterNode, CreditStats, SharedStateStats};
pub(crate) use collect::all_traffic;
pub use collect::collect;

/// Counts by name: the kind of a request, or a reason.
pub type CountMap = BTreeMap<String, u64>;

/// The statistics of a tracker at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Stats {
    /// The version of the release.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
    /// The build profile.
    pub build: String,
    /// The I/O back end for datagrams.
    pub io: String,
    /// When this was collected, in seconds since 1970.
    pub now_unix_s: u64,
    /// When the tracker started, in seconds since 1970.
    pub started_unix_s: u64,
    /// Milliseconds on a clock that never goes back, for rates.
    pub monotonic_ms: u64,
    /// Requests and replies of each protocol and family.
    pub traffic: Vec<Traffic>,
    /// The requests of the last 24 hours.
    pub last_day: DayStats,
    /// The protocols and families that the operator has paused.
    pub paused: Vec<PausedPart>,
    /// Error replies.
    pub refusals: Vec<Refusals>,
    /// Announces that were answered without registering the peer, by the limit that it would have exceeded.
    pub unregistered: BTreeMap<String, u64>,
    /// Datagrams of each family.
    pub datagrams: Vec<Datagrams>,
    /// The swarms in store.
    pub swarms: Vec<SwarmTotals>,
    /// The memory of the process.
    pub memory: Memory,
    /// Connections over TCP and Unix sockets.
    pub connections: Connections,
    /// Relayed WebTorrent messages.
    pub relays: Relays,
    /// The workers, in order.
    pub workers: Vec<Worker>,
    /// Processor time of the whole process in seconds.
    pub cpu_s: f64,
    /// The time that requests take in the tracker, of samples.
    pub processing: Vec<Processing>,
    /// The most frequent software of clients, the rest as `other` at the end.
    pub clients: Vec<Client>,
    /// The largest swarms, the largest first.
    pub top_swarms: Vec<TopSwarm>,
    /// The certificates in use.
    pub certificates: Vec<Certificate>,
    /// The lists of torrents.
    pub lists: Vec<List>,
    /// The sources of all lists, in the order of the configuration.
    pub list_sources: Vec<ListSource>,
    /// Sources with a ban that they have earned.
    pub bans: u64,
    /// The bans that sources have earned since the start, by cause.
    pub bans_earned: CountMap,
    /// The reloads by SIGHUP, by outcome.
    pub reloads: BTreeMap<String, u64>,
    /// The node and the cluster, if the tracker is part of one.
    pub cluster: Option<Cluster>,
}

/// The requests and replies of one protocol and family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Traffic {
    /// `udp`, `http` or `webtorrent`.
    pub protocol: String,
    /// `v4` or `v6`.
    pub family: String,
    /// Well-formed requests by kind, all kinds.
    pub requests: BTreeMap<String, u64>,
    /// Replies with the requested result.
    pub ok: u64,
    /// Error replies.
    pub refused: u64,
}

/// The error replies with one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Refusals {
    /// As in [`Traffic`].
    pub protocol: String,
    /// As in [`Traffic`].
    pub family: String,
    /// The reason: the label `outcome` of the metric `shoal_replies`.
    pub reason: String,
    /// The number of replies.
    pub count: u64,
}

/// The datagrams of one family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Datagrams {
    /// `v4` or `v6`.
    pub family: String,
    /// Datagrams that the workers received.
    pub received: u64,
    /// Replies that the kernel accepted for sending.
    pub sent: u64,
    /// Received datagrams without a reply, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Replies that the kernel did not send, by reason.
    pub reply_drops: BTreeMap<String, u64>,
}

/// The swarms and peers of one family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SwarmTotals {
    /// `v4`, `v6` or `webtorrent`, whose peers are of both families.
    pub family: String,
    /// Torrents with at least one peer.
    pub swarms: u64,
    /// Peers that have the complete torrent.
    pub seeders: u64,
    /// Peers that do not.
    pub leechers: u64,
    /// Downloads that were counted as completed since the start.
    pub completed: u64,
    /// Peers that stopped announcing, since the start.
    pub expired: u64,
    /// Peers that were removed early because memory was short, since the start.
    pub evicted: u64,
    /// Memory of swarms and peers.
    pub memory_bytes: u64,
}

/// The memory of the process, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Memory {
    /// Ceiling of the whole process.
    pub max: u64,
    /// Memory in use, by use: `store`, `webtorrent_swarms`, `connections` and `other`.
    pub uses: Vec<MemoryUse>,
    /// Ceiling of the store.
    pub store_max: u64,
    /// Memory of the store divided by its peers, if there are any.
    pub per_peer: Option<f64>,
}

/// The memory of one use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MemoryUse {
    /// The use.
    pub kind: String,
    /// Its memory.
    pub bytes: u64,
}

// A field is collected if it has the name of a counter of connections or of sessions, without `shoal_` or
// `shoal_connections_`. Every map is shown by `shoal top` and by the status page.
/// Connections over TCP and Unix sockets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Connections {
    /// Open connections.
    pub open: u64,
    /// Maximum number of open connections.
    pub max: u64,
    /// Accepted connections, including those that were then refused.
    pub accepted: u64,
    /// Connections that did not end with a regular close by the client, by reason.
    pub ended: BTreeMap<String, u64>,
    /// Received bytes, with TLS overhead.
    pub received_bytes: u64,
    /// Sent bytes, with TLS overhead.
    pub sent_bytes: u64,
    /// TLS handshakes by outcome.
    pub tls_handshakes: BTreeMap<String, u64>,
    /// Requests for an upgrade to a WebSocket by outcome.
    pub websocket_upgrades: BTreeMap<String, u64>,
}

/// Relayed WebTorrent messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Relays {
    /// Relayed offers.
    pub offers: u64,
    /// Relayed answers.
    pub answers: u64,
    /// Dropped messages, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Worker {
    /// Part of the last second for which its thread ran, from 0 to 1.
    pub busy: f64,
    /// How far it raises intervals under load, from 0 to 1.
    pub interval_raise: f64,
    /// Time since its last poll round in milliseconds. An idle worker has one every tenth of a second.
    pub heartbeat_age_ms: u64,
    /// Batches of datagrams.
    pub batches: u64,
    /// Datagrams that the kernel dropped because the receive buffers of its sockets were full.
    pub kernel_drops: u64,
    /// Memory of the datagrams that wait in those buffers, in bytes.
    pub receive_queue_bytes: u64,
}

/// The time from the receipt of requests of one protocol until their replies have been handed to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Processing {
    /// As in [`Traffic`].
    pub protocol: String,
    /// The largest time of each bucket but the last, in seconds.
    pub bounds_s: Vec<f64>,
    /// The number of samples of each bucket, not added up. The last has all that took longer.
    pub buckets: Vec<u64>,
    /// The sum of all times in seconds.
    pub sum_s: f64,
}

/// The share of a software.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Client {
    /// The name, in ASCII.
    pub software: String,
    /// Its part of all announces of the last hour or so, from 0 to 1.
    pub share: f64,
    /// Its most frequent versions, and their parts.
    pub versions: Vec<(String, f64)>,
}

/// A large swarm. Its counts are those of all families and of WebTorrent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TopSwarm {
    /// The info hash as 40 hexadecimal digits.
    pub info_hash: String,
    /// Peers that have the complete torrent.
    pub seeders: u32,
    /// Peers that do not.
    pub leechers: u32,
    /// Completed downloads.
    pub completed: u32,
}

/// A certificate in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Certificate {
    /// The name of its file, without directories.
    pub file: String,
    /// Its host names.
    pub names: Vec<String>,
    /// Start of its validity, in seconds since 1970.
    pub not_before_unix_s: Option<u64>,
    /// End of its validity, in seconds since 1970.
    pub not_after_unix_s: Option<u64>,
}

/// A list of torrents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct List {
    /// `allow` or `deny`.
    pub name: String,
    /// Its torrents.
    pub torrents: u64,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Sources that could not be read as a whole when they were read last.
    pub faulty_sources: u64,
    /// When it last changed or was read, in seconds since 1970.
    pub applied_unix_s: u64,
}

/// A source of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = StatsListSource)]
pub struct ListSource {
    /// The configuration key of the list.
    pub list: String,
    /// The file or URL, without secrets.
    pub source: String,
    /// How often it could not be read as a whole.
    pub failures: u64,
    /// Faulty lines of the version that was read last.
    pub faulty_lines: u64,
    /// The fault, if there is one: why it was not taken over, or its first faulty line.
    pub fault: Option<String>,
    /// Seconds since it was last known to be as it was read.
    pub age_s: u64,
}

impl Connections {
    /// Returns the counts by the value of a label, with the names of their fields.
    pub fn by_label(&self) -> BTreeMap<String, CountMap> {
        let fields: BTreeMap<String, Value> =
            serde_json::to_value(self).and_then(serde_json::from_value).unwrap_or_default();
        let maps = fields.into_iter().filter(|(_, value)| value.is_object());
        maps.filter_map(|(name, value)| Some((name, serde_json::from_value(value).ok()?))).collect()
    }
}

impl Processing {
    /// Returns the largest time of the bucket that this part of the samples does not exceed, or `None` if there are no
    /// samples. The last bucket has no largest time.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        // The statistics may come from another program, whose counts need not fit together.
        let samples = self.buckets.iter().copied().fold(0, u64::saturating_add);
        let rank = part * samples as f64;
        let mut seen = 0_u64;
        let bucket = self.buckets.iter().position(|count| {
            seen = seen.saturating_add(*count);
            seen as f64 >= rank
        });
        let bound = bucket.and_then(|bucket| self.bounds_s.get(bucket)).copied();
        (samples > 0).then_some(bound.unwrap_or(f64::INFINITY))
    }
}

impl Stats {
    /// Returns the number of error replies.
    pub fn refused(&self) -> u64 {
        self.traffic.iter().map(|traffic| traffic.refused).sum()
    }

    /// Returns the number of received datagrams that got no reply, by a decision or because there were too many.
    pub fn dropped(&self) -> u64 {
        let decided: u64 = self.datagrams.iter().flat_map(|datagrams| datagrams.drops.values()).sum();
        decided + self.workers.iter().map(|worker| worker.kernel_drops).sum::<u64>()
    }

    /// Returns the mean load of the workers, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "there are not so many workers")]
    pub fn busy(&self) -> f64 {
        self.workers.iter().map(|worker| worker.busy).sum::<f64>() / self.workers.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_missing_fields_are_no_errors() {
        let read: Stats = serde_json::from_str(r#"{"version":"9","later":[1]}"#).unwrap();
        assert_eq!(read, Stats { version: "9".to_owned(), ..Stats::default() });
    }

    #[test]
    fn a_quantile_is_the_end_of_its_bucket() {
        let times = |buckets: &[u64]| Processing {
            bounds_s: vec![0.1, 0.2],
            buckets: buckets.into(),
            ..Processing::default()
        };
        assert_eq!(times(&[5, 4, 1]).quantile(0.5), Some(0.1));
        assert_eq!(times(&[5, 4, 1]).quantile(0.9), Some(0.2));
        assert_eq!(times(&[5, 4, 1]).quantile(0.99), Some(f64::INFINITY));
        assert_eq!(times(&[0, 0, 0]).quantile(0.5), None);
        assert_eq!(times(&[]).quantile(0.5), None);
    }
}
