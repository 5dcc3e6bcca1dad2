//! Heads of responses, in both directions, and chunks (RFC 9112).

use core::mem::MaybeUninit;
use httparse::{Header, Status as Parsed};

use super::date::Date;
use super::field::{self, Length};
use super::head::{HEAD_BYTES_MAX, HEADERS_MAX};
use super::{Version, number};

/// Behind the last chunk.
pub const END_OF_CHUNKS: &[u8] = b"0\r\n\r\n";

/// Digits of the size of a chunk: it is written when the chunk is done, so its place has to be of fixed size.
const CHUNK_DIGITS: usize = 8;
const CHUNK_HEAD_BYTES: usize = CHUNK_DIGITS + 2;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200. Also what a refused announce gets, because clients show no other body to their users.
    Ok,
    /// 400: not HTTP, or ambiguous.
    BadRequest,
    /// 403: not to be had by whoever asks.
    Forbidden,
    /// 404: no such path.
    NotFound,
    /// 405: neither GET nor HEAD.
    MethodNotAllowed,
    /// 408: the request did not come in time.
    RequestTimeout,
    /// 413: a body larger than anybody wants to read.
    ContentTooLarge,
    /// 414: a request line larger than a head may be.
    UriTooLong,
    /// 426: only to be had by another protocol, or another version of it.
    UpgradeRequired,
    /// 431: a head larger than a head may be.
    HeaderFieldsTooLarge,
    /// 503: no room for one more.
    ServiceUnavailable,
}

/// Where the body of a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After that many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// Where the connection ends, for HTTP/1.0, which knows no chunks.
    Close,
}

/// The head of a response to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// What became of the request.
    pub status: Status,
    /// Version of the request. The response is always HTTP/1.1 by name (RFC 9110, 2.5), but what it has to say of the
    /// connection depends on it.
    pub version: Version,
    /// Whether the connection will be kept. Meaningless with [`Framing::Close`].
    pub keep_alive: bool,
    /// Where the body ends.
    pub framing: Framing,
    /// The time of the response (RFC 9110, 6.6.1).
    pub date: &'a Date,
    /// Further fields, such as `Allow`, `Retry-After` and `Content-Encoding`.
    pub fields: &'a [(&'a str, &'a str)],
}

/// A chunk whose data is being appended.
#[derive(Debug)]
#[must_use = "a chunk has to be ended"]
pub struct Chunk {
    start: usize,
}

/// The head of a response that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedHead {
    /// Bytes up to the end of the empty line behind the fields.
    pub bytes: usize,
    /// The status code.
    pub status: u16,
    /// Where the body ends, unless the request was HEAD: then there is none.
    pub framing: Framing,
    /// Whether the server will keep the connection.
    pub keep_alive: bool,
}

/// Why bytes are no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// No HTTP, or such of which two readers could understand different things.
    #[error("malformed response: {0}")]
    Malformed(&'static str),
    /// The head does not fit [`HEAD_BYTES_MAX`] or has too many fields.
    #[error("the head of the response is too large")]
    TooLarge,
}

impl Status {
    /// The status line without version.
    const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::RequestTimeout => "408 Request Timeout",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::UriTooLong => "414 URI Too Long",
            Self::UpgradeRequired => "426 Upgrade Required",
            Self::HeaderFieldsTooLarge => "431 Request Header Fields Too Large",
            Self::ServiceUnavailable => "503 Service Unavailable",
        }
    }

    /// The number.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::BadRequest => 400,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::ContentTooLarge => 413,
            Self::UriTooLong => 414,
            Self::UpgradeRequired => 426,
            Self::HeaderFieldsTooLarge => 431,
            Self::ServiceUnavailable => 503,
        }
    }

    /// The words, which also make a good body.
    #[must_use]
    pub fn reason(self) -> &'static str {
        &self.line()[4..]
    }
}

impl ResponseHead<'_> {
    /// Appends the head. The content type is `text/plain`, as that of other trackers is: a browser shows it, and is
    /// told not to take it for anything else.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(self.status.line().as_bytes());
        out.extend_from_slice(b"\r\nContent-Type: text/plain\r\nX-Content-Type-Options: nosniff\r\nDate: ");
        out.extend_from_slice(self.date.as_bytes());
        out.extend_from_slice(b"\r\n");
        match self.framing {
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
        for (name, value) in self.fields {
            for part in [name, ": ", value, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl Chunk {
    /// Begins a chunk: what is appended to `out` from now on is its data.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(b"00000000\r\n");
        Self { start }
    }

    /// Ends the chunk. One without data is taken back, because it would be the end of the body.
    ///
    /// # Panics
    /// Where bytes were taken from `out` since the chunk began, or 4 GiB appended.
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
    /// Reads a head from the front of `bytes`; `None` where it is not complete yet.
    ///
    /// # Errors
    /// [`ResponseError`] as soon as the bytes cannot become a head any more.
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
                let head = Self::read(head_bytes, status, version, response.headers);
                head.map(Some).map_err(ResponseError::Malformed)
            }
            Err(_) => Err(ResponseError::Malformed("status line or header")),
        }
    }

    fn read(
        bytes: usize,
        status: u16,
        version: Version,
        headers: &[Header<'_>],
    ) -> Result<Self, &'static str> {
        let field::Framing { connection, length, hosts: _ } = field::framing(headers, version)?;
        let framing = match length {
            // RFC 9112, 6.3: these never have a body.
            _ if matches!(status, 100..200 | 204 | 304) => Framing::Length(0),
            Length::Bytes(bytes) => Framing::Length(bytes),
            Length::Chunked => Framing::Chunked,
            Length::Absent => Framing::Close,
        };
        let keep_alive = connection.persists(version) && framing != Framing::Close;
        Ok(Self { bytes, status, framing, keep_alive })
    }
}

/// Appends the data of a chunked body to `out` and tells how many bytes of `bytes` the body is; `None` where it is not
/// complete yet (then `out` is as before).
///
/// # Errors
/// [`ResponseError`] for what are no chunks, and for more than `data_bytes_max` of data.
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
            return end_of_chunks(&rest[head_bytes..]).map(|end| end.map(|bytes| at + head_bytes + bytes));
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

/// Length of what follows the last chunk. Trailer fields are not spoken.
fn end_of_chunks(rest: &[u8]) -> Result<Option<usize>, ResponseError> {
    match rest {
        [b'\r', b'\n', ..] => Ok(Some(2)),
        [] | [b'\r'] => Ok(None),
        _ => Err(ResponseError::Malformed("a trailer behind the chunks")),
    }
}
