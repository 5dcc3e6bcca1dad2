//! A value that one thread replaces and others follow, without making them wait.
//!
//! A reader compares a number per batch, which is one load of a cache line that no thread writes between two changes.
//! Only after a change does it take the lock, for as long as it takes to clone an [`Arc`]. It never waits for the lock:
//! if the writer holds it, the reader keeps the old value and looks again at its next batch.
//!
//! `tests/published.rs` compiles this file with the types of loom and checks all interleavings.

use std::sync::{Arc, PoisonError};

use super::sync::{AtomicU64, Mutex, Ordering};

/// The latest value, shared by its writer and all readers. It has its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub struct Published<T> {
    /// The number of replacements so far. It changes only while the lock is held.
    version: AtomicU64,
    value: Mutex<Arc<T>>,
    /// For each reader, the latest version that it uses.
    adopted: Mutex<Vec<Arc<AtomicU64>>>,
}

/// A reader of a published value.
#[derive(Debug)]
pub struct Subscription<T> {
    published: Arc<Published<T>>,
    /// The version that [`Subscription::update`] last returned.
    version: u64,
    /// The version that [`Subscription::acknowledge`] last named.
    adopted: Arc<AtomicU64>,
}

impl<T> Published<T> {
    /// Publishes the first value.
    pub fn new(value: Arc<T>) -> Self {
        Self { version: AtomicU64::new(0), value: Mutex::new(value), adopted: Mutex::new(Vec::new()) }
    }

    /// Replaces the value by the result of `change`. Several writers change one part each, and none loses another's
    /// changes. Returns the new version.
    pub fn replace(&self, change: impl FnOnce(&T) -> T) -> u64 {
        let mut current = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(change(&current));
        self.version.fetch_add(1, Ordering::Release) + 1
    }

    /// Returns whether every reader uses this version, or a later one, and nothing before it.
    pub(crate) fn is_adopted(&self, version: u64) -> bool {
        let adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        adopted.iter().all(|adopted| adopted.load(Ordering::Acquire) >= version)
    }

    /// Returns the latest value.
    pub fn latest(&self) -> Arc<T> {
        Arc::clone(&self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a reader of all values after the first.
    pub fn subscribe(self: &Arc<Self>) -> Subscription<T> {
        let mut all = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        let adopted = Arc::new(AtomicU64::new(0));
        all.push(Arc::clone(&adopted));
        Subscription { published: Arc::clone(self), version: 0, adopted }
    }
}

impl<T> Subscription<T> {
    /// Returns the latest value, if it was replaced since the last call. Never blocks.
    pub fn update(&mut self) -> Option<Arc<T>> {
        if self.published.version.load(Ordering::Acquire) == self.version {
            return None;
        }
        let value = self.published.value.try_lock().ok()?;
        // The lock keeps version and value together: a version that is read without it may belong to a later value,
        // which would then be missed.
        self.version = self.published.version.load(Ordering::Relaxed);
        Some(Arc::clone(&value))
    }

    /// Tells the writers that the reader uses the value that [`Subscription::update`] last returned, and has finished
    /// all work with earlier ones.
    pub fn acknowledge(&self) {
        self.adopted.store(self.version, Ordering::Release);
    }
}

impl<T> Drop for Subscription<T> {
    /// A dropped reader holds up no writer.
    fn drop(&mut self) {
        self.adopted.store(u64::MAX, Ordering::Release);
    }
}
