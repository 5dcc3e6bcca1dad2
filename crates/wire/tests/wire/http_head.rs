//! Heads of requests: decoded values, and the reasons for refusals.

use shoal_wire::http::Version;
use shoal_wire::http::head::{
    Body, EMPTY_LINES_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, HeadError, HeaderStorage, Method, RequestHead,
    empty_lines_bytes,
};

const ANNOUNCE: &[u8] =
    b"GET /announce?port=1&left=0 HTTP/1.1\r\nHost: tracker.example:6969\r\nUser-Agent: x\r\n\r\n";

/// Decodes a complete head and passes it to `check`.
fn with_head<T>(bytes: &[u8], check: impl FnOnce(&RequestHead<'_, '_>) -> T) -> T {
    let mut storage = HeaderStorage::new();
    check(&RequestHead::decode(bytes, &mut storage).unwrap().unwrap())
}

/// Decodes a head with these fields and passes it to `check`.
fn with_fields<T>(version: &str, fields: &str, check: impl FnOnce(&RequestHead<'_, '_>) -> T) -> T {
    with_head(format!("GET / HTTP/{version}\r\n{fields}\r\n").as_bytes(), check)
}

fn error(bytes: &[u8]) -> HeadError {
    let mut storage = HeaderStorage::new();
    RequestHead::decode(bytes, &mut storage).unwrap_err()
}

fn is_malformed(fields: &str) -> bool {
    let head = format!("GET / HTTP/1.1\r\n{fields}\r\n");
    let mut storage = HeaderStorage::new();
    matches!(RequestHead::decode(head.as_bytes(), &mut storage), Err(HeadError::Malformed(_)))
}

#[test]
fn an_announce() {
    let pipelined = [ANNOUNCE, b"GET /next"].concat();
    with_head(&pipelined, |head| {
        assert_eq!(head.bytes, ANNOUNCE.len());
        assert_eq!(head.method, Method::Get);
        assert_eq!((head.path, head.query), (&b"/announce"[..], &b"port=1&left=0"[..]));
        assert_eq!((head.version, head.keep_alive, head.body), (Version::Http11, true, Body::None));
        assert_eq!(head.host(), Some(&b"tracker.example:6969"[..]));
        assert_eq!(head.upgrade(), None);
        assert!(!head.accepts_gzip());
    });
}

#[test]
fn every_truncation_is_incomplete() {
    for bytes in 0..ANNOUNCE.len() {
        let mut storage = HeaderStorage::new();
        assert!(RequestHead::decode(&ANNOUNCE[..bytes], &mut storage).unwrap().is_none(), "{bytes}");
    }
}

#[test]
fn methods() {
    for (name, method) in
        [("GET", Method::Get), ("HEAD", Method::Head), ("POST", Method::Other), ("get", Method::Other)]
    {
        with_head(format!("{name} / HTTP/1.1\r\n\r\n").as_bytes(), |head| assert_eq!(head.method, method));
    }
}

#[test]
fn targets() {
    let cases: [(&str, Option<&str>, &str, &str); 12] = [
        ("/", None, "/", ""),
        ("/scrape", None, "/scrape", ""),
        ("/scrape?", None, "/scrape", ""),
        ("/a?b?c", None, "/a", "b?c"),
        ("/a?b#c?d", None, "/a", "b"),
        ("/a#b?c", None, "/a", ""),
        ("http://t.example/announce?a=b", Some("t.example"), "/announce", "a=b"),
        ("HTTPS://t.example:443/announce", Some("t.example:443"), "/announce", ""),
        ("http://t.example?a=b", Some("t.example"), "/", "a=b"),
        ("http://t.example", Some("t.example"), "/", ""),
        ("*", None, "*", ""),
        ("t.example:443", None, "t.example:443", ""),
    ];
    for (target, host, path, query) in cases {
        with_head(format!("GET {target} HTTP/1.0\r\n\r\n").as_bytes(), |head| {
            assert_eq!(head.host(), host.map(str::as_bytes), "{target}");
            assert_eq!((head.path, head.query), (path.as_bytes(), query.as_bytes()), "{target}");
        });
    }
    with_head(b"GET http://target/ HTTP/1.1\r\nHost: field\r\n\r\n", |head| {
        assert_eq!(head.host(), Some(&b"target"[..]));
    });
}

#[test]
fn a_connection_is_kept_as_version_and_fields_say() {
    let cases = [
        ("1.1", "", true),
        ("1.0", "", false),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "cOnNeCtIoN: CLOSE\r\n", false),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: te , ,keep-alive\r\n", true),
        ("1.0", "Connection: te\r\nConnection: keep-alive\r\n", true),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.0", "Connection: close\r\nConnection: keep-alive\r\n", false),
        ("1.0", "Connection: keep-alive-not\r\n", false),
        ("1.1", "Proxy-Connection: close\r\n", true),
    ];
    for (version, fields, expected) in cases {
        with_fields(version, fields, |head| assert_eq!(head.keep_alive, expected, "{version} {fields}"));
    }
}

#[test]
fn bodies() {
    let cases = [
        ("", Body::None),
        ("Content-Length: 0\r\n", Body::None),
        ("content-LENGTH: 12\r\n", Body::Bytes(12)),
        ("Content-Length: 12\r\nContent-Length: 12\r\n", Body::Bytes(12)),
        ("Content-Length: 12, 12\r\n", Body::Bytes(12)),
        ("Transfer-Encoding: Chunked\r\n", Body::Chunked),
    ];
    for (fields, body) in cases {
        with_fields("1.1", fields, |head| assert_eq!(head.body, body, "{fields}"));
    }
}

#[test]
fn ambiguous_requests_are_malformed() {
    for fields in [
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: 1, 2\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Content-Length:\r\n",
        "Content-Length: ,\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x10\r\n",
        "Content-Length: 1 2\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n",
        "Content-Length : 1\r\n",
        "X: a\r\n folded: b\r\n",
        " X: a\r\n",
        "X: a\0b\r\n",
        "X: a\rb\r\n",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nX: b\r\nhOST:\r\n",
        ": a\r\n",
        "no colon\r\n",
    ] {
        assert!(is_malformed(fields), "{fields:?}");
    }
    let chunks_before_http11 = b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(matches!(error(chunks_before_http11), HeadError::Malformed(_)));
}

#[test]
fn bytes_other_than_http_are_malformed() {
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\x13BitTorrent protocol",
        b"GET  / HTTP/1.1\r\n",
        b"GET / HTTP/2.0\r\n",
        b"GET / HTTP/1.x\r\n",
        b"GET / HTTP/1.10\r\n",
        b"GET / HTTP/0.9\r\n",
        b"GET / http/1.1\r\n",
        b"GET / HTTP/1.2 \r\n",
        b"GET / HTTP/1.2\rX\r\n",
        b"GET /\r\n",
        b"GET / a HTTP/1.1\r\n",
        b"GET /\xff\0 HTTP/1.1\r\n",
        b"GET /\xff\x7f HTTP/1.1\r\n",
        b"GET /\xff\t HTTP/1.1\r\n",
        b"GET /\xff\r\n",
        b"GET /\xff a HTTP/1.1\r\n",
        b"GET /\xff  HTTP/1.1\r\n",
        b"G\xff /\xff HTTP/1.1\r\n",
        b" GET / HTTP/1.1\r\n",
        b"\rGET / HTTP/1.1\r\n",
    ] {
        assert!(matches!(error(bytes), HeadError::Malformed(_)), "{}", bytes.escape_ascii());
        assert_eq!(error(bytes).status().code(), 400);
    }
}

#[test]
fn clients_that_are_a_little_sloppy_are_served() {
    // Without Host; with bare line feeds; with the empty line that old clients send after a request.
    with_head(b"GET / HTTP/1.1\r\n\r\n", |head| assert_eq!(head.host(), None));
    with_head(b"GET / HTTP/1.1\nHost: a\n\n", |head| assert_eq!(head.host(), Some(&b"a"[..])));
    with_head(b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", |head| assert_eq!(head.bytes, 22));
    with_head(b"GET / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n", |head| assert_eq!(head.body, Body::None));
}

#[test]
fn a_target_may_have_any_byte_that_ends_no_token() {
    let target: Vec<u8> = (0x80..=0xff).collect();
    let bytes =
        [b"\r\nGET /a?b=", &*target, b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nnext"].concat();
    with_head(&bytes, |head| {
        assert_eq!((head.bytes, head.method), (bytes.len() - 4, Method::Get));
        assert_eq!((head.path, head.query), (&b"/a"[..], &[b"b=", &*target].concat()[..]));
        assert_eq!((head.version, head.keep_alive, head.host()), (Version::Http11, false, Some(&b"a"[..])));
    });
    for bytes_come in 0..bytes.len() - 4 {
        let mut storage = HeaderStorage::new();
        let head = RequestHead::decode(&bytes[..bytes_come], &mut storage).unwrap();
        assert!(head.is_none(), "{bytes_come}");
    }
}

#[test]
fn later_minor_versions_are_read_as_http_1_1() {
    for (version, spoken) in
        [("0", Version::Http10), ("1", Version::Http11), ("2", Version::Http11), ("9", Version::Http11)]
    {
        let head = format!("GET /announce?a=b HTTP/1.{version}\r\nHost: a\r\n\r\n");
        with_head(head.as_bytes(), |head| {
            assert_eq!((head.version, head.keep_alive), (spoken, spoken == Version::Http11), "{version}");
            assert_eq!((head.path, head.query), (&b"/announce"[..], &b"a=b"[..]));
        });
    }
}

/// The strict rules also apply after a request line that httparse rejects.
#[test]
fn an_unusual_request_line_hides_nothing_that_is_malformed() {
    for line in ["GET / HTTP/1.2", "GET /\u{80} HTTP/1.1"] {
        let mut line = line.as_bytes().to_vec();
        // One byte of a two-byte character alone is not UTF-8.
        line.retain(|&byte| byte != 0xc2);
        let decoded = |fields: &str| {
            let bytes = [&*line, b"\r\n", fields.as_bytes(), b"\r\n"].concat();
            let mut storage = HeaderStorage::new();
            RequestHead::decode(&bytes, &mut storage).map(|head| head.is_some())
        };
        assert_eq!(decoded("Host: a\r\n"), Ok(true));
        for fields in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "X: a\r\n folded: b\r\n",
            "X: a\rb\r\n",
            "X: a\0b\r\n",
            "X : a\r\n",
            "Host: a\r\nHost: a\r\n",
        ] {
            assert!(matches!(decoded(fields), Err(HeadError::Malformed(_))), "{fields:?}");
        }
        assert_eq!(decoded(&"X: y\r\n".repeat(HEADERS_MAX)), Ok(true));
        assert_eq!(decoded(&"X: y\r\n".repeat(HEADERS_MAX + 1)), Err(HeadError::TooManyHeaders));
        assert_eq!(decoded(&"x".repeat(HEAD_BYTES_MAX)), Err(HeadError::TooLarge));
    }
    let line = [b"GET /\x80".as_slice(), &[b'x'; HEAD_BYTES_MAX], b" HTTP/1.1\r\n\r\n"].concat();
    assert_eq!(error(&line), HeadError::TargetTooLong);
}

#[test]
fn empty_lines_are_tolerated_up_to_a_bound() {
    assert_eq!(empty_lines_bytes(b"\r\n\n\r\nGET"), 5);
    assert_eq!(empty_lines_bytes(b"\r"), 0);
    assert_eq!(empty_lines_bytes(b""), 0);
    let lines = vec![b'\n'; EMPTY_LINES_BYTES_MAX];
    let mut storage = HeaderStorage::new();
    assert!(RequestHead::decode(&lines, &mut storage).unwrap().is_none());
    with_head(&[&lines, ANNOUNCE].concat(), |head| assert_eq!(head.path, b"/announce"));
    assert_eq!(error(&[&lines[..], b"\n"].concat()), HeadError::Malformed("empty lines"));
}

#[test]
fn a_head_may_be_as_long_as_the_limit_and_no_longer() {
    let head_of = |bytes: usize| {
        let fixed = b"GET / HTTP/1.1\r\nX: \r\n\r\n".len();
        format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(bytes - fixed)).into_bytes()
    };
    with_head(&head_of(HEAD_BYTES_MAX), |head| assert_eq!(head.bytes, HEAD_BYTES_MAX));
    let longer = head_of(HEAD_BYTES_MAX + 1);
    assert_eq!(error(&longer), HeadError::TooLarge);
    assert_eq!(error(&longer[..HEAD_BYTES_MAX]), HeadError::TooLarge, "as soon as it is clear");
    assert_eq!(HeadError::TooLarge.status().code(), 431);
    let mut storage = HeaderStorage::new();
    assert!(RequestHead::decode(&longer[..HEAD_BYTES_MAX - 1], &mut storage).unwrap().is_none());
}

#[test]
fn a_request_line_that_does_not_fit_has_a_status_of_its_own() {
    let line = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(error(line.as_bytes()), HeadError::TargetTooLong);
    assert_eq!(HeadError::TargetTooLong.status().code(), 414);
}

#[test]
fn there_may_be_as_many_fields_as_the_limit_and_no_more() {
    let head_of = |fields| format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(fields)).into_bytes();
    with_head(&head_of(HEADERS_MAX), |head| assert_eq!(head.header("x").count(), HEADERS_MAX));
    assert_eq!(error(&head_of(HEADERS_MAX + 1)), HeadError::TooManyHeaders);
    assert_eq!(HeadError::TooManyHeaders.status().code(), 431);
}

#[test]
fn fields_of_a_name_come_in_their_order_and_in_any_case() {
    let fields = "X-Forwarded-For: a\r\nHost: b\r\nx-FORWARDED-for:  c, d \r\nX-Forwarded-Fo: e\r\n";
    with_fields("1.1", fields, |head| {
        let values: Vec<&[u8]> = head.header("x-forwarded-for").collect();
        assert_eq!(values, [&b"a"[..], b"c, d"]);
        assert_eq!(head.header("x-real-ip").count(), 0);
    });
}

#[test]
fn gzip_is_accepted_where_the_client_says_so() {
    let cases = [
        ("", false),
        ("Accept-Encoding: gzip\r\n", true),
        ("Accept-Encoding: deflate, GZIP\r\n", true),
        ("Accept-Encoding: x-gzip\r\n", true),
        ("Accept-Encoding: gzip;q=0.5\r\n", true),
        ("Accept-Encoding: gzip;q=1\r\n", true),
        ("Accept-Encoding: gzip;q=0\r\n", false),
        ("Accept-Encoding: gzip ; q=0.000\r\n", false),
        ("Accept-Encoding: gzip;q=0.001\r\n", true),
        ("Accept-Encoding: *\r\n", true),
        ("Accept-Encoding: *;q=0\r\n", false),
        ("Accept-Encoding: gzip;q=0, *\r\n", false),
        ("Accept-Encoding: *;q=0, gzip\r\n", true),
        ("Accept-Encoding: identity\r\nAccept-Encoding: gzip\r\n", true),
        ("Accept-Encoding: gzipped, deflate\r\n", false),
    ];
    for (fields, accepted) in cases {
        with_fields("1.1", fields, |head| assert_eq!(head.accepts_gzip(), accepted, "{fields}"));
    }
}

#[test]
fn a_body_may_be_held_back_where_there_is_one() {
    let cases = [
        ("Expect: 100-continue\r\nContent-Length: 1\r\n", true),
        ("expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n", true),
        ("Expect: 100-continue\r\n", false),
        ("Expect: 100-continue\r\nContent-Length: 0\r\n", false),
        ("Content-Length: 1\r\n", false),
    ];
    for (fields, may) in cases {
        with_fields("1.1", fields, |head| assert_eq!(head.may_hold_back_body(), may, "{fields}"));
    }
}

#[test]
fn an_upgrade_takes_both_fields() {
    let cases = [
        ("Connection: Upgrade\r\nUpgrade: websocket\r\n", Some("websocket")),
        ("Upgrade: websocket\r\nConnection: keep-alive, upgrade\r\n", Some("websocket")),
        ("Upgrade: websocket\r\n", None),
        ("Connection: Upgrade\r\n", None),
    ];
    for (fields, upgrade) in cases {
        with_fields("1.1", fields, |head| assert_eq!(head.upgrade(), upgrade.map(str::as_bytes), "{fields}"));
    }
}
