//! The counters of a back end, for export.
//!
//! Each worker writes its own set, and any thread may read it. A single writer makes counting a plain load and store
//! instead of a locked instruction.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, written by one thread and read by any.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the current count.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds `n`. Two concurrent calls would lose counts, so it is not public.
    pub(crate) fn add(&self, n: usize) {
        self.add_u64(n as u64);
    }

    /// Adds a count of the kernel.
    pub(crate) fn add_u64(&self, n: u64) {
        self.0.store(self.read().wrapping_add(n), Ordering::Relaxed);
    }
}

/// A number that grows and shrinks, written by one thread and read by any.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Returns the current number.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }
}

/// The counters of one worker's back end.
#[derive(Debug, Default)]
#[repr(align(128))] // Two cache lines, which the prefetcher pairs: workers do not slow each other down by counting.
pub struct Counters {
    /// Over IPv4.
    pub v4: FamilyCounters,
    /// Over IPv6.
    pub v6: FamilyCounters,
    /// Batches passed to the service. Received datagrams divided by this number give the mean batch size.
    pub batches: Counter,
    /// How often all receive buffers of a socket were full, so that receiving paused and the socket's own buffer filled
    /// instead (io_uring only).
    pub pool_exhausted: Counter,
    /// The XDP data path. Its datagrams are also counted by family.
    pub xdp: XdpCounters,
}

/// The counters of one worker's AF_XDP sockets.
#[derive(Debug, Default)]
pub struct XdpCounters {
    /// Frames that have arrived.
    pub frames: Counter,
    /// Frames dropped because they contained no datagram that the kernel would deliver.
    pub malformed: Counter,
    /// Frames dropped because the UDP checksum was wrong.
    pub bad_checksum: Counter,
    /// Replies dropped because the transmit ring was full. [`FamilyCounters::send_full`] counts them too.
    pub transmit_full: Counter,
    /// Descriptors of the kernel that lie outside of the memory or belong to another frame.
    pub bad_descriptors: Counter,
    /// Frames that the kernel dropped because the receive ring was full (`rx_ring_full` of `struct xdp_statistics`).
    pub kernel_ring_full: Counter,
    /// Frames that the kernel dropped at the socket for another reason, such as a lack of frames or a frame that was
    /// too long (`rx_dropped`).
    pub kernel_dropped: Counter,
    /// Replies that the kernel did not send because their descriptors were invalid (`tx_invalid_descs`).
    pub kernel_invalid: Counter,
    /// Sockets that were given up, because their interface had vanished or the kernel had damaged a ring.
    pub lost: Counter,
    /// Open sockets.
    pub sockets: Gauge,
    /// Frames that are free or wait in the kernel for arriving data.
    pub frames_free: Gauge,
    /// All frames.
    pub frames_total: Gauge,
}

/// The counters of one address family.
#[derive(Debug, Default)]
pub struct FamilyCounters {
    /// Datagrams passed to the service.
    pub received: Counter,
    /// Datagrams dropped because they were longer than [`crate::REQUEST_BYTES_MAX`].
    pub oversized: Counter,
    /// Failed receives, mostly because of ICMP errors after earlier replies.
    pub receive_failed: Counter,
    /// Replies that the kernel accepted.
    pub sent: Counter,
    /// Replies dropped because the socket's send buffer or the device's queue was full.
    pub send_full: Counter,
    /// Replies dropped because no route or neighbour leads to the destination.
    pub send_unreachable: Counter,
    /// Replies dropped for any other reason, such as a firewall rule or a destination port of 0.
    pub send_failed: Counter,
}

impl Counters {
    /// Returns the counters of the family of a socket at `local`.
    pub(crate) fn family(&self, local: &SocketAddr) -> &FamilyCounters {
        if local.is_ipv4() { &self.v4 } else { &self.v6 }
    }
}
