//! The memory thread manages the memory of the process, and serves no requests.
//!
//! It asks the kernel to back the store's memory with huge pages ahead of need: a first touch may take some
//! milliseconds, and no request should wait for it. It returns unused memory of the allocator to the system. It also
//! enforces `memory.max`: the resident memory shows memory that cannot be counted exactly, such as the allocator's
//! overhead, and the thread deducts it from the memory that connections may hold.
//!
//! A worker releases the buffers that it keeps for reuse every two seconds. The allocator returns free pages when
//! unused memory exceeds 1 MiB plus an eighth of the memory in use.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use shoal_net::stream::Budget;
use shoal_store::Store;

use crate::memory::allocator;
use shoal_control::process;
use shoal_runtime::division::Division;
use shoal_runtime::lists::ListCounters;
use shoal_runtime::periodic::PeriodicThread;

/// The period of the thread. One huge page is always ready, and holds fifty thousand torrents.
const PERIOD: Duration = Duration::from_millis(20);

/// Pieces of free memory that the thread returns to the kernel in a period. Each takes some tens of microseconds.
const TRIMS_PER_PERIOD: usize = 16;

/// Periods between two checks of the resident memory.
const WATCH_PERIODS: u32 = 5;

/// Checks after which the allocator may be trimmed again. A trim may take some milliseconds.
const TRIM_CHECKS: u32 = 20;

/// Checks from a trim to an unconditional second one. Workers return buffers to the allocator some seconds after a
/// load ends, when the first trim has passed.
const FOLLOW_UP_CHECKS: u32 = 50;

/// Unused bytes that the allocator may hold before it is trimmed, in addition to an eighth of the memory in use.
const IDLE_BYTES_MAX: u64 = 1 << 20;

/// The share of the ceiling that stays free for allocations between two checks.
const RESERVE_SHARE: u64 = 32;

/// The memory limits of connections that the thread sets.
pub(crate) struct Connections {
    budgets: Vec<Arc<Budget>>,
    bytes_max: u64,
    lists: Arc<ListCounters>,
    /// The maximum and minimum of the limit on the memory of a worker's connections.
    held_bytes_max: usize,
    held_bytes_min: usize,
    /// The minimum of unaccounted resident memory since the last trim of the allocator.
    floor_bytes: u64,
    /// Checks since the last trim.
    checks: u32,
    /// Whether another trim will follow.
    follow_up: bool,
}

pub(crate) fn start(store: Arc<Store>, mut connections: Connections) -> io::Result<PeriodicThread> {
    let mut periods = 0_u32;
    PeriodicThread::start("memory", PERIOD, move || {
        store.make_ready();
        let _may_have_more = (0..TRIMS_PER_PERIOD).all(|_| store.trim());
        if periods.is_multiple_of(WATCH_PERIODS) {
            connections.watch(&store);
        }
        periods = periods.wrapping_add(1);
    })
}

impl Connections {
    pub(crate) fn new(division: &Division, budgets: Vec<Arc<Budget>>, lists: Arc<ListCounters>) -> Self {
        let workers = std::num::NonZeroUsize::new(budgets.len()).unwrap_or(std::num::NonZeroUsize::MIN);
        let held_bytes_max = division.held_bytes_max(workers);
        for budget in &budgets {
            budget.limit(held_bytes_max);
        }
        Self {
            budgets,
            bytes_max: division.max,
            lists,
            held_bytes_max,
            held_bytes_min: held_bytes_max / 4,
            floor_bytes: 0,
            checks: 0,
            follow_up: false,
        }
    }

    /// Checks the resident memory. Limits connections if it nears the ceiling, and trims the allocator if that holds
    /// too much unused memory.
    fn watch(&mut self, store: &Store) {
        let resident_bytes = process::resident_bytes();
        let held_bytes: u64 = self.budgets.iter().map(|budget| budget.held_bytes() as u64).sum();
        let limit = self.limit(resident_bytes, held_bytes);
        for budget in &self.budgets {
            budget.limit(limit);
        }
        self.checks = self.checks.saturating_add(1);
        let lists_bytes = self.lists.budget.taken();
        let used_bytes =
            held_bytes + lists_bytes + store.totals().iter().map(|totals| totals.bytes).sum::<u64>();
        self.floor_bytes = self.floor_bytes.min(resident_bytes.saturating_sub(used_bytes));
        let is_due = self.checks >= TRIM_CHECKS && self.is_idle_too_much(resident_bytes, used_bytes);
        if is_due || self.follow_up && self.checks >= FOLLOW_UP_CHECKS {
            allocator::trim();
            self.follow_up = is_due;
            self.checks = 0;
            self.floor_bytes = process::resident_bytes().saturating_sub(used_bytes);
        }
    }

    /// Returns the memory limit of a worker's connections. `resident_bytes` include the `held_bytes` of connections.
    fn limit(&self, resident_bytes: u64, held_bytes: u64) -> usize {
        let others_bytes = resident_bytes.saturating_sub(held_bytes);
        let left_bytes = (self.bytes_max - self.bytes_max / RESERVE_SHARE).saturating_sub(others_bytes);
        let share = left_bytes / self.budgets.len().max(1) as u64;
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        share.clamp(self.held_bytes_min, self.held_bytes_max)
    }

    /// Returns whether unaccounted resident memory has grown too much since the last trim.
    const fn is_idle_too_much(&self, resident_bytes: u64, used_bytes: u64) -> bool {
        let unaccounted_bytes = resident_bytes.saturating_sub(used_bytes);
        unaccounted_bytes > self.floor_bytes + IDLE_BYTES_MAX + used_bytes / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(workers: usize) -> Connections {
        Connections {
            budgets: (0..workers).map(|_| Arc::default()).collect(),
            bytes_max: 64 << 20,
            lists: Arc::default(),
            held_bytes_max: 4 << 20,
            held_bytes_min: 1 << 20,
            floor_bytes: 8 << 20,
            checks: 0,
            follow_up: false,
        }
    }

    #[test]
    fn connections_may_hold_their_part_while_there_is_room() {
        let connections = connections(2);
        assert_eq!(connections.limit(30 << 20, 1 << 20), 4 << 20);
        // 62 MiB less 57 MiB of others, for two workers.
        assert_eq!(connections.limit(59 << 20, 2 << 20), 5 << 19);
        assert_eq!(connections.limit(70 << 20, 2 << 20), 1 << 20);
    }

    #[test]
    fn memory_is_given_back_when_more_is_idle_than_last_time() {
        let connections = connections(1);
        assert!(!connections.is_idle_too_much(9 << 20, 0));
        assert!(connections.is_idle_too_much(10 << 20, 0));
        assert!(!connections.is_idle_too_much(27 << 20, 16 << 20));
    }
}
