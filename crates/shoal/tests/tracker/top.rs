//! `shoal top`, in a pseudo terminal and without one, against real trackers and one that lies.

mod screen;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::screen::Screen;
use crate::http::self_signed;
use crate::kit::client::{Announce, Client};
use crate::kit::harness::{Tracker, command, run};

const TOKEN: &str = "read-token-0123456789";

/// Text that a terminal would obey.
const EVIL: &str = "\u{1b}]0;title\u{7}\u{9b}31m\r\n\u{202e}name";

fn url(tracker: &Tracker) -> String {
    format!("http://{}", tracker.control)
}

fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap()
}

#[test]
fn keys_and_the_size_of_the_terminal_change_the_picture() {
    let tracker = Tracker::start(&[]);
    Client::new(tracker.udp[0]).announce(&Announce::seeder([1; 20], 1001));
    let mut screen = Screen::start(80, 24, &["--url", &url(&tracker)], &[]);
    // The last line is drawn last.
    let is_drawn = |lines: &[String]| lines[23].starts_with("q quit");
    let lines = screen.wait_for("the overview", |lines| {
        is_drawn(lines) && lines.iter().any(|line| line.contains("UDP IPv4"))
    });
    assert!(lines[0].starts_with("Shoal ") && lines[0].ends_with("every 1 s"), "{lines:#?}");
    screen.press("3");
    screen.wait_for("a swarm", |lines| lines.iter().any(|line| line.starts_with(&"01".repeat(20))));
    screen.press("?");
    screen.wait_for("the help", |lines| lines.iter().any(|line| line.contains("shift-tab")));
    screen.press("?\t");
    screen.wait_for("lists", |lines| lines.iter().any(|line| line.contains("Lists of torrents")));
    screen.press("1p");
    screen.wait_for("a pause", |lines| lines[0].ends_with("paused"));
    screen.press("p+");
    screen.wait_for("the interval", |lines| lines[0].ends_with("every 2 s"));
    screen.resize(120, 40);
    screen.wait_for("the other size", |lines| lines[39].starts_with("q quit") && lines[0].len() > 80);
    screen.resize(30, 6);
    screen
        .wait_for("a small size", |lines| lines[5].starts_with("q quit") && lines[0].ends_with("every 2 s"));
    screen.press("q");
    assert_eq!(screen.end().code(), Some(0));
}

#[test]
fn a_tracker_that_does_not_reply_is_shown_as_such_and_seen_again_over_tls_with_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed(directory.path(), "localhost");
    let tracker = Tracker::start(&[
        ("SHOAL_CONTROL_CERTIFICATE", &certificate),
        ("SHOAL_CONTROL_PRIVATE_KEY", &key),
        ("SHOAL_CONTROL_READ_TOKEN", TOKEN),
    ]);
    let url = format!("https://localhost:{}", tracker.control.port());
    let settings = [
        ("SHOAL_CONTROL_URL", &*url),
        ("SHOAL_CONTROL_TOKEN", TOKEN),
        ("SHOAL_CONTROL_CA_FILE", &certificate),
        ("NO_COLOR", "1"),
    ];
    let mut screen = Screen::start(100, 30, &[], &settings);
    screen.wait_for("figures", |lines| lines[0].ends_with("every 1 s"));
    tracker.signal(Signal::SIGSTOP);
    screen.wait_for("silence", |lines| lines[0].contains("no reply for"));
    tracker.signal(Signal::SIGCONT);
    screen.wait_for("figures again", |lines| lines[0].ends_with("every 1 s"));
    screen.press("\u{3}");
    assert!(!screen.output().contains("\u{1b}[38;"), "there is a colour");
    assert_eq!(screen.end().code(), Some(0));
    let wrong = run(&["top", "--once"], &[&settings[..], &[("SHOAL_CONTROL_TOKEN", "wrong")]].concat());
    assert!(wrong.status.code() == Some(5) && wrong.stdout.is_empty(), "{wrong:?}");
}

#[test]
fn a_stop_and_a_signal_put_the_terminal_back() {
    let tracker = Tracker::start(&[]);
    let mut screen = Screen::start(80, 24, &["--url", &url(&tracker)], &[]);
    screen.wait_for("figures", |lines| lines[0].ends_with("every 1 s"));
    screen.press("\u{1a}");
    screen.wait_for_stop();
    screen.signal(Signal::SIGCONT);
    screen.wait_for("figures again", |lines| lines[23].starts_with("q quit"));
    screen.signal(Signal::SIGTERM);
    assert_eq!(screen.end().code(), Some(0));
}

#[test]
fn without_a_terminal_there_are_lines() {
    let tracker = Tracker::start(&[]);
    Client::new(tracker.udp[0]).announce(&Announce::seeder([1; 20], 1001));
    let top =
        |arguments: &[&str]| -> Output { run(&[&["top", "--url", &url(&tracker)], arguments].concat(), &[]) };
    let output = top(&["--once"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let block = text(&output.stdout);
    for expected in ["Shoal ", "requests\n", "UDP IPv4", "Swarms", "Load of workers", "Memory", "Connections"]
    {
        assert!(block.contains(expected), "{expected} is not in\n{block}");
    }
    assert!(!block.contains('\u{1b}'), "{block}");
    assert!(text(&top(&["--once", "--view", "torrents"]).stdout).contains(&"01".repeat(20)));
    let lines = top(&["--json", "--once"]).stdout;
    let stats: Value = serde_json::from_slice(&lines).unwrap();
    assert_eq!((&stats["traffic"][0]["requests"]["announce"], text(&lines).lines().count()), (&json!(1), 1));
    assert_eq!(top(&["--interval", "0s"]).status.code(), Some(2));
    assert_eq!(run(&["top", "--url", "http://127.0.0.1:1"], &[]).status.code(), Some(1));

    let ctl =
        |arguments: &[&str]| run(&[&["ctl", "stats", "--url", &url(&tracker)], arguments].concat(), &[]);
    assert!(text(&ctl(&[]).stdout).contains("UDP IPv4"));
    let stats: Value = serde_json::from_slice(&ctl(&["--json"]).stdout).unwrap();
    assert_eq!(stats["traffic"][0]["protocol"], "udp");
}

/// A listener whose statistics are these, for every request.
fn liar(stats: &Value) -> String {
    liar_with("200 OK", stats)
}

/// The same with another status.
fn liar_with(status: &'static str, stats: &Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let body = stats.to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            if lines.any(|line| line.is_empty()) {
                let length = body.len();
                // A client that has ended does not read it.
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
            }
        }
    });
    url
}

#[test]
fn no_text_from_the_network_controls_the_terminal() {
    let url = liar(&json!({
        "version": EVIL,
        "traffic": [{ "protocol": EVIL, "family": EVIL, "requests": { EVIL: 1 } }],
        "refusals": [{ "reason": EVIL, "count": 1 }],
        "unregistered": { EVIL: 1 },
        "swarms": [{ "family": EVIL }],
        "memory": { "uses": [{ "kind": EVIL, "bytes": 1 }] },
        "connections": { "ended": { EVIL: 1 } },
        "relays": { "drops": { EVIL: 1 } },
        "processing": [{ "protocol": EVIL, "bounds_s": [], "buckets": [1] }],
        "clients": [{ "software": EVIL, "share": 0.5, "versions": [[EVIL, 0.5]] }],
        "top_swarms": [{ "info_hash": EVIL }],
        "certificates": [{ "file": EVIL, "names": [EVIL], "not_after_unix_s": 0 }],
        "lists": [{ "name": EVIL, "faulty_sources": 1 }],
        "list_sources": [{ "list": EVIL, "source": EVIL }],
        "reloads": { EVIL: 1 },
    }));
    let is_plain = |output: &Output| {
        let text = text(&output.stdout);
        assert!(!text.is_empty() && output.status.code() == Some(0), "{output:?}");
        assert!(text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "{text:?}");
    };
    for view in ["overview", "clients", "torrents", "lists"] {
        is_plain(&run(&["top", "--once", "--view", view, "--url", &url], &[]));
    }
    is_plain(&run(&["top", "--once", "--json", "--url", &url], &[]));
    is_plain(&run(&["ctl", "stats", "--url", &url], &[]));
    is_plain(&run(&["ctl", "stats", "--json", "--url", &url], &[]));
    let mut screen = Screen::start(120, 40, &["--url", &url], &[]);
    for view in ["1", "2", "3", "4"] {
        screen.press(view);
        screen.press("\u{c}");
        screen.wait_for("the name", |lines| lines.iter().skip(1).any(|line| line.contains("?name")));
    }
    screen.press("q");
    assert_eq!(screen.end().code(), Some(0));
}

#[test]
fn no_refusal_from_the_network_controls_the_terminal() {
    let url = liar_with("400 Bad Request", &json!({ "error": EVIL }));
    for arguments in [&["ctl", "log"][..], &["top", "--once"]] {
        let output = run(&[arguments, &["--url", &url]].concat(), &[]);
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains("?name"), "{output:?}");
        assert!(told.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "{told:?}");
    }
}

#[test]
fn counts_that_no_tracker_has_are_shown() {
    let most = u64::MAX;
    let url = liar(&json!({
        "now_unix_s": most,
        "traffic": [
            { "protocol": "udp", "requests": { "scrape": most, "full_scrape": most }, "refused": most },
            { "protocol": "http", "requests": { "announce": most } },
        ],
        "refusals": [{ "reason": "a", "count": most }, { "reason": "a", "count": most }],
        "swarms": [{ "family": "v4", "swarms": most }, { "family": "v6", "swarms": most }],
        "memory": { "uses": [{ "kind": "store", "bytes": most }, { "kind": "store", "bytes": most }] },
        "relays": { "offers": most, "answers": most },
        "processing": [{ "protocol": "udp", "bounds_s": [1.0], "buckets": [most, most] }],
        "workers": [{ "kernel_drops": most }, { "kernel_drops": most }],
    }));
    let output = run(&["ctl", "stats", "--url", &url], &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_feed_without_changes_ends_when_its_reader_does() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut reading =
        command(&[]).args(["ctl", "changes", "--url", &url]).stdout(Stdio::piped()).spawn().unwrap();
    drop(reading.stdout.take());
    let (mut stream, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.is_empty()));
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n:\n\n").unwrap();
    assert_eq!(reading.wait().unwrap().code(), Some(0));
}
