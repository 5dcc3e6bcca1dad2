//! Invalid input is refused with advice.

use std::fs;

use crate::laboratory::{Laboratory, stderr};

/// Returns the message of a refusal. Nothing may have been started or created.
fn refused(arguments: &str, code: i32) -> String {
    let laboratory = Laboratory::new();
    let output = laboratory.run(arguments);
    assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
    assert!(!laboratory.path().join("bench-runs").exists(), "{}", stderr(&output));
    stderr(&output)
}

#[test]
fn impossible_processors_are_refused_with_the_available_ones() {
    let message = refused("--trackers echo-mmsg --cores 5000", 2);
    assert!(message.contains("--cores 5000") && message.contains("this machine has"), "{message}");
    let message = refused("--trackers echo-mmsg --cpu-mode pairs", 2);
    assert!(message.contains("subsequent-one-per-pair"), "{message}");
    let all = std::thread::available_parallelism().unwrap();
    let message = refused(&format!("--trackers echo-mmsg --cores {all}"), 2);
    assert!(message.contains("--allow-overlap"), "{message}");
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let message = refused("--trackers opentraker", 2);
    assert!(message.contains("\"opentraker\"") && message.contains("aquatic_udp-io_uring"), "{message}");
    assert!(refused("--print-tracker unknown", 2).contains("opentracker"));
    assert!(refused("--install nothing", 2).contains("bittorrent-tracker"));
    assert!(refused("--trackers opentracker --install", 2).contains("cannot be used with"));
    assert!(refused("--preset nothing", 2).contains("ten-million"));
    assert!(refused("--program opentracker", 2).contains("NAME=PATH"));
    assert!(refused("--name ../x", 2).contains("letters"));
    assert!(refused("--trackers echo-mmsg --load-cores 0", 2).contains("--load-cores 0"));
    assert!(refused("--trackers wt-tracker", 1).contains("none of the trackers is installed"));
}

#[test]
fn impossible_loads_are_refused_before_anything_runs() {
    assert!(
        refused("--trackers echo-mmsg --cores 1 --load-cores 1 --allow-overlap --peers 3", 2)
            .contains("peers")
    );
}

#[test]
fn bad_descriptions_are_refused_with_file_and_key() {
    let laboratory = Laboratory::new();
    let good = String::from_utf8(laboratory.run("--print-tracker opentracker").stdout).unwrap();
    let file = laboratory.path().join("mine.toml");
    for (from, to, expected) in [
        ("whitelist = true", "whitelst = true", ["whitelst", "whitelist"]),
        ("{address}", "{adress}", ["{adress}", "{address}"]),
        ("name = \"opentracker\"", "name = \"open tracker\"", ["open tracker", "letters"]),
        ("zzz", "zzz", ["already", "opentracker"]),
    ] {
        fs::write(&file, good.replace(from, to)).unwrap();
        let output = laboratory.run("--list --tracker-file mine.toml");
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.matches("TOML parse error").count() <= 1, "reported twice: {message}");
        assert!(
            message.contains("mine.toml") && expected.iter().all(|word| message.contains(word)),
            "{message}"
        );
    }
    fs::write(&file, good.replace("name = \"opentracker\"", "name = \"mine\"")).unwrap();
    let output = laboratory.run("--list --json --tracker-file mine.toml --trackers echo-mmsg");
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> =
        listed.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["echo-mmsg", "mine"], "a tracker of the user need not be named");
}
