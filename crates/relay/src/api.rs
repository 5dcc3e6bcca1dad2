//! What is asked of the swarms, and what they answer.

use core::fmt;

use shoal_types::PeerId;

use crate::address::Address;
use crate::key::{OfferKey, Source};

/// What the operator decides about the swarms.
#[derive(Clone)]
pub struct Settings {
    /// Most peers of all swarms together. Above half of them, or of the memory, a source is limited to a share that falls
    /// as room does.
    pub peers_max: u64,
    /// Most bytes that they take, as [`Swarms::memory_bytes`](crate::Swarms::memory_bytes) counts them: [`PEER_BYTES`] for
    /// each, and 12 for each of its offers of the last two minutes that is not answered, of which 64 are remembered. At
    /// the ceiling nobody new is taken in, and no more offers are remembered, nor relayed, than there is room for.
    pub memory_bytes_max: u64,
    /// Most bytes a second that a connection may have relayed as offers, averaged over eight seconds; a source may have
    /// eight times as many. Zero does not limit them.
    pub relay_rate_max: u32,
    /// Seconds after its last announce at which a peer is forgotten though its connection stands; usually within an
    /// eighth of that more, at the latest within two.
    pub peer_lifetime_s: u32,
    /// Secret of the keyed hashing.
    pub hash_key: [u64; 2],
}

/// Most that a peer takes without its offers: one that is alone in its swarm, right after the tables of its shard have
/// grown, with two entries of a list of its connection. In a swarm of many a peer takes about 200.
pub const PEER_BYTES: u64 = 360;

/// Most that a peer takes in all.
pub const PEER_BYTES_MAX: u64 = PEER_BYTES + crate::debt::DEBTS_BYTES_MAX;

impl fmt::Debug for Settings {
    /// All but the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("peers_max", &self.peers_max)
            .field("memory_bytes_max", &self.memory_bytes_max)
            .field("relay_rate_max", &self.relay_rate_max)
            .field("peer_lifetime_s", &self.peer_lifetime_s)
            .finish_non_exhaustive()
    }
}

/// What an announcing peer has of the torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// It is still downloading (a seeder becomes a leecher again).
    Leech,
    /// It has everything.
    Seed,
    /// It has everything since just now: as `Seed`, and one download is counted, once per peer, also if it leaves and comes
    /// back within its lifetime, and a few times in that time per source.
    Complete,
}

/// One announce of a peer that is there. One that leaves is taken out by [`Swarms::leave`](crate::Swarms::leave).
#[derive(Clone, Copy, Debug)]
pub struct Announce<'a> {
    /// By which connection.
    pub address: Address,
    /// Where the connection comes from.
    pub source: Source,
    /// What the peer calls itself; with the info hash, its identity.
    pub peer_id: PeerId,
    /// What it has.
    pub stance: Stance,
    /// Whether the connection may have one peer more than it has.
    pub may_join: bool,
    /// Its offers: each goes to another peer, as far as there are as many.
    pub offers: &'a [OfferKey],
}

/// The answer to an announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The swarm after the announce, the announcer included.
    pub counts: Counts,
    /// Whether the peer was not the connection's before: it is new, or was taken over.
    pub joined: bool,
}

/// Whom an offer goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The connection of the peer.
    pub address: Address,
    /// Its place in the swarm at that moment.
    pub(crate) position: u32,
}

impl Target {
    pub(crate) fn position(&self) -> usize {
        usize::try_from(self.position).expect("an address has 32 bits or more")
    }
}

/// Why a peer does not enter a swarm. Everything is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Another connection has a peer of that name in the swarm. It may be dead without our knowledge: the peer is given
    /// away when it has left a challenge unanswered, see [`Swarms::challenge`](crate::Swarms::challenge).
    PeerIdTaken(Address),
    /// The peer would be new to the connection, which must have no more.
    MayNotJoin,
    /// As many peers as there may be are there.
    Full,
    /// Room is short, and the source of the peer has as many peers as it may have then, or more.
    OverShare,
}

/// What became of a peer that was to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The swarm without it.
    pub counts: Counts,
    /// Whether it was there, as a peer of that connection.
    pub was_there: bool,
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// To the connection of the peer that made the offer.
    Owed(Address),
    /// Nowhere: the peer awaits no such answer from there, or no more.
    Unawaited,
    /// Nowhere: the peer is not in the swarm.
    Gone,
}

/// Counts of one swarm. All zero for a torrent that nobody announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Peers that have everything.
    pub seeders: u32,
    /// Peers that do not.
    pub leechers: u32,
    /// Downloads completed since the swarm was created.
    pub completed: u32,
}

/// What one step of expiry did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Peers forgotten, those whose source had more than its share included.
    pub peers: u64,
    /// Whether more work is due already, so that the caller should come back soon.
    pub behind: bool,
}

/// Sums over all swarms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Swarms with at least one peer.
    pub swarms: u64,
    /// Seeders of all swarms.
    pub seeders: u64,
    /// Leechers of all swarms.
    pub leechers: u64,
    /// Peers forgotten by expiry since the start, for their silence.
    pub expired: u64,
    /// Peers forgotten by expiry since the start because room was short and their source had more than its share.
    pub evicted: u64,
}
