//! The state that outlives a run: the swarms with their peers, and the secret keys.
//!
//! This module owns the directory `state.path`. The tracker reads it before it serves, and writes it in the
//! background, on request, and when it stops. Snapshots have the format of `shoal_store::snapshot_file`.
//!
//! A crash loses the changes since the last snapshot: a part of the store lies outside the memory that another
//! process could continue with, and after a panic that memory may contain the mistake.
//!
//! | File | Contents |
//! |---|---|
//! | `swarms` | the last snapshot |
//! | `swarms.new` | the next one, while it is being written |
//! | `swarms.refused` | a snapshot that could not be read at all |
//! | `keys` | the secret keys, for the owner only |
//! | `tickets` | the secret keys of TLS tickets, for the owner only |
//! | `acme-account`, `acme.pem` | the account and the certificate of `crate::acme`, for the owner only |
//! | `paused` | the pauses that survive a restart, of `shoal_control::pause` |
//! | `lock` | locked by the tracker that uses the directory |

mod keys;
mod load;
mod save;
mod tickets;

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shoal_access::torrents::TorrentLists;
use shoal_config::Config;
use shoal_session::tls::Server;
use shoal_store::{Restored, Store};

pub(crate) use self::keys::StateKeys;
use self::load::{Loaded, Source};
use self::save::Content;
pub(crate) use self::save::{Requester, Saver, SnapshotWriter};
use self::tickets::TicketFile;
use crate::settings;
use shoal_runtime::clock;
use shoal_runtime::counters::SnapshotCounters;
use shoal_runtime::failure::Failure;
use shoal_runtime::state_directory::StateDirectory;

pub(crate) struct State {
    directory: Option<StateDirectory>,
    /// The keys. New, unless the directory has some.
    pub(crate) keys: StateKeys,
    /// The keys of TLS tickets, if the state has a directory.
    tickets: Option<TicketFile>,
}

impl State {
    /// Locks the directory, if one is configured, and reads the keys. If the directory has none, uses the `earlier`
    /// keys of a process whose swarms are to continue.
    pub(crate) fn open(config: &Config, earlier: Option<&[u8]>) -> Result<Self, Failure> {
        let directory = config.state.path.as_deref().map(StateDirectory::open);
        let directory = directory.transpose().map_err(Failure::Configuration)?;
        directory.as_ref().map_or(Ok(()), check_permissions)?;
        let keys = match &directory {
            Some(directory) if config.state.keys => StateKeys::of(directory)?,
            _ => match earlier.and_then(StateKeys::from_bytes) {
                Some(keys) => keys,
                None => StateKeys::random()?,
            },
        };
        Ok(Self { directory, keys, tickets: None })
    }

    /// Lets the clients of a server resume sessions of the last run, if the state has a directory.
    pub(crate) fn resume_sessions(&mut self, config: &Config, server: Server) {
        if let Some(directory) = self.directory.as_ref().filter(|_| config.state.keys) {
            self.tickets = Some(TicketFile::open(directory.tickets(), server));
        }
    }

    /// Takes over the keys and the lock of a running tracker. If the configuration names another directory than
    /// before, locks that one.
    pub(crate) fn take_over(config: &Config, keys: &[u8], lock: Option<OwnedFd>) -> Result<Self, Failure> {
        let keys = StateKeys::from_bytes(keys).context("the running tracker has keys of another form")?;
        let Some(path) = config.state.path.as_deref() else {
            return Ok(Self { directory: None, keys, tickets: None });
        };
        let directory = match lock.and_then(|lock| StateDirectory::take_over(path, lock)) {
            Some(directory) => directory,
            None => StateDirectory::open(path).map_err(Failure::Configuration)?,
        };
        if config.state.keys {
            keys.write(&directory.keys()).context("the file of keys cannot be written")?;
        }
        Ok(Self { directory: Some(directory), keys, tickets: None })
    }

    pub(crate) fn lock(&self) -> anyhow::Result<Option<OwnedFd>> {
        Ok(self.directory.as_ref().map(StateDirectory::lock).transpose()?)
    }

    pub(crate) fn snapshot_writer(&self, config: &Config, store: Arc<Store>) -> SnapshotWriter {
        SnapshotWriter { store, keys: self.keys.id(), timeout_s: config.announce.peer_timeout_s }
    }

    /// Reads a snapshot of a running tracker into the store, before any worker uses the store. Fails unless all of it
    /// can be read.
    pub(crate) fn restore_from(
        &self,
        config: &Config,
        store: &Store,
        torrents: Option<&TorrentLists>,
        snapshot: File,
    ) -> anyhow::Result<()> {
        let (timeout_s, threads) = (config.announce.peer_timeout_s, settings::workers(config));
        let begin_ms = clock::monotonic_ms();
        let source = Source { keys: self.keys.id(), torrents, timeout_s, threads };
        let loaded = load::load(store, snapshot, &source)?;
        report(Path::new("(memory)"), &loaded, clock::monotonic_ms() - begin_ms);
        Ok(())
    }

    /// Reads the last snapshot into the store, before any worker uses the store. An unreadable snapshot is set aside,
    /// and the tracker starts without peers.
    pub(crate) async fn restore(
        &self,
        config: &Config,
        store: &Arc<Store>,
        torrents: Option<Arc<TorrentLists>>,
    ) -> anyhow::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let (file, store, keys) = (directory.snapshot(), Arc::clone(store), self.keys.id());
        let (timeout_s, threads) = (config.announce.peer_timeout_s, settings::workers(config));
        let read = move || {
            let begin_ms = clock::monotonic_ms();
            let source = Source { keys, torrents: torrents.as_deref(), timeout_s, threads };
            let loaded = match shoal_base::file::open(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return tracing::info!(file = %file.display(), "there is no snapshot yet");
                }
                Ok(opened) => load::load(&store, opened, &source).map_err(|refused| refused.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match loaded {
                Ok(loaded) => report(&file, &loaded, clock::monotonic_ms() - begin_ms),
                Err(reason) => set_aside(&file, &reason),
            }
        };
        tokio::task::spawn_blocking(read).await.context("the thread that reads the snapshot has failed")
    }

    /// Starts the thread that writes snapshots, if there is a directory.
    pub(crate) fn keep(
        self,
        config: &Config,
        store: Arc<Store>,
        counters: Arc<SnapshotCounters>,
    ) -> anyhow::Result<Option<Saver>> {
        let writer = self.snapshot_writer(config, store);
        let Self { directory, tickets, .. } = self;
        let Some(directory) = directory else { return Ok(None) };
        let interval_s = config.state.interval_s;
        let interval = (interval_s > 0).then(|| Duration::from_secs(interval_s.into()));
        let saver = Saver::start(Content { directory, writer }, tickets, interval, counters);
        saver.context("cannot start the thread that writes snapshots").map(Some)
    }
}

/// Fails if this user may not read what the last run has left, for example because that run was root's. Otherwise peers would
/// be lost that the file still has.
fn check_permissions(directory: &StateDirectory) -> Result<(), Failure> {
    for file in [directory.keys(), directory.snapshot(), directory.tickets()] {
        let Err(error) = shoal_base::file::open(&file) else { continue };
        if error.kind() != io::ErrorKind::PermissionDenied {
            continue;
        }
        let owner = fs::metadata(&file)
            .map_or_else(|_| "another user".to_owned(), |file| format!("user {}", file.uid()));
        let (shown, user) = (file.display(), rustix::process::geteuid().as_raw());
        let folder = file.parent().unwrap_or(&file).display();
        return Err(Failure::Configuration(format!(
            "state.path: {shown} belongs to {owner}, and the tracker, user {user}, may not read it; \
             `chown -R {user} {folder}` as root permits it"
        )));
    }
    Ok(())
}

fn report(file: &Path, loaded: &Loaded, duration_ms: u64) {
    let Loaded { restored, forbidden, of_other_keys, damaged_bytes, is_truncated, .. } = *loaded;
    let age_s = clock::unix_s().saturating_sub(loaded.begun_unix_s);
    let Restored { peers, overdue, refused, retained } = restored;
    tracing::info!(
        file = %file.display(),
        peers,
        overdue,
        refused,
        retained,
        forbidden,
        age_s,
        duration_ms,
        "the peers of the last run are back"
    );
    if of_other_keys > 0 {
        tracing::warn!(
            swarms = of_other_keys,
            "swarms were left out, because the keys of the state are others now; swarms of private networks \
             return only with the keys with which they were written"
        );
    }
    if damaged_bytes > 0 || is_truncated {
        let written = loaded.summary.map(|summary| summary.peers);
        tracing::error!(
            file = %file.display(),
            damaged_bytes,
            is_truncated,
            peers_written = written,
            "the snapshot is damaged; the blocks that are whole were used"
        );
    }
}

/// Renames an unreadable file, so that the next snapshot does not overwrite it.
fn set_aside(file: &Path, reason: &str) {
    let aside = file.with_extension("refused");
    let renamed = fs::rename(file, &aside);
    tracing::error!(
        file = %file.display(),
        reason,
        renamed_to = %renamed.map_or_else(|error| error.to_string(), |()| aside.display().to_string()),
        "the snapshot cannot be read; the tracker starts without peers"
    );
}
