//! A line of a large swarm's table: nine IPv4 peers in 64 bytes, or ten IPv6 peers in 191.
//!
//! The layout is: the peers' addresses in compact form, back to back, so that a sample copies them at once; then one
//! stamp per peer; then the number of peers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::family::{Family, PeerRow};
use crate::hash::HashKey;
use crate::stamp::Stamp;
use crate::table::Bucket;

/// Up to `N` peers.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct PeerLine<P, const N: usize> {
    peers: [P; N],
    stamps: [u8; N],
    len: u8,
}

const _: () = assert!(size_of::<PeerLine<shoal_base::PeerV4, 9>>() == 64, "a line of IPv4 is a cache line");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerEntry<P> {
    pub(crate) peer: P,
    pub(crate) stamp: Stamp,
}

impl<P: Family, const N: usize> PeerRow<P> for PeerLine<P, N> {
    type Slots = [P; N];

    #[inline]
    fn peers(&self) -> &[P] {
        &self.peers[..self.len()]
    }

    #[inline]
    fn slots(&self) -> &[P; N] {
        &self.peers
    }

    #[inline]
    fn stamps(&self) -> &[u8] {
        &self.stamps[..self.len()]
    }

    #[inline]
    fn stamps_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        &mut self.stamps[..len]
    }
}

impl<P: Family, const N: usize> Bucket for PeerLine<P, N> {
    const SLOTS: usize = N;
    const CHUNK_LINES: usize = P::CHUNK_LINES;
    const STEP_SHARE: usize = P::STEP_SHARE;
    const START_BYTES: usize = size_of::<Self>();

    type Entry = PeerEntry<P>;

    #[inline]
    fn len(&self) -> usize {
        // The minimum gives the compiler a bound that it cannot infer, and so removes bounds checks.
        usize::from(self.len).min(N)
    }

    #[inline]
    fn hash(&self, slot: usize, key: &HashKey) -> u64 {
        self.peers[slot].hash(key)
    }

    #[inline]
    fn entry(&self, slot: usize) -> PeerEntry<P> {
        PeerEntry { peer: self.peers[slot], stamp: Stamp(self.stamps[slot]) }
    }

    #[inline]
    fn push(&mut self, entry: &PeerEntry<P>) {
        let slot = self.len();
        self.peers[slot] = entry.peer;
        self.stamps[slot] = entry.stamp.0;
        self.len += 1;
    }

    #[inline]
    fn take(&mut self, slot: usize) -> PeerEntry<P> {
        let entry = self.entry(slot);
        let last = self.len() - 1;
        self.peers[slot] = self.peers[last];
        self.stamps[slot] = self.stamps[last];
        self.len -= 1;
        entry
    }
}
