//! Blocks smaller than a page, by size class.
//!
//! This module owns the pages that are divided into blocks of one size each. A page whose blocks are all free returns
//! to the reserve. Free blocks of a page are linked through their own first byte.

use core::num::NonZeroU32;

use crate::arena::{PAGE_BYTES, Page};

/// Sizes of blocks, in bytes: in steps of 16, later of a quarter, so that little is wasted at any size.
pub(crate) const CLASS_BYTES: [usize; 20] =
    [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 2048];

const CLASSES: usize = CLASS_BYTES.len();

/// Maximum number of slab pages of a shard: the number of a block, without the slot, must fit in 24 bits.
const PAGES_MAX: u32 = 1 << 24;

/// End of a list of free blocks. No page has that many blocks.
const NO_SLOT: u16 = u16::MAX;

const _: () =
    assert!(PAGE_BYTES / CLASS_BYTES[0] <= 256, "a slot number fits the byte that links free blocks");

/// Index into [`CLASS_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(pub(crate) u8);

/// Identifies a block: the page of the slab, and the slot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(pub(crate) u32);

/// A page divided into blocks.
#[derive(Debug)]
struct SlabPage {
    page: Page,
    class: Class,
    used: u16,
    /// First free slot that was used before, or `NO_SLOT`.
    freed: u16,
    /// First slot that was never used.
    fresh: u16,
    /// Neighbours in the list of pages of this class that have free blocks; index + 1.
    next: Option<NonZeroU32>,
    previous: Option<NonZeroU32>,
}

/// All blocks of one shard.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    pages: Vec<Option<SlabPage>>,
    vacant: Vec<u32>,
    /// First page of each class that has free blocks; index + 1.
    open: [Option<NonZeroU32>; CLASSES],
}

impl Class {
    /// Returns the smallest class that holds `bytes`, if there is one.
    #[inline]
    pub(crate) fn holding(bytes: usize) -> Option<Self> {
        let index = CLASS_BYTES.iter().position(|&size| size >= bytes)?;
        u8::try_from(index).ok().map(Self)
    }

    /// Returns the size of a block in bytes.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        CLASS_BYTES[usize::from(self.0)]
    }

    fn slots(self) -> u16 {
        u16::try_from(PAGE_BYTES / self.bytes()).unwrap_or(NO_SLOT)
    }
}

impl Block {
    fn new(page_index: u32, slot: u16) -> Self {
        Self(page_index << 8 | u32::from(slot))
    }

    fn page_index(self) -> u32 {
        self.0 >> 8
    }

    fn slot(self) -> u16 {
        (self.0 & 0xff) as u16
    }
}

impl Slab {
    /// Allocates a block of this class. Takes a page from `spare` if no slab page has a free block. The content is left
    /// over from earlier use.
    pub(crate) fn take(&mut self, class: Class, spare: impl FnOnce() -> Page) -> Block {
        let index = match self.open[usize::from(class.0)] {
            Some(open) => open.get() - 1,
            None => self.add_page(class, spare()),
        };
        let slab_page = self.page_mut(index);
        let slot = if slab_page.freed == NO_SLOT {
            slab_page.fresh += 1;
            slab_page.fresh - 1
        } else {
            let slot = slab_page.freed;
            let next = slab_page.page[usize::from(slot) * class.bytes()];
            // The last block of a list refers to itself, since a byte has no value left for an end mark.
            slab_page.freed = if u16::from(next) == slot { NO_SLOT } else { u16::from(next) };
            slot
        };
        slab_page.used += 1;
        if slab_page.used == class.slots() {
            self.unlink(index);
        }
        Block::new(index, slot)
    }

    /// Frees a block. Returns its page if that was the last block in use.
    pub(crate) fn put(&mut self, block: Block) -> Option<Page> {
        let (index, slot) = (block.page_index(), block.slot());
        let slab_page = self.page_mut(index);
        let class = slab_page.class;
        let was_full = slab_page.used == class.slots();
        let next = if slab_page.freed == NO_SLOT { slot } else { slab_page.freed };
        slab_page.page[usize::from(slot) * class.bytes()] = (next & 0xff) as u8;
        slab_page.freed = slot;
        slab_page.used -= 1;
        if slab_page.used == 0 {
            if !was_full {
                self.unlink(index);
            }
            self.vacant.push(index);
            return self.pages[index as usize].take().map(|slab_page| slab_page.page);
        }
        if was_full {
            self.link(index);
        }
        None
    }

    /// Returns the bytes of a block.
    #[inline]
    pub(crate) fn bytes(&self, block: Block) -> &[u8] {
        let slab_page = self.pages[block.page_index() as usize]
            .as_ref()
            .expect("a page with blocks in use stays in the slab");
        let size = slab_page.class.bytes();
        &slab_page.page[usize::from(block.slot()) * size..][..size]
    }

    /// Returns the bytes of a block, for writing.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, block: Block) -> &mut [u8] {
        let slab_page = self.page_mut(block.page_index());
        let size = slab_page.class.bytes();
        &mut slab_page.page[usize::from(block.slot()) * size..][..size]
    }

    /// Returns whether most of a block's page is free while another page has free blocks. If such blocks move, pages
    /// become free.
    pub(crate) fn is_stray(&self, block: Block) -> bool {
        let slab_page = self.pages[block.page_index() as usize]
            .as_ref()
            .expect("a page with blocks in use stays in the slab");
        let open = self.open[usize::from(slab_page.class.0)];
        slab_page.used * 2 < slab_page.class.slots()
            && open.is_some_and(|open| open.get() - 1 != block.page_index())
    }

    /// Returns all pages, when the shard is dropped.
    pub(crate) fn into_pages(self) -> impl Iterator<Item = Page> {
        self.pages.into_iter().flatten().map(|slab_page| slab_page.page)
    }

    fn page_mut(&mut self, index: u32) -> &mut SlabPage {
        self.pages[index as usize].as_mut().expect("a page with blocks in use stays in the slab")
    }

    fn add_page(&mut self, class: Class, page: Page) -> u32 {
        let slab_page =
            SlabPage { page, class, used: 0, freed: NO_SLOT, fresh: 0, next: None, previous: None };
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.pages.push(None);
            u32::try_from(self.pages.len() - 1).expect("a shard has fewer than 2^32 slab pages")
        });
        assert!(index < PAGES_MAX, "a shard has fewer than 2^24 slab pages, which are 64 GiB");
        self.pages[index as usize] = Some(slab_page);
        self.link(index);
        index
    }

    /// Inserts a page at the head of its class's list of pages with free blocks.
    fn link(&mut self, index: u32) {
        let class = usize::from(self.page_mut(index).class.0);
        let this = NonZeroU32::new(index + 1);
        let head = self.open[class];
        if let Some(head) = head {
            self.page_mut(head.get() - 1).previous = this;
        }
        let slab_page = self.page_mut(index);
        (slab_page.next, slab_page.previous) = (head, None);
        self.open[class] = this;
    }

    fn unlink(&mut self, index: u32) {
        let slab_page = self.page_mut(index);
        let (next, previous, class) =
            (slab_page.next.take(), slab_page.previous.take(), usize::from(slab_page.class.0));
        match previous {
            Some(previous) => self.page_mut(previous.get() - 1).next = next,
            None => self.open[class] = next,
        }
        if let Some(next) = next {
            self.page_mut(next.get() - 1).previous = previous;
        }
    }
}
