//! The differences between the address families, which are only sizes.

use core::fmt::Debug;
use core::net::{Ipv4Addr, SocketAddr};

use shoal_base::source::{Networks, Source, SourceHasher, Width};
use shoal_base::{PeerV4, PeerV6};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::hash::{HashKey, word};
use crate::swarm::line::{SwarmLine, SwarmRow};
use crate::swarm::peer_line::{PeerEntry, PeerLine};
use crate::table::Bucket;

/// An address in compact form, as the store holds it and copies it to replies.
#[expect(private_bounds, reason = "sealed: the requirements of the store on a family are private")]
pub trait Family: Stored {}

/// The part of a family that only the store needs.
pub(crate) trait Stored:
    FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy + Eq + Debug + Send + Sync
{
    /// A line of a large swarm's table.
    type Line: Bucket<Entry = PeerEntry<Self>> + PeerRow<Self> + Debug;

    /// A line of the table of swarms.
    type SwarmLine: SwarmRow<Self> + Debug + Send + Sync;

    /// Number of lines of peers in a full chunk: a power of two of bytes, or a size that fills a page several times
    /// over.
    const CHUNK_LINES: usize;
    /// The fraction by which a segment of peers grows.
    const STEP_SHARE: usize;

    /// The networks of the peer that count as sources when memory is short.
    type Networks: IntoIterator<Item = Network>;

    fn address(&self) -> SocketAddr;
    /// Returns the source of the peer in a swarm. Peers of one source have equal values.
    fn source(&self) -> u64;
    /// Returns the peer's slot among the slots of its source.
    fn slot(&self, key: &HashKey) -> u64;
    /// Returns the hash of any peer of the same source in that slot.
    fn hash_in_slot(&self, key: &HashKey, slot: u64) -> u64;
    /// Returns the networks that the peer counts towards when memory is short, from small to large.
    fn networks(&self) -> Self::Networks;
    /// Returns the source whose peers and torrents are counted.
    fn hashed_source(&self, hasher: &SourceHasher) -> Source;
    /// Returns those networks of the source that another peer shares.
    fn networks_shared_with(&self, other: &Self) -> Networks;

    /// Returns the number of ticks by which the peer's periods begin earlier. Neighbours have different numbers.
    fn period_offset(&self) -> u8;

    fn index_in(&self, peers: &[Self]) -> Option<usize>;

    #[inline]
    fn hash(&self, key: &HashKey) -> u64 {
        self.hash_in_slot(key, self.slot(key))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) bits: u64,
    pub(crate) length: u64,
    /// Its width, which decides its share.
    pub(crate) width: Width,
}

pub(crate) trait PeerRow<P> {
    type Slots: FromBytes + IntoBytes + Immutable;

    fn peers(&self) -> &[P];
    /// Returns all slots of the line, including empty ones.
    fn slots(&self) -> &Self::Slots;
    fn stamps(&self) -> &[u8];
    fn stamps_mut(&mut self) -> &mut [u8];
}

impl Family for PeerV4 {}

impl Stored for PeerV4 {
    type Line = PeerLine<Self, 9>;
    type SwarmLine = SwarmLine<Self, 17, 1>;
    const CHUNK_LINES: usize = 16;
    const STEP_SHARE: usize = 8;

    type Networks = [Network; Width::V4.len()];

    fn address(&self) -> SocketAddr {
        self.addr().into()
    }

    #[inline]
    fn source(&self) -> u64 {
        u64::from(u32::from_le_bytes(word(&self.0, 0)))
    }

    #[inline]
    fn slot(&self, key: &HashKey) -> u64 {
        key.slot(u64::from(u16::from_be_bytes(word(&self.0, 4))))
    }

    #[inline]
    fn hash_in_slot(&self, key: &HashKey, slot: u64) -> u64 {
        key.hash_word(self.source() | slot << 32)
    }

    #[inline]
    fn index_in(&self, peers: &[Self]) -> Option<usize> {
        // Four peers at a time, each as the upper six bytes of an eight-byte number.
        const GROUP_BYTES: usize = 24;
        let mut bytes = [0; 8];
        bytes[2..].copy_from_slice(&self.0);
        let wanted = u64::from_le_bytes(bytes);
        let (groups, rest) = peers.as_bytes().as_chunks::<GROUP_BYTES>();
        for (number, group) in groups.iter().enumerate() {
            let word = |offset| u64::from_le_bytes(word(group, offset));
            let peers = [word(0) << 16, word(6) << 16, word(12) << 16, word(16) & !0xffff];
            if let Some(place) = peers.iter().position(|&peer| peer == wanted) {
                return Some(4 * number + place);
            }
        }
        let place = rest.chunks_exact(size_of::<Self>()).position(|peer| peer == self.0)?;
        Some(4 * groups.len() + place)
    }

    #[inline]
    fn period_offset(&self) -> u8 {
        self.0[3]
    }

    #[inline]
    fn networks(&self) -> Self::Networks {
        Width::V4.map(|width| {
            let length = if width == Width::Source { 32 } else { 24 };
            // The first bytes of the address are the lowest.
            let bits = self.source() & ((1 << length) - 1);
            Network { bits, length, width }
        })
    }

    fn hashed_source(&self, hasher: &SourceHasher) -> Source {
        hasher.source_v4(Ipv4Addr::from(word::<4>(&self.0, 0)))
    }

    #[inline]
    fn networks_shared_with(&self, other: &Self) -> Networks {
        let is_shared = self.source() == other.source();
        Networks { address: is_shared, site: is_shared }
    }
}

impl Family for PeerV6 {}

impl Stored for PeerV6 {
    type Line = PeerLine<Self, 10>;
    type SwarmLine = SwarmLine<Self, 12, 7>;
    // Six chunks fill a page.
    const CHUNK_LINES: usize = 7;
    // An IPv6 peer is so large that the last per cent of memory justifies more moves.
    const STEP_SHARE: usize = 14;

    type Networks = [Network; Width::HOLDING_V6.len()];

    fn address(&self) -> SocketAddr {
        self.addr().into()
    }

    #[inline]
    fn source(&self) -> u64 {
        // A /48 is the network of a site: a client with one of its addresses usually controls all of them.
        u64::from_le_bytes(word(&self.0, 0)) & 0xffff_ffff_ffff
    }

    #[inline]
    fn slot(&self, key: &HashKey) -> u64 {
        let subnet = u32::from_le_bytes(word(&self.0, 6)) & 0xffff;
        let port = u32::from_le_bytes(word(&self.0, 14)) & 0xffff_0000;
        // Mixed twice: after a single fold, consecutive ports could fall into the same few slots.
        let mixed = key.mix(u64::from_le_bytes(word(&self.0, 8)), u64::from(subnet | port));
        key.slot(key.mix(mixed, 0))
    }

    #[inline]
    fn hash_in_slot(&self, key: &HashKey, slot: u64) -> u64 {
        key.hash(self.source(), slot, 0)
    }

    #[inline]
    fn index_in(&self, peers: &[Self]) -> Option<usize> {
        peers.iter().position(|other| other == self)
    }

    #[inline]
    fn period_offset(&self) -> u8 {
        // The addresses of some networks differ in one byte only, at any place.
        let [low, high] = [0, 8].map(|start| u64::from_le_bytes(word(&self.0, start)));
        let bytes = low ^ high ^ u64::from(self.0[17]);
        let bytes = bytes ^ bytes >> 32;
        let bytes = bytes ^ bytes >> 16;
        ((bytes ^ bytes >> 8) & 0xff) as u8
    }

    #[inline]
    fn networks(&self) -> Self::Networks {
        Width::HOLDING_V6.map(|width| {
            // The first bytes of the address are the lowest.
            let bits = u64::from_le_bytes(word(&self.0, 0)) & (u64::MAX >> (64 - width.prefix_v6()));
            Network { bits, length: width.prefix_v6().into(), width }
        })
    }

    fn hashed_source(&self, hasher: &SourceHasher) -> Source {
        hasher.source_v6(word(&self.0, 0))
    }

    #[inline]
    fn networks_shared_with(&self, other: &Self) -> Networks {
        Networks { address: self.0[..8] == other.0[..8], site: self.source() == other.source() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_found_at_its_index() {
        let peers: Vec<PeerV4> = (0..14).map(|number| PeerV4([10, 0, 0, number % 5, 1, number])).collect();
        for len in 0..peers.len() {
            for (index, peer) in peers.iter().enumerate() {
                assert_eq!(peer.index_in(&peers[..len]), (index < len).then_some(index), "{index} of {len}");
            }
        }
        let zeroes = [PeerV4([0; 6]); 6];
        assert_eq!(PeerV4([0; 6]).index_in(&zeroes), Some(0));
        assert_eq!(PeerV4([0, 0, 0, 0, 0, 1]).index_in(&zeroes), None);
    }

    #[test]
    fn ports_that_follow_each_other_are_spread_over_the_slots_of_their_source() {
        for secret in 0..200 {
            let key = HashKey::new([secret, 2, 3, 4]).with_slots(8);
            let mut counts = [0; 8];
            for port in 1_u16..=64 {
                let peer = PeerV6::new("2001:db8::1".parse().unwrap(), port);
                counts[usize::try_from(peer.slot(&key)).unwrap()] += 1;
            }
            assert!(counts.iter().all(|&count| count <= 24), "{secret}: {counts:?}");
        }
    }
}
