//! `shoal-lab load ws` from outside, against programs other than trackers.

use std::net::TcpListener;

use crate::{Echo, lab, text};

#[test]
fn the_replies_of_an_echo_are_malformed() {
    let echo = Echo::start(&["--ws", "--listen", "127.0.0.1:0"]);
    let mut command = lab(&["load", "ws", &echo.addr, "--connections", "8", "--torrents", "2"]);
    let output = command.args(["--timeout", "20s", "--requests", "100"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("could not be filled") && stderr.contains("malformed"), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_closed_port_and_another_protocol_are_distinguished() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let output = lab(&["load", "ws", &closed]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nothing listens"), "{}", text(&output.stderr));

    let echo = Echo::start(&["--http", "--listen", "127.0.0.1:0"]);
    let output = lab(&["load", "ws", &echo.addr]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot be spoken to: WebSocket"), "{}", text(&output.stderr));
}

#[test]
fn invalid_options_are_refused_with_valid_ones() {
    for (url, arguments, code, expected) in [
        ("127.0.0.1:9", &["--preset", "http"][..], 2, "ws, ws-published, wss-published"),
        ("http://127.0.0.1:9", &[], 2, "ws://127.0.0.1:6969/announce"),
        ("ws://127.0.0.1:9", &["--tls"], 2, "give wss://"),
        ("127.0.0.1:9", &["--resumption"], 2, "add --tls"),
        ("127.0.0.1:9", &["--hold-announce"], 2, "--hold"),
        ("127.0.0.1:9", &["--ramp", "0"], 2, "from 0.001"),
        ("127.0.0.1:9", &["--offers", "300"], 2, "at most 256"),
        ("127.0.0.1:9", &["--sdp-bytes", "10"], 2, "192 to"),
        ("127.0.0.1:9", &["--answers", "2"], 2, "a share from 0 to 1"),
        ("127.0.0.1:9", &["--origin", "a b"], 2, "origin"),
        ("127.0.0.1:9", &["--path", "announce"], 2, "begins with a slash"),
        ("127.0.0.1:9", &["--mix", "1:0:0"], 2, "no connects"),
        ("127.0.0.1:9", &["--connections", "10", "--peers", "5"], 2, "one for each connection"),
        ("127.0.0.1:9", &["--hold", "900000"], 1, "ulimit -n"),
    ] {
        let output = lab(&["load", "ws", url]).args(arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{expected:?} is not in {stderr}");
    }
}

#[test]
fn help_explains_the_options() {
    let help = text(&lab(&["load", "ws", "--help"]).output().unwrap().stdout);
    for expected in [
        "the loop is open",
        "--hold-announce",
        "--slow-readers",
        "--sdp-bytes",
        "wss-published-large",
        "--origin",
        "Exit code 0",
    ] {
        assert!(help.contains(expected), "{expected:?} is not in\n{help}");
    }
    assert!(!help.contains("--tolerate-own-address"), "{help}");
}
