//! Proxies in front of the tracker: whose word is taken.

use std::io::Write;

use crate::http::Way;
use crate::kit::harness::{Tracker, eventually};
use crate::kit::web::{Answer, Web, announce, tcp};
use crate::udp::hash;

/// Whether an answer hands out or names this compact peer or address.
fn holds(answer: &Answer, bytes: &[u8]) -> bool {
    answer.body.windows(bytes.len()).any(|window| window == bytes)
}

#[test]
fn a_proxy_header_names_the_client() {
    let way = Way::PLAIN;
    let tracker = way.start(&[
        ("SHOAL_HTTP_LISTEN", "127.0.0.1:0 proxy-protocol"),
        ("SHOAL_PROXY_TRUSTED", "127.0.0.1/32"),
    ]);
    let v2 = [
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".as_slice(),
        &[198, 51, 100, 7, 127, 0, 0, 1, 0x1f, 0x90, 0x1b, 0x39],
    ]
    .concat();
    for header in [b"PROXY TCP4 198.51.100.7 127.0.0.1 8080 6969\r\n".as_slice(), &v2] {
        let mut stream = tcp(tracker.http[0]);
        stream.write_all(header).unwrap();
        let answer = Web::over(stream).get(&announce(hash(1), 1111, ""));
        assert!(holds(&answer, b"11:external ip4:\xc6\x33\x64\x07"), "{}", answer.body.escape_ascii());
    }
    // Without the header, no client is served there.
    let mut bare = Web::connect(tracker.http[0], false);
    bare.send(b"GET /announce HTTP/1.1\r\nHost: t\r\n\r\n");
    let said = bare.until_closed().unwrap_or_default();
    assert!(!said.starts_with(b"HTTP/1.1 200"), "{}", said.escape_ascii());
}

fn ask_with(tracker: &Tracker, header: &str) -> Answer {
    let mut web = Web::connect(tracker.http[0], false);
    let target = announce(hash(2), 1111, "");
    web.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n{header}\r\n\r\n").as_bytes());
    web.answer()
}

#[test]
fn a_forwarded_header_is_believed_from_trusted_networks_only() {
    let way = Way::PLAIN;
    let header = "X-Forwarded-For: 203.0.113.9, 198.51.100.7, 10.0.0.1";
    let trusting = way.start(&[
        ("SHOAL_PROXY_TRUSTED", "127.0.0.1/32,10.0.0.0/8"),
        ("SHOAL_PROXY_HEADER", "x-forwarded-for"),
    ]);
    let answer = ask_with(&trusting, header);
    assert!(holds(&answer, b"11:external ip4:\xc6\x33\x64\x07"), "{}", answer.body.escape_ascii());
    let nameless = ask_with(&trusting, "X-Real-IP: 198.51.100.7");
    assert!(nameless.body.starts_with(b"d14:failure reason"), "{}", nameless.body.escape_ascii());

    let wary = way.start(&[]);
    let answer = ask_with(&wary, header);
    assert!(holds(&answer, b"11:external ip4:\x7f\0\0\x01"), "{}", answer.body.escape_ascii());
    let elsewhere =
        way.start(&[("SHOAL_PROXY_TRUSTED", "10.0.0.0/8"), ("SHOAL_PROXY_HEADER", "x-forwarded-for")]);
    let answer = ask_with(&elsewhere, header);
    assert!(holds(&answer, b"11:external ip4:\x7f\0\0\x01"), "{}", answer.body.escape_ascii());
}

#[test]
fn a_unix_socket_serves_a_proxy() {
    let way = Way::PLAIN;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http.sock");
    let mut tracker = way.start(&[
        ("SHOAL_HTTP_LISTEN", &*format!("unix:{}", path.display())),
        ("SHOAL_PROXY_TRUSTED", "unix"),
        ("SHOAL_PROXY_HEADER", "x-real-ip"),
    ]);
    let mut web = Web::connect_unix(&path);
    let target = announce(hash(3), 1111, "");
    web.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\nX-Real-IP: 198.51.100.7\r\n\r\n").as_bytes());
    let answer = web.answer();
    assert!(holds(&answer, b"11:external ip4:\xc6\x33\x64\x07"), "{}", answer.body.escape_ascii());
    drop(web);
    assert_eq!(tracker.stop().code(), Some(0));
    assert!(!path.exists(), "the file goes with the tracker");
}

#[test]
fn a_client_that_a_proxy_names_has_so_many_connections_and_no_more() {
    let way = Way::PLAIN;
    const LIMIT: usize = 16;
    let tracker = way.start(&[
        ("SHOAL_HTTP_LISTEN", "127.0.0.1:0 proxy-protocol"),
        ("SHOAL_PROXY_TRUSTED", "127.0.0.1/32"),
        ("SHOAL_HTTP_CONNECTIONS_PER_SOURCE_MAX", "16"),
    ]);
    let ask = |client: &str| {
        let mut stream = tcp(tracker.http[0]);
        stream.write_all(format!("PROXY TCP4 {client} 127.0.0.1 8080 6969\r\n").as_bytes()).unwrap();
        let mut web = Web::over(stream);
        let status = web.get(&announce(hash(4), 1111, "")).status;
        (web, status)
    };
    let mut all: Vec<_> = (0..300).map(|_| ask("198.51.100.7")).collect();
    assert!(all[..LIMIT].iter().all(|(_, status)| *status == 200));
    assert!(all[LIMIT..].iter().all(|(_, status)| *status == 503));
    assert_eq!(tracker.metric("shoal_connections_refused_named_total", &[]), 300 - LIMIT as u64);
    // Other clients of the proxy are not held responsible.
    assert_eq!(ask("198.51.100.8").1, 200);
    all.drain(..1);
    eventually("there is room again", || (ask("198.51.100.7").1 == 200).then_some(()));
}
