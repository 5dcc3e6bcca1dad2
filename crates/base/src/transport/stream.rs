//! The contract for streams: connections over TCP and Unix sockets.
//!
//! The I/O side accepts connections, moves their bytes, keeps time, and enforces limits. The [`StreamService`] keeps a
//! session for each connection, and decides what to send and what to wait for. The calls for a connection come in this
//! order:
//!
//! 1. [`open`](StreamService::open) once, or [`refuse`](StreamService::refuse) if there is no capacity;
//! 2. [`receive`](StreamService::receive) for each input, and [`changed_quota`](StreamService::changed_quota) and
//!    [`is_established`](StreamService::is_established) after it;
//! 3. [`write`](StreamService::write) for output that no input of this connection has caused,
//!    [`keep_alive`](StreamService::keep_alive) after a long silence, and
//!    [`set_backlog`](StreamService::set_backlog) as the peer reads and [`put_off`](StreamService::put_off) while it waits
//!    for its turn;
//! 4. [`expire`](StreamService::expire) or [`shed`](StreamService::shed) if the I/O side ends the connection while it
//!    may still be sent something;
//! 5. [`close`](StreamService::close) once.
//!
//! A connection of another process begins with [`attach`](StreamService::attach). One that passes to another process
//! ends with [`detach`](StreamService::detach) before it is closed.
//!
//! After each call that may change the session, the I/O side asks how much memory it holds
//! ([`held`](StreamService::held)). At the end of each poll round it asks which connections have output
//! ([`next_to_write`](StreamService::next_to_write)).

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The output size in bytes at which a session should return [`Next::More`] instead of continuing. The last reply may
/// exceed it.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// An address to listen on. It is written as `127.0.0.1:80` or `unix:/run/http.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// TCP. With port 0 the kernel chooses a port, the same for all workers.
    Tcp(SocketAddr),
    /// A Unix socket, whose file is created.
    Unix(PathBuf),
}

impl ListenAddress {
    /// The prefix of the path of a Unix socket.
    pub const UNIX_PREFIX: &str = "unix:";
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "{}{}", Self::UNIX_PREFIX, path.display()),
        }
    }
}

/// The listener and the peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The index of the listener in the configuration.
    pub listener: usize,
    /// The other end of the TCP connection; `None` for a Unix socket. An IPv4-mapped address is given as IPv4.
    pub peer: Option<SocketAddr>,
}

/// A connection of a worker. A handle is not reused for a long time. Its index is dense: a new connection takes the
/// index of a closed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The index among the connections of the worker.
    pub index: u32,
    /// The number of earlier connections with this index, modulo 2^31.
    pub generation: u32,
}

impl Handle {
    /// Generations have 31 bits, so that a back end can use the highest bit to mark values that are not handles.
    pub const GENERATION_MAX: u32 = u32::MAX >> 1;
}

/// The number of bytes that a connection holds, in addition to the fixed size of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Memory that every connection of this kind needs, such as the state of TLS.
    pub fixed: usize,
    /// Memory that depends on the peer: incomplete input, unread output, and lists.
    pub variable: usize,
}

/// The kind of a connection. It decides which limit applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionKind {
    /// A connection for HTTP requests and replies. Every connection begins as one.
    #[default]
    Http,
    /// A WebSocket, which stays open for hours.
    WebSocket,
}

/// The quota that a connection counts towards: the quota of its source for connections of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The client's address: the other end, or the one that a proxy names. `None` means unlimited, like a proxy.
    pub ip: Option<IpAddr>,
    /// The kind of the connection.
    pub kind: ConnectionKind,
}

/// Decides how many connections a source may still open, over all workers.
pub trait SourceCapacity: fmt::Debug + Send {
    /// Returns whether the source of `ip` may open one more connection of this kind. Counts a refusal if it may not.
    fn has_capacity(&self, ip: IpAddr, kind: ConnectionKind) -> bool;
}

/// Maximum size of the state of a session and of its output that can pass to another process. A session that holds more
/// stays until it holds less.
pub const DETACHED_BYTES_MAX: usize = 768 * 1024;

/// A session that has ended in this process, for another one to continue.
#[derive(Debug)]
pub struct Detached {
    /// Its state, in the encoding of the service.
    pub state: Vec<u8>,
    /// The quota towards which the connection counts.
    pub quota: Quota,
    /// The encryption of the connection, if any. It stays, because its secrets cannot be passed on.
    pub cipher: Option<Box<dyn Cipher>>,
}

/// The encryption of a connection whose session another process continues.
pub trait Cipher: fmt::Debug {
    /// Decrypts input from the peer, which it may overwrite. Appends the contents to `plaintext`, and messages of the
    /// encryption itself to `output`. Returns whether the peer may send more.
    fn open(&mut self, input: &mut [u8], plaintext: &mut Vec<u8>, output: &mut Vec<u8>) -> bool;

    /// Encrypts `plaintext` for the peer and appends it to `output`.
    fn seal(&mut self, plaintext: &[u8], output: &mut Vec<u8>);

    /// Appends the end of the connection to `output`. Afterwards nothing can be sealed.
    fn close(&mut self, output: &mut Vec<u8>);
}

/// The event for which a connection waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next request, if any; nothing is in progress. The connection may wait for long, and is closed first when
    /// capacity is needed.
    Idle,
    /// Nothing in particular, for hours: either side may send at any time, as on a WebSocket. The connection gets a
    /// keep-alive when its peer has been silent for long.
    Upgraded,
    /// Like `Upgraded`, but the peer may be gone and was pinged: its silence counts from now on.
    Pinged,
    /// The rest of a request or handshake, which must arrive soon.
    Busy,
    /// The rest of a new request, so its time starts now. The previous request has arrived completely, although its
    /// reply may still be pending.
    BusyNew,
    /// Another call when all output so far has been sent: there is more to write, or more input to process.
    More,
    /// Nothing, and no more input is expected: the connection closes when all output has been sent.
    Close,
    /// Nothing, but the peer may still send data that will not be read. When all output has been sent, only the sending
    /// direction closes, and input is discarded for a moment, so that no reset overtakes the output.
    Linger,
}

/// Serves the connections of a worker.
///
/// The methods with a default body are for services that serve WebSockets or share sources with other workers. Other
/// services can leave them out.
pub trait StreamService {
    /// The state of a connection between two calls.
    type Session;

    /// Creates the session of an accepted connection, which has this `handle` until it is closed.
    fn open(&mut self, remote: &Remote, handle: Handle) -> Self::Session;

    /// Ends a session that another process continues. `output` holds what the peer has not accepted yet; other queued
    /// output is appended. Returns `None`, and changes nothing, if this session must stay, for example because it holds
    /// more than [`DETACHED_BYTES_MAX`].
    fn detach(&mut self, _session: &mut Self::Session, _output: &mut Vec<u8>) -> Option<Detached> {
        None
    }

    /// Returns whether a session leaves a [`Cipher`] behind when it is detached.
    fn is_encrypted(&self, _session: &Self::Session) -> bool {
        false
    }

    /// Returns whether a session can continue here while another process serves new connections and requests.
    fn can_stay(&self, _session: &Self::Session) -> bool {
        false
    }

    /// Creates the session of a connection of another process from its state there, instead of
    /// [`open`](StreamService::open). Returns `None` if that is not possible. Otherwise, the session receives an empty
    /// input next.
    fn attach(&mut self, _handle: Handle, _state: &[u8]) -> Option<Self::Session> {
        None
    }

    /// Refuses a connection of another process, for lack of room or because it cannot continue. May append a message;
    /// as much as fits one packet is sent.
    fn refuse_detached(&mut self, _kind: ConnectionKind, _output: &mut Vec<u8>) {}

    /// Handles the end of the input from the peer. May append a last message; the connection closes afterwards.
    fn end_input(&mut self, _session: &mut Self::Session, _output: &mut Vec<u8>) {}

    /// Handles received bytes: consumes all of `input`, appends the bytes to send to `output`, and returns the event
    /// for which the connection waits. The service may overwrite `input`. After [`Next::More`], the next call has an
    /// empty input.
    fn receive(&mut self, session: &mut Self::Session, input: &mut [u8], output: &mut Vec<u8>) -> Next;

    /// Called when the kernel has the reply to an input of the connection, or as much as its socket accepts.
    fn replied(&mut self) {}

    /// Returns the new quota that the connection counts towards, if it has changed since the last call. Called after
    /// each [`receive`](StreamService::receive). At first, a connection counts towards the quota of its peer, if that
    /// is limited ([`is_limited`](StreamService::is_limited)). The new quota is not refused, so the service must ask
    /// [`SourceCapacity`] first.
    fn changed_quota(&mut self, _session: &mut Self::Session) -> Option<Quota> {
        None
    }

    /// Returns whether the client has begun to use its connection for its purpose, such as a WebSocket that has
    /// announced. Called after each [`receive`](StreamService::receive). From then on, such a connection is the last to
    /// be closed when capacity is needed. This must have a price: it should not be cheaper for a client than the
    /// closing that it prevents.
    fn is_established(&self, _session: &Self::Session) -> bool {
        false
    }

    /// Returns the next connection with output that is no reply to its own input. Called at the end of each poll round
    /// until it returns `None`, so that everything queued for a connection by then leaves in one write. One that has not
    /// read its earlier output has to read it first, see [`set_backlog`](StreamService::set_backlog). The output of
    /// a connection is lost if it has closed, is idle or lingers.
    fn next_to_write(&mut self) -> Option<Handle> {
        None
    }

    /// Appends the queued output of the connection to `output`, and returns the event for which it now waits. The write
    /// neither extends the time of a request nor ends the silence of an upgraded connection.
    fn write(&mut self, _session: &mut Self::Session, _output: &mut Vec<u8>) -> Next {
        Next::Upgraded
    }

    /// Reports how many bytes of earlier output the peer has not yet accepted. Until this is called with zero,
    /// [`write`](StreamService::write) is not called, and the service should not return the connection from
    /// [`next_to_write`](StreamService::next_to_write).
    fn set_backlog(&mut self, _handle: Handle, _unsent_bytes: usize) {}

    /// Puts off the output of a connection that waits for its turn among busy ones. Until
    /// [`set_backlog`](StreamService::set_backlog) is called with zero, [`write`](StreamService::write) is not called, and
    /// the service should not return the connection from [`next_to_write`](StreamService::next_to_write).
    fn put_off(&mut self, _handle: Handle) {}

    /// Handles an upgraded connection whose peer has been silent for the maximum time. The service may ping the peer,
    /// which then has as much time again, or close the connection.
    fn keep_alive(&mut self, _session: &mut Self::Session, _output: &mut Vec<u8>) -> Next {
        Next::Close
    }

    /// Ends a connection whose time is up, or because the tracker stops. May append a last message. The connection then
    /// closes.
    fn expire(&mut self, session: &mut Self::Session, output: &mut Vec<u8>);

    /// Ends a connection that holds more memory than others when memory is short. May append a last message. The
    /// connection then closes.
    fn shed(&mut self, session: &mut Self::Session, output: &mut Vec<u8>) {
        self.expire(session, output);
    }

    /// Returns how much memory the connection holds in addition to the fixed size of its session.
    fn held(&self, _session: &Self::Session) -> Held {
        Held::default()
    }

    /// Refuses a connection for lack of capacity. May append a message; as much as fits one packet is sent.
    fn refuse(&mut self, remote: &Remote, output: &mut Vec<u8>);

    /// Removes a connection that has closed, for any reason.
    fn close(&mut self, session: Self::Session);

    /// Returns whether connections from `remote` count towards the limit of their source. Connections of a proxy should
    /// not.
    fn is_limited(&self, remote: &Remote) -> bool;

    /// Returns whether `remote` may open a connection now. If not, it is refused.
    fn may_connect(&mut self, _remote: &Remote) -> bool {
        true
    }
}
