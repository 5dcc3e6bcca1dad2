//! All swarms of one family, in shards behind small locks.

pub(crate) mod private;

use core::fmt;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use shoal_base::change_buffer::{ChangeBuffer, WatchedShard};
use shoal_base::{Counts, Expired, InfoHash, Totals};

use crate::api::{Announce, Announced, Listed, Rejection};
use crate::family::Family;
use crate::hash::HashKey;
use crate::memory::arena::{Arena, PAGE_BYTES};
use crate::retained::Retention;
use crate::shard::{Rules, Shard, seed_of_swarms};
use crate::sync::{Mutex, MutexGuard};
use crate::table::At;
use crate::table::info_hash;

/// Maximum number of shards of a family.
pub const SHARDS_MAX: usize = 256;

/// A peer of a swarm, as [`Store::peers`](crate::Store::peers) lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPeer {
    /// Its address and port.
    pub address: SocketAddr,
    /// Whether it has the complete torrent.
    pub seeds: bool,
    /// The time since its last announce in seconds, to within a sixty-fourth of the timeout.
    pub age_s: u32,
}

/// Maximum budget that is spent under one lock.
const BUDGET_PER_LOCK: usize = 64;

/// The swarms of one address family. Shared between threads: all methods take `&self`.
pub struct Swarms<P: Family> {
    key: HashKey,
    timeout_s: u32,
    next_shard: NextShard,
    retention: Arc<Retention>,
    /// Their number is a power of two.
    shards: Box<[Cell<P>]>,
}

/// The shard at which the next call of `expire` begins. Aligned so that workers that change it do not disturb those
/// that read its neighbours.
#[derive(Debug, Default)]
#[repr(align(128))]
struct NextShard(AtomicUsize);

/// A shard, and its totals next to the lock, where they can be read without it. Aligned so that no two shards share a
/// cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Cell<P: Family> {
    shard: Mutex<Shard<P>>,
    swarms: AtomicU64,
    seeders: AtomicU64,
    leechers: AtomicU64,
    completed: AtomicU64,
    expired: AtomicU64,
    evicted: AtomicU64,
    bytes: AtomicU64,
    /// The number of torrents in the buffer of changes.
    changes: AtomicU64,
}

/// The position of a torrent in the store. [`Swarms::locate`] computes it once per request, for all later steps. The
/// families of one store share their keys, so a place is valid for both.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The info hash, with the mask of a private network applied.
    pub(crate) id: InfoHash,
    shard: u16,
    /// The hash from which tables compute the position.
    pub(crate) hash: u64,
    /// The lines in which a prefetch expects the swarm.
    pub(crate) lines: [u32; 2],
    /// Where a prefetch has found the tag of the swarm. Another swarm may be there, so every announce verifies it.
    pub(crate) hint: Option<At>,
    /// The index of the large swarm that a prefetch has found. Later prefetches rely on it, but no announce does.
    pub(crate) large: Option<u32>,
}

/// A shard that is locked for several steps of several requests.
pub struct LockedShard<'s, P: Family> {
    cell: &'s Cell<P>,
    shard: MutexGuard<'s, Shard<P>>,
}

impl Place {
    /// Returns the index of the shard, below the number of shards and therefore below [`SHARDS_MAX`].
    #[inline]
    pub fn shard(&self) -> usize {
        self.shard.into()
    }
}

impl<P: Family> Cell<P> {
    fn new(shard: Shard<P>) -> Self {
        Self {
            shard: Mutex::new(shard),
            swarms: AtomicU64::new(0),
            seeders: AtomicU64::new(0),
            leechers: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// Publishes the totals of a shard. The caller holds its lock.
    #[inline]
    fn publish(&self, shard: &Shard<P>) {
        // Most announces change no total, and an unchanged line stays shared with its readers.
        let publish = |total: &AtomicU64, value| {
            if total.load(Ordering::Relaxed) != value {
                total.store(value, Ordering::Relaxed);
            }
        };
        let tally = &shard.tally;
        publish(&self.swarms, tally.swarms);
        publish(&self.seeders, tally.seeders);
        publish(&self.leechers, tally.leechers);
        publish(&self.completed, tally.completed);
        publish(&self.expired, tally.expired);
        publish(&self.evicted, tally.evicted);
        publish(&self.bytes, (shard.memory.pages() * PAGE_BYTES) as u64);
        if let Some(changes) = &shard.changes {
            publish(&self.changes, changes.len() as u64);
        }
    }
}

impl<P: Family> WatchedShard for Cell<P> {
    fn changed(&self) -> &AtomicU64 {
        &self.changes
    }

    fn with_changes<T>(&self, access: impl FnOnce(&mut Option<ChangeBuffer>) -> T) -> T {
        access(&mut self.shard.lock().changes)
    }

    fn try_with_changes<T>(&self, access: impl FnOnce(&mut Option<ChangeBuffer>) -> T) -> Option<T> {
        Some(access(&mut self.shard.try_lock()?.changes))
    }
}

impl<P: Family> fmt::Debug for LockedShard<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedShard").finish_non_exhaustive()
    }
}

impl<P: Family> LockedShard<'_, P> {
    pub(crate) fn shard_mut(&mut self) -> &mut Shard<P> {
        self.shard.is_changed = true;
        &mut self.shard
    }

    /// Prefetches the lines of the table in which the swarm may be, and notes them in `place`.
    #[inline(always)]
    pub fn prefetch_swarm(&self, place: &mut Place) {
        self.shard.prefetch_swarm(place);
    }

    /// Prefetches the entry of the swarm in a line whose beginning is loaded, and notes its probable location in
    /// `place`.
    #[inline(always)]
    pub fn prefetch_entry(&self, place: &mut Place) {
        self.shard.prefetch_entry(place);
    }

    /// Prefetches the peers of a small swarm, or the header of a large one, after
    /// [`prefetch_entry`](Self::prefetch_entry). Returns whether the swarm is large, so that there is more to prefetch.
    #[inline(always)]
    pub fn prefetch_found(&self, place: &mut Place) -> bool {
        self.shard.prefetch_found(place);
        place.large.is_some()
    }

    /// Prefetches the lines of the peer, and the peers that the announce will sample with an equal `rng`. If `joins`,
    /// the peer is probably not in the swarm yet with its role.
    #[inline]
    pub fn prefetch_peers(&self, place: &Place, announce: &Announce<P>, joins: bool, mut rng: fastrand::Rng) {
        self.shard.prefetch_peers(place, announce, joins, &mut rng);
    }

    /// Applies an announce, see [`Swarms::announce`], also for the errors.
    #[inline]
    pub fn announce(
        &mut self,
        place: &Place,
        announce: &Announce<P>,
        now_s: u32,
        rng: &mut fastrand::Rng,
        peers_out: &mut [u8],
    ) -> Result<Announced, Rejection> {
        self.shard.announce(place, announce, now_s, rng, peers_out)
    }

    /// Like [`announce`](Self::announce), for a peer whose source has no limits. The peer still counts towards its
    /// source. Never returns [`Rejection::Excess`].
    pub fn announce_exempt(
        &mut self,
        place: &Place,
        announce: &Announce<P>,
        now_s: u32,
        rng: &mut fastrand::Rng,
        peers_out: &mut [u8],
    ) -> Result<Announced, Rejection> {
        self.shard.is_exempt = true;
        let announced = self.announce(place, announce, now_s, rng, peers_out);
        self.shard.is_exempt = false;
        announced
    }

    /// Like [`announce_exempt`](Self::announce_exempt), for an announce at `at_s` that has just become known. Changes
    /// nothing if the peer has announced since then, by its stamp. Writes no peers.
    pub fn announce_late(
        &mut self,
        place: &Place,
        announce: &Announce<P>,
        at_s: u32,
        rng: &mut fastrand::Rng,
    ) -> Result<Announced, Rejection> {
        if self.shard.has_announced_since(place, &announce.peer, at_s) {
            return Ok(Announced { counts: self.scrape(place), ..Announced::default() });
        }
        self.announce_exempt(place, announce, at_s, rng, &mut [])
    }

    /// Serves a peer that is no member, see [`Swarms::visit`].
    pub fn visit(
        &self,
        place: &Place,
        seeds: bool,
        peers_wanted: usize,
        rng: &mut fastrand::Rng,
        peers_out: &mut [u8],
    ) -> Announced {
        self.shard.serve_non_member(place, seeds, peers_wanted, rng, peers_out)
    }

    /// Returns whether the swarm exists.
    pub fn contains(&self, place: &Place) -> bool {
        self.shard.contains(place)
    }

    /// Returns the counts of one swarm.
    #[inline]
    pub fn scrape(&self, place: &Place) -> Counts {
        self.shard.scrape(place)
    }
}

impl<P: Family> LockedShard<'_, P> {
    /// Returns the seconds since a swarm was created, see [`Swarms::age_s`].
    pub fn age_s(&self, place: &Place, now_s: u32) -> Option<u32> {
        self.shard.age_s(place, now_s)
    }
}

impl<P: Family> Drop for LockedShard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if self.shard.is_changed {
            self.shard.is_changed = false;
            self.cell.publish(&self.shard);
        }
    }
}

impl<P: Family> fmt::Debug for Swarms<P> {
    /// Shows totals only: there may be millions of swarms, and their members are confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.totals().fmt(f)
    }
}

impl<P: Family> Swarms<P> {
    /// Creates an empty set of swarms in this many shards, a power of two. `first` is the index of the first one among
    /// all shards of the family.
    pub(crate) fn new(arena: &Arc<Arena>, rules: &Rules, shards: usize, first: usize) -> Self {
        let retention = Arc::new(Retention::default());
        let new_shard = |index| Shard::new(Arc::clone(arena), rules, Arc::clone(&retention), index);
        let cell = |shard| Cell::new(new_shard((first + shard) as u64));
        let shards = (0..shards).map(cell).collect();
        let Rules { key, timeout_s, .. } = *rules;
        Self { key, timeout_s, next_shard: NextShard::default(), retention, shards }
    }

    /// Retains the completed downloads of up to about `max` torrents without peers, for this many hours.
    pub(crate) fn retain_completed(&self, max: u32, hours: u16) {
        let shards = u32::try_from(self.shards()).unwrap_or(u32::MAX);
        self.retention.set(max.div_ceil(shards), hours);
    }

    /// Returns the number of torrents without peers whose completed downloads are retained.
    pub fn retained(&self) -> u64 {
        self.retention.len()
    }

    /// Hashes the info hash, once for all steps of a request.
    #[inline]
    pub fn locate(&self, info_hash: &InfoHash) -> Place {
        let (hash, id) = (info_hash::hash(info_hash, &self.key), *info_hash);
        let shard = hash & (self.shards.len() as u64 - 1) & 0xffff;
        Place { id, shard: shard as u16, hash, lines: [0; 2], hint: None, large: None }
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Locks a shard, for all steps of a batch with this [`Place::shard`]. Locks should be held for microseconds; a
    /// thread must not hold two.
    #[inline]
    #[must_use]
    pub fn lock(&self, shard: usize) -> LockedShard<'_, P> {
        let cell = &self.shards[shard];
        LockedShard { cell, shard: cell.shard.lock() }
    }

    /// Locks a shard for a step that changes nothing.
    pub(crate) fn lock_to_read(&self, shard: usize) -> MutexGuard<'_, Shard<P>> {
        self.shards[shard].shard.lock()
    }

    /// Locks all shards. No other thread may lock more than one at a time.
    pub(crate) fn lock_all(&self) -> Vec<MutexGuard<'_, Shard<P>>> {
        self.shards.iter().map(|cell| cell.shard.lock()).collect()
    }

    pub(crate) fn replace_shards<E>(
        &mut self,
        mut replace: impl FnMut(&mut Shard<P>) -> Result<(), E>,
    ) -> Result<(), E> {
        for cell in &mut self.shards {
            replace(cell.shard.get_mut())?;
            cell.publish(&cell.shard.lock());
        }
        Ok(())
    }

    /// Returns a hash under the secrets, which shows whether two stores share them.
    pub(crate) fn key_check(&self) -> u64 {
        let place = self.locate(&InfoHash(*b"a check of both keys"));
        self.key.hash(place.hash, 0, 0)
    }

    pub(crate) fn timeout_s(&self) -> u32 {
        self.timeout_s
    }

    /// Returns the number of positions of a source's peers in a large swarm, if it is limited.
    pub(crate) fn source_slots(&self) -> Option<u64> {
        self.shards.first().and_then(|cell| Some(cell.shard.lock().source_limit?.slots))
    }

    /// Makes room for this many swarms in shards that have none.
    pub(crate) fn reserve(&self, swarms: u64) {
        let of_shard = usize::try_from(swarms / self.shards.len() as u64).unwrap_or(usize::MAX);
        (0..self.shards()).for_each(|shard| self.lock(shard).shard_mut().reserve(of_shard));
    }

    /// Like [`lock`](Self::lock), unless another thread holds the lock.
    #[inline]
    #[must_use]
    pub fn try_lock(&self, shard: usize) -> Option<LockedShard<'_, P>> {
        let cell = &self.shards[shard];
        Some(LockedShard { cell, shard: cell.shard.try_lock()? })
    }

    /// Prefetches the lines of the table in which the swarm may be. Changes nothing.
    #[inline]
    pub fn prefetch_swarm(&self, place: &Place) {
        // A prefetch is not worth waiting for a lock.
        if let Some(shard) = self.try_lock(place.shard()) {
            shard.prefetch_swarm(&mut { *place });
        }
    }

    /// Applies the announce at `now_s` (seconds of any monotonic clock). Writes up to `peers_wanted` other peers to
    /// `peers_out`, back to back in compact form, as many as fit. The rest of `peers_out` is unspecified. A seeder gets
    /// leechers only; a leecher gets a mix in which every peer is equally likely.
    ///
    /// # Errors
    /// Returns a [`Rejection`] if the swarm or the peer is new, and there is not enough memory for it or for one more
    /// peer of its source, or its source has reached a limit. The caller may then [`visit`](Self::visit) the swarm.
    pub fn announce(
        &self,
        place: &Place,
        announce: &Announce<P>,
        now_s: u32,
        rng: &mut fastrand::Rng,
        peers_out: &mut [u8],
    ) -> Result<Announced, Rejection> {
        self.lock(place.shard()).announce(place, announce, now_s, rng, peers_out)
    }

    /// Returns the counts of a swarm, and writes a sample for a peer that is no member, for example because its address
    /// belongs to the other family. The sample follows the rules of [`announce`](Self::announce). Changes nothing.
    pub fn visit(
        &self,
        place: &Place,
        seeds: bool,
        peers_wanted: usize,
        rng: &mut fastrand::Rng,
        peers_out: &mut [u8],
    ) -> Announced {
        // An empty shard is not worth a lock and a search.
        if self.is_empty_shard(place.shard()) {
            return Announced::default();
        }
        self.lock(place.shard()).visit(place, seeds, peers_wanted, rng, peers_out)
    }

    /// Returns the leechers of a large swarm in the order of their table, for benchmarks: an attacker learns this order
    /// from many replies.
    #[doc(hidden)]
    pub fn learned_order(&self, place: &Place) -> Vec<P> {
        self.shards[place.shard()].shard.lock().learned_order(place)
    }

    /// Returns the counts of one swarm.
    pub fn scrape(&self, place: &Place) -> Counts {
        self.lock(place.shard()).scrape(place)
    }

    /// Advances expiry to its due position at `now_s`, with at most about `budget` cache lines of work. To be called
    /// many times a second alongside the traffic, from any number of threads.
    pub fn expire(&self, now_s: u32, budget: usize) -> Expired {
        self.expire_in(self.shards(), now_s, budget)
    }

    /// Like [`expire`](Self::expire), in the next `shards` shards only. Several calling threads take turns at the
    /// shards.
    pub fn expire_in(&self, shards: usize, now_s: u32, budget: usize) -> Expired {
        let mut left = budget;
        let mut expired = Expired::default();
        let first = self.next_shard.0.fetch_add(shards, Ordering::Relaxed);
        for index in 0..shards.min(self.shards()) {
            let cell = &self.shards[first.wrapping_add(index) % self.shards()];
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
        expired
    }

    /// Removes a swarm with all its peers, and forgets its completed downloads. Returns whether there was one. Releases
    /// the lock repeatedly, so that requests to other swarms wait for microseconds only. Peers that join meanwhile are
    /// removed as well.
    pub fn remove(&self, info_hash: &InfoHash) -> bool {
        let place = self.locate(info_hash);
        let Counts { seeders, leechers, .. } = self.scrape(&place);
        let has_existed = seeders > 0 || leechers > 0;
        let mut cursor = None;
        loop {
            let mut locked = self.lock(place.shard());
            let mut budget = BUDGET_PER_LOCK;
            cursor = locked.shard_mut().remove_swarm(&place, cursor, &mut budget);
            if cursor.is_none() {
                locked.shard_mut().forget_retained(&place);
                return has_existed;
            }
        }
    }

    pub(crate) fn watched(&self) -> &[impl WatchedShard] {
        &self.shards
    }

    /// Appends up to `max` peers of a swarm, in no particular order.
    pub(crate) fn peers(&self, place: &Place, max: usize, now_s: u32, peers: &mut Vec<StoredPeer>) {
        // No memory is allocated while the lock is held.
        peers.reserve(max);
        self.lock(place.shard()).shard.peers(place, max, now_s, peers);
    }

    /// Returns whether a shard has no swarms and retains nothing, without disturbing the traffic.
    pub(crate) fn is_empty_shard(&self, shard: usize) -> bool {
        self.shards[shard].swarms.load(Ordering::Relaxed) == 0 && self.retention.len() == 0
    }

    /// Returns whether there are no swarms and nothing is retained, without disturbing the traffic.
    pub(crate) fn is_empty(&self) -> bool {
        (0..self.shards()).all(|shard| self.is_empty_shard(shard))
    }

    /// Returns totals over all swarms, without disturbing the traffic.
    pub fn totals(&self) -> Totals {
        self.shards.iter().fold(Totals::default(), |sum, cell| Totals {
            swarms: sum.swarms + cell.swarms.load(Ordering::Relaxed),
            seeders: sum.seeders + cell.seeders.load(Ordering::Relaxed),
            leechers: sum.leechers + cell.leechers.load(Ordering::Relaxed),
            completed: sum.completed + cell.completed.load(Ordering::Relaxed),
            expired: sum.expired + cell.expired.load(Ordering::Relaxed),
            evicted: sum.evicted + cell.evicted.load(Ordering::Relaxed),
            bytes: sum.bytes + cell.bytes.load(Ordering::Relaxed),
        })
    }
}

impl<P: Family> Swarms<P> {
    /// Returns the seconds since a swarm was created, if it exists. A swarm that loses all its peers is later created
    /// again. The result is right to within a twelfth, or to within a twelfth of the peer timeout and at least 150
    /// seconds if that is more. Its maximum is 65,536 times the timeout, or 1,365 days if that is more.
    pub fn age_s(&self, place: &Place, now_s: u32) -> Option<u32> {
        self.lock(place.shard()).age_s(place, now_s)
    }

    /// Returns the selector of a torrent, see [`Walk`](crate::Walk).
    pub(crate) fn selector(&self, shard: usize, info_hash: &InfoHash) -> u32 {
        seed_of_swarms(&self.key, shard as u64).mix(self.locate(info_hash).hash).selector()
    }

    /// Lists the torrents of a shard from one selector on, up to the last one of its segment or `last`. Returns that
    /// selector.
    pub(crate) fn list(&self, shard: usize, first: u32, last: u32, listed: &mut Vec<Listed>) -> u32 {
        let shard = self.shards[shard].shard.lock();
        let last = shard.last_selector(first).min(last);
        shard.list(first..=last, listed);
        last
    }
}
