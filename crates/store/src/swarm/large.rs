//! A large swarm: two tables of peers, so that a seeder's request never walks over seeders.

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

/// Units of the expiry budget for a removed peer if the torrents of sources are counted: the lines of its slot in both
/// tables.
const UNITS_PER_TORRENT: usize = 4;

pub(crate) type Peers<P> = Table<<P as Stored>::Line>;

/// The peers of a large swarm, separated by role.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Large<P: Family> {
    pub(crate) leechers: Peers<P>,
    pub(crate) seeders: Peers<P>,
    /// Whether a source has had several peers in the swarm since it last consisted of a single peer.
    pub(crate) is_skewed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LargeAt {
    pub(crate) at: At,
    pub(crate) seeds: bool,
}

/// The progress of a walk over a large swarm, leechers first. Segments are merged only after the walk: a merge moves
/// entries to places that the walk has passed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum LargeCursor {
    /// In the table of one role.
    Line {
        /// Whether the line is in the table of the seeders.
        seeds: bool,
        /// The number of the next line.
        line: u32,
    },
    /// All lines are visited, and the segments now adapt to the remaining peers.
    Settling {
        /// Whether the table of the seeders is settling.
        seeds: bool,
        /// The number of remaining segments.
        segments: u32,
    },
}

impl LargeCursor {
    /// The start of a walk.
    pub(crate) const START: Self = Self::Line { seeds: false, line: 0 };
}

impl<P: Family> Large<P> {
    /// Creates a large swarm with room for these numbers of peers.
    pub(crate) fn holding(memory: &mut Memory, seeds: [Seed; 2], leechers: usize, seeders: usize) -> Self {
        let mut table = |seed, count: usize| Table::holding(memory, seed, count);
        let [of_leechers, of_seeders] = seeds;
        Self { leechers: table(of_leechers, leechers), seeders: table(of_seeders, seeders), is_skewed: false }
    }

    /// Visits the peers in both roles that share `peer`'s source and `slot`. All of them lie in the same two lines of a
    /// table.
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

    /// Counts the peers in both roles that share `peer`'s source and `slot`.
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

    pub(crate) fn len(&self) -> u32 {
        self.leechers.len() + self.seeders.len()
    }

    /// Counts the peers of the new peer's source in other slots, within the limit of counted slots.
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

    /// Finds a peer in the table of one role, by its `hash`. Returns its location and stamp.
    #[inline]
    pub(crate) fn find(&self, memory: &Memory, hash: u64, peer: &P, seeds: bool) -> Option<(LargeAt, Stamp)> {
        let table = self.table(seeds);
        let (at, line) = table.find(memory, hash, |line: &P::Line| peer.index_in(line.peers()))?;
        Some((LargeAt { at, seeds }, Stamp(line.stamps()[at.slot()])))
    }

    /// Renews the stamp of a peer in the table of one role. Returns its location and its earlier stamp.
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

    #[inline]
    pub(crate) fn roles(&self) -> (u32, u32) {
        (self.seeders.len(), self.leechers.len())
    }

    #[inline]
    pub(crate) fn set_stamp(&self, memory: &mut Memory, found: LargeAt, stamp: Stamp) {
        self.table(found.seeds).line_mut(memory, found.at).stamps_mut()[found.at.slot()] = stamp.0;
    }

    /// Inserts a peer that is not in the table of this role. Returns `None` if there is neither a free slot nor memory
    /// for more.
    pub(crate) fn insert(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        (hash, entry): (u64, &PeerEntry<P>),
        seeds: bool,
    ) -> Option<At> {
        self.table_mut(seeds).insert(memory, key, hash, entry)
    }

    /// Removes a peer at its location, and lets its table shrink now and then.
    pub(crate) fn remove(&mut self, memory: &mut Memory, key: &HashKey, found: LargeAt) {
        let table = self.table_mut(found.seeds);
        table.remove(memory, found.at);
        table.settle_sometimes(memory, key, found.at.line);
    }

    /// Removes overdue peers, from `cursor` on, while `budget` lasts. Returns where to continue, or `None` at the end.
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

    /// Removes the expired peers of one line, including those that a removal pulls into it.
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

    /// Visits all peers with their roles, to convert the swarm into a small one.
    pub(crate) fn entries(&self, memory: &Memory, mut each: impl FnMut(PeerEntry<P>, bool)) {
        for seeds in [true, false] {
            let table = self.table(seeds);
            for line in (0..table.end()).filter_map(|number| table.line(memory, number)) {
                (0..Bucket::len(line)).for_each(|slot| each(line.entry(slot), seeds));
            }
        }
    }

    pub(crate) fn release(&mut self, memory: &mut Memory) {
        self.leechers.release(memory);
        self.seeders.release(memory);
    }
}

/// Numbers of removed peers, by role.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpiredPeers {
    pub(crate) leechers: usize,
    pub(crate) seeders: usize,
    /// Removed peers whose source held more than its share.
    pub(crate) evicted: usize,
    /// Removed peers whose swarm is removed.
    pub(crate) removed: usize,
}

impl ExpiredPeers {
    pub(crate) fn len(&self) -> usize {
        self.seeders + self.leechers
    }

    pub(crate) fn count(&mut self, seeds: bool, cause: Cause) {
        *if seeds { &mut self.seeders } else { &mut self.leechers } += 1;
        self.evicted += usize::from(cause == Cause::OverShare);
        self.removed += usize::from(cause == Cause::Removal);
    }
}
