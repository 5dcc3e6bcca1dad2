//! A hash table of lines that grows and shrinks one line at a time and is nine parts in ten full at every size.
//!
//! Linear probing over lines of several entries: an entry lives in the line that its position calls home, or, if
//! that and all between are full, in a later one. This is the one invariant of the table: **from an entry's home up
//! to its own line, every earlier line is full.** A search therefore ends at the first line that is not full, and a
//! removal pulls later entries back. Growth ([`Level`]) takes a whole run of lines out and puts it in again under the
//! new division, which keeps the invariant by construction.
//!
//! Owns entries and their order. Must not know what an entry means.

use core::ops::RangeInclusive;

use crate::arena::Purpose;
use crate::hash::HashKey;
use crate::level::{Ladder, Level};
use crate::lines::{Line, Lines};
use crate::memory::Memory;

/// A line of a table: up to `SLOTS` entries, packed at the front.
pub(crate) trait Bucket: Line {
    /// Most entries.
    const SLOTS: usize;

    /// How full the table is kept, in 64ths of all slots. In the lower zone it is fuller by a step of the ladder just
    /// before a growth ends, which must stay below 64.
    const FILL_64THS: u32;

    /// The sizes the table goes through.
    const LADDER: &'static Ladder;

    /// What a slot holds.
    type Entry: Copy;

    /// Entries in the line.
    fn len(&self) -> usize;
    /// The position of an entry.
    fn position(&self, slot: usize, key: &HashKey) -> u32;
    /// The entry of a slot below `len`.
    fn entry(&self, slot: usize) -> Self::Entry;
    /// Adds an entry; the line is not full.
    fn push(&mut self, entry: &Self::Entry);
    /// Takes an entry out; the last one takes its slot.
    fn take(&mut self, slot: usize) -> Self::Entry;
    /// Makes the line empty.
    fn clear(&mut self);
}

/// Where an entry is, until the table changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) line: u32,
    pub(crate) slot: usize,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Table<B> {
    lines: Lines<B>,
    level: Level,
    /// Every line at and above this is empty.
    end: u32,
    len: u32,
    /// Number of entries above which a line is split.
    grow_above: u32,
    /// Number of entries below which lines are merged.
    shrink_below: u32,
}

/// Most slots of a line of any table.
const SLOTS_MAX: usize = 16;

/// Lines split or merged after one operation: enough to keep up with it, few enough to go unnoticed.
const STEPS_MAX: usize = 2;

impl<B: Bucket> Table<B> {
    pub(crate) fn new() -> Self {
        Self::at_level(Level::holding(B::LADDER, 1))
    }

    /// A table in which `entries` entries, which are few, find room without growth.
    pub(crate) fn holding(memory: &mut Memory, entries: u32) -> Self {
        let lines = (entries * 64).div_ceil(B::FILL_64THS * Self::SLOTS);
        let mut table = Self::at_level(Level::holding(B::LADDER, lines));
        // At once, so that the memory need not be enlarged again and again.
        table.lines.line_ensured(memory, table.level.lines() - 1);
        table
    }

    const SLOTS: u32 = {
        assert!(B::SLOTS <= SLOTS_MAX);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "asserted above; a const context has no try_from"
        )]
        let slots = B::SLOTS as u32;
        slots
    };

    fn at_level(level: Level) -> Self {
        let mut table = Self { lines: Lines::new(), level, end: 0, len: 0, grow_above: 0, shrink_below: 0 };
        table.set_level(level);
        table
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Every entry is in a line below this.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// The line after `line` on a walk over all entries that wraps round at the end, with the gap left out once a
    /// line without entries is met in it.
    #[inline]
    pub(crate) fn line_after(&self, line: u32, line_is_empty: bool) -> u32 {
        let next = line + 1;
        let in_gap = line_is_empty && line >= self.level.gap_start() && line < self.level.gap_end();
        let next = if in_gap { self.level.gap_end() } else { next };
        if next < self.end { next } else { 0 }
    }

    /// The line after `line` on a walk that ends behind the last entry.
    pub(crate) fn line_after_or_end(&self, memory: &Memory, line: u32) -> u32 {
        let next = self.line_after(line, self.lines.line(memory, line).is_none_or(Line::is_empty));
        if next > line { next } else { self.end.max(line + 1) }
    }

    /// The line, if its place has memory.
    #[inline]
    pub(crate) fn line<'a>(&'a self, memory: &'a Memory, line: u32) -> Option<&'a B> {
        self.lines.line(memory, line)
    }

    /// Three lines in a row, if they lie in one piece of memory.
    #[inline]
    pub(crate) fn three_lines<'a>(&'a self, memory: &'a Memory, line: u32) -> Option<&'a [B; 3]> {
        self.lines.three(memory, line)
    }

    /// The line of an entry that was just found.
    #[inline]
    pub(crate) fn line_mut<'a>(&'a mut self, memory: &'a mut Memory, at: At) -> &'a mut B {
        self.lines.line_mut(memory, at.line).expect("a line with an entry has memory")
    }

    /// Starts loading the line that a position calls home.
    #[inline]
    pub(crate) fn prefetch(&self, memory: &Memory, position: u32) {
        self.lines.prefetch(memory, self.level.home(position));
    }

    /// As `prefetch`, and the line behind it, to which every third search in a full table goes on.
    #[inline]
    pub(crate) fn prefetch_run(&self, memory: &Memory, position: u32) {
        self.lines.prefetch_two(memory, self.level.home(position));
    }

    /// Starts loading a line and the one behind it.
    #[inline]
    pub(crate) fn prefetch_two(&self, memory: &Memory, line: u32) {
        self.lines.prefetch_two(memory, line);
    }

    /// Looks for an entry at `position`: `matching` tells the slot of a line that holds it.
    #[inline]
    pub(crate) fn find(
        &self,
        memory: &Memory,
        position: u32,
        matching: impl Fn(&B) -> Option<usize>,
    ) -> Option<At> {
        let mut line = self.level.home(position);
        loop {
            let bucket = self.lines.line(memory, line)?;
            if let Some(slot) = matching(bucket) {
                return Some(At { line, slot });
            }
            if bucket.len() < B::SLOTS {
                return None;
            }
            line += 1;
        }
    }

    /// Visits the lines in which entries of a position can be.
    #[inline]
    pub(crate) fn visit_run(&self, memory: &Memory, position: u32, mut visit: impl FnMut(&B)) {
        let first = self.level.home(position);
        for line in (first..).map_while(|line| self.lines.line(memory, line)) {
            visit(line);
            if line.len() < B::SLOTS {
                break;
            }
        }
    }

    /// Visits every entry whose position is among `positions`, by its line and slot.
    pub(crate) fn visit_between(
        &self,
        memory: &Memory,
        key: &HashKey,
        positions: RangeInclusive<u32>,
        mut visit: impl FnMut(&B, usize),
    ) {
        let last_home = self.level.home(*positions.end());
        let mut line = self.level.home(*positions.start());
        while line < self.end {
            let mut is_full = false;
            if let Some(bucket) = self.lines.line(memory, line) {
                is_full = bucket.len() == B::SLOTS;
                (0..bucket.len())
                    .filter(|&slot| positions.contains(&bucket.position(slot, key)))
                    .for_each(|slot| visit(bucket, slot));
            }
            // By the invariant nothing that belongs here is behind a line that is not full.
            if line >= last_home && !is_full {
                break;
            }
            line = self.line_after_or_end(memory, line);
        }
    }

    /// Adds an entry that is not in the table. `memory` has room.
    #[inline]
    pub(crate) fn insert(&mut self, memory: &mut Memory, position: u32, entry: &B::Entry) -> At {
        let mut line = self.level.home(position);
        let slot = loop {
            let bucket = self.lines.line_ensured(memory, line);
            if bucket.len() < B::SLOTS {
                bucket.push(entry);
                break bucket.len() - 1;
            }
            line += 1;
        };
        self.end = self.end.max(line + 1);
        self.len += 1;
        At { line, slot }
    }

    /// Takes an entry out, and pulls back later entries that had to make way.
    pub(crate) fn remove(&mut self, memory: &mut Memory, key: &HashKey, at: At) -> B::Entry {
        let bucket = self.line_mut(memory, at);
        let mut was_full = bucket.len() == B::SLOTS;
        let removed = bucket.take(at.slot);
        self.len -= 1;
        let (mut hole, mut line) = (at.line, at.line + 1);
        while was_full {
            let Some(bucket) = self.lines.line(memory, line) else { break };
            let misplaced =
                (0..bucket.len()).find(|&slot| self.level.home(bucket.position(slot, key)) <= hole);
            was_full = bucket.len() == B::SLOTS;
            if let Some(slot) = misplaced {
                let entry = self.line_mut(memory, At { line, slot }).take(slot);
                self.line_mut(memory, At { line: hole, slot }).push(&entry);
                hole = line;
            }
            line += 1;
        }
        removed
    }

    /// Splits or merges a few lines if there are too many or too few entries for them. Returns whether it did.
    #[inline]
    pub(crate) fn settle(&mut self, memory: &mut Memory, key: &HashKey) -> bool {
        if (self.shrink_below..=self.grow_above).contains(&self.len) {
            return false;
        }
        self.take_steps(memory, key)
    }

    /// Gives all memory back.
    pub(crate) fn release(&mut self, memory: &mut Memory) {
        self.lines.release(memory);
        *self = Self::new();
    }

    #[cold]
    fn take_steps(&mut self, memory: &mut Memory, key: &HashKey) -> bool {
        let mut stepped = false;
        for _ in 0..STEPS_MAX {
            let level = self.level;
            if self.len > self.grow_above && memory.has_room_for(Purpose::Moving) {
                self.grow(memory, key);
            } else if self.len < self.shrink_below && memory.has_room_for(Purpose::Shrinking) {
                self.shrink(memory, key);
            }
            stepped |= self.level != level;
        }
        stepped
    }

    /// Splits the top line of the lower zone.
    fn grow(&mut self, memory: &mut Memory, key: &HashKey) {
        let Some(level) = self.level.before_growth() else { return };
        let top = level.gap_start() - 1;
        self.rehome(memory, key, top, top, level.grown());
        // The page above is in the gap since the line moved into this page; half a page later it is surely empty.
        let per_page = Lines::<B>::PER_PAGE;
        let above = (top / per_page + 1) * per_page;
        if top % per_page == per_page / 2 && above + per_page <= self.level.gap_end() {
            self.lines.release_page(memory, above);
        }
        // The next step comes soon, and goes on below.
        for line in [top.saturating_sub(1), self.level.gap_end().saturating_sub(2)] {
            self.lines.prefetch_two(memory, line);
        }
    }

    /// Merges the lowest lines of the upper zone into one line of the lower zone.
    fn shrink(&mut self, memory: &mut Memory, key: &HashKey) {
        let Some(level) = self.level.before_shrinking() else { return };
        let (first, last) = level.merging();
        self.rehome(memory, key, first, last, level.shrunk());
        let per_page = Lines::<B>::PER_PAGE;
        for page in first / per_page..self.level.gap_end() / per_page {
            if page * per_page >= self.level.gap_start() {
                self.lines.release_page(memory, page * per_page);
            }
        }
        self.lower_end(memory);
        // The next step comes soon, and goes on above.
        for line in [level.gap_start() + 1, last + 1] {
            self.lines.prefetch_two(memory, line);
        }
    }

    /// Brings `end` down to the last entry, a bounded way at a time, and gives back what lies behind it.
    fn lower_end(&mut self, memory: &mut Memory) {
        const LINES_MAX: u32 = 64;
        for _ in 0..LINES_MAX {
            let last_is_empty =
                |lines: &Lines<B>| lines.line(memory, self.end - 1).is_none_or(Line::is_empty);
            if self.end == 0 || !last_is_empty(&self.lines) {
                break;
            }
            self.end -= 1;
        }
        self.lines.truncate(memory, self.end);
    }

    /// Takes out all entries from line `first` to the first line from `last` on that is not full, and puts them in
    /// again under a new level. Entries before keep their places because their homes do; entries behind cannot have
    /// a home before a line that is not full.
    fn rehome(&mut self, memory: &mut Memory, key: &HashKey, first: u32, last: u32, level: Level) {
        let mut moving = memory.take_scratch();
        let mut line = first;
        loop {
            let mut was_full = false;
            if let Some(bucket) = self.lines.line_mut(memory, line) {
                was_full = bucket.len() == B::SLOTS;
                moving.extend_from_slice(bucket.as_bytes());
                bucket.clear();
            }
            if !was_full && line >= last {
                break;
            }
            line += 1;
        }
        self.set_level(level);
        let len = self.len;
        for bytes in moving.chunks_exact(size_of::<B>()) {
            let bucket = B::ref_from_bytes(bytes).expect("the bytes of a line");
            // All hashes first: they do not wait for each other, as the insertions do.
            let mut positions = [0; SLOTS_MAX];
            for (slot, position) in positions.iter_mut().enumerate().take(bucket.len()) {
                *position = bucket.position(slot, key);
            }
            for (slot, position) in positions.iter().enumerate().take(bucket.len()) {
                self.insert(memory, *position, &bucket.entry(slot));
            }
        }
        self.len = len;
        memory.put_scratch(moving);
    }

    fn set_level(&mut self, level: Level) {
        self.level = level;
        let at_fill = |lines: u32| {
            let entries = u64::from(lines) * u64::from(Self::SLOTS) * u64::from(B::FILL_64THS) / 64;
            u32::try_from(entries).unwrap_or(u32::MAX)
        };
        let lines = level.lines();
        self.grow_above = at_fill(lines);
        // Two lines apart, so that an entry that comes and goes moves nothing.
        self.shrink_below = at_fill(lines.saturating_sub(2));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use shoal_protocol::PeerV4;

    use super::*;
    use crate::arena::Arena;
    use crate::family::{PeerRow, Stored};
    use crate::hash::position;
    use crate::peer_line::PeerEntry;
    use crate::stamp::Stamp;

    type Peers = Table<<PeerV4 as Stored>::Line>;

    /// Sequential ports of one address, the likeliest keys of an attacker.
    fn peer(number: u16) -> PeerV4 {
        let [high, low] = number.to_be_bytes();
        PeerV4([10, 0, 0, 1, high, low])
    }

    /// Checks that every entry is there once, and that all lines from its home to its own are full.
    fn check(table: &Peers, memory: &Memory, key: &HashKey, model: &BTreeMap<PeerV4, u8>) {
        let mut seen = BTreeMap::new();
        for line in 0..table.end() {
            let Some(bucket) = table.line(memory, line) else { continue };
            for slot in 0..bucket.len() {
                let home = table.level.home(bucket.position(slot, key));
                let full = |earlier| table.line(memory, earlier).is_some_and(|line| line.len() == 9);
                assert!((home..line).all(full), "an entry of line {home} is in line {line}");
                let entry = bucket.entry(slot);
                assert_eq!(seen.insert(entry.peer, entry.stamp.0), None);
            }
        }
        assert_eq!(&seen, model);
        assert_eq!(table.len() as usize, model.len());
    }

    /// Checks that windows of positions, put together, show every entry once.
    fn check_windows(table: &Peers, memory: &Memory, key: &HashKey, windows: u32) {
        let mut positions = Vec::new();
        let width = u32::MAX / windows;
        for window in 0..=windows {
            let first = window * width;
            let last = first.saturating_add(width - 1);
            table.visit_between(memory, key, first..=last, |line, slot| {
                positions.push(line.position(slot, key));
                assert!((first..=last).contains(&line.position(slot, key)));
            });
        }
        assert_eq!(positions.len(), table.len() as usize);
        positions.sort_unstable();
        let all = (0..table.end()).filter_map(|line| table.line(memory, line));
        let mut all: Vec<_> =
            all.flat_map(|line| (0..line.len()).map(|slot| line.position(slot, key))).collect();
        all.sort_unstable();
        assert_eq!(positions, all);
    }

    fn churn(memory: &mut Memory, key: &HashKey, seed: u64, numbers: u16) {
        let (mut table, mut model) = (Peers::new(), BTreeMap::new());
        let mut rng = fastrand::Rng::with_seed(seed);
        for step in 0..30_000_u32 {
            // More come than go in every other stretch.
            let comes = rng.u32(..100) < if step / 6000 % 2 == 0 { 75 } else { 30 };
            let peer = peer(rng.u16(..numbers));
            let position = position(peer.hash(key));
            let found =
                table.find(memory, position, |line| line.peers().iter().position(|other| *other == peer));
            assert_eq!(found.is_some(), model.contains_key(&peer));
            match found {
                None if comes && memory.has_room_for(Purpose::Growing) => {
                    let stamp = Stamp(rng.u8(..));
                    table.insert(memory, position, &PeerEntry { peer, stamp });
                    model.insert(peer, stamp.0);
                }
                Some(at) if !comes => {
                    let entry = table.remove(memory, key, at);
                    assert_eq!(Some(entry.stamp.0), model.remove(&peer));
                }
                _ => {}
            }
            table.settle(memory, key);
            if step < 2000 || step.is_multiple_of(97) {
                check(&table, memory, key, &model);
                check_windows(&table, memory, key, 1 + step % 70);
            }
        }
        table.release(memory);
    }

    #[test]
    fn every_line_before_an_entry_is_full_whatever_happens() {
        let key = HashKey::new([1, 2, 3, 4]);
        let arena = Arc::new(Arena::new(1 << 26).unwrap());
        for numbers in [40, 500, 9000] {
            churn(&mut Memory::new(Arc::clone(&arena)), &key, u64::from(numbers), numbers);
        }
    }

    #[test]
    fn a_table_that_finds_no_room_to_grow_stays_correct() {
        let key = HashKey::new([1, 2, 3, 4]);
        for pages in [10, 14, 20] {
            let arena = Arc::new(Arena::new(pages * 4096).unwrap());
            churn(&mut Memory::new(arena), &key, pages, 20_000);
        }
    }
}
