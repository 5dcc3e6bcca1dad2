//! A long row of lines (buckets of a table) that is allocated piecewise and may have holes.
//!
//! A short row is one block. A longer one is a list of pages, of which empty ones may be missing. The row owns its
//! memory only as tokens, so its memory must be released before it is dropped.

use core::marker::PhantomData;

use smallvec::{SmallVec, smallvec};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::arena::{PAGE_BYTES, Page};
use crate::memory::Memory;
use crate::prefetch::{prefetch, prefetch_with_next};
use crate::slab::{Block, Class};

/// A line: plain bytes, of which all zeroes is an empty line.
pub(crate) trait Line: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned {
    /// Whether a short row of such lines is stored in a block, because there are many short rows of them.
    const STARTS_IN_BLOCK: bool;

    /// Returns whether the line is empty.
    fn is_empty(&self) -> bool;
}

/// A row of lines.
#[derive(Debug)]
pub(crate) struct Lines<L> {
    storage: Storage,
    line: PhantomData<L>,
}

#[derive(Debug)]
enum Storage {
    Block(Block, Class),
    /// The first two pages are stored inline, which saves a cache miss for a table of some hundred peers.
    Pages(SmallVec<[Option<Page>; 2]>),
}

impl<L: Line> Lines<L> {
    const BYTES: usize = size_of::<L>();

    /// Number of lines in a page.
    pub(crate) const PER_PAGE: u32 = {
        assert!(Self::BYTES <= PAGE_BYTES && PAGE_BYTES <= u32::MAX as usize);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "asserted above; a const context has no try_from"
        )]
        let lines = (PAGE_BYTES / Self::BYTES) as u32;
        lines
    };

    pub(crate) const fn new() -> Self {
        Self { storage: Storage::Pages(SmallVec::new_const()), line: PhantomData }
    }

    /// Returns the line, if memory is allocated for it.
    #[inline]
    pub(crate) fn line<'a>(&'a self, memory: &'a Memory, index: u32) -> Option<&'a L> {
        L::ref_from_bytes(self.bytes(memory, index, Self::BYTES)?).ok()
    }

    /// Returns three consecutive lines, if they are contiguous in memory.
    #[inline]
    pub(crate) fn three<'a>(&'a self, memory: &'a Memory, index: u32) -> Option<&'a [L; 3]> {
        FromBytes::ref_from_bytes(self.bytes(memory, index, 3 * Self::BYTES)?).ok()
    }

    #[inline(always)]
    fn bytes<'a>(&'a self, memory: &'a Memory, index: u32, length: usize) -> Option<&'a [u8]> {
        let (bytes, index) = match &self.storage {
            Storage::Block(block, _) => (memory.block(*block), index),
            Storage::Pages(pages) => {
                let page = pages.get((index / Self::PER_PAGE) as usize)?.as_ref()?;
                (&page[..], index % Self::PER_PAGE)
            }
        };
        let start = index as usize * Self::BYTES;
        bytes.get(start..start + length)
    }

    /// Returns the line for writing, if memory is allocated for it.
    #[inline(always)]
    pub(crate) fn line_mut<'a>(&'a mut self, memory: &'a mut Memory, index: u32) -> Option<&'a mut L> {
        let (bytes, index) = match &mut self.storage {
            Storage::Block(block, _) => (memory.block_mut(*block), index),
            Storage::Pages(pages) => {
                let page = pages.get_mut((index / Self::PER_PAGE) as usize)?.as_mut()?;
                (&mut page[..], index % Self::PER_PAGE)
            }
        };
        let start = index as usize * Self::BYTES;
        L::mut_from_bytes(bytes.get_mut(start..start + Self::BYTES)?).ok()
    }

    /// Returns the line for writing, and allocates memory for it if necessary.
    #[inline(always)]
    pub(crate) fn line_ensured<'a>(&'a mut self, memory: &'a mut Memory, index: u32) -> &'a mut L {
        let has_memory = match &self.storage {
            Storage::Block(_, class) => (index as usize + 1) * Self::BYTES <= class.bytes(),
            Storage::Pages(pages) => matches!(pages.get((index / Self::PER_PAGE) as usize), Some(Some(_))),
        };
        if !has_memory {
            self.extend(memory, index);
        }
        self.line_mut(memory, index).expect("`extend` allocated memory for the line")
    }

    /// Prefetches the line.
    #[inline]
    pub(crate) fn prefetch(&self, memory: &Memory, index: u32) {
        if let Some(line) = self.line(memory, index) {
            prefetch(line);
        }
    }

    /// Prefetches the line and the next one.
    #[inline]
    pub(crate) fn prefetch_two(&self, memory: &Memory, index: u32) {
        if let Some(line) = self.line(memory, index) {
            prefetch_with_next(line);
        }
    }

    /// Releases the page that holds `index`, if it is empty.
    pub(crate) fn release_page(&mut self, memory: &mut Memory, index: u32) {
        let Storage::Pages(pages) = &mut self.storage else { return };
        let Some(slot) = pages.get_mut((index / Self::PER_PAGE) as usize) else { return };
        if slot.as_ref().is_some_and(|page| Self::is_empty(page)) {
            memory.put_page(slot.take().expect("the line above has checked that the page is present"));
        }
    }

    /// Releases the pages at and behind `end`, all of which are empty, and the block if nothing is left.
    pub(crate) fn give_back(&mut self, memory: &mut Memory, end: u32) {
        match &mut self.storage {
            Storage::Block(..) if end == 0 => self.release(memory),
            Storage::Block(..) => {}
            Storage::Pages(pages) => {
                let keep = end.div_ceil(Self::PER_PAGE) as usize;
                for page in pages.drain(keep.min(pages.len())..).flatten() {
                    memory.put_page(page);
                }
                if pages.len() * 4 < pages.capacity() {
                    pages.shrink_to_fit();
                }
            }
        }
    }

    /// As `give_back`, but also moves the remaining lines into less memory where that is possible, which may first take
    /// some.
    pub(crate) fn truncate(&mut self, memory: &mut Memory, end: u32) {
        self.give_back(memory, end);
        match &mut self.storage {
            Storage::Block(block, class) => {
                let fitting = Class::holding(end as usize * Self::BYTES);
                // The row moves only if its block is at least twice as large as needed, so that one that varies in size
                // does not move each time.
                if let Some(fitting) = fitting.filter(|fitting| fitting.bytes() * 2 <= class.bytes()) {
                    (*block, *class) = (memory.replace_block(*block, fitting), fitting);
                }
            }
            Storage::Pages(_) => self.move_to_block(memory, end),
        }
    }

    /// Releases all memory.
    pub(crate) fn release(&mut self, memory: &mut Memory) {
        match core::mem::replace(&mut self.storage, Storage::Pages(SmallVec::new())) {
            Storage::Block(block, _) => memory.put_block(block),
            Storage::Pages(pages) => pages.into_iter().flatten().for_each(|page| memory.put_page(page)),
        }
    }

    /// Converts a single page that is less than a third in use into a block.
    fn move_to_block(&mut self, memory: &mut Memory, end: u32) {
        let Storage::Pages(pages) = &mut self.storage else { return };
        let length = end as usize * Self::BYTES;
        if !L::STARTS_IN_BLOCK || length == 0 || length > PAGE_BYTES / 3 || pages.len() != 1 {
            return;
        }
        let Some(class) = Class::holding(length) else { return };
        let Some(page) = pages.pop().flatten() else { return };
        let block = memory.take_block(class);
        memory.block_mut(block)[..length].copy_from_slice(&page[..length]);
        memory.put_page(page);
        self.storage = Storage::Block(block, class);
    }

    #[cold]
    fn extend(&mut self, memory: &mut Memory, index: u32) {
        let length = (index as usize + 1).saturating_mul(Self::BYTES);
        match &mut self.storage {
            Storage::Block(block, class) => match Class::holding(length) {
                Some(larger) => (*block, *class) = (memory.replace_block(*block, larger), larger),
                None => {
                    let mut page = memory.take_page();
                    let bytes = memory.block(*block);
                    page[..bytes.len()].copy_from_slice(bytes);
                    memory.put_block(*block);
                    self.storage = Storage::Pages(smallvec![Some(page)]);
                    if index >= Self::PER_PAGE {
                        self.extend(memory, index);
                    }
                }
            },
            Storage::Pages(pages) => {
                if let Some(class) = Class::holding(length).filter(|_| L::STARTS_IN_BLOCK && pages.is_empty())
                {
                    self.storage = Storage::Block(memory.take_block(class), class);
                    return;
                }
                let page_index = (index / Self::PER_PAGE) as usize;
                if pages.len() <= page_index {
                    pages.resize_with(page_index + 1, || None);
                }
                pages[page_index] = Some(memory.take_page());
            }
        }
    }

    fn is_empty(page: &Page) -> bool {
        page.chunks_exact(Self::BYTES).all(|bytes| L::ref_from_bytes(bytes).is_ok_and(Line::is_empty))
    }
}
