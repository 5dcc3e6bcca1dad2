//! The keys of TLS tickets, so that clients resume their sessions after a restart.

use std::path::PathBuf;

use shoal_session::tls::Server;

use super::keys::{read_secret, write_secret};

const COMMENT: &str =
    "Secret keys of TLS tickets. They let others read TLS 1.2 connections of the last hours.";

/// The file of a server's ticket keys. It is rewritten when they change, every few hours.
#[derive(Debug)]
pub(crate) struct TicketFile {
    file: PathBuf,
    server: Server,
    /// The version of the keys in the file.
    written: Option<u64>,
}

impl TicketFile {
    /// Restores a server's keys from the last run.
    pub(super) fn open(file: PathBuf, server: Server) -> Self {
        let shown = file.display();
        match read_secret(&file) {
            Ok(None) => {}
            Ok(Some(keys)) if server.import_ticket_keys(&keys) => {}
            Ok(Some(_)) => tracing::error!(
                file = %shown,
                "the keys of TLS tickets are damaged; new ones replace them, and clients begin new sessions"
            ),
            Err(error) => tracing::error!(
                file = %shown, %error,
                "the keys of TLS tickets cannot be read; clients begin new sessions"
            ),
        }
        Self { file, server, written: None }
    }

    pub(super) fn update(&mut self) {
        let version = self.server.ticket_keys_version();
        if self.written == Some(version) {
            return;
        }
        match write_secret(&self.file, COMMENT, &self.server.export_ticket_keys()) {
            Ok(()) => self.written = Some(version),
            Err(error) => tracing::error!(
                file = %self.file.display(), %error,
                "the keys of TLS tickets cannot be written; clients begin new sessions after a restart"
            ),
        }
    }
}
