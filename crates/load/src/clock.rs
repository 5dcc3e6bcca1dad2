//! The one place where the generator reads the clock.

use std::ops::Sub;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Counts nanoseconds since it was started.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at 0.
    #[expect(clippy::disallowed_methods, reason = "a load generator measures time")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the nanoseconds since the start.
    #[expect(clippy::disallowed_methods, reason = "a load generator measures time")]
    pub fn now_ns(self) -> u64 {
        nanoseconds(self.0.elapsed())
    }
}

/// Returns a duration in nanoseconds. More than 500 years become the largest value.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTime {
    pub(crate) used: Duration,
    /// How long it has waited for a processor that others kept busy; 0 if the kernel does not tell.
    pub(crate) waited: Duration,
}

impl CpuTime {
    pub(crate) fn of_thread() -> Self {
        let used = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
        // Three numbers: nanoseconds on a processor, nanoseconds in its run queue, and the number of time slices.
        let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waited_ns = schedstat.split_whitespace().nth(1).and_then(|number| number.parse().ok());
        Self { used, waited: Duration::from_nanos(waited_ns.unwrap_or(0)) }
    }

    /// Returns how long a processor has been busy, the kernel's own work included; 0 if the kernel does not tell.
    pub(crate) fn of_processor(processor: usize) -> Self {
        let name = format!("cpu{processor}");
        let statistics = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = statistics.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some(name.as_str())).then_some(words)
        });
        // User, nice, system, idle, waiting for I/O, interrupts, soft interrupts; in ticks.
        let ticks = line.into_iter().flatten().take(7).map(|word| word.parse::<u64>().unwrap_or(0));
        let busy = ticks.enumerate().filter(|(index, _)| !matches!(index, 3 | 4)).map(|(_, ticks)| ticks);
        let ticks_per_s = rustix::param::clock_ticks_per_second().max(1);
        Self {
            used: Duration::from_nanos(busy.sum::<u64>() * (1_000_000_000 / ticks_per_s)),
            waited: Duration::ZERO,
        }
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            used: self.used.saturating_sub(before.used),
            waited: self.waited.saturating_sub(before.waited),
        }
    }
}
