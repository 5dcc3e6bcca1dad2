//! One connection: a socket that never blocks, perhaps a TLS session, and what is under way on both.
//!
//! Moves bytes and knows how far the connection has come. What they mean, and when to open or close, is decided by the
//! worker.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, socket_with, sockopt};
use rustls::{ClientConnection, HandshakeKind};

use crate::OpenError;
use crate::report::ConnectionFailures;
use crate::tls::Client;

/// A place for a connection, where one may be open. `A` is what a worker remembers of a request.
#[derive(Debug)]
pub(crate) struct Connection<A> {
    socket: Option<OwnedFd>,
    session: Option<Box<ClientConnection>>,
    pub(crate) stage: Stage,
    /// How many connections there were in this place: what the kernel says of an earlier one does not count.
    pub(crate) generation: u32,
    /// Which of the worker's addresses it is from.
    pub(crate) line: usize,
    /// When it was asked for, or when it began to wait for its end.
    pub(crate) since_ns: u64,
    /// Requests without an answer, in their order.
    pub(crate) asked: VecDeque<A>,
    /// Whether it has carried a reply.
    pub(crate) is_proven: bool,
    /// Whether it stands in a queue to be asked.
    pub(crate) is_queued: bool,
    /// What came and was not read yet, decrypted.
    pub(crate) input: Vec<u8>,
    /// What is to be sent, encrypted, and how much of it is.
    output: Vec<u8>,
    sent: usize,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Closed,
    /// TCP is on its way.
    Connecting,
    /// TLS is on its way.
    Handshaking,
    /// It can carry requests.
    Open,
    /// All is said; the tracker is about to close.
    Parting,
}

/// Why a connection fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nobody listens.
    Refused,
    Reset,
    /// It ended before all was said.
    Closed,
    Timeout,
    Tls(String),
    /// No WebSocket could be agreed on, or its rules were broken.
    WebSocket(String),
    /// This host has something against it.
    Other(Errno),
}

/// What a look for bytes brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    Nothing,
    /// Bytes, and whether there may be more.
    Bytes {
        more: bool,
    },
    /// The tracker will send nothing more.
    End,
}

impl Fetched {
    fn new(more: bool, is_ending: bool) -> Self {
        if is_ending && !more { Self::End } else { Self::Bytes { more } }
    }
}

impl<A> Connection<A> {
    /// An empty place, for connections with up to `depth` requests under way.
    pub(crate) fn vacant(line: usize, depth: usize) -> Self {
        Self {
            socket: None,
            session: None,
            stage: Stage::Closed,
            generation: 0,
            line,
            since_ns: 0,
            asked: VecDeque::with_capacity(depth),
            is_proven: false,
            is_queued: false,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
        }
    }

    /// Begins a connection, and hands out the socket.
    pub(crate) fn open(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        tls: Option<&Client>,
        no_delay: bool,
        now_ns: u64,
    ) -> Result<BorrowedFd<'_>, Fault> {
        let socket = dial(from)?;
        if no_delay {
            // Requests are handed over whole.
            sockopt::set_tcp_nodelay(&socket, true).map_err(Fault::Other)?;
        }
        self.session = tls.map(Client::begin).transpose().map_err(Fault::tls)?;
        self.generation = self.generation.wrapping_add(1);
        self.since_ns = now_ns;
        self.is_proven = false;
        self.stage = Stage::Connecting;
        self.collect();
        match rustix::net::connect(&socket, &to) {
            Ok(()) => self.stage = self.stage_on_tcp(),
            Err(Errno::INPROGRESS) => {}
            Err(errno) => {
                self.close(false);
                return Err(Fault::of(errno));
            }
        }
        let socket: &OwnedFd = self.socket.insert(socket);
        Ok(socket.as_fd())
    }

    /// Finds out how an attempt to connect ended.
    pub(crate) fn arrive(&mut self) -> Result<(), Fault> {
        if let Some(socket) = &self.socket {
            sockopt::socket_error(socket).and_then(|error| error).map_err(Fault::of)?;
        }
        self.stage = self.stage_on_tcp();
        self.flush()
    }

    /// How far it is once TCP is there.
    fn stage_on_tcp(&self) -> Stage {
        if self.session.is_some() { Stage::Handshaking } else { Stage::Open }
    }

    /// Goes on if TLS is there as well. Returns whether it has just become so, and how.
    pub(crate) fn has_shaken_hands(&mut self) -> Option<HandshakeKind> {
        let session = self.session.as_ref().filter(|session| !session.is_handshaking())?;
        if self.stage != Stage::Handshaking {
            return None;
        }
        self.stage = Stage::Open;
        session.handshake_kind()
    }

    /// Takes what is to be sent; [`Connection::flush`] sends it.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        match &mut self.session {
            None => self.output.extend_from_slice(bytes),
            // Before the handshake is over the session keeps it.
            Some(session) => session.writer().write_all(bytes).map_err(|error| Fault::of_io(&error))?,
        }
        Ok(())
    }

    /// Sends what the socket takes; it tells when it takes more. On the way to the own host a connection is there before
    /// anybody says so, and takes its first bytes at once.
    pub(crate) fn flush(&mut self) -> Result<(), Fault> {
        self.collect();
        let Some(socket) = &self.socket else { return Ok(()) };
        while self.sent < self.output.len() {
            match rustix::net::send(socket, &self.output[self.sent..], SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.sent += sent;
                    if self.stage == Stage::Connecting {
                        self.stage = self.stage_on_tcp();
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Fault::of(errno)),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Sends `bytes` behind what is there to be sent: as [`Connection::write`] and [`Connection::flush`], but without a
    /// copy where nothing waits and the socket takes it.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        if self.session.is_none()
            && self.stage == Stage::Open
            && self.output.is_empty()
            && let Some(socket) = &self.socket
        {
            while !bytes.is_empty() {
                match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
                    Ok(sent) => bytes = &bytes[sent..],
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(Fault::of(errno)),
                }
            }
            self.output.extend_from_slice(bytes);
            return Ok(());
        }
        self.write(bytes)?;
        self.flush()
    }

    /// Takes buffers where it has none. So that of thousands of connections only those have some on which something is
    /// half done.
    pub(crate) fn borrow_buffers(&mut self, spares: &mut Vec<Vec<u8>>) {
        for buffer in [&mut self.input, &mut self.output] {
            if buffer.capacity() == 0 {
                *buffer = spares.pop().unwrap_or_default();
            }
        }
    }

    /// Gives back those that are empty.
    pub(crate) fn return_buffers(&mut self, spares: &mut Vec<Vec<u8>>) {
        for buffer in [&mut self.input, &mut self.output] {
            if buffer.is_empty() && buffer.capacity() > 0 {
                spares.push(std::mem::take(buffer));
            }
        }
    }

    /// The socket, if there is one.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Takes what the session has to send.
    fn collect(&mut self) {
        if let Some(session) = &mut self.session {
            while session.wants_write() && session.write_tls(&mut self.output).is_ok_and(|bytes| bytes > 0) {}
        }
    }

    /// Takes what has come, by way of `room`. Where the tracker `is_ending`, what has come is all.
    pub(crate) fn fetch(&mut self, room: &mut [u8], is_ending: bool) -> Result<Fetched, Fault> {
        let Some(socket) = &self.socket else { return Ok(Fetched::Nothing) };
        let bytes = match rustix::io::read(socket, &mut *room) {
            Ok(0) => return Ok(Fetched::End),
            Ok(bytes) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Fetched::Nothing),
            Err(errno) => return Err(Fault::of(errno)),
        };
        let more = bytes == room.len();
        let Some(session) = &mut self.session else {
            self.input.extend_from_slice(&room[..bytes]);
            return Ok(Fetched::new(more, is_ending));
        };
        let decrypted = decrypt(session, &room[..bytes], &mut self.input);
        // The answer of a handshake, or an alert.
        let flushed = self.flush();
        let is_over = decrypted?;
        flushed?;
        Ok(Fetched::new(more, is_ending || is_over))
    }

    /// Ends the connection, if there is one; where it is to be reset, without any farewell.
    pub(crate) fn close(&mut self, reset: bool) {
        if let Some(socket) = &self.socket {
            if reset {
                // Where that fails, the connection ends in good order.
                let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
            } else if let (Stage::Open, Some(session)) = (self.stage, &mut self.session) {
                session.send_close_notify();
                // Whoever does not take it has gone before.
                let _ = self.flush();
            }
        }
        self.socket = None;
        self.session = None;
        self.stage = Stage::Closed;
        self.asked.clear();
        self.input.clear();
        self.output.clear();
        self.sent = 0;
    }
}

/// Hands received bytes to a session and takes what they contain. Returns whether the tracker has said goodbye.
fn decrypt(
    session: &mut ClientConnection,
    mut received: &[u8],
    plaintext: &mut Vec<u8>,
) -> Result<bool, Fault> {
    let mut is_over = false;
    while !received.is_empty() {
        session.read_tls(&mut received).map_err(|error| Fault::of_io(&error))?;
        let state = session.process_new_packets().map_err(Fault::tls)?;
        let expected = state.plaintext_bytes_to_read();
        is_over |= state.peer_has_closed();
        if expected > 0 {
            let before = plaintext.len();
            plaintext.resize(before + expected, 0);
            let taken = session.reader().read(&mut plaintext[before..]);
            plaintext.truncate(before + taken.map_err(|error| Fault::of_io(&error))?);
        }
    }
    Ok(is_over)
}

/// A socket that is bound to an address, and to a port only once it is known what it connects to: so each tracker has
/// all ports of each address.
fn dial(from: SocketAddr) -> Result<OwnedFd, Fault> {
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(Fault::Other)?;
    // Where it is not to be had, ports are fewer.
    let _ = setsockopt(&socket, IpBindAddressNoPort, &true);
    rustix::net::bind(&socket, &from).map_err(Fault::Other)?;
    Ok(socket)
}

/// Whether connections can be made from an address.
pub(crate) fn probe(from: SocketAddr) -> Result<(), OpenError> {
    match dial(from) {
        Ok(_) => Ok(()),
        Err(fault) => Err(OpenError::Host(format!("cannot send from {}: {fault}", from.ip()))),
    }
}

impl Fault {
    /// Counts one more of its kind.
    pub(crate) fn count(&self, failures: &mut ConnectionFailures) {
        *match self {
            Self::Refused => &mut failures.refused,
            Self::Reset => &mut failures.reset,
            Self::Closed => &mut failures.closed,
            Self::Timeout => &mut failures.timeout,
            Self::Tls(_) => &mut failures.tls,
            Self::WebSocket(_) => &mut failures.websocket,
            Self::Other(_) => &mut failures.other,
        } += 1;
    }

    fn of(errno: Errno) -> Self {
        match errno {
            Errno::CONNREFUSED => Self::Refused,
            Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => Self::Reset,
            Errno::TIMEDOUT => Self::Timeout,
            errno => Self::Other(errno),
        }
    }

    fn of_io(error: &io::Error) -> Self {
        Errno::from_io_error(error).map_or_else(|| Self::Tls(error.to_string()), Self::of)
    }

    fn tls(error: rustls::Error) -> Self {
        Self::Tls(error.to_string())
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused"),
            Self::Reset => f.write_str("connection reset"),
            Self::Closed => f.write_str("connection closed before the reply was whole"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Tls(words) => write!(f, "TLS: {words}"),
            Self::WebSocket(words) => write!(f, "WebSocket: {words}"),
            Self::Other(errno) => write!(f, "this host: {errno}"),
        }
    }
}
