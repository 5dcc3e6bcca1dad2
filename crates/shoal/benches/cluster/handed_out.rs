//! How soon the other nodes hand out a peer, and the bytes of a change.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use shoal_testkit::client::udp::{Announce, Client};

use super::nodes::{Nodes, start_load};
use super::tracker::{Load, Tracker, now_ms};
use super::{Run, percentile};

/// The announces a second at each node of the loaded case.
const RATE: u32 = 10_000;

/// The time in which the traffic is measured.
const TRAFFIC_TIME: Duration = Duration::from_secs(10);

/// Maximum time until a peer is handed out, in milliseconds.
const PATIENCE_MS: f64 = 10_000.0;

pub(crate) fn run(run: &mut Run) {
    let nodes = Nodes::start();
    let samples = if run.lab.is_some() { 400 } else { 2 };
    measure(run, &nodes, "handed-out/idle", samples);
    let Some(lab) = run.lab.clone() else { return };
    let loads: Vec<Load> = nodes
        .trackers
        .iter()
        .enumerate()
        .map(|(index, tracker)| start_load(&lab, tracker, RATE, index + 1))
        .collect();
    thread::sleep(Duration::from_secs(3));
    measure(run, &nodes, "handed-out/loaded", samples);
    traffic(run, &nodes.trackers[0]);
    drop(loads);
}

/// Announces new peers at each node in turn, and asks another one until it hands them out.
fn measure(run: &mut Run, nodes: &Nodes, name: &str, samples: usize) {
    let clients: Vec<Client> = nodes.trackers.iter().map(|tracker| open(tracker.udp)).collect();
    let mut times_ms: Vec<f64> = (0..samples)
        .map(|sample| {
            // Moments within a batch are equally likely.
            thread::sleep(Duration::from_micros(fastrand::u64(..50_000)));
            let info_hash: [u8; 20] = core::array::from_fn(|_| fastrand::u8(..));
            let (from, to) = (sample % 3, (sample + 1 + sample / 3 % 2) % 3);
            let begin_ms = now_ms();
            let ports = |client: &Client, port| {
                announce(client, info_hash, port).unwrap_or_else(|| {
                    // The connection id has expired.
                    client.connect().unwrap();
                    Vec::new()
                })
            };
            ports(&clients[from], 1001);
            while !ports(&clients[to], 1002).contains(&1001) {
                assert!(now_ms() - begin_ms < PATIENCE_MS, "the peer is handed out");
                thread::sleep(Duration::from_micros(200));
            }
            now_ms() - begin_ms
        })
        .collect();
    run.figures.print(&format!("{name}/p50"), percentile(&mut times_ms, 50), "ms");
    run.judge(&format!("{name}/p99"), percentile(&mut times_ms, 99), "ms", 100.0);
}

/// Measures the bytes that a node sends per change, with the lines of the protocol of NATS.
fn traffic(run: &mut Run, tracker: &Tracker) {
    let read = || {
        [
            "shoal_cluster_bytes_total{direction=\"out\"}",
            "shoal_cluster_messages_total{direction=\"out\"}",
            "shoal_cluster_deltas_total{direction=\"out\"}",
        ]
        .map(|name| tracker.metric(name).unwrap())
    };
    let before = read();
    thread::sleep(TRAFFIC_TIME);
    let [bytes, messages, deltas] = core::array::from_fn(|index| read()[index] - before[index]);
    // In front of a message and behind it, apart from its subject, which is counted.
    let lines = "PUB  16384\r\n\r\n".len() as f64;
    run.figures.print("traffic/changes-per-message", deltas / messages, "");
    run.judge("traffic/bytes-per-change", (bytes + messages * lines) / deltas, "B", 32.0);
}

/// Opens a client over UDP (BEP 15), which sends each request until it is answered.
pub(crate) fn open(tracker: SocketAddr) -> Client {
    let client = Client::bind(None, tracker, Duration::from_secs(1), u32::MAX).unwrap();
    client.connect().unwrap();
    client
}

/// Announces a leecher, and returns the ports of the peers of the reply, or `None` if it is an error.
pub(crate) fn announce(client: &Client, info_hash: [u8; 20], port: u16) -> Option<Vec<u16>> {
    let announce = Announce { numwant: 10, ..Announce::leecher(info_hash, port) };
    let announced = client.announce(&announce).ok()?;
    Some(announced.peers.iter().map(SocketAddr::port).collect())
}
