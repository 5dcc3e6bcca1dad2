//! The commands that start each client.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::{LaunchOptions, PEER_PORT, Role};
use crate::interop::network::Host;
use crate::tools::{self, TRANSMISSION};

/// WebTorrent as published for browsers: a single module.
const WEBTORRENT_BUNDLE: &str = "webtorrent/dist/webtorrent.min.js";

/// The default control address of Transmission's daemon.
const TRANSMISSION_CONTROL: &str = "127.0.0.1:9091";

/// libtorrent (PyPI package `libtorrent`), driven by a Python script.
pub(super) fn libtorrent(host: &Host, options: &LaunchOptions<'_>) -> Result<Command> {
    let mut script = host.command_at(&tools::python()?)?;
    script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/interop/client/libtorrent_client.py"));
    script.arg(options.torrent).arg(options.downloads).arg(PEER_PORT.to_string()).env("HOME", options.state);
    if let Some(certificate) = options.certificate {
        script.env("SSL_CERT_FILE", certificate);
    }
    Ok(script)
}

/// Transmission (Debian packages `transmission-daemon` and `transmission-cli`).
///
/// This is the daemon and not the command line program, which mistakes a torrent that has not started yet for one that
/// was stopped, and on a busy machine exits at once.
pub(super) fn transmission(host: &Host, options: &LaunchOptions<'_>) -> Result<Command> {
    host.add_fake_ipv4_route().context("cannot prepare Transmission's host")?;
    let settings = json!({
        "pex-enabled": false,
        "rpc-enabled": true,
        "rpc-bind-address": "127.0.0.1",
    });
    fs::write(options.state.join("settings.json"), settings.to_string())
        .context("cannot write Transmission's settings")?;
    // At the start it loads every torrent from its own directory.
    let torrents = options.state.join("torrents");
    fs::create_dir(&torrents).context("cannot create Transmission's directory of torrents")?;
    fs::copy(options.torrent, torrents.join("shared.torrent")).context("cannot copy the torrent")?;
    let mut transmission = host.command_at(&TRANSMISSION.path()?)?;
    transmission.args(["--foreground", "--log-info", "--no-portmap", "--no-dht", "--no-lpd", "--no-utp"]);
    transmission.arg("--peerport").arg(PEER_PORT.to_string()).arg("--config-dir").arg(options.state);
    transmission.arg("--download-dir").arg(options.downloads);
    transmission.env("HOME", options.state);
    if let Some(certificate) = options.certificate {
        // Before 4.0 it verifies certificates only on request.
        transmission.env("TR_CURL_SSL_VERIFY", "1").env("CURL_CA_BUNDLE", certificate);
    }
    Ok(transmission)
}

/// Returns a command that makes Transmission leave the swarm. When Transmission 3.00 quits, it closes its connections
/// to HTTP trackers without telling them.
pub(super) fn pause_transmission(host: &Host) -> Result<Command> {
    let mut remote = host.command("transmission-remote")?;
    remote.arg(TRANSMISSION_CONTROL).args(["--torrent", "all", "--stop"]);
    Ok(remote)
}

/// Returns a command that makes Transmission announce at once.
pub(super) fn reannounce_transmission(host: &Host) -> Result<Command> {
    let mut remote = host.command("transmission-remote")?;
    remote.arg(TRANSMISSION_CONTROL).args(["--torrent", "all", "--reannounce"]);
    Ok(remote)
}

/// aria2 (Debian package `aria2`).
pub(super) fn aria2(host: &Host, options: &LaunchOptions<'_>) -> Result<Command> {
    let mut aria2 = host.command("aria2c")?;
    // Its UDP trackers share the socket of the DHT, which therefore has to be enabled. It knows no DHT node at the
    // start, and never uses the DHT for a private torrent (BEP 27).
    aria2.args(["--no-conf=true", "--enable-dht=true", "--enable-dht6=false"]);
    aria2.args(["--bt-enable-lpd=false", "--enable-peer-exchange=false"]);
    // With a ratio of 0 it seeds until it is told to quit.
    aria2.args(["--seed-ratio=0.0", "--file-allocation=none", "--allow-overwrite=true"]);
    aria2.args(["--console-log-level=info", "--summary-interval=0", "--enable-color=false"]);
    aria2.arg(format!("--listen-port={PEER_PORT}"));
    aria2.arg("--dir").arg(options.downloads);
    if options.role == Role::Seeder {
        aria2.arg("--check-integrity=true");
    }
    if let Some(certificate) = options.certificate {
        aria2.arg("--check-certificate=true").arg("--ca-certificate").arg(certificate);
    }
    aria2.arg(options.torrent).env("HOME", options.state);
    Ok(aria2)
}

/// rTorrent (Debian package `rtorrent`).
pub(super) fn rtorrent(host: &Host, options: &LaunchOptions<'_>) -> Result<Command> {
    let session = options.state.join("session");
    fs::create_dir(&session).context("cannot create rTorrent's session directory")?;
    // If 0.9.8 hashed the whole torrent again on completion, it would delay "completed" until its next regular
    // announce.
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
        downloads = options.downloads.display(),
        session = session.display(),
    );
    let trust = options.certificate.map(|certificate| {
        format!("network.http.cacert.set = {}\nnetwork.http.ssl_verify_peer.set = 1\n", certificate.display())
    });
    let settings = settings + &trust.unwrap_or_default();
    let file = options.state.join("rtorrent.rc");
    fs::write(&file, settings).context("cannot write rTorrent's settings")?;
    let mut rtorrent = host.command("rtorrent")?;
    rtorrent.args(["-n", "-o"]).arg(format!("import={}", file.display()));
    rtorrent.arg(options.torrent).env("HOME", options.state);
    Ok(rtorrent)
}

/// WebTorrent (npm package `webtorrent`) in Chromium (Debian package `chromium`), driven by a script for Node.js.
pub(super) fn webtorrent(host: &Host, options: &LaunchOptions<'_>) -> Result<Command> {
    let mut driver = host.command("node")?;
    driver.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/interop/client/webtorrent/driver.mjs"));
    driver.arg(tools::program("chromium")?).arg(tools::node_module(WEBTORRENT_BUNDLE)?);
    driver.arg(options.torrent).arg(options.downloads).arg(options.state);
    driver.arg(if options.role == Role::Seeder { "seeder" } else { "leecher" });
    driver.args(options.certificate).env("HOME", options.state);
    Ok(driver)
}
