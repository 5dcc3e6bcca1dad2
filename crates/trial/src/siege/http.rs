//! An HTTP client, and the encoding of requests.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustls::StreamOwned;
use shoal_wire::http::bencode;

use crate::siege::socket;
use crate::siege::tls::TlsClient;

/// The maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// The size from which a response is parsed only when it ends like one. Responses of this size are chunked.
const LARGE_BYTES_MIN: usize = 1 << 20;

/// The end of a chunked response (RFC 9112, 7.1).
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// A connection, plain or TLS.
pub(crate) trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// An HTTP response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    /// The status code.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: Vec<u8>,
}

/// A connection for several requests.
pub(crate) struct HttpClient {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
}

/// Opens a connection, over TLS if there is a client for it.
pub(crate) fn open(
    source: IpAddr,
    target: SocketAddr,
    tls: Option<&TlsClient>,
    timeout: Duration,
) -> Result<Box<dyn Stream>> {
    let stream = socket::tcp(source, target, timeout).context("cannot connect")?;
    Ok(match tls {
        None => Box::new(stream),
        Some(tls) => Box::new(StreamOwned::new(tls.begin()?, stream)),
    })
}

impl HttpClient {
    /// Opens a connection, over TLS if there is a client for it.
    pub(crate) fn open(
        source: IpAddr,
        target: SocketAddr,
        tls: Option<&TlsClient>,
        timeout: Duration,
    ) -> Result<Self> {
        Ok(Self { stream: open(source, target, tls, timeout)?, unread: Vec::new() })
    }

    /// Wraps a stream on which nothing has been received.
    pub(crate) fn over(stream: Box<dyn Stream>) -> Self {
        Self { stream, unread: Vec::new() }
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).context("cannot send")?;
        self.stream.flush().context("cannot send")
    }

    /// Waits for a response, or returns `None` if the connection ends before its first byte.
    pub(crate) fn receive(&mut self) -> Result<Option<Response>> {
        loop {
            // A full scrape has tens of megabytes: parsing it again with each piece would take minutes.
            let may_be_complete = self.unread.len() < LARGE_BYTES_MIN || self.unread.ends_with(LAST_CHUNK);
            if may_be_complete && let Some((response, length)) = parse(&self.unread)? {
                self.unread.drain(..length);
                return Ok(Some(response));
            }
            ensure!(self.unread.len() <= RESPONSE_BYTES_MAX, "a response that never ends");
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) if self.unread.is_empty() => return Ok(None),
                Ok(0) => bail!("the response is truncated"),
                Ok(length) => self.unread.extend_from_slice(&piece[..length]),
                Err(error) => match error.kind() {
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
    pub(crate) fn request(&mut self, request: &[u8]) -> Result<Response> {
        self.send(request)?;
        self.receive()?.context("closed without a response")
    }
}

/// Parses a response with a Content-Length or in chunks and returns its length, or `None` if it is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<(Response, usize)>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&bytes[..end + 4]);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status line")?;
    let lower = head.to_ascii_lowercase();
    let length =
        lower.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let body = &bytes[end + 4..];
    if lower.contains("transfer-encoding: chunked") {
        return Ok(parse_chunks(body)?.map(|(body, taken)| (Response { status, body }, end + 4 + taken)));
    }
    let length = length.unwrap_or(0);
    Ok(body.get(..length).map(|body| (Response { status, body: body.to_vec() }, end + 4 + length)))
}

fn parse_chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let rest = &bytes[at..];
        let Some(line) = rest.windows(2).position(|window| window == b"\r\n") else { return Ok(None) };
        let digits = core::str::from_utf8(&rest[..line]).context("a chunk without a length")?;
        let length = usize::from_str_radix(digits, 16).context("a chunk without a length")?;
        let Some(chunk) = rest.get(line + 2..line + 4 + length) else { return Ok(None) };
        at += line + 4 + length;
        if length == 0 {
            return Ok(Some((body, at)));
        }
        body.extend_from_slice(&chunk[..length]);
    }
}

/// Returns the request target of a leecher's announce.
pub(crate) fn announce_target(info_hash: &[u8; 20], port: u16, num_want: u32) -> String {
    let hash = percent(info_hash);
    format!(
        "/announce?info_hash={hash}&peer_id=-SG0001-siegesiegesi&port={port}&left=1&numwant={num_want}&compact=1"
    )
}

/// Encodes a GET request.
pub(crate) fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: tracker.test\r\n\r\n").into_bytes()
}

/// Encodes a GET request with Connection: close.
pub(crate) fn get_and_close(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: tracker.test\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Encodes a request to the control listener, with these header fields, each of which ends with CRLF, and a body of JSON if it
/// has one.
pub(crate) fn control_request(method: &str, target: &str, fields: &str, body: Option<&[u8]>) -> Vec<u8> {
    let body_fields = body.map_or(String::new(), |body| {
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
    });
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}{body_fields}\r\n");
    [head.as_bytes(), body.unwrap_or_default()].concat()
}

/// Returns the compact peers of the family of a client in a reply (BEP 23, BEP 7).
///
/// # Errors
/// Returns an error if the reply is not bencoded, or ends within a peer.
pub(crate) fn peers(body: &[u8], client: IpAddr) -> Result<&[u8]> {
    let (key, peer_bytes) = if client.is_ipv4() { (&b"peers"[..], 6) } else { (&b"peers6"[..], 18) };
    let reply = bencode::decode(body)?.dictionary().context("a reply that is not a dictionary")?;
    // A family without peers may be left out.
    let peers =
        reply.get(key).map_or(Some(&[][..]), bencode::Value::bytes).context("peers are not compact")?;
    ensure!(peers.len().is_multiple_of(peer_bytes), "an incomplete peer");
    Ok(peers)
}

/// Percent-encodes every byte.
pub(crate) fn percent(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 3);
    for byte in bytes {
        let _ = write!(text, "%{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{parse, peers};
    use crate::siege::udp::compact;

    #[test]
    fn responses_are_parsed_once_complete() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP";
        let (response, length) = parse(plain).unwrap().unwrap();
        assert_eq!((response.status, response.body.as_slice(), length), (200, &b"ab"[..], plain.len() - 4));
        assert!(parse(&plain[..39]).unwrap().is_none());
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let (response, length) = parse(chunked).unwrap().unwrap();
        assert_eq!((response.body.as_slice(), length), (&b"abc"[..], chunked.len()));
        assert!(parse(&chunked[..chunked.len() - 1]).unwrap().is_none());
    }

    #[test]
    fn peers_of_a_family_are_found() {
        let ip: IpAddr = [127, 1, 0, 2].into();
        let body = [b"d8:intervali9e5:peers6:".as_slice(), &compact(ip, 4001), b"e"].concat();
        assert_eq!(peers(&body, ip).unwrap(), compact(ip, 4001));
        assert!(peers(b"d8:intervali9ee", ip).unwrap().is_empty());
    }
}
