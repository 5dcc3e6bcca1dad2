//! A counting allocator, for tests that assert that a request allocates nothing.
//!
//! It counts per thread, so that tests that run in parallel do not disturb each other, and for the whole process, to
//! reveal the allocations of threads that the test did not start itself. It is not part of any program.
#![allow(unsafe_code, reason = "an allocator is unsafe by its trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    // Initialised without an allocation, and without a destructor that could run before its last use.
    static OF_THREAD: Cell<u64> = const { Cell::new(0) };
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
}

static OF_PROCESS: AtomicU64 = AtomicU64::new(0);

/// The system allocator with counters. A test declares it as its `#[global_allocator]`.
#[derive(Debug)]
pub struct CountingAllocator;

/// Returns the number of allocations made by this thread.
#[must_use]
pub fn allocations() -> u64 {
    OF_THREAD.get()
}

/// Returns the number of bytes that this thread has allocated and not freed.
///
/// It is negative if the thread has freed memory that other threads allocated.
#[must_use]
pub fn held_bytes() -> isize {
    HELD_BYTES.get()
}

/// Returns the number of allocations made by all other threads of this process.
#[must_use]
pub fn allocations_elsewhere() -> u64 {
    OF_PROCESS.load(Ordering::Relaxed) - OF_THREAD.get()
}

/// Counts one allocation.
fn count() {
    OF_THREAD.set(OF_THREAD.get() + 1);
    OF_PROCESS.fetch_add(1, Ordering::Relaxed);
}

/// Adds the allocated bytes to the held bytes of this thread and subtracts the freed ones.
fn hold(allocated: usize, freed: usize) {
    HELD_BYTES.set(HELD_BYTES.get().wrapping_add_unsigned(allocated).wrapping_sub_unsigned(freed));
}

// SAFETY: every call is forwarded unchanged to `System`. Counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size(), 0);
        // SAFETY: the caller upholds the contract of `alloc` for `layout`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        hold(0, layout.size());
        // SAFETY: `alloc` and `realloc` return blocks of `System` only, so `block` is one of them.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        hold(size, layout.size());
        // SAFETY: `block` is one of `System`, as in `dealloc`, and the caller upholds the contract for `size`.
        unsafe { System.realloc(block, layout, size) }
    }
}
