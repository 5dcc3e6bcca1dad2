//! The numbers of the lists, for the metrics.

use std::sync::{Arc, Mutex, PoisonError};

use shoal_access::budget::Budget;
use shoal_access::rules::RuleCounter;
use shoal_access::torrents::TorrentTable;
use shoal_base::metrics::Gauge;
use shoal_engine::watch::Cause;

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
    /// The numbers of sources of `access.networks_allow`, `access.networks_deny` and `access.geoip` that could not be
    /// read as a whole.
    pub faulty_networks: [Gauge; 3],
    /// The numbers of bans that sources have earned.
    pub bans: BanCounters,
    /// The counters of the rules, in their order.
    rules: Mutex<Vec<Arc<RuleCounter>>>,
    /// The numbers of every source of every list, in the order of the configuration.
    sources: Mutex<Vec<Arc<SourceCounter>>>,
    /// The heartbeat of the thread that follows the files.
    pub heartbeat: ReaderHeartbeat,
}

/// The numbers of bans that sources have earned.
#[derive(Debug, Default)]
pub struct BanCounters {
    /// The sources that have been banned since the start, by the index of the cause.
    pub earned: [Gauge; Cause::ALL.len()],
    /// The bans that apply.
    pub active: Gauge,
}

/// The numbers of one source.
#[derive(Debug)]
pub struct SourceCounter {
    /// The key of the list.
    pub list: &'static str,
    /// The source, without the secrets of a URL.
    pub source: String,
    /// How often the source was read with a fault.
    pub failures: Gauge,
    /// When the source was known to be good, or was configured.
    good_unix_s: Gauge,
    /// Faulty lines of the version that was read last.
    pub faulty_lines: Gauge,
    /// 1 if the last version of the source was refused, so that the one before applies, or else 0.
    pub is_refused: Gauge,
    fault: Mutex<Option<String>>,
}

/// The numbers of one list of torrents.
#[derive(Debug, Default)]
pub struct ListCounter {
    /// Torrents.
    pub torrents: Gauge,
    /// The memory of its tables.
    pub bytes: Gauge,
    /// Sources that could not be read as a whole.
    pub faulty_sources: Gauge,
    /// When its tables were built.
    pub applied_unix_s: Gauge,
}

impl ListCounters {
    /// Creates the numbers of lists that take their memory from a budget.
    pub(super) fn new(budget: &Budget) -> Self {
        Self { budget: budget.clone(), ..Self::default() }
    }

    pub(super) fn set_sources(&self, sources: Vec<Arc<SourceCounter>>) {
        *self.sources.lock().unwrap_or_else(PoisonError::into_inner) = sources;
    }

    /// Returns the counters of the rules.
    pub fn rules(&self) -> Vec<Arc<RuleCounter>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the counters of the rules by those that are asked for. A rule that stays keeps its number.
    pub(super) fn rule_counters(&self) -> impl FnMut(&str) -> Arc<RuleCounter> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let mut old = std::mem::take(&mut *rules);
        move |text| {
            let known = old.iter().position(|counter| counter.rule == text);
            let counter =
                known.map_or_else(|| Arc::new(RuleCounter::new(text)), |index| old.swap_remove(index));
            rules.push(Arc::clone(&counter));
            counter
        }
    }

    /// Returns the numbers of each source.
    pub fn sources(&self) -> Vec<Arc<SourceCounter>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl SourceCounter {
    pub(super) fn new(list: &'static str, source: String) -> Self {
        let counter = Self {
            list,
            source,
            failures: Gauge::default(),
            good_unix_s: Gauge::default(),
            faulty_lines: Gauge::default(),
            is_refused: Gauge::default(),
            fault: Mutex::default(),
        };
        counter.set_good();
        counter
    }

    /// Records the number of faulty lines, and a description of the source's fault.
    pub(super) fn set_faults(&self, faulty_lines: u64, fault: Option<String>) {
        self.faulty_lines.set(faulty_lines);
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Returns what is wrong with the source, if anything is.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that the source was read without a fault, or is still as it was then.
    pub(super) fn set_good(&self) {
        self.good_unix_s.set(clock::unix_s());
    }

    /// Returns the seconds since the source was known to be good, or since it was configured.
    pub fn age_s(&self) -> u64 {
        clock::unix_s().saturating_sub(self.good_unix_s.read())
    }
}

impl ListCounter {
    /// Records that these tables apply from now on.
    pub(super) fn set_tables(&self, tables: &[Arc<TorrentTable>]) {
        let sum = |of: fn(&TorrentTable) -> usize| tables.iter().map(|table| of(table) as u64).sum();
        self.torrents.set(sum(TorrentTable::len));
        self.bytes.set(sum(TorrentTable::bytes));
        self.applied_unix_s.set(clock::unix_s());
    }
}
