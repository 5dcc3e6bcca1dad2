//! The changes of peers, as the nodes of a cluster tell them each other.

use core::net::IpAddr;

use crate::{Action, InfoHash, PeerId};

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
