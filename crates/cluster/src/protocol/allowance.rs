//! How much may be done for other nodes in a time.

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
