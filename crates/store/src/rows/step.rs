//! Steps of growth and shrinking: one line is split, or two or three are merged.
//!
//! A step takes out the run of lines that it concerns and inserts their entries again under the next level. This module
//! owns how entries move between the zones, and the maximum size of a step.

use core::ops::Range;

use arrayvec::ArrayVec;

use super::{Bucket, HASHED_LINE_COST, PROBE_LINES_MAX, Rows};
use crate::arena::Purpose;
use crate::hash::HashKey;
use crate::level::Level;
use crate::lines::Lines;
use crate::memory::{Memory, Scratch};

/// Maximum length in lines of the run that one step of growth or shrinking takes out. Runs of random entries are about
/// as long as their most distant entries are from home.
const RUN_LINES_MAX: u32 = 1024;

/// Maximum number of lines that are examined to find out whether a run is short. A run of random entries has three
/// lines.
const SHORT_RUN_LINES_MAX: u32 = 16;

/// Maximum number of entries that a step moves to another zone. The reserve of [`Memory`] suffices for their lines. A
/// line of random entries is home to 30 at most.
const STEP_ENTRIES_MAX: usize = 256;

/// Reach beyond which no more steps take place, since a step may lengthen it by a run. Insertions never come near it.
const STEP_REACH_MAX: u32 = 4 * PROBE_LINES_MAX;

const _: () =
    assert!(STEP_REACH_MAX + RUN_LINES_MAX + PROBE_LINES_MAX < u16::MAX as u32, "a reach fits its field");

/// Maximum number of empty lines at the end that a step of shrinking skips.
const EMPTY_LINES_MAX: u32 = 64;

impl<B: Bucket> Rows<B> {
    /// Splits a line if there are too many entries, or merges two or three if there are too few and `may_shrink` is
    /// set. Returns whether it did either.
    pub(crate) fn step(&mut self, memory: &mut Memory, key: &HashKey, may_shrink: bool) -> bool {
        if self.has_hole || u32::from(self.reach) > STEP_REACH_MAX || self.is_settled() {
            false
        } else if self.is_too_full() {
            memory.has_room_for(Purpose::Moving) && self.grow(memory, key)
        } else {
            may_shrink && memory.has_room_for(Purpose::Shrinking) && self.shrink(memory, key)
        }
    }

    /// Splits the top line of the lower zone.
    fn grow(&mut self, memory: &mut Memory, key: &HashKey) -> bool {
        let Some(level) = self.level.before_growth(B::LADDER) else { return false };
        let top = level.gap_start() - 1;
        let split = self.split_top(memory, key, &level);
        if !split.unwrap_or_else(|| self.rehome(memory, key, (top, top), (level, level.grown()))) {
            return false;
        }
        let gap_end = self.level.gap_end();
        // The page above has been in the gap since the line moved into this page. Half a page later it is certainly
        // empty.
        let per_page = Lines::<B>::PER_PAGE;
        let above = (top / per_page + 1) * per_page;
        if top % per_page == per_page / 2 && above + per_page <= gap_end {
            self.lines.release_page(memory, above);
        }
        // The next step follows soon, and continues below.
        for line in [top.saturating_sub(1), gap_end.saturating_sub(2)] {
            self.lines.prefetch_two(memory, line);
        }
        true
    }

    /// Splits the top line where its run ends in the gap, as it nearly always does: then all entries of the run belong
    /// to the lower zone, and only those of the top line move. Returns whether the split succeeded, or `None` if the
    /// run is longer.
    fn split_top(&mut self, memory: &mut Memory, key: &HashKey, level: &Level) -> Option<bool> {
        let (first, after) = (level.gap_start() - 1, level.grown());
        let (border, gap_end) = (level.top_position(), after.gap_end());
        let mut scratch = memory.take_scratch();
        let (mut behind, mut moved, mut was_full) = (first, 0, true);
        while was_full && behind < gap_end && behind - first < SHORT_RUN_LINES_MAX {
            was_full = false;
            if let Some(bucket) = self.line(memory, behind) {
                was_full = bucket.len() == B::SLOTS;
                for slot in 0..bucket.len() {
                    let position = self.seed.position(bucket.hash(slot, key));
                    moved += usize::from(position >= border);
                    scratch.homes.push(position);
                }
            }
            behind += 1;
        }
        let done = if was_full {
            None
        } else if self.has_vacancies(memory, gap_end, moved) {
            self.set_level(after);
            self.move_up(memory, border, first..behind, &scratch.homes);
            self.close_up(memory, first..behind);
            Some(true)
        } else {
            self.due.set(true);
            Some(false)
        };
        memory.put_scratch(scratch);
        done
    }

    /// Moves up those entries of `lines` whose positions, given in order, are not below `border`.
    fn move_up(&mut self, memory: &mut Memory, border: u32, lines: Range<u32>, positions: &[u32]) {
        let (mut outside, mut rest) = (Outside::default(), positions);
        for line in lines {
            let len = self.lines.line(memory, line).map_or(0, B::len);
            let (of_line, behind) = rest.split_at(len);
            rest = behind;
            // Goes backwards, because the last entry takes the slot of an entry that is removed.
            for (slot, &position) in
                of_line.iter().enumerate().rev().filter(|&(_, &position)| position >= border)
            {
                let entry = self.line_mut(memory, line).take(slot);
                let home = self.level.upper_home(position);
                let place = outside.push(home, |line| {
                    let bucket = self.line_ensured(memory, line);
                    let has_room = bucket.len() < B::SLOTS;
                    if has_room {
                        bucket.push(&entry);
                    }
                    has_room
                });
                self.reached(home, place);
            }
        }
    }

    /// Fills the first of `lines` from the later ones. All of their entries may lie in the first.
    fn close_up(&mut self, memory: &mut Memory, lines: Range<u32>) {
        let mut hole = lines.start;
        for line in lines.skip(1) {
            while hole < line && self.lines.line(memory, line).is_some_and(|line| !line.is_empty()) {
                if self.lines.line(memory, hole).is_some_and(|hole| hole.len() == B::SLOTS) {
                    hole += 1;
                    continue;
                }
                let bucket = self.line_mut(memory, line);
                let entry = bucket.take(bucket.len() - 1);
                self.line_ensured(memory, hole).push(&entry);
            }
        }
    }

    /// Merges the lowest lines of the upper zone into one line of the lower zone.
    fn shrink(&mut self, memory: &mut Memory, key: &HashKey) -> bool {
        let Some(level) = self.level.before_shrinking(B::LADDER) else { return false };
        let (first, last) = level.merging();
        if !self.rehome(memory, key, (first, last), (level, level.shrunk())) {
            return false;
        }
        let per_page = Lines::<B>::PER_PAGE;
        for page in first / per_page..self.level.gap_end() / per_page {
            if page * per_page >= self.level.gap_start() {
                self.lines.release_page(memory, page * per_page);
            }
        }
        self.lower_end(memory);
        // The next step follows soon, and continues above.
        for line in [level.gap_start() + 1, last + 1] {
            self.lines.prefetch_two(memory, line);
        }
        true
    }

    /// Lowers `end` to the last entry, a bounded distance per call, and releases the memory behind it.
    fn lower_end(&mut self, memory: &mut Memory) {
        self.lower_end_by(memory, EMPTY_LINES_MAX);
        self.lines.truncate(memory, self.end);
    }

    /// Takes out all entries from line `first` up to the first line at or after `last` that is not full, and inserts
    /// them again under a new level. Entries before this run stay, because their homes do; entries behind it cannot
    /// have a home before a line that is not full. If the run is too long, or too many entries would change zones,
    /// nothing changes but that the rows become due. Returns whether the entries were moved.
    fn rehome(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        (first, last): (u32, u32),
        (before, after): (Level, Level),
    ) -> bool {
        let run = Run { first, last, before, after };
        let mut scratch = memory.take_scratch();
        let behind = self.read_run(memory, key, &run, &mut scratch);
        if let Some(behind) = behind {
            for line in first..behind {
                if let Some(bucket) = self.lines.line_mut(memory, line) {
                    bucket.clear();
                }
            }
            self.set_level(after);
            self.write_run(memory, &run, behind, &mut scratch);
        } else {
            self.due.set(true);
        }
        memory.put_scratch(scratch);
        behind.is_some()
    }

    /// Copies the lines of a run, and computes the home of each entry under the new level. Returns the line behind the
    /// run, or `None` if the step would be too large.
    fn read_run(&self, memory: &Memory, key: &HashKey, run: &Run, scratch: &mut Scratch) -> Option<u32> {
        let (mut line, mut moved, mut lowest) = (run.first, 0, u32::MAX);
        loop {
            let mut was_full = false;
            if let Some(bucket) = self.line(memory, line) {
                was_full = bucket.len() == B::SLOTS;
                scratch.lines.extend_from_slice(bucket.as_bytes());
                for slot in 0..bucket.len() {
                    let position = self.seed.position(bucket.hash(slot, key));
                    let home = run.after.home(position);
                    if home != run.before.home(position) {
                        moved += 1;
                        lowest = lowest.min(home);
                    }
                    scratch.homes.push(home);
                }
            }
            line += 1;
            if !was_full && line > run.last {
                break;
            }
            if line - run.first > RUN_LINES_MAX {
                return None;
            }
        }
        self.charge((line - run.first) * HASHED_LINE_COST);
        (moved <= STEP_ENTRIES_MAX && self.has_vacancies(memory, lowest, moved)).then_some(line)
    }

    /// Returns whether `entries` entries with homes at or after `line` find free slots within the maximum distance.
    fn has_vacancies(&self, memory: &Memory, line: u32, entries: usize) -> bool {
        let mut vacancies = 0;
        let mut lines = (line..).take(PROBE_LINES_MAX as usize);
        while vacancies < entries {
            let Some(line) = lines.next() else { return false };
            vacancies += B::SLOTS - self.line(memory, line).map_or(0, B::len);
        }
        true
    }

    /// Inserts the entries of a run again. Takes time linear in their number, since no line that was found full is
    /// examined twice.
    fn write_run(&mut self, memory: &mut Memory, run: &Run, behind: u32, scratch: &mut Scratch) {
        let first = run.first;
        let before_run = first.min(run.before.gap_start());
        scratch.nexts.extend(1..=behind - first);
        let mut outside = Outside::default();
        let mut homes = scratch.homes.iter();
        for bytes in scratch.lines.chunks_exact(size_of::<B>()) {
            let bucket = B::ref_from_bytes(bytes).expect("the bytes of a line");
            for (slot, &home) in (0..bucket.len()).zip(&mut homes) {
                // An entry with a home before the run lay in it because all lines up to the run are full, and they
                // still are.
                let mut line = if home < before_run { first } else { home };
                if (first..behind).contains(&line) {
                    line = first + self.vacancy_in_run(memory, first, line - first, &mut scratch.nexts);
                }
                let mut put = |line: u32| {
                    let place = self.line_ensured(memory, line);
                    let has_room = place.len() < B::SLOTS;
                    if has_room {
                        place.push(&bucket.entry(slot));
                    }
                    has_room
                };
                if (first..behind).contains(&line) {
                    put(line);
                } else {
                    line = outside.push(line, put);
                }
                self.reached(home, line);
            }
        }
    }

    /// Returns the first line that is not full, from `start` on, both counted from the start of the run. Every full
    /// line on the path then points to it, as in disjoint-set forests (Tarjan 1975).
    #[inline]
    fn vacancy_in_run(&self, memory: &Memory, first: u32, start: u32, nexts: &mut [u32]) -> u32 {
        let is_full = |line: u32| self.line(memory, first + line).is_some_and(|line| line.len() == B::SLOTS);
        let mut vacancy = start;
        while let Some(&next) = nexts.get(vacancy as usize).filter(|_| is_full(vacancy)) {
            vacancy = next;
        }
        let mut line = start;
        while line < vacancy {
            line = core::mem::replace(&mut nexts[line as usize], vacancy);
        }
        vacancy
    }
}

/// The run that a step takes out: from line `first` to the first one at or after `last` that is not full.
struct Run {
    first: u32,
    last: u32,
    before: Level,
    after: Level,
}

/// The lines into which entries that changed zones went, so that the next entry with the same home need not search
/// again.
#[derive(Default)]
struct Outside {
    places: ArrayVec<(u32, u32), 8>,
}

impl Outside {
    /// Puts an entry into the first line from `start` on that `put` accepts. Returns that line.
    #[inline]
    fn push(&mut self, start: u32, mut put: impl FnMut(u32) -> bool) -> u32 {
        let known = self.places.iter().position(|&(known, _)| known == start);
        let mut line = known.map_or(start, |known| self.places[known].1);
        while !put(line) {
            line += 1;
        }
        match known {
            Some(known) => self.places[known].1 = line,
            // A line is split into at most three, and the lines of one step are merged into one.
            None => drop(self.places.try_push((start, line))),
        }
        line
    }
}
