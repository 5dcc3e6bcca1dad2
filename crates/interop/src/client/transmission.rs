//! Transmission (Debian packages `transmission-daemon` and `transmission-cli`).
//!
//! The daemon, not the command line program: that one takes a torrent which has not started yet for one that was
//! stopped, and on a busy machine ends at once.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::{Job, PEER_PORT};
use crate::network::Host;
use crate::tools::TRANSMISSION;

/// Where the daemon takes commands by default.
const REMOTE_CONTROL: &str = "127.0.0.1:9091";

pub(super) fn command(host: &Host, job: &Job<'_>) -> Result<Command> {
    host.pretend_ipv4().context("cannot prepare Transmission's host")?;
    let settings = json!({
        "pex-enabled": false,
        "rpc-enabled": true,
        "rpc-bind-address": "127.0.0.1",
    });
    fs::write(job.state.join("settings.json"), settings.to_string())
        .context("cannot write Transmission's settings")?;
    // It takes up whatever torrents it finds among its own when it starts.
    let torrents = job.state.join("torrents");
    fs::create_dir(&torrents).context("cannot create Transmission's directory of torrents")?;
    fs::copy(job.torrent, torrents.join("shared.torrent")).context("cannot copy the torrent")?;
    let mut transmission = host.command_at(&TRANSMISSION.path()?)?;
    transmission.args(["--foreground", "--log-info", "--no-portmap", "--no-dht", "--no-lpd", "--no-utp"]);
    transmission.arg("--peerport").arg(PEER_PORT.to_string()).arg("--config-dir").arg(job.state);
    transmission.arg("--download-dir").arg(job.downloads);
    transmission.env("HOME", job.state);
    if let Some(certificate) = job.certificate {
        // Before 4.0 it checks certificates only when asked to.
        transmission.env("TR_CURL_SSL_VERIFY", "1").env("CURL_CA_BUNDLE", certificate);
    }
    Ok(transmission)
}

/// Has it leave the swarm before it quits. When Transmission 3.00 quits, it closes its connections to HTTP trackers
/// without having told them.
pub(super) fn pause(host: &Host) -> Result<Command> {
    let mut remote = host.command("transmission-remote")?;
    remote.arg(REMOTE_CONTROL).args(["--torrent", "all", "--stop"]);
    Ok(remote)
}
