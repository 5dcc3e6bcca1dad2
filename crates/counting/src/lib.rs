//! An allocator that counts, for tests that show that nothing is allocated per request.
//!
//! Owns the counts: for each thread apart, so that tests side by side do not disturb each other, and for the whole
//! process, to see what threads do that the test did not start itself. It is no part of any program.
#![allow(unsafe_code, reason = "an allocator is unsafe by its trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    // Initialised without allocation, and without a destructor that would outlive its use.
    static OF_THREAD: Cell<u64> = const { Cell::new(0) };
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
}

static OF_PROCESS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counted. To be made the `#[global_allocator]` of a test.
#[derive(Debug)]
pub struct Counting;

/// How often this thread has allocated.
#[must_use]
pub fn allocations() -> u64 {
    OF_THREAD.get()
}

/// How many bytes this thread has allocated and not freed. Less than 0 where it has freed what others allocated.
#[must_use]
pub fn held_bytes() -> isize {
    HELD_BYTES.get()
}

/// How often all other threads of this process have allocated.
#[must_use]
pub fn allocations_elsewhere() -> u64 {
    OF_PROCESS.load(Ordering::Relaxed) - OF_THREAD.get()
}

fn count() {
    OF_THREAD.set(OF_THREAD.get() + 1);
    OF_PROCESS.fetch_add(1, Ordering::Relaxed);
}

/// Takes note of bytes that were allocated, or freed where they are less than 0. No allocation exceeds an `isize`.
fn hold(allocated: usize, freed: usize) {
    HELD_BYTES.set(HELD_BYTES.get().wrapping_add_unsigned(allocated).wrapping_sub_unsigned(freed));
}

// SAFETY: every call is passed on to `System` as it came. Counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size(), 0);
        // SAFETY: the caller's promise for `layout` is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        hold(0, layout.size());
        // SAFETY: the block came from `System`, since `alloc` got it there.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        hold(size, layout.size());
        // SAFETY: as for `dealloc`, and the caller's promise for `size` is the one that `System` asks for.
        unsafe { System.realloc(block, layout, size) }
    }
}
