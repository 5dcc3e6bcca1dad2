//! Keyed hashing of info hashes and peers, both of which an attacker chooses.
//!
//! Folded multiplication under secret keys: a product of 64 by 64 bits whose halves are put together. Without the
//! keys nobody can tell which inputs fall together. Only positions in tables depend on it, never what is stored.

/// The secret.
#[derive(Clone, Copy)]
pub(crate) struct HashKey(pub(crate) [u64; 4]);

impl core::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

impl HashKey {
    /// Hashes up to 24 bytes, given as three numbers.
    #[inline]
    pub(crate) fn hash(&self, a: u64, b: u64, c: u64) -> u64 {
        let [k0, k1, k2, k3] = self.0;
        fold(fold(a ^ k0, b ^ k1) ^ k2, c ^ k3)
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let low = (product & u128::from(u64::MAX)) as u64;
    let high = (product >> 64) as u64;
    low ^ high
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
