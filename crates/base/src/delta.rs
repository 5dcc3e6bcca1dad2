//! The changes of peers that the nodes of a cluster report to each other.
//!
//! An announce reports its change: its peer is new or has another role, has left, has completed a download that was
//! counted, or is only renewed. The first renewal within a quarter of the timeout is reported as such, based on a time
//! stamp that the store has anyway. So a client that announces every minute is sent to other nodes four times in a
//! timeout. Quarters begin at different times for each address, or all busy clients would be sent at once. The report
//! takes some 20 instructions of an announce (1.1 %).

use core::net::IpAddr;

use crate::{Action, InfoHash, PeerId};

/// The change of a peer in its swarm by its own announce, from the least to the most.
///
/// Time has periods of about a quarter of the timeout of peers, which begin at different times for different peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PeerChange {
    /// The peer neither was nor is a member: it only read the swarm, or it stopped without having been there.
    #[default]
    Nothing,
    /// It was present in the same role, and has already announced in this period.
    Unchanged,
    /// It was present in the same role, and this is its first announce in the period.
    Renewed,
    /// It is new, or has another role now.
    Joined,
    /// It has completed its download, and the download was counted.
    Completed,
    /// It has left.
    Left,
}

/// The effect of an announce at one node, for the other nodes.
///
/// It names a peer of UDP and HTTP by its address. As everywhere, the IPv4 and IPv6 peers of a torrent have separate
/// swarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delta {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The new state of the peer. `Complete` stands for a seeder whose download was counted.
    pub action: Action,
    /// The address of the peer, in canonical form.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
}

/// The effect of an announce of a WebTorrent peer, which is connected to one node. The others know it by its peer id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Presence {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The new state of the peer. `Complete` stands for a seeder whose download was counted.
    pub action: Action,
    /// The peer id.
    pub peer_id: PeerId,
    /// The keyed hashes of its source, so that it counts towards the share of that source on all nodes.
    pub source: [u8; 7],
}
