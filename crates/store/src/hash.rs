//! Keyed hashing of info hashes and peers, both of which an attacker chooses.
//!
//! Folded multiplication under secret keys: a product of 64 by 64 bits whose halves are put together. Without the
//! keys nobody can tell which inputs fall together. Only positions in tables depend on it, never what is stored.

/// The secret.
#[derive(Clone, Copy)]
pub(crate) struct HashKey([u64; 4]);

impl core::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

impl HashKey {
    /// Spreads the secret over all bits of the key: a folded product with a small number is no hash.
    pub(crate) fn new(secret: [u64; 4]) -> Self {
        let mut state = 0_u64;
        // The output function of SplitMix64 (Steele, Lea and Flood 2014), over a running sum.
        Self(secret.map(|word| {
            state = state.wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }))
    }

    /// Hashes up to 24 bytes, given as three numbers.
    #[inline]
    pub(crate) fn hash(&self, a: u64, b: u64, c: u64) -> u64 {
        let [k0, k1, k2, k3] = self.0;
        fold(fold(a ^ k0, b ^ k1) ^ k2, c ^ k3)
    }
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

/// The part of a hash by which tables order their entries.
#[inline]
pub(crate) fn position(hash: u64) -> u32 {
    (hash >> 32) as u32
}
