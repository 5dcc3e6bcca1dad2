//! A file in memory that holds the pages of a store, so that another process can map them and continue. This module
//! must not know its content.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::memory::arena::Arena;

/// Size of the file that probes the kernel's support: its range is one huge page.
const PROBE_BYTES: u64 = 8192;

/// A memory file (memfd_create(2)).
///
/// Two processes must not use a store in the same file at the same time: the first must stop using its store before the
/// second begins ([`Store::freeze`](crate::Store::freeze)).
#[derive(Debug)]
pub struct MemoryFile(OwnedFd);

impl MemoryFile {
    /// Creates an empty file. Fails if the kernel has no memory files, or cannot back them with huge pages (Linux 6.1
    /// can): a large store would be slower than in private memory.
    pub fn create() -> io::Result<Self> {
        let file = || memfd_create("shoal-store", MemfdFlags::CLOEXEC).map(Self);
        Arena::new(PROBE_BYTES, Some(file()?))?.probe_huge_pages()?;
        Ok(file()?)
    }

    /// Grows the file to this size, unless it is larger. It takes no memory until it is used.
    pub(crate) fn extend(&self, bytes: u64) -> io::Result<()> {
        if rustix::fs::fstat(&self.0)?.st_size.cast_unsigned() < bytes {
            ftruncate(&self.0, bytes)?;
        }
        Ok(())
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for MemoryFile {
    fn from(file: OwnedFd) -> Self {
        Self(file)
    }
}
