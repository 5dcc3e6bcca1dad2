//! All swarms of one family, in shards behind small locks.

use core::fmt;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_types::{Counts, Expired, InfoHash, Totals};

use crate::api::{Announce, Announced, Listed, Rejection};
use crate::arena::{Arena, PAGE_BYTES};
use crate::family::Family;
use crate::hash::HashKey;
use crate::shard::{Rules, Shard, seed_of_swarms};
use crate::swarm_line;

/// Number of shards of a family. A lock is held for about a tenth of a microsecond, so sixteen workers at a million
/// requests a second each still find it free 19 times in 20. More shards would leave more pages partly filled.
pub(crate) const SHARDS: usize = 32;

/// Maximum budget that is spent while a lock is held.
const BUDGET_PER_LOCK: usize = 64;

/// The swarms of one address family. Shared between threads: all methods take `&self`.
pub struct Swarms<P: Family> {
    key: HashKey,
    timeout_s: u32,
    arena: Arc<Arena>,
    /// The shard at which the next call of `expire` begins.
    next_shard: AtomicUsize,
    shards: Box<[Cell<P>]>,
}

/// A shard, and its totals next to the lock, where they can be read without it. Aligned so that no two shards share a
/// cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Cell<P: Family> {
    shard: Mutex<Shard<P>>,
    swarms: AtomicU64,
    seeders: AtomicU64,
    leechers: AtomicU64,
    expired: AtomicU64,
    evicted: AtomicU64,
    unregistered: AtomicU64,
    bytes: AtomicU64,
}

/// The position of an info hash in the store: computed once per request by [`Swarms::locate`], and passed to all later
/// steps. The families of one store share their key, so a place located by one is valid for the other.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub(crate) info_hash: InfoHash,
    /// The hash from which tables compute its position.
    pub(crate) hash: u64,
}

impl Place {
    /// Returns the index of the shard.
    #[inline]
    fn shard(&self) -> usize {
        usize::try_from(self.hash % SHARDS as u64).unwrap_or(0)
    }
}

impl<P: Family> Cell<P> {
    /// Publishes the totals of a shard. The caller holds its lock.
    #[inline]
    fn publish(&self, shard: &Shard<P>) {
        let tally = &shard.tally;
        self.swarms.store(tally.swarms, Ordering::Relaxed);
        self.seeders.store(tally.seeders, Ordering::Relaxed);
        self.leechers.store(tally.leechers, Ordering::Relaxed);
        self.expired.store(tally.expired, Ordering::Relaxed);
        self.evicted.store(tally.evicted, Ordering::Relaxed);
        self.unregistered.store(tally.unregistered, Ordering::Relaxed);
        self.bytes.store((shard.memory.pages() * PAGE_BYTES) as u64, Ordering::Relaxed);
    }
}

impl<P: Family> fmt::Debug for Swarms<P> {
    /// Shows totals only: there may be millions of swarms, and their members are confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.totals().fmt(f)
    }
}

impl<P: Family> Swarms<P> {
    /// Creates an empty set of swarms.
    pub(crate) fn new(arena: &Arc<Arena>, rules: &Rules) -> Self {
        let cell = |shard| Cell {
            shard: Mutex::new(Shard::new(Arc::clone(arena), rules, shard as u64)),
            swarms: AtomicU64::new(0),
            seeders: AtomicU64::new(0),
            leechers: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            unregistered: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        let shards = (0..SHARDS).map(cell).collect();
        let Rules { key, timeout_s, .. } = *rules;
        Self { key, timeout_s, arena: Arc::clone(arena), next_shard: AtomicUsize::new(0), shards }
    }

    /// Hashes the info hash, once for all steps of a request.
    #[inline]
    #[must_use]
    pub fn locate(&self, info_hash: &InfoHash) -> Place {
        Place { info_hash: *info_hash, hash: swarm_line::hash(info_hash, &self.key) }
    }

    /// First step of a batch: prefetches the line of the table in which the swarm is or would be. Changes nothing.
    #[inline]
    pub fn prefetch_swarm(&self, place: &Place) {
        // A prefetch is not worth waiting for a lock.
        if let Some(shard) = self.shards[place.shard()].shard.try_lock() {
            shard.prefetch_swarm(place);
        }
    }

    /// Second step of a batch: prefetches the header of a large swarm. Changes nothing.
    #[inline]
    pub fn prefetch_large(&self, place: &Place) {
        if let Some(shard) = self.shards[place.shard()].shard.try_lock() {
            shard.prefetch_large(place);
        }
    }

    /// Third step of a batch: prefetches the line in which the peer is or would be, and the peers that its reply will
    /// contain if the announce itself is given an equal `rng`. Changes nothing.
    #[inline]
    pub fn prefetch_peers(&self, place: &Place, announce: &Announce<P>, mut rng: fastrand::Rng) {
        if let Some(shard) = self.shards[place.shard()].shard.try_lock() {
            shard.prefetch_peers(place, announce, &mut rng);
        }
    }

    /// Last step: applies the announce at `now_s` (seconds of any monotonic clock) and writes up to `peers_wanted`
    /// other peers to `peers_out`, back to back in compact form, as many as fit. The content of `peers_out` behind them
    /// is unspecified. A seeder receives leechers only; a leecher receives a mix in which every peer is equally likely.
    ///
    /// A peer whose source has reached its limit in the swarm is answered like any other, but not stored.
    ///
    /// # Errors
    /// Returns a [`Rejection`] if the swarm or the peer is new, and there is not enough memory for it or for one more
    /// peer of its source.
    pub fn announce(
        &self,
        place: &Place,
        announce: &Announce<P>,
        now_s: u32,
        rng: &mut fastrand::Rng,
        peers_out: &mut [u8],
    ) -> Result<Announced, Rejection> {
        let cell = &self.shards[place.shard()];
        let mut shard = cell.shard.lock();
        let announced = shard.announce(place, announce, now_s, rng, peers_out);
        cell.publish(&shard);
        announced
    }

    /// Returns the counts of a swarm, and writes a sample of it for a peer that is not a member, for example because
    /// its address belongs to the other family. The sample is written as by [`announce`](Self::announce), by the same
    /// rules. Changes nothing.
    pub fn visit(
        &self,
        place: &Place,
        seeds: bool,
        peers_wanted: usize,
        rng: &mut fastrand::Rng,
        peers_out: &mut [u8],
    ) -> Announced {
        let cell = &self.shards[place.shard()];
        // An empty shard is not worth a lock and a search.
        if cell.swarms.load(Ordering::Relaxed) == 0 {
            return Announced::default();
        }
        cell.shard.lock().serve_non_member(place, seeds, peers_wanted, rng, peers_out)
    }

    /// Returns the leechers of a large swarm in the order of their table, for benchmarks: an attacker learns this order
    /// from many replies.
    #[doc(hidden)]
    #[must_use]
    pub fn learned_order(&self, place: &Place) -> Vec<P> {
        self.shards[place.shard()].shard.lock().learned_order(place)
    }

    /// Returns the counts of one swarm.
    #[must_use]
    pub fn scrape(&self, place: &Place) -> Counts {
        self.shards[place.shard()].shard.lock().scrape(place)
    }

    /// Returns the selector of a torrent, see [`Walk`](crate::Walk).
    pub(crate) fn selector(&self, shard: usize, info_hash: &InfoHash) -> u32 {
        seed_of_swarms(&self.key, shard as u64).mix(self.locate(info_hash).hash).selector()
    }

    /// Lists the swarms of a shard from one selector on, up to the last one of the same segment or `last`. Returns that
    /// selector.
    pub(crate) fn list(&self, shard: usize, first: u32, last: u32, listed: &mut Vec<Listed>) -> u32 {
        let shard = self.shards[shard].shard.lock();
        let last = shard.last_selector(first).min(last);
        shard.list(first..=last, listed);
        last
    }

    /// Returns the number of shards.
    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Advances expiry to the point that it should have reached at `now_s`, doing at most about `budget` cache lines of
    /// work, and returns spare memory to the kernel. Call this many times a second alongside the traffic, from any
    /// number of threads.
    pub fn expire(&self, now_s: u32, budget: usize) -> Expired {
        let mut left = budget;
        let mut expired = Expired::default();
        let first = self.next_shard.fetch_add(1, Ordering::Relaxed);
        for index in 0..SHARDS {
            let cell = &self.shards[(first + index) % SHARDS];
            let mut behind = true;
            while behind && left > 0 {
                // The thread that holds the lock will have released it before the next pass.
                let Some(mut shard) = cell.shard.try_lock() else { break };
                let mut share = left.min(BUDGET_PER_LOCK);
                let (before, given) = (shard.tally.forgotten(), share);
                behind = shard.expire(now_s, self.timeout_s, &mut share);
                expired.peers += shard.tally.forgotten() - before;
                cell.publish(&shard);
                left -= given - share;
            }
            if left == 0 {
                expired.behind = true;
                break;
            }
        }
        if !expired.behind {
            self.arena.trim();
        }
        expired
    }

    /// Returns totals over all swarms, without disturbing the traffic.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.shards.iter().fold(Totals::default(), |sum, cell| Totals {
            swarms: sum.swarms + cell.swarms.load(Ordering::Relaxed),
            seeders: sum.seeders + cell.seeders.load(Ordering::Relaxed),
            leechers: sum.leechers + cell.leechers.load(Ordering::Relaxed),
            expired: sum.expired + cell.expired.load(Ordering::Relaxed),
            evicted: sum.evicted + cell.evicted.load(Ordering::Relaxed),
            unregistered: sum.unregistered + cell.unregistered.load(Ordering::Relaxed),
            bytes: sum.bytes + cell.bytes.load(Ordering::Relaxed),
        })
    }
}
