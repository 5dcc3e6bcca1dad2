//! How often each source asks, for any number of sources in a fixed amount of memory.
//!
//! A source has a bucket of tokens that fills up at its rate, and each request takes one. The state of a bucket is a
//! single number: the time at which it will be full again (the theoretical arrival time of the generic cell rate
//! algorithm, ITU-T I.371). These times lie in a count-min sketch. A source has four cells, and the earliest of their
//! times is its time. Only cells below the new time are raised (the conservative update of Estan and Varghese 2002).
//!
//! Nothing must be cleared or aged, because a time in the past means a full bucket. A source therefore occupies its
//! cells only while its bucket is not full. If two sources share a cell, they do not add up: the cell has the later of
//! their times. A source loses tokens to others only if each of its four cells belongs to a source that asks more often
//! at the same moment. Sources that rarely ask harm no other source, however many they are. The number of sources at
//! their maximum rate is at most the rate of all requests divided by the rate of one source: 20,000 for a million
//! requests a second and 50 for each source. They raise 80,000 of four million cells, so another source loses tokens
//! with a probability of about 10⁻⁵.
//!
//! Cells are plain atomics. If two threads serve the same source at the same moment, one of the two tokens may stay in
//! the bucket.
//!
//! A table with eviction was the alternative. A flood of more sources than it has entries would evict the other
//! sources.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use zerocopy::FromZeros;

/// Number of cells in a cache line.
const CELLS: usize = 8;

/// Number of lines in which a source has cells, and number of its cells in each line.
const LINES: usize = 2;
const CELLS_PER_LINE: usize = 2;

/// Largest number of lines, as a power of two.
const LINE_BITS_MAX: u32 = 19;

/// Bits of a hash that select a line and the cells in it.
const BITS: u32 = 32;

const NS_PER_S: u64 = 1_000_000_000;

/// A rate, and the size of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The time after which one token returns.
    token_ns: u64,
    /// The time after which an empty bucket is full.
    full_ns: u64,
}

impl Rate {
    /// Creates a rate of `per_s` requests a second, of which `burst` may come at once. Both are at least 1.
    pub const fn new(per_s: u32, burst: u32) -> Self {
        let per_s = if per_s == 0 { 1 } else { per_s as u64 };
        let burst = if burst == 0 { 1 } else { burst as u64 };
        let token_ns = NS_PER_S.div_ceil(per_s);
        Self { token_ns, full_ns: token_ns.saturating_mul(burst) }
    }

    /// Creates a rate of `count` requests in each period of `period_ns`, all of which may come at once. Both are at least 1.
    pub const fn per(count: u32, period_ns: u64) -> Self {
        let count = if count == 0 { 1 } else { count as u64 };
        let period_ns = if period_ns == 0 { 1 } else { period_ns };
        // The last token fits in spite of the rounding.
        let token_ns = period_ns.div_ceil(count);
        Self { token_ns, full_ns: token_ns.saturating_mul(count) }
    }

    /// Returns the rate of requests that take `weight` tokens each.
    #[must_use]
    pub const fn weighted(self, weight: u32) -> Self {
        Self { token_ns: self.token_ns.saturating_mul(weight as u64), full_ns: self.full_ns }
    }

    /// Returns the time after which one token returns, in nanoseconds.
    pub const fn token_ns(self) -> u64 {
        self.token_ns
    }

    /// Returns the time after which an empty bucket is full, in nanoseconds.
    pub const fn full_ns(self) -> u64 {
        self.full_ns
    }

    /// Returns the number of tokens of a full bucket.
    pub const fn burst(self) -> u64 {
        self.full_ns / self.token_ns
    }

    /// Returns the level of a bucket that is full again at a time.
    const fn level(self, full_at_ns: u64, now_ns: u64) -> Level {
        if full_at_ns <= now_ns {
            Level::Full
        } else if full_at_ns.saturating_add(self.token_ns) - now_ns > self.full_ns {
            Level::Empty
        } else {
            Level::Partial
        }
    }

    /// Returns the rate of a network that may ask `shares` times as often as a single source.
    #[must_use]
    pub const fn times(self, shares: u32) -> Self {
        let shares = if shares == 0 { 1 } else { shares as u64 };
        Self { token_ns: self.token_ns.div_ceil(shares), full_ns: self.full_ns }
    }
}

/// How full a bucket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It has no token.
    Empty,
    /// It has some of its tokens.
    Partial,
    /// It has all of its tokens.
    Full,
}

/// The outcome of taking tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Whether the buckets had the tokens.
    pub is_admitted: bool,
    /// The time from which all of the buckets are at least half full, if no further token is taken. A time in the past means
    /// that they are.
    pub half_full_ns: u64,
}

/// A single bucket that all sources share. Shared between threads: all methods take `&self`.
#[derive(Debug, Default)]
pub struct Bucket(AtomicU64);

/// The buckets of all sources. Shared between threads: all methods take `&self`.
pub struct Rates {
    /// The cells of all lines, behind some that are not used. Zeroes that were never written take no memory.
    cells: Vec<AtomicU64>,
    /// The number of cells before the first one at the beginning of a cache line.
    unused: usize,
    /// The number of lines minus one, of a power of two.
    mask: usize,
}

/// The size of a cache line in bytes.
const LINE_BYTES: usize = CELLS * size_of::<AtomicU64>();

impl Bucket {
    /// Takes a token, and returns whether it did. With `leaves_half`, it does not touch the last half.
    pub fn take(&self, rate: Rate, leaves_half: bool, now_ns: u64) -> bool {
        let full_ns = if leaves_half { rate.full_ns / 2 } else { rate.full_ns };
        let later = |time: u64| {
            let later = time.max(now_ns).saturating_add(rate.token_ns);
            (later - now_ns <= full_ns).then_some(later)
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).is_ok()
    }
}

impl fmt::Debug for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rates").finish_non_exhaustive()
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self::with_bytes(Self::BYTES_MAX)
    }
}

impl Rates {
    /// The largest memory of the buckets in bytes: 32 MiB.
    pub const BYTES_MAX: usize = LINE_BYTES << LINE_BITS_MAX;

    /// Creates full buckets for all sources that take at most this much memory, rounded down to a power of two.
    /// The kernel provides the memory as sources come.
    ///
    /// # Panics
    /// Panics if there is not enough address space.
    pub fn with_bytes(bytes: usize) -> Self {
        let lines = 1_usize << (bytes / LINE_BYTES).clamp(1, 1 << LINE_BITS_MAX).ilog2();
        // The allocator has no zeroes with the alignment of a line, so that they would be written.
        let cells = AtomicU64::new_vec_zeroed((lines + 1) * CELLS).expect("32 MiB of address space");
        let unused = cells.as_ptr().align_offset(LINE_BYTES).min(CELLS);
        Self { cells, unused, mask: lines - 1 }
    }

    /// Takes some tokens from the bucket of each of these sources, which all stand for the same client, or from none.
    /// A bucket with too few is not changed, so a source that asks too often is served at its rate. Time must not go back
    /// by more than a bucket takes to fill.
    #[inline]
    pub fn take<const N: usize>(&self, sources: [(u64, Rate); N], tokens: u32, now_ns: u64) -> Taken {
        let cells = sources.map(|(hash, _)| self.cells(hash));
        let mut later = [0; N];
        let mut half_full_ns = 0;
        for ((later, (_, rate)), cells) in later.iter_mut().zip(&sources).zip(&cells) {
            let times = cells.map(|cell| cell.load(Ordering::Relaxed));
            let time = times.into_iter().min().unwrap_or(0).max(now_ns);
            *later = time.saturating_add(rate.token_ns.saturating_mul(tokens.into()));
            if *later - now_ns > rate.full_ns {
                return Taken { is_admitted: false, half_full_ns: time.saturating_sub(rate.full_ns / 2) };
            }
            half_full_ns = half_full_ns.max(later.saturating_sub(rate.full_ns / 2));
        }
        for (later, cells) in later.into_iter().zip(&cells) {
            for cell in cells {
                if cell.load(Ordering::Relaxed) < later {
                    cell.store(later, Ordering::Relaxed);
                }
            }
        }
        Taken { is_admitted: true, half_full_ns }
    }

    /// Returns the level of the emptiest bucket of these sources, without taking a token.
    pub fn level<const N: usize>(&self, sources: [(u64, Rate); N], now_ns: u64) -> Level {
        let levels = sources.map(|(hash, rate)| {
            let times = self.cells(hash).map(|cell| cell.load(Ordering::Relaxed));
            rate.level(times.into_iter().min().unwrap_or(0), now_ns)
        });
        levels.into_iter().min().unwrap_or(Level::Full)
    }

    /// Fills the bucket of a source. Other sources may gain tokens by it, and lose none.
    pub fn refill(&self, hash: u64) {
        self.cells(hash).into_iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
    }

    /// Loads the lines of a source into the cache without waiting, before it asks.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let [first, _, second, _] = self.cells(hash);
        for cell in [first, second] {
            core::hint::black_box(cell.load(Ordering::Relaxed));
        }
    }

    #[inline]
    fn cells(&self, hash: u64) -> [&AtomicU64; LINES * CELLS_PER_LINE] {
        let number = |bits: u64| usize::try_from(bits & 0xffff_ffff).unwrap_or(0);
        let [first, second] = [number(hash), number(hash >> BITS)].map(|bits| {
            let cells = &self.cells[self.unused + (bits & self.mask) * CELLS..][..CELLS];
            let place = bits >> LINE_BITS_MAX;
            let one = place % CELLS;
            // A different cell from the first one.
            let other = one ^ (1 + (place / CELLS) % (CELLS - 1));
            [&cells[one], &cells[other]]
        });
        [first[0], first[1], second[0], second[1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = NS_PER_S;

    /// Returns how many of some requests at one time are admitted.
    fn taken(rates: &Rates, hash: u64, rate: Rate, requests: u32, now_ns: u64) -> u32 {
        (0..requests).map(|_| u32::from(rates.take([(hash, rate)], 1, now_ns).is_admitted)).sum()
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let (rates, rate) = (Rates::default(), Rate::new(10, 50));
        assert_eq!(taken(&rates, 1, rate, 1000, S), 50);
        assert_eq!(taken(&rates, 1, rate, 1000, S + S / 10), 1);
        assert_eq!(taken(&rates, 1, rate, 1000, 2 * S), 9);
        assert_eq!(taken(&rates, 1, rate, 1000, 100 * S), 50, "it fills up to the burst and no further");
        assert_eq!(taken(&rates, 2 << 32 | 5, rate, 1000, 100 * S), 50);
    }

    #[test]
    fn the_level_tells_what_would_be_taken() {
        let (rates, rate) = (Rates::default(), Rate::new(1, 3));
        let level = |now_ns| rates.level([(1, rate), (2 << 40, rate)], now_ns);
        assert_eq!(level(S), Level::Full);
        for expected in [Level::Partial, Level::Partial, Level::Empty] {
            assert_eq!(taken(&rates, 1, rate, 1, S), 1);
            assert_eq!(level(S), expected);
        }
        assert_eq!(taken(&rates, 1, rate, 1, S), 0);
        assert_eq!([2, 3, 4].map(|s| level(s * S)), [Level::Partial, Level::Partial, Level::Full]);
    }

    #[test]
    fn a_rate_of_a_period_may_come_at_once() {
        let (rates, rate) = (Rates::default(), Rate::per(7, 60 * S));
        assert_eq!(taken(&rates, 1, rate, 100, S), 7);
        assert_eq!(taken(&rates, 1, rate, 100, 10 * S), 1);
        rates.refill(1);
        assert_eq!(taken(&rates, 1, rate, 100, 10 * S), 7);
        assert_eq!(taken(&rates, 3, Rate::per(0, 0), 100, S), 1);
    }

    #[test]
    fn half_of_a_bucket_is_kept_for_others() {
        let (bucket, rate) = (Bucket::default(), Rate::new(10, 20));
        let taken = |leaves_half, now_ns| (0..100).filter(|_| bucket.take(rate, leaves_half, now_ns)).count();
        assert_eq!((taken(true, S), taken(true, S)), (10, 0));
        assert_eq!((taken(false, S), taken(false, S)), (10, 0));
        assert_eq!(taken(true, 2 * S), 0, "the other half fills up first");
        assert_eq!((taken(false, 2 * S), taken(true, 4 * S)), (10, 10));
    }

    #[test]
    fn extreme_rates() {
        let rates = Rates::default();
        assert_eq!(taken(&rates, 1, Rate::new(0, 0), 5, 0), 1);
        assert_eq!(taken(&rates, 2, Rate::new(1, u32::MAX), 5, u64::MAX / 2), 5);
        assert_eq!(taken(&rates, 3, Rate::new(u32::MAX, 1), 5, S), 1);
        assert_eq!(taken(&rates, 4, Rate::new(1, 1).times(8), 20, S), 8);
        assert_eq!(taken(&rates, 4, Rate::new(1, 1).times(8), 20, 2 * S), 8);
    }

    #[test]
    fn an_empty_bucket_of_one_network_keeps_the_others_full() {
        let (rates, rate) = (Rates::default(), Rate::new(1, 4));
        let of = |address, network| [(address, rate), (network, rate)];
        assert!((0..4).all(|address| rates.take(of(address << 40 | 7, 9), 1, S).is_admitted));
        assert!((0..100).all(|_| !rates.take(of(3 << 50, 9), 1, S).is_admitted));
        assert_eq!(taken(&rates, 3 << 50, rate, 10, S), 4, "what is refused takes nothing");
    }

    #[test]
    fn several_tokens_are_taken_together_or_not_at_all() {
        let (rates, rate) = (Rates::default(), Rate::new(10, 40));
        let take = |tokens, now_ns| rates.take([(1, rate)], tokens, now_ns);
        assert_eq!(take(16, 100 * S), Taken { is_admitted: true, half_full_ns: 99 * S + 6 * S / 10 });
        assert_eq!(take(16, 100 * S), Taken { is_admitted: true, half_full_ns: 101 * S + 2 * S / 10 });
        assert!(!take(16, 100 * S).is_admitted);
        assert!(take(8, 100 * S).is_admitted && !take(1, 100 * S).is_admitted);
        assert_eq!(take(1, 100 * S).half_full_ns, 102 * S);
    }

    #[test]
    fn small_tables_hold_few_sources_exactly() {
        let (rates, rate) = (Rates::with_bytes(1 << 20), Rate::new(10, 50));
        let mut rng = fastrand::Rng::with_seed(3);
        assert!((0..500).all(|_| taken(&rates, rng.u64(..), rate, 100, S) == 50));
    }

    #[test]
    fn a_flood_of_many_sources_harms_no_other_source() {
        let (rates, rate, mut rng) = (Rates::default(), Rate::new(20, 100), fastrand::Rng::with_seed(1));
        let honest: Vec<u64> = (0..2000).map(|_| rng.u64(..)).collect();
        // Eleven million sources in eleven seconds.
        for step in 0..1100_u64 {
            let now_ns = S + step * S / 100;
            for _ in 0..10_000 {
                rates.take([(rng.u64(..), rate)], 1, now_ns);
            }
            // 10 requests a second each, in turn.
            for hash in honest.iter().skip(usize::try_from(step % 10).unwrap()).step_by(10) {
                assert!(rates.take([(*hash, rate)], 1, now_ns).is_admitted);
            }
        }
    }

    #[test]
    fn sources_at_their_limits_share_hardly_any_cells_with_others() {
        let (rates, rate, mut rng) = (Rates::default(), Rate::new(50, 200), fastrand::Rng::with_seed(2));
        // As many as a flood of a million requests a second can keep at their limits.
        for _ in 0..20_000 {
            let hash = rng.u64(..);
            assert!(taken(&rates, hash, rate, 200, S) >= 190);
        }
        let refused = (0..100_000).filter(|_| !rates.take([(rng.u64(..), rate)], 1, S).is_admitted).count();
        assert!(refused <= 5, "{refused} of 100,000");
    }
}
