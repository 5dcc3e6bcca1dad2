//! The memory that lists may take.
//!
//! Each holder of list entries has a [`Share`] of one [`Budget`], and names the memory before it takes it. A share that
//! does not fit takes nothing from then on, but continues to count, so that the operator learns how much memory the
//! list would need.
//!
//! A table names the peak memory of its construction, and holds its share until it is dropped. So an old table counts
//! while a worker or the log uses it. A list that does not fit is read to its end without being stored. The table of
//! networks is rebuilt from all lists whenever one of them changes, so its memory is charged apart from its lists.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The size of the steps in which a share grows.
const STEP_BYTES: u64 = 64 << 10;

/// The memory that all lists may take together. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct Budget(Arc<State>);

#[derive(Debug)]
struct State {
    bytes_max: u64,
    /// The bytes of all shares together.
    taken: AtomicU64,
}

impl Budget {
    /// Creates a budget of this number of bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(State { bytes_max, taken: AtomicU64::new(0) }))
    }

    /// Returns the bytes that lists may take.
    pub fn bytes_max(&self) -> u64 {
        self.0.bytes_max
    }

    /// Returns the bytes that lists take.
    pub fn taken(&self) -> u64 {
        self.0.taken.load(Ordering::Relaxed)
    }

    fn try_take(&self, bytes: u64) -> bool {
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= self.0.bytes_max);
        self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

impl Default for Budget {
    /// A budget without a limit, for commands and for tables that are bounded otherwise.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

/// One holder's part of a [`Budget`], which returns when the holder is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    /// The bytes taken from the budget.
    taken: u64,
    /// The bytes that the holder needs.
    needed: u64,
    /// The bytes of other holders when this one's did not fit.
    others: Option<u64>,
}

/// The error that a list does not fit in the memory of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory {
    /// The bytes that it would need.
    pub needed: u64,
    /// The bytes that lists may take.
    pub bytes_max: u64,
    /// The bytes that other lists, or its entries until now, take.
    pub others: u64,
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        write!(
            f,
            "it would need {} MiB of memory, but of the {} MiB that lists may take (a part of memory.max), {} MiB are taken",
            mib(self.needed),
            self.bytes_max >> 20,
            mib(self.others)
        )
    }
}

impl core::error::Error for NoMemory {}

impl Share {
    /// Creates a share that takes nothing yet.
    pub fn of(budget: &Budget) -> Self {
        Self { budget: budget.clone(), taken: 0, needed: 0, others: None }
    }

    /// Asks for more bytes. Returns whether the holder may take them. Once a request did not fit, the holder may take
    /// no more, and has to free its memory.
    pub fn need(&mut self, bytes: u64) -> bool {
        self.needed = self.needed.saturating_add(bytes);
        if self.others.is_some() {
            return false;
        }
        let Some(missing) = self.needed.checked_sub(self.taken).filter(|missing| *missing > 0) else {
            return true;
        };
        for bytes in [missing.max(STEP_BYTES), missing] {
            if self.budget.try_take(bytes) {
                self.taken += bytes;
                return true;
            }
        }
        self.others = Some(self.budget.taken().saturating_sub(self.taken));
        self.give_back(self.taken);
        false
    }

    /// Fails with the needed memory unless everything fit.
    pub fn check(&self) -> Result<(), NoMemory> {
        let bytes_max = self.budget.bytes_max();
        self.others.map_or(Ok(()), |others| Err(NoMemory { needed: self.needed, bytes_max, others }))
    }

    /// Reduces the need to this many bytes, if it was more.
    pub fn shrink_to(&mut self, bytes: u64) {
        self.needed = self.needed.min(bytes);
        self.give_back(self.taken.saturating_sub(self.needed));
    }

    fn give_back(&mut self, bytes: u64) {
        self.taken -= bytes;
        self.budget.0.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::of(&Budget::default())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_does_not_fit_takes_nothing_and_counts_on() {
        let budget = Budget::new(10 * STEP_BYTES);
        let (mut first, mut second) = (Share::of(&budget), Share::of(&budget));
        assert!(first.need(4 * STEP_BYTES) && second.need(1));
        assert_eq!(budget.taken(), 5 * STEP_BYTES);
        assert!(second.need(6 * STEP_BYTES - 1), "the last bytes are no whole step");
        assert_eq!(budget.taken(), budget.bytes_max());
        assert!(!second.need(1) && !second.need(STEP_BYTES));
        assert_eq!(budget.taken(), 4 * STEP_BYTES);
        let (needed, others) = (7 * STEP_BYTES + 1, 4 * STEP_BYTES);
        assert_eq!(second.check(), Err(NoMemory { needed, bytes_max: budget.bytes_max(), others }));
        first.shrink_to(STEP_BYTES);
        assert_eq!((budget.taken(), first.check()), (STEP_BYTES, Ok(())));
        drop((first, second));
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn a_refusal_names_the_size() {
        let error = NoMemory { needed: (300 << 20) + 1, bytes_max: 16 << 20, others: 1 };
        let text = error.to_string();
        assert!(text.contains("need 301 MiB") && text.contains("16 MiB that") && text.contains(" 1 MiB are"));
    }
}
