//! What is refused, and how.

use std::fs;

use crate::laboratory::{Laboratory, stderr};

/// What it says when it refuses; nothing may have been started or made.
fn refused(arguments: &str, code: i32) -> String {
    let laboratory = Laboratory::new();
    let output = laboratory.run(arguments);
    assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
    assert!(!laboratory.path().join("bench-runs").exists(), "{}", stderr(&output));
    stderr(&output)
}

#[test]
fn impossible_processors_are_refused_with_those_that_there_are() {
    let said = refused("--trackers echo-mmsg --cores 5000", 2);
    assert!(said.contains("--cores 5000") && said.contains("this machine has"), "{said}");
    let said = refused("--trackers echo-mmsg --cpu-mode pairs", 2);
    assert!(said.contains("subsequent-one-per-pair"), "{said}");
    let all = std::thread::available_parallelism().unwrap();
    let said = refused(&format!("--trackers echo-mmsg --cores {all}"), 2);
    assert!(said.contains("--allow-overlap"), "{said}");
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let said = refused("--trackers opentraker", 2);
    assert!(said.contains("\"opentraker\"") && said.contains("aquatic_udp-io_uring"), "{said}");
    assert!(refused("--print-tracker nobody", 2).contains("opentracker"));
    assert!(refused("--install nothing", 2).contains("bittorrent-tracker"));
    assert!(refused("--preset nothing", 2).contains("ten-million"));
    assert!(refused("--program opentracker", 2).contains("NAME=PATH"));
    assert!(refused("--name ../x", 2).contains("letters"));
    assert!(refused("--trackers echo-mmsg --load-cores 0", 2).contains("--load-cores 0"));
    assert!(refused("--trackers wt-tracker", 1).contains("none of the trackers is there"));
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
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.matches("TOML parse error").count() <= 1, "told twice: {said}");
        assert!(said.contains("mine.toml") && expected.iter().all(|word| said.contains(word)), "{said}");
    }
    fs::write(&file, good.replace("name = \"opentracker\"", "name = \"mine\"")).unwrap();
    let output = laboratory.run("--list --json --tracker-file mine.toml --trackers echo-mmsg");
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> =
        listed.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["echo-mmsg", "mine"], "a tracker of one's own need not be named");
}
