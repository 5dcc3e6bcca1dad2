//! The memory of one shard: a reserve of pages, and blocks allocated from pages.
//!
//! An operation that adds an entry first checks for room, so that it cannot run out of memory half-way.
//!
//! An operation takes one page for a block, and six before a segment grows or splits. Between operations a shard holds
//! two to four. Free pages and the reserves of shards are what costs memory, so they are few. The buffers for entries
//! that move belong to all shards together.
//!
//! The pages lie in one `arena` for all shards, which may be a `file`. A `slab` divides them into blocks.

pub(crate) mod arena;
pub(crate) mod compare;
pub(crate) mod file;
pub(crate) mod prefetch;
pub(crate) mod slab;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use self::arena::{Arena, Claims, MoveBuffers, Page, Purpose};
use self::prefetch::{prefetch_all_lines, prefetch_bytes};
use self::slab::{BLOCK_BYTES_MAX, Block, Class, Slab, SlabImage};

/// Number of pages that any single operation may need. The maximum is a split of a segment of swarms: its two halves
/// have nine full chunks, four of which fill a page, and a smaller block each. Every step of growth checks again.
pub(crate) const OPERATION_PAGES_MAX: usize = 6;

/// Number of pages that a block needs.
const BLOCK_PAGES_MAX: usize = 1;

/// Number of pages that stay in the reserve when others return to the arena.
const RESERVE_PAGES: usize = 1;

/// Reserve beyond which pages return to the arena. The difference avoids its lock for single pages.
const RESERVE_PAGES_MAX: usize = 3;

/// New swarms are refused when less than this share of the ceiling is left, so that existing swarms can still grow.
const SWARM_MARGIN_SHARE: usize = 32;

/// The pages of a shard by index, and the division of its slab.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MemoryImage {
    reserve: Vec<u32>,
    slab: SlabImage,
}

#[derive(Debug)]
pub(crate) struct Memory {
    arena: Arc<Arena>,
    reserve: Vec<Page>,
    slab: Slab,
    /// Number of pages taken from the arena.
    pages: usize,
    /// Whether entries are moving, so that freed pages may be needed again before the end.
    is_moving: bool,
}

impl Memory {
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        Self { arena, reserve: Vec::new(), slab: Slab::new(), pages: 0, is_moving: false }
    }

    pub(crate) fn image(&self) -> MemoryImage {
        let index = |page: &Page| self.arena.index_of(page);
        MemoryImage { reserve: self.reserve.iter().map(index).collect(), slab: self.slab.image(index) }
    }

    /// Takes over the memory of an image. Returns `None` if its pages cannot be claimed.
    pub(crate) fn resume(arena: &Arc<Arena>, image: MemoryImage, claims: &mut Claims<'_>) -> Option<Self> {
        let reserve: Option<Vec<Page>> = image.reserve.iter().map(|&index| claims.claim(index)).collect();
        let (reserve, slab) = (reserve?, Slab::resume(image.slab, |index| claims.claim(index))?);
        let pages = reserve.len() + slab.pages();
        Some(Self { arena: Arc::clone(arena), reserve, slab, pages, is_moving: false })
    }

    /// Returns whether there is room for another peer: for a block now, and below the ceiling for growth of its table,
    /// which checks again.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.has_pages(BLOCK_PAGES_MAX, Purpose::Growing)
            && self.reserve.len() + self.arena.pages_left() >= OPERATION_PAGES_MAX
    }

    /// Returns whether there is room for another block with this purpose.
    #[inline]
    pub(crate) fn has_room_for_block(&mut self, purpose: Purpose) -> bool {
        self.has_pages(BLOCK_PAGES_MAX, purpose)
    }

    #[inline]
    pub(crate) fn has_room_for_swarm(&mut self) -> bool {
        self.has_room() && self.arena.pages_left() >= self.arena.pages_max() / SWARM_MARGIN_SHARE
    }

    /// Returns whether half of the ceiling is left, so that memory may be taken ahead of need.
    pub(crate) fn is_half_free(&self) -> bool {
        self.arena.pages_left() >= self.arena.pages_max() / 2
    }

    #[inline]
    pub(crate) fn has_room_for(&mut self, purpose: Purpose) -> bool {
        self.has_pages(OPERATION_PAGES_MAX, purpose)
    }

    /// Fills the reserve up, and returns whether it has this many pages.
    #[inline]
    #[allow(unsafe_code, reason = "the types do not tie a page to the life of its arena")]
    fn has_pages(&mut self, count: usize, purpose: Purpose) -> bool {
        if self.reserve.len() < count {
            let missing = (count - self.reserve.len()).max(RESERVE_PAGES);
            let reserve = &mut self.reserve;
            // SAFETY: pages never leave the shard of this memory: they are in `reserve`, in `slab`, or in the rows of
            // its tables. The shard owns an `Arc` of the arena, is dropped as a whole, and no destructor reads a page.
            self.pages += unsafe { self.arena.take(missing, purpose, reserve) };
        }
        self.reserve.len() >= count
    }

    pub(crate) fn put_page(&mut self, page: Page) {
        self.reserve.push(page);
        self.return_pages();
    }

    /// Returns pages beyond the reserve to the arena, except during a move.
    fn return_pages(&mut self) {
        if self.reserve.len() > RESERVE_PAGES_MAX && !self.is_moving {
            let more = self.reserve.len() - RESERVE_PAGES;
            self.arena.put(self.reserve.drain(..more));
            self.pages -= more;
        }
    }

    pub(crate) fn take_block(&mut self, class: Class) -> Block {
        let (slab, reserve) = (&mut self.slab, &mut self.reserve);
        let block = slab.take(class, || reserve.pop().expect("operations reserve memory before they begin"));
        self.slab.bytes_mut(block, class.bytes()).fill(0);
        block
    }

    pub(crate) fn put_block(&mut self, block: Block) {
        if let Some(page) = self.slab.put(block) {
            self.put_page(page);
        }
    }

    /// Moves a block to a fuller page if its own is nearly empty. Needs no additional memory.
    pub(crate) fn move_to_fuller_page(&mut self, block: Block, class: Class) -> Block {
        if !self.slab.is_stray(block) {
            return block;
        }
        let new = self.take_block(class);
        let mut copy = [0; BLOCK_BYTES_MAX];
        copy[..class.bytes()].copy_from_slice(self.block(block, class));
        self.block_mut(new, class).copy_from_slice(&copy[..class.bytes()]);
        self.put_block(block);
        new
    }

    #[inline]
    pub(crate) fn block(&self, block: Block, class: Class) -> &[u8] {
        self.slab.bytes(block, class.bytes())
    }

    #[inline]
    pub(crate) fn block_mut(&mut self, block: Block, class: Class) -> &mut [u8] {
        self.slab.bytes_mut(block, class.bytes())
    }

    #[inline]
    pub(crate) fn block_start(&self, block: Block, length: usize) -> &[u8] {
        self.slab.bytes(block, length)
    }

    #[inline]
    pub(crate) fn block_start_mut(&mut self, block: Block, length: usize) -> &mut [u8] {
        self.slab.bytes_mut(block, length)
    }

    #[inline]
    pub(crate) fn in_block<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &self,
        block: Block,
        index: usize,
    ) -> &T {
        let (page, offset) = self.slab.place(block);
        let start = offset + index * size_of::<T>();
        let bytes = &page[start..start + size_of::<T>()];
        T::ref_from_bytes(bytes).expect("the slice has the size of the value")
    }

    #[inline]
    pub(crate) fn in_block_mut<T: FromBytes + IntoBytes + KnownLayout + Unaligned>(
        &mut self,
        block: Block,
        index: usize,
    ) -> &mut T {
        let (page, offset) = self.slab.place_mut(block);
        let start = offset + index * size_of::<T>();
        let bytes = &mut page[start..start + size_of::<T>()];
        T::mut_from_bytes(bytes).expect("the slice has the size of the value")
    }

    /// Returns three consecutive values of a block, from this index on.
    #[inline]
    pub(crate) fn three_in_block<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &self,
        block: Block,
        index: usize,
    ) -> &[T; 3] {
        let (page, offset) = self.slab.place(block);
        let start = offset + index * size_of::<T>();
        let bytes = &page[start..start + 3 * size_of::<T>()];
        <[T; 3]>::ref_from_bytes(bytes).expect("the slice has the size of three values")
    }

    /// Prefetches `bytes` of a block of values, from the value with this index on.
    #[inline(always)]
    pub(crate) fn prefetch_in_block<T>(&self, block: Block, index: usize, bytes: usize) {
        let (page, offset) = self.slab.place(block);
        prefetch_bytes(page.as_ptr().wrapping_add(offset + index * size_of::<T>()), bytes);
    }

    /// Begins to move entries: returns buffers for their lines, and retains freed pages for the new ones.
    pub(crate) fn begin_move(&mut self) -> MoveBuffers {
        self.is_moving = true;
        self.arena.take_buffers()
    }

    pub(crate) fn end_move(&mut self, buffers: MoveBuffers) {
        self.is_moving = false;
        self.arena.put_buffers(buffers);
        self.return_pages();
    }

    #[inline]
    pub(crate) fn prefetch_block(&self, block: Block) {
        self.prefetch_in_block::<u8>(block, 0, 1);
    }

    #[inline]
    pub(crate) fn prefetch_whole_block(&self, block: Block, class: Class) {
        prefetch_all_lines(self.block(block, class));
    }

    /// Returns the number of pages of this shard, including its reserve.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let slab = core::mem::replace(&mut self.slab, Slab::new());
        self.arena.put(self.reserve.drain(..).chain(slab.into_pages()));
    }
}
