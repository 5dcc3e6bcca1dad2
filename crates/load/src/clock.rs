//! The one place where the generator reads the clock.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Counts nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "a load generator measures time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[expect(clippy::disallowed_methods, reason = "a load generator measures time")]
    pub(crate) fn now_ns(self) -> u64 {
        nanoseconds(self.0.elapsed())
    }
}

/// A duration as nanoseconds; 500 years are as good as for ever.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time that this thread has used.
pub(crate) fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
