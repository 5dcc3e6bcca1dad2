//! What differs between the address families: nothing but sizes.

use core::fmt::Debug;

use shoal_protocol::{PeerV4, PeerV6};
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

    /// The hash of a peer.
    fn hash(&self, key: &HashKey) -> u64;
}

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

    #[inline]
    fn hash(&self, key: &HashKey) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        key.hash_word(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }
}

impl Family for PeerV6 {}

impl Stored for PeerV6 {
    type Line = PeerLine<Self, 10>;
    // A peer is so large that the last per cent of memory is worth some more moves.
    const FILL_64THS: u32 = 54;
    const LADDER: &'static Ladder = &EIGHTHS;

    #[inline]
    fn hash(&self, key: &HashKey) -> u64 {
        let port = u16::from_le_bytes(word(&self.0, 16));
        key.hash(u64::from_le_bytes(word(&self.0, 0)), u64::from_le_bytes(word(&self.0, 8)), u64::from(port))
    }
}
