//! Limits of the offers that a sender may have relayed: a token bucket for each connection, for each source, and for
//! each pair of receiver and source.
//!
//! A bucket is a single number, the time at which it is full again (the "virtual scheduling algorithm" of ITU-T I.371).
//! The first two count bytes, and each message as at least a typical offer, so they limit messages too. The third
//! counts messages: each may cost its receiver a WebRTC connection, whatever its size.
//!
//! The buckets of sources are in sketches of fixed size, which all workers share: two rows of cells, indexed by a keyed
//! hash. The fuller of the two cells counts. So memory is bounded for any number of sources and receivers, and an idle
//! bucket needs no maintenance. The traffic of others limits a source only if it shares both its cells with them. A
//! source can keep 64 receivers at their limit, since it has 64 times the rate of one.
//!
//! The bucket of a connection takes 32 bits in its member. The sketch of senders has two rows of 4,096 cells, and the
//! sketch of receivers has 64 Ki cells a row. An offer counts as at least 2 KiB. The worker of the sender decides, so
//! offers to other nodes are limited too. Answers need no bucket, since each belongs to an offer.

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};

use shoal_base::PeerId;
use shoal_base::source::{Source, spread};

use crate::api::Address;

/// Minimum number of bytes that a message counts as: a typical offer of a browser.
pub const MESSAGE_BYTES_MIN: u64 = 2048;

/// Resolution of the times in buckets. 32 bits then last twelve days. A bucket unused for that long may seem empty for
/// some seconds.
const TICKS_PER_S: u32 = 4096;

/// Capacity of a bucket in seconds of its rate: when a client starts, the announces of all its torrents come at once.
const BURST_S: u32 = 8;

const BURST_TICKS: u32 = BURST_S * TICKS_PER_S;

/// Rate of a source as a multiple of a connection's rate, since many clients may share an address.
const CONNECTIONS_PER_SOURCE: u32 = 8;

/// One receiver gets this fraction of a connection's rate from one source: an eighth. By default these are 16 offers a
/// second, and 128 at once. When 200 browsers of a school open the same page, the first gets some forty offers.
const RECEIVERS_PER_CONNECTION: u32 = 8;

/// Number of cells in a row of the sketch of sources. Both rows take 32 KiB.
const SOURCE_CELLS: usize = 4096;

/// Number of cells in a row of the sketch of receivers. Both rows take 512 KiB.
const RECEIVER_CELLS: usize = 64 * 1024;

/// The token bucket of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenBucket(u32);

/// The rate limits of all connections, sources and receivers.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Rate of a connection in bytes per second; `None` means no limit.
    rate: Option<NonZeroU32>,
    sources: Sketch,
    receivers: Sketch,
}

/// The buckets for any number of keyed hashes.
#[derive(Debug)]
struct Sketch([Box<[AtomicU32]>; 2]);

impl TokenBucket {
    /// Returns its state, for another process with the same clock.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// Returns the bucket with this state.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl RateLimiter {
    /// Creates a limiter with full buckets. A rate of zero means no limit.
    pub(crate) fn new(bytes_per_s: u32) -> Self {
        let cells = |cells| if bytes_per_s == 0 { 0 } else { cells };
        let (sources, receivers) = (Sketch::new(cells(SOURCE_CELLS)), Sketch::new(cells(RECEIVER_CELLS)));
        Self { rate: NonZeroU32::new(bytes_per_s), sources, receivers }
    }

    /// Returns the number of bytes that may be relayed now.
    pub(crate) fn available_bytes(&self, source: Source, bucket: TokenBucket, now_s: u32) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        let now = ticks(now_s);
        let left =
            |used_ticks: u32| u64::from(BURST_TICKS.saturating_sub(used_ticks)) * u64::from(rate.get());
        let of_networks = networks(source).map(|(hash, share)| left(self.sources.used(hash, now)) * share);
        let available = of_networks.fold(left(used(bucket.0, now)), u64::min);
        available / u64::from(TICKS_PER_S)
    }

    pub(crate) fn charge(&self, source: Source, bucket: &mut TokenBucket, bytes: u64, now_s: u32) {
        let Some(rate) = self.rate else { return };
        let now = ticks(now_s);
        // Rounded up, so that a message that costs less than a tick is not free, nor a flood of small messages.
        let cost = |share: u64| byte_ticks(bytes).div_ceil(u64::from(rate.get()) * share);
        bucket.0 = full_again(used(bucket.0, now), cost(1), now);
        for (hash, share) in networks(source) {
            self.sources.charge(hash, cost(share), now);
        }
    }

    /// Returns whether one more message of the source may be relayed to a receiver. If so, it is recorded.
    pub(crate) fn admit(&self, source: Source, receiver: Address, peer_id: &PeerId, now_s: u32) -> bool {
        let Some(rate) = self.rate else { return true };
        let (hash, now) = (receiver_hash(source, receiver, peer_id), ticks(now_s));
        if self.receivers.used(hash, now) >= BURST_TICKS {
            return false;
        }
        let bytes = MESSAGE_BYTES_MIN * u64::from(RECEIVERS_PER_CONNECTION);
        self.receivers.charge(hash, byte_ticks(bytes).div_ceil(rate.get().into()), now);
        true
    }
}

impl Sketch {
    fn new(cells: usize) -> Self {
        let row = || (0..cells).map(|_| AtomicU32::new(0)).collect();
        Self([row(), row()])
    }

    /// Returns the used part of a bucket in ticks.
    fn used(&self, hash: u64, now: u32) -> u32 {
        let used = self.cells(hash).map(|cell| used(cell.load(Ordering::Relaxed), now));
        used.min().unwrap_or(0)
    }

    fn charge(&self, hash: u64, cost: u64, now: u32) {
        let full_again = full_again(self.used(hash, now), cost, now);
        for cell in self.cells(hash) {
            // An update by another worker at the same moment may be lost. This is rare and favours the sender.
            if used(cell.load(Ordering::Relaxed), now) < full_again.wrapping_sub(now) {
                cell.store(full_again, Ordering::Relaxed);
            }
        }
    }

    fn cells(&self, hash: u64) -> impl Iterator<Item = &AtomicU32> {
        self.0
            .iter()
            .zip([hash & 0xffff_ffff, hash >> 32])
            .filter_map(|(row, hash)| row.get(usize::try_from(hash.checked_rem(row.len() as u64)?).ok()?))
    }
}

/// Returns the networks of a source by their hashes, and the rate of each as a multiple of a connection's rate.
fn networks(source: Source) -> impl Iterator<Item = (u64, u64)> {
    let of_customer = source.networks().filter(|(_, width)| width.is_of_customer());
    of_customer.map(|(hash, width)| (hash, u64::from(CONNECTIONS_PER_SOURCE * width.shares())))
}

/// Returns the keyed hash of a receiver and a source, which is an IPv4 address or an IPv6 /48 here. A receiver is a
/// connection. For a peer of another node, whose connection is unknown, it is the peer.
fn receiver_hash(source: Source, Address { worker, handle }: Address, peer_id: &PeerId) -> u64 {
    let source = source.site_hash().unwrap_or_else(|| source.network_hash());
    let handle = u64::from(handle.generation) << 32 | u64::from(handle.index);
    let hash = spread(spread(source ^ handle) ^ u64::from(worker));
    if worker != crate::api::REMOTE_WORKER {
        return hash;
    }
    peer_id.0.chunks(8).fold(hash, |hash, chunk| {
        let word = chunk.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        spread(hash ^ word)
    })
}

/// Converts bytes to ticks at a rate of one byte a second.
const fn byte_ticks(bytes: u64) -> u64 {
    bytes.saturating_mul(TICKS_PER_S as u64)
}

/// Returns when a bucket with this used part is full again after a further use, both in ticks.
fn full_again(used_ticks: u32, cost_ticks: u64, now: u32) -> u32 {
    let cost_ticks = u32::try_from(cost_ticks).unwrap_or(u32::MAX).min(BURST_TICKS);
    now.wrapping_add(used_ticks.min(BURST_TICKS) + cost_ticks)
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
        for other in 8..1000 {
            assert_eq!(available(other, 10), BURST_BYTES);
        }
    }

    #[test]
    fn the_networks_of_an_ipv6_site_share_eight_times_the_rate_of_one() {
        let limiter = RateLimiter::new(RATE);
        let of_network = |network: u8| Source::from_bytes([1, 2, 3, 7, 8, 9, network]);
        for network in 0..8 {
            for _ in 0..CONNECTIONS_PER_SOURCE {
                let mut bucket = TokenBucket::default();
                assert_eq!(limiter.available_bytes(of_network(network), bucket, 10), BURST_BYTES);
                limiter.charge(of_network(network), &mut bucket, BURST_BYTES, 10);
            }
        }
        assert_eq!(limiter.available_bytes(of_network(8), TokenBucket::default(), 10), 0);
        let other = Source::from_bytes([1, 2, 3, 7, 9, 9, 8]);
        assert_eq!(limiter.available_bytes(other, TokenBucket::default(), 10), BURST_BYTES);
    }

    fn connection(index: u32) -> Address {
        Address { worker: 1, handle: shoal_base::transport::stream::Handle { index, generation: 3 } }
    }

    /// Returns how many of 1,000 messages are relayed.
    fn admitted(limiter: &RateLimiter, source: Source, to: Address, peer_id: u8, now_s: u32) -> usize {
        (0..1000).filter(|_| limiter.admit(source, to, &PeerId([peer_id; 20]), now_s)).count()
    }

    #[test]
    fn a_receiver_gets_a_bounded_number_of_messages_of_one_source() {
        let limiter = RateLimiter::new(256 * 1024);
        let source = Source::of_hash(7);
        assert_eq!(admitted(&limiter, source, connection(5), 1, 10), 128);
        assert_eq!(admitted(&limiter, source, connection(5), 2, 11), 16, "whatever the peer id");
        assert_eq!(admitted(&limiter, source, connection(5), 1, 100), 128);
        // Other receivers and other sources are not limited.
        assert_eq!(admitted(&limiter, source, connection(6), 1, 100), 128);
        assert_eq!(admitted(&limiter, Source::of_hash(8), connection(5), 1, 100), 128);
        // An IPv6 /48 is one source.
        let of_network = |network: u8| Source::from_bytes([1, 2, 3, 7, 8, 9, network]);
        assert_eq!(admitted(&limiter, of_network(1), connection(5), 1, 100), 128);
        assert_eq!(admitted(&limiter, of_network(2), connection(5), 1, 100), 0);
        // A peer of another node is a separate receiver.
        let node = Address::of_node(shoal_base::transport::stream::Handle { index: 1, generation: 0 });
        assert_eq!([1, 2, 1].map(|peer_id| admitted(&limiter, source, node, peer_id, 100)), [128, 128, 0]);
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
        assert_eq!(admitted(&limiter, Source::of_hash(1), connection(1), 1, 5), 1000);
        assert_eq!(limiter.available_bytes(Source::of_hash(1), bucket, 5), u64::MAX);
    }
}
