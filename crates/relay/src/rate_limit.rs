//! Limits of the bytes that a sender may have relayed: a token bucket for each connection and one for each source.
//!
//! A bucket is a single number, the time at which it is full again (the "virtual scheduling algorithm" of ITU-T I.371).
//! The buckets of sources are in a sketch of fixed size, which all workers share: two rows of cells, indexed by the
//! keyed hash of the source, of which the fuller one counts. Memory is therefore bounded for any number of sources, an
//! idle bucket needs no maintenance, and a source is limited by the traffic of others only if it shares both its cells
//! with them.

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};

use shoal_source::Source;

/// Resolution of the times in buckets. 32 bits then last for twelve days. A bucket that was unused for that long may
/// seem empty for some seconds.
const TICKS_PER_S: u32 = 4096;

/// Capacity of a bucket in seconds of its rate: when a client starts, the announces of all its torrents come at once.
const BURST_S: u32 = 8;

const BURST_TICKS: u32 = BURST_S * TICKS_PER_S;

/// Rate of a source as a multiple of the rate of a connection, since many clients may share an address.
const CONNECTIONS_PER_SOURCE: u32 = 8;

/// Number of cells in a row. Both rows take 32 KiB.
const ROW_CELLS: usize = 4096;

/// The token bucket of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenBucket(u32);

/// The rate limits of all connections and sources.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Rate of a connection in bytes per second; `None` means no limit.
    rate: Option<NonZeroU32>,
    cells: [Box<[AtomicU32]>; 2],
}

impl TokenBucket {
    /// Returns its state, for another process with the same clock.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// Returns the bucket with this state.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl RateLimiter {
    /// Creates a limiter with full buckets. A rate of zero means no limit.
    pub(crate) fn new(bytes_per_s: u32) -> Self {
        let cells = if bytes_per_s == 0 { 0 } else { ROW_CELLS };
        let row = || (0..cells).map(|_| AtomicU32::new(0)).collect();
        Self { rate: NonZeroU32::new(bytes_per_s), cells: [row(), row()] }
    }

    /// Returns the number of bytes that may be relayed now.
    pub(crate) fn available_bytes(&self, source: Source, bucket: TokenBucket, now_s: u32) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        let now = ticks(now_s);
        let left = |used_ticks: u32| u64::from(BURST_TICKS.saturating_sub(used_ticks));
        let of_connection = left(used(bucket.0, now)) * u64::from(rate.get());
        let of_source =
            left(self.used_by(source, now)) * u64::from(rate.get()) * u64::from(CONNECTIONS_PER_SOURCE);
        of_connection.min(of_source) / u64::from(TICKS_PER_S)
    }

    /// Records that `bytes` were relayed.
    pub(crate) fn charge(&self, source: Source, bucket: &mut TokenBucket, bytes: u64, now_s: u32) {
        let Some(rate) = self.rate else { return };
        let now = ticks(now_s);
        // Rounded up, so that a message of less than a tick is not free. Otherwise a flood of small messages would be.
        let byte_ticks = bytes.saturating_mul(TICKS_PER_S.into());
        let cost = byte_ticks.div_ceil(rate.get().into());
        let cost_of_source = byte_ticks.div_ceil(u64::from(rate.get()) * u64::from(CONNECTIONS_PER_SOURCE));
        let full_again = |used_ticks: u32, cost: u64| {
            let cost = u32::try_from(cost).unwrap_or(u32::MAX).min(BURST_TICKS);
            now.wrapping_add(used_ticks.min(BURST_TICKS) + cost)
        };
        bucket.0 = full_again(used(bucket.0, now), cost);
        let source_full_again = full_again(self.used_by(source, now), cost_of_source);
        for cell in self.cells_of(source) {
            // An update by another worker at the same moment may be lost. This is rare and favours the sender.
            if used(cell.load(Ordering::Relaxed), now) < source_full_again.wrapping_sub(now) {
                cell.store(source_full_again, Ordering::Relaxed);
            }
        }
    }

    fn used_by(&self, source: Source, now: u32) -> u32 {
        let used = self.cells_of(source).map(|cell| used(cell.load(Ordering::Relaxed), now));
        used.min().unwrap_or(0)
    }

    fn cells_of(&self, source: Source) -> impl Iterator<Item = &AtomicU32> {
        let hash = source.network();
        self.cells.iter().zip([hash, hash >> 16]).filter_map(|(row, hash)| {
            let cells = u32::try_from(row.len()).ok()?;
            row.get(usize::try_from(hash.checked_rem(cells)?).ok()?)
        })
    }
}

const fn ticks(now_s: u32) -> u32 {
    now_s.wrapping_mul(TICKS_PER_S)
}

/// Returns the used part, in ticks, of a bucket that is full again at the given time. No time is more than two bursts
/// ahead; one that seems to be is long past.
const fn used(full_again: u32, now: u32) -> u32 {
    let ahead = full_again.wrapping_sub(now);
    if ahead <= 2 * BURST_TICKS { ahead } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 1000;
    const BURST_BYTES: u64 = 1000 * BURST_S as u64;

    #[test]
    fn a_connection_has_its_rate_and_a_burst() {
        for start_s in [0, 5, u32::MAX / TICKS_PER_S - 20, u32::MAX - 1000] {
            let limiter = RateLimiter::new(RATE);
            let (source, mut bucket) = (Source::of_hash(7), TokenBucket::default());
            assert_eq!(limiter.available_bytes(source, bucket, start_s), BURST_BYTES, "{start_s}");
            limiter.charge(source, &mut bucket, BURST_BYTES - 1000, start_s);
            assert_eq!(limiter.available_bytes(source, bucket, start_s), 1000);
            // One message may exceed the limit.
            limiter.charge(source, &mut bucket, 3000, start_s);
            assert_eq!(limiter.available_bytes(source, bucket, start_s), 0);
            assert_eq!(limiter.available_bytes(source, bucket, start_s.wrapping_add(2)), 0);
            assert_eq!(limiter.available_bytes(source, bucket, start_s.wrapping_add(3)), 1000);
            assert_eq!(limiter.available_bytes(source, bucket, start_s.wrapping_add(100)), BURST_BYTES);
            assert_eq!(limiter.available_bytes(source, bucket, start_s.wrapping_add(1_000_000)), BURST_BYTES);
        }
    }

    #[test]
    fn a_source_has_a_multiple_of_the_rate_over_all_its_connections() {
        let limiter = RateLimiter::new(RATE);
        for connection in 0..CONNECTIONS_PER_SOURCE {
            let mut bucket = TokenBucket::default();
            assert_eq!(limiter.available_bytes(Source::of_hash(7), bucket, 10), BURST_BYTES, "{connection}");
            limiter.charge(Source::of_hash(7), &mut bucket, BURST_BYTES, 10);
        }
        let available =
            |hash, now_s| limiter.available_bytes(Source::of_hash(hash), TokenBucket::default(), now_s);
        assert_eq!(available(7, 10), 0);
        assert_eq!(available(7, 11), 8 * u64::from(RATE));
        // Others are not limited, although they share one of its cells.
        for other in [8, 7 + (8 << 16), 7 + (1 << 30) + 1] {
            assert_eq!(available(other, 10), BURST_BYTES);
        }
    }

    #[test]
    fn small_messages_are_not_free() {
        let limiter = RateLimiter::new(256 * 1024);
        let source = Source::of_hash(7);
        let burst_bytes = 256 * 1024 * u64::from(BURST_S);
        let mut bucket = TokenBucket::default();
        (0..burst_bytes / 50).for_each(|_| limiter.charge(source, &mut bucket, 50, 10));
        assert!(limiter.available_bytes(source, bucket, 10) < 100);
        for _ in 0..burst_bytes * u64::from(CONNECTIONS_PER_SOURCE) / 50 {
            limiter.charge(source, &mut TokenBucket::default(), 50, 10);
        }
        assert!(limiter.available_bytes(source, TokenBucket::default(), 10) < 1000);
    }

    #[test]
    fn a_rate_of_zero_limits_nothing() {
        let limiter = RateLimiter::new(0);
        let mut bucket = TokenBucket::default();
        limiter.charge(Source::of_hash(1), &mut bucket, u64::MAX, 5);
        assert_eq!(limiter.available_bytes(Source::of_hash(1), bucket, 5), u64::MAX);
    }
}
