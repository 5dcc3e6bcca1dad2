//! Sets up the allocator, and makes it return memory to the system.
//!
//! The program uses the allocator of the C library. By default, glibc raises its mmap threshold to the size of the
//! largest freed block. From then on even large buffers lie between small ones, and the process keeps their memory
//! when they are freed. With a fixed threshold and an occasional trim, little memory stays (bench-runs/ways-tried.md
//! has figures, also for other allocators).
//!
//! mimalloc 2 and 3 cost as much CPU time, take 12 to 18 MiB when idle, exceeded the memory in use by 300 MiB under
//! attack, and retained up to 800 MiB of it. jemalloc needs `make` and a shell to be built.
//!
//! The program has a thin layer over it ([`Allocator`]), for large blocks of zeroes.
#![allow(unsafe_code, reason = "the functions of the C library that allocate, and that set up its allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;

/// The allocator of the program: that of the C library, except that a large block of zeroes takes no memory until it is
/// used, whatever its alignment.
///
/// The C library has no function for zeroes with an alignment, so the standard library would write them all. The
/// buckets of sources begin at cache lines, and take 32 MiB when all are used.
#[derive(Debug)]
pub struct Allocator;

/// The alignment of every block of the C library.
const ALIGNMENT_OF_ALL: usize = 2 * size_of::<usize>();

/// Size in bytes from which zeroes are left to the kernel. Writing fewer costs no more than a system call.
const LARGE_BYTES_MIN: usize = 128 * 1024;

// SAFETY: every block comes from `System`, and goes back to it with its layout.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, bytes) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT_OF_ALL || layout.size() < LARGE_BYTES_MIN {
            // SAFETY: as above.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as above.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block is new, and has this size.
            unsafe { clear(block, layout.size()) };
        }
        block
    }
}

/// Makes all bytes of a block zero: lets the kernel forget its whole pages, which then read as zeroes.
///
/// # Safety
/// The block must have this size, be private memory of the allocator, and not be in use.
unsafe fn clear(block: *mut u8, bytes: usize) {
    // SAFETY: the call has no requirements.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1 << 16);
    let head = block.align_offset(page_bytes).min(bytes);
    let whole = (bytes - head) / page_bytes * page_bytes;
    // SAFETY: the pages lie in the block as a whole, so no other block loses anything. Their memory is private and has
    // no content yet.
    let failed =
        unsafe { libc::madvise(block.wrapping_add(head).cast::<c_void>(), whole, libc::MADV_DONTNEED) };
    // Locked memory cannot be forgotten.
    let (head, tail) = if failed == 0 { (head, head + whole) } else { (bytes, bytes) };
    // SAFETY: `head` is at most the size of the block, which is not in use.
    unsafe { block.write_bytes(0, head) };
    // SAFETY: `tail` is at most the size of the block as well.
    unsafe { block.wrapping_add(tail).write_bytes(0, bytes - tail) };
}

/// Size in bytes from which a block is mapped separately, and unmapped when it is freed.
#[cfg(target_env = "gnu")]
const APART_BYTES_MIN: i32 = 128 * 1024;

/// Free bytes at the end of the heap that are not returned at once, because they may be needed again.
#[cfg(target_env = "gnu")]
const SPARE_BYTES_MAX: i32 = 1 << 20;

/// Configures the allocator. To be called before other threads start.
#[cfg(target_env = "gnu")]
pub(crate) fn prepare() {
    for (parameter, value) in
        [(libc::M_MMAP_THRESHOLD, APART_BYTES_MIN), (libc::M_TRIM_THRESHOLD, SPARE_BYTES_MAX)]
    {
        // SAFETY: it changes a parameter under the lock of the allocator, and touches no memory in use.
        let _refused = unsafe { libc::mallopt(parameter, value) };
    }
}

/// Returns all unused pages to the system. The time grows with the number of free blocks, and threads that share the
/// arena wait meanwhile. Workers must not call it, and other threads should call it rarely.
#[cfg(target_env = "gnu")]
pub(crate) fn trim() {
    // SAFETY: it releases only pages without a block in use.
    let _released = unsafe { libc::malloc_trim(0) };
}

/// Other C libraries give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) const fn prepare() {}

/// Other C libraries give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) const fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a page of this process has memory (mincore(2)).
    fn is_resident(address: *mut u8) -> bool {
        let (page, mut state) = (address.map_addr(|address| address & !4095), 0);
        // SAFETY: the kernel writes one byte for one page.
        let failed = unsafe { libc::mincore(page.cast(), 1, &raw mut state) };
        assert_eq!(failed, 0);
        state & 1 == 1
    }

    #[test]
    fn large_zeroes_with_an_alignment_take_no_memory_until_they_are_used() {
        let layout = Layout::from_size_align(3 << 20, 64).unwrap();
        for _ in 0..3 {
            // SAFETY: the layout has a size.
            let block = unsafe { Allocator.alloc_zeroed(layout) };
            assert!(block.addr().is_multiple_of(64) && !is_resident(block.wrapping_add(1 << 20)));
            // SAFETY: the block has this size, and is initialised.
            let bytes = unsafe { std::slice::from_raw_parts_mut(block, layout.size()) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(7);
            // SAFETY: it is a block of this allocator with this layout.
            unsafe { Allocator.dealloc(block, layout) };
        }
    }
}
