//! Keyed hashing of info hashes and peers, both of which an attacker chooses.
//!
//! Folded multiplication under secret keys: a product of 64 by 64 bits whose halves are put together. Without the
//! keys it cannot be told which inputs fall together. Only positions in tables depend on it, never what is stored.
//!
//! An entry has one hash, and each table orders its entries by another position: the hash folded once more with the
//! seed of the table. Replies give the order of a table away, so an order that was learned in one table must say
//! nothing about another. Every word of an input passes through two folds at least before it becomes a position:
//! after a single one, inputs that follow each other, as the ports of an address do, would lie on a lattice whose
//! spacing could be computed from a few known neighbours.

/// The secret, and what the positions of peers depend on.
#[derive(Clone, Copy)]
pub(crate) struct HashKey {
    words: [u64; 4],
    /// Which bits of a peer, beside its source, decide its position, see [`HashKey::with_slots`].
    slot_mask: u64,
}

impl core::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

impl HashKey {
    /// Spreads the secret over all bits of the key: a folded product with a small number is no hash.
    pub(crate) fn new(secret: [u64; 4]) -> Self {
        let mut state = 0_u64;
        let words = secret.map(|word| {
            let mixed = mix(state.wrapping_add(word));
            state = state.wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed
        });
        Self { words, slot_mask: u64::MAX }
    }

    /// Another key from this one, for another purpose.
    pub(crate) fn derived(&self, purpose: u64) -> Self {
        let [k0, k1, k2, k3] = self.words;
        Self::new([k0 ^ purpose, k1, k2, k3])
    }

    /// The same key, by which the peers of one source have no more than `slots` positions, a power of two. So all peers
    /// of a source and slot lie together, and are counted where a newcomer is looked for anyway.
    pub(crate) fn with_slots(self, slots: u64) -> Self {
        Self { slot_mask: slots - 1, ..self }
    }

    /// The part of `bits` that decides about a position.
    #[inline]
    pub(crate) fn slot(&self, bits: u64) -> u64 {
        bits & self.slot_mask
    }

    /// Hashes what is to become a slot: up to 16 bytes, given as two numbers.
    #[inline]
    pub(crate) fn mix(&self, a: u64, b: u64) -> u64 {
        let [_, k1, _, k3] = self.words;
        fold(a ^ k3, b ^ k1)
    }

    /// Hashes up to 24 bytes, given as three numbers.
    #[inline]
    pub(crate) fn hash(&self, a: u64, b: u64, c: u64) -> u64 {
        let [k0, k1, k2, k3] = self.words;
        // The two folds do not wait for each other; the seed of the table folds their sum.
        fold(a ^ k0, b ^ k1).wrapping_add(fold(c ^ k2, k3))
    }

    /// Hashes eight bytes.
    #[inline]
    pub(crate) fn hash_word(&self, a: u64) -> u64 {
        let [k0, k1, ..] = self.words;
        fold(a ^ k0, k1)
    }

    /// The seed of a table, from two numbers that name it: a function of the secret, so that no randomness is needed
    /// here and tests can be repeated.
    pub(crate) fn seed(&self, table: u64, generation: u64) -> Seed {
        let [k0, k1, k2, k3] = self.words;
        let mut state = mix(table ^ k2).wrapping_add(generation);
        for word in [k3, k0, k1] {
            state = mix(state.wrapping_add(word));
        }
        // An odd factor loses nothing of the hash in the lower half of the product.
        Seed(state | 1)
    }
}

/// The secret of one table, by which it orders its entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(u64);

impl core::fmt::Debug for Seed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Seed(secret)")
    }
}

impl Seed {
    /// Where a table with this seed puts what has this hash.
    #[inline]
    pub(crate) fn position(self, hash: u64) -> u32 {
        (fold(hash, self.0) >> 32) as u32
    }

    /// A number that names the seed, as the origin of the next one.
    pub(crate) fn name(self) -> u64 {
        self.0
    }
}

/// The output function of `SplitMix64` (Steele, Lea and Flood 2014).
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

/// The first `N` bytes of `bytes` from `offset` on.
#[inline]
pub(crate) fn word<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(&bytes[offset..offset + N]);
    word
}
