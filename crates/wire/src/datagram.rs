//! One received datagram together with the room for its reply: the contract between the I/O back ends, which
//! fill in the request and send the reply, and whoever answers, who reads the one and writes the other.

use core::net::SocketAddr;

/// Most bytes that a reply may have. It fits one Ethernet frame over IPv6 (1500 - 40 - 8 = 1452) and so never
/// needs fragmentation on the paths that matter.
pub const REPLY_BYTES_MAX: usize = 1452;

/// Most datagrams that are answered together. 64 cache misses in flight hide each other; more gain nothing.
pub const BATCH_MAX: usize = 64;

/// A request and the room for its reply.
#[derive(Debug)]
pub struct Exchange<'b> {
    /// Where the request came from and where the reply goes.
    pub source: SocketAddr,
    /// What was received, whole.
    pub request: &'b [u8],
    /// Where the reply is written. Its content before that is left over from earlier replies.
    pub reply: &'b mut [u8; REPLY_BYTES_MAX],
    /// How many bytes of `reply` are to be sent; 0 means no reply.
    pub reply_len: usize,
}
