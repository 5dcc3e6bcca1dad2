//! The head of a request: request line and header fields, up to the empty line.
//!
//! httparse finds the tokens, except in the few request lines that it rejects. This module bounds them, splits the
//! target, and reads the few fields that determine where the request ends and whether the connection persists. It is
//! strict where two readers could disagree (such as a proxy in front of the tracker), and lenient elsewhere.
//!
//! A request without `Host` is accepted, although RFC 9112, 3.2 requires servers to refuse it in HTTP/1.1. Some clients
//! omit the field, and Shoal serves the same content under every name.
//!
//! A second parser reads the few request lines that httparse rejects (raw bytes, HTTP/1.2). A property test checks that
//! the two agree on everything else, since request smuggling exploits parsers that disagree.

use core::mem::MaybeUninit;

use httparse::{EMPTY_HEADER, Error, Header, Status as Parsed};
use memchr::memchr;

use super::Version;
use super::field::{self, Length};
use super::response::Status;

/// The maximum length of a head in bytes, including the empty lines before it.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// The maximum number of header fields of a head.
pub const HEADERS_MAX: usize = 100;

/// The maximum length of the empty lines before a request line (RFC 9112, 2.2: old clients send one after a request).
pub const EMPTY_LINES_BYTES_MAX: usize = 8;

/// The name of the protocol with its major version.
const VERSION_NAME: &[u8] = b"HTTP/1.";

/// Storage for the header fields of one head. It is not initialised, so creating it costs nothing.
#[derive(Debug)]
pub struct HeaderStorage<'b> {
    usual: [MaybeUninit<Header<'b>>; HEADERS_MAX],
    /// The fields after a request line that httparse rejects.
    unusual: Option<[Header<'b>; HEADERS_MAX]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestLine<'b> {
    method: &'b [u8],
    target: &'b [u8],
    version: Version,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET, the usual method.
    Get,
    /// HEAD: like `Get`, but the response has no body.
    Head,
    /// Any other method.
    Other,
}

/// The body that follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// No body; the next request may follow.
    None,
    /// A body with this number of bytes, at least one.
    Bytes(u64),
    /// A body in chunks (RFC 9112, 7.1).
    Chunked,
}

/// The head of a request. It borrows from the bytes and from the storage.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'h, 'b> {
    /// The number of bytes up to the end of the empty line after the fields.
    pub bytes: usize,
    /// The method.
    pub method: Method,
    /// The target up to `?`, not decoded. It begins with `/` unless the target is invalid or has a form for proxies.
    pub path: &'b [u8],
    /// The query after `?`, not decoded. It is empty if there is none, and does not include a fragment.
    pub query: &'b [u8],
    /// The version of the request.
    pub version: Version,
    /// Whether the client wants the connection to stay open.
    pub keep_alive: bool,
    /// The body that follows.
    pub body: Body,
    authority: Option<&'b [u8]>,
    wants_upgrade: bool,
    headers: &'h [Header<'b>],
}

/// The reason why bytes are not the head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The bytes are not HTTP, or two readers could interpret them differently.
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    /// The request line alone exceeds the maximum.
    #[error("the request line exceeds {HEAD_BYTES_MAX} bytes")]
    TargetTooLong,
    /// The head exceeds the maximum.
    #[error("the head exceeds {HEAD_BYTES_MAX} bytes")]
    TooLarge,
    /// The head has too many fields.
    #[error("more than {HEADERS_MAX} header fields")]
    TooManyHeaders,
}

impl HeaderStorage<'_> {
    /// Returns storage for one head.
    #[inline]
    pub const fn new() -> Self {
        Self { usual: [const { MaybeUninit::uninit() }; HEADERS_MAX], unusual: None }
    }
}

impl Default for HeaderStorage<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl HeadError {
    /// Returns the status for the error. The connection must then close, because the start of the next request is
    /// unknown.
    pub const fn status(self) -> Status {
        match self {
            Self::Malformed(_) => Status::BadRequest,
            Self::TargetTooLong => Status::UriTooLong,
            Self::TooLarge | Self::TooManyHeaders => Status::HeaderFieldsTooLarge,
        }
    }
}

/// Returns the length of the empty lines at the front of `bytes`. A buffer that contains only these holds no part of a
/// request.
pub fn empty_lines_bytes(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let [b'\n', after @ ..] | [b'\r', b'\n', after @ ..] = rest {
        rest = after;
    }
    bytes.len() - rest.len()
}

impl<'h, 'b> RequestHead<'h, 'b> {
    /// Decodes a head from the front of `bytes`. Returns `None` if it is incomplete. Fails as soon as the bytes can no
    /// longer become a head.
    pub fn decode(
        bytes: &'b [u8],
        storage: &'h mut HeaderStorage<'b>,
    ) -> Result<Option<RequestHead<'h, 'b>>, HeadError> {
        if empty_lines_bytes(bytes) > EMPTY_LINES_BYTES_MAX {
            return Err(HeadError::Malformed("empty lines"));
        }
        let window = bytes.get(..HEAD_BYTES_MAX).unwrap_or(bytes);
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(window, &mut storage.usual) {
            Ok(Parsed::Partial) if window.len() < HEAD_BYTES_MAX => Ok(None),
            // The version is the last token of the request line.
            Ok(Parsed::Partial) if request.version.is_none() => Err(HeadError::TargetTooLong),
            Ok(Parsed::Partial) => Err(HeadError::TooLarge),
            Ok(Parsed::Complete(head_bytes)) => {
                let line = RequestLine {
                    method: request.method.unwrap_or_default().as_bytes(),
                    target: request.path.unwrap_or("/").as_bytes(),
                    version: Version::from_minor(request.version.unwrap_or(0)),
                };
                Self::read(head_bytes, line, request.headers).map(Some)
            }
            Err(error @ (Error::Token | Error::Version)) => {
                Self::decode_unusual(window, error, &mut storage.unusual)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Decodes a head whose request line httparse rejects with `error`, if it is of one of two kinds that are served
    /// anyway: some clients send bytes from 0x80 unescaped, and HTTP/1.2 is treated as 1.1 (RFC 9110, 2.5).
    #[cold]
    fn decode_unusual(
        window: &'b [u8],
        error: Error,
        storage: &'h mut Option<[Header<'b>; HEADERS_MAX]>,
    ) -> Result<Option<Self>, HeadError> {
        let may_continue = window.len() < HEAD_BYTES_MAX;
        let line_start = empty_lines_bytes(window);
        let Some((line, line_bytes)) = RequestLine::decode(&window[line_start..], error)? else {
            return if may_continue { Ok(None) } else { Err(HeadError::TargetTooLong) };
        };
        let fields_start = line_start + line_bytes;
        let storage = storage.insert([EMPTY_HEADER; HEADERS_MAX]);
        match httparse::parse_headers(&window[fields_start..], storage)? {
            Parsed::Partial if may_continue => Ok(None),
            Parsed::Partial => Err(HeadError::TooLarge),
            Parsed::Complete((fields_bytes, headers)) => {
                Self::read(fields_start + fields_bytes, line, headers).map(Some)
            }
        }
    }

    fn read(bytes: usize, line: RequestLine<'b>, headers: &'h [Header<'b>]) -> Result<Self, HeadError> {
        let RequestLine { method, target, version } = line;
        let field::Framing { connection, length, hosts } =
            field::framing(headers, version).map_err(HeadError::Malformed)?;
        // RFC 9112, 3.2: a proxy in front may have used the other one.
        if hosts > 1 {
            return Err(HeadError::Malformed("more than one host"));
        }
        let (authority, path, query) = split_target(target);
        Ok(Self {
            bytes,
            method: match method {
                b"GET" => Method::Get,
                b"HEAD" => Method::Head,
                _ => Method::Other,
            },
            path,
            query,
            version,
            keep_alive: connection.persists(version),
            body: match length {
                Length::Absent | Length::Bytes(0) => Body::None,
                Length::Bytes(bytes) => Body::Bytes(bytes),
                Length::Chunked => Body::Chunked,
            },
            authority,
            wants_upgrade: connection.upgrade,
            headers,
        })
    }

    /// Returns the values of all fields with a name (in any case), in order.
    pub fn header(&self, name: &'h str) -> impl DoubleEndedIterator<Item = &'b [u8]> + use<'h, 'b> {
        field::values(self.headers, name)
    }

    /// Returns the requested host, with its port if any. The host of the target takes precedence over the field (RFC
    /// 9112, 3.2.2).
    pub fn host(&self) -> Option<&'b [u8]> {
        self.authority.or_else(|| self.header("Host").next())
    }

    /// Returns the protocol to which the client wants to change, if both required fields ask for it (RFC 9110, 7.8).
    pub fn upgrade(&self) -> Option<&'b [u8]> {
        self.header("upgrade").next().filter(|_| self.wants_upgrade)
    }

    /// Returns whether the client may withhold the body until it may continue. After a final response it is then
    /// unknown whether the body or the next request follows (RFC 9110, 10.1.1).
    pub fn may_hold_back_body(&self) -> bool {
        self.body != Body::None && self.header("expect").next().is_some()
    }

    /// Returns whether the client accepts gzip (RFC 9110, 12.5.3).
    pub fn accepts_gzip(&self) -> bool {
        let codings = self.header("accept-encoding").flat_map(field::elements);
        // A named coding takes precedence over `*`.
        let (mut named, mut any) = (None, None);
        for coding in codings {
            let mut parts = coding.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let accepted = !parts.any(is_weight_zero);
            if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") {
                named = Some(accepted);
            } else if name == b"*" {
                any = Some(accepted);
            }
        }
        named.or(any).unwrap_or(false)
    }
}

impl<'b> RequestLine<'b> {
    /// Decodes the request line at the front of `bytes` (RFC 9112, 3) and returns its length, or `None` if it is
    /// incomplete. This is as strict as httparse, except that the target may contain any byte from 0x80 and the minor
    /// version may be any digit. If another rule is violated, returns `error`, which httparse found.
    fn decode(bytes: &'b [u8], error: Error) -> Result<Option<(Self, usize)>, HeadError> {
        let (method, rest) = split_at_space(bytes, is_token_byte).ok_or(error)?;
        let (target, rest) = split_at_space(rest, |byte| byte > b' ' && byte != 0x7f).ok_or(error)?;
        let (name, rest) = rest.split_at(rest.len().min(VERSION_NAME.len()));
        if name != VERSION_NAME {
            return if VERSION_NAME.starts_with(name) { Ok(None) } else { Err(Error::Version.into()) };
        }
        let Some((digit, rest)) = rest.split_first() else { return Ok(None) };
        if !digit.is_ascii_digit() {
            return Err(Error::Version.into());
        }
        let rest = match rest {
            [] | [b'\r'] => return Ok(None),
            [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] => rest,
            _ => return Err(Error::NewLine.into()),
        };
        let line = Self { method, target, version: Version::from_minor(digit - b'0') };
        Ok(Some((line, bytes.len() - rest.len())))
    }
}

impl From<Error> for HeadError {
    fn from(error: Error) -> Self {
        Self::Malformed(match error {
            Error::TooManyHeaders => return Self::TooManyHeaders,
            Error::HeaderName => "a header name",
            Error::HeaderValue => "a header value",
            Error::NewLine => "a line end",
            Error::Status | Error::Token => "the request line",
            Error::Version => "the version",
        })
    }
}

/// Returns the part of a request line before the next space, and the bytes after that space. The part must not be
/// empty, and must only contain allowed bytes.
fn split_at_space(bytes: &[u8], is_allowed: impl Fn(u8) -> bool) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| !is_allowed(byte))?;
    match bytes.split_at(end) {
        ([], _) => None,
        (part, [b' ', rest @ ..]) => Some((part, rest)),
        _ => None,
    }
}

/// Returns whether a token may contain `byte` (RFC 9110, 5.6.2).
const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// Splits a target in origin-form or absolute-form into authority, path and query (RFC 9112, 3.2).
fn split_target(target: &[u8]) -> (Option<&[u8]>, &[u8], &[u8]) {
    let target = memchr(b'#', target).map_or(target, |fragment| &target[..fragment]);
    let behind = |scheme: &[u8]| {
        let (front, rest) = target.split_at_checked(scheme.len())?;
        front.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let (authority, target) = match behind(b"http://").or_else(|| behind(b"https://")) {
        Some(rest) => {
            let end = rest.iter().position(|&byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
            let (authority, target) = rest.split_at(end);
            (Some(authority), target)
        }
        None => (None, target),
    };
    let (path, query) = match memchr(b'?', target) {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, &[][..]),
    };
    // RFC 9110, 4.2.3: an empty path is equivalent to "/".
    (authority, if path.is_empty() { b"/" } else { path }, query)
}

/// Returns whether a parameter is a weight of 0 (RFC 9110, 12.4.2), with up to three decimals.
fn is_weight_zero(parameter: &[u8]) -> bool {
    matches!(parameter, [b'q' | b'Q', b'=', weight @ ..]
        if matches!(weight.trim_ascii(), b"0" | b"0." | b"0.0" | b"0.00" | b"0.000"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes a head in both ways. The second way is used only if the first rejects the request line.
    fn readings(bytes: &[u8]) -> [Result<Option<String>, HeadError>; 2] {
        let mut storage = HeaderStorage::new();
        let (mut usual, mut unusual) = (httparse::Request::new(&mut []), None);
        let usual = match usual.parse_with_uninit_headers(bytes, &mut storage.usual) {
            Ok(Parsed::Complete(head_bytes)) => {
                let version = usual.version.map_or(Version::Http10, Version::from_minor);
                let (method, target) = (usual.method.unwrap(), usual.path.unwrap());
                let line = RequestLine { method: method.as_bytes(), target: target.as_bytes(), version };
                RequestHead::read(head_bytes, line, usual.headers).map(Some)
            }
            Ok(Parsed::Partial) => Ok(None),
            Err(error) => Err(error.into()),
        };
        let usual = usual.map(|head| head.map(|head| format!("{head:?}")));
        let unusual = RequestHead::decode_unusual(bytes, Error::Token, &mut unusual);
        [usual, unusual.map(|head| head.map(|head| format!("{head:?}")))]
    }

    fn request_bytes() -> impl Strategy<Value = Vec<u8>> {
        let token = prop::sample::select(vec![
            &b"GET"[..],
            b" ",
            b"/",
            b"announce?a=b",
            b"HTTP/1.1",
            b"HTTP/1.0",
            b"HTTP/1.",
            b"1",
            b"\r\n",
            b"\n",
            b"\r",
            b"Host: a",
            b"X:",
            b"\t",
            b"Content-Length: 1",
            b"\r\n\r\n",
            b"\0",
            b"\x7f",
            b"(",
        ]);
        prop::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        /// If one reader accepts a request line that another does not, requests can be smuggled.
        #[test]
        fn both_readings_agree_where_httparse_takes_the_request_line(tail in request_bytes(), is_request in any::<bool>()) {
            let start: &[u8] = if is_request { b"GET / HTTP/1.1\r\n" } else { b"" };
            let bytes = [start, &tail].concat();
            let [usual, unusual] = readings(&bytes);
            match usual {
                Ok(Some(_)) => prop_assert_eq!(&usual, &unusual),
                // The second way runs only after the first has failed, so it need not accept every prefix.
                Ok(None) => prop_assert!(!matches!(unusual, Ok(Some(_)))),
                Err(_) => prop_assert!(!matches!(unusual, Ok(Some(_))), "{:?}", unusual),
            }
        }
    }
}
