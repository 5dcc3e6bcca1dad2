//! The directory of the state, and its files.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::replace_file;

/// The mode of a directory that the tracker creates: it has the addresses of peers, and keys.
const DIRECTORY_MODE: u32 = 0o700;

/// The mode of its files.
const FILE_MODE: u32 = 0o600;

/// A directory that no other tracker uses.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    /// Locked until it is closed, at the latest at the end of the process.
    lock: File,
}

impl StateDirectory {
    /// Locks the directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// Returns what is wrong with it, with the key, the value and what would be accepted.
    pub fn open(path: &Path) -> Result<Self, String> {
        let fault = |fault: &str| {
            format!(
                "state.path = {path:?}: {fault}; expected a directory that the tracker may write to and no other one uses, \
                 or \"\""
            )
        };
        match DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(fault(&reason(&error)));
            }
            _ => {}
        }
        let lock = path.join("lock");
        let lock = replace_file::create(&lock, FILE_MODE, false).map_err(|error| fault(&reason(&error)))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let directory = Self { path: path.to_owned(), lock };
                directory.warn_of_modes();
                Ok(directory)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(fault("another tracker uses it")),
            Err(error) => Err(fault(&format!("it cannot be locked: {error}"))),
        }
    }

    /// Warns if other users can replace or read its content.
    fn warn_of_modes(&self) {
        let of_acme = [ACME_ACCOUNT, ACME_CERTIFICATE].map(|name| self.path.join(name));
        let secrets = [self.keys(), self.tickets(), self.snapshot()].into_iter().chain(of_acme);
        let paths = [(self.path.clone(), 0o022, "750")].into_iter();
        for (path, forbidden, mode) in paths.chain(secrets.map(|file| (file, 0o077, "600"))) {
            if fs::metadata(&path).is_ok_and(|file| file.mode() & forbidden != 0) {
                tracing::warn!(
                    path = %path.display(),
                    "other users can use the secret keys and the peers of the state; `chmod {mode}` it"
                );
            }
        }
    }

    /// Uses a directory with the previous tracker's lock. Returns `None` if that lock belongs to another directory.
    pub fn take_over(path: &Path, lock: OwnedFd) -> Option<Self> {
        let lock = File::from(lock);
        let (own, named) = (lock.metadata().ok()?, fs::metadata(path.join("lock")).ok()?);
        let is_same = (own.dev(), own.ino()) == (named.dev(), named.ino());
        is_same.then(|| Self { path: path.to_owned(), lock })
    }

    /// Returns a descriptor of the lock, which is free when all of them are closed.
    pub fn lock(&self) -> io::Result<OwnedFd> {
        Ok(self.lock.try_clone()?.into())
    }

    /// Returns the file of the snapshot.
    pub fn snapshot(&self) -> PathBuf {
        self.path.join(SNAPSHOT)
    }

    /// Returns the file of the keys.
    pub fn keys(&self) -> PathBuf {
        self.path.join("keys")
    }

    /// Returns the file of the keys of TLS tickets.
    pub fn tickets(&self) -> PathBuf {
        self.path.join("tickets")
    }
}

/// Returns why the directory cannot be used. A container without its volume has a file system that is read-only.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "its file system is read-only; if this is a container, mount a volume there".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The name of the snapshot in its directory.
pub const SNAPSHOT: &str = "swarms";

/// The name of the file of the pauses that survive a restart.
pub const PAUSED: &str = "paused";

/// The name of the account at a certificate authority.
pub const ACME_ACCOUNT: &str = "acme-account";

/// The name of the certificate that it has issued, with its key.
pub const ACME_CERTIFICATE: &str = "acme.pem";

/// Like [`replace_file::replace`], for a file of this directory.
pub fn replace<T>(file: &Path, write: impl FnOnce(File) -> io::Result<(File, T)>) -> io::Result<T> {
    replace_file::replace(file, FILE_MODE, write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tracker_uses_a_directory_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        let first = StateDirectory::open(&path).unwrap();
        let refusal = StateDirectory::open(&path).unwrap_err();
        assert!(refusal.contains("another tracker uses it"), "{refusal}");
        drop(first);
        StateDirectory::open(&path).unwrap();
        StateDirectory::open(&parent.path().join("deeper/state")).unwrap();
        let no_directory = parent.path().join("file");
        fs::write(&no_directory, "").unwrap();
        let refusal = StateDirectory::open(&no_directory).unwrap_err();
        assert!(
            refusal.starts_with("state.path = ") && refusal.contains("expected a directory"),
            "{refusal}"
        );
    }
}
