//! A small swarm: all its peers in one block, seeders first.
//!
//! The layout is: the number of seeders and the number of leechers (a byte each), then space for peers, back to back,
//! then space for as many stamps. A search compares all peers one after the other, which costs less than any index up
//! to about two hundred peers.

use zerocopy::{FromBytes, IntoBytes};

use crate::family::Family;
use crate::memory::Memory;
use crate::memory::slab::{Block, Class};
use crate::source_limit::SEVERAL;
use crate::stamp::{Stamp, Tick};
use crate::swarm::peer_line::PeerEntry;

/// Number of bytes before the peers.
const HEADER_BYTES: usize = 2;

/// Size in bytes of the largest block of a small swarm: 232 IPv4 peers or 85 IPv6 peers.
const BLOCK_BYTES_MAX: usize = 1632;

const _: () = assert!(capacity_of(BLOCK_BYTES_MAX, 6) <= 255, "the counts are bytes");

const fn capacity_of(block_bytes: usize, peer_bytes: usize) -> usize {
    (block_bytes - HEADER_BYTES) / (peer_bytes + 1)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Small<'a, P> {
    pub(crate) seeders: usize,
    pub(crate) peers: &'a [P],
    pub(crate) stamps: &'a [u8],
}

#[derive(Debug)]
pub(crate) struct SmallMut<'a, P> {
    header: &'a mut [u8],
    peers: &'a mut [P],
    stamps: &'a mut [u8],
}

/// Returns the smallest class for this many peers, if they fit in a block.
pub(crate) fn class_for<P: Family>(peers: usize) -> Option<Class> {
    let class = Class::holding(HEADER_BYTES + peers * (size_of::<P>() + 1))?;
    (class.bytes() <= BLOCK_BYTES_MAX).then_some(class)
}

pub(crate) const fn peers_max<P: Family>() -> usize {
    capacity_of(BLOCK_BYTES_MAX, size_of::<P>())
}

/// Moves a small swarm from a block of class `from` into one of class `to`, which must hold it.
pub(crate) fn resize<P: Family>(memory: &mut Memory, block: Block, from: Class, to: Class) -> Block {
    let new = memory.take_block(to);
    let mut copy = [0; BLOCK_BYTES_MAX];
    let bytes = memory.block(block, from);
    let length = bytes.len();
    copy[..length].copy_from_slice(bytes);
    let old = Small::<P>::read(&copy[..length]);
    let small = SmallMut::<P>::edit(memory.block_mut(new, to));
    small.header.copy_from_slice(&copy[..HEADER_BYTES]);
    small.peers[..old.peers.len()].copy_from_slice(old.peers);
    small.stamps[..old.stamps.len()].copy_from_slice(old.stamps);
    memory.put_block(block);
    new
}

impl<'a, P: Family> Small<'a, P> {
    #[inline]
    pub(crate) fn read(block: &'a [u8]) -> Self {
        let capacity = capacity_of(block.len(), size_of::<P>());
        let (seeders, count) = (usize::from(block[0]), usize::from(block[0]) + usize::from(block[1]));
        let (peers, stamps) = block[HEADER_BYTES..].split_at(capacity * size_of::<P>());
        let peers = <[P]>::ref_from_bytes(peers).expect("whole peers, and peers need no alignment");
        Self { seeders, peers: &peers[..count], stamps: &stamps[..count] }
    }

    #[inline]
    pub(crate) fn index(&self, peer: &P) -> Option<usize> {
        peer.index_in(self.peers)
    }

    /// Returns the numbers of seeders and leechers.
    #[inline]
    pub(crate) fn roles(&self) -> (u32, u32) {
        let leechers = self.peers.len() - self.seeders;
        (u32::try_from(self.seeders).unwrap_or(u32::MAX), u32::try_from(leechers).unwrap_or(u32::MAX))
    }

    /// Returns whether some source has several peers.
    pub(crate) fn is_skewed(&self) -> bool {
        self.peers.iter().any(|peer| count_source(self.peers, peer) >= SEVERAL)
    }

    /// Returns a peer with its stamp, and whether it is a seeder.
    pub(crate) fn entry(&self, index: usize) -> (PeerEntry<P>, bool) {
        (PeerEntry { peer: self.peers[index], stamp: Stamp(self.stamps[index]) }, index < self.seeders)
    }
}

impl<'a, P: Family> SmallMut<'a, P> {
    #[inline]
    pub(crate) fn edit(block: &'a mut [u8]) -> Self {
        let capacity = capacity_of(block.len(), size_of::<P>());
        let (header, rest) = block.split_at_mut(HEADER_BYTES);
        let (peers, stamps) = rest.split_at_mut(capacity * size_of::<P>());
        let peers = <[P]>::mut_from_bytes(peers).expect("whole peers, and peers need no alignment");
        Self { header, peers, stamps: &mut stamps[..capacity] }
    }

    /// Appends a peer, if there is room. Returns its index.
    pub(crate) fn push(&mut self, entry: &PeerEntry<P>, seeds: bool) -> Option<usize> {
        let (seeders, count) = (self.seeders(), self.count());
        if count == self.peers.len() {
            return None;
        }
        self.peers[count] = entry.peer;
        self.stamps[count] = entry.stamp.0;
        self.header[1] += 1;
        if !seeds {
            return Some(count);
        }
        self.promote(count);
        Some(seeders)
    }

    #[inline]
    pub(crate) fn into_small(self) -> Small<'a, P> {
        let (seeders, count) = (self.seeders(), self.count());
        Small { seeders, peers: &self.peers[..count], stamps: &self.stamps[..count] }
    }

    /// Renews the stamp of a peer with this role. Returns its index and its earlier stamp.
    #[inline]
    pub(crate) fn renew(&mut self, peer: &P, seeds: bool, now: Tick) -> Option<(usize, Stamp)> {
        // Only the peers of this role are searched.
        let (seeders, count) = (self.seeders(), self.count());
        let (first, end) = if seeds { (0, seeders) } else { (seeders, count) };
        let index = first + peer.index_in(&self.peers[first..end])?;
        let old = Stamp(self.stamps[index]);
        self.stamps[index] = old.renewed(now).0;
        Some((index, old))
    }

    /// Sets the stamp and role of a peer. Returns its new index.
    pub(crate) fn update(&mut self, index: usize, stamp: Stamp, seeds: bool) -> usize {
        self.stamps[index] = stamp.0;
        match (index < self.seeders(), seeds) {
            (false, true) => self.promote(index),
            (true, false) => self.demote(index),
            _ => index,
        }
    }

    pub(crate) fn remove(&mut self, index: usize) {
        let index = if index < self.seeders() { self.demote(index) } else { index };
        let last = self.count() - 1;
        self.swap(index, last);
        self.header[1] -= 1;
    }

    fn seeders(&self) -> usize {
        usize::from(self.header[0])
    }

    fn count(&self) -> usize {
        self.seeders() + usize::from(self.header[1])
    }

    /// Makes a leecher the last seeder. Returns its new index.
    fn promote(&mut self, index: usize) -> usize {
        let seeders = self.seeders();
        self.swap(index, seeders);
        self.header[0] += 1;
        self.header[1] -= 1;
        seeders
    }

    /// Makes a seeder the first leecher. Returns its new index.
    fn demote(&mut self, index: usize) -> usize {
        let last_seeder = self.seeders() - 1;
        self.swap(index, last_seeder);
        self.header[0] -= 1;
        self.header[1] += 1;
        last_seeder
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.peers.swap(a, b);
        self.stamps.swap(a, b);
    }
}

/// Counts the `peers` that share the source of `peer`.
#[inline]
pub(crate) fn count_source<P: Family>(peers: &[P], peer: &P) -> usize {
    let source = peer.source();
    peers.iter().filter(|other| other.source() == source).count()
}

/// Writes peers to `out` back to back. Returns the number of bytes written.
#[inline]
pub(crate) fn copy_peers<P: Family>(peers: &[P], out: &mut [u8]) -> usize {
    let bytes = peers.as_bytes();
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}
