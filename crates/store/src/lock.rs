//! The lock of a shard.
//!
//! It is mostly held for microseconds, by threads that have a processor each. A thread that finds it taken therefore
//! spins, and sleeps only if the holder takes longer or seems to have lost its processor. There is no queue of waiters: where
//! there is one, every thread that comes while another one sleeps has to sleep as well, and a lock that was taken for a
//! moment stays crowded. Without a queue, the release is a plain store, which takes half of the cost of an uncontended
//! lock away.
//!
//! The lock is not fair. A thread locks a shard only once in each pass over a batch, so it leaves the others time.
//!
//! There are four shards of a family for each worker, at least 8 and at most 256. More shards would leave more pages
//! partly filled, and fewer requests of a batch would share a lock. A worker holds a lock for about a microsecond at a
//! time, for some twenty if a whole batch concerns one large swarm, and for some hundred during a step of expiry.
//! `tests/lock.rs` explores all interleavings by loom. Sums for the metrics stand beside the lock as plain atomics, and
//! are written only if they change.

use core::time::Duration;

use crate::sync::{AtomicBool, Ordering, sleep, spin_loop};

/// Number of times that a waiting thread looks at the lock before it sleeps, and again after each sleep. A pause between two looks takes some 10 to
/// 50 ns, depending on the processor, so this is 5 to 25 µs. There is no clock to measure it.
const SPINS_MAX: u32 = 512;

/// Time for which a waiting thread sleeps between two looks.
const SLEEP: Duration = Duration::from_micros(50);

/// A flag that one thread at a time can hold.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) is_held: AtomicBool,
}

impl Lock {
    /// Takes the lock unless another thread holds it. Returns whether it did.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits for the lock and takes it.
    #[inline]
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    /// Releases the lock. The caller holds it.
    #[inline]
    pub(crate) fn release(&self) {
        self.is_held.store(false, Ordering::Release);
    }

    #[cold]
    fn wait(&self) {
        let mut spins = 0;
        loop {
            // The line of a lock that is only looked at stays in the caches of all who wait.
            while self.is_held.load(Ordering::Relaxed) {
                if spins < SPINS_MAX {
                    spins += 1;
                    spin_loop();
                } else {
                    sleep(SLEEP);
                    // One look after each sleep would seldom meet a lock that others keep busy while it is free.
                    spins = 0;
                }
            }
            if self.try_lock() {
                return;
            }
        }
    }
}
