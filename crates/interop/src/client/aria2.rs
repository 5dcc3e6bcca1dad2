//! aria2 (Debian package `aria2`).

use std::process::Command;

use anyhow::Result;

use super::{Job, PEER_PORT, Role};
use crate::network::Host;

pub(super) fn command(host: &Host, job: &Job<'_>) -> Result<Command> {
    let mut aria2 = host.command("aria2c")?;
    // Its UDP trackers share the socket of its DHT, and so need the DHT on. It knows no DHT node to begin with, and
    // never asks the DHT for a private torrent (BEP 27).
    aria2.args(["--no-conf=true", "--enable-dht=true", "--enable-dht6=false"]);
    aria2.args(["--bt-enable-lpd=false", "--enable-peer-exchange=false"]);
    // A ratio of 0 means: seed until told to quit.
    aria2.args(["--seed-ratio=0.0", "--file-allocation=none", "--allow-overwrite=true"]);
    aria2.args(["--console-log-level=info", "--summary-interval=0", "--enable-color=false"]);
    aria2.arg(format!("--listen-port={PEER_PORT}"));
    aria2.arg("--dir").arg(job.downloads);
    if job.role == Role::Seeder {
        aria2.arg("--check-integrity=true");
    }
    if let Some(certificate) = job.certificate {
        aria2.arg("--check-certificate=true").arg("--ca-certificate").arg(certificate);
    }
    aria2.arg(job.torrent).env("HOME", job.state);
    Ok(aria2)
}
