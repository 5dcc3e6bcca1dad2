//! Interrupted comparisons, and results that cannot be written or read.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::laboratory::{Laboratory, is_running, read};

/// Starts a comparison of many rounds and waits for the line that has `text`.
fn start(
    laboratory: &Laboratory,
    arguments: &str,
    text: &str,
) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = laboratory.tiny(arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before {text:?}");
    }
    (child, lines)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn the_first_ctrl_c_ends_after_the_current_run() {
    let laboratory = Laboratory::new();
    let (mut child, _lines) =
        start(&laboratory, "--trackers echo-mmsg --rounds 500 --duration 1s", "[1/500]");
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(0), "the measurements are a result");
    let result = only_result(&laboratory);
    assert_eq!(result["partial"], true);
    let rounds = result["cells"][0]["rounds"].as_array().unwrap();
    assert!(!rounds.is_empty() && rounds.len() < 500, "{}", rounds.len());
    assert!(rounds.iter().all(|round| round["failure"].is_null()), "the current run is finished: {rounds:?}");
}

#[test]
fn the_second_ends_at_once_and_leaves_no_tracker_behind() {
    let laboratory = Laboratory::new();
    let marker = format!("marker-{}", std::process::id());
    let tracker = laboratory.describe(
        "slow",
        &format!("trap '' TERM INT; : {marker}; LAB echo --listen {{address}} & while :; do sleep 0.1; done"),
        "[stop]\npatience_s = 300",
    );
    // The quotes of the trap would end the string of the description.
    let file = laboratory.path().join("slow.toml");
    let text = fs::read_to_string(&file).unwrap().replace("trap '' TERM", "trap \"\" TERM");
    fs::write(&file, text).unwrap();
    let arguments = format!("--trackers slow {tracker} --duration 600s");
    let (mut child, mut lines) = start(&laboratory, &arguments, "[1/1]");
    while !is_running(&marker) {
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, Signal::INT);
    let mut line = String::new();
    while !line.contains("Ctrl-C again") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the first Ctrl-C should be answered");
    }
    signal(&child, Signal::INT);
    assert!(child.wait().unwrap().code().is_some(), "it ends by itself");
    assert!(!is_running(&marker), "the tracker still runs");
    let result = only_result(&laboratory);
    assert_eq!(result["partial"], true);
    assert!(
        result["cells"][0]["rounds"][0]["failure"].as_str().unwrap().contains("interrupted"),
        "{result:#}"
    );
    assert!(laboratory.path().join("bench-runs").read_dir().unwrap().count() == 1);
}

#[test]
fn a_killed_laboratory_leaves_no_tracker_behind() {
    let laboratory = Laboratory::new();
    let marker = format!("killed-marker-{}", std::process::id());
    let script = format!(": {marker}; while :; do sleep 0.1; done");
    let tracker = laboratory.describe("slow", &script, "");
    let arguments = format!("--trackers slow {tracker} --duration 600s");
    let (mut child, _lines) = start(&laboratory, &arguments, "[1/1]");
    while !is_running(&marker) {
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    for _ in 0..500 {
        if !is_running(&marker) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the tracker is still there");
}

/// `shoal-lab compare … 2>&1 | head -1`: the reader closes its end early.
#[test]
fn readers_that_leave_do_not_end_it() {
    let laboratory = Laboratory::new();
    let mut command = laboratory.tiny("--trackers echo-mmsg --rounds 2 --json");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let result = only_result(&laboratory);
    assert_eq!(result["partial"], false);
    assert_eq!(result["cells"][0]["rounds"].as_array().unwrap().len(), 2);
}

/// As on a full disk: the measurements are at least shown.
#[test]
fn a_result_that_cannot_be_written_is_shown() {
    let laboratory = Laboratory::new();
    let mut command = laboratory.tiny("--trackers echo-mmsg --rounds 2 --json");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("[1/2]")), "it should begin");
    let runs = laboratory.path().join("bench-runs");
    fs::remove_dir_all(&runs).unwrap();
    fs::write(&runs, "no folder").unwrap();
    let output_lines: Vec<String> = lines.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output_lines:#?}");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["cells"][0]["rounds"].as_array().unwrap().len(), 2);
    let printed = |words: &str| output_lines.iter().any(|line| line.contains(words));
    assert!(
        printed("warning: the result could not be written") && printed("shoal-lab: cannot write"),
        "{output_lines:#?}"
    );
}

fn only_result(laboratory: &Laboratory) -> serde_json::Value {
    let mut runs = fs::read_dir(laboratory.path().join("bench-runs")).unwrap();
    read(&runs.next().unwrap().unwrap().path())
}
