//! The allocator: how it is set up, and when it gives memory back to the system.
//!
//! The allocator is that of the C library. Left to itself, glibc raises the size from which on it takes memory from the
//! system apart to that of the largest piece that was freed; from then on even large buffers lie between small ones, and
//! their memory stays when they are freed. With the size fixed and what is free given back now and then, little stays
//! (docs/benchmarking.md has figures, those of other allocators too).
#![allow(unsafe_code, reason = "the functions of the C library that set up its allocator")]

/// Size from which on a piece is taken from the system apart, and given back when it is freed.
#[cfg(target_env = "gnu")]
const APART_BYTES_MIN: i32 = 128 * 1024;

/// Free memory at the end of the heap that is not given back at once, since it may be needed again.
#[cfg(target_env = "gnu")]
const SPARE_BYTES_MAX: i32 = 1 << 20;

/// Sets the allocator up. To be called before there are other threads.
#[cfg(target_env = "gnu")]
pub(crate) fn prepare() {
    for (parameter, value) in
        [(libc::M_MMAP_THRESHOLD, APART_BYTES_MIN), (libc::M_TRIM_THRESHOLD, SPARE_BYTES_MAX)]
    {
        // SAFETY: it changes a number under the lock of the allocator, and no memory that is in use.
        let _refused = unsafe { libc::mallopt(parameter, value) };
    }
}

/// Gives back all pages that hold nothing. Takes time in proportion to the free pieces, during which threads that share
/// the arena wait: not to be called by a worker, nor often.
#[cfg(target_env = "gnu")]
pub(crate) fn trim() {
    // SAFETY: it gives back only pages that hold no piece in use.
    let _released = unsafe { libc::malloc_trim(0) };
}

/// Other C libraries give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) const fn prepare() {}

/// Other C libraries give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) const fn trim() {}
