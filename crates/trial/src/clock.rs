//! The one place that reads the clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counts nanoseconds since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "it measures real programs in real time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[expect(clippy::disallowed_methods, reason = "it measures real programs in real time")]
    pub(crate) fn now_ns(self) -> u64 {
        nanoseconds(self.0.elapsed())
    }
}

/// Returns a duration in nanoseconds. More than 500 years become the largest value.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The state that the threads of a load share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// When the last request was due that has an answer, on any lane.
    pub(crate) last_answered_due_ns: AtomicU64,
    /// The time after which no request is due any more; [`u64::MAX`] while the load goes on.
    end_ns: AtomicU64,
    /// Ends the load at once.
    cancel: AtomicBool,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            clock: Clock::start(),
            last_answered_due_ns: AtomicU64::new(0),
            end_ns: AtomicU64::new(u64::MAX),
            cancel: AtomicBool::new(false),
        }
    }

    /// Records that a request has an answer.
    pub(crate) fn answered(&self, due_ns: u64) {
        self.last_answered_due_ns.fetch_max(due_ns, Ordering::Relaxed);
    }

    /// Ends the schedule now; requests in flight may still be answered.
    pub(crate) fn end(&self) {
        self.end_ns.store(self.clock.now_ns(), Ordering::Relaxed);
    }

    /// Ends the load at once.
    pub(crate) fn cancel(&self) {
        self.end();
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Returns when the schedule ended, if it has.
    pub(crate) fn ended_ns(&self) -> Option<u64> {
        Some(self.end_ns.load(Ordering::Relaxed)).filter(|end_ns| *end_ns != u64::MAX)
    }

    /// Returns whether a thread of the load has nothing left to do: the schedule has ended, and either nothing is in
    /// flight or the grace time is over.
    pub(crate) fn is_over(&self, now_ns: u64, grace: Duration, in_flight: bool) -> bool {
        let Some(ended_ns) = self.ended_ns() else { return false };
        let grace_is_over = now_ns >= ended_ns.saturating_add(nanoseconds(grace));
        !in_flight || grace_is_over || self.cancel.load(Ordering::Relaxed)
    }
}

/// The due times of an open loop: evenly spaced, whatever the tracker does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    began_ns: u64,
    spacing_ns: f64,
    passed: u64,
}

impl Schedule {
    /// Returns a schedule from now on, of `rate` requests a second. The rate is above 0.
    pub(crate) fn new(now_ns: u64, rate: f64) -> Self {
        Self { began_ns: now_ns, spacing_ns: 1e9 / rate, passed: 0 }
    }

    /// Returns when the next request is due.
    pub(crate) fn next_ns(&self) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "no run has 2^53 requests")]
        let since_ns = self.passed as f64 * self.spacing_ns;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it saturates, as it should"
        )]
        let since_ns = since_ns as u64;
        self.began_ns.saturating_add(since_ns)
    }

    /// Takes the next request if it is due, and returns when it was due. Nothing is due from `ended_ns` on.
    pub(crate) fn take(&mut self, now_ns: u64, ended_ns: Option<u64>) -> Option<u64> {
        let due_ns = self.next_ns();
        let is_due = due_ns <= now_ns && ended_ns.is_none_or(|ended_ns| due_ns < ended_ns);
        is_due.then(|| {
            self.passed += 1;
            due_ns
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_makes_up_for_a_stall_and_ends() {
        let mut schedule = Schedule::new(1000, 1e6);
        assert_eq!(schedule.take(999, None), None);
        assert_eq!(schedule.take(1000, None), Some(1000));
        let after_a_stall: Vec<u64> = std::iter::from_fn(|| schedule.take(4500, None)).collect();
        assert_eq!(after_a_stall, [2000, 3000, 4000]);
        assert_eq!(schedule.take(9000, Some(5000)), None, "it has ended");
    }
}
