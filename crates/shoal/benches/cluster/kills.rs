//! Requests at other nodes while a node or a NATS server is killed.

use std::thread;
use std::time::Duration;

use shoal_trial::chaos::load::{Load, LoadPlan};
use shoal_trial::chaos::measure::{self, Window};
use shoal_trial::chaos::record::Lane;

use super::Run;
use super::nodes::Nodes;
use super::tracker::Tracker;

/// The time without a fault before the first one, after each, and after the last.
const SETTLE: Duration = Duration::from_secs(5);

/// A request is unanswered after this time.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn run(run: &mut Run) {
    let mut nodes = Nodes::start();
    let (rate, settle) = if run.lab.is_some() { (5000.0, SETTLE) } else { (100.0, SETTLE / 10) };
    let loads: Vec<Load> =
        nodes.trackers[1..].iter().map(|tracker| Load::start(&plan(tracker, rate)).unwrap()).collect();
    thread::sleep(settle);
    nodes.trackers[0].process.signal(rustix::process::Signal::KILL);
    thread::sleep(settle);
    for index in 0..nodes.nats.servers.len() {
        nodes.nats.servers[index].kill();
        thread::sleep(settle);
        nodes.nats.servers[index].restart().unwrap();
        thread::sleep(settle);
    }
    let window = |load: &Load| {
        let end_ns = load.now_ns();
        Window { began_ns: 0, acted_ns: 0, done_ns: end_ns, ended_ns: end_ns }
    };
    let windows: Vec<Window> = loads.iter().map(window).collect();
    let ledgers = loads.into_iter().map(Load::end);
    let lanes: Vec<_> = ledgers
        .zip(&windows)
        .flat_map(|(ledgers, window)| {
            ledgers
                .into_iter()
                .map(|(lane, ledger)| measure::lane(lane, &ledger, window, TIMEOUT))
                .collect::<Vec<_>>()
        })
        .collect();
    let sum =
        |read: fn(&shoal_trial::chaos::result::LaneResult) -> u64| lanes.iter().map(read).sum::<u64>() as f64;
    let gap_ms = lanes.iter().map(|lane| lane.gap_ms).fold(0.0, f64::max);
    run.figures.print("kills/requests", sum(|lane| lane.requests), "");
    run.figures.print("kills/longest-gap", gap_ms, "ms");
    run.judge("kills/refused", sum(|lane| lane.refused), "requests", 0.0);
    run.judge("kills/unanswered", sum(|lane| lane.lost), "requests", 0.0);
}

/// The load on a node: datagrams, and a tenth as many requests over HTTP.
fn plan(tracker: &Tracker, rate: f64) -> LoadPlan {
    assert_eq!(tracker.udp, tracker.http, "the load asks both protocols at one address");
    let torrents = 20_000;
    LoadPlan {
        target: tracker.udp,
        torrents,
        seed: 1,
        load_peers: LoadPlan::load_peers_for(torrents),
        rates: vec![
            (Lane::Udp, rate),
            (Lane::HttpKeepAlive, rate / 20.0),
            (Lane::HttpConnections, rate / 20.0),
        ],
        connections: 16,
        timeout: TIMEOUT,
    }
}
