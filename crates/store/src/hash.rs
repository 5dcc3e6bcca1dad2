//! Keyed hashing of info hashes and peers, both of which an attacker can choose.
//!
//! The hash is a folded multiplication under secret keys: it combines the two halves of a 128-bit product of 64-bit
//! factors. Without the keys, collisions are unpredictable. Only positions in tables depend on the hash, never the
//! stored data.
//!
//! An entry has one hash. Each table mixes it with its own seed to select a segment, and each segment folds the mixed
//! hash once more with its salt to select two lines. Replies reveal which peers share a line, and this knowledge of one
//! segment must not help in another. Every word of an input passes through at least three folds before it selects a
//! line. After a single fold, consecutive inputs, such as the ports of an address, would lie on a lattice whose spacing
//! follows from a few known neighbours.
//!
//! The hash is written here and not taken from a crate, because the inputs have fixed sizes and the position must use
//! the high bits.

use serde::{Deserialize, Serialize};

/// The secret, and the mask on which the positions of peers depend.
#[derive(Clone, Copy)]
pub(crate) struct HashKey {
    words: [u64; 4],
    /// The bits of a peer that determine its position, together with its source, see [`HashKey::with_slots`].
    slot_mask: u64,
}

impl core::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

impl HashKey {
    /// Creates a key from the secret, and spreads it over all bits: a folded product with a small number is no hash.
    pub(crate) fn new(secret: [u64; 4]) -> Self {
        let mut state = 0_u64;
        let words = secret.map(|word| {
            let mixed = mix(state.wrapping_add(word));
            state = state.wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed
        });
        Self { words, slot_mask: u64::MAX }
    }

    pub(crate) fn derived(&self, purpose: u64) -> Self {
        let [k0, k1, k2, k3] = self.words;
        Self::new([k0 ^ purpose, k1, k2, k3])
    }

    /// Returns the same key with a limit of `slots` positions, a power of two, for the peers of one source. All peers
    /// of one source and slot then lie together, and are counted in the lines that the search for a new peer reads
    /// anyway.
    pub(crate) fn with_slots(self, slots: u64) -> Self {
        Self { slot_mask: slots - 1, ..self }
    }

    #[inline]
    pub(crate) fn slot(&self, bits: u64) -> u64 {
        bits & self.slot_mask
    }

    /// Hashes up to 16 bytes, given as two numbers.
    #[inline]
    pub(crate) fn mix(&self, a: u64, b: u64) -> u64 {
        let [_, k1, _, k3] = self.words;
        fold(a ^ k3, b ^ k1)
    }

    /// Hashes up to 24 bytes, given as three numbers.
    #[inline]
    pub(crate) fn hash(&self, a: u64, b: u64, c: u64) -> u64 {
        let [k0, k1, k2, k3] = self.words;
        // The two folds are independent of each other; the seed of the table folds their sum.
        fold(a ^ k0, b ^ k1).wrapping_add(fold(c ^ k2, k3))
    }

    #[inline]
    pub(crate) fn hash_word(&self, a: u64) -> u64 {
        let [k0, k1, ..] = self.words;
        fold(a ^ k0, k1)
    }

    /// Returns the seed of a table, from two numbers that identify it. The seed is a function of the secret, so tests
    /// are repeatable and need no randomness here.
    pub(crate) fn seed(&self, table: u64, generation: u64) -> Seed {
        let [k0, k1, k2, k3] = self.words;
        let mut state = mix(table ^ k2).wrapping_add(generation);
        for word in [k3, k0, k1] {
            state = mix(state.wrapping_add(word));
        }
        // An odd factor preserves the whole hash in the lower half of the product.
        Seed(state | 1)
    }
}

/// The secret by which one table orders its entries.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seed(u64);

impl core::fmt::Debug for Seed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Seed(secret)")
    }
}

impl Seed {
    /// Mixes an entry's hash with the table's secret.
    #[inline]
    pub(crate) fn mix(self, hash: u64) -> Mixed {
        Mixed(fold(hash, self.0))
    }

    /// Returns a secret for the order of one segment. Different numbers give independent salts.
    pub(crate) fn salt(self, number: u32) -> Salt {
        Salt((mix(self.0.wrapping_add(u64::from(number))) >> 32) as u32)
    }
}

/// The hash of an entry, mixed with the secret of its table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixed(u64);

impl Mixed {
    /// Returns the bits that select a segment, most significant first.
    #[inline]
    pub(crate) fn selector(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the bit of the selector with this number, from 1 for the first one.
    #[inline]
    pub(crate) fn bit(self, number: u8) -> usize {
        (self.selector() >> (u32::BITS - u32::from(number))) as usize & 1
    }

    /// Returns a number below each of two ranges. Both depend on all bits and on the salt.
    #[inline]
    pub(crate) fn two_below(self, salt: Salt, [first, second]: [usize; 2]) -> [usize; 2] {
        let random = fold(self.0, salt.factor());
        let scaled = |half: u64, range: usize| ((half * range as u64) >> 32) as usize;
        [scaled(random >> 32, first), scaled(random & 0xffff_ffff, second)]
    }
}

/// The secret by which one segment selects the lines of its entries.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Salt(u32);

impl core::fmt::Debug for Salt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Salt(secret)")
    }
}

impl Salt {
    /// Returns true for one salt in `one_in`, a power of two, by chance.
    #[inline]
    pub(crate) fn is_chosen(self, one_in: u32) -> bool {
        self.0 & (one_in - 1) == 0
    }

    /// Returns an odd factor with set bits in both halves.
    #[inline]
    fn factor(self) -> u64 {
        (u64::from(self.0) << 32 | u64::from(!self.0)) | 1
    }
}

/// Returns the output of `SplitMix64` (Steele, Lea and Flood 2014).
fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let high = ((u128::from(a) * u128::from(b)) >> 64) as u64;
    a.wrapping_mul(b) ^ high
}

#[inline]
pub(crate) fn word<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(&bytes[offset..offset + N]);
    word
}
