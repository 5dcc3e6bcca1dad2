//! The maps of the program in the memory of this process.
//!
//! Owns the layout of the entries, as in `bpf/generator.bpf.c`. All fields are atomic, since the program uses them,
//! too.
#![allow(unsafe_code, reason = "memory that is shared with the kernel has no safe interface")]

use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Frames in flight at most. A queue of veth holds 256 frames.
pub(super) const SLOTS: usize = 224;
pub(super) const SOURCES_MAX: usize = 256;
/// Requests in the ring. A power of two.
pub(super) const RING: usize = 8192;
pub(super) const SAMPLES: usize = 4096;
/// Words of eight bytes of a request. The longest is a scrape of ten torrents.
pub(super) const PAYLOAD_WORDS: usize = 27;
pub(super) const SCRAPE_HASHES_MAX: usize = 10;
const ERROR_WORDS: usize = 16;

/// The settings of the program, and its progress.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Control {
    /// Requests that were written to the ring.
    pub(super) produced: AtomicU64,
    /// Requests that the program has taken from the ring.
    pub(super) consumed: AtomicU64,
    pub(super) sent: AtomicU64,
    /// Slots end once so many requests were sent.
    pub(super) requests_max: AtomicU64,
    /// Latencies that were written to the samples.
    pub(super) sampled: AtomicU64,
    /// The share of connects, of 2^32.
    pub(super) connect_chance: AtomicU64,
    pub(super) magic: AtomicU64,
    pub(super) random: AtomicU64,
    /// Slots end with their reply.
    pub(super) is_stopped: AtomicU32,
    /// In the byte order of the network, like all addresses.
    pub(super) server_ip: AtomicU32,
    pub(super) sources: AtomicU32,
    pub(super) peers_max: AtomicU32,
    pub(super) next_source: AtomicU32,
    /// A flood comes from this network; the next are the bits of its hosts, or 0 if there is no flood.
    pub(super) flood_network: AtomicU32,
    pub(super) flood_hosts: AtomicU32,
    padding: AtomicU32,
    pub(super) server_port: AtomicU16,
    /// Source `n` has port `first_port + n`.
    pub(super) first_port: AtomicU16,
    /// Whether the program has seen a reply to a socket, from whose Ethernet header it knows the way back.
    pub(super) has_ethernet: AtomicU16,
    pub(super) ethernet: [AtomicU16; 7],
    pub(super) error_bytes: AtomicU32,
    pub(super) error: [AtomicU32; ERROR_WORDS],
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct Source {
    pub(super) connection_id: AtomicU64,
    pub(super) connects: AtomicU64,
    pub(super) ip: AtomicU32,
    /// Its next request is a connect.
    pub(super) must_connect: AtomicU32,
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct Slot {
    /// The transaction id of its last request, in the byte order of the network; 0: nothing is in flight.
    pub(super) transaction: AtomicU32,
    padding: AtomicU32,
    sent_ns: AtomicU64,
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct Request {
    /// The sum of its payload in words of two bytes, without its ids.
    pub(super) sum: AtomicU32,
    pub(super) bytes: AtomicU16,
    pub(super) kind: AtomicU8,
    pub(super) hashes: AtomicU8,
    pub(super) source: AtomicU32,
    padding: AtomicU32,
    pub(super) payload: [AtomicU64; PAYLOAD_WORDS],
    unused: [AtomicU64; 3],
}

const _: () = assert!(size_of::<Control>() == 184);
const _: () = assert!(size_of::<Request>() == 256 && size_of::<Slot>() == 16 && size_of::<Source>() == 24);

/// A type whose every bit pattern is valid and whose fields are all atomic.
///
/// # Safety
/// The implementor guarantees it.
pub(super) unsafe trait Shared {}

// SAFETY: it consists of atomic numbers.
unsafe impl Shared for Control {}
// SAFETY: it consists of atomic numbers.
unsafe impl Shared for Source {}
// SAFETY: it consists of atomic numbers.
unsafe impl Shared for Slot {}
// SAFETY: it consists of atomic numbers.
unsafe impl Shared for Request {}
// SAFETY: it is atomic.
unsafe impl Shared for AtomicU64 {}

#[derive(Debug)]
pub(super) struct Mapped<T> {
    first: NonNull<T>,
    entries: usize,
}

// SAFETY: the mapping has one owner, and its entries are atomic, whichever thread uses them.
unsafe impl<T: Shared> Send for Mapped<T> {}

// SAFETY: its entries are atomic, however many threads use them.
unsafe impl<T: Shared> Sync for Mapped<T> {}

impl<T: Shared> Mapped<T> {
    /// Maps an array that was created with `BPF_F_MMAPABLE`. The kernel refuses an array with fewer than `entries`.
    pub(super) fn new(map: impl AsFd, entries: usize) -> io::Result<Self> {
        let bytes = entries * size_of::<T>();
        // SAFETY: the kernel chooses where it maps the array, and nothing refers to that range yet.
        let memory = unsafe {
            mmap(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, map, 0)?
        };
        let first = NonNull::new(memory.cast()).ok_or_else(|| io::Error::other("mapped to address 0"))?;
        Ok(Self { first, entries })
    }
}

impl<T> Deref for Mapped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `new` has mapped so many entries, page-aligned, as long as `self` lives. Every bit pattern is valid, and
        // entries are atomic, so that the program may write to them at the same time.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.entries) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped this range, and all references to it have ended with the borrow of `self`.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), self.entries * size_of::<T>()) };
    }
}
