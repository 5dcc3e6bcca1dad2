//! The scenario of the signalling client: npm's `bittorrent-tracker`, on which WebTorrent's clients are built,
//! without a browser. The tracker counts two of them and relays descriptions that the test makes up. Nothing is
//! downloaded.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::interop::network::Family;
use crate::interop::payload::{Payload, Pieces};
use crate::interop::route::Route;
use crate::interop::testbed::Testbed;
use crate::process::wait_for;
use crate::tools;

/// The directory of the package below `node_modules`.
const PACKAGE: &str = "bittorrent-tracker";

/// The number of torrents of the client in [`run_many_torrents`].
const TORRENTS: u32 = 300;

/// How long the tracker may take to notice the end of that client.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a libtorrent with hundreds of torrents, which reaches the tracker by `route`, and checks that one WebSocket was enough.
///
/// # Errors
/// Returns an error, with the output of all programs, if a step fails.
pub fn run_many_torrents(family: Family, route: Route, tracker_view: &Path) -> Result<()> {
    let payload = Payload::generate("many-torrents", Pieces::One);
    Testbed::new(family, payload, &[route], &[], tracker_view)?.run(|testbed| {
        testbed.run_program("many-torrents", |host, _, certificate| {
            let mut script = host.command_at(&tools::python()?)?;
            script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/interop/client/many_torrents.py"));
            script.arg(route.url()).arg(TORRENTS.to_string());
            if let Some(certificate) = certificate {
                script.env("SSL_CERT_FILE", certificate);
            }
            Ok(script)
        })?;
        let metrics = testbed.metrics()?;
        let is_served = |labels: &str| {
            ["\"webtorrent\"", "\"announce\"", "\"ok\""].iter().all(|label| labels.contains(label))
        };
        let announces = metrics.sum("shoal_replies_total", is_served)?;
        let upgrades = metrics.sum("shoal_websocket_upgrades_total", |_| true)?;
        ensure!(announces >= f64::from(TORRENTS), "{announces} announces of {TORRENTS} torrents were served");
        ensure!(upgrades == 1.0, "{upgrades} WebSockets of one client");
        wait_for("the tracker should notice the end of the client", END_TIMEOUT, || {
            Ok(testbed.check_swarm_is_gone().ok())
        })?;
        testbed.stop_tracker()
    })
}

/// Runs the scenario with a tracker that is reached by `route`. `tracker_view` is the `tracker-view` program.
///
/// # Errors
/// Returns an error, with the output of all programs, if a step fails.
pub fn run(family: Family, route: Route, tracker_view: &Path) -> Result<()> {
    let payload = Payload::generate(PACKAGE, Pieces::One);
    Testbed::new(family, payload, &[route], &[], tracker_view)?.run(|testbed| {
        testbed.run_program(PACKAGE, |host, info_hash, certificate| {
            let mut node = host.command("node")?;
            node.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/interop/signalling/client.mjs"));
            node.arg(tools::node_module(PACKAGE)?).arg(info_hash).arg(route.url());
            if let Some(certificate) = certificate {
                node.env("NODE_EXTRA_CA_CERTS", certificate);
            }
            Ok(node)
        })?;
        testbed.wait_for_remaining_seeders()?;
        testbed.check_metrics()?;
        testbed.check_swarm_is_gone()?;
        testbed.stop_tracker()
    })
}
