//! Keyed hashing of info hashes, which clients choose.
//!
//! The hash is a folded multiplication under secret keys, as in `shoal-store`. It only decides positions in tables, and
//! clients never see it.

use core::fmt;

/// The secret on which the positions in tables depend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u64; 4]);

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

impl HashKey {
    /// Creates a key from random numbers.
    pub const fn new(secret: [u64; 4]) -> Self {
        Self(secret)
    }

    /// Hashes 20 bytes.
    #[inline]
    pub(crate) fn hash(&self, bytes: &[u8; 20]) -> u64 {
        let [k0, k1, k2, k3] = self.0;
        let [a, b] = [word(bytes, 0), word(bytes, 8)];
        let c = u64::from(u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]));
        // Every word passes through two folds, so that related inputs do not lie on a lattice.
        fold(fold(a ^ k0, b ^ k1) ^ c ^ k2, k3 | 1)
    }
}

#[inline]
fn word(bytes: &[u8; 20], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(word)
}

/// Combines the two halves of the product.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let [low, high] = [product & u128::from(u64::MAX), product >> 64];
    u64::try_from(low ^ high).unwrap_or(0)
}
