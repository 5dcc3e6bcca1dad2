//! An HTTP client, and the targets of requests.

use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
#[cfg(feature = "tls")]
use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use shoal_wire::http::received::{Received, ReceivedAnnounce};
use shoal_wire::http::response::{Framing, ReceivedHead, decode_chunks};

use super::Stream;

/// The maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// The size from which a response is parsed only when it ends like one. Responses of this size are chunked.
const LARGE_BYTES_MIN: usize = 1 << 20;

/// The end of a chunked response (RFC 9112, 7.1).
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// An HTTP response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The status line and the header, in lower case.
    pub head: String,
    /// The body, without its chunks.
    pub body: Vec<u8>,
    /// Whether the connection stays open.
    pub keep_alive: bool,
}

/// A connection for several requests.
pub struct Client {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
}

impl Client {
    /// Opens a connection, over TLS if there is a client for it.
    ///
    /// # Errors
    /// Returns an error if there is no connection in time.
    #[cfg(feature = "tls")]
    pub fn open(
        source: impl Into<Option<IpAddr>>,
        target: SocketAddr,
        tls: Option<&super::tls::Tls>,
        timeout: Duration,
    ) -> Result<Self> {
        Ok(Self::over(super::tls::open(source, target, tls, timeout)?))
    }

    /// Wraps a stream on which nothing has been received.
    #[must_use]
    pub fn over(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), unread: Vec::new() }
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// Returns an error if the connection does not accept them.
    pub fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).and_then(|()| self.stream.flush()).context("cannot send")
    }

    /// Waits for a response, or returns `None` if the connection ends before its first byte.
    ///
    /// # Errors
    /// Returns an error if the response is not HTTP, is cut off or does not come in time.
    pub fn receive(&mut self) -> Result<Option<Response>> {
        loop {
            // A full scrape has tens of megabytes: parsing it again with each piece would take minutes.
            let may_be_complete = self.unread.len() < LARGE_BYTES_MIN || self.unread.ends_with(LAST_CHUNK);
            if may_be_complete && let Some((response, length)) = Response::decode(&self.unread, false)? {
                self.unread.drain(..length);
                return Ok(Some(response));
            }
            ensure!(self.unread.len() <= RESPONSE_BYTES_MAX, "a response that never ends");
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) if self.unread.is_empty() => return Ok(None),
                Ok(0) => match Response::decode(&std::mem::take(&mut self.unread), true)? {
                    Some((response, _)) => return Ok(Some(response)),
                    None => bail!(io::Error::new(ErrorKind::UnexpectedEof, "the response is truncated")),
                },
                Ok(length) => self.unread.extend_from_slice(&piece[..length]),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset if self.unread.is_empty() => {
                        return Ok(None);
                    }
                    _ => return Err(error).context("no response"),
                },
            }
        }
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    /// Returns an error if the connection ends without a response.
    pub fn request(&mut self, request: &[u8]) -> Result<Response> {
        self.send(request)?;
        self.receive()?.context("closed without a response")
    }

    /// Returns everything that still comes until the tracker closes the connection.
    ///
    /// # Errors
    /// Returns an error if it does not.
    pub fn until_closed(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.unread);
        match self.stream.read_to_end(&mut bytes) {
            // A tracker that loses patience ends a TLS connection without a word.
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error),
            _ => Ok(bytes),
        }
    }
}

impl Response {
    /// Decodes a response at the beginning of `bytes` and returns its length, or `None` if it is incomplete. `has_ended` tells
    /// whether the connection has ended after the bytes, which ends a response without a length.
    ///
    /// # Errors
    /// Returns an error if the bytes are not HTTP.
    pub fn decode(bytes: &[u8], has_ended: bool) -> Result<Option<(Self, usize)>> {
        let Some(head) = ReceivedHead::decode(bytes)? else { return Ok(None) };
        let (text, rest) = bytes.split_at(head.bytes);
        let mut body = Vec::new();
        let taken = match head.framing {
            Framing::Chunked => decode_chunks(rest, RESPONSE_BYTES_MAX, &mut body)?,
            Framing::Close => has_ended.then_some(rest.len()),
            Framing::Length(length) => Some(usize::try_from(length)?).filter(|length| *length <= rest.len()),
        };
        let Some(taken) = taken else { return Ok(None) };
        if head.framing != Framing::Chunked {
            body.extend_from_slice(&rest[..taken]);
        }
        let text = String::from_utf8_lossy(text).to_lowercase();
        let response = Self { status: head.status, head: text, body, keep_alive: head.keep_alive };
        Ok(Some((response, head.bytes + taken)))
    }

    /// Returns the reason of a refusal, if it is one.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        if self.status != 200 {
            return Some(format!("HTTP status {}", self.status));
        }
        match ReceivedAnnounce::decode(&self.body) {
            Ok(Received::Failure { reason, .. }) => Some(String::from_utf8_lossy(reason).into_owned()),
            _ => None,
        }
    }

    /// Returns the peers of both families in the reply to an announce (BEP 23, BEP 7).
    ///
    /// # Errors
    /// Returns an error if it is no such reply.
    pub fn peers(&self) -> Result<Vec<SocketAddr>> {
        match ReceivedAnnounce::decode(&self.body) {
            Ok(Received::Reply(reply)) => {
                let v6 = reply.peers_v6.iter().map(|peer| peer.addr().into());
                Ok(reply.peers.addresses().chain(v6).collect())
            }
            _ => bail!("status {}: {}", self.status, String::from_utf8_lossy(&self.body)),
        }
    }
}

/// Returns the target of a leecher's announce with further parameters, each of which begins with `&`.
#[must_use]
pub fn announce_target(info_hash: [u8; 20], port: u16, more: &str) -> String {
    let hash = percent(&info_hash);
    format!(
        "/announce?info_hash={hash}&peer_id=-TT0001-abcdefghijkl&port={port}&uploaded=0&downloaded=0&left=1{more}"
    )
}

/// Encodes a GET request.
#[must_use]
pub fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: tracker.test\r\n\r\n").into_bytes()
}

/// Encodes a GET request after which the tracker closes the connection.
#[must_use]
pub fn get_and_close(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: tracker.test\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Percent-encodes every byte.
#[must_use]
pub fn percent(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 3);
    for byte in bytes {
        let _ = write!(text, "%{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Response;

    fn decode(bytes: &[u8], has_ended: bool) -> Option<(u16, Vec<u8>, usize)> {
        let (response, length) = Response::decode(bytes, has_ended).unwrap()?;
        Some((response.status, response.body, length))
    }

    #[test]
    fn responses_are_decoded_once_complete() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP";
        assert_eq!(decode(plain, false), Some((200, b"ab".to_vec(), plain.len() - 4)));
        assert_eq!(decode(&plain[..39], true), None);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(decode(chunked, false), Some((200, b"abc".to_vec(), chunked.len())));
        assert_eq!(decode(&chunked[..chunked.len() - 1], true), None);
        let endless = b"HTTP/1.0 200 OK\r\n\r\nde";
        assert_eq!(decode(endless, false), None);
        assert_eq!(decode(endless, true), Some((200, b"de".to_vec(), endless.len())));
        assert!(Response::decode(b"SMTP ready\r\n\r\n", false).is_err());
    }

    #[test]
    fn refusals_have_a_reason() {
        let refusal = |status, body: &str| {
            Response { status, body: body.into(), ..Response::default() }.refusal().unwrap_or_default()
        };
        assert_eq!(refusal(200, "d8:intervali1800e5:peers0:e"), "");
        assert_eq!(refusal(200, "d14:failure reason4:nopee"), "nope");
        assert_eq!(refusal(503, ""), "HTTP status 503");
    }

    #[test]
    fn peers_of_both_families_are_found() {
        let body = b"d8:intervali9e5:peers6:\x7f\x01\x00\x02\x0f\xa16:peers618:\
            \x20\x01\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x0f\xa2e";
        let response = Response { status: 200, body: body.to_vec(), ..Response::default() };
        let expected = ["127.1.0.2:4001", "[2001:2::1]:4002"].map(|peer| peer.parse().unwrap());
        assert_eq!(response.peers().unwrap(), expected);
    }
}
