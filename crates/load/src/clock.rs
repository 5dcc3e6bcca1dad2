//! The one place where the generator reads the clock.

use std::ops::Sub;
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

/// What a thread has had of the processors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effort {
    /// CPU time that it has used.
    pub(crate) cpu: Duration,
    /// How long it has waited for a processor that others kept busy; 0 where the kernel does not tell.
    pub(crate) waited: Duration,
}

impl Effort {
    /// That of this thread so far.
    pub(crate) fn of_thread() -> Self {
        let cpu = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
        // Three numbers: time on a processor and time in its queue in nanoseconds, and the count of turns.
        let account = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waited_ns = account.split_whitespace().nth(1).and_then(|number| number.parse().ok());
        Self { cpu, waited: Duration::from_nanos(waited_ns.unwrap_or(0)) }
    }
}

impl Sub for Effort {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(before.cpu), waited: self.waited.saturating_sub(before.waited) }
    }
}
