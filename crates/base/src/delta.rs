//! The changes of peers, as the nodes of a cluster tell them each other.
//!
//! An announce reports what it has changed: its peer is new or has another role, has left, has completed a download
//! that was counted, or is only renewed. Of the renewals within a quarter of the timeout, the first is told apart, from
//! the stamp that the store has anyway. A client that announces every minute is therefore sent to other nodes four
//! times in a timeout. Quarters begin at other times for each address, or busy clients would be sent all at once. The
//! report takes some 20 instructions of an announce (1.1 %).

use core::net::IpAddr;

use crate::{Action, InfoHash, PeerId};

/// The change of a peer in its swarm by its own announce, from the least to the most.
///
/// Time has periods of about a quarter of the timeout of peers, which do not begin for all peers at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PeerChange {
    /// The peer is not a member, and was none: it only read the swarm, or it stopped without having been there.
    #[default]
    Nothing,
    /// It was there in the same role, and has announced in the same period before.
    Unchanged,
    /// It was there in the same role, and this is its first announce in the period.
    Renewed,
    /// It is new, or has another role now.
    Joined,
    /// It has completed its download, and the download was counted.
    Completed,
    /// It has left.
    Left,
}

/// The effect that an announce at one node has had, so that the others have it too.
///
/// It names a peer of UDP and HTTP by its address. IPv4 and IPv6 peers of a torrent are in swarms of their own, as everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delta {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The state of the peer from now on. `Complete` stands for a seeder whose download was counted.
    pub action: Action,
    /// The address of the peer, in canonical form.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
}

/// The same for a peer of WebTorrent, which is connected to one node and known to the others by its peer id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Presence {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The state of the peer from now on. `Complete` stands for a seeder whose download was counted.
    pub action: Action,
    /// The peer id.
    pub peer_id: PeerId,
    /// The keyed hashes of its source, so that it counts towards the share of that source everywhere.
    pub source: [u8; 7],
}
