//! The head of a request: request line and header fields, up to the empty line.
//!
//! httparse finds the tokens, save in the few request lines that it does not take; this module bounds them, splits the target and reads the few fields from which it
//! follows where the request ends and whether the connection outlives it. It reads them strictly where two readers
//! could disagree (a proxy in front of the tracker is the other one), and leniently elsewhere.
//!
//! A request without `Host` is accepted although RFC 9112, 3.2 wants HTTP/1.1 requests without it refused: clients
//! exist that leave it out, and Shoal serves the same under every name, so nothing depends on it.

use core::mem::MaybeUninit;

use httparse::{EMPTY_HEADER, Error, Header, Status as Parsed};
use memchr::memchr;

use super::Version;
use super::field::{self, Length};
use super::response::Status;

/// Most bytes of a head, the empty lines before it included.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// Most header fields of a head.
pub const HEADERS_MAX: usize = 100;

/// Most bytes of empty lines before a request line (RFC 9112, 2.2: old clients send one behind a request).
pub const EMPTY_LINES_BYTES_MAX: usize = 8;

/// What stands before the minor version.
const VERSION_NAME: &[u8] = b"HTTP/1.";

/// Room for the header fields of one head. It is not initialised, so making one costs nothing.
#[derive(Debug)]
pub struct HeaderStorage<'b> {
    usual: [MaybeUninit<Header<'b>>; HEADERS_MAX],
    /// Those behind a request line that httparse does not take.
    unusual: Option<[Header<'b>; HEADERS_MAX]>,
}

/// The parts of a request line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestLine<'b> {
    method: &'b [u8],
    target: &'b [u8],
    version: Version,
}

/// What a request wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The usual one.
    Get,
    /// As `Get`, but only the head of the response is sent.
    Head,
    /// Anything else.
    Other,
}

/// What follows the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing; the next request may follow.
    None,
    /// That many bytes, at least one.
    Bytes(u64),
    /// Chunks (RFC 9112, 7.1).
    Chunked,
}

/// The head of a request. Borrows from the bytes and from the storage.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'h, 'b> {
    /// Bytes up to the end of the empty line behind the fields.
    pub bytes: usize,
    /// What is wanted.
    pub method: Method,
    /// The target up to `?`, as it came. Begins with `/` unless the target is of a form for proxies or junk.
    pub path: &'b [u8],
    /// What stands behind `?`, as it came; empty where there is nothing. A fragment is cut off.
    pub query: &'b [u8],
    /// Version of the request.
    pub version: Version,
    /// Whether the client wants to keep the connection.
    pub keep_alive: bool,
    /// What follows.
    pub body: Body,
    authority: Option<&'b [u8]>,
    wants_upgrade: bool,
    headers: &'h [Header<'b>],
}

/// Why bytes are no head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// No HTTP, or such of which two readers could understand different things.
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    /// The request line alone does not fit.
    #[error("the request line does not fit {HEAD_BYTES_MAX} bytes")]
    TargetTooLong,
    /// The head does not fit.
    #[error("the head does not fit {HEAD_BYTES_MAX} bytes")]
    TooLarge,
    /// There are too many fields.
    #[error("more than {HEADERS_MAX} header fields")]
    TooManyHeaders,
}

impl HeaderStorage<'_> {
    /// Room for one head.
    #[inline]
    #[must_use]
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
    /// How to answer it. The connection is to be closed then, because nobody knows where the next request begins.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Malformed(_) => Status::BadRequest,
            Self::TargetTooLong => Status::UriTooLong,
            Self::TooLarge | Self::TooManyHeaders => Status::HeaderFieldsTooLarge,
        }
    }
}

/// Length of the empty lines at the front of `bytes`: who consumes these holds no bytes of a request yet.
#[must_use]
pub fn empty_lines_bytes(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let [b'\n', after @ ..] | [b'\r', b'\n', after @ ..] = rest {
        rest = after;
    }
    bytes.len() - rest.len()
}

impl<'h, 'b> RequestHead<'h, 'b> {
    /// Reads a head from the front of `bytes`; `None` where it is not complete yet.
    ///
    /// # Errors
    /// [`HeadError`] as soon as the bytes cannot become a head any more.
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

    /// Reads a head whose request line httparse refuses with `error`, if it is one of those that are served all the
    /// same: clients exist that send bytes from 0x80 on without escaping them, and HTTP/1.2 is served as 1.1 (RFC 9110,
    /// 2.5).
    #[cold]
    fn decode_unusual(
        window: &'b [u8],
        error: Error,
        storage: &'h mut Option<[Header<'b>; HEADERS_MAX]>,
    ) -> Result<Option<Self>, HeadError> {
        let may_go_on = window.len() < HEAD_BYTES_MAX;
        let line_start = empty_lines_bytes(window);
        let Some((line, line_bytes)) = RequestLine::decode(&window[line_start..], error)? else {
            return if may_go_on { Ok(None) } else { Err(HeadError::TargetTooLong) };
        };
        let fields_start = line_start + line_bytes;
        let storage = storage.insert([EMPTY_HEADER; HEADERS_MAX]);
        match httparse::parse_headers(&window[fields_start..], storage)? {
            Parsed::Partial if may_go_on => Ok(None),
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
        // RFC 9112, 3.2: a proxy in front may have looked at the other one.
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

    /// The values of all fields of a name (in any case), in their order.
    pub fn header(&self, name: &'h str) -> impl DoubleEndedIterator<Item = &'b [u8]> + use<'h, 'b> {
        field::values(self.headers, name)
    }

    /// The host that is asked, with its port if one is named. That of the target outweighs the field (RFC 9112,
    /// 3.2.2).
    #[must_use]
    pub fn host(&self) -> Option<&'b [u8]> {
        self.authority.or_else(|| self.header("host").next())
    }

    /// The protocol that the client wants to change to, where it says so in both fields that this takes (RFC 9110,
    /// 7.8).
    #[must_use]
    pub fn upgrade(&self) -> Option<&'b [u8]> {
        self.header("upgrade").next().filter(|_| self.wants_upgrade)
    }

    /// Whether the client may be keeping the body back until it is told to go on, so that after a final answer nobody
    /// knows whether the body still comes or the next request (RFC 9110, 10.1.1).
    #[must_use]
    pub fn may_hold_back_body(&self) -> bool {
        self.body != Body::None && self.header("expect").next().is_some()
    }

    /// Whether the client can read gzip (RFC 9110, 12.5.3).
    #[must_use]
    pub fn accepts_gzip(&self) -> bool {
        let codings = self.header("accept-encoding").flat_map(field::elements);
        // What is named outweighs what is meant by `*`.
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
    /// Reads the request line at the front of `bytes` (RFC 9112, 3) and tells its length; `None` where it is not complete
    /// yet. As strict as httparse, save that the target may have any byte from 0x80 on and the minor version may be any
    /// digit. What breaks the other rules is what httparse found, which is `error`.
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
        match error {
            Error::TooManyHeaders => Self::TooManyHeaders,
            error => Self::Malformed(describe(error)),
        }
    }
}

/// The part of a request line before the next space, which has at least one byte and none but those that are allowed, and
/// what stands behind that space.
fn split_at_space(bytes: &[u8], is_allowed: impl Fn(u8) -> bool) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| !is_allowed(byte))?;
    match bytes.split_at(end) {
        ([], _) => None,
        (part, [b' ', rest @ ..]) => Some((part, rest)),
        _ => None,
    }
}

/// RFC 9110, 5.6.2.
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

/// Authority, path and query of a target in origin-form or absolute-form (RFC 9112, 3.2).
fn split_target(target: &[u8]) -> (Option<&[u8]>, &[u8], &[u8]) {
    let target = memchr(b'#', target).map_or(target, |fragment| &target[..fragment]);
    let (authority, target) = match after_scheme(target) {
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
    // RFC 9110, 4.2.3: an empty path is the same as "/".
    (authority, if path.is_empty() { b"/" } else { path }, query)
}

/// What follows `http://` or `https://`.
fn after_scheme(target: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| {
        let (front, rest) = target.split_at_checked(scheme.len())?;
        front.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// Whether a parameter is a weight of 0 (RFC 9110, 12.4.2): up to three decimals, all of them 0.
fn is_weight_zero(parameter: &[u8]) -> bool {
    matches!(parameter, [b'q' | b'Q', b'=', weight @ ..]
        if matches!(weight.trim_ascii(), b"0" | b"0." | b"0.0" | b"0.00" | b"0.000"))
}

const fn describe(error: Error) -> &'static str {
    match error {
        Error::HeaderName => "a header name",
        Error::HeaderValue => "a header value",
        Error::NewLine => "a line end",
        Error::Status | Error::Token => "the request line",
        Error::TooManyHeaders => "too many headers",
        Error::Version => "the version",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Both ways to read a head, of which the second is taken only where the first refuses the request line.
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

    fn words() -> impl Strategy<Value = Vec<u8>> {
        let word = prop::sample::select(vec![
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
        prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
    }

    proptest! {
        /// What one reader takes for a request line and another does not is what smuggling is made of.
        #[test]
        fn both_readings_agree_where_httparse_takes_the_request_line(tail in words(), is_request in any::<bool>()) {
            let start: &[u8] = if is_request { b"GET / HTTP/1.1\r\n" } else { b"" };
            let bytes = [start, &tail].concat();
            let [usual, unusual] = readings(&bytes);
            match usual {
                Ok(Some(_)) => prop_assert_eq!(&usual, &unusual),
                // The other reading begins only where this one has failed, so it need not know every beginning.
                Ok(None) => prop_assert!(!matches!(unusual, Ok(Some(_)))),
                Err(_) => prop_assert!(!matches!(unusual, Ok(Some(_))), "{:?}", unusual),
            }
        }
    }
}
