//! libtorrent (PyPI package `libtorrent`), driven by the Python script beside this file.

use std::process::Command;

use anyhow::Result;

use super::{Job, PEER_PORT};
use crate::network::Host;
use crate::tools::python;

pub(super) fn command(host: &Host, job: &Job<'_>) -> Result<Command> {
    let mut script = host.command_at(&python()?)?;
    script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/client/libtorrent_client.py"));
    script.arg(job.torrent).arg(job.downloads).arg(PEER_PORT.to_string()).env("HOME", job.state);
    if let Some(certificate) = job.certificate {
        script.env("SSL_CERT_FILE", certificate);
    }
    Ok(script)
}
