//! What a stream back end counts, for whoever exports it.

use crate::counters::Counter;

/// The counts of one worker's connections.
#[derive(Debug, Default)]
#[repr(align(128))] // As `Counters`: workers do not slow each other down by counting.
pub struct StreamCounters {
    /// Connections accepted, those refused for want of room included.
    pub accepted: Counter,
    /// Connections closed, for whatever reason. Those that are open are the difference.
    pub closed: Counter,
    /// Refused because the tracker is full and nobody idles.
    pub refused_full: Counter,
    /// Refused because their source has too many.
    pub refused_source: Counter,
    /// Closed while idle or standing, to make room.
    pub evicted: Counter,
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
    /// Closed because more waited for the peer of a standing connection to take it than may.
    pub overrun: Counter,
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

impl StreamCounters {
    /// Counts a write that has sent so many bytes.
    pub(super) fn add_write(&self, sent: usize) {
        if sent > 0 {
            self.sent_bytes.add(sent);
            self.writes.add(1);
        }
    }
}
