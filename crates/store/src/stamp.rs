//! The time of a peer's last announce, in one byte.
//!
//! Bits 0 to 6 are the tick of the last announce modulo 128. Bit 7 is set if the peer's completed download was counted,
//! or never will be, because the peer joined as a seeder. A timeout is at most [`TIMEOUT_TICKS_MAX`] ticks, so a stamp
//! is recognisably overdue for as long again. Expiry visits the peer several times within that period.

use shoal_base::PeerChange;

const TIMEOUT_TICKS_MAX: u32 = 64;

/// A stamp that appears older than this came from a thread whose clock is slightly ahead.
const FUTURE_TICKS_MIN: u8 = 120;

const TICK_MASK: u8 = 0x7f;
const COUNTED: u8 = 0x80;

/// The clock of stamps: the length of a tick, and the number of ticks after which a peer is overdue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    /// The length of a tick as its reciprocal, rounded up, in units of 2^-63 per second: a product is far cheaper than
    /// a division. It is exact, since times are below 2^32 and a tick is at most 2^26 s.
    ticks_per_s: u64,
    tick_s: u32,
    timeout_ticks: u8,
    /// The bits of a tick that hold the number of its period.
    period_mask: u8,
}

/// A point in time, as stamps represent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick(u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(pub(crate) u8);

impl Ticks {
    /// Creates a clock whose ticks are short enough to keep the timeout to about 2 %.
    pub(crate) fn new(timeout_s: u32) -> Self {
        let tick_s = timeout_s.div_ceil(TIMEOUT_TICKS_MAX).max(1);
        let timeout_ticks = timeout_s.div_ceil(tick_s).clamp(1, TIMEOUT_TICKS_MAX);
        let ticks_per_s = (1_u64 << 63).div_ceil(tick_s.into());
        // The power of two closest to a quarter of the timeout, between a sixth and a third of it. A timeout of more
        // than ten minutes has 58 ticks or more, so its period has 16.
        let period_ticks = ((timeout_ticks * 4 / 3).max(1).ilog2()).saturating_sub(2);
        Self {
            ticks_per_s,
            tick_s,
            timeout_ticks: u8::try_from(timeout_ticks).unwrap_or(u8::MAX),
            period_mask: TICK_MASK << period_ticks & TICK_MASK,
        }
    }

    #[inline]
    pub(crate) fn at(&self, now_s: u32) -> Tick {
        let ticks = (u128::from(now_s) * u128::from(self.ticks_per_s)) >> 63;
        Tick((ticks & 0x7f) as u8)
    }

    #[inline]
    pub(crate) fn is_overdue(&self, stamp: Stamp, now: Tick) -> bool {
        let age = now.0.wrapping_sub(stamp.0) & TICK_MASK;
        age > self.timeout_ticks && age < FUTURE_TICKS_MIN
    }

    /// Returns whether a stamp is from another period than `now`. Periods begin earlier by `offset` ticks.
    #[inline]
    pub(crate) fn is_of_other_period(&self, stamp: Stamp, now: Tick, offset: u8) -> bool {
        (stamp.0.wrapping_add(offset) ^ now.0.wrapping_add(offset)) & self.period_mask != 0
    }

    /// Returns the change of a peer that announces again in the role of this stamp.
    #[inline]
    pub(crate) fn change_since(&self, stamp: Stamp, now: Tick, offset: u8) -> PeerChange {
        if self.is_of_other_period(stamp, now, offset) { PeerChange::Renewed } else { PeerChange::Unchanged }
    }

    /// Returns the time since a stamp in seconds, to within a tick.
    pub(crate) fn age_s(&self, stamp: Stamp, now: Tick) -> u32 {
        u32::from(stamp.age(now)) * self.tick_s
    }

    pub(crate) const fn tick_s(&self) -> u32 {
        self.tick_s
    }
}

impl Tick {
    /// Returns the tick that was this many ticks before, fewer than 128.
    pub(crate) const fn before(self, ticks: u8) -> Self {
        Self(self.0.wrapping_sub(ticks) & TICK_MASK)
    }
}

impl Stamp {
    #[inline]
    pub(crate) fn new(now: Tick, counted: bool) -> Self {
        Self(now.0 | if counted { COUNTED } else { 0 })
    }

    /// Returns the peer's stamp at a later announce.
    #[inline]
    pub(crate) fn renewed(self, now: Tick) -> Self {
        Self(self.0 & COUNTED | now.0)
    }

    pub(crate) const fn tick(self) -> Tick {
        Tick(self.0 & TICK_MASK)
    }

    pub(crate) const fn age(self, now: Tick) -> u8 {
        let age = now.0.wrapping_sub(self.0) & TICK_MASK;
        if age < FUTURE_TICKS_MIN { age } else { 0 }
    }

    /// Returns whether the stamp is later than a tick that is at most a timeout ago.
    pub(crate) const fn is_after(self, tick: Tick) -> bool {
        let ahead = self.0.wrapping_sub(tick.0) & TICK_MASK;
        ahead > 0 && ahead as u32 <= TIMEOUT_TICKS_MAX
    }

    #[inline]
    pub(crate) fn is_counted(self) -> bool {
        self.0 & COUNTED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_quotients() {
        let mut rng = fastrand::Rng::with_seed(1);
        for timeout_s in (1..300).chain([2700, 86_400, 1 << 20, u32::MAX - 1, u32::MAX]) {
            let (ticks, tick_s) = (Ticks::new(timeout_s), timeout_s.div_ceil(TIMEOUT_TICKS_MAX));
            let multiple_s = u32::MAX / tick_s * tick_s;
            let edges_s = [0, 1, tick_s - 1, tick_s, multiple_s - 1, multiple_s, u32::MAX - 1, u32::MAX];
            for now_s in edges_s.into_iter().chain((0..200).map(|_| rng.u32(..))) {
                let expected = Tick(u8::try_from(now_s / tick_s % 128).unwrap());
                assert_eq!(ticks.at(now_s), expected, "{now_s} s, {timeout_s} s");
            }
        }
    }

    #[test]
    fn periods_are_about_a_quarter_of_the_timeout() {
        for timeout_s in (24..10_000).chain([86_400, 1 << 20]) {
            let ticks = Ticks::new(timeout_s);
            let period_ticks = 1 << ticks.period_mask.trailing_zeros();
            assert_eq!(TICK_MASK & !(period_ticks - 1), ticks.period_mask);
            let share = f64::from(period_ticks) / f64::from(ticks.timeout_ticks);
            assert!((0.16..0.34).contains(&share), "{timeout_s} s: {share}");
            for offset in [0, 1, 7, 200] {
                let begins =
                    |tick| ticks.is_of_other_period(Stamp(tick | COUNTED), Tick(tick).after(), offset);
                let begun = (0..=TICK_MASK).filter(|tick| begins(*tick)).count();
                assert_eq!(begun, 128 / usize::from(period_ticks), "{timeout_s} s, {offset}");
            }
        }
    }

    impl Tick {
        fn after(self) -> Self {
            Self((self.0 + 1) & TICK_MASK)
        }
    }

    #[test]
    fn ages_are_exact_to_a_tick() {
        let ticks = Ticks::new(2700);
        let stamp = Stamp::new(ticks.at(10_000), true);
        for age_s in 0..3000 {
            let shown_s = ticks.age_s(stamp, ticks.at(10_000 + age_s));
            assert!(shown_s.abs_diff(age_s) < 43, "{age_s} s is shown as {shown_s} s");
        }
        assert_eq!(ticks.age_s(stamp, ticks.at(9_900)), 0, "a clock that is slightly behind");
    }
}
