//! A client of HTTP trackers (BEP 3) with one request at a time. It finds out whether a tracker answers, and opens idle
//! connections. It is not the load generator.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use shoal_base::{Event, InfoHash};
use shoal_wire::http::bencode;

use crate::certificate::server_name;

/// Timeout of a connect, a handshake or a read.
const TIMEOUT: Duration = Duration::from_secs(1);

/// No reply to a single announce is longer.
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// The port that the client announces. It is never connected to.
const PEER_PORT: u16 = 9;

/// Opens connections to one tracker.
#[derive(Clone)]
pub(crate) struct Client {
    tracker: SocketAddrV4,
    tls: Option<Arc<ClientConfig>>,
}

/// A connection, plain or over TLS.
pub(crate) struct Connection {
    tracker: SocketAddrV4,
    stream: Stream,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// The response of a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Client {
    /// Creates a client of the tracker at `tracker`. It uses TLS if `tls` is given.
    ///
    /// # Errors
    /// Returns an error for an IPv6 address, which comparisons do not use.
    pub(crate) fn new(tracker: SocketAddr, tls: Option<Arc<ClientConfig>>) -> io::Result<Self> {
        match tracker {
            SocketAddr::V4(tracker) => Ok(Self { tracker, tls }),
            SocketAddr::V6(_) => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened.
    pub(crate) fn connect(&self) -> io::Result<Connection> {
        self.connect_from(Ipv4Addr::UNSPECIFIED)
    }

    /// Opens a connection from an address of this host.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened.
    pub(crate) fn connect_from(&self, local: Ipv4Addr) -> io::Result<Connection> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddrV4::new(local, 0))?;
        let tcp = TcpStream::from(socket);
        tcp.set_write_timeout(Some(TIMEOUT))?;
        tcp.set_read_timeout(Some(TIMEOUT))?;
        tcp.set_nodelay(true)?;
        connect(&tcp, &self.tracker)?;
        let stream = match &self.tls {
            None => Stream::Plain(tcp),
            Some(config) => {
                let session =
                    ClientConnection::new(Arc::clone(config), server_name()).map_err(io::Error::other)?;
                Stream::Tls(Box::new(StreamOwned::new(session, tcp)))
            }
        };
        Ok(Connection { tracker: self.tracker, stream })
    }
}

impl Connection {
    /// Announces a peer that wants no others, and returns the response.
    ///
    /// # Errors
    /// Returns an error if there is none, or it is not HTTP.
    pub(crate) fn announce(&mut self, info_hash: InfoHash, event: Event) -> io::Result<Reply> {
        let request = announce(self.tracker, info_hash, event);
        self.send(request.as_bytes())?;
        read_reply(self.stream.as_read_write())
    }

    /// Returns the address of the tracker.
    pub(crate) fn tracker(&self) -> SocketAddrV4 {
        self.tracker
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// Returns an error if the connection does not accept them.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = self.stream.as_read_write();
        stream.write_all(bytes)?;
        stream.flush()
    }

    /// Waits for input and appends it.
    ///
    /// # Errors
    /// Returns an error if there is none, or the connection has ended.
    pub(crate) fn receive(&mut self, input: &mut Vec<u8>) -> io::Result<()> {
        let mut piece = [0; 4096];
        match self.stream.as_read_write().read(&mut piece) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                input.extend_from_slice(&piece[..bytes]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Drops the buffers of this end, so that very many connections fit. The connection stays open, but nothing can be
    /// sent on it any more.
    pub(crate) fn into_idle(self) -> TcpStream {
        match self.stream {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls.into_parts().1,
        }
    }
}

impl Stream {
    fn as_read_write(&mut self) -> &mut dyn ReadWrite {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.as_mut(),
        }
    }
}

trait ReadWrite: Read + Write {}

impl<S: Read + Write> ReadWrite for S {}

impl Reply {
    /// Returns the reason of a refusal, if it is one.
    pub(crate) fn refusal(&self) -> Option<String> {
        if self.status != 200 {
            return Some(format!("HTTP status {}", self.status));
        }
        // BEP 3: a reply that has a failure reason has no other keys that matter.
        let reason = bencode::decode(&self.body).ok()?.dictionary()?.get(b"failure reason")?.bytes()?;
        Some(String::from_utf8_lossy(reason).into_owned())
    }
}

fn announce(tracker: SocketAddrV4, info_hash: InfoHash, event: Event) -> String {
    let mut hash = String::with_capacity(60);
    for byte in info_hash.0 {
        // Writing to a string does not fail.
        let _ = write!(hash, "%{byte:02x}");
    }
    let event = match event {
        Event::Started => "started",
        Event::Stopped => "stopped",
        Event::Completed => "completed",
        Event::Update => "",
    };
    format!(
        "GET /announce?info_hash={hash}&peer_id=-SL0001-laboratory00&port={PEER_PORT}&uploaded=0&downloaded=0&left=1\
         &event={event}&numwant=0&compact=1 HTTP/1.1\r\nHost: {tracker}\r\n\r\n"
    )
}

/// Reads a whole response. Its length is that of its head, or it ends with the connection.
fn read_reply(stream: &mut dyn ReadWrite) -> io::Result<Reply> {
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        let head = head_end.map(|end| String::from_utf8_lossy(&bytes[..end]).into_owned());
        let length = head.as_deref().and_then(content_length);
        if let (Some(head), Some(end), Some(length)) = (&head, head_end, length)
            && bytes.len() >= end.saturating_add(length)
        {
            return reply(head, &bytes[end..end + length]).ok_or_else(|| invalid("not HTTP"));
        }
        if bytes.len() > REPLY_BYTES_MAX {
            return Err(invalid("the reply is too long"));
        }
        match stream.read(&mut piece) {
            Ok(0) => {
                let (Some(head), Some(end), None) = (&head, head_end, length) else {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                };
                return reply(head, &bytes[end..]).ok_or_else(|| invalid("not HTTP"));
            }
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn content_length(head: &str) -> Option<usize> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    })
}

fn reply(head: &str, body: &[u8]) -> Option<Reply> {
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.trim().parse().ok()?;
    Some(Reply { status, body: body.to_vec() })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Returns the response of a client to a tracker that sends `pieces`, and the client's request.
    fn asked(pieces: &'static [&'static str]) -> (io::Result<Reply>, String) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let tracker = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            for piece in pieces {
                stream.write_all(piece.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let client = Client::new(address, None).unwrap();
        let reply = client.connect().unwrap().announce(InfoHash([0xa5; 20]), Event::Started);
        (reply, tracker.join().unwrap())
    }

    #[test]
    fn replies_with_and_without_a_length_are_read_whole() {
        let (reply, request) = asked(&["HTTP/1.1 200 OK\r\nContent-", "Length: 2\r\n\r\nd", "e"]);
        assert_eq!(reply.unwrap(), Reply { status: 200, body: b"de".to_vec() });
        assert!(request.starts_with("GET /announce?info_hash=%a5%a5") && request.contains("&event=started"));
        let (reply, _) = asked(&["HTTP/1.0 200 OK\r\n\r\n", "d", "e"]);
        assert_eq!(reply.unwrap().body, b"de");
    }

    #[test]
    fn truncated_and_invalid_replies_are_refused() {
        assert!(asked(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nde"]).0.is_err());
        assert!(asked(&["HTTP/1.1 200 OK\r\n"]).0.is_err());
        assert!(asked(&["SMTP ready\r\n\r\n"]).0.is_err());
    }

    #[test]
    fn refusals_have_a_reason() {
        let reply = |status, body: &str| Reply { status, body: body.into() };
        assert_eq!(reply(200, "d8:intervali1800e5:peers0:e").refusal(), None);
        assert_eq!(reply(200, "d14:failure reason4:nopee").refusal().as_deref(), Some("nope"));
        assert_eq!(reply(503, "").refusal().as_deref(), Some("HTTP status 503"));
    }
}
