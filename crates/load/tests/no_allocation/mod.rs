//! Counts the allocations of all threads, so each test that uses it has its own binary.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shoal_load::{Pace, Report, Session, Stop, Watch};
use shoal_testkit::allocator::{CountingAllocator, allocations_elsewhere};

use crate::session::watched;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Fills the tracker, and runs a closed loop. Returns its report, and the allocations of other threads between the
/// second look and the last one, when they do nothing else.
pub(crate) fn run(session: &mut Session, window: usize) -> (Report, u64) {
    watched(|watch| session.fill(watch));
    let (first, last, looks) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let mut progress = |_: &_| {
        last.store(allocations_elsewhere(), Ordering::Relaxed);
        if looks.fetch_add(1, Ordering::Relaxed) == 1 {
            first.store(allocations_elsewhere(), Ordering::Relaxed);
        }
    };
    let stop = Stop { after: Some(Duration::from_millis(1500)), requests: None };
    let mut watch = Watch { cancel: &AtomicBool::new(false), progress: &mut progress };
    let report = session.run(Pace::Closed { window }, stop, &mut watch);
    assert!(looks.load(Ordering::Relaxed) > 2, "{report:?}");
    (report, last.into_inner() - first.into_inner())
}
