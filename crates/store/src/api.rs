//! The values of the public interface: settings, announces, and their results.

use core::fmt;
use std::sync::Arc;

use shoal_base::source::{Excess, Holdings};
use shoal_base::{Action, Counts, InfoHash, PeerChange};

/// Settings of the store.
#[derive(Clone)]
pub struct Settings {
    /// Maximum memory for swarms and peers in bytes, both families together. Lists of pages and of large swarms use the
    /// heap in addition: about one per cent, and up to ten if most swarms have some 150 peers.
    pub memory_bytes_max: u64,
    /// Time in seconds from its last announce until a peer is forgotten. Usually it takes up to a seventh of the
    /// timeout longer, at most three tenths.
    pub peer_timeout_s: u32,
    /// Secret of the keyed hashing, so that an attacker cannot aim at one bucket.
    pub hash_key: [u64; 4],
    /// Approximate maximum number of peers of one IPv4 address or one IPv6 /48 in a swarm; 0 means no limit. A large
    /// swarm may accept half as many again, or twice as many if the limit is above 128.
    pub peers_per_source_max: u32,
    /// Maximum share of a swarm's peers, in per cent, that may come from one such source; 0 means no limit. Some peers
    /// of a source are always admitted, see [`swarm_share`](shoal_base::source::swarm_share). Has no effect without
    /// `peers_per_source_max`.
    pub swarm_share_max: u32,
    /// The peers and torrents of each source in all swarms, and their limits. In a large swarm, a source has as many
    /// torrents as slots with peers: at most 16 unless `peers_per_source_max` is above 64.
    pub holdings: Option<Arc<Holdings>>,
}

impl Settings {
    /// Returns settings without limits of sources.
    pub const fn new(memory_bytes_max: u64, peer_timeout_s: u32, hash_key: [u64; 4]) -> Self {
        Self {
            memory_bytes_max,
            peer_timeout_s,
            hash_key,
            peers_per_source_max: 0,
            swarm_share_max: 0,
            holdings: None,
        }
    }
}

impl fmt::Debug for Settings {
    /// Shows all fields but the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("memory_bytes_max", &self.memory_bytes_max)
            .field("peer_timeout_s", &self.peer_timeout_s)
            .field("peers_per_source_max", &self.peers_per_source_max)
            .field("swarm_share_max", &self.swarm_share_max)
            .field("holdings", &self.holdings)
            .finish_non_exhaustive()
    }
}

/// An announce, as the store sees it.
#[derive(Clone, Copy, Debug)]
pub struct Announce<P> {
    /// The announcing peer.
    pub peer: P,
    /// The change of its state.
    pub action: Action,
    /// Maximum number of other peers that the announcer wants. The space in the reply limits this further.
    pub peers_wanted: usize,
}

/// The result of an announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// The counts of the swarm after the announce, including the announcer.
    pub counts: Counts,
    /// Number of peers written to the beginning of the buffer.
    pub peers: usize,
    /// The change of the announcer in the swarm.
    pub change: PeerChange,
}

/// One torrent in the list of all torrents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The info hash of the torrent.
    pub info_hash: InfoHash,
    /// The sums over its swarms of both families.
    pub counts: Counts,
}

/// Why a peer was not stored. Otherwise the store is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The memory ceiling is reached.
    Full,
    /// Memory is short, and the source of the peer holds its full share.
    OverShare,
    /// The source of the peer would exceed a limit.
    Excess(Excess),
}

impl From<Excess> for Rejection {
    fn from(excess: Excess) -> Self {
        Self::Excess(excess)
    }
}
