//! The responses of a tracker over HTTP: where one ends, and whether it is a refusal.

use shoal_wire::http::response::{Framing, ReceivedHead};

/// The beginning of a body that refuses (BEP 3, "failure reason").
const FAILURE: &[u8] = b"d14:failure reason";

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
    let head = match ReceivedHead::decode(input) {
        Ok(Some(head)) => head,
        Ok(None) => return Response::Incomplete,
        Err(_) => return Response::Malformed,
    };
    let rest = &input[head.bytes..];
    let body = match head.framing {
        Framing::Length(bytes) => usize::try_from(bytes).ok().and_then(|bytes| rest.get(..bytes)),
        Framing::Close if has_ended => Some(rest),
        Framing::Close | Framing::Chunked => None,
    };
    body.map_or(Response::Incomplete, |body| Response::Complete {
        length: head.bytes + body.len(),
        is_refusal: head.status != 200 || body.starts_with(FAILURE),
        closes: !head.keep_alive,
    })
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
