//! `shoal-lab load http` from outside, against `shoal-lab echo --http`.

use std::net::TcpListener;
use std::process::Output;

use serde_json::Value;

use crate::{Echo, lab, text};

fn load(url: &str, arguments: &[&str]) -> Output {
    let small = ["--torrents", "100", "--peers", "400", "--connections", "8", "--timeout", "20s"];
    lab(&["load", "http", url]).args(small).args(arguments).output().unwrap()
}

#[track_caller]
fn document(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn json_contains_the_measurements_over_either_family() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        for tls in [false, true] {
            let mut arguments = vec!["--http", "--listen", listen];
            arguments.extend(tls.then_some("--tls"));
            let echo = Echo::start(&arguments);
            let scheme = if tls { "https" } else { "http" };
            let url = format!("{scheme}://{}/announce", echo.addr);
            let document = document(&load(&url, &["--requests", "2000", "--json"]));
            assert_eq!((&document["target"], &document["schema_version"]), (&url.into(), &1.into()));
            assert_eq!(document["fill"]["responses"]["announce"], 400);
            let run = &document["run"];
            assert_eq!((&run["responses"]["announce"], &run["lost"]), (&2000.into(), &0.into()), "{run:#}");
            assert_eq!(run["connections"]["open_at_end"], 8, "{run:#}");
            assert!(run["latency"]["p99_us"].as_f64().unwrap() > 0.0);
            let tls_version = if tls { "1.3".into() } else { Value::Null };
            assert_eq!(document["load"]["tls"], tls_version);
        }
    }
}

#[test]
fn the_table_shows_a_handshake_for_each_announce_of_the_published_load() {
    let echo = Echo::start(&["--http", "--tls", "--listen", "127.0.0.1:0", "--announce-reply-bytes", "150"]);
    let output = load(&echo.addr, &["--preset", "https-published", "--requests", "200"]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    for expected in [
        "400 of 400 peers announced",
        "8 in flight",
        "announces       200 of 200",
        "full and 0 resumed handshakes, 0 open",
        "set up in",
    ] {
        assert!(table.contains(expected), "{expected:?} is not in\n{table}");
    }
    let resumed = document(&load(
        &echo.addr,
        &["--tls", "1.2", "--connection-per-request", "--resumption", "--requests", "200", "--json"],
    ));
    let made = &resumed["run"]["connections"];
    assert!(made["handshakes_resumed"].as_u64() > Some(180), "{made:#}");
    assert_eq!((&resumed["load"]["tls"], &resumed["load"]["resumption"]), (&"1.2".into(), &true.into()));
}

#[test]
fn open_loops_and_pipelines_are_answered() {
    let echo = Echo::start(&["--http", "--listen", "127.0.0.1:0"]);
    let url = format!("http://{}", echo.addr);
    let run = document(&load(&url, &["--rate", "500", "--requests", "300", "--json"]));
    assert_eq!((&run["run"]["responses"]["announce"], &run["pace"]["kind"]), (&300.into(), &"open".into()));
    assert!(run["run"]["send_delay"].is_object());
    let run = document(&load(&url, &["--pipelining", "16", "--requests", "3000", "--json"]));
    assert_eq!(run["run"]["responses"]["announce"], 3000);
    assert_eq!(run["pace"]["window"], 128);
}

#[test]
fn connections_are_held_and_counted() {
    let echo = Echo::start(&["--http", "--tls", "--listen", "127.0.0.1:0"]);
    let mut command = lab(&["load", "http", &echo.addr, "--tls", "--hold", "100", "--no-fill", "--json"]);
    let run = document(&command.args(["--peers", "400", "--duration", "3s"]).output().unwrap());
    let made = &run["run"]["connections"];
    assert_eq!((&made["opened"], &made["open_at_end"]), (&100.into(), &100.into()), "{made:#}");
    assert_eq!(run["run"]["responses"]["announce"], 100);
}

#[test]
fn a_closed_port_and_another_protocol_are_distinguished() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let output = load(&closed, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nothing listens"), "{}", text(&output.stderr));

    let echo = Echo::start(&["--http", "--listen", "127.0.0.1:0"]);
    let url = format!("https://{}", echo.addr);
    let output = lab(&["load", "http", &url, "--timeout", "300ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("does not answer within 300ms"), "{}", text(&output.stderr));
}

#[test]
fn invalid_options_are_refused_with_valid_ones() {
    for (arguments, expected) in [
        (&["--preset", "published"][..], "http, https-published"),
        (&["--tls", "1.1"], "1.3 or 1.2"),
        (&["--pipelining", "2", "--rate", "5"], "cannot be used with"),
        (&["--hold", "5"], "cannot be used with"),
        (&["--window", "5"], "--window"),
        (&["--path", "announce"], "begins with a slash"),
        (&["--mix", "1:0:0"], "no connects"),
        (&["--sources", "65"], "at most 64"),
        (&["--cpus", "4000"], "processor 4000"),
    ] {
        let mut command = lab(&["load", "http", "127.0.0.1:9", "--connections", "8"]);
        let output = command.args(arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{expected:?} is not in {stderr}");
    }
    for (url, arguments, code, expected) in [
        ("http://127.0.0.1:9", &["--tls"][..], 2, "give https://"),
        ("http://127.0.0.1:9", &["--resumption"], 2, "add --tls"),
        ("http://127.0.0.1:9/a", &["--mix", "0:1:1"], 2, "BEP 48"),
        ("http://127.0.0.1:9", &["--connections", "1000000"], 1, "ulimit -n"),
        ("https://127.0.0.1:9", &["--ca", "/none"], 1, "/none"),
    ] {
        let output = lab(&["load", "http", url]).args(arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{expected:?} is not in {stderr}");
    }
}

#[test]
fn help_explains_the_options() {
    for (arguments, expected) in [
        (
            &["load", "http", "--help"][..],
            &["the loop is closed", "X25519", "Exit code 0", "https-published", "--hold 10000", "RFC 8446"][..],
        ),
        (&["echo", "--help"], &["--http", "mmsg or uring", "--certificate"]),
    ] {
        let help = text(&lab(arguments).output().unwrap().stdout);
        expected
            .iter()
            .for_each(|expected| assert!(help.contains(expected), "{expected:?} is not in\n{help}"));
    }
}
