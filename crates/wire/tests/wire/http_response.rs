//! Heads of responses and chunks, byte by byte and decoded as a client does.

use proptest::collection::vec;
use proptest::prelude::*;
use shoal_wire::http::Version;
use shoal_wire::http::date::Date;
use shoal_wire::http::head::{HEAD_BYTES_MAX, HEADERS_MAX};
use shoal_wire::http::response::{
    Chunk, END_OF_CHUNKS, Framing, PLAIN_TEXT, ReceivedHead, ResponseError, ResponseHead, Status,
    decode_chunks,
};

const OK: ResponseHead<'_> = ResponseHead {
    status: Status::Ok,
    version: Version::Http11,
    keep_alive: true,
    content_type: PLAIN_TEXT,
    framing: Framing::Length(5),
    date: &Date::EPOCH,
    fields: &[],
};

const STATUSES: [Status; 14] = [
    Status::Ok,
    Status::NotModified,
    Status::BadRequest,
    Status::Forbidden,
    Status::NotFound,
    Status::MethodNotAllowed,
    Status::RequestTimeout,
    Status::LengthRequired,
    Status::ContentTooLarge,
    Status::UriTooLong,
    Status::UpgradeRequired,
    Status::TooManyRequests,
    Status::HeaderFieldsTooLarge,
    Status::ServiceUnavailable,
];

fn encoded(head: &ResponseHead<'_>) -> String {
    let mut out = Vec::new();
    head.encode(&mut out);
    String::from_utf8(out).unwrap()
}

fn received(head: &str) -> ReceivedHead {
    let received = ReceivedHead::decode(head.as_bytes()).unwrap().unwrap();
    assert_eq!(received.bytes, head.len());
    received
}

#[test]
fn the_usual_head() {
    let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Content-Type-Options: nosniff\r\n\
                    Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Length: 5\r\nCache-Control: no-store\r\n\r\n";
    assert_eq!(encoded(&OK), expected);
    let stored = encoded(&ResponseHead { fields: &[("Cache-Control", "max-age=60")], ..OK });
    assert!(stored.contains("Cache-Control: max-age=60\r\n") && !stored.contains("no-store"), "{stored}");
}

#[test]
fn fields_are_appended() {
    let head = ResponseHead {
        status: Status::MethodNotAllowed,
        fields: &[("Allow", "GET, HEAD"), ("Retry-After", "60")],
        ..OK
    };
    assert!(encoded(&head).ends_with("\r\nAllow: GET, HEAD\r\nRetry-After: 60\r\n\r\n"));
}

#[test]
fn the_connection_is_spoken_of_where_the_version_does_not_say_it() {
    let cases = [
        (Version::Http11, true, None),
        (Version::Http11, false, Some("close")),
        (Version::Http10, true, Some("keep-alive")),
        (Version::Http10, false, Some("close")),
    ];
    for (version, keep_alive, token) in cases {
        let head = encoded(&ResponseHead { version, keep_alive, ..OK });
        let field = head.lines().find_map(|line| line.strip_prefix("Connection: "));
        assert_eq!(field, token, "{head}");
        assert_eq!(received(&head).keep_alive, keep_alive);
    }
    let until_closed = encoded(&ResponseHead { framing: Framing::Close, ..OK });
    assert!(until_closed.contains("Connection: close\r\n"));
}

#[test]
fn a_response_without_a_body_has_no_length() {
    let head = encoded(&ResponseHead { status: Status::NotModified, ..OK });
    assert!(!head.contains("Content-Length"), "{head}");
    assert_eq!(received(&head).framing, Framing::Length(0));
}

#[test]
fn statuses() {
    for status in STATUSES {
        let head = encoded(&ResponseHead { status, ..OK });
        assert!(head.starts_with(&format!("HTTP/1.1 {} {}\r\n", status.code(), status.reason())), "{head}");
        assert_eq!(received(&head).status, status.code());
    }
}

#[test]
fn framings_are_read_as_they_were_written() {
    for framing in [Framing::Length(0), Framing::Length(1 << 40), Framing::Chunked, Framing::Close] {
        let head = received(&encoded(&ResponseHead { framing, ..OK }));
        assert_eq!((head.framing, head.keep_alive), (framing, framing != Framing::Close));
    }
}

#[test]
fn heads_of_other_trackers_are_read() {
    let cases = [
        ("HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n", 200, Framing::Length(9), false),
        (
            "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\ncontent-length: 9\r\n\r\n",
            200,
            Framing::Length(9),
            true,
        ),
        ("HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: chunked\r\n\r\n", 200, Framing::Chunked, true),
        ("HTTP/1.1 200\r\n\r\n", 200, Framing::Close, false),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, Framing::Length(0), true),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, Framing::Length(0), true),
        ("HTTP/1.1 500 Oh\nContent-Length: 0\n\n", 500, Framing::Length(0), true),
    ];
    for (head, status, framing, keep_alive) in cases {
        let received = received(head);
        assert_eq!(
            (received.status, received.framing, received.keep_alive),
            (status, framing, keep_alive),
            "{head}"
        );
    }
}

#[test]
fn every_truncation_of_a_head_is_incomplete() {
    let head = encoded(&ResponseHead { keep_alive: false, ..OK });
    for bytes in 0..head.len() {
        assert_eq!(ReceivedHead::decode(&head.as_bytes()[..bytes]), Ok(None), "{bytes}");
    }
}

#[test]
fn heads_that_are_none_are_refused() {
    for head in [
        "GET / HTTP/1.1\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        assert!(matches!(ReceivedHead::decode(head.as_bytes()), Err(ResponseError::Malformed(_))), "{head}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(ReceivedHead::decode(endless.as_bytes()), Err(ResponseError::TooLarge));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX + 1));
    assert_eq!(ReceivedHead::decode(many.as_bytes()), Err(ResponseError::TooLarge));
}

#[test]
fn a_chunk() {
    let mut out = b"head".to_vec();
    let chunk = Chunk::begin(&mut out);
    out.extend_from_slice(&[b'x'; 0x1a]);
    chunk.end(&mut out);
    let empty = Chunk::begin(&mut out);
    empty.end(&mut out);
    out.extend_from_slice(END_OF_CHUNKS);
    assert_eq!(out, b"head0000001a\r\nxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n0\r\n\r\n");
}

#[test]
fn chunks_of_others_are_read() {
    let mut out = b"kept".to_vec();
    assert_eq!(
        decode_chunks(b"3;a=b\r\nabc\r\nA\r\n0123456789\r\n000\r\n\r\nHTTP", 13, &mut out),
        Ok(Some(34))
    );
    assert_eq!(out, b"keptabc0123456789");
}

#[test]
fn malformed_chunks_are_refused_and_leave_the_output_unchanged() {
    let mut out = b"kept".to_vec();
    for bytes in
        [&b"x\r\n"[..], b"1\r\nab\r\n", b"1\r\na\rb", b"1\r\na\r\n0\r\nTrailer: x\r\n\r\n", b"-1\r\n"]
    {
        let decoded = decode_chunks(bytes, 100, &mut out);
        assert!(matches!(decoded, Err(ResponseError::Malformed(_))), "{}", bytes.escape_ascii());
        assert_eq!(out, b"kept");
    }
    for large in
        [&b"2\r\nab\r\n9\r\n123456789"[..], b"b\r\n", b"ffffffffffffffff\r\n", b"7fffffffffffffff\r\nab"]
    {
        assert_eq!(
            decode_chunks(large, 10, &mut out),
            Err(ResponseError::TooLarge),
            "{}",
            large.escape_ascii()
        );
    }
    assert_eq!(decode_chunks(b"ffffffffffffffff\r\n", usize::MAX, &mut Vec::new()), Ok(None));
}

proptest! {
    #[test]
    fn chunks_are_read_as_they_were_written(pieces in vec(vec(any::<u8>(), 0..50), 0..8), cut in any::<prop::sample::Index>()) {
        let mut body = Vec::new();
        for piece in &pieces {
            let chunk = Chunk::begin(&mut body);
            body.extend_from_slice(piece);
            chunk.end(&mut body);
        }
        body.extend_from_slice(END_OF_CHUNKS);
        let whole = pieces.concat();
        let mut out = Vec::new();
        prop_assert_eq!(decode_chunks(&body[..cut.index(body.len())], 400, &mut out), Ok(None));
        prop_assert!(out.is_empty());
        prop_assert_eq!(decode_chunks(&body, whole.len(), &mut out), Ok(Some(body.len())));
        prop_assert_eq!(out, whole);
    }

    #[test]
    fn any_bytes_are_chunks_or_not(bytes in "[0-2a\r\n;]{0,30}") {
        let mut out = Vec::new();
        let decoded = decode_chunks(bytes.as_bytes(), 20, &mut out);
        prop_assert!(out.len() <= 20);
        prop_assert!(out.is_empty() || matches!(decoded, Ok(Some(_))));
    }
}
