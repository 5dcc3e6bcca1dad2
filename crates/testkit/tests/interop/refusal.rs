//! Real clients show the reason for which the operator denies a torrent, and come back when it is allowed.
//!
//! | client | shows the reason in | announces again by itself after |
//! |---|---|---|
//! | libtorrent 2.1.1 | the alert `tracker_error_alert` over HTTP; over UDP the alert lacks the text; over WebSockets there is none | 30 minutes over HTTP, 18 s at first over UDP |
//! | Transmission 3.00 | its log, and the status of the torrent | 20 s at first, then 5 minutes |
//! | WebTorrent 3.0.21 in Chromium | the event `warning` | 30 s |

use std::path::Path;

use anyhow::Result;
use shoal_testkit::interop::client::Client::{Libtorrent, Transmission, WebTorrent};
use shoal_testkit::interop::client::Participant;
use shoal_testkit::interop::refusal::{self, REASON};
use shoal_testkit::interop::route::Route::{Http, Udp, Ws};

use super::TRACKER_VIEW;

fn run(client: Participant, words: &str) -> Result<()> {
    refusal::run(client, words, Path::new(TRACKER_VIEW))
}

#[test]
fn libtorrent_over_http() -> Result<()> {
    run(Libtorrent.via(Http), REASON)
}

#[test]
fn libtorrent_over_udp() -> Result<()> {
    run(Libtorrent.via(Udp), "tracker sent a failure message")
}

#[test]
fn transmission_over_http() -> Result<()> {
    run(Transmission.via(Http), REASON)
}

#[test]
fn transmission_over_udp() -> Result<()> {
    run(Transmission.via(Udp), REASON)
}

#[test]
fn webtorrent_over_ws() -> Result<()> {
    run(WebTorrent.via(Ws), REASON)
}
