//! The contract between the I/O of streams and the code that serves connections, as [`crate::datagram`] is for
//! datagrams.

use core::net::{IpAddr, SocketAddr};

/// The output size in bytes from which a session should return [`Next::More`] instead of continuing. The last reply may
/// exceed it.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// The origin of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The index of the listener in the configuration.
    pub listener: usize,
    /// The other end of the TCP connection; `None` for a Unix socket. An IPv4-mapped address is given as IPv4.
    pub peer: Option<SocketAddr>,
}

/// A connection of a worker. A handle is not reused for a long time. Its index is dense: a new connection takes the
/// index of one that has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The index among the connections of the worker.
    pub index: u32,
    /// The number of earlier connections with this index, modulo 2^31.
    pub generation: u32,
}

impl Handle {
    /// Generations have 31 bits, so that a back end can use the highest bit to distinguish other values from handles.
    pub const GENERATION_MAX: u32 = u32::MAX >> 1;
}

/// The number of bytes that a connection holds, in addition to the fixed size of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Memory that every connection of this kind needs, such as the state of TLS.
    pub fixed: usize,
    /// Memory that depends on the peer: incomplete input, output that the peer has not read, and lists.
    pub variable: usize,
}

/// The limit to which a connection counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// The limit for HTTP requests and replies, to which every connection counts at first.
    #[default]
    Http,
    /// The limit for connections that stay open for hours.
    WebSocket,
}

/// The source and limit to which a connection counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The source: the client's address, whether the client is the other end or a proxy names it. `None` is unlimited,
    /// as a proxy is.
    pub ip: Option<IpAddr>,
    /// The limit of the source.
    pub class: Class,
}

/// Decides how many connections a source may still open, over all workers.
pub trait SourceRoom: core::fmt::Debug + Send {
    /// Returns whether the source of `ip` may open one more connection. Counts a refusal if it may not.
    fn has_room(&self, ip: IpAddr, class: Class) -> bool;
}

/// The state of a connection: the event for which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next request, if any; nothing is in progress. The connection may wait for long, and is the first to be
    /// closed when capacity is needed.
    Idle,
    /// Nothing in particular, for hours: either side may send at any time, as on a WebSocket. Of the connections of its
    /// source, it is closed to free capacity only if none is [`Next::Idle`]. It receives a keep-alive when its peer has
    /// been silent for long.
    Standing,
    /// The rest of a request or handshake, which must arrive soon.
    Busy,
    /// The rest of another request than before, so its time starts now. The previous request has arrived completely,
    /// although it may still be without a reply.
    BusyAnew,
    /// Another call once all output so far has been sent: there is more to write, or more input to process.
    More,
    /// Nothing, and no more input is expected: the connection closes once all output has been sent.
    Close,
    /// Nothing, but the peer may still send data that will not be read. Once all output has been sent, only the sending
    /// direction closes, and input is discarded for a moment, so that no reset overtakes the output.
    Linger,
}
