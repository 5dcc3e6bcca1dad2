//! Decides which peers of other nodes are admitted here, and counts them.
//!
//! A peer's own node applies the rules about clients. This node applies its rules about torrents, networks, addresses
//! and ports, since a list may have arrived here first.

use core::net::IpAddr;

use shoal_base::metrics::{counters, labels};
use shoal_base::{Action, InfoHash};
use shoal_store::PrivateNetwork;

use crate::address;
use crate::policy::Policy;

labels! {
    /// Why a peer of another node is refused.
    pub enum RefusedPeer {
        /// No other peer could reach it: it has port 0, or an unspecified, multicast or broadcast address.
        UnusableAddress = "unusable_address",
        /// Its address is private, and such peers are not served.
        PrivateAddress = "private_address",
        /// A list forbids its network.
        Network = "network_denied",
        /// A list forbids its port.
        Port = "port_denied",
        /// A list forbids its torrent.
        Torrent = "torrent_denied",
        /// There is not enough memory.
        Memory = "memory",
    }
}

counters! {
    /// The counters of the peers of other nodes.
    pub struct ReplicationCounters {
        /// Changes of peers by announces at other nodes that were applied.
        pub applied = "shoal_replication_applied";
        /// Changes of peers by announces at other nodes that came so late that the peers had announced here since.
        pub superseded = "shoal_replication_superseded";
        /// Peers of other nodes that were refused, by reason.
        pub refused = "shoal_replication_refused", by reason: RefusedPeer;
        /// Peers that were added from snapshots of other nodes.
        pub adopted = "shoal_replication_adopted";
    }
}

/// Decides whether a peer at a canonical address may be handed out. Returns its private network if that is kept
/// apart. A leaving peer may have any usable address.
#[inline]
pub(super) fn check_peer(
    policy: &Policy,
    ip: IpAddr,
    port: u16,
    action: Action,
) -> Result<Option<PrivateNetwork>, RefusedPeer> {
    if port == 0 || address::is_nowhere(ip) {
        return Err(RefusedPeer::UnusableAddress);
    }
    if action != Action::Stop {
        address::check(ip, policy.private_addresses()).map_err(|_| RefusedPeer::PrivateAddress)?;
        policy.check_network(ip).map_err(|_| RefusedPeer::Network)?;
        if policy
            .access()
            .and_then(|access| access.ports_deny.as_deref())
            .is_some_and(|ports| ports.contains(port))
        {
            return Err(RefusedPeer::Port);
        }
    }
    Ok(policy.network_apart(ip))
}

/// Decides whether a torrent is served here.
#[inline]
pub(super) fn check_torrent(policy: &Policy, info_hash: &InfoHash) -> Result<(), RefusedPeer> {
    policy.check_torrent(info_hash).map_err(|_| RefusedPeer::Torrent)
}
