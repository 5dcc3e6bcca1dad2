//! What a back end counts, for whoever exports it.
//!
//! Each worker writes its own set, and any thread may read it. Only the worker writes, so that counting costs a
//! plain load and store and no locked instruction.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, written by one thread and read by any.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The count so far.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `n` more. Two threads that did this at once would lose counts, hence not public.
    pub(crate) fn add(&self, n: usize) {
        self.0.store(self.read().wrapping_add(n as u64), Ordering::Relaxed);
    }
}

/// The counts of one worker's back end.
#[derive(Debug, Default)]
#[repr(align(128))] // Two cache lines, which the prefetcher pairs: workers do not slow each other down by counting.
pub struct Counters {
    /// Over IPv4.
    pub v4: FamilyCounters,
    /// Over IPv6.
    pub v6: FamilyCounters,
    /// Batches handed to the service; received datagrams per batch is the mean batch size.
    pub batches: Counter,
    /// How often the receive buffers of a socket were all full, so that receiving paused for a moment and the
    /// socket's own buffer took over (io_uring only).
    pub pool_exhausted: Counter,
}

/// The counts of one address family.
#[derive(Debug, Default)]
pub struct FamilyCounters {
    /// Datagrams handed to the service.
    pub received: Counter,
    /// Datagrams dropped because they were longer than [`crate::REQUEST_BYTES_MAX`].
    pub oversized: Counter,
    /// Receives that failed, mostly by ICMP errors in answer to earlier replies.
    pub receive_failed: Counter,
    /// Replies that the kernel took.
    pub sent: Counter,
    /// Replies dropped because the socket's send buffer or the device's queue was full.
    pub send_full: Counter,
    /// Replies dropped because no route or neighbour leads to the destination.
    pub send_unreachable: Counter,
    /// Replies dropped for any other reason, such as a firewall rule or a destination port of 0.
    pub send_failed: Counter,
}

impl Counters {
    /// The counts of the family that a socket at `local` serves.
    pub(crate) fn family(&self, local: &SocketAddr) -> &FamilyCounters {
        if local.is_ipv4() { &self.v4 } else { &self.v6 }
    }
}
