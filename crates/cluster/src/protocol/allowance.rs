//! How much a node may do for other nodes in a time.
//!
//! A request is small and its reply may be large, so replies have an allowance: repeated batches by node and for all
//! nodes together, repeated parts of a snapshot by the time since the last repetition. Waiting batches count with the
//! memory of their places. They are copies, since a message may be a small part of the client library's large buffer. A
//! node whose snapshots fail repeatedly is asked last, and a joining node does without it. Sequence numbers that no
//! node reaches in years are malformed, so that their sums cannot overflow.

/// An amount that refills at a rate, up to the amount of a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    per_s: u64,
    /// The amount that is left, in thousandths.
    left: u64,
    filled_ms: u64,
}

impl Allowance {
    /// Creates a full allowance of this amount a second.
    pub(crate) const fn new(per_s: u64, now_ms: u64) -> Self {
        Self { per_s, left: 1000 * per_s, filled_ms: now_ms }
    }

    pub(crate) fn available(&mut self, now_ms: u64) -> u64 {
        let earned = now_ms.saturating_sub(self.filled_ms).min(1000) * self.per_s;
        self.left = (self.left + earned).min(1000 * self.per_s);
        self.filled_ms = now_ms;
        self.left / 1000
    }

    /// Takes an amount, or the whole rest if there is less.
    pub(crate) const fn take(&mut self, amount: u64) {
        self.left = self.left.saturating_sub(amount.saturating_mul(1000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_used_up_and_fills_again() {
        let mut allowance = Allowance::new(500, 0);
        assert_eq!(allowance.available(0), 500);
        allowance.take(500);
        assert_eq!(allowance.available(1), 0);
        assert_eq!(allowance.available(100), 50);
        allowance.take(1_000);
        assert_eq!((allowance.available(100), allowance.available(1_000_000)), (0, 500));
    }
}
