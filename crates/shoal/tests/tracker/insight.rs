//! The metrics of clients' software and of the tracker's own work.

use crate::http::Way;
use crate::kit::browser;
use crate::kit::browser::Browser;
use crate::kit::client::{Announce, Client};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::web;

/// Announces over each protocol with the peer ids of the test clients.
fn announce_everywhere(tracker: &Tracker) {
    let client = Client::new(tracker.udp[0]);
    client.announce_all((0..60).map(|port| Announce::seeder([b't'; 20], 1000 + port)));
    let mut connection = Way::PLAIN.connect(tracker);
    for port in 0..30 {
        let target = web::announce([b't'; 20], 2000 + port, "");
        assert!(connection.get(&target).body.starts_with(b"d8:complete"));
    }
    let mut browser = Browser::open(Way::PLAIN, tracker);
    browser.ask(&browser::announce('t', 'a', 0));
}

/// The value of a series of a metric.
fn share(tracker: &Tracker, software: &str) -> Option<f64> {
    let page = tracker.page("/metrics");
    let series = format!("shoal_clients{{software=\"{software}\"}} ");
    page.body.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok())
}

#[test]
fn clients_are_counted_by_their_software_over_every_protocol() {
    let tracker = Tracker::start(&[]);
    announce_everywhere(&tracker);
    // The thread that evaluates the samples gives no signal.
    eventually("all announces are counted", || {
        let tuotu = share(&tracker, "TuoTu")?;
        let (xtorrent, other) = (share(&tracker, "Xtorrent")?, share(&tracker, "other")?);
        // 30 of 91 over HTTP, 60 over UDP, 1 over WebTorrent.
        let is_near = |share: f64, announces: f64| (share - announces / 91.0).abs() < 0.001;
        (is_near(tuotu, 30.0) && is_near(xtorrent, 60.0) && is_near(other, 1.0)).then_some(())
    });
    let page = tracker.page("/metrics").body;
    assert!(page.lines().filter(|line| line.starts_with("shoal_clients")).all(|line| line.is_ascii()));
}

#[test]
fn processing_is_measured_by_protocol() {
    let tracker = Tracker::start(&[]);
    // A worker measures one in some 32 batches or inputs, the first of them always.
    for protocol in ["udp", "http", "webtorrent"] {
        let label = format!("protocol=\"{protocol}\"");
        eventually("a measurement of each protocol", || {
            announce_everywhere(&tracker);
            (tracker.metric("shoal_processing_seconds_count", &[&label]) > 0).then_some(())
        });
        let count = |bucket| tracker.metric("shoal_processing_seconds_bucket", &[&label, bucket]);
        assert!(count("le=\"+Inf\"") >= count("le=\"0.00005\""));
    }
    let batches = tracker.metric("shoal_batch_datagrams_count", &[]);
    assert!(batches > 0);
    assert!(
        tracker.metric("shoal_batch_datagrams_bucket", &["le=\"64.0\""]) >= batches,
        "no batch is larger"
    );
}
