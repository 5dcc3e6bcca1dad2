//! Request heads.

use crate::fault::Fault;

const HEAD_BYTES_MAX: usize = 16 << 10;

/// A request without its body.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    /// Whether the version is HTTP/1.0.
    pub(crate) is_old: bool,
    /// Names, as received, and values.
    headers: Vec<(String, String)>,
    pub(crate) bytes: usize,
}

pub(crate) enum Parsed {
    Whole(Request),
    Partial,
    /// An oversized head that a fault accepts without keeping it.
    Endless,
    Malformed(&'static str),
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn has_connection(&self, fault: Fault, token: &str) -> bool {
        let is_connection = |name: &str| {
            if fault == Fault::HttpCaseSensitiveHeaders {
                name == "Connection"
            } else {
                name.eq_ignore_ascii_case("connection")
            }
        };
        let values = self.headers.iter().filter(|(name, _)| is_connection(name));
        values.flat_map(|(_, value)| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(token))
    }
}

pub(crate) fn parse(fault: Fault, bytes: &[u8]) -> Parsed {
    let skipped = if bytes.starts_with(b"\r\n") && fault != Fault::HttpRefusesEmptyLine { 2 } else { 0 };
    let head = &bytes[skipped..];
    let end = head.windows(4).position(|window| window == b"\r\n\r\n");
    let is_large = end.unwrap_or(head.len()) > HEAD_BYTES_MAX;
    if is_large && fault == Fault::HttpEndlessHead {
        return if end.is_some() { Parsed::Malformed("431 Too Large") } else { Parsed::Endless };
    }
    if is_large && (fault != Fault::HttpServesOversize || head.len() > 1 << 20) {
        return Parsed::Malformed("431 Request Header Fields Too Large");
    }
    let Some(end) = end else {
        // Input that cannot become a request is refused at once.
        let is_text = head.iter().all(|byte| byte.is_ascii());
        return if is_text { Parsed::Partial } else { Parsed::Malformed("400 Bad Request") };
    };
    match read(fault, &head[..end]) {
        Some(request) => Parsed::Whole(Request { bytes: skipped + end + 4, ..request }),
        None => Parsed::Malformed("400 Bad Request"),
    }
}

fn read(fault: Fault, head: &[u8]) -> Option<Request> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.split("\r\n");
    let [method, target, version] = lines.next()?.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let is_old = match version {
        "HTTP/1.0" => true,
        "HTTP/1.1" => false,
        "HTTP/1.2" if fault != Fault::HttpExactVersion => false,
        _ => return None,
    };
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let target = match target.split_once("://") {
        Some((_, rest)) if target.starts_with("http") && fault != Fault::HttpOriginFormOnly => {
            &rest[rest.find('/')?..]
        }
        _ => target,
    };
    if !is_method || !target.starts_with('/') {
        return None;
    }
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        is_name.then(|| (name.to_owned(), value.trim().to_owned()))
    };
    let headers: Vec<(String, String)> = lines.map(header).collect::<Option<_>>()?;
    let host = if fault == Fault::HttpCaseSensitiveHeaders { "Host" } else { "" };
    let hosts = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host")).count();
    if hosts > 1 && fault != Fault::HttpTakesTwoHosts {
        return None;
    }
    let is_refused = match fault {
        Fault::HttpCaseSensitiveHeaders => !is_old && !headers.iter().any(|(name, _)| name == host),
        Fault::HttpNeedsHost => !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")),
        Fault::HttpRefusesEmptyHeader => headers.iter().any(|(_, value)| value.is_empty()),
        Fault::HttpFewHeaders => headers.len() > 50,
        Fault::HttpShortHeaders => headers.iter().any(|(_, value)| value.len() > 2048),
        _ => false,
    };
    if is_refused {
        return None;
    }
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    Some(Request { method: method.to_owned(), path: path.to_owned(), query, is_old, headers, bytes: 0 })
}
