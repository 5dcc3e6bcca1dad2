//! How much room is left, and how it is shared between sources when little is.
//!
//! Owns the sums over all shards that the two ceilings limit, peers and memory, and the number of peers of each source.
//! Below half of a ceiling it only counts; above, the allowance of a source falls as the room does
//! ([`shoal_source::allowance`]), and the fuller ceiling decides. A source beyond its allowance is refused new peers,
//! and the sweep forgets its peers until it is within it; beyond that of memory it may make no more debts either.
//!
//! Must be told of every peer that comes, goes or is taken over, with the source that it was counted for.

use core::sync::atomic::{AtomicU64, Ordering};

use shoal_source::{Sketch, allowance};

use crate::api::{PEER_BYTES, Rejection, Settings};
use crate::key::Source;

/// Times the allowance of an address that an IPv6 /48 has, which is a site: as many as a few hosts.
const SITE_SHARES: u64 = 4;

/// Shared by all shards.
#[derive(Debug)]
pub(crate) struct Pressure {
    peers_max: u64,
    memory_bytes_max: u64,
    /// Peers of all shards.
    peers: AtomicU64,
    /// Memory of what is owed to them.
    debt_bytes: AtomicU64,
    sketch: Sketch,
}

impl Pressure {
    pub(crate) fn new(settings: &Settings) -> Self {
        let &Settings { peers_max, memory_bytes_max, .. } = settings;
        Self {
            peers_max,
            memory_bytes_max,
            peers: AtomicU64::new(0),
            debt_bytes: AtomicU64::new(0),
            sketch: Sketch::new(peers_max.min(memory_bytes_max / PEER_BYTES)),
        }
    }

    /// The memory that all peers take, at the most.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.peers.load(Ordering::Relaxed) * PEER_BYTES + self.debt_bytes.load(Ordering::Relaxed)
    }

    /// Takes note of what is owed to the peers of a shard that were owed so much before. Called by who holds its lock.
    pub(crate) fn note_debts(&self, before_bytes: u64, after_bytes: u64) {
        if after_bytes > before_bytes {
            self.debt_bytes.fetch_add(after_bytes - before_bytes, Ordering::Relaxed);
        } else if after_bytes < before_bytes {
            self.debt_bytes.fetch_sub(before_bytes - after_bytes, Ordering::Relaxed);
        }
    }

    /// Whether there is memory for more debts to a peer of this source.
    pub(crate) fn may_grow(&self, source: Source) -> bool {
        self.memory_bytes() < self.memory_bytes_max
            && self.memory_allowance().is_none_or(|allowance| !self.holds(source, allowance))
    }

    /// Counts one more peer of this source, if there is room for it.
    pub(crate) fn admit(&self, source: Source) -> Result<(), Rejection> {
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

    /// Counts a peer no more that was admitted for this source.
    pub(crate) fn release(&self, source: Source) {
        self.peers.fetch_sub(1, Ordering::Relaxed);
        self.remove(source);
    }

    /// Counts a peer for the source that has taken it over.
    pub(crate) fn hand_over(&self, from: Source, to: Source) {
        self.add(to);
        self.remove(from);
    }

    /// How many peers one address may have, if that is limited at the moment.
    pub(crate) fn allowance(&self) -> Option<u64> {
        let of_peers = allowance(self.peers.load(Ordering::Relaxed), self.peers_max, self.peers_max);
        match (of_peers, self.memory_allowance()) {
            (Some(of_peers), Some(of_memory)) => Some(of_peers.min(of_memory)),
            (of_peers, of_memory) => of_peers.or(of_memory),
        }
    }

    /// Whether a network of the source has more peers than it may.
    pub(crate) fn exceeds(&self, source: Source, allowance: u64) -> bool {
        self.holds(source, allowance.saturating_add(1))
    }

    /// Whether a network of the source has as many peers as it may, or more.
    fn holds(&self, source: Source, allowance: u64) -> bool {
        let has =
            |hash: u64, shares: u64| u64::from(self.sketch.count(hash)) >= allowance.saturating_mul(shares);
        has(source.network_hash(), 1) || source.site_hash().is_some_and(|site| has(site, SITE_SHARES))
    }

    fn memory_allowance(&self) -> Option<u64> {
        allowance(self.memory_bytes(), self.memory_bytes_max, self.memory_bytes_max / PEER_BYTES)
    }

    fn add(&self, source: Source) {
        self.sketch.add(source.network_hash());
        if let Some(site) = source.site_hash() {
            self.sketch.add(site);
        }
    }

    fn remove(&self, source: Source) {
        self.sketch.remove(source.network_hash());
        if let Some(site) = source.site_hash() {
            self.sketch.remove(site);
        }
    }
}
