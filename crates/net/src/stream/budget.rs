//! What the connections of a worker may hold, and what they do hold.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The memory of one worker's connections, in bytes. The worker writes what they hold; any thread may read that, and say
/// how much it may be from now on.
#[derive(Debug)]
#[repr(align(128))] // As `StreamCounters`: workers do not slow each other down.
pub struct Budget {
    held_bytes: AtomicUsize,
    held_bytes_max: AtomicUsize,
}

impl Default for Budget {
    /// Without a limit.
    fn default() -> Self {
        Self { held_bytes: AtomicUsize::new(0), held_bytes_max: AtomicUsize::new(usize::MAX) }
    }
}

impl Budget {
    /// What the connections hold.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// What they may hold. When they hold more, the worker closes connections of the sources that hold most.
    #[must_use]
    pub fn held_bytes_max(&self) -> usize {
        self.held_bytes_max.load(Ordering::Relaxed)
    }

    /// Sets what they may hold, from the next connection on that is looked at.
    pub fn limit(&self, held_bytes_max: usize) {
        self.held_bytes_max.store(held_bytes_max, Ordering::Relaxed);
    }

    pub(super) fn note(&self, held_bytes: usize) {
        self.held_bytes.store(held_bytes, Ordering::Relaxed);
    }
}
