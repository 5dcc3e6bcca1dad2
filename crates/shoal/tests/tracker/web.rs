//! HTTP by hand, over TCP, TLS and Unix sockets.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};
use shoal_testkit::certificate::AnyCertificate;

use crate::harness::PATIENCE;

/// A connection, whatever carries it.
pub(crate) struct Web {
    stream: Box<dyn Stream>,
    /// The bytes received after the last answer.
    rest: Vec<u8>,
}

pub(crate) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Web {
    /// Connects over TCP, with TLS or without.
    pub(crate) fn connect(address: SocketAddr, tls: bool) -> Self {
        Self { stream: over_tcp(tcp(address), tls), rest: Vec::new() }
    }

    /// Connects over TLS to this name, and tells which certificate it is shown.
    pub(crate) fn connect_by_name(address: SocketAddr, name: &str) -> (Self, Vec<u8>) {
        let (mut session, mut stream) = (session(name).0, tcp(address));
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
    pub(crate) fn over(stream: impl Read + Write + 'static) -> Self {
        Self { stream: Box::new(stream), rest: Vec::new() }
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).expect("the tracker reads");
    }

    /// Sends a GET and reads the answer.
    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: tracker\r\n\r\n").as_bytes());
        self.answer()
    }

    /// Reads one answer, which tells its length.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut bytes = std::mem::take(&mut self.rest);
        let head_bytes = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.read_more(&mut bytes) > 0, "no answer, but {:?}", String::from_utf8_lossy(&bytes));
        };
        let head = String::from_utf8_lossy(&bytes[..head_bytes]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.trim().parse().ok()).expect("a length");
        while bytes.len() < head_bytes + length {
            assert!(self.read_more(&mut bytes) > 0, "the answer is shorter than it says");
        }
        self.rest = bytes.split_off(head_bytes + length);
        Answer { status, head, body: bytes.split_off(head_bytes) }
    }

    /// Everything that still comes, until the tracker closes.
    pub(crate) fn until_closed(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.rest);
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(bytes),
                Ok(read) => bytes.extend_from_slice(&buffer[..read]),
                // A TLS connection may end without a word where the tracker has lost patience.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(bytes),
                Err(error) => return Err(error),
            }
        }
    }

    fn read_more(&mut self, bytes: &mut Vec<u8>) -> usize {
        let mut buffer = [0; 4096];
        let read = self.stream.read(&mut buffer).expect("the tracker answers in time");
        bytes.extend_from_slice(&buffer[..read]);
        read
    }
}

/// Returns the stream of a TCP connection, with TLS or without.
pub(crate) fn over_tcp(stream: TcpStream, tls: bool) -> Box<dyn Stream> {
    if tls { Box::new(StreamOwned::new(session("localhost").0, stream)) } else { Box::new(stream) }
}

/// A TCP connection that does not wait for ever.
pub(crate) fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the tracker listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time-out can be set");
    stream
}

/// The same from a loopback address of choice.
pub(crate) fn tcp_from(local: [u8; 4], address: SocketAddr) -> TcpStream {
    let client = socket(AddressFamily::INET, SocketType::STREAM, None).expect("there are descriptors");
    bind(&client, &SocketAddr::from((local, 0))).expect("all of 127.0.0.0/8 is this host");
    connect(&client, &address).expect("the tracker listens");
    let stream = TcpStream::from(client);
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time-out can be set");
    stream
}

/// The query of an announce of this info hash.
pub(crate) fn announce(hash: [u8; 20], port: u16, more: &str) -> String {
    let hash: String = hash.iter().map(|byte| format!("%{byte:02x}")).collect();
    format!(
        "/announce?info_hash={hash}&peer_id=-TT0001-abcdefghijkl&port={port}&uploaded=0&downloaded=0&left=1{more}"
    )
}

fn session(name: &str) -> (ClientConnection, Arc<ClientConfig>) {
    let config = client_config();
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    (ClientConnection::new(Arc::clone(&config), name).expect("a session"), config)
}

/// The configuration of a client that accepts any certificate, and remembers its sessions.
fn client_config() -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions().expect("the provider knows them");
    let verifier = Arc::new(AnyCertificate::without_signatures(provider));
    let config = config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    Arc::new(config)
}

/// A client that resumes its TLS sessions.
pub(crate) struct Resumer(Arc<ClientConfig>);

impl Resumer {
    pub(crate) fn new() -> Self {
        Self(client_config())
    }

    /// Announces on a connection of its own. Returns whether the session was resumed.
    pub(crate) fn announce(&self, address: SocketAddr) -> bool {
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(Arc::clone(&self.0), name).expect("a session");
        let mut stream = StreamOwned::new(session, tcp(address));
        let target = announce([1; 20], 1000, "");
        write!(stream, "GET {target} HTTP/1.1\r\nHost: tracker\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it closes as TLS demands");
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        stream.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}
