//! The clock of the siege, which measures the tracker from outside.

use std::thread;
use std::time::{Duration, Instant};

/// Returns the present moment.
#[expect(clippy::disallowed_methods, reason = "the siege measures time, as its clients would")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Sleeps until `moment`, or not at all if it has passed.
pub(crate) fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(now()));
}

/// Returns whole microseconds, at most 71 minutes.
pub(crate) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}
