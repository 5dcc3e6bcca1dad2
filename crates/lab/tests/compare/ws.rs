//! Comparisons of WebTorrent: Shoal itself, the echo, and trackers made for the test.

use serde_json::Value;
use shoal_testkit::tools;

use crate::laboratory::{Laboratory, round, stderr};

/// Measures Shoal and the echo under the load of a preset.
fn compare_shoal(preset: &str, more: &str) -> (Laboratory, Value) {
    let laboratory = Laboratory::new();
    let shoal = tools::shoal().unwrap().display();
    let (output, folder, result) = laboratory.compare(&format!(
        "--preset {preset} --trackers shoal-epoll,echo-epoll --program shoal-epoll={shoal} --torrents 5 --timeout 20s --duration 1s {more}"
    ));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(folder.file_name().unwrap().to_str().unwrap().ends_with(&format!("-{preset}")), "{folder:?}");
    (laboratory, result)
}

/// Checks that the tracker replied and relayed without errors.
fn check_load(load: &Value) {
    assert!(load["responses"]["announce"].as_u64().unwrap() > 10, "{load:#}");
    let sum =
        |counts: &Value| -> u64 { counts.as_object().unwrap().values().filter_map(Value::as_u64).sum() };
    assert_eq!((sum(&load["wrong"]), load["errors"].as_u64()), (0, Some(0)), "{load:#}");
    let relays = &load["relays"];
    assert!(relays["offers"].as_u64().unwrap() > 10 && relays["answers"].as_u64().unwrap() > 0, "{load:#}");
    assert_eq!(sum(&relays["wrong"]), 0, "{load:#}");
    assert!(relays["offer_latency"]["p99_us"].as_f64().unwrap() > 0.0, "{load:#}");
}

#[test]
fn offers_and_answers_are_relayed_plain_and_over_tls() {
    for (preset, is_tls) in [("webtorrent", false), ("webtorrent-tls", true)] {
        let (laboratory, result) = compare_shoal(preset, "--connections 40 --peers 40 --latency-rate 50");
        let measured = round(&result, "shoal-epoll");
        assert_eq!(measured["failure"], Value::Null, "{measured:#}");
        assert_eq!(measured["fill"]["responses"]["announce"], 40, "{measured:#}");
        let handshakes = measured["fill"]["connections"]["handshakes_full"].as_u64().unwrap();
        assert_eq!(handshakes > 0, is_tls, "{measured:#}");
        check_load(&measured["load"]);
        assert_eq!(measured["load"]["connections"]["open_at_end"], 40, "{measured:#}");
        assert!(measured["usage"]["exact_s"].as_f64().unwrap() > 0.0, "{measured:#}");
        assert!(measured["resident_loaded_bytes"].as_u64().unwrap() > 0, "{measured:#}");
        let echo = round(&result, "echo-epoll");
        assert_eq!(echo["failure"], Value::Null, "{echo:#}");
        assert!(echo["load"]["responses"]["announce"].as_u64().unwrap() > 10, "{echo:#}");
        let configuration = result["trackers"][0]["configuration"].as_str().unwrap();
        assert_eq!(configuration.contains("[tls]"), is_tls, "{configuration}");
        let listed = laboratory.run(&format!("--list --json --preset {preset}"));
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        for name in ["aquatic_ws", "bittorrent-tracker", "wt-tracker"] {
            assert!(listed.contains(name), "{listed}");
        }
        assert!(!listed.contains("opentracker"), "{listed}");
    }
}

#[test]
fn a_round_is_repeated_with_slow_readers() {
    let (_laboratory, result) =
        compare_shoal("ws-slow-readers", "--connections 40 --peers 40 --latency-rate 500");
    let measured = round(&result, "shoal-epoll");
    assert_eq!(measured["failure"], Value::Null, "{measured:#}");
    check_load(&measured["load"]);
    assert_eq!(measured["load"]["relays"]["slow_readers"], 0, "{measured:#}");
    assert_eq!(measured["slow_readers"]["load"]["relays"]["slow_readers"], 1000, "{measured:#}");
    assert!(measured["slow_readers"]["latency"]["relays"]["offers"].as_u64().unwrap() > 0, "{measured:#}");
    assert!(measured["slow_readers"]["resident_bytes"].as_u64().unwrap() > 0, "{measured:#}");
    assert_eq!(round(&result, "echo-epoll")["slow_readers"], Value::Null);
}

#[test]
fn idle_web_sockets_are_counted_and_measured() {
    for preset in ["ws-idle", "wss-idle"] {
        let (_laboratory, result) = compare_shoal(preset, "--connections 200");
        for tracker in ["shoal-epoll", "echo-epoll"] {
            let idle = &round(&result, tracker)["idle"];
            assert_eq!((&idle["wanted"], &idle["open"]), (&200.into(), &200.into()), "{idle:#}");
            assert_eq!(idle["failure"], Value::Null);
            assert!(
                idle["resident_open_bytes"].as_u64() >= idle["resident_before_bytes"].as_u64(),
                "{idle:#}"
            );
        }
    }
}

#[test]
fn a_tracker_without_web_sockets_never_answers() {
    let laboratory = Laboratory::new();
    let plain = laboratory.describe("plain", "exec LAB echo --http --listen {address}", "patience_s = 2");
    let (output, _, result) = laboratory.compare(&format!("--preset webtorrent --trackers plain {plain}"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let failure = round(&result, "plain")["failure"].as_str().unwrap();
    assert!(failure.contains("did not answer an announce over a WebSocket"), "{failure}");
}

#[test]
fn more_connections_than_open_files_or_peers_are_refused() {
    let laboratory = Laboratory::new();
    let refused = |limit: &str, arguments: &str| {
        let command = laboratory.command(&format!("--trackers shoal-epoll --allow-overlap {arguments}"));
        let mut limited = std::process::Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
        limited.arg(command.get_program()).args(command.get_args()).current_dir(laboratory.path());
        let output = limited.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let message = refused("1000", "--preset webtorrent-published-large");
    assert!(message.contains("49152 connections") && message.contains("room for 800"), "{message}");
    // Slow readers count as well.
    let message = refused("2000", "--preset ws-slow-readers");
    assert!(message.contains("2000 connections") && message.contains("ulimit -n"), "{message}");
    let message = refused("2000", "--preset webtorrent --connections 30 --peers 20");
    assert!(message.contains("--connections 30") && message.contains("--peers"), "{message}");
}
