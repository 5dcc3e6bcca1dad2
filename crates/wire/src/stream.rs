//! What I/O back ends and those who speak on connections tell each other: the contract between them, as
//! [`crate::datagram`] is for datagrams.

use core::net::SocketAddr;

/// Once its output has so many bytes, whoever speaks should return [`Next::More`] rather than go on. The last answer may
/// exceed it.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Which listener accepted it, by its place in the settings.
    pub listener: usize,
    /// The other end of the TCP connection; none for a Unix socket. A v4-mapped address is given as the v4 address.
    pub peer: Option<SocketAddr>,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next request, or nothing: nothing is half done. It may wait for long, and is the first to go when room is
    /// needed.
    Idle,
    /// The rest of a request or handshake, which has to come soon.
    Busy,
    /// To be asked again once all output so far is sent: there is more to say, or more input to look at.
    More,
    /// Nothing, and nothing more is expected from the peer: it is to be closed once all output is sent.
    Close,
    /// Nothing, but the peer may still be sending what nobody will read: once all output is sent, only the sending
    /// direction is closed, and what arrives is thrown away for a moment, so that no reset overtakes the output.
    Linger,
}
