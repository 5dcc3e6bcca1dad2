//! The control listener: tokens, pages of other sites, TLS, and clients that hold it up.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;

use crate::http::self_signed;
use crate::kit::client::{Announce, Client};
use crate::kit::harness::{RUNTIME_DIRECTORY, Tracker, run, run_locally};
use crate::kit::page::{Page, send};
use crate::kit::web::Web;

const READ: &str = "read-token-0123456789";
const ADMIN: &str = "admin-token-0123456789";

/// The answer to a request with these fields.
fn ask(tracker: &Tracker, line: &str, fields: &str) -> Page {
    send(tracker.control, format!("{line} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes())
}

fn show(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// The line of `sha256sum` for a token in the file of tokens.
fn line(role: &str, name: &str, token: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{role} {name} sha256:{hex}\n")
}

#[test]
fn with_tokens_everything_but_health_needs_one() {
    let tracker = Tracker::start(&[("SHOAL_CONTROL_READ_TOKEN", READ), ("SHOAL_CONTROL_ADMIN_TOKEN", ADMIN)]);
    assert_eq!(ask(&tracker, "GET /health", "").status, 200);
    let refused = ask(&tracker, "GET /metrics", "");
    assert_eq!(refused.status, 401);
    assert!(refused.head.contains("www-authenticate: bearer"), "{}", refused.head);
    assert!(refused.body.contains("Authorization: Bearer"), "{}", refused.body);
    for token in [READ, ADMIN] {
        assert_eq!(ask(&tracker, "GET /metrics", &show(token)).status, 200, "{token}");
    }
    let long = "a".repeat(12 << 10);
    for wrong in ["", "x", &READ[1..], &format!("{READ}x"), &READ.to_uppercase(), &long] {
        assert_eq!(ask(&tracker, "GET /metrics", &show(wrong)).status, 401, "{wrong:.30}");
    }
    for fields in [
        format!("Authorization: {READ}\r\n"),
        format!("Authorization: Basic {READ}\r\n"),
        show(READ).repeat(2),
    ] {
        assert_eq!(ask(&tracker, "GET /metrics", &fields).status, 401, "{fields}");
    }
    // A token in a cookie or a URL is none.
    assert_eq!(ask(&tracker, "GET /metrics", &format!("Cookie: token={READ}\r\n")).status, 401);
    assert_eq!(ask(&tracker, &format!("GET /metrics?token={READ}"), "").status, 401);
    let reload = |token| {
        ask(&tracker, "POST /access/reload", &format!("{}Content-Type: application/json\r\n", show(token)))
    };
    let refused = reload(READ);
    assert!(refused.status == 403 && refused.body.contains("the role admin"), "{refused:?}");
    assert_eq!(reload(ADMIN).status, 200);
    for token in [READ, ADMIN] {
        assert!(!tracker.log().contains(token), "the log tells a token");
    }
}

#[test]
fn wrong_tokens_are_limited_and_right_ones_are_not() {
    let tracker = Tracker::start(&[("SHOAL_CONTROL_READ_TOKEN", READ)]);
    let is_limited = (0..100).any(|_| {
        let page = ask(&tracker, "GET /metrics", &show("a wrong token"));
        assert!(matches!(page.status, 401 | 429), "{page:?}");
        page.status == 429 && page.head.contains("retry-after: ")
    });
    assert!(is_limited);
    assert_eq!(ask(&tracker, "GET /metrics", &show(READ)).status, 200);
}

#[test]
fn tokens_of_a_file_are_followed_and_a_mistake_in_it_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    fs::write(&file, line("read", "old", READ)).unwrap();
    let path = file.to_str().unwrap();
    let config = directory.path().join("shoal.toml");
    fs::write(&config, format!("[control]\ntokens = {path:?}\n")).unwrap();
    let tracker = Tracker::start_with_path(&config, &[]);
    assert_eq!(ask(&tracker, "GET /metrics", &show(READ)).status, 200);

    fs::write(&file, line("admin", "new", ADMIN)).unwrap();
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the configuration was read again");
    assert_eq!(ask(&tracker, "GET /metrics", &show(READ)).status, 401);
    assert_eq!(ask(&tracker, "GET /metrics", &show(ADMIN)).status, 200);

    fs::write(&file, format!("{}{READ}\n", line("read", "old", READ))).unwrap();
    tracker.signal(Signal::SIGHUP);
    let refused = tracker.wait_for_line("the configuration stays as it was");
    let error = refused["error"].as_str().unwrap();
    assert!(error.contains("control.tokens") && error.contains("line 2"), "{error}");
    assert!(!error.contains(READ), "the log tells a token");
    assert_eq!(ask(&tracker, "GET /metrics", &show(ADMIN)).status, 200);
}

#[test]
fn tokens_that_cannot_be_used_keep_the_tracker_from_starting() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    fs::write(&file, "read grafana secret\n").unwrap();
    for (settings, expected) in [
        (vec![("SHOAL_CONTROL_TOKENS", file.to_str().unwrap())], "ROLE NAME sha256:HEX"),
        (vec![("SHOAL_CONTROL_TOKENS", "/nonexistent/tokens")], "control.tokens"),
        (vec![("SHOAL_CONTROL_ADMIN_TOKEN", "short")], "SHOAL_CONTROL_ADMIN_TOKEN"),
        (vec![("SHOAL_CONTROL_PRIVATE_KEY", "/nonexistent/key")], "control.certificate"),
        (vec![("SHOAL_CONTROL_CERTIFICATE", "/nonexistent/certificate")], "/nonexistent/certificate"),
    ] {
        let settings = [&settings[..], &[("SHOAL_UDP_LISTEN", "127.0.0.1:0"), ("SHOAL_HTTP_LISTEN", "")]];
        let output = run(&[], &settings.concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn pages_of_other_origins_are_refused() {
    let tracker = Tracker::start(&[]);
    let host = tracker.control;
    let status = |fields: &str| {
        send(host, format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n").as_bytes()).status
    };
    assert_eq!(status(&format!("Origin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n")), 200);
    for fields in [
        "Origin: null\r\n",
        "Origin: http://evil.example\r\n",
        "Origin: http://127.0.0.1:1\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
    ] {
        assert_eq!(status(fields), 403, "{fields}");
    }
    let posted = format!("POST /access/reload HTTP/1.1\r\nHost: {host}\r\nContent-Type: text/plain\r\n\r\n");
    assert_eq!(send(host, posted.as_bytes()).status, 415);
}

/// More clients than the listener has connections for, each of which sends or reads slowly.
#[test]
fn a_thousand_slow_clients_keep_no_other_out() {
    let (_, files_max) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, files_max, files_max).unwrap();
    let tracker = Tracker::start(&[]);
    let slow: Vec<TcpStream> = (0..1000)
        .map(|index| {
            let mut stream = TcpStream::connect(tracker.control).unwrap();
            let request =
                if index % 2 == 0 { "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" } else { "GET /met" };
            // The listener may have closed it for the ones behind it.
            let _ = stream.write_all(request.as_bytes());
            stream
        })
        .collect();
    for _ in 0..10 {
        assert_eq!(tracker.page("/health").status, 200);
        assert_eq!(tracker.page("/metrics").status, 200);
    }
    Client::new(tracker.udp[0]).announce(&Announce::seeder([1; 20], 1001));
    drop(slow);
}

#[test]
fn https_is_served_with_a_certificate_that_can_be_renewed() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed(directory.path(), "localhost");
    let tracker = Tracker::start(&[
        ("SHOAL_CONTROL_CERTIFICATE", &certificate),
        ("SHOAL_CONTROL_PRIVATE_KEY", &key),
        ("SHOAL_CONTROL_READ_TOKEN", READ),
    ]);
    let get = |fields: &str| {
        let (mut web, shown) = Web::connect_by_name(tracker.control, "localhost");
        web.send(format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes());
        (web.answer().status, shown)
    };
    assert_eq!(get("").0, 401);
    let (status, shown_first) = get(&show(READ));
    assert_eq!(status, 200);
    // Plain HTTP is not answered.
    let mut plain = Web::connect(tracker.control, false);
    plain.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let reply = plain.until_closed().unwrap_or_default();
    assert!(!reply.starts_with(b"HTTP"), "{reply:?}");

    self_signed(directory.path(), "localhost");
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the certificates were read again");
    let (status, shown_second) = get(&show(READ));
    assert_eq!(status, 200);
    assert_ne!(shown_first, shown_second);
}

#[test]
fn the_user_of_the_tracker_needs_no_token_on_its_host() {
    let tracker = Tracker::start(&[("SHOAL_CONTROL_ADMIN_TOKEN", ADMIN)]);
    let set = run_locally(&tracker, &["ctl", "log", "debug"]);
    assert!(set.status.success(), "{set:?}");
    let by = tracker.wait_for_line("a change by the control listener")["by"].as_str().unwrap().to_owned();
    assert_eq!(by, format!("uid {}", nix::unistd::getuid()));
    // Over the network it is a stranger.
    let url = format!("http://{}", tracker.control);
    let refused = run(&["ctl", "log"], &[("SHOAL_CONTROL_URL", &url)]);
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    // A token that is shown counts, even a wrong one.
    let settings = [
        ("SHOAL_CONTROL_URL", url.as_str()),
        ("SHOAL_CONTROL_TOKEN", "this-token-is-not-valid"),
        ("RUNTIME_DIRECTORY", RUNTIME_DIRECTORY),
    ];
    assert_eq!(run(&["ctl", "log"], &settings).status.code(), Some(5));
    let port = tracker.control.port();
    drop(tracker);
    // A killed tracker leaves the file, which nothing answers.
    let gone = run(&["ctl", "log"], &settings[..1]);
    assert_eq!(gone.status.code(), Some(1), "port {port}: {gone:?}");
}
