//! The result of a run, as it is written to JSON.

use serde::{Deserialize, Serialize};

use crate::limit::Limit;

/// The version of the schema of [`Report`]. It increases when a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// See [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The length of the run in seconds: to the end of its time, or to the last reply if it had a number of requests to
    /// send, or if the tracker died.
    pub elapsed_s: f64,
    /// Requests that were sent, by kind.
    pub requests: Kinds,
    /// Good replies, by kind. Only these count for the throughput.
    pub responses: Kinds,
    /// Good replies per second, of those that came before the end of the run.
    pub responses_per_s: f64,
    /// Requests to which no reply came in time.
    pub lost: u64,
    /// Lost requests that an open loop did not even send, because too many others were unanswered.
    #[serde(default)]
    pub unsent: u64,
    /// Replies that the kernel dropped because the sockets of the generator were full. Their requests count as lost.
    #[serde(default)]
    pub receive_drops: u64,
    /// Requests that the generator at the driver hook sent again, because it did not make new ones in time.
    #[serde(default)]
    pub repeated: u64,
    /// Replies that came after the timeout. Their requests count as lost.
    pub late: u64,
    /// Replies that refuse the request.
    pub errors: u64,
    /// The first reason that the tracker gave for a refusal.
    pub first_error: Option<String>,
    /// Replies that break a rule.
    pub wrong: WrongReplies,
    /// In a fill, a lower bound of the peers that the tracker does not count, although it may have answered them.
    #[serde(default)]
    pub unregistered: u64,
    /// Replies that contained the announcing peer itself, if that does not count as wrong.
    pub own_address_tolerated: u64,
    /// Datagrams that the kernel of the generator refused to send.
    pub send_failures: u64,
    /// The average number of peers in the reply to an announce.
    pub peers_per_announce: f64,
    /// The average size of the reply to an announce.
    pub announce_reply_bytes: f64,
    /// The connections, over TCP.
    #[serde(default)]
    pub connections: Option<Connections>,
    /// Offers and answers, over WebSocket.
    #[serde(default)]
    pub relays: Option<Relays>,
    /// The time from request to reply. In an open loop, it begins when the request should have left.
    pub latency: LatencySummary,
    /// The same as a curve, from the median on.
    pub latency_curve: Vec<Percentile>,
    /// In an open loop, how late requests left because of the generator.
    pub send_delay: Option<LatencySummary>,
    /// CPU time of all workers of the generator.
    pub generator_cpu_s: f64,
    /// The share of time, 0 to 1, in which the busiest worker was busy, or waited for a busy processor.
    pub generator_busy: f64,
    /// The cause that limited the throughput.
    pub verdict: Bottleneck,
    /// The limit of the tracker that refused a notable share of the requests, so that the figures do not show its speed.
    #[serde(default)]
    pub limit: Option<Limit>,
    /// Whether the run ended early, by the user or because of `failure`.
    pub ended_early: bool,
    /// The reason why the run ended early, unless the user ended it.
    pub failure: Option<String>,
}

/// Counts by kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinds {
    /// Connects, which only UDP has.
    pub connect: u64,
    /// Announces.
    pub announce: u64,
    /// Scrapes.
    pub scrape: u64,
}

/// Replies that break a rule, by rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongReplies {
    /// Replies that cannot be decoded: too short, of an unknown action, or with an incomplete entry at the end.
    pub malformed: u64,
    /// Replies of another kind than the request.
    pub action: u64,
    /// Replies that belong to no request of this worker, by transaction id (UDP), order, or torrent.
    pub transaction_id: u64,
    /// Replies with more peers than requested, or with a wrong number of scrape entries.
    pub count: u64,
    /// Replies with the announcing peer itself.
    pub own_address: u64,
    /// HTTP replies with a status other than 200.
    #[serde(default)]
    pub status: u64,
    /// Replies with impossible counts: below 0, or fewer peers in the swarm than the reply contains.
    #[serde(default)]
    pub implausible: u64,
}

/// The connections of a run, and their ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// Connections that became able to carry requests.
    pub opened: u64,
    /// TLS handshakes with a key exchange and a signature.
    pub handshakes_full: u64,
    /// TLS handshakes that resumed an earlier session.
    pub handshakes_resumed: u64,
    /// The time until a connection could carry a request, including TLS and the WebSocket upgrade.
    pub setup: LatencySummary,
    /// Connections that the tracker closed properly while no request was in flight.
    pub closed_idle: u64,
    /// Connections that failed. Requests in flight on them count as lost.
    pub failures: ConnectionFailures,
    /// The first fault of a connection: why it failed, or what was wrong with a reply.
    pub first_fault: Option<String>,
    /// Connections that were open when the run ended.
    pub open_at_end: u64,
}

/// Messages that a tracker relayed between the peers of the generator, and connections that it held beside them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Relays {
    /// Messages that came from the tracker before the end of the run: replies, offers and answers, good or not.
    pub messages: u64,
    /// Messages per second.
    pub messages_per_s: f64,
    /// Offers in the announces that were sent.
    pub offers_sent: u64,
    /// Offers that should have been relayed, by the counts in the replies: those offered and wanted, at most one for
    /// each other peer, or for a seeder one for each leecher. A tracker may have a lower limit, or count peers that do
    /// not read.
    pub offers_due: u64,
    /// Offers that arrived unchanged at another peer of the same torrent.
    pub offers: u64,
    /// Answers that were sent.
    pub answers_sent: u64,
    /// Answers that arrived unchanged at the peer that made the offer.
    pub answers: u64,
    /// Offers and answers that arrived otherwise.
    pub wrong: WrongRelays,
    /// From an announce (in an open loop, from when it should have left) to the arrival of one of its offers.
    pub offer_latency: LatencySummary,
    /// The same as a curve.
    pub offer_latency_curve: Vec<Percentile>,
    /// The time from sending an answer to its arrival.
    pub answer_latency: LatencySummary,
    /// Connections that were held open and idle.
    pub held: u64,
    /// Held connections that answered a ping at the end.
    pub held_alive: u64,
    /// Connections of slow readers, which announced once and never read again.
    #[serde(alias = "deaf")]
    pub slow_readers: u64,
    /// Connections of slow readers that the tracker closed.
    #[serde(alias = "deaf_closed")]
    pub slow_readers_closed: u64,
}

/// Offers and answers that arrived otherwise than they should, by fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongRelays {
    /// Those with other bytes than were sent.
    pub damaged: u64,
    /// Offers that came back to the peer that made them.
    pub own: u64,
    /// Offers and answers of another torrent or peer, and answers to a peer that did not make the offer.
    pub misdirected: u64,
    /// Those that this generator has not sent.
    pub foreign: u64,
}

/// Connections that failed, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionFailures {
    /// Nothing listens at the address.
    pub refused: u64,
    /// The tracker reset the connection.
    pub reset: u64,
    /// The tracker closed it before a handshake or a reply was complete.
    pub closed: u64,
    /// The connection was not established in time, or a reply did not come in time.
    pub timeout: u64,
    /// The TLS handshake failed, or TLS was violated later.
    pub tls: u64,
    /// The WebSocket upgrade failed, or the protocol was violated later.
    #[serde(default)]
    pub websocket: u64,
    /// This host had no address, port or descriptor left, or another error occurred.
    pub other: u64,
}

/// The distribution of a latency in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// The median.
    pub p50_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p99_9_us: f64,
    /// The longest.
    pub max_us: f64,
    /// The average.
    pub mean_us: f64,
}

/// A point of a latency curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// 0 to 100.
    pub percentile: f64,
    /// The latency that this share of the requests does not exceed.
    pub latency_us: f64,
}

/// The cause that limited the throughput of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The tracker: the generator had time to spare.
    Tracker,
    /// A worker was busy nearly all the time, was late, or had to drop replies. The tracker may be able to do more.
    GeneratorBound,
    /// Nothing: the tracker never answered.
    Unanswered,
}

impl Kinds {
    /// Returns the sum over all kinds.
    pub fn total(&self) -> u64 {
        self.connect + self.announce + self.scrape
    }
}

impl WrongReplies {
    /// Returns the sum over all rules.
    pub fn total(&self) -> u64 {
        let Self { malformed, action, transaction_id, count, own_address, status, implausible } = self;
        malformed + action + transaction_id + count + own_address + status + implausible
    }
}

impl WrongRelays {
    /// Returns the sum over all faults.
    pub fn total(&self) -> u64 {
        let Self { damaged, own, misdirected, foreign } = self;
        damaged + own + misdirected + foreign
    }
}

impl ConnectionFailures {
    /// Returns the sum over all causes.
    pub fn total(&self) -> u64 {
        let Self { refused, reset, closed, timeout, tls, websocket, other } = self;
        refused + reset + closed + timeout + tls + websocket + other
    }
}
