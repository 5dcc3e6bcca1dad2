//! Rates: the difference of two statistics of one tracker, divided by the time between them.

use shoal_control::stats::{Processing, Stats};

/// Two statistics of one tracker, and the time between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates<'s> {
    before: &'s Stats,
    after: &'s Stats,
    pub(super) elapsed_s: f64,
}

impl<'s> Rates<'s> {
    /// Returns the rates between two statistics, or `None` if they are the same, or if the tracker was restarted in between.
    pub(super) fn between(before: &'s Stats, after: &'s Stats) -> Option<Self> {
        let is_same_run = before.started_unix_s == after.started_unix_s;
        let elapsed_ms =
            after.monotonic_ms.checked_sub(before.monotonic_ms).filter(|ms| is_same_run && *ms > 0)?;
        Some(Self { before, after, elapsed_s: elapsed_ms as f64 / 1000.0 })
    }

    /// Returns how often per second what `read` counts has occurred.
    pub(super) fn of(&self, read: impl Fn(&Stats) -> u64) -> f64 {
        read(self.after).saturating_sub(read(self.before)) as f64 / self.elapsed_s
    }

    /// Returns the processor time per second.
    pub(super) fn processors(&self) -> f64 {
        (self.after.cpu_s - self.before.cpu_s).max(0.0) / self.elapsed_s
    }

    /// Returns the times of requests of a protocol between the two.
    pub(super) fn processing(&self, after: &Processing) -> Processing {
        let mut difference = after.clone();
        let before =
            self.before.processing.iter().find(|before| {
                before.protocol == after.protocol && before.buckets.len() == after.buckets.len()
            });
        if let Some(before) = before {
            for (bucket, before) in difference.buckets.iter_mut().zip(&before.buckets) {
                *bucket = bucket.saturating_sub(*before);
            }
            difference.sum_s = (difference.sum_s - before.sum_s).max(0.0);
        }
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_control::stats::Traffic;

    fn stats(monotonic_ms: u64, ok: u64) -> Stats {
        let times = Processing {
            protocol: "udp".to_owned(),
            bounds_s: vec![0.1, 0.2],
            buckets: vec![ok, ok, 1],
            sum_s: 2.0,
        };
        Stats {
            monotonic_ms,
            started_unix_s: 5,
            cpu_s: monotonic_ms as f64 / 2000.0,
            traffic: vec![Traffic { ok, ..Traffic::default() }],
            processing: vec![times],
            ..Stats::default()
        }
    }

    #[test]
    fn a_rate_is_per_second() {
        let (before, after) = (stats(1000, 10), stats(3000, 20));
        let rates = Rates::between(&before, &after).unwrap();
        assert_eq!((rates.of(|stats| stats.traffic[0].ok), rates.processors()), (5.0, 0.5));
        assert_eq!(rates.processing(&after.processing[0]).buckets, [10, 10, 0]);
    }

    #[test]
    fn there_are_no_rates_across_a_restart_or_of_one_moment() {
        let before = stats(1000, 10);
        assert!(Rates::between(&before, &before).is_none());
        assert!(Rates::between(&stats(2000, 10), &before).is_none());
        assert!(Rates::between(&before, &Stats { started_unix_s: 6, ..stats(2000, 10) }).is_none());
        // A counter that goes back all the same has no negative rate.
        let after = stats(2000, 0);
        assert_eq!(Rates::between(&before, &after).unwrap().of(|stats| stats.traffic[0].ok), 0.0);
    }
}
