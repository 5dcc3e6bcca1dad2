//! The number of entries of each source, for any number of sources in a fixed amount of memory.
//!
//! This is a count-min sketch (Cormode and Muthukrishnan 2005) of the current entries: an entry is added when it is
//! stored and subtracted when it is removed. So nothing needs to decay, and a source cannot keep its entries and wait
//! until they are forgotten. A count is never too low. Other sources make it too high by what they add to the same
//! counters: on average, in the lowest of its counters, their number of entries divided by [`Sketch::width`].

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

/// Number of counters of a source. With four, a source that holds little shares all its counters with sources that hold
/// much only if there are thousands of these.
const ROWS: usize = 4;

/// Number of bits by which a hash is rotated from row to row. Rows of up to 2^16 counters use separate bits. Wider rows
/// share some with the next row.
const ROW_BITS: u32 = u64::BITS / 4;

/// Minimum and maximum number of counters of a row, as powers of two: 128 KiB and 256 KiB in all.
const WIDTH_BITS: (u32, u32) = (13, 14);

const _: () = assert!(WIDTH_BITS.1 <= ROW_BITS, "each row has bits of its own");

/// Maximum number of counters of a row, as a power of two. Beyond it, rows would share most of their bits.
const COUNTERS_BITS_MAX: u32 = 24;

/// Possible entries per counter of a row, within the bounds above.
const ENTRIES_PER_COUNTER: u64 = 8;

/// Counts by source. Shared between threads: all methods take `&self`.
pub struct Sketch {
    rows: [Box<[AtomicU32]>; ROWS],
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sketch").field("width", &self.width()).finish_non_exhaustive()
    }
}

impl Sketch {
    /// Creates a sketch with all counts at zero, for up to about `entries_max` entries of all sources together.
    pub fn new(entries_max: u64) -> Self {
        let counters = (entries_max / ENTRIES_PER_COUNTER).clamp(1 << WIDTH_BITS.0, 1 << WIDTH_BITS.1);
        Self::with_counters(counters.ilog2())
    }

    /// Returns all counters, for [`set_words`](Self::set_words) in another process.
    pub fn words(&self) -> impl Iterator<Item = u32> {
        self.rows.iter().flatten().map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Replaces all counters by those of a sketch of the same size, whose entries have the same hashes.
    pub fn set_words(&self, counters: impl IntoIterator<Item = u32>) {
        let mut counters = counters.into_iter();
        // Counts beyond the last one belong to another sketch.
        for counter in self.rows.iter().flatten() {
            counter.store(counters.next().unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.rows[0].iter().map(|counter| u64::from(counter.load(Ordering::Relaxed))).sum()
    }

    /// Creates a sketch with all counts at zero and `2^bits` counters in each row, at most 2²⁴. It takes
    /// [`bytes`](Self::bytes).
    pub fn with_counters(bits: u32) -> Self {
        let width = 1_usize << bits.min(COUNTERS_BITS_MAX);
        Self { rows: core::array::from_fn(|_| (0..width).map(|_| AtomicU32::new(0)).collect()) }
    }

    /// Returns the memory of a sketch with `2^bits` counters in each row.
    pub const fn bytes(bits: u32) -> usize {
        (ROWS * size_of::<AtomicU32>()) << bits
    }

    /// Returns the number of counters of a row.
    pub fn width(&self) -> usize {
        self.rows[0].len()
    }

    /// Counts an entry of the source with this hash.
    #[inline]
    pub fn add(&self, hash: u64) {
        for counter in self.counters(hash) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Subtracts an entry of the source with this hash. The entry must have been added.
    #[inline]
    pub fn remove(&self, hash: u64) {
        for counter in self.counters(hash) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of entries of the source with this hash, or slightly more.
    #[inline]
    pub fn count(&self, hash: u64) -> u32 {
        self.counters(hash).map(|counter| counter.load(Ordering::Relaxed)).into_iter().min().unwrap_or(0)
    }

    #[inline]
    fn counters(&self, hash: u64) -> [&AtomicU32; ROWS] {
        let mut hash = hash;
        self.rows.each_ref().map(|counters| {
            let bits = hash & (counters.len() as u64 - 1);
            hash = hash.rotate_right(ROW_BITS);
            &counters[usize::try_from(bits).unwrap_or(0)]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_follows_the_ceiling_within_bounds() {
        assert_eq!(Sketch::new(0).width(), 1 << 13);
        assert_eq!(Sketch::new(1 << 17).width(), 1 << 14);
        assert_eq!(Sketch::new(u64::MAX).width(), 1 << 14);
    }

    #[test]
    fn counts_are_never_too_low_and_seldom_much_too_high() {
        let (sketch, mut rng) = (Sketch::new(1 << 17), fastrand::Rng::with_seed(3));
        let sources: Vec<(u64, u32)> = (0..20_000).map(|_| (rng.u64(..), rng.u32(1..6))).collect();
        let greedy = (rng.u64(..), 50_000);
        for &(hash, count) in sources.iter().chain([&greedy]) {
            (0..count).for_each(|_| sketch.add(hash));
        }
        let above = |&(hash, count): &(u64, u32)| {
            let counted = sketch.count(hash);
            assert!(counted >= count);
            counted - count
        };
        assert!(above(&greedy) < 100);
        let much = sources.iter().filter(|source| above(source) > 16).count();
        assert!(much < sources.len() / 100, "{much} of {}", sources.len());
    }

    #[test]
    fn removed_entries_leave_no_counts() {
        let (sketch, mut rng) = (Sketch::new(1 << 17), fastrand::Rng::with_seed(4));
        let hashes: Vec<u64> = (0..50_000).map(|_| rng.u64(..)).collect();
        hashes.iter().for_each(|&hash| sketch.add(hash));
        hashes.iter().rev().for_each(|&hash| sketch.remove(hash));
        assert!(hashes.iter().all(|&hash| sketch.count(hash) == 0));
    }
}
