//! The nodes, their NATS servers, and the load on them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use shoal_testkit::nats::{CLUSTER_SERVERS, Cluster, Options};
use shoal_testkit::process::cpu_ns;
use tempfile::TempDir;

use super::tracker::{Load, PATIENCE, Tracker, now_ms, pinned};

/// A load whose announces all change something: each peer comes and goes.
const CHANGES: [&str; 6] = ["--mix", "0:1:0", "--announces-per-life", "2", "--numwant", "30"];

/// A node at each of three NATS servers.
pub(crate) struct Nodes {
    pub(crate) nats: Cluster,
    pub(crate) trackers: Vec<Tracker>,
    _directories: Vec<TempDir>,
}

impl Nodes {
    /// Starts them, and waits until each knows the others.
    pub(crate) fn start() -> Self {
        let nats = Cluster::start(&Options::default()).unwrap();
        let directories: Vec<TempDir> = (0..CLUSTER_SERVERS).map(|_| tempfile::tempdir().unwrap()).collect();
        // Each prefers a server of its own, and has the others if that is gone.
        let urls: Vec<String> = nats.servers.iter().map(shoal_testkit::nats::Server::url).collect();
        let start = |(index, directory): (usize, &TempDir)| {
            let mut urls = urls.clone();
            urls.rotate_left(index);
            start_node(directory.path(), &format!("node-{index}"), &urls)
        };
        let trackers: Vec<Tracker> = directories.iter().enumerate().map(start).collect();
        let nodes = Self { nats, trackers, _directories: directories };
        nodes.trackers.iter().for_each(|tracker| wait_for_others(tracker, CLUSTER_SERVERS - 1));
        nodes
    }
}

/// Starts a tracker whose UDP and HTTP have one port, as a node if there are servers.
pub(crate) fn start_node(directory: &Path, name: &str, servers: &[String]) -> Tracker {
    let listen = format!("[\"{}\"]", unused_address());
    let (servers, name) = (format!("{servers:?}"), format!("{name:?}"));
    let settings = [
        ("udp.listen", &*listen),
        ("http.listen", &listen),
        ("workers.count", "1"),
        ("cluster.servers", &servers),
        ("cluster.node", &name),
    ];
    Tracker::start(directory, &settings)
}

/// Waits until a node knows so many others that are ready.
pub(crate) fn wait_for_others(tracker: &Tracker, others: usize) {
    let begin_ms = now_ms();
    while tracker.metric("shoal_cluster_nodes{state=\"ready\"}") != Some(others as f64) {
        assert!(now_ms() - begin_ms < PATIENCE.as_secs_f64() * 1e3, "the nodes know each other");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns an address whose port nothing uses, neither over TCP nor over UDP.
fn unused_address() -> SocketAddr {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

/// Sends so many announces a second, each of which changes something.
pub(crate) fn start_load(lab: &Path, tracker: &Tracker, rate: u32, seed: usize) -> Load {
    let mut command = pinned(1, lab);
    command.args(["load", "udp", &tracker.udp.to_string(), "--no-fill", "--duration", "10m"]);
    command.args(CHANGES).args(["--torrents", "20000", "--peers", "50000"]);
    Load::start(command.args(["--rate", &rate.to_string(), "--seed", &seed.to_string()]))
}

/// Saturates a tracker with announces that change something, and returns the number of replies.
pub(crate) fn saturate(lab: &Path, tracker: &Tracker, seconds: u32) -> f64 {
    let mut command = pinned(1, lab);
    command.args(["load", "udp", &tracker.udp.to_string(), "--no-fill", "--json"]);
    command.args(CHANGES).args(["--torrents", "1000000", "--peers", "2000000"]);
    command.args(["--duration", &format!("{seconds}s")]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |kind: &str| report["run"]["responses"][kind].as_f64().unwrap();
    of("connect") + of("announce")
}

/// Returns the CPU time of all threads of a process, in seconds.
pub(crate) fn cpu_s(tracker: &Tracker) -> f64 {
    cpu_ns(tracker.process.pid()) as f64 / 1e9
}
