//! What is counted about connections, for export.

use super::roster::Phase;
use crate::counters::Counter;

/// The counts of one worker's connections.
#[derive(Debug, Default)]
#[repr(align(128))] // As `Counters`: workers do not slow each other down by counting.
pub struct StreamCounters {
    /// Connections accepted, those refused for want of room included.
    pub accepted: Counter,
    /// Connections closed, for whatever reason. Those that are open are the difference.
    pub closed: Counter,
    /// Refused because the worker is full and no source has more of its connections than theirs.
    pub refused_share: Counter,
    /// Refused because their source has as many as it may have.
    pub refused_source: Counter,
    /// Requests of clients named by a proxy, and requests for a WebSocket, that were refused because their source has as
    /// many connections as it may have.
    pub refused_named: Counter,
    /// Closed to make room, by what they waited for.
    pub evicted: Evictions,
    /// Closed because all connections together held more memory than they may, those that held most first.
    pub evicted_memory: Counter,
    /// Refused because there is no memory for another connection, and none that could make room.
    pub refused_memory: Counter,
    /// Closed because nothing was asked for too long.
    pub timed_out_idle: Counter,
    /// Closed because a request or handshake took too long.
    pub timed_out_request: Counter,
    /// Closed because the peer did not take its answers.
    pub timed_out_send: Counter,
    /// Given up by the service when it tended them: the peer of a standing connection was silent for too long.
    pub timed_out_silent: Counter,
    /// Closed by an error of the connection, such as a reset.
    pub failed: Counter,
    /// Accepts that failed, mostly for want of descriptors.
    pub accept_failed: Counter,
    /// Bytes received.
    pub received_bytes: Counter,
    /// Bytes sent.
    pub sent_bytes: Counter,
    /// Writes in which they were sent.
    pub writes: Counter,
}

/// Connections closed to make room.
#[derive(Debug, Default)]
pub struct Evictions {
    /// With nothing half done.
    pub idle: Counter,
    /// After their last answer.
    pub lingering: Counter,
    /// Standing, as WebSockets do.
    pub standing: Counter,
    /// While they were sent something.
    pub sending: Counter,
    /// In the middle of a request or handshake.
    pub request: Counter,
    /// Of all these, those of a source that had more connections than others.
    pub greedy: Counter,
}

impl Evictions {
    /// How many there were.
    #[must_use]
    pub fn read(&self) -> u64 {
        let Self { idle, lingering, standing, sending, request, greedy: _ } = self;
        [idle, lingering, standing, sending, request].into_iter().map(Counter::read).sum()
    }

    pub(super) fn add(&self, phase: Phase, is_greedy: bool) {
        let counter = match phase {
            Phase::Idle => &self.idle,
            Phase::Linger => &self.lingering,
            Phase::Upgraded => &self.standing,
            Phase::Send => &self.sending,
            Phase::Request => &self.request,
        };
        counter.add(1);
        self.greedy.add(usize::from(is_greedy));
    }
}

impl StreamCounters {
    /// Counts a write that has sent so many bytes.
    pub(super) fn add_write(&self, sent: usize) {
        if sent > 0 {
            self.sent_bytes.add(sent);
            self.writes.add(1);
        }
    }
}
