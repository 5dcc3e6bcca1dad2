//! The public interface of the swarms.

use core::fmt;
use std::sync::Arc;

use shoal_base::source::{Excess, Holdings, Source};
use shoal_base::transport::stream::Handle;
use shoal_base::{Action, Counts, PeerChange, PeerId};

use crate::key::OfferKey;
use crate::pending_offer::PENDING_OFFERS_BYTES_MAX;

/// The operator's settings of the swarms.
#[derive(Clone)]
pub struct Settings {
    /// Maximum number of peers of all swarms together. When more than half of it, or of the memory, is in use, each
    /// source is limited to a share that falls with the free part.
    pub peers_max: u64,
    /// Maximum memory in bytes, as [`Totals::bytes`](shoal_base::Totals::bytes) counts it: [`PEER_BYTES`] for each
    /// peer, and 12 for each of its unanswered offers of the last two minutes, of which 64 are remembered. A peer that
    /// is connected to another node, or is not the first of its node with its peer id, has 16 offers of 48 bytes at
    /// most. At the ceiling, new peers are refused, and offers are remembered and relayed only in memory that is
    /// already allocated.
    pub memory_bytes_max: u64,
    /// Maximum number of bytes per second that a connection may have relayed as offers, averaged over eight seconds. An
    /// offer counts as [`MESSAGE_BYTES_MIN`](crate::MESSAGE_BYTES_MIN) at least. A source may have eight times as many,
    /// and an IPv6 /48 64 times as many. To one receiver, a source may send an eighth of the offers of a connection.
    /// Zero means no limit.
    pub relay_rate_max: u32,
    /// Maximum share of the peers of a swarm, in per cent, that belong to one IPv4 address or IPv6 /48; 0 means no
    /// limit. It is checked when a peer joins; in swarms of more than 128 peers, a sample of 128 is checked. Some peers
    /// of a source are always admitted, see [`swarm_share`](shoal_base::source::swarm_share).
    pub swarm_share_max: u32,
    /// The peers and torrents of each source in all swarms, and their limits, if there are any. Each peer counts as one
    /// torrent.
    pub holdings: Option<Arc<Holdings>>,
    /// Seconds after its last announce at which a peer is forgotten although its connection is open. This usually
    /// happens within a further eighth of the lifetime, at the latest within two eighths.
    pub peer_lifetime_s: u32,
    /// Secret of the keyed hashing.
    pub hash_key: [u64; 2],
}

/// Maximum memory of a peer without its offers: a peer alone in its swarm, just after the tables of its shard have
/// grown, with two entries in the list of its connection. In a large swarm, a peer takes about 200 bytes.
pub const PEER_BYTES: u64 = 360;

/// Maximum memory of a peer, including its offers.
pub const PEER_BYTES_MAX: u64 = PEER_BYTES + PENDING_OFFERS_BYTES_MAX;

impl Settings {
    /// Returns settings without limits other than `peers_max`.
    pub const fn new(peers_max: u64, peer_lifetime_s: u32, hash_key: [u64; 2]) -> Self {
        Self {
            peers_max,
            peer_lifetime_s,
            hash_key,
            memory_bytes_max: u64::MAX,
            relay_rate_max: 0,
            swarm_share_max: 0,
            holdings: None,
        }
    }
}

impl fmt::Debug for Settings {
    /// Shows all fields but the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("peers_max", &self.peers_max)
            .field("memory_bytes_max", &self.memory_bytes_max)
            .field("relay_rate_max", &self.relay_rate_max)
            .field("swarm_share_max", &self.swarm_share_max)
            .field("holdings", &self.holdings)
            .field("peer_lifetime_s", &self.peer_lifetime_s)
            .finish_non_exhaustive()
    }
}

/// A connection of any worker, or another node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The worker of the connection, or [`REMOTE_WORKER`].
    pub worker: u16,
    /// The handle of the connection within its worker, or of the node.
    pub handle: Handle,
}

/// The worker number of peers that are connected to other nodes. Their address is their node, and messages for them go
/// to the mailbox of the thread that sends them there.
pub const REMOTE_WORKER: u16 = u16::MAX;

impl Address {
    /// Returns the address of the peers of another node.
    pub const fn of_node(handle: Handle) -> Self {
        Self { worker: REMOTE_WORKER, handle }
    }

    /// Returns whether its peers are connected to another node.
    pub const fn is_remote(self) -> bool {
        self.worker == REMOTE_WORKER
    }
}

/// A change of a peer that is connected to another node.
#[derive(Clone, Copy, Debug)]
pub struct RemoteAnnounce {
    /// The node.
    pub node: Handle,
    /// The source of the peer, as its node knows it.
    pub source: Source,
    /// The peer id.
    pub peer_id: PeerId,
    /// The change of its state. `Complete` stands for a download that the other node has counted.
    pub action: Action,
}

/// An announce, as the swarms see it.
#[derive(Clone, Copy, Debug)]
pub struct Announce<'a> {
    /// The connection that announces.
    pub address: Address,
    /// The source of the connection.
    pub source: Source,
    /// The peer id that the client chose. Info hash, connection and peer id together identify the peer: each connection
    /// may have a peer with any id, even if other connections have one too.
    pub peer_id: PeerId,
    /// The change of its state. A download is counted once for each peer, even if it leaves and returns within its
    /// lifetime, and a few times for each source within that time.
    pub action: Action,
    /// Whether the connection may have one more peer.
    pub may_join: bool,
    /// Whether the source is exempt from the limits on its peers, torrents and share of the swarm. Its peers still
    /// count.
    pub is_exempt: bool,
    /// The offers of the peer. Each goes to a different peer; if there are too few peers, the last offers go nowhere.
    pub offers: &'a [OfferKey],
}

/// The result of an announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The counts of the swarm after the announce, including the announcer.
    pub counts: Counts,
    /// Whether the peer is new to the connection.
    pub joined: bool,
    /// The change of the peer for other nodes. They know one peer of each id at this node, so nothing changes for them
    /// while another connection is the first one with the id.
    pub change: PeerChange,
    /// The first connection with a peer of the same id, if this one has just joined. It may be dead: a client that
    /// moved to another network returns before the tracker notices.
    pub older: Option<Address>,
}

/// The receiver of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferTarget {
    /// The connection of the receiver.
    pub address: Address,
    /// The peer id of the receiver.
    pub peer_id: PeerId,
    /// The position of the receiver in the swarm at the time of the announce.
    pub(crate) position: u32,
}

/// The reason why a peer does not enter a swarm. The swarms do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The peer would be new to the connection, which may not have more.
    MayNotJoin,
    /// The maximum number of peers, or of bytes, is reached.
    Full,
    /// Room is short, and the source of the peer already has its full share.
    OverShare,
    /// The source of the peer would exceed a limit.
    Excess(Excess),
}

/// The result of removing a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The counts of the swarm without the peer.
    pub counts: Counts,
    /// Whether the peer was present as a peer of this connection.
    pub was_present: bool,
    /// Whether other nodes must learn that it has left: it was the first peer of this node with its peer id.
    pub was_first: bool,
}

/// A peer of a swarm, as [`Swarms::peers`](crate::Swarms::peers) lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectedPeer {
    /// The peer id that the client chose.
    pub peer_id: PeerId,
    /// Whether it has the complete torrent.
    pub seeds: bool,
    /// Seconds since its last announce.
    pub age_s: u32,
}

/// An offer that waits for its answer, for another process to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingOfferState {
    /// The keyed hash of the offer and its receiver. Only a process with the same key can match it.
    pub key: [u32; 2],
    /// Seconds for which the answer is still accepted.
    pub left_s: u32,
}

/// The state of a peer in a swarm, for another process to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Whether it has the complete torrent.
    pub seeds: bool,
    /// Seconds since its last announce.
    pub age_s: u32,
    /// Whether the tracker has already decided about counting its download.
    pub is_download_decided: bool,
    /// The number of downloads that the swarm has counted.
    pub swarm_completed: u32,
    /// Seconds since the swarm was created.
    pub swarm_age_s: u32,
    /// Its offers that wait for an answer, oldest first.
    pub pending_offers: Vec<PendingOfferState>,
}

/// The outcome of an offer of a peer that is connected to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceivedOffer {
    /// It is pending, and goes to this connection.
    For(Address),
    /// It goes nowhere: its receiver has left, or there is no memory.
    Refused,
    /// Its receiver is here, but the peer that made the offer is unknown.
    UnknownOfferer,
}

/// The receiver of an answer, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerMatch {
    /// The connection that made the offer, or the node of that connection.
    Offerer(Address),
    /// No receiver: the peer has no such offer pending.
    NotPending,
    /// No receiver: the peer is not in the swarm.
    PeerGone,
}
