//! Lines of entries in the order of one seed: a hash table that grows and shrinks one line at a time and stays nine
//! tenths full at every size.
//!
//! The table uses linear probing over lines of several entries. An entry lies in its home line, which its position
//! determines, or in a later line if the home line and all lines between are full. This gives the invariant of the
//! rows: **from an entry's home up to its own line, every earlier line is full.** A search therefore ends at the first
//! line that is not full, and a removal pulls later entries back. A step of growth or shrinking ([`Level`]) takes out
//! the whole run of lines that it concerns and inserts their entries again under the new division, which preserves the
//! invariant by construction.
//!
//! Every operation is bounded, even for entries that an attacker chose. A search goes no further than `reach`, the
//! greatest distance at which any entry was ever placed from its home. Insertions, removals and steps each have a
//! maximum scan length. An operation that would exceed its maximum is not performed; instead, the rows become *due*.
//! The table above then renews them: it moves their entries to rows with another seed, in which they are no longer
//! neighbours. Scans that are long but allowed add to a *probe cost*, and rows whose probe cost exceeds the cost of
//! their renewal become due as well. Operations that are much slower than those on random entries are therefore always
//! too few to matter.
//!
//! This module owns entries and their order. It must not know what an entry means, or that other rows may exist.

mod step;

use core::cell::Cell;
use core::ops::RangeInclusive;

use crate::hash::{HashKey, Seed};
use crate::level::{Ladder, Level};
use crate::lines::{Line, Lines};
use crate::memory::Memory;

/// A line of a table: up to `SLOTS` entries, packed at the front.
pub(crate) trait Bucket: Line {
    /// Maximum number of entries.
    const SLOTS: usize;

    /// Target fill of the table, in 64ths of all slots. Just before a growth ends, the lower zone is fuller by one step
    /// of the ladder, which must stay below 64.
    const FILL_64THS: u32;

    /// The sizes that the table goes through.
    const LADDER: &'static Ladder;

    /// The content of a slot.
    type Entry: Copy;

    /// Returns the number of entries in the line.
    fn len(&self) -> usize;
    /// Returns the hash of an entry.
    fn hash(&self, slot: usize, key: &HashKey) -> u64;
    /// Returns the entry of a slot below `len`.
    fn entry(&self, slot: usize) -> Self::Entry;
    /// Appends an entry. The line must not be full.
    fn push(&mut self, entry: &Self::Entry);
    /// Removes and returns an entry. The last entry moves into its slot.
    fn take(&mut self, slot: usize) -> Self::Entry;
    /// Removes all entries.
    fn clear(&mut self);
}

/// Maximum number of slots in a line of any table.
const SLOTS_MAX: usize = 16;

/// Maximum distance from its home at which an entry is inserted, in lines. Random entries reach a third of it: some 300
/// lines in IPv4 rows of two million entries just before a growth ends.
pub(crate) const PROBE_LINES_MAX: u32 = 1024;

/// Maximum number of lines that a removal examines in order to pull entries back.
const PULL_LINES_MAX: u32 = 4096;

/// Number of lines in a scan that cost nothing.
const FREE_LINES: u32 = 64;

/// Cost of a line whose entries are hashed, as in removals and steps, relative to a line that is only searched.
const HASHED_LINE_COST: u32 = 4;

/// Probe cost beyond which the rows become due, for each entry that they are sized for. At this value, the long scans
/// have cost about as much as a renewal does.
const COST_PER_ENTRY_MAX: u32 = 16;

/// Rows for fewer entries are treated as if they were sized for this many, so that random fluctuations do not renew
/// them.
const COST_ENTRIES_MIN: u32 = 1024;

/// Probe cost that each step subtracts. Random entries cause a sixth of it at most, where a table shrinks.
const COST_FORGIVEN_PER_STEP: u32 = 16;

/// Maximum number of lines without entries that one operation skips in rows that are being emptied. Most of these lines
/// lie in the gap and have no memory.
const MISSING_LINES_MAX: u32 = 1024;

/// Number of lines that are split or merged after one operation: enough to keep up with it, few enough to stay cheap.
pub(crate) const STEPS_MAX: usize = 2;

/// Entries in the order of one seed.
#[derive(Debug)]
pub(crate) struct Rows<B> {
    lines: Lines<B>,
    seed: Seed,
    level: Level,
    /// Every line at or above this number is empty.
    end: u32,
    len: u32,
    /// Number of entries above which a line is split.
    grow_above: u32,
    /// Cost of long scans since it was last reset. A cell, because searches add to it too.
    probe_cost: Cell<u32>,
    /// Maximum distance in lines of any entry from its home.
    reach: u16,
    /// Whether the rows must be renewed.
    due: Cell<bool>,
    /// Whether a removal left a line that is not full before an entry that should have been pulled into it. In this
    /// state a search must continue up to the reach, and no more steps take place.
    has_hole: bool,
}

impl<B: Bucket> Rows<B> {
    /// Creates rows for about this many lines. They have no memory yet.
    pub(crate) fn with_lines(seed: Seed, lines: u32) -> Self {
        let level = Level::holding(B::LADDER, lines);
        let mut rows = Self {
            lines: Lines::new(),
            seed,
            level,
            end: 0,
            len: 0,
            grow_above: 0,
            probe_cost: Cell::new(0),
            reach: 0,
            due: Cell::new(false),
            has_hole: false,
        };
        rows.set_level(level);
        rows
    }

    /// Returns the number of lines that this many entries occupy at the target fill.
    pub(crate) fn lines_for(entries: u32) -> u32 {
        let lines = (u64::from(entries) * 64).div_ceil(u64::from(B::FILL_64THS * Self::SLOTS));
        u32::try_from(lines).unwrap_or(u32::MAX)
    }

    /// Allocates memory for all lines of small, empty rows at once, so that they are not enlarged repeatedly.
    pub(crate) fn take_memory(&mut self, memory: &mut Memory) {
        self.lines.line_ensured(memory, self.level.lines() - 1);
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

    /// Distance in entries between the thresholds for growing and shrinking: two lines, so that an entry that comes and
    /// goes moves nothing.
    const SLACK: u32 = 2 * Self::SLOTS * B::FILL_64THS / 64 + 1;

    /// Returns the number of entries.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the number of the line behind the last one that may hold an entry.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Returns the secret by which the entries are ordered.
    pub(crate) fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns whether the rows must be renewed.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due.get()
    }

    /// Resets the probe cost. The caller does this every few minutes: in such a time, random entries cause no cost that
    /// is worth a renewal.
    pub(crate) fn reset_cost(&self) {
        self.probe_cost.set(0);
    }

    /// Returns the lowest position behind the border between the two zones, which is where the next steps take place.
    #[cfg(test)]
    pub(crate) fn border(&self) -> u32 {
        (0..32).rev().fold(0, |position, bit| {
            let next = position | 1 << bit;
            if self.level.home(next) < self.level.gap_start() { next } else { position }
        })
    }

    /// Returns whether the number of entries suits the number of lines.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.len <= self.grow_above && self.len >= self.grow_above.saturating_sub(Self::SLACK)
    }

    /// Returns whether there are too many entries for the lines.
    #[inline]
    pub(crate) fn is_too_full(&self) -> bool {
        self.len > self.grow_above
    }

    /// Returns the line after `line` on a walk over all entries that wraps round at the end. The walk skips the rest of
    /// the gap once it meets a line without entries in it.
    #[inline]
    pub(crate) fn line_after(&self, line: u32, line_is_empty: bool) -> u32 {
        let mut next = line + 1;
        if line_is_empty && line >= self.level.gap_start() {
            next = next.max(self.level.gap_end());
        }
        if next < self.end { next } else { 0 }
    }

    /// Returns the line after `line` on a walk that ends behind the last entry.
    pub(crate) fn line_after_or_end(&self, memory: &Memory, line: u32) -> u32 {
        let next = self.line_after(line, self.line(memory, line).is_none_or(Line::is_empty));
        if next > line { next } else { self.end.max(line + 1) }
    }

    /// Returns the line, if memory is allocated for it.
    #[inline]
    pub(crate) fn line<'a>(&'a self, memory: &'a Memory, line: u32) -> Option<&'a B> {
        #[cfg(test)]
        work::count_line();
        self.lines.line(memory, line)
    }

    /// Returns the line for writing, and allocates memory for it if necessary.
    #[inline]
    fn line_ensured<'a>(&'a mut self, memory: &'a mut Memory, line: u32) -> &'a mut B {
        #[cfg(test)]
        work::count_line();
        self.lines.line_ensured(memory, line)
    }

    /// Returns three consecutive lines, if they are contiguous in memory.
    #[inline]
    pub(crate) fn three_lines<'a>(&'a self, memory: &'a Memory, line: u32) -> Option<&'a [B; 3]> {
        self.lines.three(memory, line)
    }

    /// Returns a line with an entry that was just found, for writing.
    #[inline]
    pub(crate) fn line_mut<'a>(&'a mut self, memory: &'a mut Memory, line: u32) -> &'a mut B {
        self.lines.line_mut(memory, line).expect("a line with an entry has memory")
    }

    /// Returns the home line of an entry with this hash.
    #[inline]
    fn home(&self, hash: u64) -> u32 {
        self.level.home(self.seed.position(hash))
    }

    /// Prefetches the home line of an entry with this hash.
    #[inline]
    pub(crate) fn prefetch(&self, memory: &Memory, hash: u64) {
        self.lines.prefetch(memory, self.home(hash));
    }

    /// As `prefetch`, but includes the next line, to which every third search continues in full rows.
    #[inline]
    pub(crate) fn prefetch_run(&self, memory: &Memory, hash: u64) {
        self.lines.prefetch_two(memory, self.home(hash));
    }

    /// Prefetches a line and the next one.
    #[inline]
    pub(crate) fn prefetch_two(&self, memory: &Memory, line: u32) {
        self.lines.prefetch_two(memory, line);
    }

    /// Looks for an entry with this hash and returns its line and slot. `matching` returns the slot of a line that
    /// holds the entry.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        memory: &Memory,
        hash: u64,
        matching: impl Fn(&B) -> Option<usize>,
    ) -> Option<(u32, usize)> {
        let home = self.home(hash);
        let bucket = self.line(memory, home);
        if let Some(slot) = bucket.and_then(&matching) {
            return Some((home, slot));
        }
        if bucket.is_none_or(|bucket| bucket.len() < B::SLOTS) && !self.has_hole {
            return None;
        }
        self.find_behind(memory, home, matching)
    }

    /// Continues a search behind the home line. Not inlined, so that the search of the home line is.
    #[inline(never)]
    fn find_behind(
        &self,
        memory: &Memory,
        home: u32,
        matching: impl Fn(&B) -> Option<usize>,
    ) -> Option<(u32, usize)> {
        let last = home + u32::from(self.reach);
        let (mut line, mut found) = (home, None);
        while line < last {
            line += 1;
            let bucket = self.line(memory, line);
            found = bucket.and_then(&matching).map(|slot| (line, slot));
            let ends = bucket.is_none_or(|bucket| bucket.len() < B::SLOTS) && !self.has_hole;
            if found.is_some() || ends {
                break;
            }
        }
        self.charge(line - home);
        found
    }

    /// Visits the lines that may hold entries with this hash.
    #[inline]
    pub(crate) fn visit_run(&self, memory: &Memory, hash: u64, mut visit: impl FnMut(&B)) {
        let home = self.home(hash);
        let mut last = home;
        for number in home..=home + u32::from(self.reach) {
            last = number;
            let line = self.line(memory, number);
            line.into_iter().for_each(&mut visit);
            if line.is_none_or(|line| line.len() < B::SLOTS) && !self.has_hole {
                break;
            }
        }
        self.charge(last - home);
    }

    /// Visits every entry whose position is among `positions`, by its line and slot. Examines the home lines of these
    /// positions, and the lines behind them as far as the reach.
    pub(crate) fn visit_between(
        &self,
        memory: &Memory,
        key: &HashKey,
        positions: RangeInclusive<u32>,
        mut visit: impl FnMut(&B, usize),
    ) {
        let last_home = self.level.home(*positions.end());
        let mut line = self.level.home(*positions.start());
        while line < self.end && line <= last_home + u32::from(self.reach) {
            let mut is_full = false;
            if let Some(bucket) = self.line(memory, line) {
                is_full = bucket.len() == B::SLOTS;
                (0..bucket.len())
                    .filter(|&slot| positions.contains(&self.seed.position(bucket.hash(slot, key))))
                    .for_each(|slot| visit(bucket, slot));
            }
            if line >= last_home && !is_full && !self.has_hole {
                break;
            }
            line = self.line_after_or_end(memory, line);
        }
    }

    /// Inserts an entry that is not in the rows, at most `lines_max` lines from its home. `memory` must have room.
    /// Returns `None` if no line within that distance is free; the rows are due then.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        memory: &mut Memory,
        hash: u64,
        entry: &B::Entry,
        lines_max: u32,
    ) -> Option<(u32, usize)> {
        let home = self.home(hash);
        let mut line = home;
        let slot = loop {
            let bucket = self.line_ensured(memory, line);
            if bucket.len() < B::SLOTS {
                bucket.push(entry);
                break bucket.len() - 1;
            }
            if line - home >= lines_max {
                self.due.set(true);
                return None;
            }
            line += 1;
        };
        self.reached(home, line);
        self.len += 1;
        Some((line, slot))
    }

    /// Records that an entry now lies at `line`.
    #[inline]
    fn reached(&mut self, home: u32, line: u32) {
        self.end = self.end.max(line + 1);
        let distance = line.saturating_sub(home);
        if distance > u32::from(self.reach) {
            self.reach = u16::try_from(distance).unwrap_or(u16::MAX);
        }
    }

    /// Removes an entry, and pulls back later entries that it had displaced.
    pub(crate) fn remove(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        (line, slot): (u32, usize),
    ) -> B::Entry {
        let bucket = self.line_mut(memory, line);
        let was_full = bucket.len() == B::SLOTS;
        let removed = bucket.take(slot);
        self.len -= 1;
        if was_full {
            self.pull_back(memory, key, line);
        }
        removed
    }

    /// Fills a line that was full from later ones, and refills these in turn.
    fn pull_back(&mut self, memory: &mut Memory, key: &HashKey, line: u32) {
        let (first, mut hole) = (line, line);
        let mut line = line + 1;
        // An entry whose home is not behind the hole is no further behind it than the reach.
        while line - hole <= u32::from(self.reach) {
            let Some(bucket) = self.line(memory, line) else { break };
            if line - first > PULL_LINES_MAX {
                self.has_hole = true;
                self.due.set(true);
                break;
            }
            let was_full = bucket.len() == B::SLOTS;
            let misplaced = (0..bucket.len()).find(|&slot| self.home(bucket.hash(slot, key)) <= hole);
            if let Some(slot) = misplaced {
                let entry = self.line_mut(memory, line).take(slot);
                self.line_mut(memory, hole).push(&entry);
                hole = line;
            }
            if !was_full {
                break;
            }
            line += 1;
        }
        self.charge((line - first) * HASHED_LINE_COST);
    }

    /// Adds the cost of a scan of `lines` lines.
    #[inline]
    fn charge(&self, lines: u32) {
        if lines > FREE_LINES {
            self.add_cost(lines - FREE_LINES);
        }
    }

    /// Adds the cost of a long scan, which rises with the square of its length: many short scans happen by chance, a
    /// few long ones do not.
    #[cold]
    fn add_cost(&self, lines: u32) {
        let charge = lines.saturating_mul(lines) / FREE_LINES;
        let cost = self.probe_cost.get().saturating_add(charge);
        self.probe_cost.set(cost);
        if cost > self.grow_above.max(COST_ENTRIES_MIN).saturating_mul(COST_PER_ENTRY_MAX) {
            self.due.set(true);
        }
    }

    /// Releases all memory.
    pub(crate) fn release(&mut self, memory: &mut Memory) {
        self.lines.release(memory);
        *self = Self::with_lines(self.seed, 1);
    }

    fn lower_end_by(&mut self, memory: &Memory, lines_max: u32) -> bool {
        let end = self.end;
        while self.end > end.saturating_sub(lines_max)
            && self.line(memory, self.end - 1).is_none_or(Line::is_empty)
        {
            self.end -= 1;
        }
        self.end < end
    }

    /// Lowers `end` by a bounded distance, and releases the pages behind it. Unlike shrinking, it needs no memory.
    /// Returns whether there were empty lines.
    pub(crate) fn give_back_end(&mut self, memory: &mut Memory) -> bool {
        let lowered = self.lower_end_by(memory, MISSING_LINES_MAX);
        self.lines.give_back(memory, self.end);
        lowered
    }

    /// Returns the last entry of the last line with its hash, or `None` if the line is empty.
    pub(crate) fn last(&self, memory: &Memory, key: &HashKey) -> Option<(u64, B::Entry)> {
        let bucket = self.line(memory, self.end.checked_sub(1)?)?;
        let slot = bucket.len().checked_sub(1)?;
        Some((bucket.hash(slot, key), bucket.entry(slot)))
    }

    /// Removes the last entry of the last line. No entry behind it needs to be pulled back.
    pub(crate) fn pop(&mut self, memory: &mut Memory) {
        let bucket = self.line_mut(memory, self.end - 1);
        bucket.take(bucket.len() - 1);
        self.len -= 1;
    }

    fn set_level(&mut self, level: Level) {
        self.probe_cost.set(self.probe_cost.get().saturating_sub(COST_FORGIVEN_PER_STEP));
        self.level = level;
        let entries = u64::from(level.lines()) * u64::from(Self::SLOTS) * u64::from(B::FILL_64THS) / 64;
        self.grow_above = u32::try_from(entries).unwrap_or(u32::MAX);
    }
}

/// Counts the lines that operations examine. Tests bound this number in place of time.
#[cfg(test)]
pub(crate) mod work {
    use core::cell::Cell;

    thread_local! {
        static LINES: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn count_line() {
        LINES.set(LINES.get() + 1);
    }

    /// Returns the number of lines that this thread examined during `operation`.
    pub(crate) fn lines_of<T>(operation: impl FnOnce() -> T) -> (u64, T) {
        let before = LINES.get();
        let result = operation();
        (LINES.get() - before, result)
    }
}
