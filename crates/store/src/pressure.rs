//! Refusal and early removal of peers when memory becomes short.
//!
//! This module counts the peers of each source in all swarms of both families. Below half of the ceiling it only
//! counts. Above, the allowance of a source falls as memory fills up ([`shoal_base::source::allowance`]): new peers of
//! sources beyond their allowance are refused, and the sweep removes their peers until they are within it.
//!
//! It counts stored peers, not recent ones: a source that keeps its peers alive cannot wait for its count to decay.
//! Every addition and removal of a peer must be reported, or the counts drift. It passes the reports on to the
//! [`Holdings`] of sources, whose limits hold at any fill of the memory. [`crate::holding`] finds which torrents a
//! source gains and loses.
//!
//! Above half of the ceiling, the allowance of a source is `n g² / 16`, where `g` is the free part and `n` the number
//! of peers that would fit. Above three quarters, the sweep is four times as fast. It removes any peers of a source,
//! not just peers that are alone in a swarm: with two ports, an attacker would make none of them alone. No bit of a
//! stamp marks torrents that were announced only once. Sources beyond their share are recognisable.
//!
//! Some 8,000 addresses within their share fill the ceiling, if they are in hundreds of /24 networks. One IPv6 /32
//! stops at 70 %.

use std::sync::Arc;

use shoal_base::source::{Holdings, NetworkCounts, Networks, Width, allowance};

use crate::api::Rejection;
use crate::family::{Family, Network};
use crate::hash::HashKey;
use crate::memory::arena::{Arena, PAGE_BYTES};
use crate::stamp::{Stamp, Tick, Ticks};

/// Upper estimate of the memory of a torrent with one peer, including all overhead. It converts the ceiling to entries.
const ENTRY_BYTES: usize = 64;

/// Above this part of the ceiling, in quarters, sweeps are faster, so that memory beyond a source's share becomes free
/// within minutes.
const HASTE_QUARTERS: usize = 3;

/// Purpose of the key that is derived from the secret of the store.
const KEY_PURPOSE: u64 = 0x7072_6573_7375_7265;

#[derive(Debug)]
pub(crate) struct Pressure {
    key: HashKey,
    counts: NetworkCounts,
    arena: Arc<Arena>,
    entries_max: u64,
    holdings: Option<Arc<Holdings>>,
}

/// The criteria by which a sweep, or the removal of a swarm, selects peers to remove.
#[derive(Clone, Debug)]
pub(crate) struct ExpiryCriteria {
    pub(crate) ticks: Ticks,
    pub(crate) now: Tick,
    pub(crate) pressure: Arc<Pressure>,
    /// The number of peers that an address may hold, if currently limited.
    allowance: Option<u64>,
    /// Whether all peers are removed.
    is_removal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The peer has not announced within the timeout.
    Overdue,
    /// Memory is short, and the peer's source holds more than its share.
    OverShare,
    /// The peer's swarm is removed.
    Removal,
}

impl Pressure {
    pub(crate) fn new(arena: &Arc<Arena>, key: &HashKey, holdings: Option<Arc<Holdings>>) -> Self {
        let entries_max = (arena.pages_max() * (PAGE_BYTES / ENTRY_BYTES)) as u64;
        Self {
            key: key.derived(KEY_PURPOSE),
            counts: NetworkCounts::new(entries_max),
            arena: Arc::clone(arena),
            entries_max,
            holdings,
        }
    }

    /// Returns all counts of sources, for [`set_words`](Self::set_words) in another process.
    pub(crate) fn words(&self) -> Vec<u32> {
        let held = self.holdings.iter().flat_map(|holdings| holdings.words());
        self.counts.words().chain(held).collect()
    }

    pub(crate) fn words_len(&self) -> u32 {
        let held = self.holdings.as_ref().map_or(0, |holdings| holdings.words().count());
        u32::try_from(self.counts.words().count() + held).unwrap_or(u32::MAX)
    }

    /// Replaces all counts of sources. They come from a store with the same secrets and limits.
    pub(crate) fn set_words(&self, words: &[u32]) {
        let mut words = words.iter().copied();
        self.counts.set_words(&mut words);
        if let Some(holdings) = &self.holdings {
            holdings.set_words(words);
        }
    }

    /// Decides whether a new peer may be stored in a swarm whose torrent is `new` to these networks.
    #[inline]
    pub(crate) fn admit<P: Family>(&self, peer: &P, new: Networks, is_exempt: bool) -> Result<(), Rejection> {
        if self.allowance().is_some_and(|allowance| self.holds(peer, allowance)) {
            return Err(Rejection::OverShare);
        }
        match &self.holdings {
            Some(holdings) if !is_exempt => Ok(holdings.admit(peer.hashed_source(holdings.hasher()), new)?),
            _ => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn counts_torrents(&self) -> bool {
        self.holdings.as_ref().is_some_and(|holdings| holdings.counts_torrents())
    }

    #[inline]
    pub(crate) fn add_torrent<P: Family>(&self, peer: &P, new: Networks) {
        if let Some(holdings) = &self.holdings {
            holdings.add_torrent(peer.hashed_source(holdings.hasher()), new);
        }
    }

    /// Uncounts a torrent for the networks of a peer that have left it.
    #[inline]
    pub(crate) fn remove_torrent<P: Family>(&self, peer: &P, gone: Networks) {
        if let Some(holdings) = &self.holdings {
            holdings.remove_torrent(peer.hashed_source(holdings.hasher()), gone);
        }
    }

    #[inline]
    pub(crate) fn add<P: Family>(&self, peer: &P) {
        self.counts.add(self.hashes(peer));
        if let Some(holdings) = &self.holdings {
            holdings.add_peer(peer.hashed_source(holdings.hasher()));
        }
    }

    #[inline]
    pub(crate) fn remove<P: Family>(&self, peer: &P) {
        self.counts.remove(self.hashes(peer));
        if let Some(holdings) = &self.holdings {
            holdings.remove_peer(peer.hashed_source(holdings.hasher()));
        }
    }

    /// Returns whether sweeps should be faster than the timeout requires.
    pub(crate) fn is_high(&self) -> bool {
        self.arena.pages_used() >= self.arena.pages_max() / 4 * HASTE_QUARTERS
    }

    /// Returns the number of peers that one address may hold, if currently limited.
    #[inline]
    fn allowance(&self) -> Option<u64> {
        allowance(self.arena.pages_used() as u64, self.arena.pages_max() as u64, self.entries_max)
    }

    /// Returns whether a network of the peer holds at least its allowance.
    fn holds<P: Family>(&self, peer: &P, allowance: u64) -> bool {
        self.counts.holds(self.hashes(peer), allowance)
    }

    #[inline]
    fn hashes<P: Family>(&self, peer: &P) -> impl Iterator<Item = (u64, Width)> {
        let networks = peer.networks().into_iter();
        networks.map(|Network { bits, length, width }| (self.key.hash(bits, length, 0), width))
    }
}

impl ExpiryCriteria {
    pub(crate) fn new(pressure: &Arc<Pressure>, ticks: Ticks, now: Tick) -> Self {
        let allowance = pressure.allowance();
        Self { ticks, now, allowance, pressure: Arc::clone(pressure), is_removal: false }
    }

    /// Returns criteria that apply to every peer.
    pub(crate) fn removal(pressure: &Arc<Pressure>, ticks: Ticks) -> Self {
        Self { is_removal: true, ..Self::new(pressure, ticks, ticks.at(0)) }
    }

    /// Returns why a peer should be removed, if it should.
    #[inline]
    pub(crate) fn cause<P: Family>(&self, peer: &P, stamp: Stamp) -> Option<Cause> {
        if self.is_removal {
            return Some(Cause::Removal);
        }
        if self.ticks.is_overdue(stamp, self.now) {
            return Some(Cause::Overdue);
        }
        // One more than the limit for new peers, so that a source at its allowance loses none.
        let allowance = self.allowance?.saturating_add(1);
        self.pressure.holds(peer, allowance).then_some(Cause::OverShare)
    }
}
