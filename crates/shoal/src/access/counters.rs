//! The numbers of the lists, for the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shoal_access::torrents::TorrentTable;

use crate::clock;

/// The numbers of both lists.
#[derive(Debug, Default)]
pub(crate) struct ListCounters {
    pub(crate) allow: ListCounter,
    pub(crate) deny: ListCounter,
}

/// The numbers of one list.
#[derive(Debug, Default)]
pub(crate) struct ListCounter {
    torrents: AtomicU64,
    bytes: AtomicU64,
    faulty_sources: AtomicU64,
    applied_unix_s: AtomicU64,
}

impl ListCounters {
    /// Returns the memory of both lists.
    pub(crate) fn bytes(&self) -> u64 {
        self.allow.bytes() + self.deny.bytes()
    }
}

impl ListCounter {
    /// Records that these tables apply from now on.
    pub(super) fn set_tables(&self, tables: &[Arc<TorrentTable>]) {
        let sum = |of: fn(&TorrentTable) -> usize| tables.iter().map(|table| of(table) as u64).sum();
        self.torrents.store(sum(TorrentTable::len), Ordering::Relaxed);
        self.bytes.store(sum(TorrentTable::bytes), Ordering::Relaxed);
        self.applied_unix_s.store(clock::unix_s(), Ordering::Relaxed);
    }

    /// Records the number of sources that could not be read as a whole.
    pub(super) fn set_faulty(&self, sources: usize) {
        self.faulty_sources.store(sources as u64, Ordering::Relaxed);
    }

    /// Returns the number of torrents.
    pub(crate) fn torrents(&self) -> u64 {
        self.torrents.load(Ordering::Relaxed)
    }

    /// Returns the memory of its tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of sources that could not be read as a whole.
    pub(crate) fn faulty_sources(&self) -> u64 {
        self.faulty_sources.load(Ordering::Relaxed)
    }

    /// Returns when its tables were built.
    pub(crate) fn applied_unix_s(&self) -> u64 {
        self.applied_unix_s.load(Ordering::Relaxed)
    }
}
