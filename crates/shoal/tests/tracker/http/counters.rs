//! The metrics of responses and TLS handshakes.

use std::io::{Read, Write};

use crate::http::{Way, over_every_way};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::web::{announce, tcp};
use crate::udp::hash;

over_every_way!(responses_are_counted_by_status);

fn responses_are_counted_by_status(way: Way) {
    let tracker = way.start(&[]);
    let mut web = way.connect(&tracker);
    for (path, status) in
        [(&*announce(hash(1), 1, ""), 200), ("/announce?x", 200), ("/a", 404), ("/b", 404), ("/c", 404)]
    {
        assert_eq!(web.get(path).status, status, "{path}");
    }
    web.send(b"PUT /announce HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(web.answer().status, 405);
    for (status, count) in [("200", 2), ("404", 3), ("405", 1), ("101", 0), ("400", 0)] {
        let label = format!("status=\"{status}\"");
        assert_eq!(tracker.metric("shoal_http_responses_total", &[&label]), count, "{status}");
    }
    assert_eq!(handshakes(&tracker, "full"), u64::from(way.tls()));
}

fn handshakes(tracker: &Tracker, outcome: &str) -> u64 {
    tracker.metric("shoal_tls_handshakes_total", &[&format!("outcome=\"{outcome}\"")])
}

#[test]
fn failed_handshakes_are_counted_by_reason() {
    let way = Way::new(false, true);
    let tracker = way.start(&[]);
    for (outcome, input) in [
        ("plain_http", &b"GET /announce HTTP/1.1\r\n\r\n"[..]),
        // A record of handshake type whose message is no ClientHello.
        ("malformed", &[22, 3, 1, 0, 4, 99, 0, 0, 0]),
        // The fatal alert unknown_ca.
        ("alert", &[21, 3, 1, 0, 2, 2, 48]),
    ] {
        assert_eq!(handshakes(&tracker, outcome), 0, "{outcome}");
        let mut stream = tcp(way.address(&tracker));
        stream.write_all(input).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        eventually(outcome, || (handshakes(&tracker, outcome) == 1).then_some(()));
    }
    let mut stream = tcp(way.address(&tracker));
    stream.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    drop(stream);
    eventually("abandoned", || (handshakes(&tracker, "abandoned") == 1).then_some(()));
    assert_eq!(handshakes(&tracker, "full") + handshakes(&tracker, "resumed"), 0);
}
