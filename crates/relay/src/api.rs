//! The public interface of the swarms.

use core::fmt;

use shoal_transport::stream::Handle;
use shoal_types::PeerId;

use crate::key::{OfferKey, Source};
use crate::pending_offer::PENDING_OFFERS_BYTES_MAX;

/// The operator's settings of the swarms.
#[derive(Clone)]
pub struct Settings {
    /// Maximum number of peers of all swarms together. When more than half of it, or of the memory, is in use, each
    /// source is limited to a share that falls with the free part.
    pub peers_max: u64,
    /// Maximum memory in bytes, as [`Swarms::memory_bytes`](crate::Swarms::memory_bytes) counts it: [`PEER_BYTES`] for
    /// each peer, and 12 for each of its offers of the last two minutes that has no answer, of which 64 are remembered.
    /// At the ceiling, new peers are refused, and offers are remembered and relayed only in memory that is already
    /// allocated.
    pub memory_bytes_max: u64,
    /// Maximum number of bytes per second that a connection may have relayed as offers, averaged over eight seconds. A
    /// source may have eight times as many. Zero means no limit.
    pub relay_rate_max: u32,
    /// Seconds after its last announce at which a peer is forgotten although its connection is open. This usually
    /// happens within an eighth of the lifetime more, at the latest within two eighths.
    pub peer_lifetime_s: u32,
    /// Secret of the keyed hashing.
    pub hash_key: [u64; 2],
}

/// Maximum memory of a peer without its offers: that of a peer alone in its swarm, just after the tables of its shard
/// have grown, with two entries in the list of its connection. In a large swarm, a peer takes about 200 bytes.
pub const PEER_BYTES: u64 = 360;

/// Maximum memory of a peer, including its offers.
pub const PEER_BYTES_MAX: u64 = PEER_BYTES + PENDING_OFFERS_BYTES_MAX;

impl fmt::Debug for Settings {
    /// Shows all fields but the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("peers_max", &self.peers_max)
            .field("memory_bytes_max", &self.memory_bytes_max)
            .field("relay_rate_max", &self.relay_rate_max)
            .field("peer_lifetime_s", &self.peer_lifetime_s)
            .finish_non_exhaustive()
    }
}

/// A connection, among those of all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The worker of the connection.
    pub worker: u16,
    /// The handle of the connection within its worker.
    pub handle: Handle,
}

/// The part of the torrent that an announcing peer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// It is still downloading (a seeder becomes a leecher again).
    Leech,
    /// It has the complete torrent.
    Seed,
    /// It has just completed its download: as `Seed`, and one download is counted. A peer is counted once, even if it
    /// leaves and returns within its lifetime, and a source a few times within that time.
    Complete,
}

/// An announce of a peer that is present. A peer that leaves is removed by [`Swarms::leave`](crate::Swarms::leave).
#[derive(Clone, Copy, Debug)]
pub struct Announce<'a> {
    /// The connection that announces.
    pub address: Address,
    /// The source of the connection.
    pub source: Source,
    /// The peer id that the client chose. Together with the info hash, it identifies the peer.
    pub peer_id: PeerId,
    /// The part of the torrent that the peer has.
    pub stance: Stance,
    /// Whether the connection may have one more peer.
    pub may_join: bool,
    /// The offers of the peer. Each goes to a different peer, as far as there are enough.
    pub offers: &'a [OfferKey],
}

/// The result of an announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The counts of the swarm after the announce, including the announcer.
    pub counts: Counts,
    /// Whether the peer is new to the connection: it joined, or was taken over from another connection.
    pub joined: bool,
}

/// The receiver of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferTarget {
    /// The connection of the receiver.
    pub address: Address,
    /// The position of the receiver in the swarm at the time of the announce.
    pub(crate) position: u32,
}

/// The reason why a peer does not enter a swarm. The swarms are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The given connection has a peer with this id in the swarm. That connection may be dead without the tracker's
    /// knowledge; the peer is given away once it has left a challenge unanswered, see
    /// [`Swarms::challenge`](crate::Swarms::challenge).
    PeerIdTaken(Address),
    /// The peer would be new to the connection, which may not have more peers.
    MayNotJoin,
    /// The maximum number of peers, or of bytes, is reached.
    Full,
    /// Room is short, and the source of the peer holds its full share.
    OverShare,
}

/// The result of removing a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The counts of the swarm without the peer.
    pub counts: Counts,
    /// Whether the peer was present as a peer of this connection.
    pub was_present: bool,
}

/// The receiver of an answer, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerMatch {
    /// The connection of the peer that made the offer.
    Offerer(Address),
    /// No receiver: the peer has no such offer pending.
    NotPending,
    /// No receiver: the peer is not in the swarm.
    PeerGone,
}

/// Counts of one swarm. All zero for a torrent without announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Peers that have the complete torrent.
    pub seeders: u32,
    /// Peers that do not.
    pub leechers: u32,
    /// Downloads completed since the swarm was created.
    pub completed: u32,
}

/// The result of one step of expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Number of peers that were forgotten, including those whose source held more than its share.
    pub peers: u64,
    /// Whether more work is already due, so that the caller should call again soon.
    pub behind: bool,
}

/// Totals of all swarms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Swarms with at least one peer.
    pub swarms: u64,
    /// Seeders of all swarms.
    pub seeders: u64,
    /// Leechers of all swarms.
    pub leechers: u64,
    /// Peers forgotten by expiry since the start, because they stopped announcing.
    pub expired: u64,
    /// Peers forgotten by expiry since the start, because room was short and their source held more than its share.
    pub evicted: u64,
}
