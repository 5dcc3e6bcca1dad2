//! The counters of a back end, for export.

use std::net::SocketAddr;

use shoal_base::metrics::{Counter, Gauge, Labelled, counters, labels};

labels! {
    /// Why a received datagram is not passed to the service.
    pub enum Unread {
        /// It is longer than [`crate::REQUEST_BYTES_MAX`].
        Oversized = "oversized",
        /// Receiving failed, mostly because of ICMP errors that earlier replies have caused.
        Failed = "receive_failed",
    }
}

labels! {
    /// Why a reply is not sent.
    pub enum Unsent {
        /// The socket's send buffer or the device's queue is full.
        Full = "buffer_full",
        /// No route or neighbour leads to the destination.
        Unreachable = "unreachable",
        /// Any other reason, such as a firewall rule or a destination port of 0.
        Failed = "failed",
    }
}

labels! {
    /// Why a frame or a reply is dropped at an AF_XDP socket.
    pub enum XdpDrop {
        /// The frame contained no datagram that the kernel would deliver.
        Malformed = "malformed",
        /// The UDP checksum was wrong.
        BadChecksum = "bad_checksum",
        /// The transmit ring was full. The reply is among [`Unsent::Full`] as well.
        TransmitFull = "transmit_full",
        /// The kernel gave a descriptor that lies outside of the memory or belongs to another frame.
        BadDescriptor = "bad_descriptor",
        /// The kernel dropped the frame because the receive ring was full (`rx_ring_full` of `struct xdp_statistics`).
        KernelRingFull = "kernel_ring_full",
        /// The kernel dropped the frame for another reason, such as a lack of frames, or because it was too long
        /// (`rx_dropped`).
        KernelOther = "kernel_other",
        /// The kernel did not send the reply because its descriptor was invalid (`tx_invalid_descs`).
        KernelInvalid = "kernel_invalid",
    }
}

counters! {
    /// The counters of one worker's AF_XDP sockets.
    pub struct XdpCounters {
        /// Frames and replies that were dropped at AF_XDP sockets, by reason.
        pub drops = "shoal_xdp_drops", by reason: XdpDrop;
        /// AF_XDP sockets that were given up, because their interface was removed or its rings were of no use.
        pub lost = "shoal_xdp_sockets_lost";
        /// Frames that have arrived.
        pub frames: Counter;
        /// Open sockets.
        pub sockets: Gauge;
        /// Frames that are free or wait in the kernel for what arrives.
        pub frames_free: Gauge;
        /// All frames.
        pub frames_total: Gauge;
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

/// The counters of one address family.
#[derive(Debug, Default)]
pub struct FamilyCounters {
    /// Datagrams passed to the service.
    pub received: Counter,
    /// Datagrams that were not.
    pub unread: Labelled<Unread, { Unread::ALL.len() }>,
    /// Replies that the kernel accepted.
    pub sent: Counter,
    /// Replies that were dropped.
    pub unsent: Labelled<Unsent, { Unsent::ALL.len() }>,
}

impl Counters {
    /// Returns the counters of the family of a socket at `local`.
    pub(crate) fn family(&self, local: &SocketAddr) -> &FamilyCounters {
        if local.is_ipv4() { &self.v4 } else { &self.v6 }
    }
}
