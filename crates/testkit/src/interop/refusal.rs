//! The scenario of a torrent that the operator denies and allows again while a client shares it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::interop::client::{Participant, Role};
use crate::interop::network::Family;
use crate::interop::payload::{Payload, Pieces};
use crate::interop::testbed::Testbed;
use crate::interop::tracker::hex;

/// The words of the operator.
pub const REASON: &str = "removed after a notice";

/// Starts a seeder whose torrent is denied, waits until it shows `words`, allows the torrent, lets the client announce again,
/// and waits until it is served.
///
/// # Errors
/// Returns an error, with the output of all programs, if a step fails.
pub fn run(client: Participant, words: &str, tracker_view: &Path) -> Result<()> {
    let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
    let denied = directory.path().join("denied");
    let payload = Payload::generate("refused", Pieces::Many);
    let info_hash = hex(&payload.torrent(&[]).info_hash);
    fs::write(&denied, format!("{info_hash} 2026-01-31 [case 4711] {REASON}\n"))?;
    // Settings live as long as the program, which is that of the tests.
    let path: &'static str = denied.display().to_string().leak();
    let settings = [("SHOAL_ACCESS_TORRENTS_DENY", path)];
    let routes: Vec<_> = client.routes().collect();
    Testbed::new(Family::V4, payload, &routes, &settings, tracker_view)?.run(|testbed| {
        testbed.start_client(client, Role::Seeder)?;
        testbed.wait_for_words(words)?;
        testbed.check_refusals("torrent_denied")?;
        testbed.check_swarm_is_gone()?;
        fs::write(&denied, "")?;
        testbed.wait_for_log("an entry of a list has changed")?;
        testbed.reannounce()?;
        testbed.wait_for_remaining_seeders()?;
        testbed.stop_clients()?;
        testbed.stop_tracker()
    })
}
