//! Sets up the allocator, and makes it return memory to the system.
//!
//! The program uses the allocator of the C library. By default, glibc raises its mmap threshold to the size of the
//! largest freed block. From then on even large buffers lie between small ones, and the process keeps their memory
//! when they are freed. With a fixed threshold and an occasional trim, little memory stays (bench-runs/ways-tried.md
//! has figures, also for other allocators).
//!
//! mimalloc 2 and 3 cost as much CPU time, take 12 to 18 MiB when idle, exceeded the memory in use by 300 MiB under
//! attack, and retained up to 800 MiB of it. jemalloc needs `make` and a shell to be built.
#![allow(unsafe_code, reason = "the functions of the C library that set up its allocator")]

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
