//! The clock: the only place of the tracker that reads the time.
//!
//! Everything else is handed the time it needs, so that the whole life of a swarm runs in a test in microseconds.
//! The coarse clocks of the kernel cost no system call and are right to some milliseconds, which is plenty for
//! seconds; a worker reads them once for each batch and once for each turn.

use rustix::time::{ClockId, clock_gettime};
use shoal_engine::Now;

/// What the clocks say, for a batch.
pub(crate) fn now() -> Now {
    Now { monotonic_s: whole_seconds(monotonic_ms()), unix_s: unix_s() }
}

/// Milliseconds since some moment before the start, on a clock that never goes back.
pub(crate) fn monotonic_ms() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0) * 1000 + nanoseconds.unwrap_or(0) / 1_000_000
}

/// The seconds of that clock. They would overflow after 136 years without a reboot.
pub(crate) fn whole_seconds(ms: u64) -> u32 {
    u32::try_from(ms / 1000).unwrap_or(u32::MAX)
}

/// Seconds since 1970. It is the same on all hosts, so that trackers that share a key agree on the slots of
/// connection ids; and it may jump.
pub(crate) fn unix_s() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}
