//! Histograms of a worker, in classic buckets.

use crate::metrics::Counter;

/// Counts of values by magnitude. Like a [`Counter`], it has one writer.
#[derive(Debug)]
pub struct Histogram {
    /// The largest value of each bucket but the last, in ascending order.
    bounds: &'static [u64],
    /// The number of values in each bucket, not cumulative.
    buckets: Box<[Counter]>,
    sum: Counter,
}

/// The state of a histogram at one time, or the sum of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramCounts {
    /// The largest value of each bucket but the last, in ascending order.
    pub bounds: &'static [u64],
    /// The number of values in each bucket, not cumulative. The last bucket has all values above the last bound.
    pub buckets: Vec<u64>,
    /// The sum of all values.
    pub sum: u64,
}

impl Histogram {
    /// Creates a histogram whose buckets end at these values, in ascending order.
    pub fn new(bounds: &'static [u64]) -> Self {
        debug_assert!(bounds.is_sorted());
        let buckets = (0..=bounds.len()).map(|_| Counter::default()).collect();
        Self { bounds, buckets, sum: Counter::default() }
    }

    /// Counts a value. Only the worker that owns the histogram may call this.
    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].increment();
        self.sum.add(value);
    }

    /// Returns the counts so far. A value that the worker counts meanwhile may be in only one of the numbers.
    pub fn read(&self) -> HistogramCounts {
        HistogramCounts {
            bounds: self.bounds,
            buckets: self.buckets.iter().map(Counter::read).collect(),
            sum: self.sum.read(),
        }
    }
}

impl HistogramCounts {
    /// Returns counts without values.
    pub fn none(bounds: &'static [u64]) -> Self {
        Self { bounds, buckets: vec![0; bounds.len() + 1], sum: 0 }
    }

    /// Returns the sums of two histograms with the same buckets.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        debug_assert_eq!(self.bounds, other.bounds);
        for (bucket, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += count;
        }
        self.sum += other.sum;
        self
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[u64] = &[1, 10, 100];

    #[test]
    fn values_are_in_the_bucket_that_ends_at_them() {
        let histogram = Histogram::new(BOUNDS);
        for value in [0, 1, 2, 10, 11, 100, 101, 5000] {
            histogram.observe(value);
        }
        let counts = histogram.read();
        assert_eq!(counts.buckets, [2, 2, 2, 2]);
        assert_eq!((counts.sum, counts.count()), (5225, 8));
    }

    #[test]
    fn histograms_are_added_up() {
        let (one, other) = (Histogram::new(BOUNDS), Histogram::new(BOUNDS));
        one.observe(5);
        other.observe(5);
        other.observe(500);
        let sum = HistogramCounts::none(BOUNDS).plus(&one.read()).plus(&other.read());
        assert_eq!((sum.buckets, sum.sum), (vec![0, 2, 0, 1], 510));
    }
}
