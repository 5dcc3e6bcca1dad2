//! All interleavings of threads that use the lock of a shard, as loom explores them. The source file is compiled here
//! once more, with the types of loom.
#![forbid(unsafe_code)]

mod sync {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};

    /// Time passes in a model only when other threads run.
    pub(crate) fn sleep(_time: core::time::Duration) {
        loom::thread::yield_now();
    }
}

#[path = "../src/lock.rs"]
mod lock;

use std::sync::Arc;

use lock::Lock;
use loom::sync::atomic::{AtomicU32, Ordering};
use sync::AtomicBool;

/// A number that only the holder of the lock may change. Its steps are apart, so that two holders would lose one.
struct Guarded {
    lock: Lock,
    number: AtomicU32,
}

impl Guarded {
    fn increment(&self) {
        self.number.store(self.number.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.lock.release();
    }
}

fn model(threads: u32, body: fn(&Guarded) -> u32) {
    loom::model(move || {
        let lock = Lock { is_held: AtomicBool::new(false) };
        let guarded = Arc::new(Guarded { lock, number: AtomicU32::new(0) });
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let guarded = Arc::clone(&guarded);
                loom::thread::spawn(move || body(&guarded))
            })
            .collect();
        let mut taken = body(&guarded);
        for other in others {
            taken += other.join().expect("the thread ends");
        }
        guarded.lock.lock();
        assert_eq!(guarded.number.load(Ordering::Relaxed), taken, "no step is lost");
    });
}

#[test]
fn one_thread_at_a_time_holds_the_lock_and_sees_what_the_last_one_did() {
    model(2, |guarded| {
        guarded.lock.lock();
        guarded.increment();
        1
    });
}

#[test]
fn a_lock_that_is_only_tried_excludes_others_as_well() {
    model(3, |guarded| {
        let is_taken = guarded.lock.try_lock();
        if is_taken {
            guarded.increment();
        }
        u32::from(is_taken)
    });
}
