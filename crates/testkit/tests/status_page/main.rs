//! The status page and the public statistics in a real browser: headless Chromium at the size of a phone and of a desktop, light and dark.
//!
//! `browser.mjs` drives it and prints what it finds; this file says what that has to be.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use shoal_testkit::client::udp::Client;
use shoal_testkit::process;
use shoal_testkit::tools;
use shoal_testkit::tracker::Tracker;

const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a tracker on free ports of the loopback address.
fn start(settings: &[(&str, &str)]) -> Result<Tracker> {
    let mut command = process::command(tools::shoal()?);
    for listener in ["SHOAL_UDP_LISTEN", "SHOAL_HTTP_LISTEN", "SHOAL_CONTROL_LISTEN"] {
        command.env(listener, "127.0.0.1:0");
    }
    command.env("SHOAL_LOG_FORMAT", "json").env("SHOAL_WORKERS_COUNT", "2");
    command.env("SHOAL_STATISTICS_PAGE", "true").env("SHOAL_STORE_MEMORY_MAX", "64MiB");
    Ok(Tracker::start(command.envs(settings.iter().copied()), PATIENCE))
}

/// Lets the tracker refuse a request and serve another one, over UDP (BEP 15).
fn use_it(tracker: &Tracker) -> Result<()> {
    let client = Client::bind(None, tracker.udp[0], PATIENCE, 1)?;
    let id = client.connect()?.to_be_bytes();
    // An action that is not defined, with the right connection id.
    client.ask(&[id, [0, 0, 0, 9, 0, 0, 0, 1]].concat())?;
    Ok(())
}

/// Returns what the browser finds.
fn browse(tracker: &Tracker, token: &str) -> Result<Value> {
    let state = tempfile::tempdir()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/status_page/browser.mjs");
    let mut driver = Command::new(tools::program("node")?);
    driver.arg(script).arg(tools::program("chromium")?).arg(format!("http://{}/", tracker.control));
    driver.arg(format!("http://{}/stats", tracker.http[0]));
    driver.arg(state.path()).arg(token).env("HOME", state.path());
    let output = driver.output()?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{log}");
    serde_json::from_slice(&output.stdout).with_context(|| log.into_owned())
}

fn check(found: &Value) {
    for (name, view) in found["views"].as_object().expect("the views") {
        let theme = name.rsplit('-').next().expect("a theme");
        let clean = json!({
            "faint": [], "nameless": [], "charts": 0, "tables": 0, "overflow": 0, "landmarks": [], "handles": 0,
            "theme": theme, "documents": 1, "foreign": [], "cut": [],
        });
        assert_eq!(*view, clean, "{name}");
    }
    assert_eq!(found["views"].as_object().map(serde_json::Map::len), Some(4));
    assert_eq!(found["problems"], json!([]));
    assert_eq!(found["order"][0], "Skip to the figures");
    assert_eq!((&found["order"][3], &found["range"]), (&json!("Day"), &json!("day")));
    assert_eq!(found["markup"], json!({ "images": 0, "title": "Shoal status", "texts": true }));
    let times = "Time in the tracker: 50 % –, from 25 µs to 25 µs; 99 % –, from 250 µs to 250 µs";
    assert_eq!(found["times"], json!({ "label": times, "curves": 2 }));
    assert_eq!(found["ticks"], json!(vec![[true, true]; 6]));
    assert_eq!(found["collecting"], json!({ "curves": 0, "says": true }));
    assert_eq!(found["public"], 360);
    assert_eq!(found["policy"], "require-trusted-types-for");
    let refused = "The tracker refuses to show its figures: too many feeds are open";
    assert_eq!(found["refused"], json!([refused, "Refused"]));
    assert_eq!(found["pause"], json!([1000, 1000, 10_000]));
}

#[test]
fn the_page_is_clean_at_both_sizes_and_its_figures_are_those_of_the_metrics() -> Result<()> {
    let tracker = start(&[])?;
    use_it(&tracker)?;
    let found = browse(&tracker, "")?;
    check(&found);
    let stats = &found["figures"]["stats"];
    // One request for a connection id, and one that is refused.
    let metrics = Command::new(env!("CARGO_BIN_EXE_tracker-view"))
        .args(["get", &format!("http://{}", tracker.control), "/metrics"])
        .output()?;
    let metrics = String::from_utf8(metrics.stdout)?;
    for series in [
        "shoal_requests_total{protocol=\"udp\",family=\"v4\",kind=\"connect\"} 1",
        "shoal_replies_total{protocol=\"udp\",family=\"v4\",kind=\"other\",outcome=\"unknown_action\"} 1",
    ] {
        assert!(metrics.contains(series), "{series} is not in\n{metrics}");
    }
    assert_eq!(stats["traffic"][0]["requests"]["connect"], 1);
    assert_eq!(stats["traffic"][0]["refused"], 1);
    let refusal = json!({ "protocol": "udp", "family": "v4", "reason": "unknown_action", "count": 1 });
    assert_eq!(stats["refusals"][0], refusal);
    assert_eq!(found["figures"]["tiles"]["peers"], "0");
    Ok(())
}

#[test]
fn a_cluster_whose_nats_is_away_is_shown() -> Result<()> {
    let tracker = start(&[("SHOAL_CLUSTER_SERVERS", "nats://127.0.0.1:1"), ("SHOAL_CLUSTER_NODE", "one")])?;
    let found = browse(&tracker, "")?;
    check(&found);
    let cluster = &found["figures"]["stats"]["cluster"];
    assert_eq!((&cluster["node"], &cluster["connected"]), (&json!("one"), &json!(false)));
    Ok(())
}

#[test]
fn a_token_is_asked_for_and_kept_in_the_tab() -> Result<()> {
    let token = "0123456789abcdef0123456789abcdef";
    let tracker = start(&[("SHOAL_CONTROL_READ_TOKEN", token)])?;
    check(&browse(&tracker, token)?);
    Ok(())
}
