//! The time of a batch.

/// The clock readings of one batch. The owner of the clocks reads them once for the whole batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Seconds on a clock that never goes back, from an arbitrary start. The ages of peers are measured on it.
    pub monotonic_s: u32,
    /// Seconds since 1970 on the wall clock. Several nodes share it, and an operator may set it. Connection ids
    /// are made from it.
    pub unix_s: u64,
}
