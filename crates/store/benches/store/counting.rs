//! An allocator that counts the bytes that it has allocated, and the release of what is free.
#![allow(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of bytes that are currently allocated.
pub(crate) static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns free memory of the heap to the system.
pub(crate) fn trim() {
    // SAFETY: the call has no precondition and changes no allocation (malloc_trim(3)).
    unsafe { libc::malloc_trim(0) };
}

/// Counts, and delegates to the system's allocator.
pub(crate) struct Counting;

// SAFETY: every call is forwarded unchanged to the system's allocator, which upholds the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(start, layout) }
    }
}
