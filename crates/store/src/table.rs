//! A hash table that grows and shrinks a segment at a time, by extendible hashing (Fagin et al. 1979).
//!
//! The first bits of an entry's mixed hash select its [`Segment`]. A segment of maximum size is split in two by one
//! more bit, and two small halves are merged. A directory has an index for each combination of the bits that the
//! deepest segment needs. A table that fits in one segment has no directory.
//!
//! No operation does more than rebuild a few segments and double or halve the directory. The mixed hash is secret, so
//! only chance decides which entries share a segment. A client that learns it by many announces could fill one segment
//! with entries that differ in late bits only. Each bit doubles the number of announces that it takes. A full segment
//! that is [`DEPTH_SPARE`] bits deeper than segments of equal size would be accepts no more entries, so the directory
//! stays in proportion to the number of segments.
//!
//! This module owns the entries of a table. It must not know what an entry means.
//!
//! Lines are 80 to 95 % full at every size. The bounds of a table:
//!
//! | Operation | Bound | Why it holds |
//! |---|---|---|
//! | search, visit | two lines | an entry is in no other |
//! | insertion | two lines, and the other lines of their entries; four growths of the segment | constants; then the
//! entry is refused as if memory were lacking |
//! | removal | one line | nothing else moves |
//! | growth, shrinking, split, merge | the entries of one segment, or of two half-empty ones | placed in a buffer; if an entry finds no place there, nothing changes |
//! | directory | doubles and halves: a copy of 4 bytes an entry, 256 KiB for a swarm of 50 million peers | three eighths of a segment's entries come or go between a split and a merge |
//! | depth of a segment | 8 bits more than segments of equal size would need, 24 at most | a deeper directory needs 256 times as many announces to find the keys of one segment |
//! | step of a list | one segment of each family | a segment is the window |
//! | lists of segments, large swarms, slab pages, free pages | a copy of 44 or 8 bytes each when they grow | amortised; large lists move by remapping |
//! | large swarm to small | two segments | it stays large until it has shrunk so far |
//!
//! Replies reveal which peers share a line, and the full scrape reveals which torrents share a segment, so an attacker
//! can choose keys that lie together. It gains little. Keys that crowd a few lines make insertions fail, and the
//! segment then grows. Keys of one segment make it split by later bits. The peers of one source and slot share two
//! lines, but there are at most eight of them. If all sources have eight in a slot, lines are a third to a half full,
//! and a segment that should shrink mostly finds no place for its entries. Such an attempt costs some ten microseconds,
//! so only one removal in sixteen makes one, by chance.
//!
//! Five alternatives were rejected, see `bench-runs/ways-tried.md`: chained buckets, linear probing over lines that are
//! split one by one, linear probing in segments, pages as segments, and a dense array with an index beside it.

mod directory;
pub(crate) mod info_hash;
pub(crate) mod segment;

use core::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use self::directory::Directory;
pub(crate) use self::segment::Bucket;
use self::segment::{Placed, Segment, lines_for, lines_just_for, lines_max};
use crate::hash::{HashKey, Mixed, Salt, Seed};
use crate::memory::Memory;
use crate::memory::arena::Purpose;

/// Maximum number of bits that select a segment. The directory then has 16 Mi entries, enough for 16 billion peers.
const DEPTH_MAX: u8 = 24;

/// Number of bits that a segment may have in addition to the bits that equal segments would need. Chance takes one or
/// two. With eight, the directory grows to some KiB for each segment, and a client that fills segments of that depth
/// causes the refusal of one foreign entry in 256 or more.
const DEPTH_SPARE: u8 = 8;

/// Average number of removals after which a segment settles. Badly placed entries, such as those of sources with eight
/// peers a slot, often find no place in fewer lines, and the attempt costs some ten microseconds.
const REMOVALS_PER_ATTEMPT: u32 = 16;

/// Two segments are merged when together they have at most this many 8ths of a full segment's entries.
const MERGED_8THS_MAX: usize = 4;

/// A table for a known number of entries fills its segments to at most this many 8ths. Chance adds to some of them.
const RESERVED_8THS_MAX: usize = 7;

/// Number of times that a segment grows for one entry. Once is almost always enough; many entries with equal hashes,
/// such as those of one source and slot, need more.
const GROWTHS_MAX: usize = 4;

/// Units of the expiry budget, each about a cache line of work, for a segment that is merged or gets fewer lines.
const SETTLING_UNITS: usize = 16;

/// The location of an entry, valid until the table changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// The number of the line: the index of its segment, then [`line_bits`] for the line in it.
    pub(crate) line: u32,
    /// A line has few slots. This type is copied with every request.
    slot: u32,
}

impl At {
    #[inline]
    pub(crate) fn new(line: u32, slot: usize) -> Self {
        Self { line, slot: (slot as u64 & 0xffff_ffff) as u32 }
    }

    #[inline]
    pub(crate) fn slot(self) -> usize {
        self.slot as usize
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Table<B> {
    seed: Seed,
    len: u32,
    /// Number of salts made so far.
    salts: u32,
    segments: Segments<B>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
enum Segments<B> {
    One(Segment<B>),
    Many(Box<Directory<B>>),
}

const fn line_bits<B: Bucket>() -> u32 {
    lines_max::<B>().next_power_of_two().trailing_zeros()
}

fn entries_of<'l, B: Bucket + 'l>(lines: &'l [u8]) -> impl Iterator<Item = (&'l B, usize)> {
    let lines = lines.chunks_exact(size_of::<B>()).map(|line| B::ref_from_bytes(line).expect("a whole line"));
    lines.flat_map(|line| (0..line.len()).map(move |slot| (line, slot)))
}

/// Returns a function that returns the mixed hash of an entry, given by its line and slot.
fn mixing<B: Bucket>(seed: Seed, key: &HashKey) -> impl Fn(&B, usize) -> Mixed + Copy {
    move |line, slot| seed.mix(line.hash(slot, key))
}

impl<B: Bucket> Table<B> {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { seed, len: 0, salts: 0, segments: Segments::One(Segment::new(seed.salt(0), 0, 0)) }
    }

    /// Creates a table for a few `entries`, without space for more: the first growth shows whether more come. `memory`
    /// must have room.
    pub(crate) fn holding(memory: &mut Memory, seed: Seed, entries: usize) -> Self {
        let mut table = Self::new(seed);
        let none = core::iter::empty::<(&B, usize)>();
        let lines =
            Placed::new(Vec::new(), none, lines_just_for::<B>(entries), seed.salt(0), |_, _| seed.mix(0));
        table.segment_mut(0).replace_lines(memory, &lines.expect("no entry lacks a place"));
        table
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether its entries may fill more than one segment.
    pub(crate) fn has_directory(&self) -> bool {
        matches!(self.segments, Segments::Many(_))
    }

    /// Returns the number of segments, and the maximum number of lines of one.
    #[inline]
    pub(crate) fn extent(&self) -> (usize, usize) {
        match &self.segments {
            Segments::One(segment) => (1, segment.lines()),
            Segments::Many(directory) => (directory.segments.len(), lines_max::<B>()),
        }
    }

    #[inline]
    pub(crate) fn number(segment: usize, line: usize) -> u32 {
        (((segment as u64) << line_bits::<B>() | line as u64) & 0xffff_ffff) as u32
    }

    /// Returns the segment of the line with this number, and the line in it.
    #[inline]
    fn place(number: u32) -> (usize, usize) {
        let (bits, number) = (line_bits::<B>(), number as usize);
        (number >> bits, number & ((1 << bits) - 1))
    }

    /// Returns the number after the last line's.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        Self::number(self.extent().0, 0)
    }

    /// Returns the number of the next line, or of the first line of the next segment.
    #[inline]
    pub(crate) fn number_after(&self, number: u32) -> u32 {
        let (segment, line) = Self::place(number);
        let is_last = line + 1 >= self.segment(segment).map_or(0, Segment::lines);
        if is_last { Self::number(segment + 1, 0) } else { number + 1 }
    }

    /// Returns whether the next line, by number, is in another segment.
    pub(crate) fn is_last_of_segment(&self, number: u32) -> bool {
        Self::place(self.number_after(number)).1 == 0
    }

    #[inline]
    pub(crate) fn line<'a>(&self, memory: &'a Memory, number: u32) -> Option<&'a B> {
        let (segment, line) = Self::place(number);
        let segment = self.segment(segment)?;
        (line < segment.lines()).then(|| segment.line(memory, line))
    }

    /// Returns three lines from this number on, if they are contiguous in memory.
    #[inline]
    pub(crate) fn three_lines<'a>(&self, memory: &'a Memory, number: u32) -> Option<&'a [B; 3]> {
        let (segment, line) = Self::place(number);
        self.segment(segment)?.three_lines(memory, line)
    }

    /// Returns the line of an entry that was just found, for writing.
    #[inline]
    pub(crate) fn line_mut<'a>(&self, memory: &'a mut Memory, at: At) -> &'a mut B {
        let (segment, line) = Self::place(at.line);
        self.segment(segment).expect("the entry was just found in it").line_mut(memory, line)
    }

    /// Returns all lines from this number on, endlessly, with their numbers. A segment without lines counts as an empty
    /// line.
    #[inline]
    pub(crate) fn ring<'a>(
        &'a self,
        memory: &'a Memory,
        number: u32,
    ) -> impl Iterator<Item = (u32, Option<&'a B>)> {
        let segments = self.segments_slice();
        let (mut index, mut line) = Self::place(number);
        core::iter::from_fn(move || {
            let segment = &segments[index];
            let item =
                (Self::number(index, line), (line < segment.lines()).then(|| segment.line(memory, line)));
            line += 1;
            if line >= segment.lines() {
                (index, line) = (if index + 1 < segments.len() { index + 1 } else { 0 }, 0);
            }
            Some(item)
        })
    }

    /// Prefetches this many lines from this number on. Beyond the end of a chunk, this is other memory.
    #[inline]
    pub(crate) fn prefetch_lines(&self, memory: &Memory, number: u32, lines: usize) {
        let (segment, line) = Self::place(number);
        if let Some(segment) = self.segment(segment).filter(|segment| line < segment.lines()) {
            segment.prefetch(memory, line, lines * size_of::<B>());
        }
    }

    /// Prefetches the beginnings of the two lines of an entry with this hash. Returns the numbers of the lines.
    #[inline]
    pub(crate) fn prefetch(&self, memory: &Memory, hash: u64) -> [u32; 2] {
        let mixed = self.seed.mix(hash);
        let (index, segment) = self.selected(mixed);
        segment.prefetch_lines_of(memory, mixed).map(|line| Self::number(index, line))
    }

    /// Finds an entry in one of two lines, which [`prefetch`](Self::prefetch) has returned. The lines may be gone by now.
    #[inline(always)]
    pub(crate) fn find_in_lines<'a>(
        &self,
        memory: &'a Memory,
        lines: [u32; 2],
        matching: impl Fn(&B) -> Option<usize>,
    ) -> Option<(At, &'a B)> {
        let find = |number: u32| {
            let line = self.line(memory, number)?;
            Some((At::new(number, matching(line)?), line))
        };
        let [first, second] = lines;
        find(first).or_else(|| find(second))
    }

    /// Finds an entry with this hash. Returns its location and its line. `matching` returns the entry's slot in a line.
    #[inline(always)]
    pub(crate) fn find<'a>(
        &self,
        memory: &'a Memory,
        hash: u64,
        matching: impl Fn(&B) -> Option<usize>,
    ) -> Option<(At, &'a B)> {
        let mixed = self.seed.mix(hash);
        let (index, segment) = self.selected(mixed);
        let (number, slot, line) = segment.find(memory, mixed, matching)?;
        Some((At::new(Self::number(index, number), slot), line))
    }

    /// Like `find`, with the line for writing.
    #[inline(always)]
    pub(crate) fn find_mut<'a>(
        &self,
        memory: &'a mut Memory,
        hash: u64,
        matching: impl Fn(&B) -> Option<usize>,
    ) -> Option<(At, &'a mut B)> {
        let mixed = self.seed.mix(hash);
        let (index, segment) = self.selected(mixed);
        let (number, slot, _) = segment.find(memory, mixed, matching)?;
        Some((At::new(Self::number(index, number), slot), segment.line_mut(memory, number)))
    }

    /// Visits the lines that may hold entries with this hash.
    #[inline]
    pub(crate) fn visit_lines(&self, memory: &Memory, hash: u64, visit: impl FnMut(&B)) {
        let mixed = self.seed.mix(hash);
        self.selected(mixed).1.visit_lines(memory, mixed, visit);
    }

    /// Visits the entries with these selectors in the segment that `selector` selects. Returns the last selector of the
    /// segment.
    pub(crate) fn visit_segment(
        &self,
        memory: &Memory,
        key: &HashKey,
        selectors: RangeInclusive<u32>,
        mut visit: impl FnMut(&B, usize),
    ) -> u32 {
        let segment =
            self.segments_slice().get(self.index_of(*selectors.start())).expect("the directory is complete");
        for line in (0..segment.lines()).map(|line| segment.line(memory, line)) {
            (0..line.len())
                .filter(|&slot| selectors.contains(&self.seed.mix(line.hash(slot, key)).selector()))
                .for_each(|slot| visit(line, slot));
        }
        last_selector(segment)
    }

    /// Returns the last selector of the segment that `selector` selects.
    pub(crate) fn last_selector(&self, selector: u32) -> u32 {
        self.segment(self.index_of(selector)).map_or(u32::MAX, last_selector)
    }

    /// Returns the last selector of the window that begins with `first`, if a segment has this many windows.
    pub(crate) fn last_of_window(&self, first: u32, windows: u32) -> u32 {
        let Some(segment) = self.segment(self.index_of(first)) else { return u32::MAX };
        let width = ((1_u64 << (u32::BITS - u32::from(segment.depth))) / u64::from(windows)).max(1);
        let end = (u64::from(first) / width + 1) * width;
        u32::try_from(end - 1).unwrap_or(u32::MAX)
    }

    /// Makes room for this many entries in an empty table, so that it does not grow step by step, while half of the
    /// memory lasts. Does nothing if there are entries.
    pub(crate) fn reserve(&mut self, memory: &mut Memory, key: &HashKey, entries: usize) {
        let per_segment = lines_max::<B>() * B::SLOTS / 8 * RESERVED_8THS_MAX;
        let depth = entries.div_ceil(per_segment).next_power_of_two().trailing_zeros();
        for _ in 0..if self.len == 0 { depth } else { return } {
            for index in 0..self.extent().0 {
                if memory.is_half_free() && memory.has_room_for(Purpose::Moving) {
                    self.split(memory, key, index, 0);
                }
            }
        }
        let lines = lines_for::<B>(entries >> depth);
        for index in 0..self.extent().0 {
            if memory.is_half_free() && memory.has_room_for(Purpose::Growing) {
                self.rebuild(memory, key, index, lines);
            }
        }
    }

    /// Inserts an entry that is not in the table, and makes room for it if necessary. Returns `None` if there is no
    /// free slot and no memory for more.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        hash: u64,
        entry: &B::Entry,
    ) -> Option<At> {
        let (mix, mixed) = (mixing(self.seed, key), self.seed.mix(hash));
        let (mut index, segment) = self.selected(mixed);
        if segment.is_too_full() {
            self.make_room(memory, key, index, 0);
            index = self.selected(mixed).0;
        }
        let at = self.segment_mut(index).insert(memory, mixed, entry, mix);
        let at = at.map(|at| (index, at)).or_else(|| self.insert_elsewhere(memory, key, mixed, entry));
        let (index, (line, slot)) = at?;
        self.len += 1;
        Some(At::new(Self::number(index, line), slot))
    }

    /// Inserts an entry that its lines and their neighbours cannot hold, by growing until they can. Returns its
    /// segment, line and slot.
    #[cold]
    fn insert_elsewhere(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        mixed: Mixed,
        entry: &B::Entry,
    ) -> Option<(usize, (usize, usize))> {
        let mix = mixing(self.seed, key);
        (0..GROWTHS_MAX).find_map(|growths| {
            self.make_room(memory, key, self.index_of(mixed.selector()), growths);
            let index = self.index_of(mixed.selector());
            Some((index, self.segment_mut(index).insert(memory, mixed, entry, mix)?))
        })
    }

    /// Removes an entry. The caller lets the segment settle later.
    pub(crate) fn remove(&mut self, memory: &mut Memory, at: At) -> B::Entry {
        let (segment, line) = Self::place(at.line);
        self.len -= 1;
        self.segment_mut(segment).remove(memory, (line, at.slot()))
    }

    /// Gives the segment of this line fewer lines if it has far too many. Unlike `settle`, this keeps entries in their
    /// segments, so a walk over all lines can continue with the next segment.
    pub(crate) fn shrink_segment(&mut self, memory: &mut Memory, key: &HashKey, number: u32) {
        let (index, _) = Self::place(number);
        let lines = self.segment(index).and_then(Segment::fewer_lines);
        if let Some(lines) = lines.filter(|_| memory.has_room_for(Purpose::Shrinking)) {
            self.rebuild(memory, key, index, lines);
        }
    }

    /// Lets all segments settle, one per call, from the last to the first. `left` is the number of remaining segments,
    /// and begins at the number of all segments or more. The work comes out of `budget`. Returns whether more follow.
    pub(crate) fn settle_next(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        left: &mut u32,
        budget: &mut usize,
    ) -> bool {
        let segments = u32::try_from(self.extent().0).unwrap_or(u32::MAX);
        *left = (*left).min(segments).saturating_sub(1);
        let salts = self.salts;
        self.settle(memory, key, Self::number(*left as usize, 0));
        // A new salt means that entries were placed again.
        *budget = budget.saturating_sub(if self.salts == salts { 1 } else { SETTLING_UNITS });
        *left > 0
    }

    /// Lets the segment of this line settle after some of the removals. Chance decides, so that a client cannot choose
    /// removals that each cause an attempt.
    #[inline]
    pub(crate) fn settle_sometimes(&mut self, memory: &mut Memory, key: &HashKey, number: u32) {
        if self.seed.salt(self.salts ^ self.len.rotate_right(8)).is_chosen(REMOVALS_PER_ATTEMPT) {
            self.settle(memory, key, number);
        }
    }

    /// Adapts the segment of this line to its number of entries: merges it with its other half, or gives it fewer
    /// lines.
    #[inline]
    pub(crate) fn settle(&mut self, memory: &mut Memory, key: &HashKey, number: u32) {
        let (index, _) = Self::place(number);
        match self.mergeable(index) {
            Some(other) if memory.has_room_for(Purpose::Shrinking) => self.merge(memory, key, index, other),
            Some(_) => {}
            None => self.shrink_segment(memory, key, number),
        }
    }

    /// Releases all memory, and forgets all entries.
    pub(crate) fn release(&mut self, memory: &mut Memory) {
        let segments = match &mut self.segments {
            Segments::One(segment) => core::slice::from_mut(segment),
            Segments::Many(directory) => &mut directory.segments,
        };
        segments.iter_mut().for_each(|segment| segment.release(memory));
        *self = Self::new(self.seed);
    }

    const fn merged_len_max() -> usize {
        lines_max::<B>() * B::SLOTS / 8 * MERGED_8THS_MAX
    }

    #[inline]
    fn segments_slice(&self) -> &[Segment<B>] {
        match &self.segments {
            Segments::One(segment) => core::slice::from_ref(segment),
            Segments::Many(directory) => &directory.segments,
        }
    }

    #[inline]
    fn segment(&self, index: usize) -> Option<&Segment<B>> {
        self.segments_slice().get(index)
    }

    #[inline]
    fn segment_mut(&mut self, index: usize) -> &mut Segment<B> {
        match &mut self.segments {
            Segments::One(segment) => segment,
            Segments::Many(directory) => &mut directory.segments[index],
        }
    }

    #[inline]
    fn index_of(&self, selector: u32) -> usize {
        match &self.segments {
            Segments::One(_) => 0,
            Segments::Many(directory) => directory.index_of(selector),
        }
    }

    /// Returns the segment in which an entry is or would be, and its index.
    #[inline]
    fn selected(&self, mixed: Mixed) -> (usize, &Segment<B>) {
        let index = self.index_of(mixed.selector());
        (index, &self.segments_slice()[index])
    }

    /// Returns the maximum depth of a segment, given the number of segments.
    fn depth_max(&self) -> u8 {
        let depth = DEPTH_SPARE + u8::try_from(self.extent().0.ilog2()).unwrap_or(DEPTH_MAX);
        depth.min(DEPTH_MAX)
    }

    fn next_salt(&mut self) -> Salt {
        self.salts = self.salts.wrapping_add(1);
        self.seed.salt(self.salts)
    }

    /// Lets a segment grow by a step and some more, or splits it. Does nothing without memory.
    #[cold]
    fn make_room(&mut self, memory: &mut Memory, key: &HashKey, index: usize, more_steps: usize) {
        if !memory.has_room_for(Purpose::Moving) {
            return;
        }
        let segment = &self.segments_slice()[index];
        if segment.lines() < lines_max::<B>() {
            let lines = segment.lines_after_growth(1 + more_steps);
            self.rebuild(memory, key, index, lines);
        } else if segment.depth < self.depth_max() {
            self.split(memory, key, index, more_steps);
        }
    }

    /// Moves the entries of a segment to this many lines, under a new salt, unless they find no place.
    #[cold]
    fn rebuild(&mut self, memory: &mut Memory, key: &HashKey, index: usize, lines: usize) {
        let [mut moved, buffer] = memory.begin_move();
        let (salt, mix) = (self.next_salt(), mixing(self.seed, key));
        let segment = self.segment_mut(index);
        moved.clear();
        segment.copy_lines(memory, &mut moved);
        let buffer = match Placed::new(buffer, entries_of::<B>(&moved), lines, salt, mix) {
            Ok(placed) => {
                segment.replace_lines(memory, &placed);
                placed.into_buffer()
            }
            Err(buffer) => buffer,
        };
        memory.end_move([moved, buffer]);
    }

    /// Splits a segment by the next bit, unless its entries find no place.
    fn split(&mut self, memory: &mut Memory, key: &HashKey, index: usize, more_steps: usize) {
        let [mut moved, buffer] = memory.begin_move();
        let (salts, mix) = ([self.next_salt(), self.next_salt()], mixing(self.seed, key));
        let directory = self.directory();
        let segment = &directory.segments[index];
        moved.clear();
        segment.copy_lines(memory, &mut moved);
        let (prefix, depth) = (segment.prefix << 1, segment.depth + 1);
        let side =
            |half| entries_of::<B>(&moved).filter(move |&(line, slot)| mix(line, slot).bit(depth) == half);
        let ones = side(1).count();
        let lines = lines_of_halves::<B>([segment.len() - ones, ones], more_steps);
        let halves = Placed::new(buffer, side(0), lines[0], salts[0], mix)
            .and_then(|zero| Ok([zero, Placed::new(Vec::new(), side(1), lines[1], salts[1], mix)?]));
        let buffer = match halves {
            Ok([zero, one]) => {
                directory.segments[index].release(memory);
                let half = |salt, bit, placed: &Placed, memory: &mut Memory| {
                    let mut half = Segment::new(salt, prefix | bit, depth);
                    half.replace_lines(memory, placed);
                    half
                };
                let halves = [half(salts[0], 0, &zero, memory), half(salts[1], 1, &one, memory)];
                directory.replace_by_halves(index, halves);
                zero.into_buffer()
            }
            Err(buffer) => buffer,
        };
        memory.end_move([moved, buffer]);
        self.drop_needless_directory();
    }

    fn directory(&mut self) -> &mut Directory<B> {
        if let Segments::One(segment) = &mut self.segments {
            let segment = core::mem::replace(segment, Segment::new(self.seed.salt(0), 0, 0));
            self.segments = Segments::Many(Box::new(Directory::new(segment)));
        }
        match &mut self.segments {
            Segments::Many(directory) => directory,
            Segments::One(_) => unreachable!("it was just replaced"),
        }
    }

    /// Returns the index of the other half of a segment, if the two should be merged.
    #[inline]
    fn mergeable(&self, index: usize) -> Option<usize> {
        let Segments::Many(directory) = &self.segments else { return None };
        let segment = directory.segments.get(index)?;
        if segment.depth == 0 || segment.len() > Self::merged_len_max() {
            return None;
        }
        let other = directory.index_of_prefix(segment.prefix ^ 1, segment.depth);
        let half = &directory.segments[other];
        (half.depth == segment.depth && segment.len() + half.len() <= Self::merged_len_max()).then_some(other)
    }

    /// Merges the two halves of a segment, unless their entries find no place.
    #[cold]
    fn merge(&mut self, memory: &mut Memory, key: &HashKey, index: usize, other: usize) {
        let [mut moved, buffer] = memory.begin_move();
        let (salt, mix) = (self.next_salt(), mixing(self.seed, key));
        let directory = self.directory();
        moved.clear();
        [index, other].iter().for_each(|&half| directory.segments[half].copy_lines(memory, &mut moved));
        let half = &directory.segments[index];
        let mut whole = Segment::<B>::new(salt, half.prefix >> 1, half.depth - 1);
        let lines = lines_for::<B>(half.len() + directory.segments[other].len());
        let buffer = match Placed::new(buffer, entries_of::<B>(&moved), lines, salt, mix) {
            Ok(placed) => {
                [index, other].iter().for_each(|&half| directory.segments[half].release(memory));
                whole.replace_lines(memory, &placed);
                directory.replace_by_whole([index, other], whole);
                placed.into_buffer()
            }
            Err(buffer) => buffer,
        };
        memory.end_move([moved, buffer]);
        self.drop_needless_directory();
    }

    /// Removes a directory of one segment.
    fn drop_needless_directory(&mut self) {
        if let Segments::Many(directory) = &mut self.segments
            && directory.segments.len() == 1
        {
            let segment = directory.segments.remove(0);
            self.segments = Segments::One(segment);
        }
    }
}

/// Returns the numbers of lines for two halves with these numbers of entries, and some steps of space for more.
fn lines_of_halves<B: Bucket>(lens: [usize; 2], more_steps: usize) -> [usize; 2] {
    let more_lines = lines_max::<B>() / B::STEP_SHARE * more_steps;
    lens.map(|len| (lines_for::<B>(len) + more_lines).min(lines_max::<B>()))
}

fn last_selector<B>(segment: &Segment<B>) -> u32 {
    let end = (u64::from(segment.prefix) + 1) << (u32::BITS - u32::from(segment.depth));
    u32::try_from(end - 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
