//! The control listener, with real requests.

pub(crate) mod api;
mod home;
pub(crate) mod monitoring;
pub(crate) mod statistics;
pub(crate) mod tokens;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::kit::client::{Announce, Client};
use crate::kit::frozen::{TRACEABLE, freeze};
use crate::kit::harness::{Tracker, eventually, run, run_locally};
use crate::kit::page::{request, send};
use crate::kit::web::{Web, tcp};

#[test]
fn health_is_200_while_every_worker_answers_and_else_503_with_the_one_that_hangs() {
    let tracker = Tracker::start(&[("SHOAL_WORKERS_COUNT", "3"), TRACEABLE]);
    let assert_health = |path: &str, status: u16, silent_workers: &[u32]| {
        let page = tracker.page(path);
        assert_eq!(page.status, status);
        assert!(page.head.contains("content-type: application/json"), "{}", page.head);
        let body: serde_json::Value = serde_json::from_str(&page.body).unwrap();
        let expected = serde_json::json!({
            "healthy": status == 200, "workers": 3, "silent_workers": silent_workers, "silent_readers": [], "paused": [],
        });
        assert_eq!(body, expected, "{path}");
    };
    assert_health("/health", 200, &[]);
    for path in ["/health/live", "/health/ready"] {
        assert_eq!(tracker.page(path).status, 200);
    }
    let hanging = freeze(&tracker, "worker-1");
    assert_health("/health", 503, &[1]);
    for path in ["/health/live", "/health/ready"] {
        let page = tracker.page(path);
        assert_eq!(page.status, 503);
        assert!(page.body.contains("\"silent_workers\":[1]"), "{}", page.body);
    }
    drop(hanging);
    assert_health("/health", 200, &[]);
}

#[test]
fn the_command_health_tells_what_is_wrong_and_fails_if_the_tracker_does_not_serve() {
    let mut tracker = Tracker::start(&[TRACEABLE]);
    let url = format!("http://{}", tracker.control);
    // Without a control socket, as another user.
    let health = |arguments: &[&str], code: i32, words: &[&str]| {
        let output = run(&[&["health"], arguments].concat(), &[("SHOAL_CONTROL_URL", &url)]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} are not in\n{text}");
    };
    health(&[], 0, &["ok       workers: all 2 respond\n"]);
    assert!(run_locally(&tracker, &["ctl", "drain", "--stay"]).status.success());
    health(&[], 0, &["all 2 respond", "advice   drain", "shoal ctl drain --cancel"]);
    let hanging = freeze(&tracker, "worker-1");
    health(&[], 1, &["PROBLEM  worker: worker 1 does not respond\n", "systemctl restart"]);
    health(&["--json"], 1, &["\"healthy\":false", "\"subject\":\"worker\""]);
    drop(hanging);
    tracker.stop();
    health(&[], 1, &["PROBLEM  tracker", &url, "there is no tracker"]);
}

#[test]
fn the_command_health_finds_the_tracker_by_its_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    let tracker = Tracker::start(&[]);
    std::fs::write(&file, format!("[control]\nlisten = \"{}\"\n", tracker.control)).unwrap();
    assert!(run(&["health", "--config", file.to_str().unwrap()], &[]).status.success());
    let listen = tracker.control.to_string();
    assert!(run(&["health"], &[("SHOAL_CONTROL_LISTEN", &listen)]).status.success());
    let unfindable = run(&["health"], &[("SHOAL_CONTROL_LISTEN", "")]);
    assert_eq!(unfindable.status.code(), Some(2));
}

#[test]
fn metrics_are_openmetrics_and_complete() {
    let tracker = Tracker::start(&[]);
    Client::new(tracker.udp[0]).announce(&Announce::seeder([1; 20], 1001));
    // io_uring tells that a reply was sent when the client has had it for a while already.
    let sent = || tracker.metric("shoal_udp_datagrams_sent_total", &["family=\"v4\""]);
    eventually("both replies are counted", || (sent() == 2).then_some(()));
    let page = tracker.page("/metrics");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("content-type: application/openmetrics-text"), "{}", page.head);
    assert!(page.body.ends_with("# EOF\n"));
    for series in [
        "shoal_requests_total{protocol=\"udp\",family=\"v4\",kind=\"announce\"} 1",
        "shoal_replies_total{protocol=\"udp\",family=\"v4\",kind=\"announce\",outcome=\"ok\"} 1",
        "shoal_replies_total{protocol=\"udp\",family=\"v6\",kind=\"announce\",outcome=\"store_full\"} 0",
        "shoal_replies_total{protocol=\"udp\",family=\"v6\",kind=\"announce\",outcome=\"source_over_share\"} 0",
        "shoal_peers_evicted_total{family=\"v4\"} 0",
        "shoal_peers_unregistered_total{protocol=\"udp\",family=\"v6\",reason=\"swarm_share\"} 0",
        "shoal_drops_total{protocol=\"udp\",family=\"v4\",reason=\"truncated\"} 0",
        "shoal_drops_total{protocol=\"udp\",family=\"v6\",reason=\"oversized\"} 0",
        "shoal_reply_drops_total{protocol=\"udp\",family=\"v4\",reason=\"buffer_full\"} 0",
        "shoal_udp_datagrams_received_total{family=\"v4\"} 2",
        "shoal_udp_datagrams_sent_total{family=\"v4\"} 2",
        "shoal_udp_receive_buffer_drops_total{worker=\"1\",address=\"127.0.0.1:",
        "shoal_udp_receive_queue_bytes{worker=\"0\",address=\"[::1]:",
        "shoal_worker_heartbeat_age_seconds{worker=\"0\"} ",
        "shoal_worker_batches_total{worker=\"1\"} ",
        "shoal_swarms{family=\"v4\"} 1",
        "shoal_peers{family=\"v4\",role=\"seeder\"} 1",
        "shoal_peers{family=\"v6\",role=\"leecher\"} 0",
        "shoal_peers_expired_total{family=\"v4\"} 0",
        "shoal_store_memory_bytes{family=\"v4\"} ",
        "shoal_store_memory_max_bytes 268435456",
        "shoal_build_info{version=\"",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "process_start_time_seconds ",
        "process_open_fds ",
    ] {
        assert!(page.body.contains(series), "{series} is not in\n{}", page.body);
    }
    let body = page.body;
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let suffixes = ["_total", "_info", "_bucket", "_sum", "_count"];
        let base = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        let is_declared = ["HELP", "TYPE"].iter().all(|word| body.contains(&format!("# {word} {base} ")));
        assert!(is_declared, "{line}");
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let tracker = Tracker::start(&[]);
    assert_eq!(tracker.page("/metric").status, 404);
    let posted = request(tracker.control, "POST", "/health");
    assert_eq!(posted.status, 405);
    assert!(posted.head.contains("allow: get"), "{}", posted.head);
    assert_eq!(tracker.page("/").status, 200);
    let head = request(tracker.control, "HEAD", "/metrics");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(send(tracker.control, b"nonsense\r\n\r\n").status, 400);
    let huge = format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "y".repeat(15 << 10));
    assert_eq!(send(tracker.control, huge.as_bytes()).status, 200);
    let huge = format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "y".repeat(17 << 10));
    assert_eq!(send(tracker.control, huge.as_bytes()).status, 431);
}

/// The status of a request for the metrics with these fields.
fn status(tracker: &Tracker, fields: &str) -> u16 {
    send(tracker.control, format!("GET /metrics HTTP/1.1\r\n{fields}\r\n").as_bytes()).status
}

/// A page that leads a name of its own to the address of the listener is answered nothing (DNS rebinding).
#[test]
fn names_that_nobody_configured_are_refused() {
    let tracker = Tracker::start(&[]);
    for host in ["127.0.0.1:6970", "[::1]", "localhost:6970", "192.0.2.1"] {
        assert_eq!(status(&tracker, &format!("Host: {host}\r\n")), 200, "{host}");
    }
    for host in ["evil.example", "evil.example:6970", "127.0.0.1.evil.example", "localhost.evil.example", ""]
    {
        assert_eq!(status(&tracker, &format!("Host: {host}\r\n")), 421, "{host}");
    }
    assert_eq!(status(&tracker, "Host: localhost\r\nHost: evil.example\r\n"), 421);
    let absolute = b"GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let refused = send(tracker.control, absolute);
    assert!(refused.status == 421 && refused.body.contains("control.hosts"), "{refused:?}");
    // Load balancers check by requests without a name.
    assert_eq!(send(tracker.control, b"GET /health HTTP/1.0\r\n\r\n").status, 200);

    let named = Tracker::start(&[("SHOAL_CONTROL_HOSTS", "tracker.example,shoal")]);
    for (host, expected) in [("Tracker.example:6970", 200), ("shoal", 200), ("evil.example", 421)] {
        assert_eq!(status(&named, &format!("Host: {host}\r\n")), expected, "{host}");
    }
    let any = Tracker::start(&[("SHOAL_CONTROL_HOSTS", "*")]);
    assert_eq!(status(&any, "Host: any.example\r\n"), 200);
}

#[test]
fn pages_of_other_sites_are_refused_and_nothing_is_kept_or_guessed() {
    let tracker = Tracker::start(&[]);
    assert_eq!(status(&tracker, "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n"), 403);
    assert_eq!(status(&tracker, "Host: localhost\r\nSec-Fetch-Site: none\r\n"), 200);
    for path in ["/", "/health", "/metrics", "/nowhere"] {
        let page = tracker.page(path);
        for field in ["cache-control: no-store", "x-content-type-options: nosniff", "date: "] {
            assert!(page.head.contains(field), "{path}: {}", page.head);
        }
    }
}

#[test]
fn an_unfinished_request_is_cut_off() {
    let tracker = Tracker::start(&[]);
    let mut stream = TcpStream::connect(tracker.control).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost").unwrap();
    // Ends with an answer or without one, but it ends.
    stream.read_to_end(&mut Vec::new()).unwrap();
}

/// The head and the body of a response whose body is not text.
fn fetch(tracker: &Tracker, request: &str) -> (String, Vec<u8>) {
    let mut web = Web::connect(tracker.control, false);
    web.send(request.as_bytes());
    let answer = web.answer();
    (answer.head, answer.body)
}

#[test]
fn the_status_page_is_one_document_that_runs_nothing_else() {
    let tracker = Tracker::start(&[]);
    let page = tracker.page("/");
    assert!(page.head.contains("content-type: text/html"), "{}", page.head);
    let policy = page.head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(page.body.starts_with("<!doctype html>") && page.body.len() <= 200 << 10);
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: br, gzip\r\n\r\n";
    let (head, compressed) = fetch(&tracker, request);
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&compressed[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, page.body);
}

#[test]
fn the_statistics_are_those_of_the_metrics() {
    let tracker = Tracker::start(&[]);
    Client::new(tracker.udp[0]).announce(&Announce::seeder([1; 20], 1001));
    let stats: serde_json::Value = serde_json::from_str(&tracker.page("/status").body).unwrap();
    assert_eq!(stats["traffic"][0]["protocol"], "udp");
    assert_eq!(stats["traffic"][0]["requests"]["announce"], 1);
    assert_eq!(stats["traffic"][0]["ok"], 2, "a connection id and an announce");
    assert_eq!((&stats["swarms"][0]["swarms"], &stats["swarms"][0]["seeders"]), (&1.into(), &1.into()));
    assert_eq!(stats["memory"]["store_max"], 256 << 20);
    assert_eq!(stats["workers"].as_array().map(Vec::len), Some(2));
    assert_eq!(tracker.metric("shoal_peers", &["role=\"seeder\""]), 1);
    let history: serde_json::Value = serde_json::from_str(&tracker.page("/status/history").body).unwrap();
    assert_eq!((&history["hour"]["step_s"], &history["day"]["step_s"]), (&10.into(), &300.into()));
}

/// Opens the events of the status page, and reads nothing.
fn watch(tracker: &Tracker) -> TcpStream {
    let mut stream = tcp(tracker.control);
    // A connection that has to make room for others may be closed by now.
    let _ = stream.write_all(b"GET /status/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream
}

/// Whether an event comes before the connection ends.
fn has_event(stream: &mut TcpStream) -> bool {
    let mut text = String::new();
    let mut bytes = [0; 256];
    while !text.contains("data: {\"stats\":{\"version\":") {
        match stream.read(&mut bytes) {
            Ok(count) if count > 0 => text.push_str(&String::from_utf8_lossy(&bytes[..count])),
            Ok(_) => return false,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
            Err(error) => panic!("{error}"),
        }
    }
    true
}

#[test]
fn a_thousand_readers_that_do_not_read_are_few_streams_and_delay_no_other_request() {
    let tracker = Tracker::start(&[]);
    let mut readers: Vec<TcpStream> = (0..1000).map(|_| watch(&tracker)).collect();
    assert_eq!(tracker.page("/health").status, 200);
    Client::new(tracker.udp[0]).announce(&Announce::seeder([1; 20], 1001));
    // The others were refused, or closed to make room.
    let watching = readers.iter_mut().filter_map(|reader| has_event(reader).then_some(())).count();
    assert!((1..=32).contains(&watching), "{watching}");
    drop(readers);
    eventually("there is room for a reader", || has_event(&mut watch(&tracker)).then_some(()));
}
