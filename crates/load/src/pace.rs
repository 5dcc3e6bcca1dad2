//! When requests are due, when a run is over, and how long to wait before looking for replies.

use std::time::Duration;

/// When a run of one worker is over, whichever comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) end_ns: u64,
    pub(crate) requests_max: u64,
}

/// The arrivals of an open loop: evenly spaced, whatever the tracker does.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    began_ns: u64,
    spacing_ns: f64,
    passed: u64,
}

/// A short sleep while many requests are in flight. Without it, each reply would wake a thread of the generator, and of
/// the tracker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    window: usize,
    time: Duration,
}

impl Timing {
    pub(crate) fn left(&self, requests: u64) -> usize {
        usize::try_from(self.requests_max.saturating_sub(requests)).unwrap_or(usize::MAX)
    }
}

impl Arrivals {
    /// Returns arrivals from now on, `rate` per second. The rate is above 0.
    pub fn new(now_ns: u64, rate: f64) -> Self {
        Self { began_ns: now_ns, spacing_ns: 1e9 / rate, passed: 0 }
    }

    pub(crate) fn within(rate: f64, time: Duration) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it saturates, as it should"
        )]
        let count = (rate * time.as_secs_f64()) as usize;
        count
    }

    /// Returns when the arrival after `ahead` others is due.
    pub fn at(&self, ahead: usize) -> u64 {
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

    /// Marks this many arrivals as served.
    pub fn pass(&mut self, count: usize) {
        self.passed += count as u64;
    }
}

impl Pause {
    /// The longest pause: it must not show in a latency of milliseconds.
    const MAX: Duration = Duration::from_micros(300);

    pub(crate) fn new(window: usize) -> Self {
        Self { window, time: Duration::from_micros(10) }
    }

    pub(crate) fn take(&self) {
        std::thread::sleep(self.time);
    }

    /// Adapts the length, so that an eighth to a half of the window is answered after a pause.
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
    fn pauses_fit_the_pace_of_the_tracker() {
        let mut pause = Pause::new(256);
        (0..100).for_each(|_| pause.learn(0));
        assert_eq!(pause.time, Pause::MAX);
        (0..100).for_each(|_| pause.learn(64));
        assert_eq!(pause.time, Pause::MAX);
        (0..100).for_each(|_| pause.learn(256));
        assert!(pause.time < Duration::from_micros(1), "{:?}", pause.time);
    }

    #[test]
    fn arrivals_keep_their_pace_whatever_happens() {
        let mut arrivals = Arrivals::new(1000, 1e6);
        assert_eq!((arrivals.due(999), arrivals.due(1000), arrivals.due(1999)), (0, 1, 1));
        assert_eq!((arrivals.at(0), arrivals.at(3)), (1000, 4000));
        // After a stall of a millisecond, a thousand are due.
        assert_eq!(arrivals.due(1_000_500), 1000);
        arrivals.pass(64);
        assert_eq!((arrivals.at(0), arrivals.due(1_000_500)), (65_000, 936));
        assert_eq!(Arrivals::within(5e5, Duration::from_millis(100)), 50_000);
    }
}
