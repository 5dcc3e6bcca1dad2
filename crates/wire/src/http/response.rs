//! Heads of responses, in both directions, and chunks (RFC 9112).

use core::mem::MaybeUninit;
use httparse::Status as Parsed;

use super::date::Date;
use super::field::{self, Length};
use super::head::{HEAD_BYTES_MAX, HEADERS_MAX};
use super::{Version, number};

/// The bytes after the last chunk.
pub const END_OF_CHUNKS: &[u8] = b"0\r\n\r\n";

/// The number of digits of a chunk size. It is fixed, because the size is written after the data.
const CHUNK_DIGITS: usize = 8;
const CHUNK_HEAD_BYTES: usize = CHUNK_DIGITS + 2;

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200: success. Refused announces get it too, because clients show no other body to their users.
    Ok,
    /// 304: the client has what it asks for.
    NotModified,
    /// 400: not HTTP, or ambiguous.
    BadRequest,
    /// 403: not available to this client.
    Forbidden,
    /// 404: no such path.
    NotFound,
    /// 405: neither GET nor HEAD.
    MethodNotAllowed,
    /// 408: the request did not arrive in time.
    RequestTimeout,
    /// 411: a body without a length.
    LengthRequired,
    /// 413: the body is too large.
    ContentTooLarge,
    /// 414: the request line exceeds the maximum of a head.
    UriTooLong,
    /// 426: only available over another protocol or another version of it.
    UpgradeRequired,
    /// 429: the source asks too often.
    TooManyRequests,
    /// 431: the head is too large or has too many fields.
    HeaderFieldsTooLarge,
    /// 503: no capacity left.
    ServiceUnavailable,
}

/// The end of the body of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After this number of bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// At the end of the connection: for HTTP/1.0, which has no chunks, and for HEAD if the body is not created.
    Close,
}

/// The type of most bodies. Other trackers use it too: browsers display it.
pub const PLAIN_TEXT: &str = "text/plain";

/// The head of a response to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: Status,
    /// The version of the request. The response is always labelled HTTP/1.1 (RFC 9110, 2.5), but its `Connection` field
    /// depends on this version.
    pub version: Version,
    /// Whether the connection stays open. Has no effect with [`Framing::Close`].
    pub keep_alive: bool,
    /// The type of the body.
    pub content_type: &'a str,
    /// The end of the body. A response with status 304 has none.
    pub framing: Framing,
    /// The date of the response (RFC 9110, 6.6.1).
    pub date: &'a Date,
    /// Additional fields, such as `Allow`, `Retry-After` and `Content-Encoding`. Without a `Cache-Control`, no cache
    /// may keep the response.
    pub fields: &'a [(&'a str, &'a str)],
}

/// A chunk whose data is being appended.
#[derive(Debug)]
#[must_use = "a chunk must be ended"]
pub struct Chunk {
    start: usize,
}

/// The head of a received response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedHead {
    /// The number of bytes up to the end of the empty line after the fields.
    pub bytes: usize,
    /// The status code.
    pub status: u16,
    /// The end of the body. A response to HEAD has no body.
    pub framing: Framing,
    /// Whether the server keeps the connection open.
    pub keep_alive: bool,
}

/// The reason why bytes are not a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The bytes are not HTTP, or two readers could interpret them differently.
    #[error("malformed response: {0}")]
    Malformed(&'static str),
    /// The head exceeds [`HEAD_BYTES_MAX`] or has too many fields.
    #[error("the head of the response is too large")]
    TooLarge,
}

impl Status {
    /// Returns the status line without the version.
    const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::NotModified => "304 Not Modified",
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::RequestTimeout => "408 Request Timeout",
            Self::LengthRequired => "411 Length Required",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::UriTooLong => "414 URI Too Long",
            Self::UpgradeRequired => "426 Upgrade Required",
            Self::TooManyRequests => "429 Too Many Requests",
            Self::HeaderFieldsTooLarge => "431 Request Header Fields Too Large",
            Self::ServiceUnavailable => "503 Service Unavailable",
        }
    }

    /// Returns the status code.
    pub const fn code(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::NotModified => 304,
            Self::BadRequest => 400,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::LengthRequired => 411,
            Self::ContentTooLarge => 413,
            Self::UriTooLong => 414,
            Self::UpgradeRequired => 426,
            Self::TooManyRequests => 429,
            Self::HeaderFieldsTooLarge => 431,
            Self::ServiceUnavailable => 503,
        }
    }

    /// Returns the reason phrase, which also serves as a body.
    pub fn reason(self) -> &'static str {
        &self.line()[4..]
    }
}

impl ResponseHead<'_> {
    /// Appends the head. The `nosniff` option keeps browsers from treating the body as anything but its type.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(self.status.line().as_bytes());
        out.extend_from_slice(b"\r\nContent-Type: ");
        out.extend_from_slice(self.content_type.as_bytes());
        out.extend_from_slice(b"\r\nX-Content-Type-Options: nosniff\r\nDate: ");
        out.extend_from_slice(self.date.as_bytes());
        out.extend_from_slice(b"\r\n");
        match self.framing {
            // RFC 9110, 8.6: the length would refer to the body of another response.
            Framing::Length(_) if self.status == Status::NotModified => {}
            Framing::Length(bytes) => {
                out.extend_from_slice(b"Content-Length: ");
                number::push(bytes, out);
                out.extend_from_slice(b"\r\n");
            }
            Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Framing::Close => {}
        }
        match (self.keep_alive && self.framing != Framing::Close, self.version) {
            (true, Version::Http11) => {}
            (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
        }
        // Replies are for one client at one moment. Replies that may be cached have their own rule.
        if !self.fields.iter().any(|(name, _)| *name == "Cache-Control") {
            out.extend_from_slice(b"Cache-Control: no-store\r\n");
        }
        for (name, value) in self.fields {
            for part in [name, ": ", value, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl Chunk {
    /// Begins a chunk. Everything appended to `out` from now on is its data.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(b"00000000\r\n");
        Self { start }
    }

    /// Ends the chunk. An empty chunk is removed, because it would end the body.
    ///
    /// # Panics
    /// Panics if `out` has been truncated since the chunk began, or if its data reaches 4 GiB.
    pub fn end(self, out: &mut Vec<u8>) {
        let data_bytes = out.len() - self.start - CHUNK_HEAD_BYTES;
        if data_bytes == 0 {
            return out.truncate(self.start);
        }
        let mut rest = u32::try_from(data_bytes).expect("a chunk of less than 4 GiB");
        for digit in out[self.start..][..CHUNK_DIGITS].iter_mut().rev() {
            *digit = b"0123456789abcdef"[usize::from(rest.to_le_bytes()[0] & 15)];
            rest >>= 4;
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl ReceivedHead {
    /// Decodes a head from the front of `bytes`. Returns `None` if it is incomplete. Fails as soon as the bytes can no
    /// longer become a head.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, ResponseError> {
        let window = bytes.get(..HEAD_BYTES_MAX).unwrap_or(bytes);
        let mut storage = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        match config.parse_response_with_uninit_headers(&mut response, window, &mut storage) {
            Ok(Parsed::Partial) if window.len() < HEAD_BYTES_MAX => Ok(None),
            Ok(Parsed::Partial) | Err(httparse::Error::TooManyHeaders) => Err(ResponseError::TooLarge),
            Ok(Parsed::Complete(head_bytes)) => {
                let version = Version::from_minor(response.version.unwrap_or(0));
                let status = response.code.unwrap_or(0);
                let field::Framing { connection, length, hosts: _ } =
                    field::framing(response.headers, version).map_err(ResponseError::Malformed)?;
                let framing = match length {
                    // RFC 9112, 6.3: these responses never have a body.
                    _ if matches!(status, 100..200 | 204 | 304) => Framing::Length(0),
                    Length::Bytes(bytes) => Framing::Length(bytes),
                    Length::Chunked => Framing::Chunked,
                    Length::Absent => Framing::Close,
                };
                let keep_alive = connection.persists(version) && framing != Framing::Close;
                Ok(Some(Self { bytes: head_bytes, status, framing, keep_alive }))
            }
            Err(_) => Err(ResponseError::Malformed("status line or header")),
        }
    }
}

/// Appends the data of a chunked body to `out` and returns how many of `bytes` the body takes. Returns `None` and
/// leaves `out` unchanged if the body is incomplete. Fails if chunks are malformed, or contain more than
/// `data_bytes_max` bytes of data.
pub fn decode_chunks(
    bytes: &[u8],
    data_bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<Option<usize>, ResponseError> {
    let before = out.len();
    let decoded = append_chunks(bytes, before.saturating_add(data_bytes_max), out);
    if !matches!(decoded, Ok(Some(_))) {
        out.truncate(before);
    }
    decoded
}

fn append_chunks(
    bytes: &[u8],
    out_bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<Option<usize>, ResponseError> {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let Ok(size) = httparse::parse_chunk_size(rest) else {
            return Err(ResponseError::Malformed("the size of a chunk"));
        };
        let Parsed::Complete((head_bytes, size)) = size else { return Ok(None) };
        if size == 0 {
            return match &rest[head_bytes..] {
                [b'\r', b'\n', ..] => Ok(Some(at + head_bytes + 2)),
                [] | [b'\r'] => Ok(None),
                _ => Err(ResponseError::Malformed("a trailer after the chunks")),
            };
        }
        let Some(size) = usize::try_from(size).ok().filter(|size| out_bytes_max - out.len() >= *size) else {
            return Err(ResponseError::TooLarge);
        };
        let Some((data, after)) = rest[head_bytes..].split_at_checked(size) else { return Ok(None) };
        match after {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] => return Ok(None),
            _ => return Err(ResponseError::Malformed("the end of a chunk")),
        }
        out.extend_from_slice(data);
        at += head_bytes + size + 2;
    }
}
