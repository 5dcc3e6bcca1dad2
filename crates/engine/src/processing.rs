//! How long the tracker takes for requests: from the receipt of a batch or an input until the kernel has the replies.
//!
//! The exact clock is an argument. It is read twice for one in 32 batches or inputs, at random distances. Messages of
//! WebSockets leave at the end of a poll round, so that is where their time ends. Inputs of a handshake count as HTTP.

use std::sync::Arc;

use shoal_base::metrics::{Histogram, HistogramCounts};

use crate::policy::Protocol;

/// The mean distance between two measured batches.
const DISTANCE: u32 = 32;

/// The ends of the buckets of times, in nanoseconds: 2.5 µs to a second.
const TIME_BOUNDS_NS: &[u64] = &[
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    1_000_000_000,
];

/// The ends of the buckets of batch sizes. The last one is the largest batch.
const SIZE_BOUNDS: &[u64] = &[1, 2, 4, 8, 16, 32, 64];

/// The measurements of one worker.
#[derive(Debug)]
pub struct ProcessingCounters {
    /// The times of each protocol.
    times: [Histogram; Protocol::ALL.len()],
    batch_sizes: Histogram,
}

impl Default for ProcessingCounters {
    fn default() -> Self {
        let times = Protocol::ALL.map(|_| Histogram::new(TIME_BOUNDS_NS));
        Self { times, batch_sizes: Histogram::new(SIZE_BOUNDS) }
    }
}

impl ProcessingCounters {
    /// Returns the times of a protocol in nanoseconds, over all workers.
    pub fn sum_times<'w>(workers: impl Iterator<Item = &'w Self>, protocol: Protocol) -> HistogramCounts {
        workers.fold(HistogramCounts::none(TIME_BOUNDS_NS), |sum, worker| {
            sum.plus(&worker.times[protocol as usize].read())
        })
    }

    /// Returns the numbers of datagrams in a batch, over all workers.
    pub fn sum_batch_sizes<'w>(workers: impl Iterator<Item = &'w Self>) -> HistogramCounts {
        workers.fold(HistogramCounts::none(SIZE_BOUNDS), |sum, worker| sum.plus(&worker.batch_sizes.read()))
    }
}

/// Measures the batches of one worker.
#[derive(Debug)]
pub struct Stopwatch {
    counters: Arc<ProcessingCounters>,
    /// The number of batches up to the next measured one.
    left: u32,
    rng: fastrand::Rng,
    /// Reads the exact clock in nanoseconds.
    precise_ns: fn() -> u64,
    /// When the batch that is measured began.
    started_ns: Option<u64>,
}

impl Stopwatch {
    /// Creates a stopwatch that measures into `counters` by the exact clock `precise_ns`. The generator chooses the batches.
    pub const fn new(counters: Arc<ProcessingCounters>, rng: fastrand::Rng, precise_ns: fn() -> u64) -> Self {
        Self { counters, left: 1, rng, precise_ns, started_ns: None }
    }

    /// Counts a batch, and begins to measure it if it is due.
    pub fn begin(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            self.left = self.rng.u32(1..2 * DISTANCE);
            self.started_ns = Some((self.precise_ns)());
        }
    }

    /// Counts the size of the measured batch, if there is one.
    pub fn note_size(&self, datagrams: usize) {
        if self.started_ns.is_some() {
            self.counters.batch_sizes.observe(datagrams as u64);
        }
    }

    /// Ends the measurement, if there is one.
    pub fn end(&mut self, protocol: Protocol) {
        if let Some(started_ns) = self.started_ns.take() {
            self.counters.times[protocol as usize].observe((self.precise_ns)().saturating_sub(started_ns));
        }
    }
}
