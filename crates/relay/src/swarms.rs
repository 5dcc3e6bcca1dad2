//! All swarms, in shards behind small locks.
//!
//! One message of two KiB becomes up to ten messages for ten other clients. The swarms keep nothing of relayed
//! messages. An announce locks once, joins, draws the receivers of its offers, records each offer as pending, and
//! unlocks.
//!
//! `Totals::bytes` counts 360 bytes for a peer, the maximum for a peer alone in its swarm, and the memory of its
//! pending offers: at most 64 of 12 bytes, or 16 of 48 if they are in the table of namesakes too. At the ceiling, new
//! peers and memory for pending offers are refused. The table of the swarms of a shard is rehashed as a whole: 2 ms
//! with a million swarms.

use core::fmt;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use shoal_base::change_buffer::{ChangeBuffer, WatchedShard};
use shoal_base::source::Source;
use shoal_base::transport::stream::Handle;
use shoal_base::{Action, Counts, Expired, InfoHash, PeerChange, PeerId, Presence, Totals};

use crate::api::{
    Address, Announce, Announced, AnswerMatch, ConnectedPeer, Left, Membership, OfferTarget, ReceivedOffer,
    Rejection, RemoteAnnounce, Settings,
};
use crate::expiry::ExpiryRules;
use crate::key::{KeyHasher, OfferKey, SwarmKey};
use crate::pressure::Pressure;
use crate::rate_limit::{RateLimiter, TokenBucket};
use crate::shard::{PreparedAnnounce, RelayedOffer, Shard};

/// Number of shards. No machine has as many workers, so two of them rarely need the same lock.
const SHARDS: usize = 64;

/// Number of changed torrents that each shard remembers.
const CHANGES_MAX: usize = 1024;

/// Maximum budget of expiry under one hold of a lock.
const BUDGET_PER_LOCK: usize = 64;

/// The swarms of connected peers. All methods take `&self`. They lock at most one shard at a time, only to look up a
/// few peers.
pub struct Swarms {
    hasher: KeyHasher,
    peer_lifetime_s: u32,
    swarm_share_max: u32,
    rate_limiter: RateLimiter,
    pressure: Pressure,
    /// Number of calls of `expire`: each begins at the next shard.
    expiry_calls: AtomicUsize,
    shards: Box<[Cell]>,
}

/// A shard, and its totals, which are read without the lock. No two shards share a cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Cell {
    shard: Mutex<Shard>,
    swarms: AtomicU64,
    seeders: AtomicU64,
    leechers: AtomicU64,
    completed: AtomicU64,
    expired: AtomicU64,
    evicted: AtomicU64,
    /// The number of torrents in the buffer of changes.
    changes: AtomicU64,
}

impl Cell {
    fn new(peer_lifetime_s: u32) -> Self {
        Self {
            shard: Mutex::new(Shard::new(peer_lifetime_s)),
            swarms: AtomicU64::new(0),
            seeders: AtomicU64::new(0),
            leechers: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// Publishes the totals of the shard, whose lock the caller holds.
    fn publish(&self, shard: &Shard) {
        self.swarms.store(shard.swarms.len() as u64, Ordering::Relaxed);
        self.seeders.store(shard.totals.seeders, Ordering::Relaxed);
        self.leechers.store(shard.totals.leechers, Ordering::Relaxed);
        self.completed.store(shard.totals.completed, Ordering::Relaxed);
        self.expired.store(shard.totals.expired, Ordering::Relaxed);
        self.evicted.store(shard.totals.evicted, Ordering::Relaxed);
        if let Some(changes) = &shard.changes {
            self.changes.store(changes.len() as u64, Ordering::Relaxed);
        }
    }
}

impl WatchedShard for Cell {
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

impl fmt::Debug for Swarms {
    /// Shows only totals, since the peers of a swarm are private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.totals().fmt(f)
    }
}

impl Swarms {
    /// Creates an empty set of swarms.
    pub fn new(settings: &Settings) -> Self {
        let hasher = KeyHasher::new(settings.hash_key);
        let hasher = match &settings.holdings {
            // All protocols must use the same hashes for a source.
            Some(holdings) => hasher.with_sources(holdings.hasher()),
            None => hasher,
        };
        Self {
            hasher,
            swarm_share_max: settings.swarm_share_max,
            peer_lifetime_s: settings.peer_lifetime_s,
            rate_limiter: RateLimiter::new(settings.relay_rate_max),
            pressure: Pressure::new(settings),
            expiry_calls: AtomicUsize::new(0),
            shards: (0..SHARDS).map(|_| Cell::new(settings.peer_lifetime_s)).collect(),
        }
    }

    /// Returns the key of an info hash, computed once for all steps of a request.
    pub fn swarm_key(&self, info_hash: &InfoHash) -> SwarmKey {
        self.hasher.swarm(info_hash)
    }

    /// Returns the source of a client, computed once for all its requests. The address must be canonical.
    pub fn source(&self, ip: IpAddr) -> Source {
        self.hasher.source(ip)
    }

    /// Returns the key of an offer id.
    pub fn offer_key(&self, offer_id: &[u8]) -> OfferKey {
        self.hasher.offer(offer_id)
    }

    /// Applies an announce at `now_s`, in seconds of any clock that never goes back: adds, refreshes or removes the
    /// peer. Replaces `targets` with the receivers of its offers, in the order of the offers. Each occurs at most once.
    /// One peer of each other source and all peers of the announcer's own source have the same probability; others are
    /// receivers if there are not enough of these. A seeder's offers go to leechers first. Fails if the peer does not
    /// enter the swarm; `targets` is then empty.
    pub fn announce(
        &self,
        key: &SwarmKey,
        announce: &Announce<'_>,
        now_s: u32,
        rng: &mut fastrand::Rng,
        targets: &mut Vec<OfferTarget>,
    ) -> Result<Announced, Rejection> {
        targets.clear();
        if announce.action == Action::Stop {
            let Left { counts, was_first, .. } = self.leave(key, &announce.peer_id, announce.address);
            let change = if was_first { PeerChange::Left } else { PeerChange::Nothing };
            return Ok(Announced { counts, joined: false, change, older: None });
        }
        let may_grow = self.pressure.may_grow(announce.source);
        let peer = self.hasher.peer(&announce.peer_id);
        let share_max = if announce.is_exempt { 0 } else { self.swarm_share_max };
        let period_s = (self.peer_lifetime_s / 4).max(1);
        let call = PreparedAnnounce { swarm: key, peer, announce, may_grow, share_max, now_s, period_s };
        let cell = self.cell(key);
        let mut shard = cell.shard.lock();
        let before = shard.totals;
        let announced = shard.announce(&call, &self.pressure, rng, targets);
        self.pressure.update_pending_offers(before.pending_offer_bytes, shard.totals.pending_offer_bytes);
        cell.publish(&shard);
        announced
    }

    /// Removes a peer if it belongs to the connection `address`.
    pub fn leave(&self, key: &SwarmKey, peer_id: &PeerId, address: Address) -> Left {
        let peer = self.hasher.peer(peer_id);
        let cell = self.cell(key);
        let mut shard = cell.shard.lock();
        let before = shard.totals;
        let left = shard.leave(key, &peer, address, &self.pressure);
        if left.was_present {
            self.pressure.update_pending_offers(before.pending_offer_bytes, shard.totals.pending_offer_bytes);
            cell.publish(&shard);
        }
        left
    }

    /// Applies a change of a peer that is connected to another node. Returns the first connection of this node with the
    /// same peer id, if the peer has just joined, like [`Announced::older`]. Fails if there is no room for it.
    pub fn announce_remote(
        &self,
        key: &SwarmKey,
        announce: &RemoteAnnounce,
        now_s: u32,
    ) -> Result<Option<Address>, Rejection> {
        let peer = self.hasher.peer(&announce.peer_id);
        let cell = self.cell(key);
        let mut shard = cell.shard.lock();
        let before = shard.totals;
        let announced = shard.announce_remote(key, &peer, announce, &self.pressure, now_s);
        self.pressure.update_pending_offers(before.pending_offer_bytes, shard.totals.pending_offer_bytes);
        cell.publish(&shard);
        announced
    }

    /// Removes all peers that are connected to another node. Locks each shard for one walk over its peers.
    pub fn forget_node(&self, node: Handle) {
        for cell in &self.shards {
            let mut shard = cell.shard.lock();
            let before = shard.totals;
            shard.forget_node(node, &self.pressure);
            self.pressure.update_pending_offers(before.pending_offer_bytes, shard.totals.pending_offer_bytes);
            cell.publish(&shard);
        }
    }

    /// Returns the membership of a peer of the connection `address`, for [`resume`](Self::resume) in another process.
    pub fn membership(
        &self,
        key: &SwarmKey,
        peer_id: &PeerId,
        address: Address,
        now_s: u32,
    ) -> Option<Membership> {
        let peer = self.hasher.peer(peer_id);
        self.cell(key).shard.lock().membership(key, &peer, address, now_s)
    }

    /// Adds the peer `peer_id` of a connection of this source, which was a member of the swarm in another process. That
    /// process admitted it, so the limits of its source count it and do not refuse it. Fails if there is no room for
    /// it.
    pub fn resume(
        &self,
        key: &SwarmKey,
        peer_id: &PeerId,
        connection: (Address, Source),
        membership: &Membership,
        now_s: u32,
    ) -> Result<(), Rejection> {
        let peer = self.hasher.peer(peer_id);
        let cell = self.cell(key);
        let mut shard = cell.shard.lock();
        let before = shard.totals;
        let resumed = shard.resume(key, &peer, connection, membership, &self.pressure, now_s);
        self.pressure.update_pending_offers(before.pending_offer_bytes, shard.totals.pending_offer_bytes);
        cell.publish(&shard);
        resumed
    }

    /// Removes a swarm with all its peers and their pending offers. Returns whether there was one. The connections of
    /// the peers stay open. The lock is released repeatedly, as in [`expire`](Self::expire).
    pub fn remove(&self, key: &SwarmKey) -> bool {
        let cell = self.cell(key);
        let has_existed = self.scrape(key) != Counts::default();
        loop {
            let mut shard = cell.shard.lock();
            let before = shard.totals;
            let has_more = shard.remove_peers(key, BUDGET_PER_LOCK, &self.pressure);
            self.pressure.update_pending_offers(before.pending_offer_bytes, shard.totals.pending_offer_bytes);
            cell.publish(&shard);
            if !has_more {
                return has_existed;
            }
        }
    }

    /// Number of shards, for [`connected`](Self::connected).
    pub const SHARDS: usize = SHARDS;

    /// Appends the peers of a shard that are connected to this node, for other nodes. Locks the shard for one walk over
    /// its peers.
    pub fn connected(&self, shard: usize, presences: &mut Vec<Presence>) {
        if let Some(cell) = self.shards.get(shard) {
            cell.shard.lock().connected(presences);
        }
    }

    /// Calls `visit` with the sources of all peers, shard by shard, one for each peer. Locks each shard for one walk
    /// over its peers.
    pub fn sources(&self, mut visit: impl FnMut(&[Source])) {
        let mut sources = Vec::new();
        for cell in &self.shards {
            sources.clear();
            cell.shard.lock().sources(&mut sources);
            visit(&sources);
        }
    }

    /// Returns the torrents of all swarms, shard by shard. Locks each shard for one walk over its table.
    pub fn torrents(&self) -> impl Iterator<Item = InfoHash> {
        self.shards.iter().flat_map(|cell| cell.shard.lock().torrents())
    }

    /// Matches an answer to a pending offer of the peer `offerer`, which is then pending no longer. The peer
    /// `answerer_id` of the connection `answerer` sent it. Returns the receiver of the answer.
    pub fn match_answer(
        &self,
        key: &SwarmKey,
        offerer: &PeerId,
        (answerer, answerer_id): (Address, &PeerId),
        offer: OfferKey,
        now_s: u32,
    ) -> AnswerMatch {
        let offerer = self.hasher.peer(offerer);
        let answered = RelayedOffer { offerer, offer, receiver: answerer, receiver_id: answerer_id };
        self.cell(key).shard.lock().match_answer(key, &answered, now_s)
    }

    /// Records an offer of the peer `offerer` of another node to a peer of this one as pending, so that its answer
    /// finds the way back.
    pub fn receive_offer(
        &self,
        key: &SwarmKey,
        node: Handle,
        (offerer, receiver): (&PeerId, &PeerId),
        offer: OfferKey,
        now_s: u32,
    ) -> ReceivedOffer {
        let (offerer, receiver) = (self.hasher.peer(offerer), self.hasher.peer(receiver));
        let mut shard = self.cell(key).shard.lock();
        let before = shard.totals;
        let to = shard.receive_offer(key, node, (&offerer, &receiver), offer, &self.pressure, now_s);
        self.pressure.update_pending_offers(before.pending_offer_bytes, shard.totals.pending_offer_bytes);
        to
    }

    /// Returns how many bytes of offers a connection of this source may have relayed now. The last message may exceed
    /// that.
    pub fn relay_bytes_available(&self, source: Source, bucket: TokenBucket, now_s: u32) -> u64 {
        self.rate_limiter.available_bytes(source, bucket, now_s)
    }

    /// Records that `bytes` of offers were relayed for a connection of this source.
    pub fn charge_relay(&self, source: Source, bucket: &mut TokenBucket, bytes: u64, now_s: u32) {
        self.rate_limiter.charge(source, bucket, bytes, now_s);
    }

    /// Returns whether one more offer of this source may be relayed to a receiver. If so, it is recorded.
    pub fn admit_offer(&self, source: Source, target: &OfferTarget, now_s: u32) -> bool {
        self.rate_limiter.admit(source, target.address, &target.peer_id, now_s)
    }

    /// Returns whether the connection `address` has the peer.
    pub fn has_peer(&self, key: &SwarmKey, peer_id: &PeerId, address: Address) -> bool {
        let peer = self.hasher.peer(peer_id);
        self.cell(key).shard.lock().has_peer(key, &peer, address)
    }

    /// Returns the counts of one swarm.
    pub fn scrape(&self, key: &SwarmKey) -> Counts {
        self.cell(key).shard.lock().counts(key)
    }

    /// Returns the seconds since a swarm was created, if there is one. A swarm that loses all its peers is created
    /// again later.
    pub fn age_s(&self, key: &SwarmKey, now_s: u32) -> Option<u32> {
        self.cell(key).shard.lock().age_s(key, now_s)
    }

    /// Sets the age of a swarm, for example of one that existed before a restart. Returns whether there is such a
    /// swarm.
    pub fn set_age_s(&self, key: &SwarmKey, age_s: u32, now_s: u32) -> bool {
        self.cell(key).shard.lock().set_age_s(key, age_s, now_s)
    }

    /// Returns up to `max` peers of a swarm, in no particular order. Locks the shard while it reads them.
    pub fn peers(&self, key: &SwarmKey, max: usize, now_s: u32) -> Vec<ConnectedPeer> {
        // No memory is allocated under the lock.
        let mut peers = Vec::with_capacity(max);
        self.cell(key).shard.lock().peers(key, max, now_s, &mut peers);
        peers
    }

    /// Begins to watch which torrents change their counts. Earlier changes are lost.
    pub fn watch_changes(&self) {
        shoal_base::change_buffer::watch_changes(&self.shards, CHANGES_MAX);
    }

    /// Ends the watch.
    pub fn ignore_changes(&self) {
        shoal_base::change_buffer::ignore_changes(&self.shards);
    }

    /// Calls `visit` with the torrents that have changed since the last call, in pieces. Returns whether others were
    /// lost because too many had changed. It waits for no lock, and holds one only to exchange two lists.
    pub fn take_changes(&self, spare: &mut Vec<InfoHash>, mut visit: impl FnMut(&[InfoHash])) -> bool {
        spare.clear();
        spare.reserve_exact(CHANGES_MAX);
        shoal_base::change_buffer::take_changes(&self.shards, spare, &mut visit)
    }

    /// Returns the memory of the watch in bytes.
    pub const fn watch_bytes() -> usize {
        SHARDS * ChangeBuffer::bytes(CHANGES_MAX)
    }

    /// Advances expiry to its target for `now_s`, but visits `budget` peers at most. Must be called a few times per
    /// second between requests, by any number of threads.
    pub fn expire(&self, now_s: u32, budget: usize) -> Expired {
        let mut left = budget;
        let mut expired = Expired::default();
        let first = self.expiry_calls.fetch_add(1, Ordering::Relaxed);
        for index in 0..SHARDS {
            let cell = &self.shards[first.wrapping_add(index) % SHARDS];
            let mut is_behind = true;
            while is_behind && left > 0 {
                // If the lock is taken, a later call visits this shard.
                let Some(mut shard) = cell.shard.try_lock() else { break };
                let mut share = left.min(BUDGET_PER_LOCK);
                let (before, given) = (shard.totals, share);
                let rules = ExpiryRules::new(&self.pressure, now_s, self.peer_lifetime_s);
                is_behind = shard.expire(&rules, &mut share);
                expired.peers += shard.totals.removed() - before.removed();
                self.pressure
                    .update_pending_offers(before.pending_offer_bytes, shard.totals.pending_offer_bytes);
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

    /// Returns the totals of all swarms, without taking a lock.
    pub fn totals(&self) -> Totals {
        let none = Totals { bytes: self.pressure.memory_bytes(), ..Totals::default() };
        self.shards.iter().fold(none, |sum, cell| Totals {
            swarms: sum.swarms + cell.swarms.load(Ordering::Relaxed),
            seeders: sum.seeders + cell.seeders.load(Ordering::Relaxed),
            leechers: sum.leechers + cell.leechers.load(Ordering::Relaxed),
            completed: sum.completed + cell.completed.load(Ordering::Relaxed),
            expired: sum.expired + cell.expired.load(Ordering::Relaxed),
            evicted: sum.evicted + cell.evicted.load(Ordering::Relaxed),
            ..sum
        })
    }

    fn cell(&self, key: &SwarmKey) -> &Cell {
        // A table uses the low bits of the hash to find a bucket, and the highest ones to tell entries apart.
        let bits = (key.hash >> 32) % SHARDS as u64;
        &self.shards[usize::try_from(bits).unwrap_or(0)]
    }
}
