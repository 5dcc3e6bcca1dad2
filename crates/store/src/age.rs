//! The age of a swarm, in one byte.
//!
//! Bits 5 to 7 are a scale. Bits 0 to 4 are the time of creation in units of that scale, modulo 32. A unit of scale 0
//! is a sixth of the timeout of a peer and at least five minutes. A unit of each further scale is four times as long.
//! The sweep of expiry moves a swarm of 24 units to the next scale, where it has six. So a stamp stays readable for six
//! more units, at least a timeout, within which the sweep visits a swarm several times.
//!
//! An age is therefore exact to half a unit of scale 0 for a young swarm, 225 seconds with a timeout of 2,700. For any
//! other swarm it is exact to a twelfth of itself. In the last scale it ends at [`AgeClock::age_s_max`], at least 1,365
//! days.
//!
//! The rejected alternative had one scale of hours and one of days. It would know the age of a young swarm only to an
//! hour, and of a swarm of a few days only to a day.

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Minimum length of a unit of scale 0 in seconds.
const UNIT_S_MIN: u32 = 300;

/// Number of units of scale 0 in a timeout, unless units have their minimum length.
const UNITS_PER_TIMEOUT: u32 = 6;

/// A unit is two to this power as many units of the scale below.
const SCALE_BITS: u8 = 2;

const SCALE_MAX: u8 = 7;

/// Number of bits of a stamp in its scale.
const UNIT_BITS: u8 = 5;

/// The bits of a stamp that hold a time.
const UNIT_MASK: u8 = (1 << UNIT_BITS) - 1;

/// Number of units at which a swarm moves to the next scale.
const UNITS_MAX: u8 = 24;

/// The number of units of a stamp from a thread whose clock is slightly ahead.
const UNITS_FUTURE: u8 = UNIT_MASK;

/// Maximum number of units of scale 0 by which the clock advances at once.
const STEP_UNITS_MAX: u32 = 3;

/// Maximum number of seconds by which one thread's clock lags behind another's. Beyond it, the clock was set back.
const BACK_S_MAX: u32 = 60;

/// The reading of the clock of ages at the second 0, so that swarms may be older than the caller's clock.
const ORIGIN_S: u64 = 1 << 40;

/// The clock of ages. It follows the clock of the store, but never goes back, and advances by at most
/// [`STEP_UNITS_MAX`] between two calls of [`advance`](Self::advance): after a longer step, some stamps would be
/// unreadable. The maximum is half a timeout, or fifteen minutes if that is more.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct AgeClock {
    unit_s: u32,
    step_s_max: u32,
    /// The time of the last call of `advance`, on the caller's clock.
    advanced_s: Option<u32>,
    /// The reading of this clock at that time, or at the second 0.
    reading_s: u64,
}

/// A point in time, as stamps of all scales represent it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgeTime {
    reading_s: u64,
    units: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub(crate) struct AgeStamp(u8);

impl AgeClock {
    pub(crate) fn new(timeout_s: u32) -> Self {
        let unit_s = timeout_s.div_ceil(UNITS_PER_TIMEOUT).max(UNIT_S_MIN);
        Self { unit_s, step_s_max: unit_s * STEP_UNITS_MAX, advanced_s: None, reading_s: ORIGIN_S }
    }

    /// Returns the age in seconds beyond which a swarm appears to age no more.
    pub(crate) fn age_s_max(&self) -> u64 {
        u64::from(UNITS_MAX) * self.unit_of(SCALE_MAX)
    }

    /// Advances the clock to `now_s`. The sweep calls this continually.
    #[inline]
    pub(crate) fn advance(&mut self, now_s: u32) {
        let is_slower_thread = |last_s: u32| now_s <= last_s && last_s - now_s <= BACK_S_MAX;
        if !self.advanced_s.is_some_and(is_slower_thread) {
            (self.reading_s, self.advanced_s) = (self.at(now_s).reading_s, Some(now_s));
        }
    }

    #[inline]
    pub(crate) fn at(&self, now_s: u32) -> AgeTime {
        let Some(last_s) = self.advanced_s else { return self.time(self.reading_s + u64::from(now_s)) };
        let ahead_s = now_s.saturating_sub(last_s).min(self.step_s_max);
        let behind_s = Some(last_s.saturating_sub(now_s)).filter(|&behind_s| behind_s <= BACK_S_MAX);
        self.time(self.reading_s + u64::from(ahead_s) - u64::from(behind_s.unwrap_or(0)))
    }

    /// Returns the hour that was `age_s` before `now_s`, see [`AgeTime::hour`].
    pub(crate) fn hour_of_age(&self, age_s: u32, now_s: u32) -> u16 {
        self.time(self.at(now_s).reading_s.saturating_sub(age_s.into())).hour()
    }

    fn time(&self, reading_s: u64) -> AgeTime {
        AgeTime { reading_s, units: reading_s / u64::from(self.unit_s) }
    }

    fn unit_of(&self, scale: u8) -> u64 {
        u64::from(self.unit_s) << (SCALE_BITS * scale)
    }

    /// Returns the age of a swarm in seconds. The module's header states its precision.
    pub(crate) fn age_s(&self, stamp: AgeStamp, now_s: u32) -> u32 {
        let (now, scale) = (self.at(now_s), stamp.scale());
        let age_s = match stamp.units_ago(now) {
            UNITS_FUTURE => 0,
            UNITS_MAX.. if scale == SCALE_MAX => self.age_s_max(),
            units => {
                let unit_s = self.unit_of(scale);
                let created_s = (now.in_scale(scale) - u64::from(units)) * unit_s + unit_s / 2;
                now.reading_s.saturating_sub(created_s)
            }
        };
        u32::try_from(age_s).unwrap_or(u32::MAX)
    }

    #[inline]
    pub(crate) fn stamp(&self, now_s: u32) -> AgeStamp {
        AgeStamp::new(0, self.at(now_s).units)
    }

    pub(crate) fn stamp_of_age(&self, age_s: u32, now_s: u32) -> AgeStamp {
        let now = self.at(now_s);
        let created = self.time(now.reading_s.saturating_sub(age_s.into()));
        let is_young = |scale: &u8| now.in_scale(*scale) - created.in_scale(*scale) < UNITS_MAX.into();
        match (0..=SCALE_MAX).find(is_young) {
            Some(scale) => AgeStamp::new(scale, created.in_scale(scale)),
            None => AgeStamp::oldest(now),
        }
    }
}

impl AgeTime {
    /// Returns the time in hours, truncated to 16 bits.
    pub(crate) fn hour(self) -> u16 {
        ((self.reading_s / 3600) & 0xffff) as u16
    }

    #[inline]
    fn in_scale(self, scale: u8) -> u64 {
        self.units >> (SCALE_BITS * scale)
    }
}

impl AgeStamp {
    #[inline]
    fn new(scale: u8, units: u64) -> Self {
        Self(scale << UNIT_BITS | Self::units(units))
    }

    /// Truncates a number of units to the bits of a stamp.
    #[inline]
    fn units(units: u64) -> u8 {
        (units & 0x1f) as u8
    }

    /// Returns the stamp of a swarm that is older than stamps can express.
    fn oldest(now: AgeTime) -> Self {
        Self::new(SCALE_MAX, now.in_scale(SCALE_MAX) - u64::from(UNITS_MAX))
    }

    #[inline]
    fn scale(self) -> u8 {
        self.0 >> UNIT_BITS
    }

    #[inline]
    fn units_ago(self, now: AgeTime) -> u8 {
        Self::units(now.in_scale(self.scale())).wrapping_sub(self.0) & UNIT_MASK
    }

    /// Returns the swarm's stamp in the next scale.
    #[cold]
    fn promoted(self, units: u8, now: AgeTime) -> Self {
        let scale = self.scale();
        if scale == SCALE_MAX {
            return Self::oldest(now);
        }
        let created = now.in_scale(scale) - u64::from(units);
        Self::new(scale + 1, created >> SCALE_BITS)
    }

    /// Returns a stamp that stays readable for longer, if the present one needs it.
    #[inline]
    pub(crate) fn renewed(self, now: AgeTime) -> Option<Self> {
        let units = self.units_ago(now);
        (UNITS_MAX..UNITS_FUTURE).contains(&units).then(|| self.promoted(units, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT_S: u32 = 2700;
    const UNIT_S: u32 = TIMEOUT_S / UNITS_PER_TIMEOUT;
    const DAY_S: u32 = 86_400;

    /// A swarm and the shard that it is in.
    struct World {
        clock: AgeClock,
        stamp: AgeStamp,
        now_s: u32,
    }

    impl World {
        fn new(timeout_s: u32, now_s: u32) -> Self {
            let mut clock = AgeClock::new(timeout_s);
            clock.advance(now_s);
            Self { stamp: clock.stamp(now_s), clock, now_s }
        }

        /// Lets time pass in which the sweep does not come to the swarm.
        fn wait(&mut self, seconds: u32) {
            self.now_s += seconds;
            self.clock.advance(self.now_s);
        }

        fn visit(&mut self) {
            self.stamp = self.stamp.renewed(self.clock.at(self.now_s)).unwrap_or(self.stamp);
        }

        fn age_s(&self) -> u32 {
            self.clock.age_s(self.stamp, self.now_s)
        }

        #[track_caller]
        fn check(&self, age_s: u32) {
            let error_s = self.age_s().abs_diff(age_s);
            // A stamp begins somewhere in its unit, so the limits of scales are vague by a unit of the scale before.
            let error_s_max = (self.clock.unit_s / 2).max(age_s / 12 + age_s / 200);
            assert!(error_s <= error_s_max, "{age_s} s are shown as {} s", self.age_s());
        }
    }

    #[test]
    fn ages_are_right_over_years() {
        let mut rng = fastrand::Rng::with_seed(1);
        for timeout_s in [2, 600, TIMEOUT_S, 86_400] {
            for _ in 0..3 {
                let started_s = rng.u32(..100_000);
                let mut world = World::new(timeout_s, started_s);
                while world.now_s < 1300 * DAY_S {
                    world.check(world.now_s - started_s);
                    // A sweep takes an eighth of the timeout, and may miss a swarm that moves.
                    world.wait(rng.u32(1..=(timeout_s / 4).max(300)));
                    world.visit();
                }
                assert!(world.stamp.scale() >= SCALE_MAX - 2, "scales are used");
            }
        }
    }

    #[test]
    fn an_age_can_be_read_for_a_timeout_between_two_visits() {
        let mut world = World::new(TIMEOUT_S, 5);
        for visits in 1..20_000 {
            for _ in 0..10 {
                world.wait(TIMEOUT_S / 10);
                world.check(world.now_s - 5);
            }
            world.visit();
            world.check(visits * TIMEOUT_S);
        }
    }

    #[test]
    fn an_age_ends_at_its_maximum() {
        let mut world = World::new(2, 0);
        let max_s = u32::try_from(world.clock.age_s_max()).unwrap();
        assert_eq!(max_s / DAY_S, 1365);
        world.stamp = world.clock.stamp_of_age(max_s - 100 * DAY_S, 0);
        let mut last_s = 0;
        while world.now_s < 1000 * DAY_S {
            world.wait(600);
            world.visit();
            assert!(world.age_s() <= max_s + world.clock.unit_s);
            last_s = world.age_s();
        }
        assert_eq!(last_s, max_s);
        assert_eq!(world.clock.age_s(world.clock.stamp_of_age(u32::MAX, 77), 77), max_s);
    }

    #[test]
    fn a_swarm_may_be_older_than_the_clock() {
        for age_s in [0, 1, 400, UNIT_S, 3600, DAY_S, 30 * DAY_S, 400 * DAY_S, 2000 * DAY_S] {
            let mut world = World::new(TIMEOUT_S, 3);
            world.stamp = world.clock.stamp_of_age(age_s, 3);
            world.check(age_s);
            for later_s in 1..2000 {
                world.wait(60);
                world.visit();
                world.check(age_s + 60 * later_s);
            }
        }
    }

    #[test]
    fn a_clock_that_jumps_forward_counts_for_half_a_timeout() {
        for jump_s in [TIMEOUT_S / 2, TIMEOUT_S, 8 * 3600, 40 * DAY_S] {
            for age_s in [0, 10 * UNIT_S, 40 * UNIT_S, 100 * DAY_S] {
                let mut world = World::new(TIMEOUT_S, 1000);
                world.stamp = world.clock.stamp_of_age(age_s, 1000);
                world.now_s += jump_s;
                // A request may come before the sweep.
                world.check(age_s + TIMEOUT_S / 2);
                world.clock.advance(world.now_s);
                world.visit();
                world.check(age_s + TIMEOUT_S / 2);
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_back_stands_still() {
        for jump_s in [BACK_S_MAX + 1, 3600, 50 * DAY_S] {
            for age_s in [0, 10 * UNIT_S, 40 * UNIT_S, 100 * DAY_S] {
                let mut world = World::new(TIMEOUT_S, 100 * DAY_S);
                world.stamp = world.clock.stamp_of_age(age_s, world.now_s);
                world.now_s -= jump_s;
                world.check(age_s);
                for later_s in 1..1000 {
                    world.wait(60);
                    world.visit();
                    world.check(age_s + 60 * later_s);
                }
            }
        }
    }

    #[test]
    fn threads_whose_clocks_differ_do_not_drive_the_clock() {
        let mut world = World::new(TIMEOUT_S, 1000);
        for _ in 0..10_000 {
            world.wait(1);
            world.clock.advance(world.now_s - 2);
            world.visit();
        }
        world.check(10_000);
        // A stamp of a thread that is ahead is not one of a distant past.
        world.stamp = world.clock.stamp(world.now_s + 2);
        for ahead_s in 0..UNIT_S {
            let stamp = world.clock.stamp(world.now_s + ahead_s);
            assert!(world.clock.age_s(stamp, world.now_s) <= UNIT_S / 2);
        }
    }
}
