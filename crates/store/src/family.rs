//! What differs between the address families: nothing but sizes.

use core::fmt::Debug;

use shoal_types::{PeerV4, PeerV6};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::hash::{HashKey, word};
use crate::level::{EIGHTHS, FIFTHS, Ladder};
use crate::peer_line::{PeerEntry, PeerLine};
use crate::table::Bucket;

/// An address in compact form, as peers of one family are stored and handed out.
#[expect(private_bounds, reason = "sealed: what the store needs of a family is its own business")]
pub trait Family: Stored {}

/// The part of a family that only the store needs.
pub(crate) trait Stored:
    FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy + Eq + Debug + Send + Sync
{
    /// A line of a large swarm's table.
    type Line: Bucket<Entry = PeerEntry<Self>> + PeerRow<Self> + Debug;

    /// How full a table of its peers is kept.
    const FILL_64THS: u32;
    /// In which steps a table of its peers grows.
    const LADDER: &'static Ladder;

    /// Networks that count as sources of the peer under pressure.
    type Networks: AsRef<[Network]>;

    /// What a source is in a swarm: all peers of equal value are of one source.
    fn source(&self) -> u64;
    /// Which of the positions that peers of its source can have.
    fn slot(&self, key: &HashKey) -> u64;
    /// The hash of a peer of the same source in that slot.
    fn hash_in_slot(&self, key: &HashKey, slot: u64) -> u64;
    /// The networks that the peer counts towards under pressure, from small to large.
    fn networks(&self) -> Self::Networks;

    /// The hash of a peer.
    #[inline]
    fn hash(&self, key: &HashKey) -> u64 {
        self.hash_in_slot(key, self.slot(key))
    }
}

/// A network that counts as one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// The bits of the address that are of the network.
    pub(crate) bits: u64,
    /// How many these are.
    pub(crate) length: u64,
    /// How many times the allowance of an address it has.
    pub(crate) shares: u64,
}

/// Shares of a /48, which is a site: as many as a few hosts.
const SITE_SHARES: u64 = 4;

/// Access to the columns of a line of peers.
pub(crate) trait PeerRow<P> {
    /// All slots of a line, as plain bytes.
    type Slots: FromBytes + IntoBytes + Immutable;

    /// The peers of the line.
    fn peers(&self) -> &[P];
    /// All slots of the line, those behind the last peer too.
    fn slots(&self) -> &Self::Slots;
    /// Their stamps.
    fn stamps(&self) -> &[u8];
    /// Their stamps, to write.
    fn stamps_mut(&mut self) -> &mut [u8];
}

impl Family for PeerV4 {}

impl Stored for PeerV4 {
    type Line = PeerLine<Self, 9>;
    const FILL_64THS: u32 = 51;
    const LADDER: &'static Ladder = &FIFTHS;

    type Networks = [Network; 1];

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
    fn networks(&self) -> Self::Networks {
        // A /24 is no source: carriers and hosters put clients into one that have nothing to do with each other.
        [Network { bits: self.source(), length: 32, shares: 1 }]
    }
}

impl Family for PeerV6 {}

impl Stored for PeerV6 {
    type Line = PeerLine<Self, 10>;
    // A peer is so large that the last per cent of memory is worth some more moves.
    const FILL_64THS: u32 = 54;
    const LADDER: &'static Ladder = &EIGHTHS;

    type Networks = [Network; 2];

    #[inline]
    fn source(&self) -> u64 {
        // A /48, the network of a site: whoever has an address of it has mostly all of it.
        u64::from_le_bytes(word(&self.0, 0)) & 0xffff_ffff_ffff
    }

    #[inline]
    fn slot(&self, key: &HashKey) -> u64 {
        let subnet = u32::from_le_bytes(word(&self.0, 6)) & 0xffff;
        let port = u32::from_le_bytes(word(&self.0, 14)) & 0xffff_0000;
        // Twice: after one fold, ports that follow each other could fall into the same few slots.
        let mixed = key.mix(u64::from_le_bytes(word(&self.0, 8)), u64::from(subnet | port));
        key.slot(key.mix(mixed, 0))
    }

    #[inline]
    fn hash_in_slot(&self, key: &HashKey, slot: u64) -> u64 {
        key.hash(self.source(), slot, 0)
    }

    #[inline]
    fn networks(&self) -> Self::Networks {
        [
            Network { bits: u64::from_le_bytes(word(&self.0, 0)), length: 64, shares: 1 },
            Network { bits: self.source(), length: 48, shares: SITE_SHARES },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
