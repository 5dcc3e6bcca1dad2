//! What a run of load measured, as it is written to JSON.

use serde::{Deserialize, Serialize};

/// The version of the schema of [`Report`]. It rises when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// What one run measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Seconds that it took: to the end of its time, or to the last reply if it was to make a number of requests, or if
    /// the tracker died.
    pub elapsed_s: f64,
    /// Requests that were sent, by kind.
    pub requests: Kinds,
    /// Good replies, by kind: these alone make the headline.
    pub responses: Kinds,
    /// Good replies a second: those that came before the end of the run.
    pub responses_per_s: f64,
    /// Requests to which no reply came in time.
    pub lost: u64,
    /// Those of them that an open loop did not even send, because too many others were without an answer.
    #[serde(default)]
    pub unsent: u64,
    /// Replies that came and for which the generator's own sockets had no room; their requests are among the lost.
    #[serde(default)]
    pub receive_drops: u64,
    /// Replies that came after the timeout; their requests are among the lost.
    pub late: u64,
    /// Error replies.
    pub errors: u64,
    /// What the first of them said.
    pub first_error: Option<String>,
    /// Replies that break a rule, by rule.
    pub wrong: WrongReplies,
    /// Replies that handed a peer to itself, where that does not count as wrong.
    pub own_address_tolerated: u64,
    /// Datagrams that the generator's own kernel refused to send.
    pub send_failures: u64,
    /// Peers in each good announce reply, on average.
    pub peers_per_announce: f64,
    /// Bytes of each good announce reply, on average.
    pub announce_reply_bytes: f64,
    /// What became of the connections, where there are some.
    #[serde(default)]
    pub connections: Option<Connections>,
    /// What was relayed between the peers, where the tracker does that (WebTorrent).
    #[serde(default)]
    pub relays: Option<Relays>,
    /// From request to reply; in an open loop, from when the request should have left.
    pub latency: LatencySummary,
    /// The shape of the latency: value by percentile, fine enough to draw.
    pub latency_curve: Vec<Percentile>,
    /// In an open loop, how much later than intended requests left: the generator's own fault.
    pub send_delay: Option<LatencySummary>,
    /// CPU time of all workers of the generator.
    pub generator_cpu_s: f64,
    /// Share of their time in which the workers of the generator were busy, or waited for a processor that others kept
    /// busy, 0 to 1, the busiest of them.
    pub generator_busy: f64,
    /// Whether the run can be trusted to speak of the tracker.
    pub verdict: Verdict,
    /// Whether the run was ended early, by the user or because of `failure`.
    pub ended_early: bool,
    /// What ended the run against the user's wish.
    pub failure: Option<String>,
}

/// A count for each kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinds {
    /// Connects.
    pub connect: u64,
    /// Announces.
    pub announce: u64,
    /// Scrapes.
    pub scrape: u64,
}

/// Replies that break a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongReplies {
    /// No tracker reply at all: too short, unknown action, a piece of an entry at the end.
    pub malformed: u64,
    /// The action is not that of the request.
    pub action: u64,
    /// The transaction id belongs to no request of this worker.
    pub transaction_id: u64,
    /// More peers than were asked for, or not as many scrape entries as hashes.
    pub count: u64,
    /// The announcer itself is among the peers.
    pub own_address: u64,
    /// An HTTP status other than 200.
    #[serde(default)]
    pub status: u64,
    /// Counts that cannot be: below 0, or fewer peers in the swarm than were handed out.
    #[serde(default)]
    pub implausible: u64,
}

/// What became of the connections of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// Those that could carry requests.
    pub opened: u64,
    /// TLS handshakes with a key exchange and a signature.
    pub handshakes_full: u64,
    /// TLS handshakes that went on from an earlier session.
    pub handshakes_resumed: u64,
    /// From the call for a connection until it could carry a request: TCP, and TLS where there is some.
    pub setup: LatencySummary,
    /// Closed by the tracker in good order, with no request under way.
    pub closed_idle: u64,
    /// Those that failed. A request that was under way on one is among the lost.
    pub failures: ConnectionFailures,
    /// What first went wrong on a connection: why it failed, or what was wrong with a reply.
    pub first_fault: Option<String>,
    /// Those that were open when the run ended.
    pub open_at_end: u64,
}

/// What a tracker relayed between the peers of the generator, and what it held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Relays {
    /// Messages that came from the tracker before the end of the run: replies, offers and answers, of whatever worth.
    pub messages: u64,
    /// The same in a second.
    pub messages_per_s: f64,
    /// Offers that went out with announces.
    pub offers_sent: u64,
    /// Those of them that were due to be relayed, as far as that can be told by the counts in the replies: as many as
    /// were offered and wanted, but one for each other peer at most, and of a seeder one for each leecher. A tracker may
    /// have a lower limit, or count peers that are deaf.
    pub offers_due: u64,
    /// Offers that arrived whole, at another peer of the same torrent.
    pub offers: u64,
    /// Answers that went out.
    pub answers_sent: u64,
    /// Answers that arrived whole, at who made the offer.
    pub answers: u64,
    /// Offers and answers that did not.
    pub wrong: WrongRelays,
    /// From announce to the arrival of an offer of it; in an open loop, from when the announce should have left.
    pub offer_latency: LatencySummary,
    /// The shape of that latency.
    pub offer_latency_curve: Vec<Percentile>,
    /// From the answer to its arrival.
    pub answer_latency: LatencySummary,
    /// Connections that were held and did nothing.
    pub held: u64,
    /// Those of them that answered a ping at the end.
    pub held_alive: u64,
    /// Connections that announced once and never read again.
    pub deaf: u64,
    /// Those of them that the tracker was seen to close.
    pub deaf_closed: u64,
}

/// Offers and answers that arrived as they should not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongRelays {
    /// Other bytes than were sent.
    pub damaged: u64,
    /// Offers that came back to who made them.
    pub own: u64,
    /// Sent on as of another torrent or peer, or an answer to somebody else's offer.
    pub misdirected: u64,
    /// By nobody of this generator.
    pub foreign: u64,
}

/// Connections that failed, by what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionFailures {
    /// Nobody listened.
    pub refused: u64,
    /// The tracker's host reset it.
    pub reset: u64,
    /// The tracker closed it before a handshake was done or a reply was whole.
    pub closed: u64,
    /// It was not there in time, or a reply was not.
    pub timeout: u64,
    /// No TLS could be agreed on, or it was broken later.
    pub tls: u64,
    /// No WebSocket could be agreed on, or its rules were broken later.
    #[serde(default)]
    pub websocket: u64,
    /// This host had no address, port or descriptor for it, or something else happened.
    pub other: u64,
}

/// Latency in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// The median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p99_9_us: f64,
    /// The largest.
    pub max_us: f64,
    /// The mean.
    pub mean_us: f64,
}

/// One point of a latency curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// 0 to 100.
    pub percentile: f64,
    /// No more than this, in microseconds.
    pub latency_us: f64,
}

/// What a run speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The generator had time to spare.
    Tracker,
    /// A worker of the generator was busy nearly all the time, was late, or had no room for the replies: the tracker may
    /// be able to do more.
    GeneratorBound,
    /// The tracker never answered.
    Unanswered,
}

impl Kinds {
    /// All kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.connect + self.announce + self.scrape
    }
}

impl WrongReplies {
    /// All rules together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { malformed, action, transaction_id, count, own_address, status, implausible } = self;
        malformed + action + transaction_id + count + own_address + status + implausible
    }
}

impl WrongRelays {
    /// All of them together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { damaged, own, misdirected, foreign } = self;
        damaged + own + misdirected + foreign
    }
}

impl ConnectionFailures {
    /// All of them together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { refused, reset, closed, timeout, tls, websocket, other } = self;
        refused + reset + closed + timeout + tls + websocket + other
    }
}
