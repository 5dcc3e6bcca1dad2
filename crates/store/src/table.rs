//! A hash table whose order can be renewed.
//!
//! The entries lie in [`Rows`] in the order of a secret seed. Replies reveal that order, since a sample consists of
//! neighbours. A client that announces all ports of an address can thus learn which of them lie together, and keep only
//! those. When that makes operations long, the rows become due, and the table is *renewed*: new rows with a new seed
//! take their place, and the entries of the former rows are moved over, a few lines at each operation and in the sweeps
//! of expiry. To learn an order from replies takes at least one announce for each entry that is to lie near others. A
//! renewal costs less than those announces did, because it moves every entry once. An attacker therefore gains nothing
//! by forcing repeated renewals.
//!
//! While there are former rows, an entry is in one or the other. Searches try the new rows first. New entries always go
//! to the new rows; the former rows are emptied from their end, so that their invariant holds and their pages become
//! free at once. The new rows start small and grow as they fill, so a renewal needs almost no extra memory. If no
//! memory is left at all, the move pauses, and every operation stays correct.
//!
//! This module owns both generations of rows. It must not know what an entry means, or when another table must be
//! renewed with this one.

use core::ops::RangeInclusive;

use crate::arena::Purpose;
use crate::hash::{HashKey, Seed};
use crate::memory::Memory;
pub(crate) use crate::rows::Bucket;
use crate::rows::{PROBE_LINES_MAX, Rows, STEPS_MAX};

/// The location of an entry, valid until the table changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) line: u32,
    pub(crate) slot: usize,
    /// Whether the entry is in the former rows.
    pub(crate) is_former: bool,
}

/// Rows, and during a renewal those of the former generation.
#[derive(Debug)]
pub(crate) struct Table<B> {
    rows: Rows<B>,
    former: Option<Box<Rows<B>>>,
}

/// Number of lines of former rows that are moved after one operation. One would be enough to finish in time, as an
/// operation adds at most one entry; with more, the two generations coexist for a shorter time.
const MOVED_LINES_MAX: usize = 2;

/// Maximum number of lines with which new rows start. They grow as they fill. If they were made large at once, almost
/// every entry that is moved would occupy another page, and the table would need twice its memory for a time.
const RENEWED_LINES_MAX: u32 = 512;

/// Maximum number of steps of growth after a line was moved. A step makes room for more than one entry.
const MOVING_STEPS_MAX: usize = 16;

/// Maximum distance from its home to which an entry is moved, in lines. Larger than for a new entry, because a moved
/// entry cannot be refused.
const MOVED_PROBE_LINES_MAX: u32 = 4 * PROBE_LINES_MAX;

impl<B: Bucket> Table<B> {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { rows: Rows::with_lines(seed, 1), former: None }
    }

    /// Creates a table that holds `entries` entries, which must be few, without growth.
    pub(crate) fn holding(memory: &mut Memory, seed: Seed, entries: u32) -> Self {
        let mut rows = Rows::with_lines(seed, Rows::<B>::lines_for(entries));
        rows.take_memory(memory);
        Self { rows, former: None }
    }

    /// Returns the number of entries.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.rows.len() + self.former.as_ref().map_or(0, |former| former.len())
    }

    /// Returns the rows that receive all new entries.
    #[inline]
    pub(crate) fn rows(&self) -> &Rows<B> {
        &self.rows
    }

    /// Returns the rows of the former generation, if they are not empty yet.
    #[inline]
    pub(crate) fn former(&self) -> Option<&Rows<B>> {
        self.former.as_deref()
    }

    /// Returns the number of lines of both generations, those of the new rows first. Every entry is in a line with a
    /// number below it.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.rows.end() + self.former.as_ref().map_or(0, |former| former.end())
    }

    /// Returns the first slot of the line with this number, which stays below `end` as long as the table does not
    /// change.
    #[inline]
    pub(crate) fn place(&self, number: u32) -> At {
        let is_former = number >= self.rows.end() && self.former.is_some();
        At { line: if is_former { number - self.rows.end() } else { number }, slot: 0, is_former }
    }

    /// Returns the number of the line after this one on a walk that ends behind the last entry.
    pub(crate) fn number_after(&self, memory: &Memory, number: u32) -> u32 {
        if number >= self.rows.end() {
            return number + 1;
        }
        self.rows.line_after_or_end(memory, number)
    }

    /// Returns a line, if memory is allocated for it.
    #[inline(always)]
    pub(crate) fn line<'a>(&'a self, memory: &'a Memory, at: At) -> Option<&'a B> {
        self.rows_of(at).line(memory, at.line)
    }

    /// Returns the line of an entry that was just found, for writing.
    #[inline(always)]
    pub(crate) fn line_mut<'a>(&'a mut self, memory: &'a mut Memory, at: At) -> &'a mut B {
        self.rows_of_mut(at).line_mut(memory, at.line)
    }

    #[inline(always)]
    fn rows_of(&self, at: At) -> &Rows<B> {
        if at.is_former { self.former_rows() } else { &self.rows }
    }

    #[inline(always)]
    fn rows_of_mut(&mut self, at: At) -> &mut Rows<B> {
        if at.is_former { self.former_rows_mut() } else { &mut self.rows }
    }

    #[cold]
    fn former_rows(&self) -> &Rows<B> {
        self.former.as_deref().unwrap_or(&self.rows)
    }

    #[cold]
    fn former_rows_mut(&mut self) -> &mut Rows<B> {
        self.former.as_deref_mut().unwrap_or(&mut self.rows)
    }

    /// Prefetches the home line of an entry with this hash.
    #[inline]
    pub(crate) fn prefetch(&self, memory: &Memory, hash: u64) {
        self.rows.prefetch(memory, hash);
    }

    /// As `prefetch`, but includes the next line, to which every third search continues in a full table.
    #[inline]
    pub(crate) fn prefetch_run(&self, memory: &Memory, hash: u64) {
        self.rows.prefetch_run(memory, hash);
    }

    /// Looks for an entry with this hash. `matching` returns the slot of a line that holds the entry.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        memory: &Memory,
        hash: u64,
        matching: impl Fn(&B) -> Option<usize>,
    ) -> Option<At> {
        if let Some((line, slot)) = self.rows.find(memory, hash, &matching) {
            return Some(At { line, slot, is_former: false });
        }
        if self.former.is_none() { None } else { self.find_former(memory, hash, matching) }
    }

    #[cold]
    fn find_former(&self, memory: &Memory, hash: u64, matching: impl Fn(&B) -> Option<usize>) -> Option<At> {
        let (line, slot) = self.former.as_ref()?.find(memory, hash, matching)?;
        Some(At { line, slot, is_former: true })
    }

    /// Visits the lines that may hold entries with this hash.
    #[inline]
    pub(crate) fn visit_run(&self, memory: &Memory, hash: u64, mut visit: impl FnMut(&B)) {
        self.rows.visit_run(memory, hash, &mut visit);
        if let Some(former) = &self.former {
            former.visit_run(memory, hash, &mut visit);
        }
    }

    /// Visits every entry whose position is among `positions`, by its line and slot. There must be no former rows.
    pub(crate) fn visit_between(
        &self,
        memory: &Memory,
        key: &HashKey,
        positions: RangeInclusive<u32>,
        visit: impl FnMut(&B, usize),
    ) {
        debug_assert!(self.former.is_none(), "two generations have two orders");
        self.rows.visit_between(memory, key, positions, visit);
    }

    /// Inserts an entry that is not in the table. `memory` must have room. Returns `None` if no slot near its home is
    /// free, which means that the table must be renewed. If that does not help because a renewal is already in
    /// progress, the caller must refuse the entry.
    #[inline]
    pub(crate) fn insert(&mut self, memory: &mut Memory, hash: u64, entry: &B::Entry) -> Option<At> {
        let (line, slot) = self.rows.insert(memory, hash, entry, PROBE_LINES_MAX)?;
        Some(At { line, slot, is_former: false })
    }

    /// Removes an entry, and pulls back later entries that it had displaced.
    pub(crate) fn remove(&mut self, memory: &mut Memory, key: &HashKey, at: At) -> B::Entry {
        self.rows_of_mut(at).remove(memory, key, (at.line, at.slot))
    }

    /// Splits or merges a few lines if there are too many or too few entries for them, and moves a few lines of the
    /// former rows. Returns whether it did any of this.
    #[inline]
    pub(crate) fn settle(&mut self, memory: &mut Memory, key: &HashKey) -> bool {
        if self.former.is_none() && self.rows.is_settled() {
            return false;
        }
        self.take_steps(memory, key)
    }

    /// Returns whether the table must be renewed and no renewal is in progress: a renewal ends before the next begins.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.rows.is_due() && self.former.is_none()
    }

    /// Returns the seed by which new entries are ordered.
    pub(crate) fn seed(&self) -> Seed {
        self.rows.seed()
    }

    /// Begins to move to rows with another seed. There must be no former rows.
    pub(crate) fn renew(&mut self, seed: Seed) {
        debug_assert!(self.former.is_none(), "a renewal ends before the next begins");
        let lines = Rows::<B>::lines_for(self.rows.len()).min(RENEWED_LINES_MAX);
        let former = core::mem::replace(&mut self.rows, Rows::with_lines(seed, lines));
        self.former = (former.end() > 0).then(|| Box::new(former));
    }

    /// Resets the cost of long scans, see [`Rows::reset_cost`].
    pub(crate) fn reset_cost(&self) {
        self.rows.reset_cost();
    }

    /// Releases all memory.
    pub(crate) fn release(&mut self, memory: &mut Memory) {
        self.rows.release(memory);
        if let Some(mut former) = self.former.take() {
            former.release(memory);
        }
    }

    #[cold]
    fn take_steps(&mut self, memory: &mut Memory, key: &HashKey) -> bool {
        if self.former.is_some() {
            return self.move_lines(memory, key);
        }
        let mut stepped = false;
        for _ in 0..STEPS_MAX {
            stepped |= self.rows.step(memory, key, true);
        }
        stepped
    }

    /// Moves a few lines of the former rows, starting with the last. Returns whether it moved any.
    fn move_lines(&mut self, memory: &mut Memory, key: &HashKey) -> bool {
        let mut moved = false;
        for _ in 0..MOVED_LINES_MAX {
            let Some(former) = &mut self.former else { break };
            moved |= former.give_back_end(memory);
            if former.end() == 0 {
                self.former = None;
                break;
            }
            while let Some((hash, entry)) = former.last(memory, key) {
                // Each entry may take a page of the new rows.
                let has_room = memory.has_room_for(Purpose::Moving);
                if !has_room || self.rows.insert(memory, hash, &entry, MOVED_PROBE_LINES_MAX).is_none() {
                    return moved;
                }
                former.pop(memory);
                moved = true;
            }
            for _ in 0..MOVING_STEPS_MAX {
                if !self.rows.step(memory, key, false) {
                    break;
                }
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests;
