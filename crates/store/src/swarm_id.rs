//! The identity of a swarm in the tables of a store: its info hash, or a fingerprint of that.
//!
//! A fingerprint is 12 bytes of SipHash-2-4 with an output of 128 bits, under a secret key of the process. It saves eight
//! bytes a torrent, but the info hash cannot be recovered from it, so such a store cannot list its torrents. Two torrents
//! with equal fingerprints would be one swarm. That happens by chance only, because no one else has the key: with
//! 10⁹ torrents, the chance that any two of them collide is 6·10⁻¹² (n² / 2⁹⁷).
//!
//! SipHash is a pseudo-random function, as opposed to the hash by which tables find positions ([`crate::hash`]). A
//! position may collide, which costs time; a fingerprint may not, because it stands for the torrent itself.

use core::fmt;
use core::fmt::Debug;

use shoal_base::InfoHash;
use siphasher::sip128::SipHasher24;
use zerocopy::native_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::age::{AgeStamp, StoredAge, UnknownAge};
use crate::family::Stored;
use crate::hash::{HashKey, word};
use crate::retained::{RetainedLine, RetainedRow};
use crate::swarm_line::SwarmRow;

/// The identity of a swarm in a store: [`InfoHash`] or [`Fingerprint`].
#[expect(private_bounds, reason = "sealed: the requirements of the store on an identity are private")]
pub trait SwarmId: Identity {}

/// The part of an identity that only the store needs.
pub(crate) trait Identity: Copy + Ord + Debug + Send + Sync {
    /// The secret from which it is computed.
    type Secret: Copy + Debug + Send + Sync;

    /// The identity without its tag.
    type Rest: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy + Eq + Debug + Send + Sync;

    /// The age of a swarm in a line, if lines have one.
    type Age: StoredAge;

    /// A line of the table of swarms.
    type Line<P: Stored>: SwarmRow<P, Self> + Debug + Send + Sync;

    /// A line of the table of torrents without peers.
    type RetainedLine: RetainedRow<Self> + Debug + Send + Sync;

    /// Returns the identity of the swarms of a torrent.
    fn of(info_hash: &InfoHash, secret: &Self::Secret) -> Self;
    /// Returns the bytes in which a [`Place`](crate::Place) carries it through a request. A front end may hold places without
    /// knowing the mode of the store.
    fn in_place(&self) -> InfoHash;
    /// Returns the identity that a place carries.
    fn of_place(bytes: &InfoHash) -> &Self;
    /// Returns the hash from which tables compute the position of the swarm.
    fn hash(&self, key: &HashKey) -> u64;
    /// Returns the first two bytes, by which a search finds candidates.
    fn tag(&self) -> U16;
    /// Returns the bytes behind the tag.
    fn rest(&self) -> &Self::Rest;
    /// Returns the identity with this tag and rest.
    fn join(tag: U16, rest: &Self::Rest) -> Self;
}

/// Number of bytes of an identity in its tag.
const TAG_BYTES: usize = size_of::<U16>();

/// Returns the slot of an identity in a line with `len` of them, which are stored as a column of tags and one of the rests.
#[inline]
pub(crate) fn slot_of<I: Identity, const N: usize>(
    tags: &[U16; N],
    rests: &[I::Rest; N],
    len: usize,
    id: &I,
) -> Option<usize> {
    let (mut hits, rest) = (slots_of_tag(tags, len, id.tag()), id.rest());
    while hits != 0 {
        let slot = hits.trailing_zeros() as usize;
        if rests[slot] == *rest {
            return Some(slot);
        }
        hits &= hits - 1;
    }
    None
}

/// Returns a bit for each of the first `len` slots that has this tag.
#[inline(always)]
pub(crate) fn slots_of_tag<const N: usize>(tags: &[U16; N], len: usize, tag: U16) -> u32 {
    const { assert!(N < u32::BITS as usize) };
    let mut hits = 0_u32;
    for (slot, other) in tags.iter().enumerate() {
        hits |= u32::from(other.get() == tag.get()) << slot;
    }
    hits & ((1 << len) - 1)
}

/// Returns the bytes of an identity, which has as many as its tag and its rest.
#[inline]
fn joined<const BYTES: usize>(tag: U16, rest: &[u8]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let (head, tail) = bytes.split_at_mut(TAG_BYTES);
    head.copy_from_slice(tag.as_bytes());
    tail.copy_from_slice(rest);
    bytes
}

/// Size of a fingerprint in bytes.
const FINGERPRINT_BYTES: usize = 12;

/// A keyed fingerprint of an info hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Fingerprint(pub(crate) [u8; FINGERPRINT_BYTES]);

/// The secret key of fingerprints. Every process should have its own: with the key, two info hashes with equal
/// fingerprints can be computed in some 2⁴⁸ attempts.
#[derive(Clone, Copy)]
pub struct FingerprintKey(SipHasher24);

impl FingerprintKey {
    /// Creates a key from random bytes.
    #[must_use]
    pub fn new(bytes: &[u8; 16]) -> Self {
        Self(SipHasher24::new_with_key(bytes))
    }
}

impl Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey(secret)")
    }
}

impl Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

impl SwarmId for InfoHash {}

impl Identity for InfoHash {
    type Secret = ();
    type Rest = [u8; size_of::<Self>() - TAG_BYTES];
    type Age = AgeStamp;
    type Line<P: Stored> = P::SwarmLine;
    type RetainedLine = RetainedLine<Self, 19, 17>;

    #[inline]
    fn of(info_hash: &InfoHash, (): &()) -> Self {
        *info_hash
    }

    #[inline]
    fn in_place(&self) -> InfoHash {
        *self
    }

    #[inline]
    fn of_place(bytes: &InfoHash) -> &Self {
        bytes
    }

    #[inline]
    fn hash(&self, key: &HashKey) -> u64 {
        let tail = u32::from_le_bytes(word(&self.0, 16));
        key.hash(u64::from_le_bytes(word(&self.0, 0)), u64::from_le_bytes(word(&self.0, 8)), u64::from(tail))
    }

    #[inline]
    fn tag(&self) -> U16 {
        U16::from_bytes(word(&self.0, 0))
    }

    #[inline]
    fn rest(&self) -> &Self::Rest {
        self.0.last_chunk().expect("the rest is shorter than the whole")
    }

    #[inline]
    fn join(tag: U16, rest: &Self::Rest) -> Self {
        Self(joined(tag, rest))
    }
}

impl SwarmId for Fingerprint {}

impl Identity for Fingerprint {
    type Secret = FingerprintKey;
    type Rest = [u8; FINGERPRINT_BYTES - TAG_BYTES];
    type Age = UnknownAge;
    type Line<P: Stored> = P::FingerprintLine;
    type RetainedLine = RetainedLine<Self, 28, 7>;

    #[inline(never)]
    fn of(info_hash: &InfoHash, secret: &FingerprintKey) -> Self {
        Self(word(&secret.0.hash(&info_hash.0).as_bytes(), 0))
    }

    #[inline]
    fn in_place(&self) -> InfoHash {
        let mut bytes = [0; size_of::<InfoHash>()];
        bytes[..FINGERPRINT_BYTES].copy_from_slice(&self.0);
        InfoHash(bytes)
    }

    #[inline]
    fn of_place(bytes: &InfoHash) -> &Self {
        Self::ref_from_prefix(&bytes.0).expect("an info hash is longer").0
    }

    #[inline]
    fn hash(&self, _: &HashKey) -> u64 {
        // The bytes are as random and secret as any hash of them. The tag is not among them, so that the tags of the
        // swarms that share a shard differ.
        u64::from_le_bytes(word(&self.0, FINGERPRINT_BYTES - size_of::<u64>()))
    }

    #[inline]
    fn tag(&self) -> U16 {
        U16::from_bytes(word(&self.0, 0))
    }

    #[inline]
    fn rest(&self) -> &Self::Rest {
        self.0.last_chunk().expect("the rest is shorter than the whole")
    }

    #[inline]
    fn join(tag: U16, rest: &Self::Rest) -> Self {
        Self(joined(tag, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_the_beginning_of_siphash() {
        // The key 0, 1, 2, … and a message of 20 such bytes, as in the test vectors of the reference implementation. The
        // result was computed by an independent implementation that agrees with the first two of them.
        let bytes = |number: usize| u8::try_from(number).unwrap_or(0);
        let key = FingerprintKey::new(&core::array::from_fn(bytes));
        let info_hash = InfoHash(core::array::from_fn(bytes));
        let expected = [0x9e, 0x25, 0xfc, 0x83, 0x3f, 0x22, 0x90, 0x73, 0x3e, 0x93, 0x44, 0xa5];
        assert_eq!(Fingerprint::of(&info_hash, &key).0, expected);
    }

    #[test]
    fn an_identity_comes_back_from_its_parts() {
        let info_hash = InfoHash(core::array::from_fn(|number| u8::try_from(7 * number).unwrap_or(0)));
        let fingerprint = Fingerprint::of(&info_hash, &FingerprintKey::new(&[3; 16]));
        assert_eq!(InfoHash::join(info_hash.tag(), info_hash.rest()), info_hash);
        assert_eq!(Fingerprint::join(fingerprint.tag(), fingerprint.rest()), fingerprint);
        assert_eq!(*Fingerprint::of_place(&fingerprint.in_place()), fingerprint);
        assert_eq!(Fingerprint::of(&info_hash, &FingerprintKey::new(&[3; 16])), fingerprint);
        assert_ne!(Fingerprint::of(&info_hash, &FingerprintKey::new(&[4; 16])), fingerprint);
    }
}
