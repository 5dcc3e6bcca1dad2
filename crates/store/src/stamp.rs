//! The time of a peer's last announce, in one byte.
//!
//! Bits 0 to 6 are the tick of the last announce modulo 128; bit 7 is set if the peer's completed download was counted.
//! A timeout is at most [`TIMEOUT_TICKS_MAX`] ticks, so an overdue stamp can be distinguished from a recent one for as
//! long again, and expiry visits the peer several times within that period.

/// Maximum number of ticks of a timeout.
const TIMEOUT_TICKS_MAX: u32 = 64;

/// A stamp that appears to be older than this was set by a thread whose clock is slightly ahead.
const FUTURE_TICKS_MIN: u8 = 120;

const TICK_MASK: u8 = 0x7f;
const COUNTED: u8 = 0x80;

/// The clock of stamps: the length of a tick, and the number of ticks after which a peer is overdue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    tick_s: u32,
    timeout_ticks: u8,
}

/// A point in time, as stamps represent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick(u8);

/// The byte that is stored with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(pub(crate) u8);

impl Ticks {
    /// Creates a clock whose ticks are short enough to keep the timeout to about 2 %.
    pub(crate) fn new(timeout_s: u32) -> Self {
        let tick_s = timeout_s.div_ceil(TIMEOUT_TICKS_MAX).max(1);
        let timeout_ticks = timeout_s.div_ceil(tick_s).clamp(1, TIMEOUT_TICKS_MAX);
        Self { tick_s, timeout_ticks: u8::try_from(timeout_ticks).unwrap_or(u8::MAX) }
    }

    /// Returns the tick of a time.
    #[inline]
    pub(crate) fn at(&self, now_s: u32) -> Tick {
        Tick(((now_s / self.tick_s) & 0x7f) as u8)
    }

    /// Returns whether a peer with this stamp is overdue.
    #[inline]
    pub(crate) fn is_overdue(&self, stamp: Stamp, now: Tick) -> bool {
        let age = now.0.wrapping_sub(stamp.0) & TICK_MASK;
        age > self.timeout_ticks && age < FUTURE_TICKS_MIN
    }
}

impl Stamp {
    #[inline]
    pub(crate) fn new(now: Tick, counted: bool) -> Self {
        Self(now.0 | if counted { COUNTED } else { 0 })
    }

    /// Returns whether the peer's completed download was counted.
    #[inline]
    pub(crate) fn is_counted(self) -> bool {
        self.0 & COUNTED != 0
    }
}
