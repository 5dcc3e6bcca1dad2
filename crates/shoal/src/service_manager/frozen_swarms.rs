//! The swarms that the service manager keeps between two processes of the tracker.
//!
//! When the tracker stops, it freezes its store and gives the manager two memory files: the memory of the store, and
//! a file with its image, the keys and the time. The next process continues in that memory, as after an upgrade. The
//! manager drops both files when the service is stopped for good, so the tracker always writes a snapshot too.
//!
//! | State of the image | State of the memory | Why it is safe |
//! |---|---|---|
//! | from a stopped tracker | fits | the freezing process never releases the store, so nothing has changed it |
//! | used before | changed | a process that uses an image first empties its file, for every holder |
//! | from another memory | does not fit | the names of both contain a random number, and the image repeats it |
//!
//! A crash leaves no image: a part of the store lies outside the memory file, mainly the tables of its shards, and
//! goes with the process. A tracker that stops because a worker panicked makes no image either: the memory probably
//! contains the mistake, and the next process would inherit it. In both cases the next process reads the last
//! snapshot.
//!
//! A thread that never releases the store freezes it. Both processes measure time by the monotonic clock. Locks are
//! not poisoned by a panic, so a shard may be inconsistent afterwards. A snapshot is safe then, because each value
//! passes through code that checks it.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use shoal_store::{MemoryFile, Store};

use crate::service_manager::{STORED, ServiceManager};
use shoal_runtime::clock;

/// The version of the header. The image has its own.
const VERSION: u32 = 1;

const HEADER_BYTES_MAX: u32 = 4096;

/// Maximum time for the other threads to release the store, and for the manager to take it.
const KEEP_TIME_MAX: Duration = Duration::from_secs(5);

/// A frozen store is too old after this part of the timeout of peers. The stamps of peers and swarms are times modulo
/// two timeouts, which stay unambiguous only if the sweep visits them in time.
const AGE_PARTS: u32 = 2;

/// The beginning of the file of the image. The image follows.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    version: u32,
    /// Identifies this store at this moment.
    id: u64,
    /// When the store was frozen, in seconds of the monotonic clock.
    frozen_s: u32,
    keys: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct FrozenSwarms {
    header: Header,
    memory: MemoryFile,
    /// The file of the image. Its header has been read.
    image: File,
    manager: ServiceManager,
}

impl FrozenSwarms {
    /// Returns whether a descriptor from the manager belongs to swarms.
    pub(crate) fn is_part(name: &str) -> bool {
        name.starts_with(&memory_name("")) || name.starts_with(&image_name(""))
    }

    /// Takes the swarms from the descriptors that the manager has passed. Closes and discards unusable ones.
    pub(crate) fn take(mut parts: Vec<(String, OwnedFd)>, manager: &ServiceManager) -> Option<Self> {
        let mut found = None;
        while let Some(index) = parts.iter().position(|(name, _)| name.starts_with(&image_name(""))) {
            let (name, image) = parts.swap_remove(index);
            let id = name.strip_prefix(&image_name("")).unwrap_or_default();
            let memory = parts.iter().position(|(name, _)| *name == memory_name(id));
            let memory = memory.map(|index| MemoryFile::from(parts.swap_remove(index).1));
            match Self::pair(id, File::from(image), memory, manager) {
                Ok(swarms) if found.is_none() => found = Some(swarms),
                outcome => {
                    let reason =
                        outcome.map_or_else(|error| format!("{error:#}"), |_| "there are several".to_owned());
                    refuse(&reason);
                    give_up(id, manager);
                }
            }
        }
        for (name, _memory) in parts {
            refuse("there is no image of this memory");
            manager.discard(&name);
        }
        found
    }

    fn pair(
        id: &str,
        mut image: File,
        memory: Option<MemoryFile>,
        manager: &ServiceManager,
    ) -> anyhow::Result<Self> {
        let memory = memory.context("the memory of this image is missing")?;
        ensure!(image.metadata()?.len() > 0, "this image was used before");
        let header = read_header(&mut image).context("the image cannot be read")?;
        ensure!(hex(header.id) == id, "the image is that of another memory");
        Ok(Self { header, memory, image, manager: manager.clone() })
    }

    pub(crate) fn keys(&self) -> &[u8] {
        &self.header.keys
    }

    /// Continues with the store that `open` makes in the memory. No later process can use this image. Returns `None`,
    /// and logs the reason, if the memory does not fit.
    pub(crate) fn resume(
        self,
        timeout_s: u32,
        open: impl FnOnce(MemoryFile) -> anyhow::Result<Store>,
    ) -> Option<Store> {
        let Self { header, memory, mut image, manager } = self;
        let try_resume = || {
            let mut bytes = Vec::new();
            image.read_to_end(&mut bytes).context("the image cannot be read")?;
            image.set_len(0).context("the image cannot be emptied")?;
            let age_s = age_s(header.frozen_s, clock::now().monotonic_s, timeout_s)?;
            let mut store = open(memory)?;
            store.resume(&bytes)?;
            anyhow::Ok((store, age_s))
        };
        let resumed = try_resume();
        give_up(&hex(header.id), &manager);
        match resumed {
            Ok((store, age_s)) => {
                tracing::info!(age_s, "continuing with the swarms that the service manager has kept");
                Some(store)
            }
            Err(error) => {
                refuse(&format!("{error:#}"));
                None
            }
        }
    }
}

/// Freezes the store and gives it to the manager, if the manager keeps descriptors. From then on no thread can use
/// the store. All threads that this process waits for must have ended. Returns whether the next process can continue
/// with the store.
pub(crate) fn keep(store: &Arc<Store>, keys: &[u8], manager: &ServiceManager) -> bool {
    if !manager.keeps_descriptors() || store.memory_file().is_none() {
        return false;
    }
    let (store, keys, manager) = (Arc::clone(store), keys.to_owned(), manager.clone());
    let (sender, outcome) = mpsc::channel();
    let body = move || {
        store.freeze(|memory, image| {
            // The receiver may have timed out.
            let _ = sender.send(give(memory, image, keys, &manager));
            // Nothing may change in the memory any more.
            loop {
                thread::park();
            }
        });
    };
    let thread = thread::Builder::new().name("freezing".to_owned()).spawn(body);
    let given = match thread.map(|_thread| outcome.recv_timeout(KEEP_TIME_MAX)) {
        Ok(Ok(given)) => given,
        Ok(Err(_)) => Err(anyhow::anyhow!("a thread does not let go of the store")),
        Err(error) => Err(error.into()),
    };
    match &given {
        Ok(()) => {
            tracing::info!("the service manager keeps the swarms in memory while the service is started anew")
        }
        Err(error) => tracing::warn!(
            error = format!("{error:#}"),
            "the service manager does not keep the swarms; the next process reads the snapshot"
        ),
    }
    given.is_ok()
}

fn give(memory: &MemoryFile, image: &[u8], keys: Vec<u8>, manager: &ServiceManager) -> anyhow::Result<()> {
    let id = u64::from_ne_bytes(shoal_runtime::random::bytes()?);
    let header = Header { version: VERSION, id, frozen_s: clock::now().monotonic_s, keys };
    let mut file = File::from(memfd_create("shoal-image", MemfdFlags::CLOEXEC)?);
    write(&mut file, &header, image)?;
    file.rewind()?;
    let id = hex(id);
    // A memory without an image is useless, and an image without a memory is refused.
    let is_given =
        manager.store(&memory_name(&id), memory.as_fd()) && manager.store(&image_name(&id), file.as_fd());
    ensure!(is_given, "it does not take the descriptors");
    Ok(())
}

fn write(file: &mut File, header: &Header, image: &[u8]) -> anyhow::Result<()> {
    let header = postcard::to_allocvec(header)?;
    file.write_all(&u32::try_from(header.len())?.to_le_bytes())?;
    file.write_all(&header)?;
    Ok(file.write_all(image)?)
}

fn read_header(file: &mut File) -> anyhow::Result<Header> {
    file.rewind()?;
    let mut length = [0; size_of::<u32>()];
    file.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    ensure!(length <= HEADER_BYTES_MAX, "its header is too long");
    let mut bytes = vec![0; length as usize];
    file.read_exact(&mut bytes)?;
    // Another version may encode the rest differently, but its header begins with its number too.
    let (version, _) = postcard::take_from_bytes::<u32>(&bytes)?;
    if version != VERSION {
        return Err(io::Error::other(format!("it has version {version}, and not {VERSION}")).into());
    }
    Ok(postcard::from_bytes(&bytes)?)
}

/// Returns how many seconds the store was frozen, if it can still continue.
fn age_s(frozen_s: u32, now_s: u32, timeout_s: u32) -> anyhow::Result<u32> {
    let age_s = now_s.checked_sub(frozen_s).context("they are of another run of the system")?;
    ensure!(
        age_s <= timeout_s / AGE_PARTS,
        "they are {age_s} s old, and announce.peer_timeout_s is {timeout_s}"
    );
    Ok(age_s)
}

fn refuse(reason: &str) {
    tracing::warn!(
        reason,
        "the swarms that the service manager has kept cannot be used; the snapshot is read, if there is one"
    );
}

fn give_up(id: &str, manager: &ServiceManager) {
    manager.discard(&memory_name(id));
    manager.discard(&image_name(id));
}

fn memory_name(id: &str) -> String {
    format!("{STORED}memory-{id}")
}

fn image_name(id: &str) -> String {
    format!("{STORED}image-{id}")
}

fn hex(id: u64) -> String {
    format!("{id:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_frozen_for_long_is_refused() {
        assert_eq!(age_s(100, 1000, 1800).unwrap(), 900);
        assert!(age_s(100, 1001, 1800).unwrap_err().to_string().contains("901 s old"));
        assert!(age_s(100, 99, 1800).unwrap_err().to_string().contains("another run"));
    }

    #[test]
    fn a_header_of_another_version_is_refused_with_its_number() {
        let mut file = tempfile::tempfile().unwrap();
        let header = Header { version: VERSION + 1, id: 7, frozen_s: 0, keys: vec![1; 64] };
        write(&mut file, &header, b"image").unwrap();
        assert!(read_header(&mut file).unwrap_err().to_string().contains("version 2"));
    }
}
