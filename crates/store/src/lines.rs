//! A long row of lines (buckets of a table) that is allocated piecemeal and may have holes.
//!
//! A short row is one block; a longer one is a list of pages, of which those that hold nothing may be missing.
//! Owns its memory only as tokens: whoever drops a row must have given its memory back.

use core::marker::PhantomData;

use smallvec::{SmallVec, smallvec};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::arena::{PAGE_BYTES, Page};
use crate::memory::Memory;
use crate::prefetch::{prefetch, prefetch_with_next};
use crate::slab::{Block, Class};

/// A line: plain bytes of which all zeroes is an empty line.
pub(crate) trait Line: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned {
    /// Whether a short row of such lines is worth a block: there are many short rows of them.
    const STARTS_IN_BLOCK: bool;

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool;
}

/// The row.
#[derive(Debug)]
pub(crate) struct Lines<L> {
    storage: Storage,
    line: PhantomData<L>,
}

#[derive(Debug)]
enum Storage {
    Block(Block, Class),
    /// The first two have their place right here, which saves a table of some hundred peers a cache miss.
    Pages(SmallVec<[Option<Page>; 2]>),
}

impl<L: Line> Lines<L> {
    const BYTES: usize = size_of::<L>();

    /// Lines of one page.
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

    /// The line, if its place has memory.
    #[inline]
    pub(crate) fn line<'a>(&'a self, memory: &'a Memory, index: u32) -> Option<&'a L> {
        L::ref_from_bytes(self.bytes(memory, index, Self::BYTES)?).ok()
    }

    /// Three lines in a row, if they lie in one piece of memory.
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

    /// The line to write, if its place has memory.
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

    /// The line to write, with memory for it.
    #[inline(always)]
    pub(crate) fn line_ensured<'a>(&'a mut self, memory: &'a mut Memory, index: u32) -> &'a mut L {
        let has_memory = match &self.storage {
            Storage::Block(_, class) => (index as usize + 1) * Self::BYTES <= class.bytes(),
            Storage::Pages(pages) => matches!(pages.get((index / Self::PER_PAGE) as usize), Some(Some(_))),
        };
        if !has_memory {
            self.extend(memory, index);
        }
        self.line_mut(memory, index).expect("the place has memory since the line above")
    }

    /// Starts loading the line.
    #[inline]
    pub(crate) fn prefetch(&self, memory: &Memory, index: u32) {
        if let Some(line) = self.line(memory, index) {
            prefetch(line);
        }
    }

    /// Starts loading the line and the one behind it.
    #[inline]
    pub(crate) fn prefetch_two(&self, memory: &Memory, index: u32) {
        if let Some(line) = self.line(memory, index) {
            prefetch_with_next(line);
        }
    }

    /// Gives the page back that holds `index`, if it is empty.
    pub(crate) fn release_page(&mut self, memory: &mut Memory, index: u32) {
        let Storage::Pages(pages) = &mut self.storage else { return };
        let Some(place) = pages.get_mut((index / Self::PER_PAGE) as usize) else { return };
        if place.as_ref().is_some_and(|page| Self::is_empty(page)) {
            memory.put_page(place.take().expect("it is there, as the line above has seen it"));
        }
    }

    /// Gives back the pages at and behind `end`, all of which are empty, and a block if nothing is left.
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

    /// As `give_back`, and moves what is left into less memory where that is possible, which may take some first.
    pub(crate) fn truncate(&mut self, memory: &mut Memory, end: u32) {
        self.give_back(memory, end);
        match &mut self.storage {
            Storage::Block(block, class) => {
                let fitting = Class::holding(end as usize * Self::BYTES);
                // Twice as large as needed is the sign, so that a row that breathes is not moved each time.
                if let Some(fitting) = fitting.filter(|fitting| fitting.bytes() * 2 <= class.bytes()) {
                    (*block, *class) = (memory.replace_block(*block, fitting), fitting);
                }
            }
            Storage::Pages(_) => self.move_to_block(memory, end),
        }
    }

    /// Gives everything back.
    pub(crate) fn release(&mut self, memory: &mut Memory) {
        match core::mem::replace(&mut self.storage, Storage::Pages(SmallVec::new())) {
            Storage::Block(block, _) => memory.put_block(block),
            Storage::Pages(pages) => pages.into_iter().flatten().for_each(|page| memory.put_page(page)),
        }
    }

    /// Turns a single page that is less than a third in use into a block.
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
                let place = (index / Self::PER_PAGE) as usize;
                if pages.len() <= place {
                    pages.resize_with(place + 1, || None);
                }
                pages[place] = Some(memory.take_page());
            }
        }
    }

    fn is_empty(page: &Page) -> bool {
        page.chunks_exact(Self::BYTES).all(|bytes| L::ref_from_bytes(bytes).is_ok_and(Line::is_empty))
    }
}
