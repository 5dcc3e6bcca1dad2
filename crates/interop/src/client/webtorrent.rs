//! WebTorrent (npm package `webtorrent`) in Chromium (Debian package `chromium`), driven by the script for Node.js
//! beside this file.

use std::process::Command;

use anyhow::Result;

use super::{Job, Role};
use crate::network::Host;
use crate::tools;

/// WebTorrent as it is published for browsers: one module that needs no other.
const BUNDLE: &str = "webtorrent/dist/webtorrent.min.js";

pub(super) fn command(host: &Host, job: &Job<'_>) -> Result<Command> {
    let mut driver = host.command("node")?;
    driver.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/client/webtorrent/driver.mjs"));
    driver.arg(tools::program("chromium")?).arg(tools::node_module(BUNDLE)?);
    driver.arg(job.torrent).arg(job.downloads).arg(job.state);
    driver.arg(if job.role == Role::Seeder { "seeder" } else { "leecher" });
    driver.args(job.certificate).env("HOME", job.state);
    Ok(driver)
}
