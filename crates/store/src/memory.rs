//! The memory of one shard: a reserve of pages, and blocks allocated from pages.
//!
//! An operation that adds an entry first checks that there is room, so that it cannot run out of memory half-way.

use std::sync::Arc;

use crate::arena::{Arena, Page, Purpose};
use crate::prefetch::prefetch;
use crate::slab::{Block, Class, Slab};

/// Number of pages that any single operation may need. The maximum is reached when a swarm outgrows its block: there
/// are two tables, each of which may have to be enlarged once, and blocks of new classes. Every step of growth checks
/// again.
const RESERVE_PAGES_MIN: usize = 8;

/// Number of pages fetched from the arena at once, so that its lock is rarely taken.
const RESERVE_PAGES_FETCHED: usize = 8;

/// Reserve beyond which pages return to the arena.
const RESERVE_PAGES_MAX: usize = 20;

/// New swarms are refused when less than this share of the ceiling is left, so that peers of existing swarms still find
/// room.
const SWARM_MARGIN_SHARE: usize = 32;

/// Maximum size in bytes of the buffer for moved lines that is retained between two moves.
const SCRATCH_BYTES_MAX: usize = 16 << 10;

/// Buffers for the lines and entries that a table moves.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Copies of the lines before the move.
    pub(crate) lines: Vec<u8>,
    /// The home that each of their entries will have.
    pub(crate) homes: Vec<u32>,
    /// For each line, counted from the first, a later one that may have a free slot.
    pub(crate) nexts: Vec<u32>,
}

/// Pages and blocks of one shard.
#[derive(Debug)]
pub(crate) struct Memory {
    arena: Arc<Arena>,
    reserve: Vec<Page>,
    slab: Slab,
    /// Number of pages that were taken from the arena and not returned.
    pages: usize,
    /// Buffers that are reused between moves.
    scratch: Scratch,
}

impl Memory {
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        Self { arena, reserve: Vec::new(), slab: Slab::default(), pages: 0, scratch: Scratch::default() }
    }

    /// Returns whether there is room for another peer.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.has_room_for(Purpose::Growing)
    }

    /// Returns whether there is room for another swarm.
    #[inline]
    pub(crate) fn has_room_for_swarm(&mut self) -> bool {
        self.has_room() && self.arena.pages_left() >= self.arena.pages_max() / SWARM_MARGIN_SHARE
    }

    /// Returns whether there is room for any single operation with this purpose.
    #[inline]
    #[allow(unsafe_code, reason = "the types do not tie a page to the life of its arena")]
    pub(crate) fn has_room_for(&mut self, purpose: Purpose) -> bool {
        if self.reserve.len() < RESERVE_PAGES_MIN {
            let reserve = &mut self.reserve;
            // SAFETY: pages never leave the shard of this memory: they are in `reserve`, in `slab`, or in the rows of
            // its tables. The shard owns an `Arc` of the arena, is dropped as a whole, and no destructor reads a page.
            self.pages += unsafe { self.arena.take(RESERVE_PAGES_FETCHED, purpose, reserve) };
        }
        self.reserve.len() >= RESERVE_PAGES_MIN
    }

    /// Takes a page of zeroes.
    pub(crate) fn take_page(&mut self) -> Page {
        let mut page = self.take_used_page();
        page.fill(0);
        page
    }

    /// Frees a page.
    pub(crate) fn put_page(&mut self, page: Page) {
        self.reserve.push(page);
        if self.reserve.len() > RESERVE_PAGES_MAX {
            self.arena.put(self.reserve.drain(..RESERVE_PAGES_FETCHED));
            self.pages -= RESERVE_PAGES_FETCHED;
        }
    }

    /// Allocates a block of zeroes.
    pub(crate) fn take_block(&mut self, class: Class) -> Block {
        let (slab, reserve) = (&mut self.slab, &mut self.reserve);
        let block = slab.take(class, || reserve.pop().expect("operations reserve memory before they begin"));
        self.slab.bytes_mut(block).fill(0);
        block
    }

    /// Frees a block.
    pub(crate) fn put_block(&mut self, block: Block) {
        if let Some(page) = self.slab.put(block) {
            self.put_page(page);
        }
    }

    /// Moves the first bytes of a block into a block of another class.
    pub(crate) fn replace_block(&mut self, old: Block, class: Class) -> Block {
        let new = self.take_block(class);
        let mut scratch = [0; 2048];
        let bytes = self.slab.bytes(old);
        let length = bytes.len().min(class.bytes());
        scratch[..length].copy_from_slice(&bytes[..length]);
        self.slab.bytes_mut(new)[..length].copy_from_slice(&scratch[..length]);
        self.put_block(old);
        new
    }

    /// Moves a block to a fuller page if its own is nearly empty. Needs no additional memory.
    pub(crate) fn move_to_fuller_page(&mut self, block: Block, class: Class) -> Block {
        if self.slab.is_stray(block) { self.replace_block(block, class) } else { block }
    }

    #[inline]
    pub(crate) fn block(&self, block: Block) -> &[u8] {
        self.slab.bytes(block)
    }

    #[inline]
    pub(crate) fn block_mut(&mut self, block: Block) -> &mut [u8] {
        self.slab.bytes_mut(block)
    }

    /// Takes the empty buffers for lines that are moved. The caller puts them back, so that they need not be allocated
    /// again.
    pub(crate) fn take_scratch(&mut self) -> Scratch {
        core::mem::take(&mut self.scratch)
    }

    /// Clears the buffers, and retains them for the next move.
    pub(crate) fn put_scratch(&mut self, mut scratch: Scratch) {
        scratch.lines.clear();
        scratch.homes.clear();
        scratch.nexts.clear();
        if scratch.lines.capacity() > SCRATCH_BYTES_MAX {
            // A run this long was an attack; its buffers are not retained for the next one.
            scratch = Scratch::default();
        }
        self.scratch = scratch;
    }

    /// Prefetches the beginning of a block.
    #[inline]
    pub(crate) fn prefetch_block(&self, block: Block) {
        if let Some((front, _)) = self.slab.bytes(block).split_first_chunk::<16>() {
            prefetch(front);
        }
    }

    /// Returns the number of pages of this shard, including its reserve.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    fn take_used_page(&mut self) -> Page {
        self.reserve.pop().expect("operations reserve memory before they begin")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let slab = core::mem::take(&mut self.slab);
        self.arena.put(self.reserve.drain(..).chain(slab.into_pages()));
    }
}
