//! The two HTTP heads that open a WebSocket (RFC 6455, 4).

use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use httparse::{EMPTY_HEADER, Header, Status as Parsed};
use sha1::{Digest as _, Sha1};

use crate::http::Version;
use crate::http::head::{Body, HEAD_BYTES_MAX, HEADERS_MAX, Method, RequestHead};

/// The header fields of a response with status 426: the protocol to change to, and its version (4.2.2 and RFC 9110,
/// 15.5.22).
pub const UPGRADE_REQUIRED_FIELDS: [(&str, &str); 3] =
    [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13")];

/// The suffix of a client's key (1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The length of 16 bytes in base64, with padding.
const KEY_BYTES: usize = 24;
/// The length of a SHA-1 digest in base64, with padding.
const ACCEPT_BYTES: usize = 28;

/// The server's reply to the key of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Accept([u8; ACCEPT_BYTES]);

/// The upgrade that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// No upgrade to a WebSocket. The request gets the same response as any other.
    No,
    /// An upgrade to a WebSocket, but malformed. The response is 400.
    Malformed(&'static str),
    /// An upgrade to another version of WebSocket. The response is 426 with [`UPGRADE_REQUIRED_FIELDS`].
    Version,
    /// An upgrade to a WebSocket.
    WebSocket(Accept),
}

/// The reason why a response does not open a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unaccepted {
    /// The response is not HTTP, or too large.
    #[error("the reply to the handshake is not the head of an HTTP response")]
    Malformed,
    /// The status is not 101.
    #[error("the server replied to the handshake with status {0}")]
    Status(u16),
    /// The status is 101, but the protocol is not WebSocket.
    #[error("the server changes to another protocol")]
    Protocol,
    /// The response does not prove that the server read the key.
    #[error("the server replied to another key")]
    Key,
    /// The response accepts an extension or subprotocol that was not requested.
    #[error("the server accepted an extension or subprotocol that was not requested")]
    Extension,
}

impl fmt::Debug for Accept {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Accept({})", self.0.escape_ascii())
    }
}

impl Accept {
    /// Returns the value of the header field.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the reply to a key, or `None` if the key is not 16 bytes in base64. The unused bits of the last digit are
/// ignored, because some clients choose random characters instead of bytes.
pub fn accept(key: &[u8]) -> Option<Accept> {
    let digits = key.strip_suffix(b"==").filter(|_| key.len() == KEY_BYTES)?;
    digits.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/')).then(
        || {
            let hash = Sha1::new().chain_update(key).chain_update(GUID).finalize();
            let mut accept = [0; ACCEPT_BYTES];
            STANDARD.encode_slice(hash, &mut accept).expect("20 bytes take 28 characters");
            Accept(accept)
        },
    )
}

/// Returns the upgrade that a request asks for (4.2.1).
pub fn request(head: &RequestHead<'_, '_>) -> Asked {
    // RFC 9110, 7.8: an upgrade is ignored in HTTP/1.0, and where `Connection` does not name it.
    let asked = head.version == Version::Http11
        && head.upgrade().is_some()
        && head.header("upgrade").any(|protocols| names(protocols, b"websocket"));
    if !asked {
        return Asked::No;
    }
    if head.method != Method::Get {
        return Asked::Malformed("a WebSocket handshake requires GET");
    }
    if head.body != Body::None {
        return Asked::Malformed("a handshake has no body");
    }
    let mut versions = head.header("sec-websocket-version").map(<[u8]>::trim_ascii);
    if versions.next() != Some(b"13") || versions.next().is_some() {
        return Asked::Version;
    }
    let mut keys = head.header("sec-websocket-key").map(<[u8]>::trim_ascii);
    match (keys.next().and_then(accept), keys.next()) {
        (Some(accept), None) => Asked::WebSocket(accept),
        _ => Asked::Malformed("sec-websocket-key is not 16 bytes of base64"),
    }
}

/// Appends the head that opens a WebSocket (4.2.2). Frames may follow immediately.
pub fn respond(accept: &Accept, out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ",
    );
    out.extend_from_slice(&accept.0);
    out.extend_from_slice(b"\r\n\r\n");
}

/// Returns the key for these bytes, which should be random for each connection (4.1).
pub fn key(nonce: [u8; 16]) -> String {
    STANDARD.encode(nonce)
}

/// Appends a request for a WebSocket (4.1).
pub fn ask(target: &str, host: &str, key: &str, origin: Option<&str>, out: &mut Vec<u8>) {
    for part in
        ["GET ", target, " HTTP/1.1\r\nHost: ", host, "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"]
    {
        out.extend_from_slice(part.as_bytes());
    }
    for part in ["Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ", key, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    if let Some(origin) = origin {
        for part in ["Origin: ", origin, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Decodes the response to [`ask`] and returns the length of its head, which frames follow. Returns `None` if it is
/// incomplete. Fails if the response does not open a WebSocket.
pub fn confirm(response: &[u8], key: &str) -> Result<Option<usize>, Unaccepted> {
    let window = response.get(..HEAD_BYTES_MAX).unwrap_or(response);
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let head_bytes = match head.parse(window) {
        Ok(Parsed::Complete(head_bytes)) => head_bytes,
        Ok(Parsed::Partial) if window.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(Parsed::Partial) | Err(_) => return Err(Unaccepted::Malformed),
    };
    if head.code != Some(101) {
        return Err(Unaccepted::Status(head.code.unwrap_or(0)));
    }
    let upgrades = values(head.headers, "upgrade").any(|protocols| names(protocols, b"websocket"));
    if !upgrades || !values(head.headers, "connection").any(|options| names(options, b"upgrade")) {
        return Err(Unaccepted::Protocol);
    }
    let mut accepts = values(head.headers, "sec-websocket-accept").map(<[u8]>::trim_ascii);
    let expected = accept(key.as_bytes()).map(|accept| accept.0);
    match (accepts.next(), accepts.next()) {
        (Some(received), None) if expected.is_some_and(|expected| expected == *received) => {}
        _ => return Err(Unaccepted::Key),
    }
    // 4.1, 5 and 6: neither was requested.
    if ["sec-websocket-extensions", "sec-websocket-protocol"]
        .iter()
        .any(|name| values(head.headers, name).next().is_some())
    {
        return Err(Unaccepted::Extension);
    }
    Ok(Some(head_bytes))
}

/// Returns the values of all fields with a name.
fn values<'h>(headers: &'h [Header<'_>], name: &'h str) -> impl Iterator<Item = &'h [u8]> {
    headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

/// Returns whether a comma-separated list contains this element, in any case.
fn names(list: &[u8], element: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|other| other.trim_ascii().eq_ignore_ascii_case(element))
}
