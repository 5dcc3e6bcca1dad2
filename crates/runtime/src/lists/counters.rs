//! The numbers of the lists, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shoal_access::budget::Budget;
use shoal_access::torrents::TorrentTable;

use crate::clock;
use crate::heartbeat::ReaderHeartbeat;

/// The numbers of all lists.
#[derive(Debug, Default)]
pub struct ListCounters {
    /// The memory of all lists.
    pub budget: Budget,
    /// The list of torrents that are served.
    pub allow: ListCounter,
    /// The list of torrents that are refused.
    pub deny: ListCounter,
    /// The numbers of sources of `access.networks_allow` and `access.networks_deny` that could not be read as a whole.
    faulty_networks: [AtomicU64; 2],
    /// The numbers of every source of every list, in the order of the configuration.
    sources: Mutex<Vec<Arc<SourceCounter>>>,
    /// The heartbeat of the thread that follows the files.
    pub heartbeat: ReaderHeartbeat,
}

/// The numbers of one source.
#[derive(Debug)]
pub struct SourceCounter {
    /// The key of the list.
    pub list: &'static str,
    /// The source, without the secrets of a URL.
    pub source: String,
    failures: AtomicU64,
    good_unix_s: AtomicU64,
    faulty_lines: AtomicU64,
    is_refused: AtomicU64,
    fault: Mutex<Option<String>>,
}

/// The numbers of one list of torrents.
#[derive(Debug, Default)]
pub struct ListCounter {
    torrents: AtomicU64,
    bytes: AtomicU64,
    faulty_sources: AtomicU64,
    applied_unix_s: AtomicU64,
}

impl ListCounters {
    /// Creates the numbers of lists that take their memory from a budget.
    pub(super) fn new(budget: &Budget) -> Self {
        Self { budget: budget.clone(), ..Self::default() }
    }

    pub(super) fn set_sources(&self, sources: Vec<Arc<SourceCounter>>) {
        *self.sources.lock().unwrap_or_else(PoisonError::into_inner) = sources;
    }

    /// Returns the numbers of each source.
    pub fn sources(&self) -> Vec<Arc<SourceCounter>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_faulty_networks(&self, sources: [usize; 2]) {
        for (counter, sources) in self.faulty_networks.iter().zip(sources) {
            counter.store(sources as u64, Ordering::Relaxed);
        }
    }

    /// Returns the numbers of sources of networks, allowed and denied, that could not be read as a whole.
    pub fn faulty_networks(&self) -> [u64; 2] {
        self.faulty_networks.each_ref().map(|sources| sources.load(Ordering::Relaxed))
    }
}

impl SourceCounter {
    pub(super) fn new(list: &'static str, source: String) -> Self {
        Self {
            list,
            source,
            failures: AtomicU64::new(0),
            good_unix_s: AtomicU64::new(clock::unix_s()),
            faulty_lines: AtomicU64::new(0),
            is_refused: AtomicU64::new(0),
            fault: Mutex::default(),
        }
    }

    /// Records whether the last version of the source was refused, so that the previous one applies.
    pub(super) fn set_refused(&self, is_refused: bool) {
        self.is_refused.store(is_refused.into(), Ordering::Relaxed);
    }

    /// Records the number of faulty lines, and a description of the source's fault.
    pub(super) fn set_faults(&self, faulty_lines: u64, fault: Option<String>) {
        self.faulty_lines.store(faulty_lines, Ordering::Relaxed);
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Returns 1 if the last version of the source was refused, or else 0.
    pub fn is_refused(&self) -> u64 {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Returns the number of faulty lines of the last version.
    pub fn faulty_lines(&self) -> u64 {
        self.faulty_lines.load(Ordering::Relaxed)
    }

    /// Returns what is wrong with the source, if anything is.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts an attempt to read the source that had a fault.
    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the source was read without a fault, or has not changed since.
    pub(super) fn set_good(&self) {
        self.good_unix_s.store(clock::unix_s(), Ordering::Relaxed);
    }

    /// Returns how often the source was read with a fault.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the seconds since the source was known to be good, or since it was configured.
    pub fn age_s(&self) -> u64 {
        clock::unix_s().saturating_sub(self.good_unix_s.load(Ordering::Relaxed))
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

    pub(super) fn set_faulty(&self, sources: usize) {
        self.faulty_sources.store(sources as u64, Ordering::Relaxed);
    }

    /// Returns the number of torrents.
    pub fn torrents(&self) -> u64 {
        self.torrents.load(Ordering::Relaxed)
    }

    /// Returns the memory of its tables.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of sources that could not be read as a whole.
    pub fn faulty_sources(&self) -> u64 {
        self.faulty_sources.load(Ordering::Relaxed)
    }

    /// Returns when its tables were built.
    pub fn applied_unix_s(&self) -> u64 {
        self.applied_unix_s.load(Ordering::Relaxed)
    }
}
