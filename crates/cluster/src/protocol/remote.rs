//! The knowledge of a node about another one.

use core::mem;

use crate::protocol::allowance::Allowance;
use crate::protocol::api::{NodeId, NodeState, NodeStatus};
use crate::protocol::message::Hello;
use crate::protocol::meter::{DelayMeter, RateMeter};
use crate::protocol::stream::Stream;
use crate::protocol::subject::SHARDS;

/// The time after which a silent node counts as lost, in milliseconds.
pub(crate) const LOST_MS: u64 = 5_000;

/// The time after which a silent node is forgotten, in milliseconds.
pub(crate) const FORGOTTEN_MS: u64 = 600_000;

/// The interval of pings in milliseconds.
const PING_MS: u64 = 5_000;

/// Batches a second that are resent for one node.
const RESENT_PER_S: u64 = 512;

/// The number of a node's failed snapshots after which others do without them.
const FAILURES_MAX: u32 = 3;

/// The pause in milliseconds after a node's failed snapshot, which doubles with each, and its maximum.
const FAILED_PAUSE_MS: (u64, u64) = (1_000, 60_000);

/// The pause after a refused snapshot, in milliseconds.
const REFUSED_PAUSE_MS: u64 = 500;

/// How long a node may refuse snapshots before others do without them, in milliseconds. A refusal is forgotten after
/// the same time.
const REFUSED_MS_MAX: u64 = 10_000;

/// Why a node is asked for a snapshot, in descending priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceKind {
    /// Batches of this node are missing.
    Diverged,
    /// Its connected peers are missing.
    Connected,
    /// The node may have missing batches of others.
    Nearest,
}

#[derive(Debug)]
pub(crate) struct Remote {
    name: String,
    pub(crate) is_ready: bool,
    pub(crate) is_whole: bool,
    has_other_version: bool,
    /// Whether the node was lost, so that its WebTorrent peers were forgotten.
    is_lost: bool,
    /// Since when its WebTorrent peers must be fetched from it.
    missing_ms: Option<u64>,
    heard_ms: u64,
    /// When it started, according to its first hello.
    started_ms: Option<u64>,
    pub(crate) streams: [Stream; SHARDS],
    pub(crate) rate: RateMeter,
    delay: DelayMeter,
    /// Whether the node was lost and has sent no hello since. Its clock may have stood still in a suspension, which is
    /// no delay.
    is_clock_doubtful: bool,
    /// How much longer than the quickest message the last batch was on its way.
    excess_ms: Option<u64>,
    round_trip_ms: Option<u64>,
    pinged_ms: Option<u64>,
    /// The batches that may be resent for it.
    resends: Allowance,
    /// Failed snapshots of the node since the last success.
    failures: u32,
    refusals: Option<Refusals>,
    /// When it may be asked for a snapshot again.
    retry_ms: u64,
}

/// Refused snapshots since the last one that the node has given.
#[derive(Clone, Copy, Debug)]
struct Refusals {
    first_ms: u64,
    last_ms: u64,
}

impl Remote {
    /// Creates a node whose first message has arrived. Unless it `is_new`, it may already have connected peers, and its
    /// streams begin later.
    pub(crate) fn new(is_new: bool, now_ms: u64) -> Self {
        Self {
            name: String::new(),
            is_ready: false,
            is_whole: false,
            has_other_version: false,
            is_lost: false,
            missing_ms: (!is_new).then_some(now_ms),
            heard_ms: now_ms,
            started_ms: None,
            streams: Default::default(),
            rate: RateMeter::default(),
            delay: DelayMeter::default(),
            is_clock_doubtful: false,
            excess_ms: None,
            round_trip_ms: None,
            pinged_ms: None,
            resends: Allowance::new(RESENT_PER_S, now_ms),
            failures: 0,
            refusals: None,
            retry_ms: 0,
        }
    }

    /// Creates a node that is away but known to others.
    pub(crate) fn absent(now_ms: u64) -> Self {
        Self { is_lost: true, heard_ms: now_ms.saturating_sub(LOST_MS), ..Self::new(true, now_ms) }
    }

    /// Records a message of the node. If it was lost before, its connected peers must be fetched.
    pub(crate) fn note_message(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
        self.has_other_version = false;
        if mem::take(&mut self.is_lost) {
            self.missing_ms = Some(now_ms);
            self.is_clock_doubtful = true;
        }
    }

    /// Returns whether the node is lost now and was not before.
    pub(crate) fn is_newly_lost(&mut self, now_ms: u64) -> bool {
        let is_lost = !self.is_alive(now_ms);
        is_lost && !mem::replace(&mut self.is_lost, is_lost)
    }

    pub(crate) fn receive_other_version(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
        self.has_other_version = true;
    }

    /// Records a hello of the node. Returns whether it is the first one.
    pub(crate) fn greet(&mut self, hello: &Hello<'_>, now_ms: u64) -> bool {
        if self.name != hello.name {
            hello.name.clone_into(&mut self.name);
        }
        (self.is_ready, self.is_whole) = (hello.is_ready, hello.is_whole);
        if mem::take(&mut self.is_clock_doubtful) {
            (self.delay, self.excess_ms) = (DelayMeter::default(), None);
        }
        self.delay.calibrate(hello.sent_ms, now_ms);
        self.started_ms.replace(now_ms.saturating_sub(hello.uptime_ms)).is_none()
    }

    /// Returns whether any message of the node has arrived.
    pub(crate) const fn is_known(&self) -> bool {
        self.is_met() || !self.is_lost || self.has_other_version
    }

    /// Returns whether the node has sent a hello.
    pub(crate) const fn is_met(&self) -> bool {
        self.started_ms.is_some()
    }

    /// Records the next batch of its shard. Returns how much longer than the quickest message it was on its way, in
    /// milliseconds. This is bounded by the time since the last hello that did not name it, at any state of the clocks.
    pub(crate) fn count_batch(&mut self, shard: usize, sent_ms: u64, deltas: usize, now_ms: u64) -> u64 {
        let untold_ms = self.streams[shard].untold_ms();
        let age_ms_max = untold_ms.map_or(u64::MAX, |untold_ms| now_ms.saturating_sub(untold_ms) + LOST_MS);
        self.excess_ms = self.delay.excess_ms(sent_ms, now_ms).map(|excess_ms| excess_ms.min(age_ms_max));
        self.rate.add(deltas as u64);
        self.excess_ms.unwrap_or(0)
    }

    pub(crate) const fn leave(&mut self) {
        self.heard_ms = 0;
    }

    /// Returns whether a message of the node has arrived recently.
    pub(crate) const fn is_alive(&self, now_ms: u64) -> bool {
        now_ms < self.heard_ms + LOST_MS && !self.has_other_version
    }

    /// Returns whether the node knows best what it has sent, and can give it. If not, another node's snapshot must do.
    pub(crate) const fn gives_addresses(&self, now_ms: u64) -> bool {
        self.is_alive(now_ms) && self.is_met()
    }

    pub(crate) const fn is_forgotten(&self, now_ms: u64) -> bool {
        now_ms >= self.heard_ms + FORGOTTEN_MS
    }

    /// Returns whether a ping is due, and records it.
    pub(crate) fn ping_is_due(&mut self, now_ms: u64) -> bool {
        let is_due =
            self.is_alive(now_ms) && self.pinged_ms.is_none_or(|pinged_ms| now_ms >= pinged_ms + PING_MS);
        if is_due {
            self.pinged_ms = Some(now_ms);
        }
        is_due
    }

    /// Records the answer to a ping of this time.
    pub(crate) fn pong(&mut self, at_ms: u64, now_ms: u64) {
        if self.pinged_ms == Some(at_ms) {
            self.round_trip_ms = Some(now_ms.saturating_sub(at_ms));
        }
    }

    /// Takes up to this many resends from its allowance. Returns their number.
    pub(crate) fn allow_resends(&mut self, wanted: u64, now_ms: u64) -> u64 {
        let allowed = wanted.min(self.resends.available(now_ms));
        self.resends.take(allowed);
        allowed
    }

    /// Continues a stream at a batch, since earlier ones cannot be resent. Returns the number of lost batches.
    pub(crate) fn skip_to(&mut self, shard: usize, sequence: u64, now_ms: u64) -> u64 {
        let lost = self.streams[shard].skip_to(sequence, now_ms);
        if lost > 0 {
            self.missing_ms = Some(now_ms);
        }
        lost
    }

    /// Gives up batches that do not come. Returns the number of lost batches by shard.
    pub(crate) fn give_up(&mut self, now_ms: u64) -> [u64; SHARDS] {
        let is_lost = !self.is_alive(now_ms);
        let lost = core::array::from_fn(|shard| self.streams[shard].give_up(is_lost, now_ms));
        if lost != [0; SHARDS] {
            self.missing_ms = Some(now_ms);
        }
        lost
    }

    /// Records a snapshot that began at `began_ms`, and which of the node's peers it has brought.
    pub(crate) fn heal(&mut self, addresses: bool, connected: bool, began_ms: u64) {
        if addresses {
            self.streams.iter_mut().for_each(|stream| stream.heal(began_ms));
        }
        if connected {
            self.missing_ms.take_if(|missing_ms| *missing_ms <= began_ms);
        }
    }

    /// Records that a snapshot of it was received completely.
    pub(crate) const fn note_snapshot(&mut self) {
        (self.failures, self.refusals, self.retry_ms) = (0, None, 0);
    }

    pub(crate) fn note_failure(&mut self, now_ms: u64) {
        let (pause_ms, pause_ms_max) = FAILED_PAUSE_MS;
        self.retry_ms = now_ms + (pause_ms << self.failures.min(16)).min(pause_ms_max);
        self.failures = self.failures.saturating_add(1);
    }

    /// Records that it has refused a snapshot because it is busy with others.
    pub(crate) fn note_refusal(&mut self, now_ms: u64) {
        let first_ms = self.recent_refusals(now_ms).map_or(now_ms, |refusals| refusals.first_ms);
        self.refusals = Some(Refusals { first_ms, last_ms: now_ms });
        self.retry_ms = now_ms + REFUSED_PAUSE_MS;
    }

    fn recent_refusals(&self, now_ms: u64) -> Option<Refusals> {
        self.refusals.filter(|refusals| now_ms < refusals.last_ms + REFUSED_MS_MAX)
    }

    /// Returns how long it has refused snapshots, in milliseconds.
    pub(crate) fn refused_for_ms(&self, now_ms: u64) -> u64 {
        self.recent_refusals(now_ms).map_or(0, |refusals| refusals.last_ms - refusals.first_ms)
    }

    pub(crate) const fn may_be_asked(&self, now_ms: u64) -> bool {
        now_ms >= self.retry_ms
    }

    /// Returns whether its snapshots fail repeatedly, so that no other node should depend on them.
    pub(crate) const fn is_failing(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Returns whether others no longer wait for its snapshots: they fail, or it has refused them for some seconds.
    pub(crate) fn is_unavailable(&self, now_ms: u64) -> bool {
        self.is_failing() || self.refused_for_ms(now_ms) >= REFUSED_MS_MAX
    }

    /// Returns the position of this node in the order of requests for snapshots of a `kind`. Nodes with failed
    /// snapshots come last, and among these, nodes that never give one take turns. Of the others, nodes that have
    /// refused come after the rest, and after some seconds after all.
    pub(crate) fn rank(&self, kind: SourceKind, now_ms: u64) -> impl Ord + use<> {
        let turn_ms = if self.is_failing() { self.retry_ms } else { 0 };
        let (misses, order) = match kind {
            SourceKind::Diverged => (false, self.diverged_ms().unwrap_or(u64::MAX)),
            SourceKind::Connected => (false, 0),
            SourceKind::Nearest => (!self.is_whole, self.round_trip_ms.unwrap_or(u64::MAX)),
        };
        let refused_ms = self.recent_refusals(now_ms).map(|refusals| refusals.last_ms);
        let is_refusing = self.refused_for_ms(now_ms) >= REFUSED_MS_MAX;
        let failures = self.failures.min(FAILURES_MAX);
        (failures, turn_ms, is_refusing, kind, misses, refused_ms, order)
    }

    /// Returns whether its connected peers must be fetched from it.
    pub(crate) const fn misses_connected(&self, now_ms: u64) -> bool {
        self.missing_ms.is_some() && self.is_alive(now_ms)
    }

    /// Returns whether it is lost, and its connected peers are forgotten.
    pub(crate) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns since when a snapshot is needed to replace losses.
    pub(crate) fn diverged_ms(&self) -> Option<u64> {
        self.streams.iter().filter_map(Stream::diverged_ms).min()
    }

    /// Begins all unbegun streams at these sequence numbers. [`Stream::pop`] then returns the waiting batches.
    pub(crate) fn begin(&mut self, next: [u64; SHARDS]) {
        for (stream, next) in self.streams.iter_mut().zip(next) {
            stream.begin(next);
        }
    }

    pub(crate) fn next(&self) -> [u64; SHARDS] {
        core::array::from_fn(|shard| self.streams[shard].next())
    }

    pub(crate) fn has_gap(&self) -> bool {
        self.streams.iter().any(Stream::has_gap)
    }

    /// Returns the size of its batches that wait for others.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.streams.iter().map(Stream::waiting_bytes).sum()
    }

    pub(crate) fn status(&self, id: NodeId, now_ms: u64) -> NodeStatus {
        let state = match (self.has_other_version, self.is_alive(now_ms), self.is_ready, self.is_whole) {
            (true, ..) => NodeState::OtherVersion,
            (_, false, ..) => NodeState::Lost,
            (_, _, false, _) => NodeState::Joining,
            (_, _, true, false) => NodeState::Resyncing,
            (_, _, true, true) => NodeState::Ready,
        };
        NodeStatus {
            name: self.name.clone(),
            id: id.to_string(),
            state,
            heard_ms_ago: now_ms.saturating_sub(self.heard_ms),
            round_trip_ms: self.round_trip_ms,
            lag_ms: self.excess_ms.map(|excess_ms| excess_ms + self.round_trip_ms.unwrap_or(0) / 2),
            behind: self.streams.iter().map(Stream::behind).sum(),
            deltas_per_s: self.rate.per_s(),
        }
    }
}
