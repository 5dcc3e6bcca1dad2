//! The content of a store in pieces, as a snapshot holds it. `export` reads it while the store is in use, `restore`
//! puts it into an empty store, and `adopt` into one in use.
//!
//! This module knows no encoding and no file. It must not hold a lock for longer than a large reply takes.

mod adopt;
mod export;
mod restore;

use shoal_base::InfoHash;

pub use self::adopt::Adopted;
pub use self::export::Export;
pub use self::restore::{Ages, Restored};

/// A set of swarms of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SwarmSet {
    /// Public swarms of IPv4 peers.
    V4,
    /// Public swarms of IPv6 peers.
    V6,
    /// Swarms of IPv4 peers in private networks that are kept apart.
    PrivateV4,
    /// Swarms of IPv6 peers in private networks that are kept apart.
    PrivateV6,
}

impl SwarmSet {
    /// All sets, in the order of an export.
    pub const ALL: [Self; 4] = [Self::V4, Self::V6, Self::PrivateV4, Self::PrivateV6];

    /// Returns its index in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the size of a peer in bytes: its address and port in compact form.
    pub const fn peer_bytes(self) -> usize {
        match self {
            Self::V4 | Self::PrivateV4 => size_of::<shoal_base::PeerV4>(),
            Self::V6 | Self::PrivateV6 => size_of::<shoal_base::PeerV6>(),
        }
    }
}

/// A swarm, a part of a large swarm's peers, or the completed downloads of a torrent without peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwarmPart<'a> {
    /// The info hash. In a private network, the mask of the network is applied, so only a store with the same keys can
    /// use it.
    pub id: InfoHash,
    /// Completed downloads. Only the first part of a swarm has them.
    pub completed: u32,
    /// Seconds since the swarm was created. Without peers, seconds since the last peer left.
    pub age_s: u32,
    /// Number of seeders among the peers. They come first.
    pub seeders: usize,
    /// The peers in compact form, back to back.
    pub peers: &'a [u8],
    /// A byte for each peer: its age in ticks, a sixty-fourth of the timeout each, and [`COUNTED`].
    pub ages: &'a [u8],
}

/// The bit of an age that marks a peer whose completed download was counted, or never will be.
pub const COUNTED: u8 = 0x80;

/// The bits of an age that hold its number of ticks.
pub const AGE_TICKS: u8 = 0x7f;
