//! What the I/O of streams and those who speak on connections tell each other: the contract between them, as
//! [`crate::datagram`] is for datagrams.

use core::net::{IpAddr, SocketAddr};

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

/// A connection of a worker: a name that is not used again for another one for a long time. Its index is dense: that of a
/// connection that has gone is given to one that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Its place among the connections of the worker.
    pub index: u32,
    /// How many have been at that place before, modulo 2^31.
    pub generation: u32,
}

impl Handle {
    /// Generations have 31 bits, so that a back end can tell other things from handles by the highest bit.
    pub const GENERATION_MAX: u32 = u32::MAX >> 1;
}

/// How many bytes a connection holds, beside the fixed size of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// What it takes to be there, such as the state of TLS: every connection of its kind holds as much.
    pub fixed: usize,
    /// What depends on its peer: input of which the rest has not come, output that has not been taken, lists.
    pub variable: usize,
}

/// The limit that a connection counts towards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// That of requests and answers, as every connection does at first.
    #[default]
    Http,
    /// That of connections that stand for hours.
    WebSocket,
}

/// What a connection counts towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The source: the client's address, whether the client is the other end or is named by a proxy. None is not limited,
    /// as a proxy is not.
    pub ip: Option<IpAddr>,
    /// Which of its limits.
    pub class: Class,
}

/// Tells how many connections a source may still have, over all workers.
pub trait SourceRoom: core::fmt::Debug + Send {
    /// Whether the source of `ip` may have one connection more. Counts a refusal where it may not.
    fn has_room(&self, ip: IpAddr, class: Class) -> bool;
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next request, or nothing: nothing is half done. It may wait for long, and is the first to go when room is
    /// needed.
    Idle,
    /// Nothing in particular, for hours: either side may speak at any time, as on a WebSocket. Of the connections of its
    /// source it goes for room only when none is [`Next::Idle`], and it is tended when its peer has been silent for long.
    Standing,
    /// The rest of a request or handshake, which has to come soon.
    Busy,
    /// The same, but of another one than before, whose time begins now: what had begun before has come whole, although
    /// nothing was answered yet.
    BusyAnew,
    /// To be asked again once all output so far is sent: there is more to say, or more input to look at.
    More,
    /// Nothing, and nothing more is expected from the peer: it is to be closed once all output is sent.
    Close,
    /// Nothing, but the peer may still be sending what nobody will read: once all output is sent, only the sending
    /// direction is closed, and what arrives is thrown away for a moment, so that no reset overtakes the output.
    Linger,
}
