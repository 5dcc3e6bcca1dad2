//! HTTP over TCP, TLS and Unix sockets, for a test that needs every answer.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustls::{HandshakeKind, StreamOwned};
use shoal_testkit::client::http::{self, get, get_and_close};
pub(crate) use shoal_testkit::client::http::{Response as Answer, announce_target as announce};
use shoal_testkit::client::tls::{self, Tls};
use shoal_testkit::client::{self, Stream};

use crate::kit::harness::PATIENCE;

/// A connection, whatever carries it.
pub(crate) struct Web(http::Client);

impl Web {
    /// Connects over TCP, with TLS or without.
    pub(crate) fn connect(address: SocketAddr, tls: bool) -> Self {
        Self::over(over_tcp(tcp(address), tls))
    }

    /// Connects over TLS to this name, and tells which certificate it is shown.
    pub(crate) fn connect_by_name(address: SocketAddr, name: &str) -> (Self, Vec<u8>) {
        let (mut session, mut stream) = (any_certificate().begin(name).expect("a name"), tcp(address));
        while session.is_handshaking() {
            session.complete_io(&mut stream).expect("the handshake succeeds");
        }
        let certificate = session.peer_certificates().expect("the tracker shows one")[0].to_vec();
        (Self::over(StreamOwned::new(session, stream)), certificate)
    }

    /// Connects to a Unix socket.
    pub(crate) fn connect_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the tracker listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
        Self::over(stream)
    }

    /// Speaks over a stream that is connected already.
    pub(crate) fn over(stream: impl Stream + 'static) -> Self {
        Self(http::Client::over(stream))
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.send(bytes).expect("the tracker reads");
    }

    /// Sends a GET and reads the answer.
    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.send(&get(target));
        self.answer()
    }

    /// Reads one answer.
    pub(crate) fn answer(&mut self) -> Answer {
        self.0.receive().expect("the tracker answers in time").expect("the tracker answers")
    }

    /// Everything that still comes, until the tracker closes.
    pub(crate) fn until_closed(&mut self) -> io::Result<Vec<u8>> {
        self.0.until_closed()
    }
}

/// Returns the stream of a TCP connection, with TLS or without.
pub(crate) fn over_tcp(stream: TcpStream, tls: bool) -> Box<dyn Stream> {
    tls::over(stream, tls.then(any_certificate).as_ref()).expect("a session")
}

/// A TCP connection that does not wait for ever.
pub(crate) fn tcp(address: SocketAddr) -> TcpStream {
    client::tcp(None, address, PATIENCE).expect("the tracker listens")
}

/// The same from a loopback address of choice.
pub(crate) fn tcp_from(local: [u8; 4], address: SocketAddr) -> TcpStream {
    client::tcp(IpAddr::from(local), address, PATIENCE).expect("the tracker listens")
}

fn any_certificate() -> Tls {
    Tls::new().expect("the library knows a version")
}

/// A client that resumes its TLS sessions.
pub(crate) struct Resumer(Tls);

impl Resumer {
    pub(crate) fn new() -> Self {
        Self(any_certificate().resuming())
    }

    /// Announces on a connection of its own. Returns whether the session was resumed.
    pub(crate) fn announce(&self, address: SocketAddr) -> bool {
        let mut stream = self.0.wrap(tcp(address)).expect("a session");
        stream.write_all(&get_and_close(&announce([1; 20], 1000, ""))).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it closes as TLS demands");
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        stream.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}
