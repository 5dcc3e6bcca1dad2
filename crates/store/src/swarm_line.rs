//! A line of the table of swarms: eight swarms of one family.
//!
//! A swarm consists of its info hash, the number of completed downloads, and its form: either one peer that is stored
//! right here, or a reference to several. The layout begins with the tags (the first four bytes of the info hashes) in
//! a column, so that a search compares all eight at once; then follow the kinds of the forms, and then the rest of each
//! swarm. A line takes 256 bytes for IPv4 and 352 for IPv6.

use shoal_types::InfoHash;
use zerocopy::native_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::family::Family;
use crate::hash::{HashKey, word};
use crate::level::{Ladder, SIXTHS};
use crate::lines::Line;
use crate::peer_line::PeerEntry;
use crate::slab::{Block, Class};
use crate::stamp::Stamp;
use crate::table::Bucket;

/// Number of swarms in a line.
const SLOTS: usize = 8;

/// How the peers of a swarm are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form<P> {
    /// One peer, without memory of its own.
    Single { entry: PeerEntry<P>, seeds: bool },
    /// A few peers in one block.
    Small {
        block: Block,
        class: Class,
        /// Whether some source has had several peers in it since the swarm last consisted of a single peer.
        is_skewed: bool,
    },
    /// Two tables; `index` refers to the shard's list of large swarms.
    Large { index: u32 },
}

/// A swarm as it is moved between lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swarm<P> {
    tag: U32,
    kind: u8,
    body: Body<P>,
}

/// Kinds of forms: 0 is an empty slot, then follow these, then one for each class of block.
const SINGLE_LEECHER: u8 = 1;
const SINGLE_SEEDER: u8 = 2;
const LARGE: u8 = 3;
const SMALL: u8 = 4;

/// Flag in the kind of a small swarm that is skewed.
const SKEWED: u8 = 0x80;

/// A peer and its stamp, or the number of a block or large swarm in the first four bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Inline<P> {
    peer: P,
    stamp: u8,
}

/// The part of a swarm that a search reads only in the matching slot.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Body<P> {
    /// The info hash without its tag.
    rest: [u8; 16],
    completed: U32,
    inline: Inline<P>,
}

/// Up to eight swarms, packed at the front.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SwarmLine<P> {
    tags: [U32; SLOTS],
    kinds: [u8; SLOTS],
    bodies: [Body<P>; SLOTS],
}

const _: () = assert!(size_of::<SwarmLine<shoal_types::PeerV4>>() == 256, "32 bytes a swarm");
const _: () = assert!(size_of::<SwarmLine<shoal_types::PeerV6>>() == 352, "44 bytes a swarm");

impl<P: Family> SwarmLine<P> {
    /// Returns the slot of a swarm.
    #[inline]
    pub(crate) fn slot(&self, info_hash: &InfoHash) -> Option<usize> {
        let tag = U32::from_bytes(word(&info_hash.0, 0));
        let mut hits = 0_u32;
        for (slot, other) in self.tags.iter().enumerate() {
            hits |= u32::from(other.get() == tag.get()) << slot;
        }
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            if self.kinds[slot] != 0 && self.bodies[slot].rest == info_hash.0[4..] {
                return Some(slot);
            }
            hits &= hits - 1;
        }
        None
    }

    /// Returns the info hash of a swarm.
    #[inline]
    pub(crate) fn info_hash(&self, slot: usize) -> InfoHash {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(self.tags[slot].as_bytes());
        bytes[4..].copy_from_slice(&self.bodies[slot].rest);
        InfoHash(bytes)
    }

    /// Returns the number of completed downloads of a swarm.
    #[inline]
    pub(crate) fn completed(&self, slot: usize) -> u32 {
        self.bodies[slot].completed.get()
    }

    /// Counts another completed download.
    #[inline]
    pub(crate) fn count_completed(&mut self, slot: usize) {
        self.bodies[slot].completed.set(self.completed(slot).saturating_add(1));
    }

    /// Returns how the peers of a swarm are stored.
    #[inline]
    pub(crate) fn form(&self, slot: usize) -> Form<P> {
        let inline = &self.bodies[slot].inline;
        let number = u32::from_ne_bytes(word(inline.as_bytes(), 0));
        match self.kinds[slot] {
            kind @ (SINGLE_LEECHER | SINGLE_SEEDER) => Form::Single {
                entry: PeerEntry { peer: inline.peer, stamp: Stamp(inline.stamp) },
                seeds: kind == SINGLE_SEEDER,
            },
            LARGE => Form::Large { index: number },
            kind => Form::Small {
                block: Block(number),
                class: Class((kind & !SKEWED).saturating_sub(SMALL)),
                is_skewed: kind & SKEWED != 0,
            },
        }
    }

    /// Changes how the peers of a swarm are stored.
    #[inline]
    pub(crate) fn set_form(&mut self, slot: usize, form: &Form<P>) {
        self.kinds[slot] = form.write(&mut self.bodies[slot].inline);
    }
}

impl<P: Family> Form<P> {
    /// Writes everything but the kind, which it returns.
    #[inline]
    fn write(&self, inline: &mut Inline<P>) -> u8 {
        let (kind, number) = match self {
            Self::Single { entry, seeds } => {
                *inline = Inline { peer: entry.peer, stamp: entry.stamp.0 };
                return if *seeds { SINGLE_SEEDER } else { SINGLE_LEECHER };
            }
            Self::Small { block, class, is_skewed } => {
                ((SMALL + class.0) | if *is_skewed { SKEWED } else { 0 }, block.0)
            }
            Self::Large { index } => (LARGE, *index),
        };
        inline.as_mut_bytes()[..4].copy_from_slice(&number.to_ne_bytes());
        kind
    }
}

impl<P: Family> Swarm<P> {
    /// Creates a swarm of one peer.
    pub(crate) fn new(info_hash: &InfoHash, completed: u32, entry: PeerEntry<P>, seeds: bool) -> Self {
        let (tag, rest) = (U32::from_bytes(word(&info_hash.0, 0)), word(&info_hash.0, 4));
        let inline = Inline { peer: entry.peer, stamp: entry.stamp.0 };
        let kind = if seeds { SINGLE_SEEDER } else { SINGLE_LEECHER };
        Self { tag, kind, body: Body { rest, completed: U32::new(completed), inline } }
    }
}

impl<P: Family> Line for SwarmLine<P> {
    const STARTS_IN_BLOCK: bool = false;

    #[inline]
    fn is_empty(&self) -> bool {
        self.kinds[0] == 0
    }
}

impl<P: Family> Bucket for SwarmLine<P> {
    const SLOTS: usize = SLOTS;
    const FILL_64THS: u32 = 49;
    const LADDER: &'static Ladder = &SIXTHS;

    type Entry = Swarm<P>;

    #[inline]
    fn len(&self) -> usize {
        let empty_bits = u64::from_le_bytes(self.kinds).leading_zeros();
        SLOTS - (empty_bits / u8::BITS) as usize
    }

    #[inline]
    fn hash(&self, slot: usize, key: &HashKey) -> u64 {
        hash(&self.info_hash(slot), key)
    }

    #[inline]
    fn entry(&self, slot: usize) -> Swarm<P> {
        Swarm { tag: self.tags[slot], kind: self.kinds[slot], body: self.bodies[slot] }
    }

    #[inline]
    fn push(&mut self, swarm: &Swarm<P>) {
        let slot = self.len();
        self.tags[slot] = swarm.tag;
        self.kinds[slot] = swarm.kind;
        self.bodies[slot] = swarm.body;
    }

    #[inline]
    fn take(&mut self, slot: usize) -> Swarm<P> {
        let swarm = self.entry(slot);
        let last = self.len() - 1;
        self.tags[slot] = self.tags[last];
        self.kinds[slot] = self.kinds[last];
        self.bodies[slot] = self.bodies[last];
        self.kinds[last] = 0;
        swarm
    }

    #[inline]
    fn clear(&mut self) {
        self.kinds = [0; SLOTS];
    }
}

/// Returns the hash of an info hash.
#[inline]
pub(crate) fn hash(info_hash: &InfoHash, key: &HashKey) -> u64 {
    let bytes = &info_hash.0;
    let tail = u32::from_le_bytes(word(bytes, 16));
    key.hash(u64::from_le_bytes(word(bytes, 0)), u64::from_le_bytes(word(bytes, 8)), u64::from(tail))
}
