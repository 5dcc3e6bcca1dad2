//! A store that threads share, in the mode that its owner has chosen.
//!
//! The front ends branch by mode once per batch or request. Everything else about a store is the same in both modes.

use std::sync::Arc;

use shoal_base::change_buffer::ChangeBuffer;
use shoal_base::{Counts, Expired, InfoHash, Totals};

use crate::api::{Settings, Store};
use crate::memory_file::MemoryFile;
use crate::swarm_id::{Fingerprint, FingerprintKey};
use crate::{Place, StoredPeer};

/// A store in one of its modes.
#[derive(Clone, Debug)]
pub enum SharedStore {
    /// Swarms are identified by their info hashes.
    Whole(Arc<Store<InfoHash>>),
    /// Swarms are identified by fingerprints of their info hashes.
    Fingerprints(Arc<Store<Fingerprint>>),
}

/// Evaluates an expression for the store of either mode.
macro_rules! in_either_mode {
    ($shared:expr, $store:ident => $result:expr) => {
        match $shared {
            SharedStore::Whole($store) => $result,
            SharedStore::Fingerprints($store) => $result,
        }
    };
}

impl SharedStore {
    /// Creates an empty store of whole info hashes, or of fingerprints if there is a key for these, see
    /// [`Store::with_shards`].
    ///
    /// # Errors
    /// Fails if the kernel refuses the reservation.
    pub fn new(settings: &Settings, shards: usize, key: Option<FingerprintKey>) -> std::io::Result<Self> {
        Self::build(settings, shards, key, None)
    }

    /// As [`new`](Self::new), with the memory in a file, so that another process can take it over.
    ///
    /// # Errors
    /// As there.
    pub fn in_file(
        settings: &Settings,
        shards: usize,
        key: Option<FingerprintKey>,
        file: MemoryFile,
    ) -> std::io::Result<Self> {
        Self::build(settings, shards, key, Some(file))
    }

    fn build(
        settings: &Settings,
        shards: usize,
        key: Option<FingerprintKey>,
        file: Option<MemoryFile>,
    ) -> std::io::Result<Self> {
        Ok(match key {
            None => Store::<InfoHash>::build(settings, shards, (), file)?.into(),
            Some(key) => Store::<Fingerprint>::build(settings, shards, key, file)?.into(),
        })
    }

    /// Returns the place of a torrent, which is the same in both families, see [`Swarms::locate`](crate::Swarms::locate).
    #[inline]
    #[must_use]
    pub fn locate(&self, info_hash: &InfoHash) -> Place {
        in_either_mode!(self, store => store.v4.locate(info_hash))
    }

    /// Removes the swarms of a torrent, of both families and in private networks. Returns whether there was one, see
    /// [`Swarms::remove`](crate::Swarms::remove).
    pub fn remove(&self, info_hash: &InfoHash) -> bool {
        in_either_mode!(self, store => {
            let removed = [store.v4.remove(info_hash), store.v6.remove(info_hash), store.private.remove(info_hash)];
            removed.contains(&true)
        })
    }

    /// Returns the counts of the swarms of a torrent, of IPv4 and of IPv6, without those of private networks that are kept
    /// apart. Locks one shard of each family for a look-up.
    #[must_use]
    pub fn counts(&self, info_hash: &InfoHash) -> [Counts; 2] {
        in_either_mode!(self, store => {
            let place = store.v4.locate(info_hash);
            [store.v4.scrape(&place), store.v6.scrape(&place)]
        })
    }

    /// Returns the ages of the swarms of a torrent in seconds, of IPv4 and of IPv6, as [`Swarms::age_s`](crate::Swarms::age_s)
    /// does. A store of fingerprints does not know them.
    #[must_use]
    pub fn ages_s(&self, info_hash: &InfoHash, now_s: u32) -> [Option<u32>; 2] {
        let Self::Whole(store) = self else { return [None; 2] };
        let place = store.v4.locate(info_hash);
        [store.v4.age_s(&place, now_s), store.v6.age_s(&place, now_s)]
    }

    /// Prefetches the lines that [`counts`](Self::counts) will read, unless other threads have locked their shards.
    pub fn prefetch_counts(&self, info_hash: &InfoHash) {
        in_either_mode!(self, store => {
            let place = store.v4.locate(info_hash);
            store.v4.prefetch_swarm(&place);
            store.v6.prefetch_swarm(&place);
        });
    }

    /// Returns up to `max` peers of a torrent in each family, without those of private networks that are kept apart, in no
    /// particular order. Locks one shard of each family while it reads up to `max` peers.
    #[must_use]
    pub fn peers(&self, info_hash: &InfoHash, max: usize, now_s: u32) -> Vec<StoredPeer> {
        let mut peers = Vec::new();
        in_either_mode!(self, store => {
            let place = store.v4.locate(info_hash);
            store.v4.peers(&place, max, now_s, &mut peers);
            store.v6.peers(&place, max, now_s, &mut peers);
        });
        peers
    }

    /// Returns whether changes can be watched: a store of fingerprints does not know which torrents it holds.
    #[must_use]
    pub const fn has_info_hashes(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Begins to watch which torrents change their counts. Changes that were noted before are lost. Torrents in private
    /// networks that are kept apart are not watched.
    pub fn watch_changes(&self) {
        if let Self::Whole(store) = self {
            let capacity = changes_max(self.shards());
            shoal_base::change_buffer::watch_changes(store.v4.watched(), capacity);
            shoal_base::change_buffer::watch_changes(store.v6.watched(), capacity);
        }
    }

    /// Ends the watch.
    pub fn ignore_changes(&self) {
        if let Self::Whole(store) = self {
            shoal_base::change_buffer::ignore_changes(store.v4.watched());
            shoal_base::change_buffer::ignore_changes(store.v6.watched());
        }
    }

    /// Calls `visit` with the torrents that have changed since the last call, in pieces. One that has changed in both
    /// families is visited twice. Returns whether others were lost, because too many had changed. No lock is waited for,
    /// and none is held longer than an exchange of two lists.
    pub fn take_changes(&self, spare: &mut Vec<InfoHash>, mut visit: impl FnMut(&[InfoHash])) -> bool {
        let Self::Whole(store) = self else { return false };
        spare.clear();
        spare.reserve_exact(changes_max(self.shards()));
        let v4_lost = shoal_base::change_buffer::take_changes(store.v4.watched(), spare, &mut visit);
        let v6_lost = shoal_base::change_buffer::take_changes(store.v6.watched(), spare, &mut visit);
        v4_lost || v6_lost
    }

    /// Returns the memory in bytes that the watch of a store with this many shards takes.
    #[must_use]
    pub fn watch_bytes(shards: usize) -> usize {
        2 * shards * ChangeBuffer::bytes(changes_max(shards))
    }

    /// Returns the totals over all swarms of IPv4 and of IPv6.
    #[must_use]
    pub fn totals(&self) -> [Totals; 2] {
        in_either_mode!(self, store => {
            let [v4, v6] = store.private.totals();
            [store.v4.totals().plus(v4), store.v6.totals().plus(v6)]
        })
    }

    /// Retains the completed downloads of torrents that lose their last peer: of up to about `max` in each family, for this many
    /// hours (at most five years). Swarms of private networks that are kept apart are left out.
    pub fn retain_completed(&self, max: u32, hours: u16) {
        in_either_mode!(self, store => {
            store.v4.retain_completed(max, hours);
            store.v6.retain_completed(max, hours);
        });
    }

    /// Returns the number of torrents without peers whose completed downloads are retained, of IPv4 and of IPv6.
    #[must_use]
    pub fn retained(&self) -> [u64; 2] {
        in_either_mode!(self, store => [store.v4.retained(), store.v6.retained()])
    }

    /// Returns the number of shards of a family.
    #[must_use]
    pub fn shards(&self) -> usize {
        in_either_mode!(self, store => store.v4.shards())
    }

    /// Advances expiry in the next `shards` shards of each family, see [`Swarms::expire_in`](crate::Swarms::expire_in).
    /// The budget applies to each family, and once more to its swarms of private networks.
    pub fn expire_in(&self, shards: usize, now_s: u32, budget: usize) -> [Expired; 2] {
        in_either_mode!(self, store => {
            let [v4, v6] = store.private.expire(now_s, budget);
            [
                store.v4.expire_in(shards, now_s, budget).plus(v4),
                store.v6.expire_in(shards, now_s, budget).plus(v6),
            ]
        })
    }

    /// Populates memory ahead of need, see [`Store::make_ready`].
    pub fn make_ready(&self) {
        in_either_mode!(self, store => store.make_ready());
    }

    /// Takes memory from several NUMA nodes in turn, see [`Store::interleave`].
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub fn interleave(&self, nodes: u64) -> std::io::Result<()> {
        in_either_mode!(self, store => store.interleave(nodes))
    }

    /// Returns free memory to the kernel, see [`Store::trim`].
    pub fn trim(&self) -> bool {
        in_either_mode!(self, store => store.trim())
    }
}

/// Returns the number of changed torrents that each shard remembers. All shards of a family together hold what 100,000
/// changes a second leave in some tenths of a second.
fn changes_max(shards: usize) -> usize {
    const OF_A_FAMILY: usize = 1 << 16;
    const OF_A_SHARD_MIN: usize = 512;
    (OF_A_FAMILY / shards.max(1)).clamp(OF_A_SHARD_MIN, ChangeBuffer::CAPACITY_MAX)
}

impl From<Store<InfoHash>> for SharedStore {
    fn from(store: Store<InfoHash>) -> Self {
        Self::Whole(Arc::new(store))
    }
}

impl From<Store<Fingerprint>> for SharedStore {
    fn from(store: Store<Fingerprint>) -> Self {
        Self::Fingerprints(Arc::new(store))
    }
}

impl From<Arc<Store<InfoHash>>> for SharedStore {
    fn from(store: Arc<Store<InfoHash>>) -> Self {
        Self::Whole(store)
    }
}

impl From<Arc<Store<Fingerprint>>> for SharedStore {
    fn from(store: Arc<Store<Fingerprint>>) -> Self {
        Self::Fingerprints(store)
    }
}
