//! Memory behind a descriptor: the memory of frames, and the rings of a socket (`linux/if_xdp.h`).
//!
//! The kernel uses it too, and so does another process after a hand-over. So it is accessed through atomics and raw
//! pointers, and every offset that the kernel supplies is checked against the length of the mapping.
#![allow(unsafe_code, reason = "the memory is shared with the kernel")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;

use super::ring::Memory;

/// `XDP_RING_NEED_WAKEUP`.
const NEED_WAKEUP: u32 = 1;

#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

/// A `struct xdp_desc`: a part of a frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// The offset of its first byte in the memory of frames.
    pub(super) address: u64,
    /// Its length in bytes.
    pub(super) bytes: u32,
    /// Flags, set only for frames of several parts.
    pub(super) options: u32,
}

const _: () = assert!(size_of::<Descriptor>() == 16);

/// The memory of a ring whose entries are `E`.
#[derive(Debug)]
pub(super) struct RingMapping<E> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    first: NonNull<E>,
    entries: u32,
    /// The memory that the pointers point into.
    _mapping: Mapping,
}

// SAFETY: a mapping belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: accesses through `&Mapping` are atomic, except through pointers, for which their user vouches.
unsafe impl Sync for Mapping {}
// SAFETY: its pointers point into the mapping, which it owns, and belong to no thread either.
unsafe impl<E: Send> Send for RingMapping<E> {}

impl Mapping {
    /// Maps `bytes` bytes from an offset. The kernel provides all pages now.
    pub(super) fn new(descriptor: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, descriptor, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, bytes })
    }

    /// Maps `bytes` bytes from the start. The kernel provides all pages now, huge ones if possible.
    pub(super) fn with_huge_pages(descriptor: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: as in `new`.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, descriptor, 0) }?;
        // SAFETY: the range belongs to the new mapping, and the advice changes no contents. Without it, pages are
        // small.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        // SAFETY: likewise. Without it (before Linux 5.14), the first use of each page costs a fault.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxPopulateWrite) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, bytes })
    }

    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a pointer to `count` values at an offset, if all are within the mapping and aligned.
    pub(super) fn pointer<T>(&self, offset: usize, count: usize) -> Option<NonNull<T>> {
        let end = count.checked_mul(size_of::<T>())?.checked_add(offset)?;
        let is_within = end <= self.bytes && offset.is_multiple_of(align_of::<T>());
        // SAFETY: the offset is within the mapping, which is one allocation.
        is_within.then(|| unsafe { self.start.add(offset) }.cast())
    }

    /// Returns words from an offset.
    pub(super) fn atomic_words(&self, offset: usize, count: usize) -> Option<&[AtomicU32]> {
        let first = self.pointer::<AtomicU32>(offset, count)?;
        // SAFETY: `pointer` has checked that the words are mapped and aligned. They stay mapped as long as `self`. Any
        // value is valid.
        Some(unsafe { std::slice::from_raw_parts(first.as_ptr(), count) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the whole mapping, and all borrows of it have ended.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

impl<E> RingMapping<E> {
    /// Maps the ring of a socket at `offset`, with a number of entries that is a power of two.
    pub(super) fn new(
        socket: BorrowedFd<'_>,
        offset: u64,
        parts: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        let refuse =
            || io::Error::new(io::ErrorKind::InvalidData, "the kernel supplies a bad offset of a ring");
        let place = |offset: u64| usize::try_from(offset).map_err(|_| refuse());
        let count = usize::try_from(entries).map_err(|_| refuse())?;
        let first = place(parts.desc)?;
        let bytes = count.checked_mul(size_of::<E>()).and_then(|bytes| bytes.checked_add(first));
        let mapping = Mapping::new(socket, bytes.ok_or_else(refuse)?, offset)?;
        let index = |offset: u64| mapping.pointer(place(offset)?, 1).ok_or_else(refuse);
        let flags = parts.flags.ok_or_else(refuse)?;
        Ok(Self {
            producer: index(parts.producer)?,
            consumer: index(parts.consumer)?,
            flags: index(flags)?,
            first: mapping.pointer(first, count).ok_or_else(refuse)?,
            entries,
            _mapping: mapping,
        })
    }

    /// Returns a pointer to the entry of an index, modulo the number of entries.
    fn entry(&self, index: u32) -> NonNull<E> {
        let place = (index & (self.entries - 1)) as usize;
        // SAFETY: `new` has checked that all entries are mapped, and the place is less than their number, a power of
        // two.
        unsafe { self.first.add(place) }
    }
}

impl<E: Copy> Memory for RingMapping<E> {
    type Entry = E;

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: `new` has checked that it is mapped and aligned, and it stays mapped as long as `self`.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for the producer.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as for the producer.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    fn entries(&self) -> u32 {
        self.entries
    }

    fn read(&self, index: u32) -> E {
        // SAFETY: the entry is mapped, and consists of integers. The kernel writes it only while it is not available.
        // The read of the index that made it available acquires the kernel's writes.
        unsafe { self.entry(index).read_volatile() }
    }

    fn write(&self, index: u32, entry: E) {
        // SAFETY: the entry is mapped, and the kernel reads it only after it was published.
        unsafe { self.entry(index).write_volatile(entry) }
    }
}

/// Bytes of a mapping, which they keep alive.
#[derive(Debug)]
pub(super) struct SharedBytes {
    first: NonNull<AtomicU8>,
    count: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: the bytes are atomics, and the mapping belongs to no thread.
unsafe impl Send for SharedBytes {}

impl SharedBytes {
    /// Returns `count` bytes from an offset, if all are within the mapping.
    pub(super) fn new(mapping: &Arc<Mapping>, offset: usize, count: usize) -> Option<Self> {
        let first = mapping.pointer(offset, count)?;
        Some(Self { first, count, _mapping: Arc::clone(mapping) })
    }

    pub(super) fn as_slice(&self) -> &[AtomicU8] {
        // SAFETY: `new` has checked that the bytes are mapped. They stay so as long as `self`. Any byte is valid.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}
