//! Blocks smaller than a page, by size class.
//!
//! This module owns the pages that are divided into blocks of one size each. A page returns to the reserve when all its
//! blocks are free. Free blocks of a page are linked through their own first two bytes.
//!
//! There are 38 sizes. A whole number of the larger blocks nearly fills a page. The pages of a size are 98 to 100 %
//! full even while all swarms grow.

use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::memory::arena::{PAGE_BYTES, Page};

/// Sizes of blocks, in bytes. Up to 128 they rise by 8 or 16, then by an eighth or less. From 576 on, a whole number of
/// them just fits in a page.
pub(crate) const CLASS_BYTES: [usize; 38] = [
    16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 112, 128, 144, 160, 176, 192, 208, 232, 256, 288, 320, 352,
    384, 424, 464, 512, 584, 624, 680, 744, 816, 904, 1024, 1168, 1360, 1632, 2048,
];

const CLASSES: usize = CLASS_BYTES.len();

pub(crate) const BLOCK_BYTES_MAX: usize = CLASS_BYTES[CLASSES - 1];

/// Unit of the offset of a block in its page, in bytes.
const OFFSET_UNIT: usize = 8;

const OFFSET_BITS: u32 = (PAGE_BYTES / OFFSET_UNIT).trailing_zeros();

/// Maximum number of slab pages of a shard, which are 32 GiB.
const PAGES_MAX: u32 = 1 << (u32::BITS - OFFSET_BITS);

/// End of a list of free blocks. No page has that many blocks.
const NO_SLOT: u16 = u16::MAX;

/// Index into [`CLASS_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Class(pub(crate) u8);

/// Identifies a block: the page of the slab, and the offset in it in units of 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Block(pub(crate) u32);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Division {
    class: Class,
    used: u16,
    /// First free slot that was used before, or `NO_SLOT`.
    freed: u16,
    /// First slot that was never used.
    fresh: u16,
    /// Neighbours in the list of this class's pages with free blocks; index + 1.
    next: Option<NonZeroU32>,
    previous: Option<NonZeroU32>,
}

#[derive(Debug)]
pub(crate) struct Slab {
    /// The pages, apart from their divisions, because an access to a block needs only this.
    pages: Vec<Option<Page>>,
    divisions: Vec<Division>,
    vacant: Vec<u32>,
    /// First page of each class with free blocks; index + 1.
    open: [Option<NonZeroU32>; CLASSES],
}

/// A slab with the indices of its pages instead of the pages.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SlabImage {
    pages: Vec<Option<u32>>,
    divisions: Vec<Division>,
    vacant: Vec<u32>,
    open: Vec<Option<NonZeroU32>>,
}

impl Class {
    /// Returns the smallest class that holds `bytes`, if there is one.
    #[inline]
    pub(crate) fn holding(bytes: usize) -> Option<Self> {
        let index = CLASS_BYTES.partition_point(|&size| size < bytes);
        u8::try_from(index).ok().filter(|_| index < CLASSES).map(Self)
    }

    #[inline]
    pub(crate) fn bytes(self) -> usize {
        CLASS_BYTES[usize::from(self.0)]
    }

    fn slots(self) -> u16 {
        u16::try_from(PAGE_BYTES / self.bytes()).unwrap_or(NO_SLOT)
    }
}

impl Block {
    fn new(page_index: u32, offset: usize) -> Self {
        let units = u32::try_from(offset / OFFSET_UNIT).expect("an offset is below the size of a page");
        Self(page_index << OFFSET_BITS | units)
    }

    #[inline]
    fn page_index(self) -> u32 {
        self.0 >> OFFSET_BITS
    }

    #[inline]
    fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize * OFFSET_UNIT
    }

    fn slot(self, class: Class) -> u16 {
        u16::try_from(self.offset() / class.bytes()).unwrap_or(NO_SLOT)
    }
}

impl Slab {
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new(), divisions: Vec::new(), vacant: Vec::new(), open: [None; CLASSES] }
    }

    /// Returns the image of this slab. `index` returns the index of a page.
    pub(crate) fn image(&self, index: impl Fn(&Page) -> u32) -> SlabImage {
        SlabImage {
            pages: self.pages.iter().map(|page| page.as_ref().map(&index)).collect(),
            divisions: self.divisions.clone(),
            vacant: self.vacant.clone(),
            open: self.open.to_vec(),
        }
    }

    /// Creates the slab of an image, whose pages `claim` returns. Returns `None` if one is missing.
    pub(crate) fn resume(image: SlabImage, mut claim: impl FnMut(u32) -> Option<Page>) -> Option<Self> {
        let mut pages = Vec::with_capacity(image.pages.len());
        for index in image.pages {
            pages.push(match index {
                Some(index) => Some(claim(index)?),
                None => None,
            });
        }
        let open = image.open.try_into().ok()?;
        Some(Self { pages, divisions: image.divisions, vacant: image.vacant, open })
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages.iter().flatten().count()
    }

    /// Allocates a block of this class, with old content. Takes a page from `spare` if no slab page has a free block.
    pub(crate) fn take(&mut self, class: Class, spare: impl FnOnce() -> Page) -> Block {
        let index = match self.open[usize::from(class.0)] {
            Some(open) => open.get() - 1,
            None => self.add_page(class, spare()),
        };
        let division = &mut self.divisions[index as usize];
        let slot = if division.freed == NO_SLOT {
            division.fresh += 1;
            division.fresh - 1
        } else {
            division.freed
        };
        division.used += 1;
        let block = Block::new(index, usize::from(slot) * class.bytes());
        if division.freed != NO_SLOT {
            let next = self.link_of(block);
            self.divisions[index as usize].freed = next;
        }
        if self.divisions[index as usize].used == class.slots() {
            self.unlink(index);
        }
        block
    }

    /// Frees a block. Returns its page if the page has no more blocks in use.
    pub(crate) fn put(&mut self, block: Block) -> Option<Page> {
        let index = block.page_index();
        let division = &mut self.divisions[index as usize];
        let class = division.class;
        let was_full = division.used == class.slots();
        let next = core::mem::replace(&mut division.freed, block.slot(class));
        division.used -= 1;
        if division.used == 0 {
            if !was_full {
                self.unlink(index);
            }
            self.vacant.push(index);
            return self.pages[index as usize].take();
        }
        let link = self.bytes_mut(block, size_of::<u16>());
        link.copy_from_slice(&next.to_ne_bytes());
        if was_full {
            self.link(index);
        }
        None
    }

    /// Returns the page of a block, and the offset of the block in it.
    #[inline]
    pub(crate) fn place(&self, block: Block) -> (&Page, usize) {
        let page = self.pages[block.page_index() as usize].as_ref();
        (page.expect("a page with blocks in use stays in the slab"), block.offset())
    }

    #[inline]
    pub(crate) fn place_mut(&mut self, block: Block) -> (&mut Page, usize) {
        let page = self.pages[block.page_index() as usize].as_mut();
        (page.expect("a page with blocks in use stays in the slab"), block.offset())
    }

    #[inline]
    pub(crate) fn bytes(&self, block: Block, length: usize) -> &[u8] {
        let (page, offset) = self.place(block);
        &page[offset..][..length]
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, block: Block, length: usize) -> &mut [u8] {
        let (page, offset) = self.place_mut(block);
        &mut page[offset..][..length]
    }

    /// Returns whether most of a block's page is free while another page has free blocks. Moving such blocks frees
    /// pages.
    pub(crate) fn is_stray(&self, block: Block) -> bool {
        let division = &self.divisions[block.page_index() as usize];
        let open = self.open[usize::from(division.class.0)];
        division.used * 2 < division.class.slots()
            && open.is_some_and(|open| open.get() - 1 != block.page_index())
    }

    /// Returns all pages, when the shard is dropped.
    pub(crate) fn into_pages(self) -> impl Iterator<Item = Page> {
        self.pages.into_iter().flatten()
    }

    /// Returns the slot that a free block links to.
    fn link_of(&self, block: Block) -> u16 {
        let mut link = [0; size_of::<u16>()];
        link.copy_from_slice(self.bytes(block, size_of::<u16>()));
        u16::from_ne_bytes(link)
    }

    fn add_page(&mut self, class: Class, page: Page) -> u32 {
        let division = Division { class, used: 0, freed: NO_SLOT, fresh: 0, next: None, previous: None };
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.pages.push(None);
            self.divisions.push(division);
            u32::try_from(self.pages.len() - 1).expect("a shard has fewer than 2^32 slab pages")
        });
        assert!(index < PAGES_MAX, "a shard has fewer than 2^22 slab pages, which are 32 GiB");
        self.pages[index as usize] = Some(page);
        self.divisions[index as usize] = division;
        self.link(index);
        index
    }

    /// Inserts a page at the head of its class's list of pages with free blocks.
    fn link(&mut self, index: u32) {
        let class = usize::from(self.divisions[index as usize].class.0);
        let this = NonZeroU32::new(index + 1);
        let head = self.open[class];
        if let Some(head) = head {
            self.divisions[head.get() as usize - 1].previous = this;
        }
        let division = &mut self.divisions[index as usize];
        (division.next, division.previous) = (head, None);
        self.open[class] = this;
    }

    fn unlink(&mut self, index: u32) {
        let division = &mut self.divisions[index as usize];
        let (next, previous, class) =
            (division.next.take(), division.previous.take(), usize::from(division.class.0));
        match previous {
            Some(previous) => self.divisions[previous.get() as usize - 1].next = next,
            None => self.open[class] = next,
        }
        if let Some(next) = next {
            self.divisions[next.get() as usize - 1].previous = previous;
        }
    }
}
