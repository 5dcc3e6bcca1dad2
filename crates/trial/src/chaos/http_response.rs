//! The responses of a tracker over HTTP: where one ends, and whether it is a refusal.

/// The beginning of a body that refuses (BEP 3, "failure reason").
const FAILURE: &[u8] = b"d14:failure reason";

/// Most headers of a response.
const HEADERS_MAX: usize = 64;

/// A response at the beginning of what a connection has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// It is not complete.
    Incomplete,
    /// It is complete.
    Complete {
        /// Its length in bytes.
        length: usize,
        /// Whether it is an error or a failure reason.
        is_refusal: bool,
        /// Whether the tracker closes the connection after it.
        closes: bool,
    },
    /// It is not HTTP.
    Malformed,
}

/// Looks for a response in `input`. `has_ended` tells whether the tracker has closed the connection, which ends a
/// response without a length.
pub(crate) fn parse(input: &[u8], has_ended: bool) -> Response {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Response::Incomplete,
        Err(_) => return Response::Malformed,
    };
    let value = |name: &str| {
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok()
    };
    let declared = value("content-length").and_then(|length| length.trim().parse::<usize>().ok());
    let length = match declared.and_then(|body| head.checked_add(body)) {
        Some(length) if length <= input.len() => length,
        None if has_ended => input.len(),
        _ => return Response::Incomplete,
    };
    let connection = value("connection").unwrap_or_default().to_ascii_lowercase();
    let keeps = if response.version == Some(0) { connection == "keep-alive" } else { connection != "close" };
    Response::Complete {
        length,
        is_refusal: response.code != Some(200) || input[head..length].starts_with(FAILURE),
        closes: !keeps || declared.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(length: usize, is_refusal: bool, closes: bool) -> Response {
        Response::Complete { length, is_refusal, closes }
    }

    #[test]
    fn a_response_ends_after_its_length_or_with_the_connection() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\ndeHTTP";
        assert_eq!(parse(&text[..39], false), Response::Incomplete);
        assert_eq!(parse(text, false), complete(40, false, false));
        let endless = b"HTTP/1.0 200 OK\r\n\r\nde";
        assert_eq!(parse(endless, false), Response::Incomplete);
        assert_eq!(parse(endless, true), complete(21, false, true));
        assert_eq!(parse(b"SSH-2.0\r\n", false), Response::Malformed);
    }

    #[test]
    fn errors_and_failure_reasons_are_refusals() {
        let busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert_eq!(parse(busy, false), complete(busy.len(), true, true));
        let failure = b"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\nd14:failure reason2:noe";
        assert_eq!(parse(failure, false), Response::Incomplete);
        let failure = b"HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\nd14:failure reason2:noe";
        assert_eq!(parse(failure, false), complete(failure.len(), true, false));
    }
}
