//! The scenario of the signalling client: npm's `bittorrent-tracker`, on which WebTorrent's clients are built,
//! without a browser. The tracker counts two of them and relays descriptions that the test makes up. Nothing is
//! downloaded.

use std::path::Path;

use anyhow::Result;

use crate::interop::network::Family;
use crate::interop::payload::{Payload, Pieces};
use crate::interop::route::Route;
use crate::interop::testbed::Testbed;
use crate::tools;

/// The directory of the package below `node_modules`.
const PACKAGE: &str = "bittorrent-tracker";

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
