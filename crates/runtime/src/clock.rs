//! The clock: the only module of the tracker that reads the time.
//!
//! All other code gets the time as an argument, so that a test can run the whole life of a swarm in microseconds. The
//! coarse clocks of the kernel cost no system call and are accurate to a few milliseconds, which is enough for seconds.
//! A worker reads them once for each batch and once for each poll round.

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use shoal_engine::Now;

/// Returns the clock readings for a batch.
pub fn now() -> Now {
    let monotonic_ms = monotonic_ms();
    Now { monotonic_s: whole_seconds(monotonic_ms), monotonic_ms, unix_s: unix_s() }
}

/// Returns the milliseconds since a moment before the start, on the monotonic clock.
pub fn monotonic_ms() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0) * 1000 + nanoseconds.unwrap_or(0) / 1_000_000
}

/// Returns nanoseconds on the exact monotonic clock. Reading it takes some tens of nanoseconds, ten times as long as
/// the coarse clocks.
pub fn precise_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0) * 1_000_000_000 + nanoseconds.unwrap_or(0)
}

/// Returns the milliseconds since 1970. The value may jump.
pub fn unix_ms() -> u64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0) * 1000 + nanoseconds.unwrap_or(0) / 1_000_000
}

/// Returns the date and the time of day of milliseconds since 1970, at most the end of the year 9999.
pub fn utc(unix_ms: u64) -> Timestamp {
    i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX)
}

/// Returns the processor time of the calling thread in milliseconds. This is a system call.
pub fn thread_cpu_ms() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0) * 1000 + nanoseconds.unwrap_or(0) / 1_000_000
}

/// Returns the seconds of the monotonic clock. They would overflow after 136 years without a reboot.
pub fn whole_seconds(ms: u64) -> u32 {
    u32::try_from(ms / 1000).unwrap_or(u32::MAX)
}

/// Returns the seconds since 1970. All hosts agree on them, so that trackers with the same key agree on the slots of
/// connection ids. The value may jump.
pub fn unix_s() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}
