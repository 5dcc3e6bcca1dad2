//! An HTTP/1 response (RFC 9112), parsed from what has arrived so far.

/// The maximum size of a response. The largest reply to the suite is a full scrape of a large tracker.
pub(super) const BYTES_MAX: usize = 8 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// 1 for HTTP/1.1.
    pub(crate) minor_version: u8,
    pub(crate) status: u16,
    /// Names, in lower case, and values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) raw: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Whole(Box<Response>),
    Partial,
}

impl Response {
    /// Parses the first response in `bytes`. Without a length, its body lasts to the end of the connection, which
    /// `has_ended` indicates. A response to HEAD has no body (RFC 9112, 6.3).
    pub(crate) fn read(bytes: &[u8], is_to_head: bool, has_ended: bool) -> Result<Progress, String> {
        let Some(head_bytes) = find(bytes, b"\r\n\r\n").map(|at| at + 4) else {
            return if has_ended {
                Err("the end of the connection in the middle of a head".into())
            } else {
                partial()
            };
        };
        let (minor_version, status, headers) = head(&bytes[..head_bytes])?;
        let rest = &bytes[head_bytes..];
        let mut response = Self { minor_version, status, headers, body: Vec::new(), raw: Vec::new() };
        let body_bytes = if is_to_head {
            0
        } else if response.has_token("transfer-encoding", "chunked") {
            match chunked(rest)? {
                Some((body, bytes)) => {
                    response.body = body;
                    bytes
                }
                None if has_ended => return Err("the end of the connection in the middle of a chunk".into()),
                None => return partial(),
            }
        } else {
            let length = response.length()?;
            match length {
                Some(length) if length <= rest.len() => response.body = rest[..length].to_vec(),
                Some(length) if has_ended => {
                    return Err(format!("a body of {} bytes where Content-Length is {length}", rest.len()));
                }
                None if has_ended => response.body = rest.to_vec(),
                _ => return partial(),
            }
            response.body.len()
        };
        response.raw = bytes[..head_bytes + body_bytes].to_vec();
        Ok(Progress::Whole(Box::new(response)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether a header that is a list has this item.
    pub(crate) fn has_token(&self, name: &str, token: &str) -> bool {
        let values = self.headers.iter().filter(|(found, _)| found == name);
        values.flat_map(|(_, value)| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(token))
    }

    pub(crate) fn length(&self) -> Result<Option<usize>, String> {
        let Some(text) = self.header("content-length") else { return Ok(None) };
        let length = text.parse().ok().filter(|&length| length <= BYTES_MAX);
        length.map(Some).ok_or_else(|| format!("Content-Length: {text}"))
    }

    /// Returns whether the response keeps the connection open (RFC 9112, 9.3).
    pub(crate) fn keeps_connection(&self) -> bool {
        let has_end = self.header("content-length").is_some() || self.header("transfer-encoding").is_some();
        let is_persistent = self.minor_version >= 1 || self.has_token("connection", "keep-alive");
        has_end && is_persistent && !self.has_token("connection", "close")
    }

    pub(crate) fn describe(&self) -> String {
        let length =
            self.header("content-length").map_or_else(String::new, |length| format!(", length {length}"));
        format!("HTTP/1.{} {}{length}: {}", self.minor_version, self.status, shown(&self.body))
    }
}

/// Escapes and shortens bytes for a report.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 200;
    let dots = if bytes.len() > SHOWN_MAX { " …" } else { "" };
    format!("{}{dots}", bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii())
}

pub(crate) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

const fn partial() -> Result<Progress, String> {
    Ok(Progress::Partial)
}

type Head = (u8, u16, Vec<(String, String)>);

/// The status line and the headers.
fn head(bytes: &[u8]) -> Result<Head, String> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let wrong = || format!("the status line {status_line:?}");
    let (version, rest) = status_line.split_once(' ').ok_or_else(wrong)?;
    let minor_version = match version {
        "HTTP/1.0" => 0,
        "HTTP/1.1" => 1,
        _ => return Err(wrong()),
    };
    // The reason may be empty, but the space before it is required; many servers omit it, and clients accept that.
    let status = rest.split(' ').next().unwrap_or_default();
    let status = status.parse().ok().filter(|status| (100..600).contains(status)).ok_or_else(wrong)?;
    let header = |line: &str| {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("the header line {line:?}"))?;
        Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Ok((minor_version, status, lines.map(header).collect::<Result<_, String>>()?))
}

/// Parses a chunked body (RFC 9112, 7.1). Returns it with its encoded length if it is complete.
fn chunked(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let Some(line) = find(&bytes[at..], b"\r\n") else { return Ok(None) };
        let text = String::from_utf8_lossy(&bytes[at..at + line]);
        let size = text.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).ok().filter(|&size| size <= BYTES_MAX);
        let size = size.ok_or_else(|| format!("the chunk size {text:?}"))?;
        at += line + 2;
        if size == 0 {
            // Trailers end like a head.
            let end = if bytes[at..].starts_with(b"\r\n") {
                Some(2)
            } else {
                find(&bytes[at..], b"\r\n\r\n").map(|at| at + 4)
            };
            return Ok(end.map(|end| (body, at + end)));
        }
        let Some(chunk) = bytes.get(at..at + size + 2) else { return Ok(None) };
        if !chunk.ends_with(b"\r\n") {
            return Err("a chunk that is longer than its size".into());
        }
        body.extend(&chunk[..size]);
        at += size + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::{Progress, Response};

    fn whole(bytes: &[u8], has_ended: bool) -> Response {
        match Response::read(bytes, false, has_ended).unwrap() {
            Progress::Whole(response) => *response,
            Progress::Partial => panic!("partial: {}", bytes.escape_ascii()),
        }
    }

    #[test]
    fn the_end_of_a_body_is_found() {
        let two = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 400 \r\n";
        let response = whole(two, false);
        assert_eq!((response.status, &response.body[..], response.raw.len()), (200, &b"hi"[..], 40));
        assert!(response.keeps_connection());
        for cut in 0..40 {
            assert_eq!(Response::read(&two[..cut], false, false), Ok(Progress::Partial), "{cut}");
            assert!(Response::read(&two[..cut], false, true).is_err(), "{cut}");
        }
        let chunked = whole(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x\r\nd\r\n0\r\n\r\nmore",
            false,
        );
        assert_eq!(chunked.body, b"abcd");
        assert!(chunked.raw.ends_with(b"0\r\n\r\n"));
        let until_end = b"HTTP/1.0 200 OK\r\n\r\nabc";
        assert_eq!(Response::read(until_end, false, false), Ok(Progress::Partial));
        assert_eq!(whole(until_end, true).body, b"abc");
        assert!(!whole(until_end, true).keeps_connection());
    }

    #[test]
    fn invalid_responses_are_rejected() {
        for wrong in [
            "HTTP/2 200 OK\r\n\r\n",
            "hello\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno header\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        ] {
            assert!(Response::read(wrong.as_bytes(), false, false).is_err(), "{wrong}");
        }
    }
}
