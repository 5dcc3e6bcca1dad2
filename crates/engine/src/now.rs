//! The time of a batch.

/// What the clocks say, read once for a whole batch by whoever owns the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Seconds on a clock that never goes back, from any start: what the ages of peers are counted by.
    pub monotonic_s: u32,
    /// Seconds since 1970 on the wall clock, which several nodes share and an operator may set: what connection ids
    /// are made from.
    pub unix_s: u64,
}
