//! The result of a run, as `--json` prints it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::chaos::account::Account;
use crate::chaos::event::EventKind;
use crate::chaos::record::Lane;
use crate::chaos::threshold::Finding;
use crate::measure::ratio;

/// The version of the JSON.
pub const SCHEMA_VERSION: u32 = 1;

/// A run against one tracker.
#[derive(Clone, Debug, Serialize)]
pub struct ChaosResult {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The title of the tracker.
    pub tracker: String,
    /// Its version, if it tells it.
    pub version: Option<String>,
    /// The load.
    pub settings: Settings,
    /// The events, in their order.
    pub events: Vec<EventResult>,
    /// Replies in the whole run that belong to no request or cannot be parsed.
    pub malformed: u64,
    /// The longest time by which the load sent a request late, in milliseconds. A longer gap in answers than this is not
    /// the load's own.
    pub load_late_ms: f64,
    /// Why the run ended before all events, if it did.
    pub failure: Option<String>,
}

/// The load of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// The number of torrents.
    pub torrents: u32,
    /// The number of peers of the fill.
    pub peers: u32,
    /// The time that the fill took, in seconds.
    pub fill_s: f64,
    /// The resident memory of the tracker after the fill, in bytes.
    pub resident_bytes: Option<u64>,
    /// Requests a second of each lane.
    pub rates: Vec<(Lane, f64)>,
    /// Replies a second of the closed loop over UDP that `--share` is a share of, if it was measured.
    pub most_per_s: Option<f64>,
    /// The number of WebTorrent clients that stay connected.
    pub websockets: usize,
    /// A request counts as lost after this time without an answer, in milliseconds.
    pub timeout_ms: u64,
}

/// An event, and what was lost in it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EventResult {
    /// Which one.
    pub event: EventKind,
    /// The time from its beginning until the tracker had done what was asked of it, or answered again, in milliseconds.
    pub took_ms: f64,
    /// The time from the start of the new process, or from the end of a pause, until a request was due that was
    /// answered, in milliseconds.
    pub first_answer_ms: Option<f64>,
    /// The requests of each lane that were due shortly before, during and shortly after the event.
    pub lanes: Vec<LaneResult>,
    /// The peers of a sample of torrents that the load does not touch.
    pub peers: Option<PeerCounts>,
    /// The account of the requests of full load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// The WebTorrent clients.
    pub websockets: Option<WebSocketResult>,
    /// Datagrams that this host dropped.
    pub drops: Drops,
    /// The size of the largest file of its state after the event, in bytes.
    pub state_bytes: Option<u64>,
    /// A remark for the reader.
    pub note: Option<String>,
    /// Why the event could not be carried out, if it could not.
    pub failure: Option<String>,
    /// The figures that have a threshold.
    pub findings: Vec<Finding>,
}

/// The requests of a lane around an event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneResult {
    /// The lane.
    pub lane: Lane,
    /// Requests that were due.
    pub requests: u64,
    /// Requests with an answer in time, refusals among them.
    pub answered: u64,
    /// Requests without one.
    pub lost: u64,
    /// Requests with more than one answer.
    pub doubled: u64,
    /// Requests that were refused with an error reply.
    pub refused: u64,
    /// Lost requests whose connection was refused.
    pub connect_refused: u64,
    /// Lost requests whose connection was reset.
    pub reset: u64,
    /// Lost requests whose connection the tracker closed.
    pub closed: u64,
    /// The longest time between two successive answers, in milliseconds.
    pub gap_ms: f64,
    /// Latency of requests that were due before the event.
    pub before: Latency,
    /// During it.
    pub during: Latency,
    /// After it.
    pub after: Latency,
}

/// The latency of answered requests, from when they were due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// The number of answers.
    pub answers: u64,
    /// Median in microseconds.
    pub p50_us: u32,
    /// 99th percentile in microseconds.
    pub p99_us: u32,
}

/// Peers of a sample of torrents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PeerCounts {
    /// The number of torrents in the sample.
    pub torrents: usize,
    /// Their peers before the event.
    pub before: u64,
    /// After it.
    pub after: u64,
}

/// The WebTorrent clients around an event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WebSocketResult {
    /// Connections that the tracker ended.
    pub ended: usize,
    /// How many ended with each code; "none" without a close frame.
    pub codes: BTreeMap<String, usize>,
    /// The time from the first end to the last, in milliseconds.
    pub spread_ms: f64,
}

/// The end of a WebSocket that the client did not cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketEnd {
    /// When, in nanoseconds since the load began.
    pub at_ns: u64,
    /// The code of the close frame (RFC 6455, 7.4), if there was one.
    pub code: Option<u16>,
}

/// Datagrams that the kernel dropped around an event. Those of the last two may be of other programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// Replies for which the load's own sockets had no room. The tracker has sent them.
    pub own: u64,
    /// Datagrams to ports without a socket.
    pub no_port: u64,
    /// Datagrams for which a socket had no room, on the whole host, those of `own` among them.
    pub no_room: u64,
}

impl ChaosResult {
    /// Returns whether every event was carried out and every figure is within its threshold.
    pub fn passed(&self) -> bool {
        self.failure.is_none() && self.events.iter().all(EventResult::passed)
    }
}

impl EventResult {
    /// Returns whether it was carried out and every figure is within its threshold.
    pub fn passed(&self) -> bool {
        self.failure.is_none() && self.findings.iter().all(Finding::passed)
    }
}

impl PeerCounts {
    /// Returns the share of the peers that were lost, in percent.
    pub fn lost_percent(&self) -> f64 {
        100.0 * ratio(self.before.saturating_sub(self.after), self.before)
    }
}
