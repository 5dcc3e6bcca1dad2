//! A large swarm: two tables of peers, so that a request of a seeder never walks over seeders.

use serde::{Deserialize, Serialize};
use shoal_base::source::Networks;

use crate::family::{Family, PeerRow, Stored};
use crate::hash::{HashKey, Seed};
use crate::holding::networks_in_slot;
use crate::memory::Memory;
use crate::pressure::{Cause, ExpiryCriteria};
use crate::source_limit::{SLOTS_COUNTED_MAX, SourceLimit};
use crate::stamp::{Stamp, Tick};
use crate::swarm::peer_line::PeerEntry;
use crate::table::{At, Bucket, Table};

/// Units of the budget of expiry for a peer that is removed where the torrents of sources are counted: the lines of its
/// slot in both tables.
const UNITS_PER_TORRENT: usize = 4;

/// A table of the peers of one role.
pub(crate) type Peers<P> = Table<<P as Stored>::Line>;

/// The peers of a large swarm, separated by role.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Large<P: Family> {
    pub(crate) leechers: Peers<P>,
    pub(crate) seeders: Peers<P>,
    /// Whether some source has had several peers in it since the swarm last consisted of a single peer.
    pub(crate) is_skewed: bool,
}

/// The location of a peer in a large swarm after an announce.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LargeAt {
    pub(crate) at: At,
    pub(crate) seeds: bool,
}

/// The progress of a walk over a large swarm: over the leechers first. Segments are merged only after the walk, since
/// that moves entries to where it would miss them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum LargeCursor {
    /// In the table of one role.
    Line {
        /// Whether it is the table of the seeders.
        seeds: bool,
        /// The number of the next line.
        line: u32,
    },
    /// Finished with the lines of both tables, whose segments now adapt to the remaining peers.
    Settling {
        /// Whether it is the turn of the table of the seeders.
        seeds: bool,
        /// The number of segments that are left.
        segments: u32,
    },
}

impl LargeCursor {
    /// The start of a walk.
    pub(crate) const START: Self = Self::Line { seeds: false, line: 0 };
}

impl<P: Family> Large<P> {
    /// Creates a large swarm with room for this many peers of each role.
    pub(crate) fn holding(memory: &mut Memory, seeds: [Seed; 2], leechers: usize, seeders: usize) -> Self {
        let mut table = |seed, count: usize| Table::holding(memory, seed, count);
        let [of_leechers, of_seeders] = seeds;
        Self { leechers: table(of_leechers, leechers), seeders: table(of_seeders, seeders), is_skewed: false }
    }

    /// Visits the peers in both roles that are of the same source as `peer` and in `slot`. All of them lie in the same
    /// two lines of a table.
    pub(crate) fn visit_slot(
        &self,
        memory: &Memory,
        key: &HashKey,
        peer: &P,
        slot: u64,
        mut visit: impl FnMut(&P),
    ) {
        let hash = peer.hash_in_slot(key, slot);
        let is_in_slot = |other: &&P| other.source() == peer.source() && other.slot(key) == slot;
        for table in [&self.leechers, &self.seeders] {
            table.visit_lines(memory, hash, |line| {
                line.peers().iter().filter(is_in_slot).for_each(&mut visit);
            });
        }
    }

    /// Returns the number of peers in both roles that are of the same source as `peer` and in `slot`.
    pub(crate) fn count_in_slot(&self, memory: &Memory, key: &HashKey, peer: &P, slot: u64) -> usize {
        let mut count = 0;
        self.visit_slot(memory, key, peer, slot, |_| count += 1);
        count
    }

    pub(crate) fn table(&self, seeds: bool) -> &Peers<P> {
        if seeds { &self.seeders } else { &self.leechers }
    }

    pub(crate) fn table_mut(&mut self, seeds: bool) -> &mut Peers<P> {
        if seeds { &mut self.seeders } else { &mut self.leechers }
    }

    /// Returns the number of peers of both roles.
    pub(crate) fn len(&self) -> u32 {
        self.leechers.len() + self.seeders.len()
    }

    /// Returns the number of peers of the new peer's source in other slots than its own, as far as these are counted.
    pub(crate) fn count_elsewhere(
        &self,
        memory: &Memory,
        key: &HashKey,
        new_peer: &P,
        limit: SourceLimit,
    ) -> usize {
        let slot = new_peer.slot(key);
        let others = 1..limit.slots.min(SLOTS_COUNTED_MAX);
        others.map(|other| self.count_in_slot(memory, key, new_peer, slot ^ other)).sum()
    }

    /// Returns the location and the stamp of a peer, whose hash is given, in the table of one role.
    #[inline]
    pub(crate) fn find(&self, memory: &Memory, hash: u64, peer: &P, seeds: bool) -> Option<(LargeAt, Stamp)> {
        let table = self.table(seeds);
        let (at, line) = table.find(memory, hash, |line: &P::Line| peer.index_in(line.peers()))?;
        Some((LargeAt { at, seeds }, Stamp(line.stamps()[at.slot()])))
    }

    /// Renews the stamp of a peer, if it is in the table of one role. Returns its location and its earlier stamp.
    #[inline]
    pub(crate) fn renew(
        &self,
        memory: &mut Memory,
        key: &HashKey,
        peer: &P,
        seeds: bool,
        now: Tick,
    ) -> Option<(At, Stamp)> {
        let find_in = |line: &P::Line| peer.index_in(line.peers());
        let (at, line) = self.table(seeds).find_mut(memory, peer.hash(key), find_in)?;
        let stamp = line.stamps_mut().get_mut(at.slot())?;
        let old = Stamp(*stamp);
        *stamp = old.renewed(now).0;
        Some((at, old))
    }

    /// Returns the numbers of seeders and leechers.
    #[inline]
    pub(crate) fn roles(&self) -> (u32, u32) {
        (self.seeders.len(), self.leechers.len())
    }

    /// Sets the stamp of a peer that was found.
    #[inline]
    pub(crate) fn set_stamp(&self, memory: &mut Memory, found: LargeAt, stamp: Stamp) {
        self.table(found.seeds).line_mut(memory, found.at).stamps_mut()[found.at.slot()] = stamp.0;
    }

    /// Inserts a peer, whose hash is given, that is not in the table of this role. Returns `None` if there is neither a
    /// free slot nor memory for more.
    pub(crate) fn insert(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        (hash, entry): (u64, &PeerEntry<P>),
        seeds: bool,
    ) -> Option<At> {
        self.table_mut(seeds).insert(memory, key, hash, entry)
    }

    /// Removes a peer that was found, and lets its table shrink now and then.
    pub(crate) fn remove(&mut self, memory: &mut Memory, key: &HashKey, found: LargeAt) {
        let table = self.table_mut(found.seeds);
        table.remove(memory, found.at);
        table.settle_sometimes(memory, key, found.at.line);
    }

    /// Removes overdue peers, from `cursor` on, as far as `budget` lasts. Returns where to continue, or `None` at the
    /// end.
    pub(crate) fn expire(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        criteria: &ExpiryCriteria,
        mut cursor: LargeCursor,
        budget: &mut usize,
        expired: &mut ExpiredPeers,
    ) -> Option<LargeCursor> {
        while *budget > 0 {
            cursor = match cursor {
                LargeCursor::Line { seeds, line } if line < self.table(seeds).end() => {
                    *budget -= 1;
                    let before = expired.len();
                    self.expire_line(memory, key, criteria, (seeds, line), expired);
                    let units = if criteria.pressure.counts_torrents() { UNITS_PER_TORRENT } else { 1 };
                    *budget = budget.saturating_sub((expired.len() - before) * units);
                    let table = self.table_mut(seeds);
                    let next = table.number_after(line);
                    if table.is_last_of_segment(line) {
                        table.shrink_segment(memory, key, line);
                    }
                    LargeCursor::Line { seeds, line: next }
                }
                LargeCursor::Line { seeds: false, .. } => LargeCursor::Line { seeds: true, line: 0 },
                LargeCursor::Line { .. } => LargeCursor::Settling { seeds: false, segments: u32::MAX },
                LargeCursor::Settling { seeds, mut segments } => {
                    match self.table_mut(seeds).settle_next(memory, key, &mut segments, budget) {
                        true => LargeCursor::Settling { seeds, segments },
                        false if seeds => return None,
                        false => LargeCursor::Settling { seeds: true, segments: u32::MAX },
                    }
                }
            };
        }
        Some(cursor)
    }

    /// Removes the peers of one line that should be forgotten, including those that a removal pulls into it.
    fn expire_line(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        criteria: &ExpiryCriteria,
        (seeds, number): (bool, u32),
        expired: &mut ExpiredPeers,
    ) {
        let due = |line: &P::Line| {
            let mut entries = line.peers().iter().zip(line.stamps()).enumerate();
            entries.find_map(|(slot, (peer, &stamp))| Some((slot, criteria.cause(peer, Stamp(stamp))?)))
        };
        while let Some((slot, cause)) = self.table(seeds).line(memory, number).and_then(due) {
            let PeerEntry { peer, .. } = self.table_mut(seeds).remove(memory, At::new(number, slot));
            criteria.pressure.remove(&peer);
            if criteria.pressure.counts_torrents() {
                let remaining = networks_in_slot(self, memory, key, &peer);
                criteria.pressure.remove_torrent(&peer, Networks::ALL.without(remaining));
            }
            expired.count(seeds, cause);
        }
    }

    /// Visits all peers with their roles, for the conversion of the swarm to a small one.
    pub(crate) fn entries(&self, memory: &Memory, mut each: impl FnMut(PeerEntry<P>, bool)) {
        for seeds in [true, false] {
            let table = self.table(seeds);
            for line in (0..table.end()).filter_map(|number| table.line(memory, number)) {
                (0..Bucket::len(line)).for_each(|slot| each(line.entry(slot), seeds));
            }
        }
    }

    /// Releases all memory.
    pub(crate) fn release(&mut self, memory: &mut Memory) {
        self.leechers.release(memory);
        self.seeders.release(memory);
    }
}

/// Numbers of peers that were removed, by role.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpiredPeers {
    pub(crate) leechers: usize,
    pub(crate) seeders: usize,
    /// Those of them whose source held more than its share.
    pub(crate) evicted: usize,
    /// Those of them whose swarm is removed.
    pub(crate) removed: usize,
}

impl ExpiredPeers {
    /// Returns their number in both roles.
    pub(crate) fn len(&self) -> usize {
        self.seeders + self.leechers
    }

    pub(crate) fn count(&mut self, seeds: bool, cause: Cause) {
        *if seeds { &mut self.seeders } else { &mut self.leechers } += 1;
        self.evicted += usize::from(cause == Cause::OverShare);
        self.removed += usize::from(cause == Cause::Removal);
    }
}
