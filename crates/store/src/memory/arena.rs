//! Pages of 8 KiB from one reserved range of address space.
//!
//! This module owns the mapping and tracks the allocated pages. A [`Page`] is a unique token for its bytes, like a
//! `Box`. Types do not tie it to the life of its arena, so [`Arena::take`] is unsafe and states the contract. Its one
//! caller is [`crate::memory::Memory`], and all code above that is safe Rust. The module must not know the content of a
//! page.
//!
//! The range is private memory, or a memory file ([`MemoryFile`]). A later process can map the file and take over the
//! pages with their content ([`Claims`]).
//!
//! Up to [`SMALL_PAGES_BYTES`], the kernel backs the range with ordinary pages, so that a small store takes little
//! memory. After that, it uses huge pages (`MADV_HUGEPAGE`), because a random access then costs one miss instead of
//! two. Ordinary pages are combined once a whole huge page of them is in use ([`Arena::settle`]).
//!
//! A first touch of a huge page may take milliseconds, so a thread that serves no requests calls [`Arena::make_ready`]
//! ahead of need. Most systems back memory files only on demand, so that call asks for each huge page
//! (`MADV_COLLAPSE`). On a machine with several NUMA nodes, the pages come from all of them in turn (`mbind`), because
//! every worker uses every shard.
//!
//! A sixteenth of the ceiling is reserved for moves and shrinking, so that a full store can always become smaller.
#![allow(unsafe_code, reason = "the mapping itself; the rest of the crate is safe")]

use core::ffi::c_void;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::io;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use serde::{Deserialize, Serialize};

use crate::memory::file::MemoryFile;

/// Size of a page in bytes: small, so that unneeded pages can be released, but large enough that blocks of many sizes
/// nearly fill it.
pub(crate) const PAGE_BYTES: usize = 8192;

/// Offset at which huge pages begin. A half-used huge page wastes 1 MiB, which would matter in a smaller store.
const SMALL_PAGES_BYTES: usize = 64 << 20;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The next huge page is populated when fewer than this many pages are left before it.
const READY_PAGES_MIN: usize = HUGE_PAGE_BYTES / PAGE_BYTES / 2;

/// Fraction of the pages that is reserved for operations that reduce the memory in the end: rehashing a line,
/// shrinking. New swarms and peers never get these pages, so a full store can always shrink.
const OVERDRAFT_SHARE: usize = 16;

/// Number of free pages that stay resident, in addition to this share of the pages in use. A shard may need them a
/// moment later.
const RESIDENT_SPARE_PAGES: usize = 2;
const RESIDENT_SPARE_SHARE: usize = 128;

/// Maximum number of pages that one [`Arena::trim`] returns to the kernel. Each costs up to one system call.
const TRIM_PAGES_MAX: usize = 64;

/// Exclusive ownership of one page. It has no destructor: return it with [`Arena::put`]. The caller of [`Arena::take`]
/// guarantees that the arena outlives it.
pub(crate) struct Page(NonNull<[u8; PAGE_BYTES]>);

// SAFETY: a page is plain bytes with one owner, like a `Box<[u8; PAGE_BYTES]>`.
unsafe impl Send for Page {}
// SAFETY: a shared page can only be read, since it has no interior mutability.
unsafe impl Sync for Page {}

impl Deref for Page {
    type Target = [u8; PAGE_BYTES];

    fn deref(&self) -> &Self::Target {
        // SAFETY: the arena hands out each page once, inside its mapping, which still exists (the contract of
        // `Arena::take`). The bytes are always initialised, since the kernel zeroes them.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut Self::Target {
        // SAFETY: as in `deref`, and `&mut self` makes this the only access.
        unsafe { self.0.as_mut() }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({:p})", self.0)
    }
}

/// The range of address space and its free pages.
pub(crate) struct Arena {
    /// The whole mapping, for `munmap`.
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    /// The first huge page boundary in the mapping, and the number of bytes from there.
    base: NonNull<u8>,
    usable_bytes: usize,
    /// The memory ceiling in pages, without the overdraft.
    pages_max: usize,
    overdraft_pages: usize,
    /// Allocated pages, including the reserves of the shards.
    used: AtomicUsize,
    /// Offset in bytes up to which the kernel was asked to populate the range.
    ready_bytes: AtomicUsize,
    /// Offset in bytes up to which ordinary pages were combined into huge ones.
    settled_bytes: AtomicUsize,
    free: Mutex<Free>,
    /// Buffers for moved entries, one pair for each concurrent move.
    buffers: Mutex<Vec<MoveBuffers>>,
    /// The file that holds the memory, unless it is private.
    file: Option<MemoryFile>,
    /// Held while free pages that are in no list are returned to the kernel.
    trimming: Mutex<()>,
}

/// The free pages of an arena, by index, for an image.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FreePages {
    resident: Vec<u32>,
    released: Vec<u32>,
    fresh: u32,
}

/// The pages of a memory file that a new arena takes over. Each is claimed once.
pub(crate) struct Claims<'a> {
    arena: &'a Arena,
    is_claimed: Vec<bool>,
    unclaimed: usize,
}

/// Buffers for moved lines, before and after the move.
pub(crate) type MoveBuffers = [Vec<u8>; 2];

/// Free pages. Recently freed pages are reused first: they are resident, and perhaps still cached.
struct Free {
    resident: VecDeque<Page>,
    released: Vec<Page>,
    /// Index of the first page that was never handed out.
    fresh: usize,
}

// SAFETY: `base` is only used to compute addresses of pages, each of which has one owner.
unsafe impl Send for Arena {}
// SAFETY: as above; the free lists are behind a lock.
unsafe impl Sync for Arena {}

/// Tells AddressSanitizer which pages may be accessed. It sees every access of the process, but knows no mappings
/// (`sanitizer/asan_interface.h`).
#[cfg(shoal_asan)]
mod sanitizer {
    use core::ffi::c_void;
    use core::ptr::NonNull;

    unsafe extern "C" {
        fn __asan_poison_memory_region(start: *const c_void, bytes: usize);
        fn __asan_unpoison_memory_region(start: *const c_void, bytes: usize);
    }

    pub(super) fn forbid(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the call only changes what the sanitizer reports.
        unsafe { __asan_poison_memory_region(start.as_ptr().cast(), bytes) };
    }

    pub(super) fn permit(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the call only changes what the sanitizer reports.
        unsafe { __asan_unpoison_memory_region(start.as_ptr().cast(), bytes) };
    }
}

#[cfg(not(shoal_asan))]
mod sanitizer {
    use core::ptr::NonNull;

    pub(super) const fn forbid(_: NonNull<u8>, _: usize) {}
    pub(super) const fn permit(_: NonNull<u8>, _: usize) {}
}

impl Free {
    fn take(&mut self) -> Option<Page> {
        self.resident.pop_back().or_else(|| self.released.pop())
    }
}

/// The purpose for which pages are taken. It decides how far they may exceed the ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An entry is added: up to the ceiling, without the overdraft.
    Growing,
    /// Entries move, and need about as much memory afterwards: may use half of the overdraft.
    Moving,
    /// A table or block shrinks: may use the whole overdraft. If moves could use it up, no memory would ever become
    /// free.
    Shrinking,
}

impl Arena {
    /// Reserves address space for `bytes_max`, but takes no memory yet.
    pub(crate) fn new(bytes_max: u64, file: Option<MemoryFile>) -> io::Result<Self> {
        let too_large =
            || io::Error::new(io::ErrorKind::InvalidInput, "memory ceiling beyond the address space");
        let pages = usize::try_from(bytes_max).map_err(|_| too_large())?.div_ceil(PAGE_BYTES);
        let overdraft_pages = pages / OVERDRAFT_SHARE;
        let usable_bytes = pages
            .checked_mul(PAGE_BYTES)
            .and_then(|bytes| bytes.checked_next_multiple_of(HUGE_PAGE_BYTES))
            .ok_or_else(too_large)?;
        let mapping_bytes = usable_bytes.checked_add(HUGE_PAGE_BYTES).ok_or_else(too_large)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice does not affect existing mappings.
        let start = unsafe { mmap_anonymous(core::ptr::null_mut(), mapping_bytes, protection, flags)? };
        let mapping = NonNull::new(start.cast::<u8>()).ok_or_else(too_large)?;
        let to_border = mapping.addr().get().next_multiple_of(HUGE_PAGE_BYTES) - mapping.addr().get();
        // SAFETY: the boundary is less than a huge page away, and the mapping is longer than the range by one huge
        // page.
        let base = unsafe { mapping.add(to_border) };
        if let Some(file) = &file {
            file.extend(usable_bytes as u64)?;
            let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
            // SAFETY: the range lies inside the new mapping, of which nothing is in use yet. No other process changes
            // the file meanwhile (the contract of `MemoryFile`).
            unsafe { mmap(base.as_ptr().cast(), usable_bytes, protection, flags, file, 0)? };
        }
        let arena = Self {
            mapping,
            mapping_bytes,
            base,
            usable_bytes,
            pages_max: pages - overdraft_pages,
            overdraft_pages,
            used: AtomicUsize::new(0),
            ready_bytes: AtomicUsize::new(SMALL_PAGES_BYTES),
            settled_bytes: AtomicUsize::new(0),
            buffers: Mutex::new(Vec::new()),
            file,
            trimming: Mutex::default(),
            free: Mutex::new(Free { resident: VecDeque::new(), released: Vec::new(), fresh: 0 }),
        };
        arena.advise_huge_pages();
        sanitizer::forbid(base, usable_bytes);
        Ok(arena)
    }

    /// Asks for huge pages after the ordinary ones. A kernel without huge pages refuses, which is harmless.
    fn advise_huge_pages(&self) {
        for (advice, from, to) in [
            (Advice::LinuxNoHugepage, 0, SMALL_PAGES_BYTES),
            (Advice::LinuxHugepage, SMALL_PAGES_BYTES, self.usable_bytes),
        ] {
            let (from, to) = (from.min(self.usable_bytes), to.min(self.usable_bytes));
            if from < to {
                // SAFETY: `from` lies inside the mapping.
                let start = unsafe { self.base.add(from) };
                // SAFETY: the range lies inside the mapping, and neither advice changes its content.
                let _refused = unsafe { madvise(start.as_ptr().cast::<c_void>(), to - from, advice) };
            }
        }
    }

    /// Returns the number of pages left below the ceiling.
    pub(crate) fn pages_left(&self) -> usize {
        self.pages_max.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    pub(crate) fn pages_max(&self) -> usize {
        self.pages_max
    }

    pub(crate) fn pages_used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Moves up to `count` pages to `into`, as many as the purpose allows, and returns their number. They hold old
    /// content.
    ///
    /// # Safety
    /// The pages must not be accessed after this arena is dropped.
    pub(crate) unsafe fn take(&self, count: usize, purpose: Purpose, into: &mut Vec<Page>) -> usize {
        let overdraft = match purpose {
            Purpose::Growing => 0,
            Purpose::Moving => self.overdraft_pages / 2,
            Purpose::Shrinking => self.overdraft_pages,
        };
        let mut free = self.free.lock();
        let before = into.len();
        for _ in 0..count.min((self.pages_max + overdraft).saturating_sub(self.pages_used())) {
            let Some(page) = free.take().or_else(|| self.fresh_page(&mut free)) else { break };
            sanitizer::permit(page.0.cast(), PAGE_BYTES);
            into.push(page);
        }
        // `used` only changes under the lock. It is atomic so that it can be read without the lock.
        let taken = into.len() - before;
        self.used.store(self.pages_used() + taken, Ordering::Relaxed);
        taken
    }

    /// Takes a page that was never handed out. None may be left for a moment, while other pages return to the kernel.
    fn fresh_page(&self, free: &mut Free) -> Option<Page> {
        if free.fresh == self.pages_max + self.overdraft_pages {
            return None;
        }
        free.fresh += 1;
        Some(self.page(free.fresh - 1))
    }

    /// Puts pages into the free list.
    ///
    /// # Panics
    /// Panics if a page is from another arena, which may be gone before this one hands the page out again.
    pub(crate) fn put(&self, pages: impl Iterator<Item = Page>) {
        let mut free = self.free.lock();
        let before = free.resident.len();
        free.resident.extend(pages.inspect(|page| {
            let offset = page.0.addr().get().wrapping_sub(self.base.addr().get());
            assert!(offset < self.usable_bytes, "a page returns to its own arena");
            sanitizer::forbid(page.0.cast(), PAGE_BYTES);
        }));
        let returned = free.resident.len() - before;
        self.used.store(self.pages_used() - returned, Ordering::Relaxed);
    }

    /// Combines ordinary pages, see [`Arena::settle`], and asks the kernel to populate the next huge page ahead of
    /// need. Clearing a huge page takes a tenth of a millisecond, and up to ten milliseconds on a virtual machine whose
    /// host must find the memory first. To be called from a thread that serves no requests.
    ///
    /// Most systems give a memory file huge pages only on demand (`MADV_COLLAPSE`).
    pub(crate) fn make_ready(&self) {
        let fresh = self.free.lock().fresh;
        self.settle(fresh);
        let wanted = ((fresh + READY_PAGES_MIN) * PAGE_BYTES).next_multiple_of(HUGE_PAGE_BYTES);
        let ready = self.ready_bytes.load(Ordering::Relaxed);
        if fresh * PAGE_BYTES + READY_PAGES_MIN * PAGE_BYTES <= SMALL_PAGES_BYTES
            || wanted <= ready
            || wanted > self.usable_bytes
        {
            return;
        }
        let from = ready.max(wanted - HUGE_PAGE_BYTES);
        // SAFETY: `from` is below `wanted`, which lies inside the range.
        let start = unsafe { self.base.add(from) };
        // SAFETY: the range lies inside the mapping; populating it changes no content. Kernels before 5.14 refuse.
        let _refused =
            unsafe { madvise(start.as_ptr().cast::<c_void>(), wanted - from, Advice::LinuxPopulateWrite) };
        self.ready_bytes.store(wanted, Ordering::Relaxed);
        if self.file.is_some() {
            let _refused = self.combine(wanted - HUGE_PAGE_BYTES);
        }
    }

    /// Asks the kernel to combine the next ordinary pages into a huge page, once all of them were handed out, so that
    /// the store takes no more memory than before. A thread that accesses them meanwhile waits for a copy of 2 MiB,
    /// once for each huge page in the life of a store.
    fn settle(&self, fresh: usize) {
        let from = self.settled_bytes.load(Ordering::Relaxed);
        let to = from + HUGE_PAGE_BYTES;
        // A range of a file may have been used before it was ready.
        let end =
            if self.file.is_some() { self.usable_bytes } else { SMALL_PAGES_BYTES.min(self.usable_bytes) };
        if to > (fresh * PAGE_BYTES).min(end) {
            return;
        }
        self.settled_bytes.store(to, Ordering::Relaxed);
        let _refused = self.combine(from);
    }

    /// Asks the kernel to back the huge page at this offset with one. Keeps its content.
    fn combine(&self, from: usize) -> io::Result<()> {
        // SAFETY: the huge page lies inside the range.
        let start = unsafe { self.base.add(from) }.as_ptr().cast::<c_void>();
        // SAFETY: the range lies inside the mapping, and the advice changes no content. If huge pages are disabled, the
        // kernel refuses, which is harmless.
        let _refused = unsafe { madvise(start, HUGE_PAGE_BYTES, Advice::LinuxHugepage) };
        // SAFETY: as above: the bytes move to other physical memory, but keep their addresses. Kernels before 6.1
        // refuse, and combine the pages by themselves after a while.
        let failed = unsafe { libc::madvise(start, HUGE_PAGE_BYTES, libc::MADV_COLLAPSE) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Tests whether the kernel backs the beginning of the range with a huge page. The range must contain one. A single
    /// page is enough for that: to populate and copy all would take a third of the start of a tracker.
    pub(crate) fn probe_huge_pages(&self) -> io::Result<()> {
        let start = self.base.as_ptr().cast::<c_void>();
        // SAFETY: the range has at least one page, and populating it changes no content.
        unsafe { madvise(start, PAGE_BYTES, Advice::LinuxPopulateWrite)? };
        self.combine(0)
    }

    /// Asks the kernel to take the memory from all `nodes` in turn (a bit for each), and not from the node of the
    /// thread that touches it first.
    pub(crate) fn interleave(&self, nodes: u64) -> io::Result<()> {
        /// linux/mempolicy.h.
        const MPOL_INTERLEAVE: libc::c_int = 3;
        // The kernel reads one bit less than it is told.
        let bits = libc::c_ulong::from(u64::BITS) + 1;
        let (start, mask) = (self.mapping.as_ptr(), core::ptr::from_ref(&nodes));
        // SAFETY: the range is the mapping of this arena. The call decides only on which nodes its pages will be
        // placed, and reads 64 bits from `mask` before it returns.
        let failed = unsafe {
            libc::syscall(libc::SYS_mbind, start, self.mapping_bytes, MPOL_INTERLEAVE, mask, bits, 0)
        };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(crate) fn take_buffers(&self) -> MoveBuffers {
        self.buffers.lock().pop().unwrap_or_default()
    }

    /// Retains the buffers of a move for the next one.
    pub(crate) fn put_buffers(&self, buffers: MoveBuffers) {
        self.buffers.lock().push(buffers);
    }

    /// Returns free pages to the kernel, a bounded number per call. Returns whether there are more.
    pub(crate) fn trim(&self) -> bool {
        let _trimming = self.trimming.lock();
        let mut pages = {
            let mut free = self.free.lock();
            let spare = RESIDENT_SPARE_PAGES + self.pages_used() / RESIDENT_SPARE_SHARE;
            let excess = free.resident.len().saturating_sub(spare);
            // The oldest pages go first: the most recently freed are the most likely to be cached.
            let batch = excess.min(TRIM_PAGES_MAX);
            free.resident.drain(..batch).collect::<Vec<_>>()
        };
        if pages.is_empty() {
            return false;
        }
        pages.sort_unstable_by_key(|page| page.0);
        for run in pages.chunk_by(|a, b| a.0.addr().get() + PAGE_BYTES == b.0.addr().get()) {
            let Some(first) = run.first() else { continue };
            let start = first.0.as_ptr().cast::<c_void>();
            let bytes = run.len() * PAGE_BYTES;
            if let Some(file) = &self.file {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let offset = u64::from(self.index_of(first)) * PAGE_BYTES as u64;
                let _refused = fallocate(file, flags, offset, bytes as u64);
                continue;
            }
            // SAFETY: the run consists of pages that this function owns, inside the mapping. They read as zeroes
            // afterwards.
            let _refused = unsafe { madvise(start, bytes, Advice::LinuxDontNeed) };
        }
        self.free.lock().released.append(&mut pages);
        true
    }

    pub(crate) fn file(&self) -> Option<&MemoryFile> {
        self.file.as_ref()
    }

    /// Prevents memory from returning to the kernel while the result lives.
    pub(crate) fn pause_trimming(&self) -> MutexGuard<'_, ()> {
        self.trimming.lock()
    }

    /// Returns the free pages, for an image. Trimming must be paused and the shards locked, so that none comes or goes.
    pub(crate) fn free_pages(&self) -> FreePages {
        let free = self.free.lock();
        FreePages {
            resident: free.resident.iter().map(|page| self.index_of(page)).collect(),
            released: free.released.iter().map(|page| self.index_of(page)).collect(),
            fresh: u32::try_from(free.fresh).unwrap_or(u32::MAX),
        }
    }

    /// Returns the index of a page of this arena.
    pub(crate) fn index_of(&self, page: &Page) -> u32 {
        let offset = page.0.addr().get() - self.base.addr().get();
        u32::try_from(offset / PAGE_BYTES).expect("an arena has fewer than 2^32 pages, which are 32 TiB")
    }

    /// Makes a new arena over a memory file continue where the last one ended. Claims the free pages; all others wait
    /// for their claims. Returns `None` if there are more pages than the ceiling allows, or one occurs twice.
    pub(crate) fn resume(&self, free_pages: &FreePages) -> Option<Claims<'_>> {
        let fresh = usize::try_from(free_pages.fresh).ok()?;
        if fresh > self.pages_max + self.overdraft_pages {
            return None;
        }
        let mut claims = Claims { arena: self, is_claimed: vec![false; fresh], unclaimed: fresh };
        let mut free = self.free.lock();
        free.fresh = fresh;
        for &index in &free_pages.resident {
            free.resident.push_back(claims.claim(index)?);
        }
        for &index in &free_pages.released {
            free.released.push(claims.claim(index)?);
        }
        drop(free);
        self.used.store(claims.unclaimed, Ordering::Relaxed);
        let in_use_bytes = fresh * PAGE_BYTES;
        self.settled_bytes.store(in_use_bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, Ordering::Relaxed);
        let ready_bytes = in_use_bytes.next_multiple_of(HUGE_PAGE_BYTES).max(SMALL_PAGES_BYTES);
        self.ready_bytes.store(ready_bytes, Ordering::Relaxed);
        Some(claims)
    }

    /// Creates the token of page `index`. Must be called only once for each index.
    fn page(&self, index: usize) -> Page {
        let offset = index * PAGE_BYTES;
        assert!(offset + PAGE_BYTES <= self.usable_bytes, "`fresh` is bounded by the ceiling");
        // SAFETY: the assertion above keeps the address inside the mapping.
        let start = unsafe { self.base.add(offset) };
        Page(start.cast())
    }
}

impl Claims<'_> {
    /// Takes the page with this index, unless it does not exist or was taken before.
    pub(crate) fn claim(&mut self, index: u32) -> Option<Page> {
        let is_claimed = self.is_claimed.get_mut(index as usize)?;
        if core::mem::replace(is_claimed, true) {
            return None;
        }
        self.unclaimed -= 1;
        let page = self.arena.page(index as usize);
        sanitizer::permit(page.0.cast(), PAGE_BYTES);
        Some(page)
    }

    /// Returns whether every page has an owner.
    pub(crate) fn is_complete(&self) -> bool {
        self.unclaimed == 0
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Other mappings may get these addresses.
        sanitizer::permit(self.base, self.usable_bytes);
        // SAFETY: this arena owns the mapping. Tokens may remain, but the callers of `take` guarantee that their pages
        // are not accessed any more.
        let _ignored = unsafe { munmap(self.mapping.as_ptr().cast::<c_void>(), self.mapping_bytes) };
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("pages_max", &self.pages_max)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settling_keeps_every_byte() {
        const PAGES: usize = 3 * HUGE_PAGE_BYTES / PAGE_BYTES;
        let arena = Arena::new(64 << 20, None).unwrap();
        let mut pages = Vec::new();
        // SAFETY: `pages` goes back to the arena below.
        assert_eq!(unsafe { arena.take(PAGES, Purpose::Growing, &mut pages) }, PAGES);
        for (number, page) in (0_u32..).zip(&mut pages) {
            page[..4].copy_from_slice(&number.to_le_bytes());
            page[PAGE_BYTES - 4..].copy_from_slice(&number.to_le_bytes());
        }
        (0..5).for_each(|_| arena.make_ready());
        assert_eq!(arena.settled_bytes.load(Ordering::Relaxed), 3 * HUGE_PAGE_BYTES);
        for (number, page) in (0_u32..).zip(&pages) {
            assert_eq!(page[..4], number.to_le_bytes());
            assert_eq!(page[PAGE_BYTES - 4..], number.to_le_bytes());
        }
        arena.put(pages.into_iter());
    }

    #[test]
    #[should_panic(expected = "its own arena")]
    fn a_page_of_another_arena_is_not_taken_back() {
        let [one, other] = [(); 2].map(|()| Arena::new(64 << 20, None).unwrap());
        let mut pages = Vec::new();
        // SAFETY: `pages` is dropped before `one`, and not accessed.
        unsafe { one.take(1, Purpose::Growing, &mut pages) };
        other.put(pages.into_iter());
    }

    #[test]
    fn memory_is_taken_from_nodes_that_exist() {
        let arena = Arena::new(8 << 20, None).unwrap();
        // Some kernels and sandboxes have no memory policies at all.
        if arena.interleave(1).is_ok() {
            let nowhere = arena.interleave(1 << 63).unwrap_err();
            assert_eq!(nowhere.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_partly_used_huge_page_is_not_settled() {
        let arena = Arena::new(64 << 20, None).unwrap();
        let mut pages = Vec::new();
        // SAFETY: `pages` goes back to the arena below.
        unsafe { arena.take(HUGE_PAGE_BYTES / PAGE_BYTES - 1, Purpose::Growing, &mut pages) };
        arena.make_ready();
        assert_eq!(arena.settled_bytes.load(Ordering::Relaxed), 0);
        arena.put(pages.into_iter());
    }
}
