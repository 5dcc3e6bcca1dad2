//! A line of the table of swarms: as many swarms of one family as fit in 512 bytes, which are 17 of IPv4 and 12 of
//! IPv6.
//!
//! A swarm consists of its info hash, the number of completed downloads, and its form: one peer right here, or a
//! reference to several. The layout begins with a column of the tags (the first two bytes of the info hashes), so that
//! a search compares all of them at once. Then follow the number of swarms, the kinds of the forms, and the downloads,
//! so that a search reads one cache line and then only the rest of the wanted swarm. The ages come last, since no
//! announce to an existing swarm needs them.
//!
//! Downloads beyond [`DOWNLOADS_MAX`] are counted elsewhere: few torrents have that many.

use core::fmt;

use shoal_base::InfoHash;
use zerocopy::native_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::age::{AgeStamp, AgeTime};
use crate::family::Family;
use crate::hash::{HashKey, word};
use crate::memory::prefetch::{prefetch, prefetch_all_lines};
use crate::memory::slab::{Block, Class};
use crate::stamp::Stamp;
use crate::swarm::peer_line::PeerEntry;
use crate::table::Bucket;
use crate::table::info_hash::{self, Rest, slot_of, slots_of_tag};

/// Maximum number of completed downloads in a line.
pub(crate) const DOWNLOADS_MAX: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form<P> {
    /// One peer, without a block.
    Single { entry: PeerEntry<P>, seeds: bool },
    /// A few peers in one block.
    Small {
        block: Block,
        class: Class,
        /// Whether a source has had several peers in the swarm since it last consisted of a single peer.
        is_skewed: bool,
    },
    /// Two tables; `index` refers to the shard's list of large swarms.
    Large { index: u32 },
}

/// A swarm on its way between lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swarm<P> {
    id: InfoHash,
    kind: u8,
    downloads: u8,
    inline: Inline<P>,
    age: AgeStamp,
}

/// Kinds of forms, then one for each class of block.
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

/// Up to `N` swarms, packed at the front, and `PAD` unused bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SwarmLine<P, const N: usize, const PAD: usize> {
    tags: [U16; N],
    len: u8,
    kinds: [u8; N],
    downloads: [u8; N],
    /// The info hashes without their tags.
    rests: [Rest; N],
    inlines: [Inline<P>; N],
    ages: [AgeStamp; N],
    pad: [u8; PAD],
}

const _: () = {
    use crate::family::Stored;
    use shoal_base::{PeerV4, PeerV6};
    assert!(size_of::<<PeerV4 as Stored>::SwarmLine>() == 512);
    assert!(size_of::<<PeerV6 as Stored>::SwarmLine>() == 512);
};

pub(crate) trait SwarmRow<P>: Bucket<Entry = Swarm<P>> {
    fn slot(&self, id: &InfoHash) -> Option<usize>;
    /// Returns the first slot with a swarm's tag, which is nearly always the swarm's slot. Reads only the beginning of
    /// the line.
    fn candidate(&self, id: &InfoHash) -> Option<usize>;
    /// Prefetches a slot's bytes after the beginning of the line, except for the age.
    fn prefetch_entry(&self, slot: usize);
    /// Returns whether a swarm is in this slot.
    fn holds(&self, slot: usize, id: &InfoHash) -> bool;
    fn id(&self, slot: usize) -> InfoHash;
    /// Returns the number of completed downloads of a swarm. If it is the maximum, there may be more.
    fn downloads(&self, slot: usize) -> u8;
    fn set_downloads(&mut self, slot: usize, downloads: u8);
    fn form(&self, slot: usize) -> Form<P>;
    fn set_form(&mut self, slot: usize, form: &Form<P>);
    fn age(&self, slot: usize) -> AgeStamp;
    /// Renews the ages that need it.
    fn renew_ages(&mut self, now: AgeTime);
}

impl<P: Family, const N: usize, const PAD: usize> fmt::Debug for SwarmLine<P, N, PAD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|slot| self.entry(slot))).finish()
    }
}

impl<P: Family, const N: usize, const PAD: usize> SwarmRow<P> for SwarmLine<P, N, PAD> {
    #[inline]
    fn slot(&self, id: &InfoHash) -> Option<usize> {
        slot_of(&self.tags, &self.rests, self.len(), id)
    }

    #[inline]
    fn candidate(&self, id: &InfoHash) -> Option<usize> {
        let hits = slots_of_tag(&self.tags, self.len.into(), info_hash::tag(id));
        (hits != 0).then(|| hits.trailing_zeros() as usize)
    }

    #[inline]
    fn prefetch_entry(&self, slot: usize) {
        prefetch_all_lines(self.rests[slot].as_bytes());
        prefetch_all_lines(self.inlines[slot].as_bytes());
        prefetch(&self.downloads[slot]);
    }

    #[inline]
    fn holds(&self, slot: usize, id: &InfoHash) -> bool {
        slot < self.len() && self.tags[slot] == info_hash::tag(id) && self.rests[slot] == *info_hash::rest(id)
    }

    #[inline]
    fn id(&self, slot: usize) -> InfoHash {
        info_hash::join(self.tags[slot], &self.rests[slot])
    }

    #[inline]
    fn downloads(&self, slot: usize) -> u8 {
        self.downloads[slot]
    }

    #[inline]
    fn set_downloads(&mut self, slot: usize, downloads: u8) {
        self.downloads[slot] = downloads;
    }

    #[inline]
    fn form(&self, slot: usize) -> Form<P> {
        let inline = &self.inlines[slot];
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

    #[inline]
    fn set_form(&mut self, slot: usize, form: &Form<P>) {
        self.kinds[slot] = form.write(&mut self.inlines[slot]);
    }

    #[inline]
    fn age(&self, slot: usize) -> AgeStamp {
        self.ages[slot]
    }

    #[inline]
    fn renew_ages(&mut self, now: AgeTime) {
        let len = self.len();
        for age in &mut self.ages[..len] {
            if let Some(renewed) = age.renewed(now) {
                *age = renewed;
            }
        }
    }
}

impl<P: Family> Form<P> {
    /// Writes everything but the kind, and returns the kind.
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
    pub(crate) fn new(id: &InfoHash, downloads: u8, entry: PeerEntry<P>, seeds: bool, age: AgeStamp) -> Self {
        let inline = Inline { peer: entry.peer, stamp: entry.stamp.0 };
        let kind = if seeds { SINGLE_SEEDER } else { SINGLE_LEECHER };
        Self { id: *id, kind, downloads, inline, age }
    }
}

impl<P: Family, const N: usize, const PAD: usize> Bucket for SwarmLine<P, N, PAD> {
    const SLOTS: usize = N;
    const CHUNK_LINES: usize = 4;
    const STEP_SHARE: usize = 10;
    // A search reads the rest of one swarm only.
    const START_BYTES: usize = 64;

    type Entry = Swarm<P>;

    #[inline]
    fn len(&self) -> usize {
        // The minimum gives the compiler a bound that it cannot infer, and so removes bounds checks.
        usize::from(self.len).min(N)
    }

    #[inline]
    fn hash(&self, slot: usize, key: &HashKey) -> u64 {
        info_hash::hash(&self.id(slot), key)
    }

    #[inline]
    fn entry(&self, slot: usize) -> Swarm<P> {
        Swarm {
            id: self.id(slot),
            kind: self.kinds[slot],
            downloads: self.downloads[slot],
            inline: self.inlines[slot],
            age: self.ages[slot],
        }
    }

    #[inline]
    fn push(&mut self, swarm: &Swarm<P>) {
        let slot = self.len();
        (self.tags[slot], self.rests[slot]) = (info_hash::tag(&swarm.id), *info_hash::rest(&swarm.id));
        self.kinds[slot] = swarm.kind;
        self.downloads[slot] = swarm.downloads;
        self.inlines[slot] = swarm.inline;
        self.ages[slot] = swarm.age;
        self.len += 1;
    }

    #[inline]
    fn take(&mut self, slot: usize) -> Swarm<P> {
        let swarm = self.entry(slot);
        let last = self.len() - 1;
        self.tags[slot] = self.tags[last];
        self.rests[slot] = self.rests[last];
        self.kinds[slot] = self.kinds[last];
        self.downloads[slot] = self.downloads[last];
        self.inlines[slot] = self.inlines[last];
        self.ages[slot] = self.ages[last];
        self.len -= 1;
        swarm
    }
}
