//! The secret keys of a tracker. Its clients and its snapshots depend on them.
//!
//! With the same keys after a restart, connection ids stay valid, and a snapshot can be read in the order of the
//! tables. Swarms of private networks return only with the same keys.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use aws_lc_rs::digest::{SHA256, digest};
use shoal_base::file::Fault;

use shoal_runtime::state_directory::{StateDirectory, replace};

const BYTES: usize = 32 + 16 + 16;

const COMMENT: &str = "Secret keys of Shoal. They let others predict its tables and its connection ids.";

const CONNECTION_BYTES: usize = 16;

/// Clones share the key that a cluster has given.
#[derive(Clone)]
pub(crate) struct StateKeys {
    /// The key of the hashes of the store, 16 bytes that early versions used, and the key of connection ids.
    bytes: [u8; BYTES],
    /// The key of connection ids that all nodes of a cluster share.
    adopted: Arc<Mutex<Option<[u8; CONNECTION_BYTES]>>>,
}

impl StateKeys {
    pub(crate) fn random() -> anyhow::Result<Self> {
        Ok(Self::of_bytes(shoal_runtime::random::bytes()?))
    }

    /// Reads the keys of a directory. Creates new ones there if the keys are missing or damaged. Fails if the file
    /// cannot be read or written.
    pub(crate) fn of(directory: &StateDirectory) -> anyhow::Result<Self> {
        let file = directory.keys();
        let shown = file.display();
        let read = read_secret(&file).with_context(|| format!("the file of keys {shown} cannot be read"))?;
        match read.map(TryInto::try_into) {
            Some(Ok(bytes)) => return Ok(Self::of_bytes(bytes)),
            Some(Err(_)) => tracing::error!(
                file = %shown,
                "the file of keys is damaged; new keys replace it, so swarms of private networks and \
                 connection ids of before are lost"
            ),
            None => {}
        }
        let keys = Self::random()?;
        keys.write(&file).with_context(|| format!("the file of keys {shown} cannot be written"))?;
        Ok(keys)
    }

    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        write_secret(file, COMMENT, &self.bytes)
    }

    /// Takes over the keys of another process. Returns `None` if their form differs.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (own, adopted) = bytes.split_at_checked(BYTES)?;
        let keys = Self::of_bytes(own.try_into().ok()?);
        if !adopted.is_empty() {
            keys.adopt_connections(adopted.try_into().ok()?);
        }
        Some(keys)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let adopted = *self.adopted();
        [&self.bytes[..], adopted.as_ref().map_or(&[], |key| &key[..])].concat()
    }

    /// Makes connection ids depend on a key that other trackers share.
    pub(crate) fn adopt_connections(&self, key: [u8; CONNECTION_BYTES]) {
        *self.adopted() = Some(key);
    }

    fn adopted(&self) -> MutexGuard<'_, Option<[u8; CONNECTION_BYTES]>> {
        self.adopted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of_bytes(bytes: [u8; BYTES]) -> Self {
        Self { bytes, adopted: Arc::default() }
    }

    /// Returns the secret of the counts of sources.
    pub(crate) fn holdings(&self) -> [u64; 2] {
        self.derive(b"shoal holdings")
    }

    pub(crate) fn relay(&self) -> [u64; 2] {
        self.derive(b"shoal relay")
    }

    fn derive(&self, purpose: &[u8]) -> [u64; 2] {
        let digest = digest(&SHA256, &[purpose, &self.bytes].concat());
        let word = |index: usize| {
            digest.as_ref()[8 * index..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        [word(0), word(1)]
    }

    pub(crate) fn store(&self) -> [u64; 4] {
        core::array::from_fn(|index| u64::from_le_bytes(self.part(8 * index)))
    }

    pub(crate) fn connections(&self) -> [u8; CONNECTION_BYTES] {
        self.adopted().unwrap_or_else(|| self.part(48))
    }

    /// Returns a number that identifies the keys and reveals nothing about them.
    pub(crate) fn id(&self) -> u64 {
        let text = [b"shoal snapshot".as_slice(), &self.bytes[..48]].concat();
        let digest = digest(&SHA256, &text);
        let first = digest.as_ref().first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(first).max(1)
    }

    fn part<const N: usize>(&self, start: usize) -> [u8; N] {
        core::array::from_fn(|index| self.bytes[start + index])
    }
}

/// Writes secret bytes as a commented line of hexadecimal digits, readable for the owner only.
pub(super) fn write_secret(file: &Path, comment: &str, bytes: &[u8]) -> io::Result<()> {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    replace(file, |mut new| write!(new, "# {comment}\n{hex}\n").map(|()| (new, ())))
}

/// Returns the secret bytes in a file. Returns none if the file is missing or damaged.
pub(super) fn read_secret(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        _ => {}
    }
    let text = match shoal_base::file::read_text(file, 4096) {
        Err(error) if Fault::of(&error) == Some(Fault::NotRegular) => return Ok(Some(Vec::new())),
        read => read?,
    };
    let line = text.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
    let digits: Option<Vec<u32>> = line.chars().map(|character| character.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2)).unwrap_or_default();
    Ok(Some(digits.chunks_exact(2).map(|pair| ((pair[0] << 4 | pair[1]) & 0xff) as u8).collect()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn another_process_takes_over_the_key_of_the_cluster() {
        let keys = StateKeys::random().unwrap();
        let own = StateKeys::from_bytes(&keys.to_bytes()).unwrap();
        assert_eq!(own.connections(), keys.connections());
        keys.clone().adopt_connections([7; 16]);
        let next = StateKeys::from_bytes(&keys.to_bytes()).unwrap();
        assert_eq!((next.connections(), next.id()), ([7; 16], keys.id()));
        assert_eq!(next.holdings(), keys.holdings());
        for length in [0, BYTES - 1, BYTES + 1, BYTES + 17] {
            assert!(StateKeys::from_bytes(&vec![0; length]).is_none(), "{length}");
        }
    }

    #[test]
    fn keys_outlive_a_run_and_are_replaced_if_damaged() {
        let parent = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(&parent.path().join("state")).unwrap();
        let first = StateKeys::of(&directory).unwrap();
        let again = StateKeys::of(&directory).unwrap();
        assert_eq!(
            (first.id(), first.store(), first.connections()),
            (again.id(), again.store(), again.connections())
        );
        let mode = fs::metadata(directory.keys()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for damaged in ["", "# nothing", "abc", &"0".repeat(127), &"g".repeat(128)] {
            fs::write(directory.keys(), damaged).unwrap();
            let new = StateKeys::of(&directory).unwrap();
            assert_ne!(new.id(), first.id(), "{damaged}");
            assert_eq!(StateKeys::of(&directory).unwrap().id(), new.id());
        }
    }
}
