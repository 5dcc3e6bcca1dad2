//! How many connections there may be, how long each may take, and how much memory all of them may hold.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::SourceLimits;

/// The limits of one worker's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Most connections of this worker. When it is reached, a connection of the source that has most of them makes room
    /// for the next: the one that has been idle longest, or else one that lingers, stands, is sent something, or is in a
    /// request, in this order. A source that has as many itself is refused instead.
    pub connections_max: usize,
    /// Most connections of one source, over all workers.
    pub per_source: SourceLimits,
    /// Longest time between two requests of a connection.
    pub idle_ms_max: u64,
    /// Longest time for a request to arrive whole, or for a handshake. Where further requests begin before the connection
    /// was idle, the waits for them add up, and none begins that would be waited for once the sum has come to this.
    pub request_ms_max: u64,
    /// Longest time for the peer to take what one call of the service gave it; six times that where it was said unasked.
    pub send_ms_max: u64,
    /// Longest time, in sum, for the peer to take what several calls gave it without the connection having been idle. It
    /// does not hold for connections of [`shoal_transport::stream::ConnectionKind::WebSocket`].
    pub answer_ms_max: u64,
    /// Longest time for which the peer of a standing connection may be silent before the service has to tend it.
    pub silent_ms_max: u64,
}

/// The memory of one worker's connections, in bytes. The worker writes what they hold; any thread may read that, and say
/// how much it may be from now on.
#[derive(Debug)]
#[repr(align(128))] // As `StreamCounters`: workers do not slow each other down.
pub struct Budget {
    held_bytes: AtomicUsize,
    held_bytes_max: AtomicUsize,
}

impl Default for Budget {
    /// Without a limit.
    fn default() -> Self {
        Self { held_bytes: AtomicUsize::new(0), held_bytes_max: AtomicUsize::new(usize::MAX) }
    }
}

impl Budget {
    /// What the connections hold.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// What they may hold. When they hold more, the worker closes connections of the sources that hold most.
    #[must_use]
    pub fn held_bytes_max(&self) -> usize {
        self.held_bytes_max.load(Ordering::Relaxed)
    }

    /// Sets what they may hold, from the next connection on that is looked at.
    pub fn limit(&self, held_bytes_max: usize) {
        self.held_bytes_max.store(held_bytes_max, Ordering::Relaxed);
    }

    pub(super) fn note(&self, held_bytes: usize) {
        self.held_bytes.store(held_bytes, Ordering::Relaxed);
    }
}
