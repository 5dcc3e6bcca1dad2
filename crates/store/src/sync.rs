//! The types with which threads share the store. `tests/lock.rs` replaces the atomic with loom's.

use lock_api::GuardSend;

use crate::lock::Lock;

pub(crate) use core::hint::spin_loop;
pub(crate) use core::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::thread::sleep;

/// A value behind a [`Lock`].
pub(crate) type Mutex<T> = lock_api::Mutex<Lock, T>;

/// The right to use the value of a [`Mutex`].
pub(crate) type MutexGuard<'m, T> = lock_api::MutexGuard<'m, Lock, T>;

#[allow(unsafe_code, reason = "the trait demands it")]
// SAFETY: `try_lock` returns true only if it turned the flag from false to true itself, in one atomic step, and only
// the holder turns it back, so there is one holder at most. loom checks the order of memory accesses.
unsafe impl lock_api::RawMutex for Lock {
    const INIT: Self = Self { is_held: AtomicBool::new(false) };

    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        Self::lock(self);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        Self::try_lock(self)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.release();
    }
}
