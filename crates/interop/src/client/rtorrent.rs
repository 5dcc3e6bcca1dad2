//! rTorrent (Debian package `rtorrent`).

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Job, PEER_PORT};
use crate::network::Host;

pub(super) fn command(host: &Host, job: &Job<'_>) -> Result<Command> {
    let session = job.state.join("session");
    fs::create_dir(&session).context("cannot create rTorrent's session directory")?;
    // Were the whole torrent hashed once more on completion, 0.9.8 would keep "completed" for its next regular announce.
    let settings = format!(
        "directory.default.set = {downloads}\n\
         session.path.set = {session}\n\
         network.port_range.set = {PEER_PORT}-{PEER_PORT}\n\
         network.port_random.set = no\n\
         dht.mode.set = disable\n\
         protocol.pex.set = no\n\
         trackers.use_udp.set = yes\n\
         pieces.hash.on_completion.set = no\n\
         system.daemon.set = true\n\
         log.open_file = \"standard-output\", \"/dev/stdout\"\n\
         log.add_output = \"info\", \"standard-output\"\n",
        downloads = job.downloads.display(),
        session = session.display(),
    );
    let trust = job.certificate.map(|certificate| {
        format!("network.http.cacert.set = {}\nnetwork.http.ssl_verify_peer.set = 1\n", certificate.display())
    });
    let settings = settings + &trust.unwrap_or_default();
    let file = job.state.join("rtorrent.rc");
    fs::write(&file, settings).context("cannot write rTorrent's settings")?;
    let mut rtorrent = host.command("rtorrent")?;
    rtorrent.args(["-n", "-o"]).arg(format!("import={}", file.display()));
    rtorrent.arg(job.torrent).env("HOME", job.state);
    Ok(rtorrent)
}
