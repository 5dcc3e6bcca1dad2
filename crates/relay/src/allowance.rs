//! How many bytes a sender may have relayed: a token bucket for each connection, and one for each source.
//!
//! A bucket is one number, the moment at which it is full again (the "virtual scheduling" of ITU-T I.371). Those of
//! sources stand in a sketch of fixed size that all workers share: two rows of cells, found by the keyed hash of the
//! source, of which the one that is fuller counts. So memory is bounded however many sources there are, an idle bucket
//! needs no attention, and a source is limited for the sake of others only where it shares both its cells.

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::key::Source;

/// Parts of a second in which buckets are counted. A number of 32 bits then lasts for twelve days, after which a bucket
/// that was not used meanwhile may seem to be empty for some seconds.
const TICKS_PER_S: u32 = 4096;

/// Seconds of its rate that a bucket holds: the announces of all torrents of a client that starts come at once.
const BURST_S: u32 = 8;

const BURST_TICKS: u32 = BURST_S * TICKS_PER_S;

/// Times the rate of a connection that a source has: many clients may share an address.
const CONNECTIONS_PER_SOURCE: u32 = 8;

/// Cells of a row. Both rows take 32 KiB.
const ROW_CELLS: usize = 4096;

/// What is known of the bytes of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket(u32);

/// The allowances of all connections and sources.
#[derive(Debug)]
pub(crate) struct Allowances {
    /// Bytes a second of a connection; none where they are not limited.
    rate: Option<NonZeroU32>,
    cells: [Box<[AtomicU32]>; 2],
}

impl Allowances {
    /// Nothing is limited with a rate of zero.
    pub(crate) fn new(bytes_per_s: u32) -> Self {
        let cells = if bytes_per_s == 0 { 0 } else { ROW_CELLS };
        let row = || (0..cells).map(|_| AtomicU32::new(0)).collect();
        Self { rate: NonZeroU32::new(bytes_per_s), cells: [row(), row()] }
    }

    /// How many bytes may be relayed now.
    pub(crate) fn room_bytes(&self, source: Source, bucket: Bucket, now_s: u32) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        let now = ticks(now_s);
        let left = |taken_ticks: u32| u64::from(BURST_TICKS.saturating_sub(taken_ticks));
        let of_connection = left(taken(bucket.0, now)) * u64::from(rate.get());
        let of_source =
            left(self.taken_by(source, now)) * u64::from(rate.get()) * u64::from(CONNECTIONS_PER_SOURCE);
        of_connection.min(of_source) / u64::from(TICKS_PER_S)
    }

    /// Takes note that so many bytes were relayed.
    pub(crate) fn charge(&self, source: Source, bucket: &mut Bucket, bytes: u64, now_s: u32) {
        let Some(rate) = self.rate else { return };
        let now = ticks(now_s);
        // Rounded up: what takes less than a tick must not be free, or a flood of small messages would be.
        let byte_ticks = bytes.saturating_mul(TICKS_PER_S.into());
        let cost = byte_ticks.div_ceil(rate.get().into());
        let cost_of_source = byte_ticks.div_ceil(u64::from(rate.get()) * u64::from(CONNECTIONS_PER_SOURCE));
        let fill = |taken_ticks: u32, cost: u64| {
            let cost = u32::try_from(cost).unwrap_or(u32::MAX).min(BURST_TICKS);
            now.wrapping_add(taken_ticks.min(BURST_TICKS) + cost)
        };
        bucket.0 = fill(taken(bucket.0, now), cost);
        let taken_ticks = self.taken_by(source, now);
        let full_again = fill(taken_ticks, cost_of_source);
        for cell in self.cells_of(source) {
            // What another worker notes at the same moment may be lost, which happens seldom and favours the sender.
            if taken(cell.load(Ordering::Relaxed), now) < full_again.wrapping_sub(now) {
                cell.store(full_again, Ordering::Relaxed);
            }
        }
    }

    fn taken_by(&self, source: Source, now: u32) -> u32 {
        let taken = self.cells_of(source).map(|cell| taken(cell.load(Ordering::Relaxed), now));
        taken.min().unwrap_or(0)
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

/// How much of a bucket is taken that is full again at a moment. No moment is farther ahead than two bursts: what seems
/// to be was long ago.
const fn taken(full_again: u32, now: u32) -> u32 {
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
            let allowances = Allowances::new(RATE);
            let (source, mut bucket) = (Source::of_hash(7), Bucket::default());
            assert_eq!(allowances.room_bytes(source, bucket, start_s), BURST_BYTES, "{start_s}");
            allowances.charge(source, &mut bucket, BURST_BYTES - 1000, start_s);
            assert_eq!(allowances.room_bytes(source, bucket, start_s), 1000);
            // One message may be more than there is room for.
            allowances.charge(source, &mut bucket, 3000, start_s);
            assert_eq!(allowances.room_bytes(source, bucket, start_s), 0);
            assert_eq!(allowances.room_bytes(source, bucket, start_s.wrapping_add(2)), 0);
            assert_eq!(allowances.room_bytes(source, bucket, start_s.wrapping_add(3)), 1000);
            assert_eq!(allowances.room_bytes(source, bucket, start_s.wrapping_add(100)), BURST_BYTES);
            assert_eq!(allowances.room_bytes(source, bucket, start_s.wrapping_add(1_000_000)), BURST_BYTES);
        }
    }

    #[test]
    fn a_source_has_so_many_times_that_over_all_its_connections() {
        let allowances = Allowances::new(RATE);
        for connection in 0..CONNECTIONS_PER_SOURCE {
            let mut bucket = Bucket::default();
            assert_eq!(allowances.room_bytes(Source::of_hash(7), bucket, 10), BURST_BYTES, "{connection}");
            allowances.charge(Source::of_hash(7), &mut bucket, BURST_BYTES, 10);
        }
        assert_eq!(allowances.room_bytes(Source::of_hash(7), Bucket::default(), 10), 0);
        assert_eq!(allowances.room_bytes(Source::of_hash(7), Bucket::default(), 11), 8 * u64::from(RATE));
        // Others are not limited, although they share one of its cells.
        for other in [8, 7 + (8 << 16), 7 + (1 << 30) + 1] {
            assert_eq!(allowances.room_bytes(Source::of_hash(other), Bucket::default(), 10), BURST_BYTES);
        }
    }

    #[test]
    fn small_messages_are_not_free() {
        let allowances = Allowances::new(256 * 1024);
        let source = Source::of_hash(7);
        let burst_bytes = 256 * 1024 * u64::from(BURST_S);
        let mut bucket = Bucket::default();
        (0..burst_bytes / 50).for_each(|_| allowances.charge(source, &mut bucket, 50, 10));
        assert!(allowances.room_bytes(source, bucket, 10) < 100);
        for _ in 0..burst_bytes * u64::from(CONNECTIONS_PER_SOURCE) / 50 {
            allowances.charge(source, &mut Bucket::default(), 50, 10);
        }
        assert!(allowances.room_bytes(source, Bucket::default(), 10) < 1000);
    }

    #[test]
    fn a_rate_of_zero_limits_nothing() {
        let allowances = Allowances::new(0);
        let mut bucket = Bucket::default();
        allowances.charge(Source::of_hash(1), &mut bucket, u64::MAX, 5);
        assert_eq!(allowances.room_bytes(Source::of_hash(1), bucket, 5), u64::MAX);
    }
}
