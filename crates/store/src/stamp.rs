//! When a peer was last heard, in one byte.
//!
//! Bits 0 to 6 are the tick of the last announce modulo 128; bit 7 says that the peer's completed download was
//! counted. A timeout is at most [`TIMEOUT_TICKS_MAX`] ticks, so an overdue stamp can be told from a young one for
//! as long again, within which expiry passes several times.

/// Most ticks of a timeout.
const TIMEOUT_TICKS_MAX: u32 = 64;

/// A stamp that seems older than this was set by a thread whose clock is ahead by a moment.
const FUTURE_TICKS_MIN: u8 = 120;

const TICK_MASK: u8 = 0x7f;
const COUNTED: u8 = 0x80;

/// The clock of stamps: how long a tick is, and how many make a peer overdue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    tick_s: u32,
    timeout_ticks: u8,
}

/// A moment, as stamps see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick(u8);

/// What is stored beside a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(pub(crate) u8);

impl Ticks {
    /// Ticks fine enough that the timeout is kept to about 2 %.
    pub(crate) fn new(timeout_s: u32) -> Self {
        let tick_s = timeout_s.div_ceil(TIMEOUT_TICKS_MAX).max(1);
        let timeout_ticks = timeout_s.div_ceil(tick_s).clamp(1, TIMEOUT_TICKS_MAX);
        Self { tick_s, timeout_ticks: u8::try_from(timeout_ticks).unwrap_or(u8::MAX) }
    }

    /// The tick of a time.
    #[inline]
    pub(crate) fn at(&self, now_s: u32) -> Tick {
        Tick(((now_s / self.tick_s) & 0x7f) as u8)
    }

    /// Whether a peer with this stamp is overdue.
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

    /// Whether the peer's completed download was counted.
    #[inline]
    pub(crate) fn is_counted(self) -> bool {
        self.0 & COUNTED != 0
    }
}
