//! The keyed hash by which verified tokens are recognised.
//!
//! A client that finds a text with the hash of a verified token needs no signature, so collisions must be improbable
//! for an attacker that chooses all texts and sees whether each is accepted. The hash is one of a universal family
//! under a secret key, which is as long as the longest token: NH of UMAC (Black et al. 1999) twice, with keys that are
//! shifted by two words, and then a multiply-shift hash (Thorup 2015, section 3.5) of each result and the length. Two
//! given texts have the same hash with a probability of at most 2⁻⁶³ for each of the two halves, thus 2⁻¹²⁶. It takes a
//! quarter of the time of `SipHash`, which a client would notice: tokens are several times as long as an announce.

use core::fmt;

use shoal_base::InfoHash;

use crate::token::TOKEN_BYTES_MAX;

/// Bytes of a token that one multiplication hashes.
const BLOCK_BYTES: usize = 16;

/// Words of the key for NH: two for each block, and two more for the second pass.
const NH_WORDS: usize = TOKEN_BYTES_MAX / 8 + 2;

/// Words of the key for each half after NH, as numbers of 128 bits: two for the halves of the result, one for the
/// length, three for an info hash, and one that is added.
const END_WORDS: usize = 7;

/// The hash of a token, or of a token and the torrent that it is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub(crate) [u64; 2]);

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tag(secret)")
    }
}

/// The secret key.
pub struct HashKey {
    nh: [u64; NH_WORDS],
    end: [[u128; END_WORDS]; 2],
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

impl HashKey {
    /// The number of random bytes of a key.
    pub const BYTES: usize = NH_WORDS * 8 + 2 * END_WORDS * 16;

    /// Creates a key from random bytes.
    pub fn new(random: &[u8; Self::BYTES]) -> Self {
        let (nh, end) = random.split_at(NH_WORDS * 8);
        let mut wide = end.chunks_exact(16).map(|bytes| u128::from_le_bytes(array(bytes)));
        let mut key = Self { nh: [0; NH_WORDS], end: [[0; END_WORDS]; 2] };
        for (word, bytes) in key.nh.iter_mut().zip(nh.chunks_exact(8)) {
            *word = u64::from_le_bytes(array(bytes));
        }
        for word in key.end.iter_mut().flatten() {
            *word = wide.next().unwrap_or_default();
        }
        key
    }

    /// Hashes a token. Returns `None` if it is longer than [`TOKEN_BYTES_MAX`].
    #[inline]
    pub fn tag(&self, token: &[u8]) -> Option<Tag> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (blocks, rest) = token.as_chunks::<BLOCK_BYTES>();
        let (keys, _) = self.nh.as_chunks::<2>();
        let keys_of_blocks = keys.iter().zip(&keys[1..]);
        let mut sums = blocks.iter().zip(keys_of_blocks).fold([0; 2], |sums, (block, (key, next))| {
            let block = u128::from_le_bytes(*block);
            add(sums, block, key, next)
        });
        if let (false, [key, next, ..]) = (rest.is_empty(), &keys[blocks.len()..]) {
            sums = add(sums, u128::from_le_bytes(array(rest)), key, next);
        }
        let [first, second] = sums;
        let length = token.len() as u64;
        let [low, high] = &self.end;
        Some(Tag([end(low, first, length), end(high, second, length)]))
    }

    /// Returns the hash of the pair of a token and a torrent.
    #[inline]
    pub fn bind(&self, Tag(tag): Tag, info_hash: &InfoHash) -> Tag {
        let (words, rest) = info_hash.0.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = [words[0], words[1], last].map(u64::from_le_bytes);
        let mut bound = tag;
        for (half, key) in bound.iter_mut().zip(&self.end) {
            let sum = words
                .iter()
                .zip(&key[3..6])
                .fold(0_u128, |sum, (word, key)| sum.wrapping_add(key.wrapping_mul(u128::from(*word))));
            *half ^= upper(sum.wrapping_add(key[6]));
        }
        Tag(bound)
    }
}

/// Adds a block to the sums of both passes.
#[inline]
fn add([first, second]: [u128; 2], block: u128, key: &[u64; 2], next: &[u64; 2]) -> [u128; 2] {
    let product = |key: &[u64; 2]| {
        u128::from(lower(block).wrapping_add(key[0])) * u128::from(upper(block).wrapping_add(key[1]))
    };
    [first.wrapping_add(product(key)), second.wrapping_add(product(next))]
}

/// Hashes a result of NH and the length of the text.
#[inline]
fn end(key: &[u128; END_WORDS], nh: u128, length: u64) -> u64 {
    let times = |key: u128, word: u64| key.wrapping_mul(u128::from(word));
    let sum = times(key[0], upper(nh)).wrapping_add(times(key[1], lower(nh)));
    upper(sum.wrapping_add(times(key[2], length)))
}

#[inline]
const fn upper(wide: u128) -> u64 {
    (wide >> 64) as u64
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "that is the lower half")]
const fn lower(wide: u128) -> u64 {
    wide as u64
}

/// Copies the first `N` bytes, or fewer if there are fewer.
#[inline]
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    array
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn key(seed: u64) -> HashKey {
        let mut random = [0; HashKey::BYTES];
        fastrand::Rng::with_seed(seed).fill(&mut random);
        HashKey::new(&random)
    }

    /// The sums of the paper, term by term.
    fn plain(key: &HashKey, token: &[u8]) -> [u64; 2] {
        let word = |number: usize| {
            (0..8).map(|at| u64::from(*token.get(8 * number + at).unwrap_or(&0)) << (8 * at)).sum::<u64>()
        };
        [0, 1].map(|pass: usize| {
            let nh = (0..token.len().div_ceil(16)).fold(0_u128, |sum, block| {
                let [a, b] = [0, 1].map(|half| {
                    u128::from(word(2 * block + half).wrapping_add(key.nh[2 * (block + pass) + half]))
                });
                sum.wrapping_add(a * b)
            });
            let [k0, k1, k2, ..] = key.end[pass];
            let parts = [(k0, nh >> 64), (k1, nh & u128::from(u64::MAX)), (k2, token.len() as u128)];
            let sum = parts.iter().fold(0_u128, |sum, (key, part)| sum.wrapping_add(key.wrapping_mul(*part)));
            upper(sum)
        })
    }

    #[test]
    fn the_hash_is_that_of_the_papers() {
        let (key, mut rng) = (key(1), fastrand::Rng::with_seed(2));
        for bytes in (0..100).chain([255, 256, 511, 2047, 2048]) {
            let token: Vec<u8> = (0..bytes).map(|_| rng.u8(..)).collect();
            assert_eq!(key.tag(&token).unwrap().0, plain(&key, &token), "{bytes} bytes");
        }
        assert_eq!(key.tag(&[0; TOKEN_BYTES_MAX + 1]), None);
    }

    #[test]
    fn every_bit_and_the_length_matter_in_both_halves() {
        let key = key(3);
        let token = [0_u8; 200];
        let mut seen: [HashSet<u64>; 2] = Default::default();
        let mut add = |token: &[u8]| {
            let Tag(halves) = key.tag(token).unwrap();
            assert!(seen.iter_mut().zip(halves).all(|(seen, half)| seen.insert(half)), "{token:?}");
        };
        (0..=200).for_each(|bytes| add(&token[..bytes]));
        for bit in 0..1600 {
            let mut changed = token;
            changed[bit / 8] ^= 1 << (bit % 8);
            add(&changed);
        }
    }

    #[test]
    fn a_torrent_gives_another_hash_and_keys_give_others() {
        let (one, other) = (key(4), key(5));
        let tag = one.tag(b"a.b.c").unwrap();
        assert_ne!(tag, other.tag(b"a.b.c").unwrap());
        let mut seen = HashSet::from([tag]);
        for byte in 0..20 {
            let mut info_hash = InfoHash([0; 20]);
            info_hash.0[byte] = 1;
            assert!(seen.insert(one.bind(tag, &info_hash)));
        }
        assert!(seen.insert(one.bind(tag, &InfoHash([0; 20]))));
    }
}
