//! The limits of connections: their number, their time, and their memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::SourceLimits;

/// The limits of one worker's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum number of connections of this worker. At the limit, a connection of the source with the most connections
    /// makes room for the next: the longest idle one, otherwise one that lingers, is in a request, is upgraded, has
    /// unsent output, or is established, in this order. A busy connection is closed only if more than an eighth are in
    /// the same state. A source with as many connections itself is refused instead.
    pub connections_max: usize,
    /// Maximum number of connections of one source, over all workers.
    pub per_source: SourceLimits,
    /// Maximum time between two requests of a connection.
    pub idle_ms_max: u64,
    /// Maximum time for a whole request or a handshake to arrive. If further requests begin before the connection is
    /// idle, the waits for them add up. Once the sum has reached this limit, no further wait begins.
    pub request_ms_max: u64,
    /// Maximum time for the peer to read the output of one call of the service. Unprompted output has six times as
    /// long.
    pub send_ms_max: u64,
    /// Maximum total time for the peer to read the output of several calls while the connection is never idle. Does not
    /// apply to connections of [`shoal_base::transport::stream::ConnectionKind::WebSocket`].
    pub answer_ms_max: u64,
    /// How long the peer of an upgraded connection may be silent before the service is asked to ping it.
    pub silent_ms_max: u64,
}

/// The memory of one worker's connections, in bytes. The worker writes how much they hold. Any thread may read that,
/// and set the maximum.
#[derive(Debug)]
#[repr(align(128))] // As `StreamCounters`: workers do not slow each other down.
pub struct Budget {
    held_bytes: AtomicUsize,
    held_bytes_max: AtomicUsize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { held_bytes: AtomicUsize::new(0), held_bytes_max: AtomicUsize::new(usize::MAX) }
    }
}

impl Budget {
    /// Returns how much the connections hold.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Returns how much they may hold. Beyond that, the worker closes connections of the sources that hold most.
    pub fn held_bytes_max(&self) -> usize {
        self.held_bytes_max.load(Ordering::Relaxed)
    }

    /// Sets how much they may hold, from the next event of a connection on.
    pub fn limit(&self, held_bytes_max: usize) {
        self.held_bytes_max.store(held_bytes_max, Ordering::Relaxed);
    }

    pub(super) fn note(&self, held_bytes: usize) {
        self.held_bytes.store(held_bytes, Ordering::Relaxed);
    }
}
