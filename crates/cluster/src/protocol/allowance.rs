//! How much may be done for other nodes in a time.
//!
//! A request is small and its reply may be large, so replies have an allowance: batches that are sent again by node and
//! for all nodes together, parts of a snapshot by the time since the last repetition. Batches that wait count with the
//! memory of their places, and are copies: a message may be a small part of a large buffer of the client library. A
//! node whose snapshots fail again and again is asked last, and a node that joins does without it. Sequence numbers
//! that no node reaches in years are malformed, so that sums of them cannot overflow.

/// An amount that fills up at a rate, to the amount of a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    per_s: u64,
    /// The amount that is left, in thousandths.
    left: u64,
    filled_ms: u64,
}

impl Allowance {
    /// Creates an allowance of this amount a second, which is full.
    pub(crate) const fn new(per_s: u64, now_ms: u64) -> Self {
        Self { per_s, left: 1000 * per_s, filled_ms: now_ms }
    }

    /// Returns the amount that may be taken now.
    pub(crate) fn available(&mut self, now_ms: u64) -> u64 {
        let earned = now_ms.saturating_sub(self.filled_ms).min(1000) * self.per_s;
        self.left = (self.left + earned).min(1000 * self.per_s);
        self.filled_ms = now_ms;
        self.left / 1000
    }

    /// Takes an amount, or all if there is less.
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
