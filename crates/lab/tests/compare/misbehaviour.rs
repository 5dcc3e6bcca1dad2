//! Misbehaving trackers. The others are measured nevertheless.

use crate::laboratory::{Laboratory, is_running, round, stderr};

/// A working tracker: the echo of `shoal-lab`.
const SERVES: &str = "LAB echo --listen {address} --announce-reply-bytes 20";

#[test]
fn a_failed_start_is_reported_and_the_others_go_on() {
    let laboratory = Laboratory::new();
    let broken = laboratory.describe("broken", "echo port is cursed >&2; exit 3", "");
    let mute = laboratory.describe("mute", "echo hello; exec sleep 600", "patience_s = 1");
    let gone = laboratory.describe("gone", "", "[version]").replace("gone.toml", "missing.toml");
    let missing = "name = \"missing\"\ntitle = \"Missing\"\nprotocols = [\"udp\"]\n[find]\npath = [\"no-such-tracker\"]\n";
    std::fs::write(laboratory.path().join("missing.toml"), missing).unwrap();
    let (output, folder, result) =
        laboratory.compare(&format!("--trackers echo-mmsg {broken} {mute} {gone}"));
    assert!(output.status.success(), "{}", stderr(&output));

    let failure = round(&result, "broken")["failure"].as_str().unwrap();
    assert!(failure.contains("exit code 3") && failure.contains("port is cursed"), "{failure}");
    let failure = round(&result, "mute")["failure"].as_str().unwrap();
    assert!(
        failure.contains("did not answer a connect within 1 s") && failure.contains("hello"),
        "{failure}"
    );
    let absent = result["trackers"].as_array().unwrap().iter().find(|tracker| tracker["name"] == "missing");
    assert_eq!(absent.unwrap()["absent"], "not installed");
    assert!(round(&result, "echo-mmsg")["load"]["responses_per_s"].as_f64().unwrap() > 100.0);
    assert_eq!(result["partial"], false);
    let report = std::fs::read_to_string(folder.join("README.md")).unwrap();
    assert!(report.contains("port is cursed") && report.contains("Missing"), "{report}");
}

#[test]
fn a_daemon_is_refused_and_does_not_keep_running() {
    let laboratory = Laboratory::new();
    let marker = format!("daemon-{}", std::process::id());
    let daemon = laboratory.describe(
        "daemon",
        &format!("setsid sh -c ': {marker}; {SERVES} & wait' & sleep 1; exit 0"),
        "",
    );
    let (output, _, result) = laboratory.compare(&format!("--trackers daemon {daemon} --duration 20s"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let failure = round(&result, "daemon")["failure"].as_str().unwrap();
    assert!(failure.contains("must stay in the foreground"), "{failure}");
    assert!(!is_running(&marker), "the daemon still runs");
}

#[test]
fn a_port_in_use_is_reported_and_no_other_program_is_measured() {
    let laboratory = Laboratory::new();
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let (output, _, result) = laboratory.compare(&format!("--trackers echo-mmsg --port {port}"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let failure = round(&result, "echo-mmsg")["failure"].as_str().unwrap();
    assert!(failure.contains(&format!("--port {port}: the port is already in use")), "{failure}");
}

#[test]
fn a_tracker_that_dies_under_load_keeps_what_was_measured() {
    let laboratory = Laboratory::new();
    let dying = laboratory.describe(
        "dying",
        &format!("{SERVES} & tracker=$!; sleep 1.2; echo out of luck >&2; kill -9 $tracker; exit 9"),
        "",
    );
    let (output, _, result) = laboratory.compare(&format!("--trackers dying {dying} --duration 20s"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let died = round(&result, "dying");
    let failure = died["failure"].as_str().unwrap();
    assert!(failure.contains("exit code 9") && failure.contains("out of luck"), "{failure}");
    assert_eq!(died["fill"]["responses"]["announce"], 200, "what was measured before is kept: {died:#}");
    assert!(died["load"]["responses"]["announce"].as_u64().unwrap() > 0, "{died:#}");
    assert!(died["load"]["elapsed_s"].as_f64().unwrap() < 10.0, "it should not wait for the end: {died:#}");
}

#[test]
fn a_tracker_that_falls_silent_ends_its_run() {
    let laboratory = Laboratory::new();
    let silent = laboratory.describe(
        "silent",
        &format!("{SERVES} & tracker=$!; sleep 1.2; kill -STOP $tracker; exec sleep 600"),
        "[stop]\npatience_s = 1",
    );
    let (output, _, result) = laboratory.compare(&format!("--trackers silent {silent} --duration 20s"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let failure = round(&result, "silent")["failure"].as_str().unwrap();
    assert!(failure.contains("fell silent"), "{failure}");
}

#[test]
fn a_tracker_of_another_version_runs_with_a_note() {
    let laboratory = Laboratory::new();
    let other = laboratory.describe(
        "other",
        &format!("exec {SERVES}"),
        "[version]\narguments = [\"-c\", \"echo other 2.0.1\"]\nwritten_for = [\"1.\"]",
    );
    let (output, _, result) = laboratory.compare(&format!("--trackers other {other}"));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(round(&result, "other")["failure"].is_null());
    let tracker = &result["trackers"][0];
    assert_eq!(tracker["version"], "other 2.0.1");
    assert!(tracker["notes"][0].as_str().unwrap().contains("described for 1."), "{tracker}");
    assert!(stderr(&output).contains("note: other: version other 2.0.1"), "{}", stderr(&output));
}

#[test]
fn the_exit_code_is_1_without_measurements() {
    let laboratory = Laboratory::new();
    let broken = laboratory.describe("broken", "exit 1", "");
    let (output, _, result) = laboratory.compare(&format!("--trackers broken {broken}"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(round(&result, "broken")["failure"].is_string());
}

#[test]
fn the_white_list_contains_the_torrents_of_the_load() {
    let laboratory = Laboratory::new();
    let script =
        format!("test $(sort -u {{whitelist}} | grep -cxE \"[0-9a-f]{{40}}\") = 50 && exec {SERVES}");
    let listed = laboratory.describe("listed", &script, "");
    let file = laboratory.path().join("listed.toml");
    let text = std::fs::read_to_string(&file).unwrap().replacen("title", "whitelist = true\ntitle", 1);
    std::fs::write(&file, text).unwrap();
    let (output, _, result) = laboratory.compare(&format!("--trackers listed {listed}"));
    assert!(output.status.success(), "{} {result:#}", stderr(&output));
    assert!(round(&result, "listed")["failure"].is_null());
}

#[test]
fn too_few_descriptors_are_reported_with_advice() {
    let laboratory = Laboratory::new();
    let command = laboratory.tiny("--trackers echo-mmsg --sockets 64");
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -n 40; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    let output = limited.current_dir(laboratory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let result = crate::laboratory::read(&laboratory.only_result(&output));
    let failure = round(&result, "echo-mmsg")["failure"].as_str().unwrap();
    assert!(failure.contains("file descriptors") && failure.contains("ulimit"), "{failure}");
}
