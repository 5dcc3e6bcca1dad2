//! The memory of a ring without a kernel, for tests. Like `ring`, it is compiled with the types of loom as well.

use std::array;
use std::sync::Arc;

use super::ring::Memory;
use super::sync::{AtomicU32, AtomicU64, Ordering};

/// The memory of a ring with `ENTRIES` entries. Their accesses are relaxed, so that only the indices order them.
#[derive(Debug)]
pub(crate) struct PlainRing<const ENTRIES: usize> {
    pub(crate) producer: AtomicU32,
    pub(crate) consumer: AtomicU32,
    entries: [AtomicU64; ENTRIES],
}

impl<const ENTRIES: usize> PlainRing<ENTRIES> {
    /// Returns an empty ring whose indices have this value.
    pub(crate) fn new(start: u32) -> Arc<Self> {
        let [producer, consumer] = [start; 2].map(AtomicU32::new);
        Arc::new(Self { producer, consumer, entries: array::from_fn(|_| AtomicU64::new(0)) })
    }
}

impl<const ENTRIES: usize> Memory for Arc<PlainRing<ENTRIES>> {
    type Entry = u64;

    fn producer(&self) -> &AtomicU32 {
        &self.producer
    }

    fn consumer(&self) -> &AtomicU32 {
        &self.consumer
    }

    fn needs_wakeup(&self) -> bool {
        true
    }

    fn entries(&self) -> u32 {
        u32::try_from(ENTRIES).expect("tests have few entries")
    }

    fn read(&self, index: u32) -> u64 {
        self.entries[index as usize % ENTRIES].load(Ordering::Relaxed)
    }

    fn write(&self, index: u32, entry: u64) {
        self.entries[index as usize % ENTRIES].store(entry, Ordering::Relaxed);
    }
}
