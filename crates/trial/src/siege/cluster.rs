//! The rest of the cluster of a tracker under attack: NATS, and another node.
//!
//! Honest clients use both nodes. The attacker is a client of NATS that can publish anything (`nats`), or a false
//! server.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use shoal_testkit::nats::{Access, Options, Server};
use shoal_testkit::process::wait_for_every;

use crate::measure;
use crate::siege::attack::Setting;
use crate::siege::nats::{PASSWORD, USER};
use crate::siege::tracker::Tracker;

/// Stands for the URL of NATS in the values of settings.
pub(crate) const NATS: &str = "NATS_SERVER";

/// The settings of a node.
pub(crate) const SETTINGS: [Setting; 4] = [
    // The messages of a node, the state that it shares and credit are part of it.
    ("memory.max", "384MiB"),
    ("cluster.servers", NATS),
    ("cluster.user", USER),
    ("cluster.password_file", concat!("TRACKER_FOLDER", "/nats-password")),
];

/// The maximum time until both nodes are ready: three snapshots, ten seconds apart, by both of them in turn.
const READY_TIME_MAX: Duration = Duration::from_secs(60);

const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum time of a request to the control listener.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(3);

/// NATS and the other node.
pub(crate) struct Cluster {
    nats: Mutex<Server>,
    /// The other node.
    pub(crate) other: Tracker,
    /// The port of NATS.
    pub(crate) port: u16,
}

/// The size of the largest message, eight times the default of NATS.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 8 << 20;

/// Starts a NATS server that demands a password.
pub(crate) fn start_nats() -> Result<Server> {
    let access = Access::User { user: USER.to_owned(), password: PASSWORD.to_owned() };
    Server::start(&Options { access, payload_bytes_max: Some(PAYLOAD_BYTES_MAX), ..Options::default() })
}

/// Writes the file of the password for a node.
pub(crate) fn write_password(folder: &Path) -> Result<()> {
    fs::write(folder.join("nats-password"), PASSWORD).context("cannot write a password")
}

impl Cluster {
    /// Waits until the nodes know each other as ready.
    pub(crate) fn new(nats: Server, tracker: &Tracker, other: Tracker) -> Result<Self> {
        let port = nats.port();
        let cluster = Self { nats: Mutex::new(nats), other, port };
        cluster.wait_until_ready(tracker)?;
        Ok(cluster)
    }

    /// Returns the NATS server.
    pub(crate) fn nats(&self) -> MutexGuard<'_, Server> {
        self.nats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until each node is ready and knows the other one as ready.
    pub(crate) fn wait_until_ready(&self, tracker: &Tracker) -> Result<Duration> {
        let (began, nodes) = (measure::now(), [tracker, &self.other]);
        let ready = || Ok(nodes.into_iter().all(knows_a_ready_node).then(|| measure::now() - began));
        let told = || nodes.map(|node| status(node).unwrap_or_default().to_string()).join("\n");
        wait_for_every(CHECK_INTERVAL, "both nodes should be ready", READY_TIME_MAX, ready).with_context(told)
    }
}

/// Returns whether a tracker is ready, and knows a node of its own kind that is.
fn knows_a_ready_node(tracker: &Tracker) -> bool {
    let Ok(cluster) = status(tracker) else { return false };
    let is_ready = |node: &Value| node["state"] == "ready" && node["name"] == cluster["node"];
    cluster["state"] == "ready" && cluster["nodes"].as_array().is_some_and(|nodes| nodes.iter().any(is_ready))
}

/// Returns what a tracker says about its cluster.
pub(crate) fn status(tracker: &Tracker) -> Result<Value> {
    let response = tracker.request_control("/api/v1/stats", CONTROL_TIMEOUT)?;
    let stats: Value = serde_json::from_slice(&response.body).context("statistics are JSON")?;
    Ok(stats["cluster"].clone())
}

/// Returns the sum of the series of a metric whose line begins with this text.
pub(crate) fn metric(tracker: &Tracker, begin: &str) -> Result<u64> {
    let sum = || {
        let response = tracker.request_control("/metrics", CONTROL_TIMEOUT)?;
        let text = String::from_utf8_lossy(&response.body);
        let values: Vec<u64> = text
            .lines()
            .filter(|line| line.starts_with(begin))
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect();
        Ok((!values.is_empty()).then(|| values.iter().sum()))
    };
    // The control listener limits how often it is asked.
    wait_for_every(CHECK_INTERVAL, &format!("there should be a metric {begin}"), READY_TIME_MAX, sum)
}
