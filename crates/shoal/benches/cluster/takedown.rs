//! How soon another node refuses a torrent that a request to the control listener denies.

use std::thread;
use std::time::Duration;

use super::handed_out::{announce, open};
use super::nodes::Nodes;
use super::tracker::{PATIENCE, Tracker, now_ms};
use super::{Run, percentile};

/// The longest time that is permitted, in milliseconds.
const BAR_MS: f64 = 1000.0;

pub(crate) fn run(run: &mut Run) {
    let nodes = Nodes::start();
    let samples = if run.lab.is_some() { 200 } else { 2 };
    wait_for_shared_state(&nodes);
    let client = open(nodes.trackers[1].udp);
    let mut times_ms: Vec<f64> = (0..samples)
        .map(|sample| {
            // A connection id is valid for two minutes.
            client.connect().unwrap();
            let info_hash: [u8; 20] = core::array::from_fn(|_| fastrand::u8(..));
            assert!(announce(&client, info_hash, 1001).is_some(), "the torrent is served before");
            let begin_ms = now_ms();
            deny(&nodes.trackers[if sample % 2 == 0 { 0 } else { 2 }], &info_hash);
            while announce(&client, info_hash, 1001).is_some() {
                assert!(now_ms() - begin_ms < PATIENCE.as_secs_f64() * 1e3, "the torrent is denied");
            }
            now_ms() - begin_ms
        })
        .collect();
    run.figures.print("takedown/p50", percentile(&mut times_ms, 50), "ms");
    run.judge("takedown/p99", percentile(&mut times_ms, 99), "ms", BAR_MS);
}

fn wait_for_shared_state(nodes: &Nodes) {
    let begin_ms = now_ms();
    let is_there = |tracker: &Tracker| tracker.metric("shoal_cluster_shared_followed") == Some(1.0);
    while !nodes.trackers.iter().all(is_there) {
        assert!(now_ms() - begin_ms < PATIENCE.as_secs_f64() * 1e3, "the nodes share their state");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Denies a torrent, and waits for the reply.
fn deny(tracker: &Tracker, info_hash: &[u8; 20]) {
    let hash: String = info_hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let body = serde_json::json!({ "torrents": [hash] }).to_string();
    let fields = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    let response = tracker.control("POST /api/v1/lists/deny/add", &fields, &body);
    assert_eq!(response.status, 200, "{response:?}");
}
