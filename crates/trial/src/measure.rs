//! Numbers and time: conversions without silent loss, and the clock that measures the tracker from outside.

use std::thread;
use std::time::{Duration, Instant};

/// Returns a count as a float; counts of a siege stay far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of a siege stay far below 2^53")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Returns `part / whole`, and 0 where there is no whole.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { as_f64(part) / as_f64(whole) }
}

/// Returns a length as a count.
pub(crate) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Returns the present time.
#[expect(clippy::disallowed_methods, reason = "the siege measures time as its clients would")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Sleeps until `moment`, or returns at once if it has passed.
pub(crate) fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(now()));
}

/// Returns whole microseconds, at most 71 minutes.
pub(crate) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// Returns a percentile of sorted values, by the nearest rank, or 0 where there are none.
pub(crate) fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or(0)
}
