//! Requests that the control listener refuses: how they are counted, and what they keep others from.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{ADMIN, Controlled, READ, request_bytes};
use crate::kit::harness::eventually;
use crate::kit::page::send;

/// The counters of requests by outcome, and of connections by reason.
const REQUESTS: &str = "shoal_control_requests_total";
const ENDED: &str = "shoal_control_connections_ended_total";

impl Controlled {
    /// A counter of the control listener.
    fn counted(&self, metric: &str, label: &str) -> u64 {
        let page = self.ask("GET", "/metrics", Some(READ), None);
        let start = format!("{metric}{{{label}}} ");
        let line = page.body.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("there is no {start} in\n{}", page.body)).parse().unwrap()
    }

    fn send_raw(&self, text: &str) -> u16 {
        send(self.tracker.control, text.as_bytes()).status
    }
}

#[test]
fn refused_requests_are_counted_by_their_reason() {
    let controlled = Controlled::start(&[]);
    let raw = |fields: &str| controlled.send_raw(&format!("GET /status HTTP/1.1\r\n{fields}\r\n"));
    let put = |token, body| controlled.ask("PUT", "/api/v1/log", Some(token), Some(&body)).status;
    let ban = json!({ "network": "192.0.2.1", "reason": "" });
    let large = json!({ "level": "i".repeat(70_000) });
    let long = format!("Authorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\n");
    let slow = format!("PUT /api/v1/log HTTP/1.1\r\nHost: localhost\r\n{long}Content-Length: 9\r\n\r\n");
    for (outcome, status, expected) in [
        ("other_host", raw("Host: evil.example\r\n"), 421),
        ("other_page", raw("Host: localhost\r\nOrigin: http://evil.example\r\n"), 403),
        ("no_token", raw("Host: localhost\r\n"), 401),
        ("wrong_token", raw("Host: localhost\r\nAuthorization: Bearer x\r\n"), 401),
        ("role", put(READ, json!({ "level": "info" })), 403),
        ("invalid", put(ADMIN, json!({ "level": "loud" })), 400),
        ("not_found", controlled.ask("DELETE", "/api/v1/bans/192.0.2.1", Some(ADMIN), None).status, 404),
        ("large_body", put(ADMIN, large), 413),
        ("slow_body", controlled.send_raw(&slow), 408),
    ] {
        assert_eq!(status, expected, "{outcome}");
        assert_eq!(controlled.counted(REQUESTS, &format!("outcome=\"{outcome}\"")), 1, "{outcome}");
    }
    let served = controlled.counted(REQUESTS, "outcome=\"ok\"");
    assert_eq!(controlled.ask("POST", "/api/v1/bans", Some(ADMIN), Some(&ban)).status, 200);
    // The ban, and the page of metrics before it.
    assert_eq!(controlled.counted(REQUESTS, "outcome=\"ok\""), served + 2);
}

#[test]
fn connections_without_a_response_are_counted_by_their_reason() {
    let controlled = Controlled::start(&[]);
    let silent = TcpStream::connect(controlled.tracker.control).unwrap();
    eventually("a connection without a request is counted", || {
        (controlled.counted(ENDED, "reason=\"failed\"") == 1).then_some(())
    });
    drop(silent);
    assert_eq!(controlled.counted(ENDED, "reason=\"evicted\""), 0);
    let held: Vec<TcpStream> =
        (0..60).map(|_| TcpStream::connect(controlled.tracker.control).unwrap()).collect();
    eventually("the oldest connections are closed", || {
        (controlled.counted(ENDED, "reason=\"evicted\"") > 0).then_some(())
    });
    drop(held);
}

#[test]
fn large_bodies_that_do_not_arrive_keep_no_small_one_out() {
    let controlled = Controlled::start(&[]);
    let head = format!(
        "POST /api/v1/torrents HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READ}\r\n\
         Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{{"
    );
    let hold = || {
        let mut stream = TcpStream::connect(controlled.tracker.control).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let hashes = |count: usize| json!({ "info_hashes": vec!["aa".repeat(20); count] });
    let ask = |count| controlled.ask("POST", "/api/v1/torrents", Some(READ), Some(&hashes(count)));
    let mut held = Vec::new();
    eventually("large bodies of one address are limited", || {
        held.push(hold());
        (ask(5000).status == 503).then_some(())
    });
    assert_eq!(ask(1000).status, 200);
    drop(held);
    eventually("large bodies are read again", || (ask(5000).status == 200).then_some(()));
}

#[test]
fn parameters_that_cannot_be_read_are_refused_as_documents() {
    let controlled = Controlled::start(&[]);
    for (method, path) in [
        ("GET", "/api/v1/top?max=x"),
        ("GET", "/api/v1/top?foo=1"),
        ("GET", "/api/v1/torrents/0101010101010101010101010101010101010101?peers=-1"),
        ("GET", "/api/v1/lists/foo/torrents"),
        ("GET", "/api/v1/torrents/%ff"),
    ] {
        let page = controlled.ask(method, path, Some(ADMIN), None);
        assert_eq!(page.status, 400, "{path}: {page:?}");
        let refusal: Value = serde_json::from_str(&page.body).unwrap();
        assert!(
            refusal["error"].as_str().unwrap().starts_with("the parameters are not"),
            "{path}: {refusal}"
        );
    }
}

#[test]
fn a_change_that_fails_is_recorded_as_such() {
    let controlled = Controlled::start(&[]);
    let refused = controlled.ask("DELETE", "/api/v1/bans/10.9.9.9", Some(ADMIN), None);
    assert_eq!(refused.status, 404, "{refused:?}");
    let [intended, failed] =
        [(); 2].map(|()| controlled.tracker.wait_for_line("a change by the control listener"));
    assert_eq!(intended["details"], r#"{"network":"10.9.9.9/32"}"#);
    assert!(failed["details"].as_str().unwrap().contains("10.9.9.9/32 has no ban"), "{failed}");
    let refused =
        controlled.ask("POST", "/api/v1/lists/allow/add", Some(ADMIN), Some(&json!({ "torrents": ["aa"] })));
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.body.contains("access.torrents_allow names no file"), "{refused:?}");
}

#[test]
fn refused_roles_are_limited_like_all_requests() {
    let controlled = Controlled::start(&[]);
    let control = controlled.tracker.control;
    let request = request_bytes("POST", "/api/v1/reload", Some(READ), Some(&json!({})));
    let ask = || (0..200).map(|_| send(control, &request).status).collect::<BTreeSet<u16>>();
    let statuses: BTreeSet<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(statuses, BTreeSet::from([403, 429]));
}
