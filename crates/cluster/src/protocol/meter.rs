//! Measures how long messages of another node are on their way, without clocks that agree.
//!
//! The difference between the local clock at the arrival and the remote clock at the departure is the offset of the
//! clocks plus the delay. The least difference of some minutes stands for the offset plus the shortest delay, which is
//! half of a round trip. So clocks may differ by any amount, and drift. Only hellos are measured, since a batch may be
//! a resend.

/// The time in milliseconds after which a least difference is forgotten, at most twice.
const WINDOW_MS: u64 = 120_000;

/// The offset of another node's clock, with the shortest delay.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayMeter {
    /// The least differences of the current window and of the previous one, in milliseconds.
    least: [Option<i64>; 2],
    window_ends_ms: u64,
}

impl DelayMeter {
    /// Records a message that has waited nowhere. It left at `sent_ms` on the clock of its node.
    pub(crate) fn calibrate(&mut self, sent_ms: u64, now_ms: u64) {
        let difference = now_ms.wrapping_sub(sent_ms).cast_signed();
        if now_ms >= self.window_ends_ms {
            self.least = [None, self.least[0]];
            self.window_ends_ms = now_ms + WINDOW_MS;
        }
        let least = &mut self.least[0];
        *least = Some(least.map_or(difference, |least| least.min(difference)));
    }

    /// Returns how much longer than the quickest message this one was on its way, in milliseconds.
    pub(crate) fn excess_ms(&self, sent_ms: u64, now_ms: u64) -> Option<u64> {
        let least = self.least.iter().flatten().min()?;
        let difference = now_ms.wrapping_sub(sent_ms).cast_signed();
        Some(u64::try_from(difference.saturating_sub(*least)).unwrap_or(0))
    }
}

/// The rate of something over the last seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateMeter {
    count: u64,
    since_ms: u64,
    per_s: f64,
}

/// The time over which a rate is measured, in milliseconds.
const RATE_MS: u64 = 2_000;

impl RateMeter {
    pub(crate) const fn add(&mut self, count: u64) {
        self.count += count;
    }

    /// Ends the current measurement if it has lasted long enough.
    pub(crate) fn advance(&mut self, now_ms: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.since_ms);
        if elapsed_ms >= RATE_MS {
            #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
            let per_s = self.count as f64 * 1000.0 / elapsed_ms as f64;
            *self = Self { count: 0, since_ms: now_ms, per_s };
        }
    }

    pub(crate) const fn per_s(&self) -> f64 {
        self.per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_of_the_clocks_is_no_delay() {
        for offset_ms in [0_u64, 300_000, u64::MAX - 600_000] {
            let mut meter = DelayMeter::default();
            let at = |sent_ms: u64| offset_ms.wrapping_add(sent_ms);
            assert_eq!(meter.excess_ms(at(0), 0), None);
            for (sent_ms, delay_ms) in [(0, 3), (100, 2), (200, 45)] {
                meter.calibrate(at(sent_ms), 1000 + sent_ms + delay_ms);
            }
            assert_eq!(meter.excess_ms(at(300), 1300 + 45), Some(43));
            assert_eq!(meter.excess_ms(at(300), 1300), Some(0), "quicker than any before");
            // After a while, the quickest message is one of the last minutes.
            for second in 0..600 {
                meter.calibrate(at(1000 * second), 1000 + 1000 * second + 30);
            }
            assert_eq!(meter.excess_ms(at(700_000), 701_000 + 30), Some(0));
        }
    }

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let mut meter = RateMeter::default();
        meter.advance(10_000);
        meter.add(500);
        meter.advance(10_500);
        assert!(meter.per_s() < 1e-9);
        meter.add(500);
        meter.advance(12_000);
        assert!((meter.per_s() - 500.0).abs() < 1e-9);
    }
}
