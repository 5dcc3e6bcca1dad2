//! The contract for datagrams.
//!
//! A back end receives a batch of datagrams, wraps each in an [`Exchange`], and calls [`DatagramService::serve`]. The
//! service reads each request and writes its reply. Then the back end sends each reply to the source of its request,
//! from the local address that received the request.

use core::net::SocketAddr;

/// The maximum length of a reply in bytes. It fits one Ethernet frame over IPv6 (1500 - 40 - 8 = 1452), so replies are
/// not fragmented on the paths that matter.
pub const REPLY_BYTES_MAX: usize = 1452;

/// The maximum number of datagrams that are answered together. The latencies of 64 cache misses in flight overlap; more
/// gain nothing.
pub const BATCH_MAX: usize = 64;

/// A request and the buffer for its reply.
#[derive(Debug)]
pub struct Exchange<'b> {
    /// The address that sent the request and receives the reply.
    pub source: SocketAddr,
    /// The whole received datagram.
    pub request: &'b [u8],
    /// The buffer for the reply. At first it contains remains of earlier replies.
    pub reply: &'b mut [u8; REPLY_BYTES_MAX],
    /// The number of bytes of `reply` to send; 0 means no reply.
    pub reply_len: usize,
}

/// Answers datagrams.
pub trait DatagramService {
    /// Answers a batch of at most [`BATCH_MAX`] requests: writes each reply and sets its `reply_len`, or leaves that at
    /// 0.
    fn serve(&mut self, batch: &mut [Exchange<'_>]);

    /// Called when the kernel has the replies of the last batch.
    fn sent(&mut self) {}
}
