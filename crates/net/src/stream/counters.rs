//! Counters of connections, for export.

use super::table::Phase;
use crate::counters::Counter;

/// The counters of one worker's connections.
#[derive(Debug, Default)]
#[repr(align(128))] // As `Counters`: workers do not slow each other down by counting.
pub struct StreamCounters {
    /// Connections accepted, including those refused afterwards.
    pub accepted: Counter,
    /// Connections closed, for any reason. `accepted` minus `closed` is the number of open connections.
    pub closed: Counter,
    /// Refused because the worker is full and no source has more of its connections than theirs.
    pub refused_share: Counter,
    /// Refused because their source has the maximum number of connections.
    pub refused_source: Counter,
    /// Refused because their source opens connections more often than the service allows.
    pub refused_rate: Counter,
    /// Requests of clients named by a proxy, and requests for a WebSocket, that were refused because their source has
    /// the maximum number of connections.
    pub refused_named: Counter,
    /// Closed to make room, by phase.
    pub evicted: Evictions,
    /// Closed because all connections together held too much memory. Connections of the sources that hold most go
    /// first.
    pub evicted_memory: Counter,
    /// Refused because there is no memory for another connection, and none to close instead.
    pub refused_memory: Counter,
    /// Closed because no request arrived for too long.
    pub timed_out_idle: Counter,
    /// Closed because a request or handshake took too long.
    pub timed_out_request: Counter,
    /// Closed because the peer did not read its replies.
    pub timed_out_send: Counter,
    /// Upgraded connections that the service gave up because of their peer's silence.
    pub timed_out_silent: Counter,
    /// Closed by an error of the connection, such as a reset.
    pub failed: Counter,
    /// Accepts that failed, mostly for lack of descriptors.
    pub accept_failed: Counter,
    /// Bytes received.
    pub received_bytes: Counter,
    /// Bytes sent.
    pub sent_bytes: Counter,
    /// Writes that sent them.
    pub writes: Counter,
}

/// Connections closed to make room.
#[derive(Debug, Default)]
pub struct Evictions {
    /// Idle connections.
    pub idle: Counter,
    /// Connections after their last reply.
    pub lingering: Counter,
    /// Upgraded connections, which are WebSockets.
    pub upgraded: Counter,
    /// Connections with unsent output.
    pub sending: Counter,
    /// Connections in the middle of a request or handshake.
    pub request: Counter,
    /// Of all these, the connections whose source had more connections than others.
    pub greedy: Counter,
}

impl Evictions {
    /// Returns the sum over all phases.
    #[must_use]
    pub fn read(&self) -> u64 {
        let Self { idle, lingering, upgraded, sending, request, greedy: _ } = self;
        [idle, lingering, upgraded, sending, request].into_iter().map(Counter::read).sum()
    }

    pub(super) fn add(&self, phase: Phase, is_over_share: bool) {
        let counter = match phase {
            Phase::Idle => &self.idle,
            Phase::Linger => &self.lingering,
            Phase::Upgraded => &self.upgraded,
            Phase::Send => &self.sending,
            Phase::Request => &self.request,
        };
        counter.add(1);
        self.greedy.add(usize::from(is_over_share));
    }
}

impl StreamCounters {
    /// Counts a write of this many bytes.
    pub(super) fn add_write(&self, sent: usize) {
        if sent > 0 {
            self.sent_bytes.add(sent);
            self.writes.add(1);
        }
    }
}
