//! A large swarm: two tables of peers, so that a request of a seeder never walks over seeders.

use crate::family::{Family, PeerRow, Stored};
use crate::hash::{HashKey, Seed};
use crate::memory::Memory;
use crate::peer_line::PeerEntry;
use crate::pressure::{Cause, ExpiryCriteria};
use crate::source_limit::{SEVERAL, SLOTS_COUNTED_MAX, SourceLimit};
use crate::stamp::Stamp;
use crate::table::{At, Bucket, Table};

/// Maximum number of peers of a swarm in which several slots of a new peer's source are counted.
const COUNTED_LEN_MAX: u32 = 512;

/// A table of the peers of one role.
pub(crate) type Peers<P> = Table<<P as Stored>::Line>;

/// The peers of a large swarm, separated by role.
#[derive(Debug)]
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

/// The progress of a walk over a large swarm. The tables shrink only after the walk: shrinking moves entries towards
/// the front, where the walk would miss them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LargeCursor {
    /// In the table of one role; leechers come first.
    Line {
        /// Whether it is the table of the seeders.
        seeds: bool,
        /// The number of the next line.
        line: u32,
    },
    /// Finished with both tables, which now adapt to the remaining peers.
    Settling,
}

impl LargeCursor {
    /// The start of a walk.
    pub(crate) const START: Self = Self::Line { seeds: false, line: 0 };
}

impl<P: Family> Large<P> {
    /// Creates a large swarm with room for this many peers of each role.
    pub(crate) fn holding(memory: &mut Memory, seeds: [Seed; 2], leechers: usize, seeders: usize) -> Self {
        let mut table = |seed, count: usize| Table::holding(memory, seed, u32::try_from(count).unwrap_or(0));
        let [of_leechers, of_seeders] = seeds;
        Self { leechers: table(of_leechers, leechers), seeders: table(of_seeders, seeders), is_skewed: false }
    }

    /// Returns the number of peers in both roles that are of the same source as `peer` and in `slot`. All of them lie
    /// in the run that starts at one home line.
    pub(crate) fn count_in_slot(&self, memory: &Memory, key: &HashKey, peer: &P, slot: u64) -> usize {
        let hash = peer.hash_in_slot(key, slot);
        let is_in_slot = |other: &&P| other.source() == peer.source() && other.slot(key) == slot;
        let mut count = 0;
        for table in [&self.leechers, &self.seeders] {
            table.visit_run(memory, hash, |line| count += line.peers().iter().filter(is_in_slot).count());
        }
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

    /// Returns whether a source has several peers once a new peer is added, with `in_slot` of them in its own slot. In
    /// a very large swarm only that slot is counted, since a few peers of one source have little effect there.
    pub(crate) fn would_be_skewed(&self, in_slot: usize, count_elsewhere: impl FnOnce() -> usize) -> bool {
        let elsewhere = if self.len() < COUNTED_LEN_MAX { count_elsewhere() } else { 0 };
        in_slot + elsewhere + 1 >= SEVERAL
    }

    /// Returns the location of a peer, whose hash is given, in the table of one role.
    #[inline]
    pub(crate) fn find(&self, memory: &Memory, hash: u64, peer: &P, seeds: bool) -> Option<At> {
        let table = self.table(seeds);
        if table.len() == 0 {
            return None;
        }
        table.find(memory, hash, |line: &P::Line| line.peers().iter().position(|other| other == peer))
    }

    /// Returns the stamp of a peer that was found.
    pub(crate) fn stamp(&self, memory: &Memory, found: LargeAt) -> Stamp {
        let line = self.table(found.seeds).line(memory, found.at);
        Stamp(line.map_or(0, |line| line.stamps()[found.at.slot]))
    }

    /// Sets the stamp of a peer that was found.
    #[inline]
    pub(crate) fn set_stamp(&mut self, memory: &mut Memory, found: LargeAt, stamp: Stamp) {
        self.table_mut(found.seeds).line_mut(memory, found.at).stamps_mut()[found.at.slot] = stamp.0;
    }

    /// Inserts a peer, whose hash is given, that is not in the table of this role. Returns `None` if the table has no
    /// free slot near its home, either after a renewal has begun or because one is already in progress.
    pub(crate) fn insert(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        (hash, entry): (u64, &PeerEntry<P>),
        seeds: bool,
    ) -> Option<At> {
        let table = self.table_mut(seeds);
        if let Some(at) = table.insert(memory, hash, entry) {
            return Some(at);
        }
        renew_if_due(table, key);
        table.insert(memory, hash, entry)
    }

    /// Removes a peer that was found.
    pub(crate) fn remove(&mut self, memory: &mut Memory, key: &HashKey, found: LargeAt) -> PeerEntry<P> {
        self.table_mut(found.seeds).remove(memory, key, found.at)
    }

    /// Lets both tables grow or shrink slightly if necessary. Returns whether they did.
    #[inline]
    pub(crate) fn settle(&mut self, memory: &mut Memory, key: &HashKey) -> bool {
        settle(&mut self.leechers, memory, key) | settle(&mut self.seeders, memory, key)
    }

    /// Prefetches the lines in which a peer is or would be, in both tables.
    #[inline]
    pub(crate) fn prefetch(&self, memory: &Memory, key: &HashKey, peer: &P) {
        let hash = peer.hash(key);
        self.leechers.prefetch_run(memory, hash);
        self.seeders.prefetch_run(memory, hash);
    }

    /// Removes overdue peers, from `cursor` on, in at most `budget` lines. Returns where to continue, or `None` at the
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
                LargeCursor::Line { seeds, line } if line >= self.table(seeds).end() => {
                    self.table(seeds).reset_cost();
                    if seeds { LargeCursor::Settling } else { LargeCursor::Line { seeds: true, line: 0 } }
                }
                LargeCursor::Line { seeds, line } => {
                    let table = self.table_mut(seeds);
                    expire_line(table, memory, key, criteria, line, |cause| expired.count(seeds, cause));
                    LargeCursor::Line { seeds, line: table.number_after(memory, line) }
                }
                LargeCursor::Settling if self.settle(memory, key) => LargeCursor::Settling,
                LargeCursor::Settling => return None,
            };
            *budget -= 1;
        }
        Some(cursor)
    }

    /// Visits all peers with their roles, for the conversion of the swarm to a small one.
    pub(crate) fn entries(&self, memory: &Memory, mut each: impl FnMut(PeerEntry<P>, bool)) {
        for seeds in [true, false] {
            let table = self.table(seeds);
            for line in (0..table.end()).filter_map(|number| table.line(memory, table.place(number))) {
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
    pub(crate) leechers: u64,
    pub(crate) seeders: u64,
    /// Those of them that were not overdue.
    pub(crate) evicted: u64,
}

impl ExpiredPeers {
    pub(crate) fn count(&mut self, seeds: bool, cause: Cause) {
        *if seeds { &mut self.seeders } else { &mut self.leechers } += 1;
        self.evicted += u64::from(cause == Cause::OverShare);
    }
}

/// Adapts a table to its number of entries, see [`Table::settle`], and begins its renewal when it is due.
#[inline]
fn settle<B: Bucket>(table: &mut Table<B>, memory: &mut Memory, key: &HashKey) -> bool {
    if table.is_due() {
        renew_if_due(table, key);
    }
    table.settle(memory, key)
}

/// Begins the renewal of a table if it is due. The next seed is derived from the previous one, and is as secret.
#[cold]
fn renew_if_due<B: Bucket>(table: &mut Table<B>, key: &HashKey) {
    if table.is_due() {
        table.renew(key.seed(table.seed().name(), 1));
    }
}

/// Removes the peers of one line that should be forgotten, including those that a removal pulls into it.
fn expire_line<B, P>(
    table: &mut Table<B>,
    memory: &mut Memory,
    key: &HashKey,
    criteria: &ExpiryCriteria,
    number: u32,
    mut forgotten: impl FnMut(Cause),
) where
    P: Family,
    B: Bucket<Entry = PeerEntry<P>> + PeerRow<P>,
{
    let place = table.place(number);
    let due = |line: &B| {
        let mut entries = line.peers().iter().zip(line.stamps()).enumerate();
        entries.find_map(|(slot, (peer, &stamp))| Some((slot, criteria.cause(peer, Stamp(stamp))?)))
    };
    while let Some((slot, cause)) = table.line(memory, place).and_then(due) {
        let entry = table.remove(memory, key, At { slot, ..place });
        criteria.pressure.remove(&entry.peer);
        forgotten(cause);
    }
}
