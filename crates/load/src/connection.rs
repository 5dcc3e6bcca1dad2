//! A connection: a nonblocking socket, an optional TLS session, and the requests in flight.
//!
//! Moves bytes and tracks the stage of the connection. It does not interpret the bytes, and it does not decide when
//! to open or close.

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
use crate::tally::Kind;
use crate::tls::TlsClient;

/// A slot for a connection. `D` holds what only its protocol needs to know of a request in flight.
#[derive(Debug)]
pub(crate) struct Connection<D> {
    socket: Option<OwnedFd>,
    session: Option<Box<ClientConnection>>,
    pub(crate) stage: Stage,
    /// The number of connections that this slot has held. Events of earlier ones are ignored.
    pub(crate) generation: u32,
    /// The index of its source address.
    pub(crate) local: usize,
    /// When it was opened, or began to wait for the tracker to close it.
    pub(crate) since_ns: u64,
    /// Requests in flight, oldest first.
    pub(crate) requests: VecDeque<Pending<D>>,
    /// Whether it has carried a reply.
    pub(crate) is_proven: bool,
    pub(crate) is_queued: bool,
    /// Received and decrypted bytes that have not been read yet.
    pub(crate) input: Vec<u8>,
    /// Encrypted bytes to send, of which the first `sent` have been sent.
    output: Vec<u8>,
    sent: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending<D> {
    /// When the request should have left.
    pub(crate) due_ns: u64,
    pub(crate) sent_ns: u64,
    pub(crate) kind: Kind,
    /// The peer that announces, or a peer of the first torrent of a scrape.
    pub(crate) peer: u32,
    pub(crate) hashes: u8,
    pub(crate) details: D,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOptions {
    pub(crate) no_delay: bool,
    /// The size of the receive buffer, if not the default of the kernel.
    pub(crate) recv_buffer_bytes: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Closed,
    Connecting,
    Handshaking,
    Upgrading,
    Open,
    /// Nothing is in flight; the tracker is about to close it.
    Closing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Refused,
    Reset,
    /// The tracker closed it before the reply was complete.
    Closed,
    Timeout,
    Tls(String),
    WebSocket(String),
    /// An error of this host.
    Other(Errno),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Nothing,
    Bytes {
        more: bool,
    },
    /// The tracker will send nothing more.
    End,
}

impl<D> Connection<D> {
    /// Returns an empty slot for connections from address `local` with up to `depth` requests in flight.
    pub(crate) fn vacant(local: usize, depth: usize) -> Self {
        Self {
            socket: None,
            session: None,
            stage: Stage::Closed,
            generation: 0,
            local,
            since_ns: 0,
            requests: VecDeque::with_capacity(depth),
            is_proven: false,
            is_queued: false,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
        }
    }

    pub(crate) fn open(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        tls: Option<&TlsClient>,
        options: SocketOptions,
        now_ns: u64,
    ) -> Result<BorrowedFd<'_>, Fault> {
        self.is_proven = false;
        let socket = bind(from)?;
        if options.no_delay {
            sockopt::set_tcp_nodelay(&socket, true).map_err(Fault::Other)?;
        }
        self.session = tls.map(TlsClient::connect).transpose().map_err(Fault::tls)?;
        self.generation = self.generation.wrapping_add(1);
        self.since_ns = now_ns;
        self.stage = Stage::Connecting;
        self.collect_tls();
        match rustix::net::connect(&socket, &to) {
            Ok(()) => self.stage = self.stage_after_connect(),
            Err(Errno::INPROGRESS) => {}
            Err(errno) => {
                self.close(false);
                return Err(Fault::of(errno));
            }
        }
        let socket: &OwnedFd = self.socket.insert(socket);
        if let Some(bytes) = options.recv_buffer_bytes {
            sockopt::set_socket_recv_buffer_size(socket, bytes).map_err(Fault::Other)?;
        }
        Ok(socket.as_fd())
    }

    pub(crate) fn complete_connect(&mut self) -> Result<(), Fault> {
        if let Some(socket) = &self.socket {
            sockopt::socket_error(socket).and_then(|error| error).map_err(Fault::of)?;
        }
        self.stage = self.stage_after_connect();
        self.flush()
    }

    fn stage_after_connect(&self) -> Stage {
        if self.session.is_some() { Stage::Handshaking } else { Stage::Open }
    }

    /// Opens the connection if the TLS handshake is complete. Returns its kind if it has just completed.
    pub(crate) fn complete_handshake(&mut self) -> Option<HandshakeKind> {
        let session = self.session.as_ref().filter(|session| !session.is_handshaking())?;
        if self.stage != Stage::Handshaking {
            return None;
        }
        self.stage = Stage::Open;
        session.handshake_kind()
    }

    /// Adds bytes to the output. [`Connection::flush`] sends it.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        match &mut self.session {
            None => self.output.extend_from_slice(bytes),
            // The session keeps the bytes until the handshake is complete.
            Some(session) => session.writer().write_all(bytes).map_err(|error| Fault::of_io(&error))?,
        }
        Ok(())
    }

    /// Sends as much output as the socket accepts. A connection to this host accepts bytes before its first event.
    pub(crate) fn flush(&mut self) -> Result<(), Fault> {
        self.collect_tls();
        let Some(socket) = &self.socket else { return Ok(()) };
        while self.sent < self.output.len() {
            match rustix::net::send(socket, &self.output[self.sent..], SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.sent += sent;
                    if self.stage == Stage::Connecting {
                        self.stage = self.stage_after_connect();
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

    /// Sends bytes, without a copy if there is no other output and the socket accepts them.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
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

    /// Takes spare buffers if it has none. Of thousands of connections, only those with a partial message need buffers.
    pub(crate) fn borrow_buffers(&mut self, spares: &mut Vec<Vec<u8>>) {
        for buffer in [&mut self.input, &mut self.output] {
            if buffer.capacity() == 0 {
                *buffer = spares.pop().unwrap_or_default();
            }
        }
    }

    pub(crate) fn return_buffers(&mut self, spares: &mut Vec<Vec<u8>>) {
        for buffer in [&mut self.input, &mut self.output] {
            if buffer.is_empty() && buffer.capacity() > 0 {
                spares.push(std::mem::take(buffer));
            }
        }
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    fn collect_tls(&mut self) {
        if let Some(session) = &mut self.session {
            while session.wants_write() && session.write_tls(&mut self.output).is_ok_and(|bytes| bytes > 0) {}
        }
    }

    /// Reads from the socket through `buffer`. Nothing more comes once the tracker has shut down its side
    /// (`is_ending`).
    pub(crate) fn receive(&mut self, buffer: &mut [u8], is_ending: bool) -> Result<Received, Fault> {
        let Some(socket) = &self.socket else { return Ok(Received::Nothing) };
        let bytes = match rustix::io::read(socket, &mut *buffer) {
            Ok(0) => return Ok(Received::End),
            Ok(bytes) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
            Err(errno) => return Err(Fault::of(errno)),
        };
        let more = bytes == buffer.len();
        let mut is_ending = is_ending;
        if let Some(session) = &mut self.session {
            let decrypted = decrypt(session, &buffer[..bytes], &mut self.input);
            // The reply of a handshake, or an alert.
            let flushed = self.flush();
            is_ending |= decrypted?;
            flushed?;
        } else {
            self.input.extend_from_slice(&buffer[..bytes]);
        }
        Ok(if is_ending && !more { Received::End } else { Received::Bytes { more } })
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        if bytes == self.input.len() {
            self.input.clear();
        } else {
            self.input.drain(..bytes);
        }
    }

    pub(crate) fn close(&mut self, reset: bool) {
        if let Some(socket) = &self.socket {
            if reset {
                // If that fails, the connection is closed properly.
                let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
            } else if let (Stage::Open | Stage::Upgrading, Some(session)) = (self.stage, &mut self.session) {
                session.send_close_notify();
                // A tracker that does not accept it has already closed.
                let _ = self.flush();
            }
        }
        self.socket = None;
        self.session = None;
        self.stage = Stage::Closed;
        self.requests.clear();
        self.input.clear();
        self.output.clear();
        self.sent = 0;
    }
}

/// Appends the plaintext of received bytes. Returns whether the tracker has sent its `close_notify`.
fn decrypt(
    session: &mut ClientConnection,
    mut received: &[u8],
    plaintext: &mut Vec<u8>,
) -> Result<bool, Fault> {
    let mut is_closed = false;
    while !received.is_empty() {
        session.read_tls(&mut received).map_err(|error| Fault::of_io(&error))?;
        let state = session.process_new_packets().map_err(Fault::tls)?;
        let expected = state.plaintext_bytes_to_read();
        is_closed |= state.peer_has_closed();
        if expected > 0 {
            let before = plaintext.len();
            plaintext.resize(before + expected, 0);
            let taken = session.reader().read(&mut plaintext[before..]);
            plaintext.truncate(before + taken.map_err(|error| Fault::of_io(&error))?);
        }
    }
    Ok(is_closed)
}

/// Returns a socket bound to an address. Connecting chooses its port, so that each tracker can have all ports.
fn bind(from: SocketAddr) -> Result<OwnedFd, Fault> {
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(Fault::Other)?;
    // Without the option there are fewer ports.
    let _ = setsockopt(&socket, IpBindAddressNoPort, &true);
    rustix::net::bind(&socket, &from).map_err(Fault::Other)?;
    Ok(socket)
}

pub(crate) fn check_local(from: SocketAddr) -> Result<(), OpenError> {
    match bind(from) {
        Ok(_) => Ok(()),
        Err(fault) => Err(OpenError::Host(format!("cannot send from {}: {fault}", from.ip()))),
    }
}

impl Fault {
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
            Self::Tls(message) => write!(f, "TLS: {message}"),
            Self::WebSocket(message) => write!(f, "WebSocket: {message}"),
            Self::Other(errno) => write!(f, "this host: {errno}"),
        }
    }
}
