//! A segment: a small hash table in which every entry is in one of two lines.
//!
//! Each line holds several entries. The mixed hash of an entry and the secret salt of the segment select two lines, and
//! the entry goes into the emptier of them (Azar et al. 1994). If both are full, one of their entries moves to its own
//! other line (Pagh and Rodler 2001). So a search reads at most two lines, for any entries, and a removal moves
//! nothing, while lines can be nineteen twentieths full.
//!
//! A segment changes its size only by a *rebuild*: all entries are placed again, in as many lines as they need, under a
//! new salt. A segment has at most [`lines_max`] lines, so that a rebuild is short. The rebuild uses a buffer, so
//! nothing changes if an entry finds no place.
//!
//! The lines lie in blocks of the slab: full chunks, and one smaller block for the rest. Memory must be released before
//! a segment is dropped.
//!
//! A segment has at most 1,152 IPv4 peers, 560 IPv6 peers, 544 swarms of IPv4 or 384 of IPv6. It grows by an eighth, a
//! tenth or a fourteenth of its lines (IPv4 peers, swarms, IPv6 peers). Larger steps mean fewer moves and a little more
//! memory. A rebuild of the largest segment takes some ten microseconds. Chunks have 1 or 2 KiB, and the last block has
//! just the needed size. So memory is proportional to the entries, also in swarms of hundreds of peers.

use core::marker::PhantomData;

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::hash::{HashKey, Mixed, Salt};
use crate::memory::Memory;
use crate::memory::slab::{Block, Class};

/// A line of a table: up to `SLOTS` entries, packed at the front. All zeroes is an empty line.
pub(crate) trait Bucket: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy {
    const SLOTS: usize;
    const CHUNK_LINES: usize;
    /// A segment grows by this fraction of its lines. Small steps save memory, large ones save moves.
    const STEP_SHARE: usize;
    /// Number of bytes at the start of a line that a search reads.
    const START_BYTES: usize;

    type Entry: Copy;

    fn len(&self) -> usize;
    fn hash(&self, slot: usize, key: &HashKey) -> u64;
    /// Returns the entry of a slot below `len`.
    fn entry(&self, slot: usize) -> Self::Entry;
    /// Appends an entry. The line must not be full.
    fn push(&mut self, entry: &Self::Entry);
    /// Removes and returns an entry. The last entry moves into its slot.
    fn take(&mut self, slot: usize) -> Self::Entry;
}

const CHUNKS: usize = 8;

/// Fill in 64ths of all slots above which a segment grows. Above it, a third line would often have to make room.
const FILL_64THS_MAX: usize = 61;

pub(crate) const fn lines_max<B: Bucket>() -> usize {
    CHUNKS * B::CHUNK_LINES
}

pub(crate) const fn segment_len_max<B: Bucket>() -> usize {
    lines_max::<B>() * B::SLOTS
}

/// Returns the number of lines for `entries` entries, with one step of space for more.
pub(crate) fn lines_for<B: Bucket>(entries: usize) -> usize {
    let lines = lines_just_for::<B>(entries);
    (lines + lines / B::STEP_SHARE).min(lines_max::<B>())
}

/// Returns the number of lines that `entries` entries fill.
pub(crate) const fn lines_just_for<B: Bucket>(entries: usize) -> usize {
    (entries * 64).div_ceil(FILL_64THS_MAX * B::SLOTS)
}

/// Entries whose mixed hashes have a common prefix.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Segment<B> {
    chunks: [Block; CHUNKS],
    salt: Salt,
    /// The common first bits of the mixed hashes, as a number.
    pub(crate) prefix: u32,
    len: u16,
    lines: u8,
    /// The number of common bits.
    pub(crate) depth: u8,
    bucket: PhantomData<B>,
}

const _: () = assert!(size_of::<Segment<()>>() == 44, "a header for several hundred entries");

trait Lines<B: Bucket> {
    fn line(&self, line: usize) -> &B;
    fn line_mut(&mut self, line: usize) -> &mut B;

    /// Puts an entry into the emptier of two lines, and returns its line and slot. If both are full, moves another
    /// entry to its other line, which `other_line` returns. Returns `None` if no entry can move.
    #[inline]
    fn place(
        &mut self,
        [first, second]: [usize; 2],
        entry: &B::Entry,
        other_line: impl Fn(&B, usize, usize) -> usize,
    ) -> Option<(usize, usize)> {
        let (of_first, of_second) = (self.line(first).len(), self.line(second).len());
        let (line, slot) = if of_second < of_first { (second, of_second) } else { (first, of_first) };
        if slot == B::SLOTS {
            return self.displace([first, second], entry, other_line);
        }
        self.line_mut(line).push(entry);
        Some((line, slot))
    }

    /// Puts an entry into one of two full lines, in place of an entry that moves to its other line.
    #[inline(never)]
    fn displace(
        &mut self,
        lines: [usize; 2],
        entry: &B::Entry,
        other_line: impl Fn(&B, usize, usize) -> usize,
    ) -> Option<(usize, usize)> {
        for line in lines {
            for slot in 0..B::SLOTS {
                let other = other_line(self.line(line), slot, line);
                if self.line(other).len() < B::SLOTS {
                    let moved = self.line_mut(line).take(slot);
                    self.line_mut(other).push(&moved);
                    self.line_mut(line).push(entry);
                    return Some((line, B::SLOTS - 1));
                }
            }
        }
        None
    }
}

impl<B: Bucket> Lines<B> for [B] {
    #[inline]
    fn line(&self, line: usize) -> &B {
        &self[line]
    }

    #[inline]
    fn line_mut(&mut self, line: usize) -> &mut B {
        &mut self[line]
    }
}

struct InMemory<'m, B> {
    segment: &'m Segment<B>,
    memory: &'m mut Memory,
}

impl<B: Bucket> Lines<B> for InMemory<'_, B> {
    #[inline]
    fn line(&self, line: usize) -> &B {
        self.segment.line(self.memory, line)
    }

    #[inline]
    fn line_mut(&mut self, line: usize) -> &mut B {
        self.segment.line_mut(self.memory, line)
    }
}

/// Returns the two lines of an entry among `lines` lines, at least one. They are equal if there is only one.
#[inline]
fn lines_of(mixed: Mixed, salt: Salt, lines: usize) -> [usize; 2] {
    debug_assert!(lines > 0);
    let [first, second] = mixed.two_below(salt, [lines, lines - 1]);
    [first, (second + usize::from(second >= first)).min(lines - 1)]
}

/// Returns the line of an entry other than `line`.
#[inline]
fn other_of([first, second]: [usize; 2], line: usize) -> usize {
    if line == first { second } else { first }
}

impl<B: Bucket> Segment<B> {
    pub(crate) fn new(salt: Salt, prefix: u32, depth: u8) -> Self {
        const { assert!(lines_max::<B>() < u8::MAX as usize) };
        let chunks = [Block::default(); CHUNKS];
        Self { chunks, salt, prefix, len: 0, lines: 0, depth, bucket: PhantomData }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    #[inline]
    pub(crate) fn lines(&self) -> usize {
        usize::from(self.lines)
    }

    /// Returns whether the segment should grow before another entry comes.
    #[inline]
    pub(crate) fn is_too_full(&self) -> bool {
        self.len() * 64 >= self.lines() * (B::SLOTS * FILL_64THS_MAX)
    }

    pub(crate) fn lines_after_growth(&self, steps: usize) -> usize {
        (self.lines() + (self.lines() / B::STEP_SHARE).max(1) * steps).min(lines_max::<B>())
    }

    /// Returns the right number of lines, if the segment has far too many.
    pub(crate) fn fewer_lines(&self) -> Option<usize> {
        let needed = lines_for::<B>(self.len());
        // An entry that comes and goes alone must not allocate a line each time.
        let is_spare = self.lines() > needed + needed / B::STEP_SHARE + 1;
        is_spare.then_some(needed)
    }

    /// Returns the lines of an entry. The segment must have lines.
    #[inline]
    fn lines_of(&self, mixed: Mixed) -> [usize; 2] {
        lines_of(mixed, self.salt, self.lines())
    }

    /// Returns the line with this number, which must be below `lines`.
    #[inline]
    pub(crate) fn line<'a>(&self, memory: &'a Memory, line: usize) -> &'a B {
        #[cfg(test)]
        work::count_lines(1);
        let block = self.chunks[line / B::CHUNK_LINES % CHUNKS];
        memory.in_block(block, line % B::CHUNK_LINES)
    }

    #[inline]
    pub(crate) fn line_mut<'a>(&self, memory: &'a mut Memory, line: usize) -> &'a mut B {
        let block = self.chunks[line / B::CHUNK_LINES % CHUNKS];
        memory.in_block_mut(block, line % B::CHUNK_LINES)
    }

    /// Returns three consecutive lines, if they exist and are contiguous in memory.
    #[inline]
    pub(crate) fn three_lines<'a>(&self, memory: &'a Memory, line: usize) -> Option<&'a [B; 3]> {
        let in_chunk = line % B::CHUNK_LINES;
        if line + 2 >= self.lines() || in_chunk + 2 >= B::CHUNK_LINES {
            return None;
        }
        Some(memory.three_in_block(self.chunks[line / B::CHUNK_LINES % CHUNKS], in_chunk))
    }

    /// Prefetches the first `bytes` of a line.
    #[inline(always)]
    pub(crate) fn prefetch(&self, memory: &Memory, line: usize, bytes: usize) {
        let block = self.chunks[line / B::CHUNK_LINES % CHUNKS];
        memory.prefetch_in_block::<B>(block, line % B::CHUNK_LINES, bytes);
    }

    /// Prefetches the beginnings of an entry's two lines, and returns the lines. If the segment is empty, its lines may not
    /// exist.
    #[inline]
    pub(crate) fn prefetch_lines_of(&self, memory: &Memory, mixed: Mixed) -> [usize; 2] {
        if self.len == 0 {
            return [0; 2];
        }
        let lines @ [first, second] = self.lines_of(mixed);
        self.prefetch(memory, first, B::START_BYTES);
        self.prefetch(memory, second, B::START_BYTES);
        lines
    }

    /// Finds an entry. Returns the number of its line, its slot, and the line. `matching` returns the entry's slot in a
    /// line.
    #[inline(always)]
    pub(crate) fn find<'a>(
        &self,
        memory: &'a Memory,
        mixed: Mixed,
        matching: impl Fn(&B) -> Option<usize>,
    ) -> Option<(usize, usize, &'a B)> {
        if self.len == 0 {
            return None;
        }
        let [first, second] = self.lines_of(mixed);
        let line = self.line(memory, first);
        if let Some(slot) = matching(line) {
            return Some((first, slot, line));
        }
        let line = self.line(memory, second);
        Some((second, matching(line)?, line))
    }

    /// Visits the lines that may hold entries with this mixed hash.
    #[inline]
    pub(crate) fn visit_lines(&self, memory: &Memory, mixed: Mixed, mut visit: impl FnMut(&B)) {
        if self.len > 0 {
            let [first, second] = self.lines_of(mixed);
            visit(self.line(memory, first));
            if second != first {
                visit(self.line(memory, second));
            }
        }
    }

    /// Inserts an entry that is not in the segment. Returns its line and slot, or `None` if it finds no place. `mix`
    /// returns the mixed hash of an entry.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        memory: &mut Memory,
        mixed: Mixed,
        entry: &B::Entry,
        mix: impl Fn(&B, usize) -> Mixed,
    ) -> Option<(usize, usize)> {
        if self.lines == 0 {
            return None;
        }
        let lines = self.lines_of(mixed);
        let other_line = |bucket: &B, slot, line| other_of(self.lines_of(mix(bucket, slot)), line);
        let at = InMemory { segment: self, memory }.place(lines, entry, other_line)?;
        self.len += 1;
        Some(at)
    }

    pub(crate) fn remove(&mut self, memory: &mut Memory, (line, slot): (usize, usize)) -> B::Entry {
        self.len -= 1;
        self.line_mut(memory, line).take(slot)
    }

    pub(crate) fn copy_lines(&self, memory: &Memory, to: &mut Vec<u8>) {
        let mut left = self.lines();
        for &chunk in &self.chunks[..left.div_ceil(B::CHUNK_LINES)] {
            let lines = left.min(B::CHUNK_LINES);
            to.extend_from_slice(memory.block_start(chunk, lines * size_of::<B>()));
            left -= lines;
        }
    }

    /// Replaces all lines by those of a buffer. `memory` must have room.
    pub(crate) fn replace_lines(&mut self, memory: &mut Memory, placed: &Placed) {
        self.take_blocks(memory, placed.lines.len() / size_of::<B>());
        let chunk_bytes = B::CHUNK_LINES * size_of::<B>();
        for (&chunk, lines) in self.chunks.iter().zip(placed.lines.chunks(chunk_bytes)) {
            memory.block_start_mut(chunk, lines.len()).copy_from_slice(lines);
        }
        (self.len, self.salt) = (placed.len, placed.salt);
    }

    /// Allocates the blocks for this number of lines, and frees surplus ones.
    fn take_blocks(&mut self, memory: &mut Memory, lines: usize) {
        let (before, after) = (Blocks::of::<B>(self.lines()), Blocks::of::<B>(lines));
        for index in 0..CHUNKS {
            let (old, new) = (before.class(index), after.class(index));
            if old != new {
                if old.is_some() {
                    memory.put_block(self.chunks[index]);
                }
                self.chunks[index] = new.map_or(Block::default(), |class| memory.take_block(class));
            }
        }
        self.lines = u8::try_from(lines).expect("a segment has fewer lines");
    }

    /// Releases all memory, and forgets all entries.
    pub(crate) fn release(&mut self, memory: &mut Memory) {
        self.take_blocks(memory, 0);
        self.len = 0;
    }
}

/// Lines in a buffer, ready to become the lines of a segment.
#[derive(Debug)]
pub(crate) struct Placed {
    lines: Vec<u8>,
    len: u16,
    salt: Salt,
}

impl Placed {
    /// Places entries, given by line and slot, in this number of lines. Returns `None` if that is impossible.
    /// `into_buffer` returns the `buffer` with the lines.
    pub(crate) fn new<'e, B: Bucket + 'e>(
        mut buffer: Vec<u8>,
        entries: impl Iterator<Item = (&'e B, usize)>,
        lines: usize,
        salt: Salt,
        mix: impl Fn(&B, usize) -> Mixed,
    ) -> Result<Self, Vec<u8>> {
        #[cfg(test)]
        work::count_lines(lines);
        buffer.clear();
        buffer.resize(lines * size_of::<B>(), 0);
        let placed = <[B]>::mut_from_bytes(&mut buffer).expect("whole lines");
        let other_line = |bucket: &B, slot, line| other_of(lines_of(mix(bucket, slot), salt, lines), line);
        let mut len = 0;
        for (bucket, slot) in entries {
            let lines = lines_of(mix(bucket, slot), salt, lines);
            if placed.place(lines, &bucket.entry(slot), other_line).is_none() {
                return Err(buffer);
            }
            len += 1;
        }
        Ok(Self { lines: buffer, len, salt })
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.lines
    }
}

/// The blocks in which a number of lines lies.
struct Blocks {
    full: usize,
    full_class: Class,
    rest_class: Option<Class>,
}

impl Blocks {
    fn of<B: Bucket>(lines: usize) -> Self {
        let class = |lines: usize| Class::holding(lines * size_of::<B>()).expect("a chunk fits a block");
        let rest = lines % B::CHUNK_LINES;
        Self {
            full: lines / B::CHUNK_LINES,
            full_class: class(B::CHUNK_LINES),
            rest_class: (rest > 0).then(|| class(rest)),
        }
    }

    fn class(&self, index: usize) -> Option<Class> {
        match index {
            _ if index < self.full => Some(self.full_class),
            _ if index == self.full => self.rest_class,
            _ => None,
        }
    }
}

/// Counts the lines that operations examine or fill. Tests bound this number in place of time.
#[cfg(test)]
pub(crate) mod work {
    use core::cell::Cell;

    thread_local! {
        static LINES: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn count_lines(lines: usize) {
        LINES.set(LINES.get() + lines as u64);
    }

    /// Returns the number of lines that this thread examined during `operation`.
    pub(crate) fn lines_of<T>(operation: impl FnOnce() -> T) -> (u64, T) {
        let before = LINES.get();
        let result = operation();
        (LINES.get() - before, result)
    }
}
