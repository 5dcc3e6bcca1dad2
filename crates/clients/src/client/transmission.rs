//! Transmission (Debian package `transmission-cli`, which runs without a system service).

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::{Job, PEER_PORT, Role};
use crate::network::Host;

pub(super) fn command(host: &Host, job: &Job<'_>) -> Result<Command> {
    let settings = json!({
        "dht-enabled": false,
        "lpd-enabled": false,
        "pex-enabled": false,
        "port-forwarding-enabled": false,
        "utp-enabled": false,
    });
    let file = job.state.join("settings.json");
    fs::write(file, settings.to_string()).context("cannot write Transmission's settings")?;
    let mut transmission = host.command("transmission-cli")?;
    transmission.arg("--config-dir").arg(job.state).arg("--download-dir").arg(job.downloads);
    transmission.arg("--no-portmap").arg("--port").arg(PEER_PORT.to_string());
    if job.role == Role::Seeder {
        transmission.arg("--verify");
    }
    transmission.arg(job.torrent).env("HOME", job.state);
    Ok(transmission)
}
