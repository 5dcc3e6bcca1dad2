//! The memory of an array map, to which the kernel and this process write concurrently.
#![allow(unsafe_code, reason = "the memory belongs to the kernel")]

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The words of an array map.
#[derive(Debug)]
pub(super) struct Mapped {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the words are atomics, and the mapping belongs to no thread.
unsafe impl Send for Mapped {}
// SAFETY: as above; the memory is accessed only through the atomics.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the first `words` words of an array map that permits it (`BPF_F_MMAPABLE`).
    pub(super) fn new(map: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address, so no other mapping is replaced. It refuses a length that exceeds the
        // map.
        let start = unsafe { mmap(ptr::null_mut(), words * 8, protection, flags, map, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, words })
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `words` words from `start` stay mapped until `self` is dropped. A page is aligned for them, any bytes
        // are valid, and both sides access whole words.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let start: *mut c_void = self.start.as_ptr().cast();
        // SAFETY: `new` mapped these bytes, and all references to them have ended with the borrows of `self`.
        let _ = unsafe { munmap(start, self.words * 8) };
    }
}
