//! The siege can fail: the tracker holds against an attack with a sound configuration, but not with a weak one.

use std::process::{Command, Output};

use serde_json::Value;

/// Runs the attacks whose name contains `filter` in short mode.
fn siege(filter: &str, settings: &[&str]) -> (Option<i32>, Value) {
    let shoal = shoal_testkit::tools::shoal().expect("the tracker builds");
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal-lab"));
    command.args(["siege", "--program"]).arg(shoal).args(["--short", "--json", "--filter", filter]);
    settings.iter().for_each(|setting| _ = command.args(["--setting", setting]));
    let Output { status, stdout, stderr } = command.output().expect("the program was built");
    let report = serde_json::from_slice(&stdout);
    (status.code(), report.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&stderr))))
}

#[test]
fn a_weak_configuration_lets_an_attack_through() {
    let (code, report) = siege("datagrams/forged-sources", &[]);
    assert_eq!((code, &report["held"]), (Some(0), &Value::Bool(true)), "{report:#}");
    // A tracker that answers wrong connection ids sends datagrams to forged addresses.
    let (code, report) = siege("datagrams/forged-sources", &["connection_id.answer_wrong=true"]);
    assert_eq!((code, &report["held"]), (Some(1), &Value::Bool(false)), "{report:#}");
    let breach = report["attacks"][0]["breaches"][0].as_str();
    assert!(breach.is_some_and(|breach| breach.starts_with("replies to wrong ids")), "{report:#}");
}

#[test]
fn a_tracker_that_does_not_start_is_reported_as_not_run() {
    let (code, report) = siege("connections/silent", &["store.memory_max=1"]);
    assert_eq!((code, &report["held"]), (Some(2), &Value::Bool(false)), "{report:#}");
    assert!(report["not_run"][0]["reason"].as_str().is_some_and(|reason| reason.contains("memory_max")));
}

#[test]
fn no_other_target_is_accepted() {
    let output = Command::new(env!("CARGO_BIN_EXE_shoal-lab")).args(["siege", "192.0.2.1:6969"]).output();
    assert_eq!(output.expect("the program was built").status.code(), Some(2));
}
