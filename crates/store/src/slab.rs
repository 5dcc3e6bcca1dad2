//! Blocks smaller than a page, by size class.
//!
//! Owns the pages that are cut into blocks of one size each. A page whose blocks are all free goes back to the
//! reserve. Free blocks of a page are chained through their own first byte.

use core::num::NonZeroU32;

use crate::arena::{PAGE_BYTES, Page};

/// Sizes of blocks, in bytes: steps of 16, later of a quarter, so that little is wasted at any size.
pub(crate) const CLASS_BYTES: [usize; 20] =
    [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 2048];

const CLASSES: usize = CLASS_BYTES.len();

/// Most sheets of a shard: what is left of the number of a block without the slot.
const SHEETS_MAX: u32 = 1 << 24;

/// End of a chain of free blocks. No page has that many blocks.
const NO_SLOT: u16 = u16::MAX;

const _: () =
    assert!(PAGE_BYTES / CLASS_BYTES[0] <= 256, "a slot number fits the byte that links free blocks");

/// Index into [`CLASS_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(pub(crate) u8);

/// Names a block: which page of the slab, and which slot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(pub(crate) u32);

/// A page cut into blocks.
#[derive(Debug)]
struct Sheet {
    page: Page,
    class: Class,
    used: u16,
    /// First free slot that was used before, or `NO_SLOT`.
    freed: u16,
    /// First slot that was never used.
    fresh: u16,
    /// Neighbours in the list of sheets of this class that have room; index + 1.
    next: Option<NonZeroU32>,
    previous: Option<NonZeroU32>,
}

/// All blocks of one shard.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    sheets: Vec<Option<Sheet>>,
    vacant: Vec<u32>,
    /// First sheet with room of each class; index + 1.
    open: [Option<NonZeroU32>; CLASSES],
}

impl Class {
    /// The smallest class that holds `bytes`, if any does.
    #[inline]
    pub(crate) fn holding(bytes: usize) -> Option<Self> {
        let index = CLASS_BYTES.iter().position(|&size| size >= bytes)?;
        u8::try_from(index).ok().map(Self)
    }

    /// Bytes of a block.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        CLASS_BYTES[usize::from(self.0)]
    }

    fn slots(self) -> u16 {
        u16::try_from(PAGE_BYTES / self.bytes()).unwrap_or(NO_SLOT)
    }
}

impl Block {
    fn new(sheet: u32, slot: u16) -> Self {
        Self(sheet << 8 | u32::from(slot))
    }

    fn sheet(self) -> u32 {
        self.0 >> 8
    }

    fn slot(self) -> u16 {
        (self.0 & 0xff) as u16
    }
}

impl Slab {
    /// A block of this class. Takes a page from `spare` where no sheet has room.
    /// The content is left over from earlier use.
    pub(crate) fn take(&mut self, class: Class, spare: impl FnOnce() -> Page) -> Block {
        let index = match self.open[usize::from(class.0)] {
            Some(open) => open.get() - 1,
            None => self.add_sheet(class, spare()),
        };
        let sheet = self.sheet_mut(index);
        let slot = if sheet.freed == NO_SLOT {
            sheet.fresh += 1;
            sheet.fresh - 1
        } else {
            let slot = sheet.freed;
            let next = sheet.page[usize::from(slot) * class.bytes()];
            // A chain ends by pointing at itself, as a byte has no room for a mark of its own.
            sheet.freed = if u16::from(next) == slot { NO_SLOT } else { u16::from(next) };
            slot
        };
        sheet.used += 1;
        if sheet.used == class.slots() {
            self.unlink(index);
        }
        Block::new(index, slot)
    }

    /// Takes a block back; the page too, if that was its last.
    pub(crate) fn put(&mut self, block: Block) -> Option<Page> {
        let (index, slot) = (block.sheet(), block.slot());
        let sheet = self.sheet_mut(index);
        let class = sheet.class;
        let was_full = sheet.used == class.slots();
        let next = if sheet.freed == NO_SLOT { slot } else { sheet.freed };
        sheet.page[usize::from(slot) * class.bytes()] = (next & 0xff) as u8;
        sheet.freed = slot;
        sheet.used -= 1;
        if sheet.used == 0 {
            if !was_full {
                self.unlink(index);
            }
            self.vacant.push(index);
            return self.sheets[index as usize].take().map(|sheet| sheet.page);
        }
        if was_full {
            self.link(index);
        }
        None
    }

    /// The bytes of a block.
    #[inline]
    pub(crate) fn bytes(&self, block: Block) -> &[u8] {
        let sheet = self.sheets[block.sheet() as usize].as_ref().expect("a block keeps its sheet");
        let size = sheet.class.bytes();
        &sheet.page[usize::from(block.slot()) * size..][..size]
    }

    /// The bytes of a block, to write.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, block: Block) -> &mut [u8] {
        let sheet = self.sheet_mut(block.sheet());
        let size = sheet.class.bytes();
        &mut sheet.page[usize::from(block.slot()) * size..][..size]
    }

    /// Whether most of a block's sheet is free while another sheet has room: if such blocks move, pages become free.
    pub(crate) fn is_stray(&self, block: Block) -> bool {
        let sheet = self.sheets[block.sheet() as usize].as_ref().expect("a block keeps its sheet");
        let open = self.open[usize::from(sheet.class.0)];
        sheet.used * 2 < sheet.class.slots() && open.is_some_and(|open| open.get() - 1 != block.sheet())
    }

    /// Gives all pages back, for the end of the shard.
    pub(crate) fn into_pages(self) -> impl Iterator<Item = Page> {
        self.sheets.into_iter().flatten().map(|sheet| sheet.page)
    }

    fn sheet_mut(&mut self, index: u32) -> &mut Sheet {
        self.sheets[index as usize].as_mut().expect("a block keeps its sheet")
    }

    fn add_sheet(&mut self, class: Class, page: Page) -> u32 {
        let sheet = Sheet { page, class, used: 0, freed: NO_SLOT, fresh: 0, next: None, previous: None };
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.sheets.push(None);
            u32::try_from(self.sheets.len() - 1).expect("a shard has fewer than 2^32 sheets")
        });
        assert!(index < SHEETS_MAX, "a shard has fewer than 2^24 sheets, which are 64 GiB");
        self.sheets[index as usize] = Some(sheet);
        self.link(index);
        index
    }

    /// Puts a sheet at the head of its class's list of sheets with room.
    fn link(&mut self, index: u32) {
        let class = usize::from(self.sheet_mut(index).class.0);
        let this = NonZeroU32::new(index + 1);
        let head = self.open[class];
        if let Some(head) = head {
            self.sheet_mut(head.get() - 1).previous = this;
        }
        let sheet = self.sheet_mut(index);
        (sheet.next, sheet.previous) = (head, None);
        self.open[class] = this;
    }

    fn unlink(&mut self, index: u32) {
        let sheet = self.sheet_mut(index);
        let (next, previous, class) = (sheet.next.take(), sheet.previous.take(), usize::from(sheet.class.0));
        match previous {
            Some(previous) => self.sheet_mut(previous.get() - 1).next = next,
            None => self.open[class] = next,
        }
        if let Some(next) = next {
            self.sheet_mut(next.get() - 1).previous = previous;
        }
    }
}
