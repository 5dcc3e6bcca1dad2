//! The progress of a run while it goes on.
//!
//! Each worker writes a [`Live`] of its own with plain stores. The session reads them all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The way to observe a run, and to end it.
pub struct Watch<'w> {
    /// Set this to end the run early, with the measurements so far.
    pub cancel: &'w AtomicBool,
    /// Called a few times per second, on the thread that called for the run.
    pub progress: &'w mut dyn FnMut(&Progress),
}

/// The state of a run. Rates and latencies cover the time since the last report of progress.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// The share that is done, 0 to 1, if that is known.
    pub done_share: Option<f64>,
    /// The time since the beginning of the run.
    pub elapsed: Duration,
    /// Good replies so far.
    pub responses: u64,
    /// Good replies per second.
    pub responses_per_s: f64,
    /// Requests without a reply in time, so far.
    pub lost: u64,
    /// Replies that refuse the request, so far.
    pub errors: u64,
    /// Replies that break a rule, so far.
    pub wrong: u64,
    /// The median latency in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the latency in microseconds.
    pub p99_us: f64,
}

/// Buckets of latencies by magnitude: eight for each doubling from 1 ns on.
const BUCKETS: usize = 8 * 40;

/// The counts that a worker publishes during a run.
#[derive(Debug)]
#[repr(align(128))] // Two cache lines, so that workers do not slow each other down.
pub(crate) struct Live {
    responses: AtomicU64,
    lost: AtomicU64,
    errors: AtomicU64,
    wrong: AtomicU64,
    /// Requests of a fill that got a reply of any kind, or connections that were opened.
    done: AtomicU64,
    latencies: Box<[AtomicU64]>,
}

/// The sum of the counts of all workers at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) responses: u64,
    pub(crate) lost: u64,
    pub(crate) errors: u64,
    pub(crate) wrong: u64,
    pub(crate) done: u64,
    latencies: Vec<u64>,
}

impl Live {
    pub(crate) fn new() -> Self {
        Self {
            responses: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            done: AtomicU64::new(0),
            latencies: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn record(&self, latency_ns: u64) {
        self.record_latency(latency_ns);
        self.add(1);
    }

    /// Records the latency of a good reply that is counted by [`Live::add`].
    pub(crate) fn record_latency(&self, latency_ns: u64) {
        add(&self.latencies[bucket(latency_ns)], 1);
    }

    pub(crate) fn add(&self, replies: u64) {
        add(&self.responses, replies);
    }

    /// Publishes the other counts, which change rarely.
    pub(crate) fn show(&self, lost: u64, errors: u64, wrong: u64, done: u64) {
        self.lost.store(lost, Ordering::Relaxed);
        self.errors.store(errors, Ordering::Relaxed);
        self.wrong.store(wrong, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    pub(crate) fn reset(&self) {
        self.responses.store(0, Ordering::Relaxed);
        self.show(0, 0, 0, 0);
        self.latencies.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
    }
}

/// Adds to a count that only one thread writes.
fn add(count: &AtomicU64, number: u64) {
    count.store(count.load(Ordering::Relaxed) + number, Ordering::Relaxed);
}

impl Snapshot {
    pub(crate) fn of<'l>(lives: impl Iterator<Item = &'l Live>) -> Self {
        let mut sum =
            Self { responses: 0, lost: 0, errors: 0, wrong: 0, done: 0, latencies: vec![0; BUCKETS] };
        for live in lives {
            let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
            sum.responses += read(&live.responses);
            sum.lost += read(&live.lost);
            sum.errors += read(&live.errors);
            sum.wrong += read(&live.wrong);
            sum.done += read(&live.done);
            for (total, bucket) in sum.latencies.iter_mut().zip(&live.latencies) {
                *total += read(bucket);
            }
        }
        sum
    }

    /// Returns the progress since `earlier`, which was taken `between` ago.
    pub(crate) fn since(&self, earlier: &Self, between: Duration, elapsed: Duration) -> Progress {
        let latencies = self.latencies.iter().zip(&earlier.latencies);
        let latencies: Vec<u64> = latencies.map(|(now, then)| now.saturating_sub(*then)).collect();
        let responses = self.responses.saturating_sub(earlier.responses);
        #[expect(clippy::cast_precision_loss, reason = "a display needs no more than 2^53")]
        let responses_per_s = responses as f64 / between.as_secs_f64().max(1e-9);
        Progress {
            done_share: None,
            elapsed,
            responses: self.responses,
            responses_per_s,
            lost: self.lost,
            errors: self.errors,
            wrong: self.wrong,
            p50_us: percentile_us(&latencies, 50),
            p99_us: percentile_us(&latencies, 99),
        }
    }
}

/// Returns the bucket of a latency: the position of the highest bit, and the three bits below it.
fn bucket(ns: u64) -> usize {
    let ns = ns.max(8);
    let doublings = ns.ilog2() as usize;
    let eighth = (ns >> (doublings - 3)) & 7;
    (doublings * 8 + usize::try_from(eighth).expect("three bits")).min(BUCKETS - 1)
}

/// Returns the smallest latency of a bucket in microseconds.
fn begin_us(bucket: usize) -> f64 {
    let (doublings, eighth) = (bucket / 8, bucket % 8);
    #[expect(clippy::cast_precision_loss, reason = "both are below a thousand")]
    let begin = (1.0 + eighth as f64 / 8.0) * (doublings as f64).exp2();
    begin / 1e3
}

fn percentile_us(latencies: &[u64], percent: u64) -> f64 {
    let wanted = latencies.iter().sum::<u64>() * percent / 100;
    let mut sum = 0;
    let found = latencies.iter().position(|count| {
        sum += count;
        sum > wanted
    });
    found.map_or(0.0, begin_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_near() {
        let live = Live::new();
        let before = Snapshot::of([&live].into_iter());
        (1..=1000).for_each(|us| live.record(us * 1000));
        let progress = Snapshot::of([&live].into_iter()).since(
            &before,
            Duration::from_millis(500),
            Duration::from_secs(3),
        );
        assert_eq!(progress.responses, 1000);
        assert!((progress.responses_per_s - 2000.0).abs() < 1.0);
        assert!((430.0..=501.0).contains(&progress.p50_us), "{}", progress.p50_us);
        assert!((870.0..=991.0).contains(&progress.p99_us), "{}", progress.p99_us);
    }

    #[test]
    fn buckets_are_in_order_and_cover_everything() {
        let samples = (0..64).flat_map(|shift| [0, 1, 3, 5, 7].map(|eighth| (8 + eighth) << shift >> 3));
        let mut samples: Vec<u64> = samples.collect();
        samples.sort_unstable();
        let buckets: Vec<usize> = samples.into_iter().map(bucket).collect();
        assert!(buckets.is_sorted() && buckets.iter().all(|bucket| *bucket < BUCKETS));
    }
}
