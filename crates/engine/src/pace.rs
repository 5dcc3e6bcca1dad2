//! Longer intervals under load, spread intervals after a cold start, and the requests that an overloaded worker
//! sheds.
//!
//! A worker that is busy most of the time tells its clients to come back later, within bounds that the operator sets.
//! It returns to the usual intervals when it is less busy. A worker that cannot keep up is overloaded: the longer
//! that lasts, the more kinds of requests it refuses ([`Overload`]). This controller has no clock: the caller
//! measures the busy share of the time, and whether the worker kept up.
//!
//! An attacker that overloads a worker on purpose makes it refuse scrapes. Most of those would be lost in the full
//! buffer anyway. Announces compete for the buffer in either case, and gain from the refused scrapes.
//!
//! A worker is overloaded if no poll round in some time left its queues empty. The shortest queue length, unlike the
//! mean, distinguishes an overload from a burst (CoDel, RFC 8289). The measurement costs two comparisons for each
//! poll round and nothing for a request. A worker that begins with an empty store has the pace of a cold start.
//!
//! Only scrapes are shed. Sending the reply is the larger part of the cost of a UDP announce, so a refusal saves
//! little, and silence makes the client send it again. An announce before its time may be a retry after a lost reply.
//! Connection ids are stateless, so an answered connect or announce is never wasted. The kernel's choice in a full
//! buffer is therefore as good as any.
//!
//! Connects need no separate queue. The first pass of a batch answers them, and a batch takes a fraction of a
//! millisecond.

/// How overloaded a worker is. Each stage includes the earlier ones.
///
/// Announces are never refused. A refusal has to be sent, and sending is most of the cost of an announce. Silence
/// would save that, but the client would ask again, and it would look like a client whose reply was lost. Connects
/// are not refused either, since a client cannot announce without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Overload {
    /// The worker keeps up.
    None,
    /// Intervals are drawn from the whole range that the timeout of peers permits.
    Intervals,
    /// Scrapes of all torrents are refused.
    FullScrapes,
    /// All scrapes are refused.
    Scrapes,
}

/// How a worker treats its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// How far intervals are raised, in thousandths of the way from the usual interval to the longest one.
    raise: u32,
    /// How long intervals are still spread after a cold start.
    cold_ms: u64,
    /// How long the worker has not kept up, less half of the time in which it has since kept up.
    behind_ms: u64,
}

/// The load of a worker since the last measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The share of the time in which the worker's thread ran, in thousandths.
    pub busy: u32,
    /// Whether every poll round left requests waiting. A queue that is sometimes empty is a burst. A queue that is
    /// never empty grows without bound, or is full and loses requests.
    pub is_behind: bool,
}

/// A worker raises its intervals if it is busy for at least this share of the time, in thousandths.
const BUSY_HIGH: u32 = 850;

/// A worker lowers its intervals below this share. Between the two shares they stay, so that they do not oscillate.
const BUSY_LOW: u32 = 650;

/// Time for the whole way up. It is short, since each client that comes meanwhile returns after the usual interval.
const RISE_MS: u64 = 50_000;

/// Time for the whole way down. The load falls one interval after the clients were told, so intervals that fell at
/// once would bring it back at once.
const FALL_MS: u64 = 500_000;

/// Time after a cold start for which intervals are spread. Clients that found no tracker try again within minutes.
/// Clients that noticed nothing come at their usual times, which are spread already.
const COLD_MS: u64 = 600_000;

/// The time of overload after which each stage begins.
const INTERVALS_MS: u64 = 1_000;
const FULL_SCRAPES_MS: u64 = 2_000;
const SCRAPES_MS: u64 = 4_000;

/// Maximum time of overload that counts. Time in which the worker keeps up counts against it by half. So an overload
/// ends after at most 20 seconds, and a load in waves does not end it each time.
const BEHIND_MS_MAX: u64 = 10_000;

impl Pace {
    const FULL: u32 = 1000;

    /// Returns the pace of a worker that begins without peers. All clients come at once then, and would come back at
    /// once.
    pub const fn cold() -> Self {
        Self { raise: 0, cold_ms: COLD_MS, behind_ms: 0 }
    }

    /// Returns the pace after another `elapsed_ms` under a load.
    #[must_use]
    pub fn after(self, elapsed_ms: u64, load: Load) -> Self {
        let step = |whole_ms: u64| {
            let step = (elapsed_ms.saturating_mul(Self::FULL.into()) / whole_ms).max(1);
            u32::try_from(step).unwrap_or(Self::FULL)
        };
        // Another program may have taken the processor away, so the thread need not have been busy.
        let raise = match load {
            Load { is_behind: true, .. } | Load { busy: BUSY_HIGH.., .. } => {
                self.raise.saturating_add(step(RISE_MS)).min(Self::FULL)
            }
            Load { busy: ..BUSY_LOW, .. } => self.raise.saturating_sub(step(FALL_MS)),
            Load { .. } => self.raise,
        };
        let behind_ms = if load.is_behind {
            self.behind_ms.saturating_add(elapsed_ms).min(BEHIND_MS_MAX)
        } else {
            self.behind_ms.saturating_sub(elapsed_ms.div_ceil(2))
        };
        Self { raise, cold_ms: self.cold_ms.saturating_sub(elapsed_ms), behind_ms }
    }

    /// Returns the interval at this pace, between the usual one and the longest one. No interval is shortened.
    pub fn interval_s(self, usual_s: u32, longest_s: u32) -> u32 {
        if self.raise == 0 {
            return usual_s;
        }
        let way_s = u64::from(longest_s.saturating_sub(usual_s));
        let raised_s = way_s * u64::from(self.raise) / u64::from(Self::FULL);
        usual_s + u32::try_from(raised_s).unwrap_or(0)
    }

    /// Returns how far intervals are raised, in thousandths.
    pub const fn thousandths(self) -> u32 {
        self.raise
    }

    /// Returns whether intervals are spread after a cold start.
    pub const fn is_cold(self) -> bool {
        self.cold_ms > 0
    }

    /// Returns how overloaded the worker is.
    pub const fn overload(self) -> Overload {
        match self.behind_ms {
            SCRAPES_MS.. => Overload::Scrapes,
            FULL_SCRAPES_MS.. => Overload::FullScrapes,
            INTERVALS_MS.. => Overload::Intervals,
            _ => Overload::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn busy(busy: u32) -> Load {
        Load { busy, is_behind: false }
    }

    const BEHIND: Load = Load { busy: 0, is_behind: true };

    /// Returns the pace after so many seconds at a load.
    fn after(mut pace: Pace, seconds: u32, load: Load) -> Pace {
        for _ in 0..seconds {
            pace = pace.after(1000, load);
        }
        pace
    }

    #[test]
    fn intervals_rise_to_the_longest_within_a_minute_or_so_and_fall_again() {
        let idle = Pace::default();
        assert_eq!(idle.interval_s(1800, 3600), 1800);
        assert_eq!(after(idle, 1000, busy(849)), idle);
        let half = after(idle, 25, busy(900));
        assert!((2600..2800).contains(&half.interval_s(1800, 3600)), "{half:?}");
        let full = after(idle, 70, busy(1000));
        assert_eq!(full.interval_s(1800, 3600), 3600);
        assert_eq!(after(full, 1000, busy(700)), full, "between the thresholds they stay");
        let falling = after(full, 250, busy(500));
        assert!((2600..2800).contains(&falling.interval_s(1800, 3600)), "{falling:?}");
        assert_eq!(after(full, 1100, busy(0)), idle);
    }

    #[test]
    fn bounds_that_are_equal_or_absent_change_nothing() {
        let full = after(Pace::default(), 100, busy(1000));
        for longest_s in [0, 1, 1800] {
            assert_eq!(full.interval_s(1800, longest_s), 1800);
        }
        assert_eq!(full.interval_s(u32::MAX, u32::MAX), u32::MAX);
        assert_eq!(full.interval_s(0, u32::MAX), u32::MAX);
    }

    #[test]
    fn an_overload_is_shed_in_the_stated_order_and_ends_twenty_seconds_after_the_load() {
        let overloads = |mut pace: Pace, load| -> Vec<_> {
            let mut step = || {
                pace = pace.after(1000, load);
                pace.overload()
            };
            (0..20).map(|_| step()).collect()
        };
        use Overload::{FullScrapes, Intervals, None, Scrapes};
        let rising = overloads(Pace::default(), BEHIND);
        assert_eq!(rising[..5], [Intervals, FullScrapes, FullScrapes, Scrapes, Scrapes]);
        let falling = overloads(after(Pace::default(), 1000, BEHIND), busy(0));
        assert_eq!(falling[..13], [[Scrapes; 12].as_slice(), &[FullScrapes]].concat());
        assert_eq!(falling[15..], [FullScrapes, Intervals, Intervals, None, None]);
    }

    #[test]
    fn a_worker_that_keeps_up_is_not_overloaded_however_busy_it_is() {
        assert_eq!(after(Pace::default(), 1000, busy(1000)).overload(), Overload::None);
    }

    #[test]
    fn a_worker_that_is_behind_raises_intervals_even_if_another_program_has_its_processor() {
        assert_eq!(after(Pace::default(), 50, BEHIND).interval_s(1800, 3600), 3600);
    }

    #[test]
    fn intervals_are_spread_for_ten_minutes_after_a_cold_start() {
        assert!(!Pace::default().is_cold());
        assert!(after(Pace::cold(), 599, busy(0)).is_cold());
        assert_eq!(after(Pace::cold(), 600, busy(0)), Pace::default());
    }

    #[test]
    fn odd_measurements() {
        let at_most = Pace { raise: Pace::FULL, cold_ms: u64::MAX, behind_ms: BEHIND_MS_MAX };
        let both = Load { busy: u32::MAX, is_behind: true };
        assert_eq!(Pace::default().after(u64::MAX, both), Pace { cold_ms: 0, ..at_most });
        assert_eq!(at_most.after(u64::MAX, busy(0)), Pace::default());
        assert_eq!(Pace { raise: 5, ..Pace::default() }.after(0, busy(0)).raise, 4);
    }
}
