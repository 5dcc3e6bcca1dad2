//! All swarms of one family, in shards behind small locks.

use core::fmt;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_types::InfoHash;

use crate::api::{Announce, Announced, Counts, Expired, Listed, Rejection, Totals};
use crate::arena::{Arena, PAGE_BYTES};
use crate::family::Family;
use crate::hash::{HashKey, Seed};
use crate::shard::{Order, Rules, Shard, seed_of_swarms};
use crate::swarm_line;

/// Shards of a family. A lock is held for about a tenth of a microsecond, so that sixteen workers at a million requests
/// a second each still find it free 19 times in 20. More shards would leave more pages partly filled.
pub(crate) const SHARDS: usize = 32;

/// Most budget that is spent under one hold of a lock.
const BUDGET_PER_LOCK: usize = 64;

/// The swarms of one address family. Shared between threads: all methods take `&self`.
pub struct Swarms<P: Family> {
    key: HashKey,
    timeout_s: u32,
    arena: Arc<Arena>,
    /// The shard at which the next call of `expire` begins.
    turn: AtomicUsize,
    shards: Box<[Cell<P>]>,
}

/// A shard with its sums beside the lock, where they can be read without it. Lines of their own: no two shards share
/// one.
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

/// Where the store looks for an info hash: computed once a request by [`Swarms::locate`], passed to all that follows.
/// The families of one store share their key, so that a place located by one is good for the other.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub(crate) info_hash: InfoHash,
    /// What tables make its position of.
    pub(crate) hash: u64,
}

impl Place {
    /// Which shard.
    #[inline]
    fn shard(&self) -> usize {
        usize::try_from(self.hash % SHARDS as u64).unwrap_or(0)
    }
}

impl<P: Family> Cell<P> {
    /// Writes the sums beside the lock. Called by who holds it.
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
    /// Sums only: there may be millions of swarms, and who is in them is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.totals().fmt(f)
    }
}

impl<P: Family> Swarms<P> {
    /// No swarms. `generations` are those of the orders of the shards, which both families share.
    pub(crate) fn new(arena: &Arc<Arena>, rules: &Rules, generations: &[Arc<AtomicU32>; SHARDS]) -> Self {
        let order = |shard: usize| Order::new(shard as u64, Arc::clone(&generations[shard]));
        let cell = |shard| Cell {
            shard: Mutex::new(Shard::new(Arc::clone(arena), rules, order(shard))),
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
        Self { key, timeout_s, arena: Arc::clone(arena), turn: AtomicUsize::new(0), shards }
    }

    /// Hashes the info hash, once for all steps of a request.
    #[inline]
    #[must_use]
    pub fn locate(&self, info_hash: &InfoHash) -> Place {
        Place { info_hash: *info_hash, hash: swarm_line::hash(info_hash, &self.key) }
    }

    /// First step of a batch: starts loading the swarm's place in the table. Changes nothing.
    #[inline]
    pub fn prefetch_swarm(&self, place: &Place) {
        // A hint is not worth waiting for.
        if let Some(shard) = self.shards[place.shard()].shard.try_lock() {
            shard.prefetch_swarm(place);
        }
    }

    /// Second step of a batch: starts loading what the swarm is made of. Changes nothing.
    #[inline]
    pub fn prefetch_large(&self, place: &Place) {
        if let Some(shard) = self.shards[place.shard()].shard.try_lock() {
            shard.prefetch_large(place);
        }
    }

    /// Third step of a batch: starts loading where the peer is or would be, and the peers that it will be handed if
    /// the announce itself is given an equal `rng`. Changes nothing.
    #[inline]
    pub fn prefetch_peers(&self, place: &Place, announce: &Announce<P>, mut rng: fastrand::Rng) {
        if let Some(shard) = self.shards[place.shard()].shard.try_lock() {
            shard.prefetch_peers(place, announce, &mut rng);
        }
    }

    /// Last step: applies the announce at `now_s` (seconds of any clock that never goes back) and writes up to
    /// `peers_wanted` other peers to `peers_out`, back to back in compact form, as many as fit; what lies behind
    /// them there afterwards is unspecified.
    /// A seeder is given leechers only, a leecher a mix in which every peer is equally likely.
    ///
    /// A peer of a source that has as many in the swarm as it may is answered like any other, and not stored.
    ///
    /// # Errors
    /// [`Rejection`] where the swarm or the peer is new, and memory is too short for it or for one more of its source.
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

    /// The counts of a swarm, and a sample of it for a guest: somebody who is not in it, say because its address is of
    /// the other family. The sample is written as by [`announce`](Self::announce), by the same rules. Changes nothing.
    pub fn visit(
        &self,
        place: &Place,
        seeds: bool,
        peers_wanted: usize,
        rng: &mut fastrand::Rng,
        peers_out: &mut [u8],
    ) -> Announced {
        let cell = &self.shards[place.shard()];
        // A family that hardly anybody has is not worth a lock and a search.
        if cell.swarms.load(Ordering::Relaxed) == 0 {
            return Announced::default();
        }
        cell.shard.lock().serve_guest(place, seeds, peers_wanted, rng, peers_out)
    }

    /// The leechers of a large swarm in the order of their table, for benchmarks: what an attacker learns from many
    /// replies.
    #[doc(hidden)]
    #[must_use]
    pub fn learned_order(&self, place: &Place) -> Vec<P> {
        self.shards[place.shard()].shard.lock().learned_order(place)
    }

    /// The counts of one swarm.
    #[must_use]
    pub fn scrape(&self, place: &Place) -> Counts {
        self.shards[place.shard()].shard.lock().scrape(place)
    }

    /// The generation of the order of a shard's swarms and the lines that they spread over. Nothing while they are being
    /// brought into another order, which this carries on a bounded piece.
    pub(crate) fn order_for_list(&self, shard: usize) -> Option<(u32, u32)> {
        self.shards[shard].shard.lock().order_for_list()
    }

    /// The secret by which they are ordered in one generation.
    pub(crate) fn seed(&self, shard: usize, generation: u32) -> Seed {
        seed_of_swarms(&self.key, shard as u64, generation)
    }

    /// Has the order of a shard's swarms renewed.
    #[cfg(test)]
    pub(crate) fn renew_order(&self, shard: usize) {
        self.shards[shard].shard.lock().renew_order();
    }

    /// Lists the swarms of a shard whose position is among `positions`. Returns whether they still are in the order of
    /// `generation`, without which the list is worth nothing.
    pub(crate) fn list(
        &self,
        shard: usize,
        generation: u32,
        positions: RangeInclusive<u32>,
        listed: &mut Vec<Listed>,
    ) -> bool {
        self.shards[shard].shard.lock().list(generation, positions, listed)
    }

    /// Carries expiry on to where it should be at `now_s`, in at most about `budget` cache lines of work, and gives
    /// spare memory back to the kernel. To be called many times a second beside the traffic, by any number of threads.
    pub fn expire(&self, now_s: u32, budget: usize) -> Expired {
        let mut left = budget;
        let mut expired = Expired::default();
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for index in 0..SHARDS {
            let cell = &self.shards[(first + index) % SHARDS];
            let mut behind = true;
            while behind && left > 0 {
                // Whoever holds it will let it go before the next turn comes round.
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

    /// Sums over all swarms, without disturbing the traffic.
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
