//! The remaining room, and how sources share it when it becomes short.
//!
//! This module owns the two sums over all shards that have ceilings, peers and memory, and the number of peers of each
//! source. Below half of a ceiling it only counts. Above, the allowance of a source falls with the free part
//! ([`shoal_base::source::allowance`]); the fuller ceiling decides. A source over its allowance gets no new peers, and
//! the sweep removes its peers until it is within the allowance. It gets no memory for pending offers either.
//!
//! Every peer that joins or leaves must be reported, with the source under which it was counted.
//!
//! Pending offers can be most of a peer's memory. Each peer stores its source in seven bytes of former padding: a hash
//! of 24 bits for the /32 or /24, and the further bytes of the address under a mask. The hashes of all its networks
//! follow from them. A download is counted once a lifetime per peer id, and eight times per source and torrent.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use shoal_base::source::{Holdings, NetworkCounts, Networks, Source, allowance};

use crate::api::{PEER_BYTES, Rejection, Settings};

/// The ceilings and the sums that they limit. All shards share them.
#[derive(Debug)]
pub(crate) struct Pressure {
    peers_max: u64,
    memory_bytes_max: u64,
    /// Peers in all shards.
    peers: AtomicU64,
    /// Memory of their pending offers.
    pending_offer_bytes: AtomicU64,
    counts: NetworkCounts,
    holdings: Option<Arc<Holdings>>,
}

impl Pressure {
    pub(crate) fn new(settings: &Settings) -> Self {
        let &Settings { peers_max, memory_bytes_max, .. } = settings;
        Self {
            peers_max,
            memory_bytes_max,
            peers: AtomicU64::new(0),
            pending_offer_bytes: AtomicU64::new(0),
            counts: NetworkCounts::new(peers_max.min(memory_bytes_max / PEER_BYTES)),
            holdings: settings.holdings.clone(),
        }
    }

    /// Returns the maximum memory that all peers take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.peers.load(Ordering::Relaxed) * PEER_BYTES + self.pending_offer_bytes.load(Ordering::Relaxed)
    }

    /// Updates the memory of the pending offers of a shard, whose lock the caller holds.
    pub(crate) fn update_pending_offers(&self, before_bytes: u64, after_bytes: u64) {
        if after_bytes > before_bytes {
            self.pending_offer_bytes.fetch_add(after_bytes - before_bytes, Ordering::Relaxed);
        } else if after_bytes < before_bytes {
            self.pending_offer_bytes.fetch_sub(before_bytes - after_bytes, Ordering::Relaxed);
        }
    }

    /// Returns whether memory may be allocated for pending offers of a peer of this source.
    pub(crate) fn may_grow(&self, source: Source) -> bool {
        self.memory_bytes() < self.memory_bytes_max
            && self.memory_allowance().is_none_or(|allowance| !self.holds(source, allowance))
    }

    /// Counts one more peer of this source if there is room for it, and the source is exempt or within its limits. It
    /// counts as a torrent too: nothing searches the swarm for other peers of the source.
    pub(crate) fn admit(&self, source: Source, is_exempt: bool) -> Result<(), Rejection> {
        if let Some(holdings) = self.holdings.as_ref().filter(|_| !is_exempt) {
            holdings.admit(source, Networks::ALL).map_err(Rejection::Excess)?;
        }
        if self.allowance().is_some_and(|allowance| self.holds(source, allowance)) {
            return Err(Rejection::OverShare);
        }
        if self.memory_bytes().saturating_add(PEER_BYTES) > self.memory_bytes_max {
            return Err(Rejection::Full);
        }
        let one_more = |peers| (peers < self.peers_max).then_some(peers + 1);
        let reserved = self.peers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        reserved.map_err(|_| Rejection::Full)?;
        self.add(source);
        Ok(())
    }

    /// Stops counting a peer of this source.
    pub(crate) fn release(&self, source: Source) {
        self.peers.fetch_sub(1, Ordering::Relaxed);
        self.remove(source);
    }

    /// Returns how many peers one address may have, if there is a limit at present.
    pub(crate) fn allowance(&self) -> Option<u64> {
        let of_peers = allowance(self.peers.load(Ordering::Relaxed), self.peers_max, self.peers_max);
        match (of_peers, self.memory_allowance()) {
            (Some(of_peers), Some(of_memory)) => Some(of_peers.min(of_memory)),
            (of_peers, of_memory) => of_peers.or(of_memory),
        }
    }

    /// Returns whether a network of the source has more peers than allowed.
    pub(crate) fn exceeds(&self, source: Source, allowance: u64) -> bool {
        self.holds(source, allowance.saturating_add(1))
    }

    /// Returns whether a network of the source has at least as many peers as allowed.
    fn holds(&self, source: Source, allowance: u64) -> bool {
        self.counts.holds(source.networks(), allowance)
    }

    fn memory_allowance(&self) -> Option<u64> {
        allowance(self.memory_bytes(), self.memory_bytes_max, self.memory_bytes_max / PEER_BYTES)
    }

    fn add(&self, source: Source) {
        self.counts.add(source.networks());
        if let Some(holdings) = &self.holdings {
            holdings.add_peer(source);
            holdings.add_torrent(source, Networks::ALL);
        }
    }

    fn remove(&self, source: Source) {
        self.counts.remove(source.networks());
        if let Some(holdings) = &self.holdings {
            holdings.remove_peer(source);
            holdings.remove_torrent(source, Networks::ALL);
        }
    }
}
