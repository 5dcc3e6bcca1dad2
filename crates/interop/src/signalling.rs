//! The story of a client that nobody downloads with: npm's `bittorrent-tracker`, of which WebTorrent's clients are made,
//! without a browser. Two of them are counted and introduced to each other, with descriptions made up by the test.

use std::path::Path;

use anyhow::Result;

use crate::network::Family;
use crate::payload::{Payload, Pieces};
use crate::stage::Stage;
use crate::tools;
use crate::way::Way;

/// The directory of the package below `node_modules`.
const PACKAGE: &str = "bittorrent-tracker";

/// Plays it, with a tracker that is reached by `way`. `view` is the `tracker-view` program.
///
/// # Errors
/// Where anything goes otherwise than it should, with the output of all programs.
pub fn run(family: Family, way: Way, view: &Path) -> Result<()> {
    let payload = Payload::generate(PACKAGE, Pieces::One);
    let mut stage = Stage::new(family, payload, &[way], &[], view)?;
    play(&mut stage, way).map_err(|error| error.context(stage.tails()))
}

fn play(stage: &mut Stage, way: Way) -> Result<()> {
    stage.perform(PACKAGE, |host, info_hash, certificate| {
        let mut node = host.command("node")?;
        node.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/signalling/client.mjs"));
        node.arg(tools::node_module(PACKAGE)?).arg(info_hash).arg(way.url());
        if let Some(certificate) = certificate {
            node.env("NODE_EXTRA_CA_CERTS", certificate);
        }
        Ok(node)
    })?;
    stage.wait_for_those_left()?;
    stage.check_metrics()?;
    stage.check_swarm_is_gone()?;
    stage.stop_tracker()
}
