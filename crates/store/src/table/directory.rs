//! The directory of a table with several segments.
//!
//! It has an entry for each combination of as many first bits of a mixed hash as the deepest segment has. This module
//! owns the segments of the table. It must not touch their entries.

use serde::{Deserialize, Serialize};

use super::DEPTH_MAX;
use crate::table::segment::{Bucket, Segment};

/// The segments of a table that has several, in no particular order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct Directory<B> {
    /// The number of bits that select an entry of `index`.
    pub(super) depth: u8,
    /// The number of segments of each depth, so that no change has to count them.
    pub(super) of_depth: [u32; DEPTH_MAX as usize + 1],
    pub(super) index: Vec<u32>,
    pub(super) segments: Vec<Segment<B>>,
}

impl<B: Bucket> Directory<B> {
    pub(super) fn new(segment: Segment<B>) -> Self {
        let mut of_depth = [0; DEPTH_MAX as usize + 1];
        of_depth[0] = 1;
        Self { depth: 0, of_depth, index: vec![0], segments: vec![segment] }
    }

    #[inline]
    pub(super) fn index_of(&self, selector: u32) -> usize {
        self.index[(selector >> (u32::BITS - u32::from(self.depth))) as usize] as usize
    }

    /// Returns the index of the segment that has the first selector of a prefix.
    pub(super) fn index_of_prefix(&self, prefix: u32, depth: u8) -> usize {
        self.index[(prefix as usize) << (self.depth - depth)] as usize
    }

    /// Points the directory entries of a segment's prefix to the segment.
    fn refer_to(&mut self, index: usize) {
        let segment = &self.segments[index];
        let width = 1 << (self.depth - segment.depth);
        let first = segment.prefix as usize * width;
        self.index[first..first + width].fill(number_of(index));
    }

    /// Replaces a segment by its two halves.
    pub(super) fn replace_by_halves(&mut self, index: usize, [zero, one]: [Segment<B>; 2]) {
        if zero.depth > self.depth {
            self.index = self.index.iter().flat_map(|&segment| [segment; 2]).collect();
            self.depth = zero.depth;
        }
        self.of_depth[usize::from(zero.depth) - 1] -= 1;
        self.of_depth[usize::from(zero.depth)] += 2;
        self.segments[index] = zero;
        // Doubling would waste memory in the many tables with few segments.
        if self.segments.len() == self.segments.capacity() {
            self.segments.reserve_exact(1 + self.segments.len() / 8);
        }
        self.segments.push(one);
        self.refer_to(index);
        self.refer_to(self.segments.len() - 1);
    }

    /// Replaces the two halves of a segment by the segment.
    pub(super) fn replace_by_whole(&mut self, [index, other]: [usize; 2], whole: Segment<B>) {
        let (first, last) = (index.min(other), index.max(other));
        self.of_depth[usize::from(whole.depth)] += 1;
        self.of_depth[usize::from(whole.depth) + 1] -= 2;
        self.segments[first] = whole;
        self.segments.swap_remove(last);
        self.refer_to(first);
        if last < self.segments.len() {
            self.refer_to(last);
        }
        // Once is enough: if the two halves were the deepest segments, the whole is as deep as the remaining ones.
        if self.of_depth[usize::from(self.depth)] == 0 {
            self.depth -= 1;
            self.index = self.index.iter().copied().step_by(2).collect();
        }
        if self.segments.capacity() > 2 * self.segments.len() + 8 {
            self.segments.shrink_to(self.segments.len() + self.segments.len() / 8);
        }
    }
}

/// Returns an index or number of segments as the directory stores it.
fn number_of(index: usize) -> u32 {
    u32::try_from(index).expect("a directory has at most 2^24 segments")
}
