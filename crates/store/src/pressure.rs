//! Who is refused first, and who is forgotten early, when the memory ceiling comes near.
//!
//! Owns the counts of what each source holds in all swarms of both families. Below half of the ceiling it only counts;
//! above, the allowance of a source falls as memory fills up ([`shoal_source::allowance`]): sources beyond theirs are
//! refused newcomers, and the sweep forgets their peers until they are within it.
//!
//! It counts what is stored, not what came lately: a source that keeps its peers alive cannot wait until its count has
//! decayed. Must be told of every peer that comes and goes, else counts drift.

use std::sync::Arc;

use shoal_source::{Sketch, allowance};

use crate::arena::{Arena, PAGE_BYTES};
use crate::family::{Family, Network};
use crate::hash::HashKey;
use crate::stamp::{Stamp, Tick, Ticks};

/// What a torrent with one peer takes with all overhead, or rather more: by this the ceiling is told in entries.
const ENTRY_BYTES: usize = 64;

/// Above this part of the ceiling, in quarters, sweeps are quicker, so that what the greedy hold is free in minutes.
const HASTE_QUARTERS: usize = 3;

/// Purpose of the key that is derived from the secret of the store.
const KEY_PURPOSE: u64 = 0x7072_6573_7375_7265;

/// Shared by all shards of a store.
#[derive(Debug)]
pub(crate) struct Pressure {
    key: HashKey,
    sketch: Sketch,
    arena: Arc<Arena>,
    entries_max: u64,
}

/// By what the sweep decides who is to be forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Dues {
    pub(crate) ticks: Ticks,
    pub(crate) now: Tick,
    pub(crate) pressure: Arc<Pressure>,
    /// What an address may hold, if that is limited at the moment.
    allowance: Option<u64>,
}

/// Why a peer is to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It fell silent.
    Overdue,
    /// Memory is short, and its source holds more than its share.
    OverShare,
}

impl Pressure {
    pub(crate) fn new(arena: &Arc<Arena>, key: &HashKey) -> Self {
        let entries_max = (arena.pages_max() * (PAGE_BYTES / ENTRY_BYTES)) as u64;
        Self {
            key: key.derived(KEY_PURPOSE),
            sketch: Sketch::new(entries_max),
            arena: Arc::clone(arena),
            entries_max,
        }
    }

    /// Whether one more peer like this may come in.
    #[inline]
    pub(crate) fn admits<P: Family>(&self, peer: &P) -> bool {
        self.allowance().is_none_or(|allowance| !self.holds(peer, allowance))
    }

    /// Counts a peer that has come in.
    #[inline]
    pub(crate) fn add<P: Family>(&self, peer: &P) {
        for network in peer.networks().as_ref() {
            self.sketch.add(self.hash(network));
        }
    }

    /// Counts a peer that was there and has gone.
    #[inline]
    pub(crate) fn remove<P: Family>(&self, peer: &P) {
        for network in peer.networks().as_ref() {
            self.sketch.remove(self.hash(network));
        }
    }

    /// Whether sweeps are to be quicker than time asks for.
    pub(crate) fn is_high(&self) -> bool {
        self.arena.pages_used() >= self.arena.pages_max() / 4 * HASTE_QUARTERS
    }

    /// What one address may hold, if that is limited at the moment.
    #[inline]
    fn allowance(&self) -> Option<u64> {
        allowance(self.arena.pages_used() as u64, self.arena.pages_max() as u64, self.entries_max)
    }

    /// Whether a network of the peer holds as much as it may, or more.
    fn holds<P: Family>(&self, peer: &P, allowance: u64) -> bool {
        let is_full = |network: &Network| {
            u64::from(self.sketch.count(self.hash(network))) >= allowance.saturating_mul(network.shares)
        };
        peer.networks().as_ref().iter().any(is_full)
    }

    #[inline]
    fn hash(&self, network: &Network) -> u64 {
        self.key.hash(network.bits, network.length, 0)
    }
}

impl Dues {
    /// How things stand now.
    pub(crate) fn new(pressure: &Arc<Pressure>, ticks: Ticks, now: Tick) -> Self {
        Self { ticks, now, allowance: pressure.allowance(), pressure: Arc::clone(pressure) }
    }

    /// Why a peer is to be forgotten, if it is.
    #[inline]
    pub(crate) fn cause<P: Family>(&self, peer: &P, stamp: Stamp) -> Option<Cause> {
        if self.ticks.is_overdue(stamp, self.now) {
            return Some(Cause::Overdue);
        }
        // One more than what would be let in, so that a source at its allowance is let alone.
        let allowance = self.allowance?.saturating_add(1);
        self.pressure.holds(peer, allowance).then_some(Cause::OverShare)
    }
}
