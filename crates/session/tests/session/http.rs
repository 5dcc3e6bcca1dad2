//! Responses to requests, and the state of the connection after them.

use shoal_base::transport::stream::{Next, StreamService};
use shoal_engine::counter::{Family, Kind, Outcome};
use shoal_engine::refusal::Refusal;

use crate::harness::{self, NOW, PLAIN, PROXIED, SECURE, Tracker, announce, announce_target, request};
use crate::response;

/// Asserts the responses to whole requests, and what the connection waits for.
#[track_caller]
fn assert_answers(bytes: &[u8], statuses: &[u16], next: Next) {
    let received = Tracker::new().ask(bytes);
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    assert_eq!((received.statuses().as_slice(), received.next), (statuses, next), "{shown}");
    for response in received.responses() {
        let is_closing = response.field("connection") == Some("close");
        let is_last = matches!(next, Next::Close | Next::Linger);
        assert_eq!(is_closing, is_last && statuses.len() == 1, "{shown}");
        assert!(!response.body.is_empty(), "{shown}");
    }
}

#[test]
fn versions_and_the_connection_field_decide_whether_a_connection_is_kept() {
    let target = announce_target();
    let ask = |version, fields| request("GET", &target, version, fields);
    assert_answers(&ask("HTTP/1.1", ""), &[200], Next::Idle);
    assert_answers(&ask("HTTP/1.1", "Connection: keep-alive\r\n"), &[200], Next::Idle);
    assert_answers(&ask("HTTP/1.1", "connection: CLOSE\r\n"), &[200], Next::Close);
    assert_answers(&ask("HTTP/1.1", "Connection: te, close\r\n"), &[200], Next::Close);
    assert_answers(&ask("HTTP/1.0", ""), &[200], Next::Close);
    assert_answers(&ask("HTTP/1.0", "Connection: Keep-Alive\r\n"), &[200], Next::Idle);
    assert_answers(&ask("HTTP/1.0", "Connection: keep-alive, close\r\n"), &[200], Next::Close);
}

#[test]
fn answers_of_the_tracker_are_bencoded_text() {
    for target in [announce_target().as_str(), "/announce", "/announce?", "/scrape", "/scrape?info_hash=x"] {
        let received = Tracker::new().ask(&request("GET", target, "HTTP/1.1", ""));
        let response = &received.responses()[0];
        assert_eq!((response.status, received.next), (200, Next::Idle), "{target}");
        assert_eq!(response.field("content-type"), Some("text/plain"), "{target}");
        assert!(response.is_bencoded(), "{target}");
    }
}

#[test]
fn paths_and_targets() {
    for target in [
        "/",
        "//",
        "/.php",
        "/announc",
        "/announce2?x",
        "/announce.php5",
        "/announce.php.php",
        "/announce/x",
        "/announce.php/x",
        "/xannounce",
        "/ANNOUNCE",
        "/stats?/announce",
        "*",
        "http://host",
        "announce",
    ] {
        assert_answers(&request("GET", target, "HTTP/1.1", ""), &[404], Next::Idle);
    }
    let absolute = format!("http://tracker.example:6969{}", announce_target());
    assert_answers(&request("GET", &absolute, "HTTP/1.1", ""), &[200], Next::Idle);
}

#[test]
fn the_last_segment_of_a_path_says_what_is_asked() {
    let query = announce_target().split_once('?').unwrap().1.to_owned();
    for path in [
        "/announce/",
        "/announce.php",
        "//announce",
        "/announce//",
        "/a/b%2fc/announce",
        "/key/announce.php/",
    ] {
        let received = Tracker::new().ask(&request("GET", &format!("{path}?{query}"), "HTTP/1.1", ""));
        assert_eq!((received.statuses(), received.next), (vec![200], Next::Idle), "{path}");
        assert!(received.responses()[0].body.starts_with(b"d8:complete"), "{path}");
    }
    for path in ["/scrape/", "/scrape.php", "//scrape", "/key/scrape"] {
        let target = format!("{path}?info_hash=aaaaaaaaaaaaaaaaaaaa");
        let received = Tracker::new().ask(&request("GET", &target, "HTTP/1.1", ""));
        assert!(received.responses()[0].body.starts_with(b"d5:files"), "{path}");
    }
}

#[test]
fn raw_bytes_and_later_minor_versions_are_served() {
    let target = announce_target();
    assert_answers(&request("GET", &target, "HTTP/1.2", ""), &[200], Next::Idle);
    let mut raw = request("GET", &target, "HTTP/1.1", "");
    for byte in raw.iter_mut().filter(|byte| **byte == b'a').skip(1).take(10) {
        *byte = 0xff;
    }
    assert_answers(&raw, &[200], Next::Idle);
}

#[test]
fn two_hosts_end_the_connection() {
    assert_answers(&[announce("Host: other.example\r\n"), announce("")].concat(), &[400], Next::Linger);
}

#[test]
fn every_response_has_the_date_and_is_nothing_but_text() {
    for bytes in [
        announce(""),
        request("GET", "/nowhere", "HTTP/1.1", ""),
        request("POST", "/announce", "HTTP/1.1", ""),
        announce("Content-Length: 9999\r\n"),
        b"nonsense\r\n\r\n".to_vec(),
    ] {
        for response in Tracker::new().ask(&bytes).responses() {
            assert_eq!(response.field("date"), Some("Tue, 14 Nov 2023 22:13:20 GMT"), "{response:?}");
            assert_eq!(response.field("x-content-type-options"), Some("nosniff"), "{response:?}");
        }
    }
    let mut tracker = Tracker::new();
    let mut session = tracker.open(PLAIN, "192.0.2.1");
    for (unix_s, date) in
        [(1_700_000_001, "Tue, 14 Nov 2023 22:13:21 GMT"), (0, "Thu, 01 Jan 1970 00:00:00 GMT")]
    {
        let (mut input, mut output) = (announce(""), Vec::new());
        tracker.service.begin_round(shoal_engine::Now { unix_s, ..NOW });
        assert_eq!(tracker.service.receive(&mut session, &mut input, &mut output), Next::Idle);
        assert_eq!(response::parse_all(&output, false)[0].field("date"), Some(date));
    }
}

#[test]
fn pages_of_other_sites_cannot_announce_their_visitors() {
    for (fields, status) in [
        ("", 200),
        ("Sec-Fetch-Mode: cors\r\n", 200),
        ("Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n", 200),
        ("Sec-Fetch-Site: same-origin\r\nOrigin: https://tracker.example\r\n", 200),
        ("Sec-Fetch-Site: same-site\r\n", 200),
        ("Origin:\r\n", 200),
        ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n", 403),
        ("sec-fetch-site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: another-galaxy\r\n", 403),
        ("Origin: https://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
    ] {
        let mut tracker = Tracker::new();
        let received = tracker.ask(&announce(fields));
        assert_eq!((received.statuses(), received.next), (vec![status], Next::Idle), "{fields}");
        assert!(received.responses()[0].is_bencoded(), "{fields}");
        assert_eq!(tracker.has("192.0.2.1"), status == 200, "{fields}");
        let refused = Outcome::Refused(Refusal::CrossSite);
        assert_eq!(
            tracker.counters.replies(Family::V4, Kind::Other, refused),
            u64::from(status == 403),
            "{fields}"
        );
        let scrape = request("GET", "/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa", "HTTP/1.1", fields);
        assert_eq!(Tracker::new().ask(&scrape).statuses(), [status], "{fields}");
        let mut open = Tracker::with(|settings| settings.cross_site = true, |_| {}, None);
        assert_eq!(open.ask(&announce(fields)).statuses(), [200], "{fields}");
    }
}

#[test]
fn other_methods_are_told_which_are_served() {
    for method in ["POST", "PUT", "OPTIONS", "DELETE", "get", "BREW"] {
        let received = Tracker::new().ask(&request(method, "/announce", "HTTP/1.1", ""));
        let response = &received.responses()[0];
        assert_eq!((response.status, received.next), (405, Next::Idle), "{method}");
        assert_eq!(response.field("allow"), Some("GET, HEAD"), "{method}");
    }
}

#[test]
fn the_head_of_an_answer_is_that_of_get() {
    for target in ["/scrape?info_hash=x", "/nowhere"] {
        let whole = Tracker::new().ask(&request("GET", target, "HTTP/1.1", ""));
        let head = Tracker::new().ask(&request("HEAD", target, "HTTP/1.1", ""));
        assert_eq!(head.next, Next::Idle);
        assert!(whole.output.starts_with(&head.output));
        let (_, body) = response::parse_head(&whole.output);
        assert_eq!(whole.output.len() - head.output.len(), body.len());
    }
}

#[test]
fn the_head_of_an_announce_registers_no_peer() {
    for ip in ["192.0.2.1", "2001:db8::1"] {
        let mut tracker = Tracker::new();
        for (method, is_registered) in [("HEAD", false), ("GET", true)] {
            let received = tracker.ask_from(PLAIN, ip, &request(method, &announce_target(), "HTTP/1.1", ""));
            let (head, body) = response::parse_head(&received.output);
            assert_eq!((head.status, body.is_empty()), (200, method == "HEAD"));
            assert_eq!(tracker.has(ip), is_registered, "{method}");
        }
    }
}

#[test]
fn requests_whose_end_could_be_disputed_end_the_connection() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
    ] {
        // The following bytes must not be taken for a request.
        assert_answers(&[announce(fields), announce("")].concat(), &[400], Next::Linger);
    }
    let chunks_before_their_time = request("GET", "/announce", "HTTP/1.0", "Transfer-Encoding: chunked\r\n");
    assert_answers(&chunks_before_their_time, &[400], Next::Linger);
}

#[test]
fn a_short_body_is_read_past_and_a_long_one_refused() {
    let with_body = |bytes: usize| {
        [announce(&format!("Content-Length: {bytes}\r\n")), vec![b'x'; bytes], announce("")].concat()
    };
    assert_answers(&with_body(0), &[200, 200], Next::Idle);
    assert_answers(&with_body(5), &[200, 200], Next::Idle);
    assert_answers(&with_body(1024), &[200, 200], Next::Idle);
    assert_answers(&with_body(1025), &[413], Next::Linger);
    assert_answers(&announce("Content-Length: 18446744073709551614\r\n"), &[413], Next::Linger);
    assert_answers(&announce("Transfer-Encoding: chunked\r\n"), &[411], Next::Linger);
    let chunks = [announce("Transfer-Encoding: chunked\r\n"), b"0\r\n\r\n".to_vec()].concat();
    assert_answers(&chunks, &[411], Next::Linger);
    let post = [request("POST", "/", "HTTP/1.1", "Content-Length: 3\r\n"), b"xyz".to_vec()].concat();
    assert_answers(&post, &[405], Next::Idle);
    assert_answers(&request("POST", "/", "HTTP/1.1", "Content-Length: 3\r\n"), &[405], Next::Busy);
    assert_answers(&announce("Connection: close\r\nContent-Length: 3\r\n"), &[200], Next::Linger);
}

#[test]
fn a_body_that_may_never_come_ends_the_connection() {
    // A client that gets its response before a 100 may omit the body or send it. The tracker cannot tell which
    // the following bytes are.
    let held_back = announce("Expect: 100-continue\r\nContent-Length: 5\r\n");
    assert_answers(&[&held_back[..], b"xxxxx", &announce("")].concat(), &[200], Next::Linger);
    assert_answers(&[held_back, announce("")].concat(), &[200], Next::Linger);
    let post = request("POST", "/", "HTTP/1.1", "expect: 100-Continue\r\nContent-Length: 5\r\n");
    assert_answers(&post, &[405], Next::Linger);
    assert_answers(&announce("Expect: 100-continue\r\n"), &[200], Next::Idle);
}

#[test]
fn heads_have_a_longest() {
    let room = 8 * 1024 - request("GET", "/", "HTTP/1.1", "").len();
    let longest = format!("/{}", "x".repeat(room));
    assert_answers(&request("GET", &longest, "HTTP/1.1", ""), &[404], Next::Idle);
    assert_answers(&request("GET", &format!("{longest}x"), "HTTP/1.1", ""), &[431], Next::Linger);
    assert_answers(&request("GET", &longest.repeat(2), "HTTP/1.1", ""), &[414], Next::Linger);
    assert_answers(&announce(&format!("X: {}\r\n", "x".repeat(9000))), &[431], Next::Linger);
    assert_answers(&announce(&"X: y\r\n".repeat(99)), &[200], Next::Idle);
    assert_answers(&announce(&"X: y\r\n".repeat(100)), &[431], Next::Linger);
}

#[test]
fn nothing_is_answered_behind_the_last_answer() {
    let bytes = [announce("Connection: close\r\n"), announce("")].concat();
    assert_answers(&bytes, &[200], Next::Linger);
    let mut tracker = Tracker::new();
    let mut session = tracker.open(PLAIN, "192.0.2.1");
    assert_eq!(tracker.send(&mut session, &announce("Connection: close\r\n")).next, Next::Close);
    let received = tracker.send(&mut session, &announce(""));
    assert_eq!((received.output.len(), received.next), (0, Next::Close));
}

#[test]
fn an_incomplete_request_gets_an_error_at_the_end() {
    let half = &announce("")[..50];
    let body_missing = request("POST", "/", "HTTP/1.1", "Content-Length: 3\r\n");
    for (bytes, status) in [(half, Some(408)), (&body_missing, None), (b"", None), (&announce(""), None)] {
        let mut tracker = Tracker::new();
        let mut session = tracker.open(PLAIN, "192.0.2.1");
        tracker.send(&mut session, bytes);
        let mut last_message = Vec::new();
        tracker.service.expire(&mut session, &mut last_message);
        let responses = response::parse_all(&last_message, true);
        assert_eq!(responses.first().map(|response| response.status), status);
        assert!(responses.iter().all(|response| response.field("connection") == Some("close")));
        assert_eq!(session.buffered_bytes(), 0);
        assert_eq!(tracker.send(&mut session, &announce("")).output.len(), 0);
    }
}

#[test]
fn a_refused_client_gets_an_error_if_it_can_read_one() {
    let mut tracker = Tracker::new();
    let mut message = Vec::new();
    tracker.service.refuse(&harness::remote(PLAIN, "192.0.2.1"), &mut message);
    assert!(message.len() < 536, "it fits every packet");
    let response = &response::parse_all(&message, true)[0];
    assert_eq!((response.status, response.field("connection")), (503, Some("close")));
    assert!(response.field("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()));

    message.clear();
    tracker.service.refuse(&harness::remote(PROXIED, "192.0.2.1"), &mut message);
    assert!(message.starts_with(b"HTTP/1.1 503 "));

    message.clear();
    tracker.service.refuse(&harness::remote(SECURE, "192.0.2.1"), &mut message);
    assert_eq!(message, b"", "nothing can be sent before a handshake");
}
