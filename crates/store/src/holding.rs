//! The torrents of each source: which torrents are new to the networks of a joining peer, and which its networks leave
//! with it.
//!
//! A network has a torrent while it has a peer in the swarm. A single peer or a small swarm is searched for another
//! peer of the network. In a large swarm, only one slot of the source is searched, whose lines the announce reads
//! anyway. So a network has as many torrents there as slots with peers. The conversion between a small and a large
//! swarm changes the counts of networks with several peers.
//!
//! Without limits on torrents, nothing here runs.

use shoal_base::source::Networks;

use crate::api::Rejection;
use crate::family::Family;
use crate::hash::HashKey;
use crate::memory::Memory;
use crate::pressure::Pressure;
use crate::shard::Shard;
use crate::swarm::large::Large;

/// Returns the networks of `peer` that have other members among `peers`.
pub(crate) fn networks_among<'p, P: Family + 'p>(
    peer: &P,
    peers: impl IntoIterator<Item = &'p P>,
) -> Networks {
    let mut found = Networks::default();
    for other in peers {
        if other != peer {
            let shared = peer.networks_shared_with(other);
            found = Networks { address: found.address || shared.address, site: found.site || shared.site };
        }
    }
    found
}

/// Returns the networks of `peer` that have other members in its slot of a large swarm.
pub(crate) fn networks_in_slot<P: Family>(
    large: &Large<P>,
    memory: &Memory,
    key: &HashKey,
    peer: &P,
) -> Networks {
    let mut found = Networks::default();
    large.visit_slot(memory, key, peer, peer.slot(key), |other| {
        let one = networks_among(peer, [other]);
        found = Networks { address: found.address || one.address, site: found.site || one.site };
    });
    found
}

/// Which way a swarm is converted between small and large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    ToLarge,
    ToSmall,
}

/// Adapts the counts of networks with several peers to the conversion of their swarm.
pub(crate) fn convert<P: Family>(pressure: &Pressure, key: &HashKey, peers: &[P], conversion: Conversion) {
    if !pressure.counts_torrents() {
        return;
    }
    for (index, peer) in peers.iter().enumerate() {
        let (before, slot) = (&peers[..index], peer.slot(key));
        let first = Networks::ALL.without(networks_among(peer, before));
        let in_slot = before.iter().filter(|other| other.slot(key) == slot);
        // The first peer of its network counts in both forms. The first peer of another slot counts only in a large
        // swarm.
        let further = Networks::ALL.without(networks_among(peer, in_slot)).without(first);
        match conversion {
            Conversion::ToLarge => pressure.add_torrent(peer, further),
            Conversion::ToSmall => pressure.remove_torrent(peer, further),
        }
    }
}

impl<P: Family> Shard<P> {
    /// Decides whether a new peer may be stored. `present` returns its networks that have peers in the swarm. Returns
    /// the other networks, for which the torrent is new.
    #[inline]
    pub(crate) fn admit(
        &self,
        new_peer: &P,
        present: impl FnOnce() -> Networks,
    ) -> Result<Networks, Rejection> {
        let new = if self.pressure.counts_torrents() {
            Networks::ALL.without(present())
        } else {
            Networks::default()
        };
        self.pressure.admit(new_peer, new, self.is_exempt)?;
        Ok(new)
    }

    /// Uncounts a torrent for a peer that has left a small swarm with these remaining peers.
    #[inline]
    pub(crate) fn leave_small<'p>(&self, peer: &P, remaining: impl FnOnce() -> &'p [P])
    where
        P: 'p,
    {
        if self.pressure.counts_torrents() {
            self.pressure.remove_torrent(peer, Networks::ALL.without(networks_among(peer, remaining())));
        }
    }
}
