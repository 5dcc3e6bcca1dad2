//! The load on the tracker, and the changes of its lists.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::tracker::{CONFIG, Load, PATIENCE, PROGRAM, Tracker, now_ms, pinned, without_settings};

/// Denies a torrent at the tracker with this directory, as an operator does.
pub(crate) fn deny_torrent(directory: &Path, info_hash: &[u8; 20]) {
    let hash: String = info_hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut add = without_settings(Command::new(PROGRAM));
    add.args(["access", "add", "--deny", &hash, "--reason", "a notice", "--config"])
        .arg(directory.join(CONFIG));
    let output = add.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until the deny list has so many entries.
pub(crate) fn wait_for_entries(tracker: &Tracker, entries: usize) {
    let begin_ms = now_ms();
    while tracker.metric("shoal_list_torrents{list=\"deny\"}") != Some(entries as f64) {
        assert!(now_ms() - begin_ms < PATIENCE.as_secs_f64() * 1e3, "the list applies");
        thread::sleep(Duration::from_millis(50));
    }
}

/// `shoal-lab`, which puts load on a tracker.
pub(crate) struct Lab {
    pub(crate) program: PathBuf,
}

/// The result of a measurement.
pub(crate) struct Measured {
    pub(crate) responses_per_s: f64,
    pub(crate) lost: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Lab {
    /// Puts load on the tracker over every protocol, at fixed rates: a generator that saturates the machine would measure
    /// how long the clients of the benchmark wait for a processor. `scale` multiplies the rates.
    pub(crate) fn load_every_protocol(&self, tracker: &Tracker, scale: u32) -> Vec<Load> {
        let (udp, http) = (tracker.udp.to_string(), tracker.http.to_string());
        let start = |(protocol, target, rate): (&str, &str, u32)| {
            let rate = (rate * scale).to_string();
            let mut lab = Command::new(&self.program);
            lab.args(["load", protocol, target, "--rate", &rate, "--duration", "10m"]);
            lab.args(["--torrents", "2000", "--peers", "10000"]);
            Load::start(&mut lab)
        };
        let loads = [("udp", &*udp, 10_000), ("http", &http, 2000), ("ws", &http, 500)].map(start).into();
        // They fill the tracker first.
        thread::sleep(Duration::from_secs(10));
        loads
    }

    /// Asks over UDP at this rate, or else at 30,000 requests a second, for 8 seconds, from processor 1.
    pub(crate) fn measure_udp(&self, tracker: &Tracker, rate: Option<u32>) -> Measured {
        let (target, rate) = (tracker.udp.to_string(), rate.unwrap_or(30_000).to_string());
        let mut lab = pinned(1, &self.program);
        lab.args(["load", "udp", &target, "--rate", &rate, "--duration", "8s", "--json"]);
        let output = lab.args(["--torrents", "20000", "--peers", "100000"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let run = &report["run"];
        let number = |value: &Value| value.as_f64().unwrap();
        Measured {
            responses_per_s: number(&run["responses_per_s"]),
            lost: number(&run["lost"]),
            p50_us: number(&run["latency"]["p50_us"]),
            p99_us: number(&run["latency"]["p99_us"]),
        }
    }
}
