//! The lock of a shard.
//!
//! Threads hold it mostly for microseconds, and have a processor each. So a waiting thread spins, and sleeps only if
//! the holder takes longer or seems to have lost its processor. There is no queue of waiters: with a queue, every
//! thread that comes while another sleeps has to sleep as well, and a briefly held lock stays crowded. Without a queue,
//! the release is a plain store, which halves the cost of an uncontended lock.
//!
//! The lock is not fair. A thread locks a shard only once in each pass over a batch, so it leaves the others time.
//!
//! There are four shards of a family for each worker, at least 8 and at most 256. More shards would leave more pages
//! partly filled, and fewer requests of a batch would share a lock. A worker holds a lock for about a microsecond at a
//! time, for some twenty if a whole batch concerns one large swarm, and for some hundred during a step of expiry.
//! `tests/lock.rs` explores all interleavings with loom. The sums for the metrics are plain atomics beside the lock,
//! written only if they change.

use core::time::Duration;

use crate::sync::{AtomicBool, Ordering, sleep, spin_loop};

/// Number of reads of the lock before a waiting thread sleeps, and after each sleep. A pause between two reads takes
/// some 10 to 50 ns, so this is 5 to 25 µs. There is no clock to measure it.
const SPINS_MAX: u32 = 512;

/// How long a waiting thread sleeps.
const SLEEP: Duration = Duration::from_micros(50);

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
            // Plain reads leave the lock's cache line shared among all waiting threads.
            while self.is_held.load(Ordering::Relaxed) {
                if spins < SPINS_MAX {
                    spins += 1;
                    spin_loop();
                } else {
                    sleep(SLEEP);
                    // A single read after each sleep would seldom find a busy lock free.
                    spins = 0;
                }
            }
            if self.try_lock() {
                return;
            }
        }
    }
}
