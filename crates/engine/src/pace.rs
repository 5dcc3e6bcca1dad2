//! Longer intervals under load.
//!
//! A worker that is busy most of the time tells its clients to come back later, between bounds that the operator sets,
//! and goes back to the usual intervals when it is less busy. This is a controller without a clock: the caller measures
//! for which share of the time the worker was busy.

/// How far intervals are raised, in thousandths of the way from the usual interval to the longest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace(u32);

/// A worker that is busy for this share of the time, in thousandths, or more raises its intervals.
const BUSY_HIGH: u32 = 850;

/// A worker that is busy for less than this share lowers them. Between the two they stay, so that they do not swing.
const BUSY_LOW: u32 = 650;

/// Time for the whole way up. It is short, since each client that comes meanwhile returns after the usual interval.
const RISE_MS: u64 = 50_000;

/// Time for the whole way down. The load falls an interval after the clients were told, so intervals that fell at once
/// would bring it back at once.
const FALL_MS: u64 = 500_000;

impl Pace {
    const FULL: u32 = 1000;

    /// Returns the pace after another `elapsed_ms`, for which the worker was busy for `busy` thousandths.
    #[must_use]
    pub fn after(self, elapsed_ms: u64, busy: u32) -> Self {
        let step = |whole_ms: u64| {
            let step = (elapsed_ms.saturating_mul(Self::FULL.into()) / whole_ms).max(1);
            u32::try_from(step).unwrap_or(Self::FULL)
        };
        Self(match busy {
            BUSY_HIGH.. => self.0.saturating_add(step(RISE_MS)).min(Self::FULL),
            ..BUSY_LOW => self.0.saturating_sub(step(FALL_MS)),
            _ => self.0,
        })
    }

    /// Returns the interval at this pace, from the usual one and the longest one. No interval is shortened.
    #[must_use]
    pub fn interval_s(self, usual_s: u32, longest_s: u32) -> u32 {
        if self == Self::default() {
            return usual_s;
        }
        let way_s = u64::from(longest_s.saturating_sub(usual_s));
        let raised_s = way_s * u64::from(self.0) / u64::from(Self::FULL);
        usual_s + u32::try_from(raised_s).unwrap_or(0)
    }

    /// Returns the thousandths.
    #[must_use]
    pub const fn thousandths(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pace after so many seconds at a load.
    fn after(mut pace: Pace, seconds: u32, busy: u32) -> Pace {
        for _ in 0..seconds {
            pace = pace.after(1000, busy);
        }
        pace
    }

    #[test]
    fn intervals_rise_to_the_longest_within_a_minute_or_so_and_fall_again() {
        let idle = Pace::default();
        assert_eq!(idle.interval_s(1800, 3600), 1800);
        assert_eq!(after(idle, 1000, 849), idle);
        let half = after(idle, 25, 900);
        assert!((2600..2800).contains(&half.interval_s(1800, 3600)), "{half:?}");
        let full = after(idle, 70, 1000);
        assert_eq!(full.interval_s(1800, 3600), 3600);
        assert_eq!(after(full, 1000, 700), full, "between the thresholds they stay");
        let falling = after(full, 250, 500);
        assert!((2600..2800).contains(&falling.interval_s(1800, 3600)), "{falling:?}");
        assert_eq!(after(full, 1100, 0), idle);
    }

    #[test]
    fn bounds_that_are_equal_or_absent_change_nothing() {
        let full = after(Pace::default(), 100, 1000);
        for longest_s in [0, 1, 1800] {
            assert_eq!(full.interval_s(1800, longest_s), 1800);
        }
        assert_eq!(full.interval_s(u32::MAX, u32::MAX), u32::MAX);
        assert_eq!(full.interval_s(0, u32::MAX), u32::MAX);
    }

    #[test]
    fn odd_measurements() {
        assert_eq!(Pace::default().after(u64::MAX, u32::MAX), Pace(Pace::FULL));
        assert_eq!(Pace(Pace::FULL).after(u64::MAX, 0), Pace(0));
        assert_eq!(Pace(5).after(0, 0), Pace(4));
    }
}
