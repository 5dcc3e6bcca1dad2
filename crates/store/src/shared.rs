//! A store that threads share, in the mode that its owner has chosen.
//!
//! The front ends branch by mode once per batch or request. Everything else about a store is the same in both modes.

use std::sync::Arc;

use shoal_types::{Expired, InfoHash, Totals};

use crate::Place;
use crate::api::{Settings, Store};
use crate::swarm_id::{Fingerprint, FingerprintKey};

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
        Ok(match key {
            None => Store::with_shards(settings, shards)?.into(),
            Some(key) => Store::of_fingerprints(settings, shards, key)?.into(),
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

    /// Returns the totals over all swarms of IPv4 and of IPv6.
    #[must_use]
    pub fn totals(&self) -> [Totals; 2] {
        in_either_mode!(self, store => {
            let [v4, v6] = store.private.totals();
            [store.v4.totals().plus(v4), store.v6.totals().plus(v6)]
        })
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
