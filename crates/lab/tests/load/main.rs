//! `shoal-lab load` from outside, against `shoal-lab echo`: its output and exit codes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod echo;
mod http;
mod ws;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running echo. Killed on drop.
struct Echo {
    child: Child,
    addr: String,
}

impl Echo {
    fn start(arguments: &[&str]) -> Self {
        Self::try_start(arguments).unwrap()
    }

    /// Returns nothing if the back end does not work on this host.
    fn try_start(arguments: &[&str]) -> Option<Self> {
        let mut command = lab(&["echo"]);
        let mut child = command.args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let addr = line.strip_prefix("echo listens on ").and_then(|rest| rest.split_whitespace().nth(1));
        let echo = Self { child, addr: addr.unwrap_or_default().to_owned() };
        // A thread that cannot open its back end ends the program a moment later.
        if line.contains("by uring") && shoal_net::Backend::Uring.probe().is_err() {
            return None;
        }
        assert!(!echo.addr.is_empty(), "{line}");
        Some(echo)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // Both calls fail only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal-lab"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn load(addr: &str, arguments: &[&str]) -> Output {
    let small = ["--torrents", "100", "--peers", "400"];
    lab(&["load", "udp", addr]).args(small).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_host_name_is_tried_at_all_of_its_addresses() {
    // The name may have an IPv6 address as well, at which nothing listens.
    let echo = Echo::start(&["--listen", "127.0.0.1:0"]);
    let name = echo.addr.replace("127.0.0.1", "localhost");
    let output = load(&name, &["--requests", "1000", "--timeout", "5s", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["address"], echo.addr.as_str());
}

#[test]
fn json_contains_the_measurements_over_either_family_and_back_end() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        for io in ["mmsg", "uring"] {
            let echo = Echo::start(&["--listen", listen]);
            let output = load(&echo.addr, &["--io", io, "--requests", "5000", "--timeout", "5s", "--json"]);
            let stderr = text(&output.stderr);
            if stderr.contains("io_uring") {
                eprintln!("skipped: {stderr}");
                continue;
            }
            assert!(output.status.success(), "{stderr}");
            let document: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(document["schema_version"], 1);
            assert_eq!(document["fill"]["responses"]["announce"], 400);
            let run = &document["run"];
            let good: u64 = ["connect", "announce", "scrape"]
                .iter()
                .map(|kind| run["responses"][kind].as_u64().unwrap())
                .sum();
            assert_eq!(good, 5000, "{run:#}");
            assert!(run["latency"]["p99_us"].as_f64().unwrap() > 0.0);
            // On a busy machine it is the generator that waits.
            assert!(
                ["tracker", "generator_bound"].iter().any(|verdict| run["verdict"] == *verdict),
                "{run:#}"
            );
            assert_eq!(document["pace"]["kind"], "closed");
        }
    }
}

#[test]
fn the_table_has_the_main_figures() {
    let echo = Echo::start(&["--listen", "127.0.0.1:0", "--announce-reply-bytes", "80"]);
    let output = load(&echo.addr, &["--rate", "2000", "--duration", "600ms", "--timeout", "5s"]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    for expected in
        ["open loop, 2000 requests", "good replies", "p99.9", "sent late by", "10.0 peers, 80 bytes", "lost"]
    {
        assert!(table.contains(expected), "{expected:?} is not in\n{table}");
    }
}

#[test]
fn an_echo_in_bundles_answers_the_same() {
    let echo = Echo::start(&["--listen", "127.0.0.1:0", "--bundle"]);
    let output = load(&echo.addr, &["--requests", "5000", "--timeout", "5s", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["run"]["lost"], 0, "{document:#}");
    assert!(output.status.success());
}

/// Answers requests until `stop`. Sends a message after the first scrapes: the fill has announces only, so the load is
/// being measured then.
fn answer(tracker: &UdpSocket, stop: &AtomicBool, is_measuring: Sender<()>) {
    const SCRAPES: usize = 20;
    let mut scrapes = 0;
    while !stop.load(Ordering::Relaxed) {
        scrapes += usize::from(answer_next(tracker) == Some(2));
        if scrapes == SCRAPES {
            // Fails only after the first time.
            let _ = is_measuring.send(());
        }
    }
}

/// Answers a request, if one comes, and returns its action.
fn answer_next(tracker: &UdpSocket) -> Option<u8> {
    let mut request = [0; 2048];
    let (bytes, source) = tracker.recv_from(&mut request).ok()?;
    let more = match request[11] {
        0 => 8,
        1 => 12,
        _ => (bytes - 16) / 20 * 12,
    };
    tracker.send_to(&[&request[8..16], &vec![1; more]].concat(), source).unwrap();
    Some(request[11])
}

#[test]
fn ctrl_c_ends_early_with_what_was_measured() {
    let (tracker, stop) = (UdpSocket::bind("127.0.0.1:0").unwrap(), AtomicBool::new(false));
    tracker.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let addr = tracker.local_addr().unwrap().to_string();
    let mut command = lab(&["load", "udp", &addr, "--peers", "400", "--duration", "10m", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = thread::scope(|scope| {
        let (sender, is_measuring) = channel();
        scope.spawn(|| answer(&tracker, &stop, sender));
        is_measuring.recv_timeout(Duration::from_secs(60)).unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        stop.store(true, Ordering::Relaxed);
        output
    });
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["run"]["ended_early"], true);
    assert!(document["run"]["responses_per_s"].as_f64().unwrap() > 0.0);
    assert!(text(&output.stderr).contains("ended early"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn ctrl_c_before_the_first_measurement_gives_no_result() {
    // Answers connects only, so that the fill never ends.
    let tracker = UdpSocket::bind("127.0.0.1:0").unwrap();
    tracker.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let addr = tracker.local_addr().unwrap().to_string();
    let mut command = lab(&["load", "udp", &addr, "--peers", "400", "--timeout", "30s", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    loop {
        let mut request = [0; 2048];
        let (_, source) = tracker.recv_from(&mut request).unwrap();
        if request[11] != 0 {
            break;
        }
        tracker.send_to(&[&request[8..16], &[1; 8]].concat(), source).unwrap();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stdout.is_empty());
    assert!(text(&output.stderr).contains("before anything was measured"), "{}", text(&output.stderr));
}

/// A tracker that takes minutes to be filled, with standard error in a pipe.
#[test]
fn a_long_fill_shows_its_progress() {
    let (tracker, stop) = (UdpSocket::bind("127.0.0.1:0").unwrap(), AtomicBool::new(false));
    tracker.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let addr = tracker.local_addr().unwrap().to_string();
    let mut command =
        lab(&["load", "udp", &addr, "--torrents", "1000", "--peers", "1000000", "--timeout", "5m"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                answer_next(&tracker);
                thread::sleep(Duration::from_millis(2));
            }
        });
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        child.wait().unwrap();
        stop.store(true, Ordering::Relaxed);
    });
    assert!(line.starts_with("fill: 0 %, ") && line.ends_with(" minutes left\n"), "{line}");
}

#[test]
fn long_help_explains_the_options() {
    for (arguments, expected) in [
        (&["load", "udp", "--help"][..], &["the loop is closed", "Exit code 0", "Examples:"][..]),
        (&["echo", "--help"], &["No tracker can beat it", "internet"]),
        (&["--help"], &["Attack Shoal in a network of its own"]),
    ] {
        let help = text(&lab(arguments).output().unwrap().stdout);
        expected
            .iter()
            .for_each(|expected| assert!(help.contains(expected), "{expected:?} is not in\n{help}"));
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let echo = Echo::start(&["--listen", "127.0.0.1:0"]);
    let mut command = lab(&["load", "udp", &echo.addr, "--peers", "400", "--requests", "1000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn a_closed_port_and_silence_are_distinguished() {
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = load(&closed.to_string(), &["--timeout", "200ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nothing listens"), "{}", text(&output.stderr));

    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let output = load(&silent.local_addr().unwrap().to_string(), &["--timeout", "200ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("does not answer"), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty());
}

#[test]
fn invalid_options_are_refused_with_valid_ones() {
    for (arguments, expected) in [
        (&["--rate", "0"][..], "from 0.001"),
        (&["--duration", "10 years"], "500ms, 10s or 2m"),
        (&["--popularity", "zipf"], "zipf:EXPONENT"),
        (&["--mix", "1:1"], "50:50:1"),
        (&["--window", "2000000"], "from 1 to 1048576"),
        (&["--io", "epoll"], "\"mmsg\" or \"uring\""),
        (&["--preset", "huge"], "published, published-churn, announces, ten-million"),
        (&["--rate", "5", "--window", "5"], "cannot be used with"),
    ] {
        let output = load("127.0.0.1:9", arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{expected:?} is not in {stderr}");
    }
    for (arguments, expected) in [
        (&["--seeders", "1.5"][..], "seeder share cannot be 1.5"),
        (&["--scrape-hashes", "75"], "1 to 74"),
        (&["--sockets", "65"], "at most 64"),
        (&["--sources", "9"], "at most one for each of the 8 sockets"),
        (&["--source", "::1"], "family"),
        (&["--cpus", "4000"], "processor 4000"),
    ] {
        let output = load("127.0.0.1:9", arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{expected:?} is not in {stderr}");
    }
}

#[test]
fn too_few_descriptors_are_reported() {
    let echo = Echo::start(&["--listen", "127.0.0.1:0"]);
    let limited = format!("ulimit -n 30; exec \"$0\" load udp {} --sockets 64 --peers 400", echo.addr);
    let program = env!("CARGO_BIN_EXE_shoal-lab");
    let output = Command::new("sh").args(["-c", &limited, program]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("ulimit -n"), "{}", text(&output.stderr));
}
