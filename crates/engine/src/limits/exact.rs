//! The sources of which every request counts.
//!
//! A source with a bucket that is less than half full is near its limit. From then until the bucket is half full again, all
//! requests of the source count, and one beyond the limit is refused exactly. The others are far from any limit, and
//! samples of their requests are enough.
//!
//! A cell holds the second until which its sources are counted exactly, so nothing needs to be cleared. Sources that share
//! a cell are counted exactly together, which takes time and refuses none of them. Cells are chosen by a
//! product with a secret number (multiply-shift hashing). While no source is near its limit, no cell is read.

use core::sync::atomic::{AtomicU32, Ordering};

/// Number of cells, as a power of two. A flood keeps 20,000 sources near their limits, see [`shoal_base::source::Rates`];
/// most other sources are then still counted by samples.
const CELL_BITS: u32 = 16;

const NS_PER_S: u64 = 1_000_000_000;

/// The time until which each source is counted exactly. Shared between threads.
#[derive(Debug)]
pub(super) struct ExactSources {
    multiplier: u64,
    /// The latest second in any cell.
    latest_s: AtomicU32,
    cells: [AtomicU32; 1 << CELL_BITS],
}

impl ExactSources {
    /// The memory in bytes: 256 KiB.
    pub(super) const BYTES: usize = size_of::<Self>();

    /// Creates an empty set, under a secret.
    pub(super) fn new(secret: u64) -> Self {
        let cells = [const { AtomicU32::new(0) }; 1 << CELL_BITS];
        Self { multiplier: secret | 1, latest_s: AtomicU32::new(0), cells }
    }

    /// Returns whether all requests from any network count now.
    #[inline]
    pub(super) fn are_any(&self, now_s: u32) -> bool {
        self.latest_s.load(Ordering::Relaxed) > now_s
    }

    /// Returns whether all requests from a network count now.
    #[inline]
    pub(super) fn contain(&self, network: u64, now_s: u32) -> bool {
        self.cell(network).load(Ordering::Relaxed) > now_s
    }

    /// Counts all requests from a network up to a time on the clock of [`contain`](Self::contain).
    #[cold]
    pub(super) fn add(&self, network: u64, until_ns: u64) {
        let until_s = u32::try_from(until_ns / NS_PER_S + 1).unwrap_or(u32::MAX);
        self.cell(network).fetch_max(until_s, Ordering::Relaxed);
        // Under a flood, most times are no later, and the line stays shared.
        if until_s > self.latest_s.load(Ordering::Relaxed) {
            self.latest_s.fetch_max(until_s, Ordering::Relaxed);
        }
    }

    #[inline]
    fn cell(&self, network: u64) -> &AtomicU32 {
        let number = network.wrapping_mul(self.multiplier) >> (u64::BITS - CELL_BITS);
        &self.cells[usize::try_from(number).unwrap_or(0) & ((1 << CELL_BITS) - 1)]
    }
}
