//! When requests are due, when a run is over, and when to look for replies.

use std::time::Duration;

/// When a run of one worker is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// At this time.
    pub(crate) end_ns: u64,
    /// After so many requests.
    pub(crate) requests_max: u64,
}

/// The arrivals of an open loop: evenly spaced, whatever the tracker does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    began_ns: u64,
    spacing_ns: f64,
    /// How many are past.
    passed: u64,
}

/// A short sleep while many requests are on their way, so that replies gather: whoever wakes up for each of them uses
/// up its own time, and the tracker's, whose every reply would have to wake somebody.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nap {
    window: usize,
    time: Duration,
}

impl Timing {
    /// How many more requests there may be.
    pub(crate) fn left(&self, requests: u64) -> usize {
        usize::try_from(self.requests_max.saturating_sub(requests)).unwrap_or(usize::MAX)
    }
}

impl Arrivals {
    /// So many a second, above 0, from now on.
    pub(crate) fn new(now_ns: u64, rate: f64) -> Self {
        Self { began_ns: now_ns, spacing_ns: 1e9 / rate, passed: 0 }
    }

    /// How many arrive in a stretch of time.
    pub(crate) fn within(rate: f64, time: Duration) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it saturates, as it should"
        )]
        let count = (rate * time.as_secs_f64()) as usize;
        count
    }

    /// When the arrival `ahead` places from here is due.
    pub(crate) fn at(&self, ahead: usize) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "no run has 2^53 arrivals")]
        let since_ns = (self.passed + ahead as u64) as f64 * self.spacing_ns;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it saturates, as it should"
        )]
        let since_ns = since_ns as u64;
        self.began_ns.saturating_add(since_ns)
    }

    /// How many are due and not past.
    pub(crate) fn due(&self, now_ns: u64) -> usize {
        if now_ns < self.at(0) {
            return 0;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "no run has 2^53 arrivals, and the value is not negative"
        )]
        let arrived = ((now_ns - self.began_ns) as f64 / self.spacing_ns) as u64 + 1;
        usize::try_from(arrived.saturating_sub(self.passed)).unwrap_or(usize::MAX)
    }

    /// Lets the next ones pass.
    pub(crate) fn pass(&mut self, count: usize) {
        self.passed += count as u64;
    }
}

impl Nap {
    /// Longest nap: it must not be felt in a latency of milliseconds.
    const MAX: Duration = Duration::from_micros(300);

    pub(crate) fn new(window: usize) -> Self {
        Self { window, time: Duration::from_micros(10) }
    }

    pub(crate) fn take(&self) {
        std::thread::sleep(self.time);
    }

    /// Makes naps so long that an eighth to a half of the window is answered after one.
    pub(crate) fn learn(&mut self, answered: usize) {
        if answered > self.window / 2 {
            self.time /= 2;
        } else if answered < self.window / 8 {
            self.time = (self.time + self.time / 4 + Duration::from_micros(1)).min(Self::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_fit_the_pace_of_the_tracker() {
        let mut nap = Nap::new(256);
        (0..100).for_each(|_| nap.learn(0));
        assert_eq!(nap.time, Nap::MAX);
        (0..100).for_each(|_| nap.learn(64));
        assert_eq!(nap.time, Nap::MAX);
        (0..100).for_each(|_| nap.learn(256));
        assert!(nap.time < Duration::from_micros(1), "{:?}", nap.time);
    }

    #[test]
    fn arrivals_keep_their_pace_whatever_happens() {
        let mut arrivals = Arrivals::new(1000, 1e6);
        assert_eq!((arrivals.due(999), arrivals.due(1000), arrivals.due(1999)), (0, 1, 1));
        assert_eq!((arrivals.at(0), arrivals.at(3)), (1000, 4000));
        // A stall of a millisecond owes a thousand.
        assert_eq!(arrivals.due(1_000_500), 1000);
        arrivals.pass(64);
        assert_eq!((arrivals.at(0), arrivals.due(1_000_500)), (65_000, 936));
        assert_eq!(Arrivals::within(5e5, Duration::from_millis(100)), 50_000);
    }
}
