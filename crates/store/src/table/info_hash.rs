//! An info hash as lines store it: a column of tags and a column of the rests.
//!
//! The tag is the first two bytes, by which a search finds candidates. An attacker who chooses tags only costs time,
//! since the rest is compared as well.

use shoal_base::InfoHash;
use zerocopy::IntoBytes as _;
use zerocopy::native_endian::U16;

use crate::hash::{HashKey, word};
use crate::memory::compare::{GROUP, equal_bits};

const TAG_BYTES: usize = size_of::<U16>();

pub(crate) type Rest = [u8; size_of::<InfoHash>() - TAG_BYTES];

/// Returns the hash from which tables compute the position of a torrent.
#[inline]
pub(crate) fn hash(info_hash: &InfoHash, key: &HashKey) -> u64 {
    let tail = u32::from_le_bytes(word(&info_hash.0, 16));
    key.hash(
        u64::from_le_bytes(word(&info_hash.0, 0)),
        u64::from_le_bytes(word(&info_hash.0, 8)),
        u64::from(tail),
    )
}

#[inline]
pub(crate) fn tag(info_hash: &InfoHash) -> U16 {
    U16::from_bytes(word(&info_hash.0, 0))
}

/// Returns the bytes after the tag.
#[inline]
pub(crate) fn rest(info_hash: &InfoHash) -> &Rest {
    info_hash.0.last_chunk().expect("the rest is shorter than the whole")
}

#[inline]
pub(crate) fn join(tag: U16, rest: &Rest) -> InfoHash {
    let mut bytes = [0; size_of::<InfoHash>()];
    let (head, tail) = bytes.split_at_mut(TAG_BYTES);
    head.copy_from_slice(tag.as_bytes());
    tail.copy_from_slice(rest);
    InfoHash(bytes)
}

/// Returns the slot of an info hash in a line with `len` of them.
#[inline]
pub(crate) fn slot_of<const N: usize>(
    tags: &[U16; N],
    rests: &[Rest; N],
    len: usize,
    info_hash: &InfoHash,
) -> Option<usize> {
    let (mut hits, rest) = (slots_of_tag(tags, len, tag(info_hash)), rest(info_hash));
    while hits != 0 {
        let slot = hits.trailing_zeros() as usize;
        if rests[slot] == *rest {
            return Some(slot);
        }
        hits &= hits - 1;
    }
    None
}

/// Returns a bit for each of the first `len` slots with this tag.
#[inline(always)]
pub(crate) fn slots_of_tag<const N: usize>(tags: &[U16; N], len: usize, tag: U16) -> u32 {
    const { assert!(N < u32::BITS as usize) };
    let (groups, rest) = tags.as_chunks::<GROUP>();
    let mut hits = 0_u32;
    for (number, group) in groups.iter().enumerate() {
        hits |= equal_bits(group, tag) << (number * GROUP);
    }
    for (slot, other) in rest.iter().enumerate() {
        hits |= u32::from(*other == tag) << (groups.len() * GROUP + slot);
    }
    hits & ((1 << len) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_info_hash_comes_back_from_its_parts() {
        let info_hash = InfoHash(core::array::from_fn(|number| u8::try_from(7 * number).unwrap_or(0)));
        assert_eq!(join(tag(&info_hash), rest(&info_hash)), info_hash);
    }
}
