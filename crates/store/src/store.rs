//! All swarms of a tracker: of both families, public and private, with the memory they live in.

use std::sync::Arc;

use shoal_base::change_buffer::ChangeBuffer;
use shoal_base::{Counts, Expired, InfoHash, PeerV4, PeerV6, Totals};

use crate::api::{Listed, Settings};
use crate::hash::HashKey;
use crate::memory::arena::Arena;
use crate::memory::file::MemoryFile;
use crate::pressure::Pressure;
use crate::shard::Rules;
use crate::source_limit::SourceLimit;
use crate::swarms::private::{self, PrivateSwarms};
use crate::swarms::{SHARDS_MAX, Swarms};
use crate::walk::Walk;
use crate::{Place, StoredPeer};

/// Number of shards of a family, unless the owner of the store chooses it.
const SHARDS_DEFAULT: usize = 32;

/// All swarms, separated by address family, under one memory ceiling.
#[derive(Debug)]
pub struct Store {
    /// Swarms of IPv4 peers.
    pub v4: Swarms<PeerV4>,
    /// Swarms of IPv6 peers.
    pub v6: Swarms<PeerV6>,
    /// The swarms of private networks that are kept apart.
    pub private: PrivateSwarms,
    pressure: Arc<Pressure>,
    arena: Arc<Arena>,
}

impl Store {
    /// Creates an empty store with a number of shards that suits some eight threads. Reserves address space for the
    /// memory ceiling, but takes no memory yet. Fails if the kernel refuses the reservation.
    pub fn new(settings: &Settings) -> std::io::Result<Self> {
        Self::with_shards(settings, SHARDS_DEFAULT)
    }

    /// Like [`new`](Self::new), with about `shards` shards a family: the next power of two, up to [`SHARDS_MAX`]. With
    /// more shards, threads wait less for each other, but each shard leaves some pages partly filled.
    pub fn with_shards(settings: &Settings, shards: usize) -> std::io::Result<Self> {
        Self::build(settings, shards, None)
    }

    /// Like [`with_shards`](Self::with_shards), with the memory in a file, so that another process can take it over.
    pub fn in_file(settings: &Settings, shards: usize, file: MemoryFile) -> std::io::Result<Self> {
        Self::build(settings, shards, Some(file))
    }

    fn build(settings: &Settings, shards: usize, file: Option<MemoryFile>) -> std::io::Result<Self> {
        let shards = shards.clamp(1, SHARDS_MAX).next_power_of_two();
        let arena = Arc::new(Arena::new(settings.memory_bytes_max, file)?);
        let key = HashKey::new(settings.hash_key);
        let rules = Rules {
            key,
            timeout_s: settings.peer_timeout_s,
            source_limit: SourceLimit::new(settings.peers_per_source_max, settings.swarm_share_max),
            pressure: Arc::new(Pressure::new(&arena, &key, settings.holdings.clone())),
        };
        let v4 = Swarms::new(&arena, &rules, shards, 0);
        let v6 = Swarms::new(&arena, &rules, shards, 0);
        // The shards of a store are numbered consecutively.
        let private_v4 = Swarms::new(&arena, &rules, private::SHARDS, shards);
        let private_v6 = Swarms::new(&arena, &rules, private::SHARDS, shards);
        let private = PrivateSwarms::new(private_v4, private_v6, &key);
        Ok(Self { v4, v6, private, pressure: rules.pressure, arena })
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(crate) fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    /// Asks the kernel to populate the memory that will be needed next, and to combine fully used pages. To be called
    /// some fifty times a second from a thread that serves no requests, since the kernel may take some milliseconds.
    /// Otherwise, requests bear that delay.
    pub fn make_ready(&self) {
        self.arena.make_ready();
    }

    /// Takes further memory from all these NUMA nodes in turn (a bit for each of the first 64).
    /// Every thread uses all swarms, so no node suits one of them better. The error is the error of the kernel, for
    /// example if it supports only one node.
    pub fn interleave(&self, nodes: u64) -> std::io::Result<()> {
        self.arena.interleave(nodes)
    }

    /// Returns some free memory to the kernel. Returns whether there is more. To be called from a thread that serves no
    /// requests.
    pub fn trim(&self) -> bool {
        self.arena.trim()
    }

    /// Returns the place of a torrent, which is the same in both families, see
    /// [`Swarms::locate`](crate::Swarms::locate).
    #[inline]
    pub fn locate(&self, info_hash: &InfoHash) -> Place {
        self.v4.locate(info_hash)
    }

    /// Removes a torrent's swarms of both families and in private networks. Returns whether there was one, see
    /// [`Swarms::remove`](crate::Swarms::remove).
    pub fn remove(&self, info_hash: &InfoHash) -> bool {
        let removed = [self.v4.remove(info_hash), self.v6.remove(info_hash), self.private.remove(info_hash)];
        removed.contains(&true)
    }

    /// Returns the counts of a torrent's swarms of IPv4 and of IPv6, without private networks that are kept apart.
    /// Locks one shard of each family for a look-up.
    pub fn counts(&self, info_hash: &InfoHash) -> [Counts; 2] {
        let place = self.v4.locate(info_hash);
        [self.v4.scrape(&place), self.v6.scrape(&place)]
    }

    /// Returns the ages in seconds of a torrent's swarms of IPv4 and of IPv6, see
    /// [`Swarms::age_s`](crate::Swarms::age_s).
    pub fn ages_s(&self, info_hash: &InfoHash, now_s: u32) -> [Option<u32>; 2] {
        let place = self.v4.locate(info_hash);
        [self.v4.age_s(&place, now_s), self.v6.age_s(&place, now_s)]
    }

    /// Prefetches the lines that [`counts`](Self::counts) will read, unless other threads have locked their shards.
    pub fn prefetch_counts(&self, info_hash: &InfoHash) {
        let place = self.v4.locate(info_hash);
        self.v4.prefetch_swarm(&place);
        self.v6.prefetch_swarm(&place);
    }

    /// Returns up to `max` peers of a torrent in each family, without private networks that are kept apart, in no
    /// particular order. Locks one shard of each family while it reads up to `max` peers.
    pub fn peers(&self, info_hash: &InfoHash, max: usize, now_s: u32) -> Vec<StoredPeer> {
        let mut peers = Vec::new();
        let place = self.v4.locate(info_hash);
        self.v4.peers(&place, max, now_s, &mut peers);
        self.v6.peers(&place, max, now_s, &mut peers);
        peers
    }

    /// Begins to watch which torrents change their counts, and forgets earlier changes. Torrents in private networks
    /// that are kept apart are not watched.
    pub fn watch_changes(&self) {
        let capacity = changes_max(self.shards());
        shoal_base::change_buffer::watch_changes(self.v4.watched(), capacity);
        shoal_base::change_buffer::watch_changes(self.v6.watched(), capacity);
    }

    /// Ends the watch.
    pub fn ignore_changes(&self) {
        shoal_base::change_buffer::ignore_changes(self.v4.watched());
        shoal_base::change_buffer::ignore_changes(self.v6.watched());
    }

    /// Calls `visit` with the torrents that have changed since the last call, in pieces. A torrent that has changed in
    /// both families is visited twice. Returns whether others were lost, because too many had changed. Waits for no
    /// lock, and holds none for longer than an exchange of two lists.
    pub fn take_changes(&self, spare: &mut Vec<InfoHash>, mut visit: impl FnMut(&[InfoHash])) -> bool {
        spare.clear();
        spare.reserve_exact(changes_max(self.shards()));
        let v4_lost = shoal_base::change_buffer::take_changes(self.v4.watched(), spare, &mut visit);
        let v6_lost = shoal_base::change_buffer::take_changes(self.v6.watched(), spare, &mut visit);
        v4_lost || v6_lost
    }

    /// Returns the memory in bytes that the watch takes with this many shards.
    pub fn watch_bytes(shards: usize) -> usize {
        2 * shards * ChangeBuffer::bytes(changes_max(shards))
    }

    /// Returns the totals over all swarms of IPv4 and of IPv6.
    pub fn totals(&self) -> [Totals; 2] {
        let [v4, v6] = self.private.totals();
        [self.v4.totals().plus(v4), self.v6.totals().plus(v6)]
    }

    /// Retains the completed downloads of torrents that lose their last peer: up to about `max` in each family, for
    /// this many hours (at most five years). Private networks that are kept apart are left out.
    pub fn retain_completed(&self, max: u32, hours: u16) {
        self.v4.retain_completed(max, hours);
        self.v6.retain_completed(max, hours);
    }

    /// Returns the number of torrents without peers whose completed downloads are retained, of IPv4 and of IPv6.
    pub fn retained(&self) -> [u64; 2] {
        [self.v4.retained(), self.v6.retained()]
    }

    /// Returns the number of shards of a family.
    pub fn shards(&self) -> usize {
        self.v4.shards()
    }

    /// Advances expiry in the next `shards` shards of each family, see [`Swarms::expire_in`](crate::Swarms::expire_in).
    /// The budget applies to each family, and once more to its private networks.
    pub fn expire_in(&self, shards: usize, now_s: u32, budget: usize) -> [Expired; 2] {
        let [v4, v6] = self.private.expire(now_s, budget);
        [self.v4.expire_in(shards, now_s, budget).plus(v4), self.v6.expire_in(shards, now_s, budget).plus(v6)]
    }

    /// Replaces the content of `listed` with the next torrents of a walk over all of them: some hundreds, occasionally
    /// none, at most [`Walk::LISTED_MAX`]. Returns whether more may follow.
    ///
    /// Between two calls the store may change in any way. A torrent that has a swarm during the whole walk is listed
    /// exactly once, others at most once.
    pub fn list(&self, walk: &mut Walk, listed: &mut Vec<Listed>) -> bool {
        walk.list_next(self, listed)
    }
}

/// Returns the number of changed torrents that each shard remembers. All shards of a family together hold some tenths
/// of a second at 100,000 changes a second.
fn changes_max(shards: usize) -> usize {
    const OF_A_FAMILY: usize = 1 << 16;
    const OF_A_SHARD_MIN: usize = 512;
    (OF_A_FAMILY / shards.max(1)).clamp(OF_A_SHARD_MIN, ChangeBuffer::CAPACITY_MAX)
}
