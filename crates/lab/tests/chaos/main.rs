//! `shoal-lab chaos` as its users run it: short runs against the built tracker, against trackers that misbehave, and
//! wrong command lines. Nothing that depends on the speed of the machine is asserted.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use shoal_testkit::tools;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_shoal-lab");

/// Few peers, a low rate, short times; a busy machine may be slow.
const TINY: &str = "--allow-overlap --torrents 400 --peers 2000 --rate 500 --http-rate 100 --settle 300ms \
                    --pause 200ms --connections 4 --timeout 20s --json";

struct Laboratory(TempDir);

impl Laboratory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs `shoal-lab chaos` without the tools of the user.
    fn run(&self, arguments: &str, command: &[&str]) -> Output {
        let mut program = Command::new(PROGRAM);
        program.current_dir(self.path()).args(["chaos", "--tools", "tools"]);
        program.args(TINY.split_whitespace()).args(arguments.split_whitespace());
        program.args(command).stdin(Stdio::null()).output().unwrap()
    }

    /// Describes a tracker whose program is a shell script.
    fn describe(&self, script: &str, chaos: &str) {
        let script = script.replace("LAB", PROGRAM);
        let text = format!(
            "name = \"mine\"\ntitle = \"Mine\"\nprotocols = [\"udp\"]\n[find]\npath = [\"sh\"]\n[start]\npatience_s = 60\n\
             arguments = [\"-c\", '''{script}''']\n[chaos]\nprotocols = [\"udp\"]\n{chaos}\n"
        );
        fs::write(self.path().join("mine.toml"), text).unwrap();
    }
}

fn result(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

fn events(result: &Value) -> &Vec<Value> {
    assert_eq!(result["failure"], Value::Null, "{result:#}");
    result["events"].as_array().unwrap()
}

/// The real tracker comes back with its peers after everything that its description supports and needs no privileges.
#[test]
fn the_tracker_returns_with_its_peers() {
    let laboratory = Laboratory::new();
    let program = tools::shoal().unwrap();
    let arguments = format!(
        "--program {} --events pause,snapshot,restart,kill,damage,truncate --websockets 3 --output out \
         --threshold snapshot.took_ms=1e9 --threshold snapshot.p99_ratio=1e9 \
         --threshold restart.first_answer_ms=1e9 --threshold kill.first_answer_ms=1e9 \
         --threshold damage.first_answer_ms=1e9 --threshold damage.peers_lost_percent=100 \
         --threshold truncate.first_answer_ms=1e9 --threshold truncate.peers_lost_percent=100",
        program.display()
    );
    let output = laboratory.run(&arguments, &[]);
    let result = result(&output);
    let events = events(&result);
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["pause", "snapshot", "restart", "kill", "damage", "truncate"]);
    for event in events {
        assert_eq!(event["failure"], Value::Null, "{event:#}");
        let doubled = event["lanes"].as_array().unwrap().iter().map(|lane| lane["doubled"].as_u64().unwrap());
        assert_eq!(doubled.sum::<u64>(), 0, "{event:#}");
        assert_eq!(event["lanes"].as_array().unwrap().len(), 3);
    }
    let peers = |event: &Value, when: &str| event["peers"][when].as_u64().unwrap();
    assert!(peers(&events[0], "before") > 500, "half of the torrents are in the sample: {events:#?}");
    for event in &events[..4] {
        assert_eq!(peers(event, "before"), peers(event, "after"), "{event:#}");
    }
    assert!(
        peers(&events[4], "after") < peers(&events[4], "before"),
        "the damage costs peers: {:#}",
        events[4]
    );
    assert_eq!(
        peers(&events[4], "before"),
        peers(&events[5], "before"),
        "the state is whole again: {events:#?}"
    );
    assert_eq!(events[1]["lanes"][0]["lost"], 0, "a snapshot loses nothing: {:#}", events[1]);
    assert!(events[3]["lanes"][0]["lost"].as_u64().unwrap() > 0, "no tracker answers while it is dead");
    assert_eq!(events[3]["websockets"]["ended"], 3, "{:#}", events[3]);
    for file in ["README.md", "result.json", "01-pause.svg", "05-damage.svg"] {
        assert!(laboratory.path().join("out").join(file).exists(), "{file}");
    }
}

/// A tracker without state loses its peers. That is a verdict, not a failure of the run.
#[test]
fn a_tracker_without_state_loses_all_peers() {
    let laboratory = Laboratory::new();
    let program = tools::shoal().unwrap();
    let config = "[udp]\nlisten = [\"{address}\"]\n[http]\nlisten = []\n[control]\nlisten = \"\"\n\
                  [announce]\npeers_per_address_max = 0\n[limits]\nexempt = [\"0.0.0.0/0\", \"::/0\"]\n";
    laboratory.describe(
        &format!("exec {} --config {{folder}}/shoal.toml", program.display()),
        &format!("[[chaos.files]]\nname = \"shoal.toml\"\ntext = '''{config}'''"),
    );
    let output = laboratory.run("--tracker-file mine.toml --events restart", &[]);
    assert_eq!(output.status.code(), Some(1));
    let result = result(&output);
    let peers = &events(&result)[0]["peers"];
    assert!(peers["before"].as_u64().unwrap() > 500 && peers["after"] == 0, "{result:#}");
}

/// `sh` starts another process of its group, as a tracker that hands over does, and ends.
#[test]
fn the_new_process_of_a_hand_over_is_the_tracker() {
    let laboratory = Laboratory::new();
    let script = "trap \"trap : USR2; kill $!; LAB echo --listen {address} & exit 0\" USR2; \
                  LAB echo --listen {address} & while :; do wait; done";
    laboratory.describe(script, "upgrade_signal = \"USR2\"");
    let output = laboratory.run("--tracker-file mine.toml --events upgrade,restart", &[]);
    let result = result(&output);
    for event in events(&result) {
        assert_eq!(event["failure"], Value::Null, "{event:#}");
    }
}

/// A tracker that does not know the signal ends. It is started again, and the run goes on.
#[test]
fn a_tracker_that_dies_of_an_upgrade_fails_it() {
    let laboratory = Laboratory::new();
    laboratory.describe("exec LAB echo --listen {address}", "upgrade_signal = \"USR2\"");
    let output = laboratory.run("--tracker-file mine.toml --events upgrade,kill", &[]);
    assert_eq!(output.status.code(), Some(1));
    let result = result(&output);
    let failure = events(&result)[0]["failure"].as_str().unwrap();
    assert!(failure.contains("ended instead of handing over"), "{failure}");
    assert_eq!(events(&result)[1]["failure"], Value::Null, "{result:#}");
}

#[test]
fn any_command_can_be_tested() {
    let laboratory = Laboratory::new();
    let command = ["--", PROGRAM, "echo", "--listen", "{address}"];
    let result = result(&laboratory.run("--events pause", &command));
    assert_eq!(events(&result)[0]["failure"], Value::Null, "{result:#}");
}

#[test]
fn wrong_command_lines_are_refused() {
    let laboratory = Laboratory::new();
    laboratory.describe("exec LAB echo --listen {address}", "");
    for (arguments, expected) in [
        ("--tracker nothing", "shoal-mmsg"),
        ("--tracker mochi", "shoal-mmsg"),
        ("--events reboot", "disk-full"),
        ("--tracker-file mine.toml --events upgrade", "chaos.upgrade_signal"),
        ("--tracker-file mine.toml --events disk-full", "chaos.state"),
        ("--tracker-file mine.toml --websockets 1", "not described for WebTorrent"),
        ("--threshold upgrade.gap=1", "gap_ms"),
        ("--torrents 1", "--torrents"),
    ] {
        let output = laboratory.run(arguments, &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {errors}");
        assert!(errors.contains(expected), "{arguments}: {errors}");
    }
}
