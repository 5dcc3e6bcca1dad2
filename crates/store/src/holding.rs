//! The torrents of each source: which swarms are new to the networks of a peer that joins, and which its networks have
//! left when it leaves.
//!
//! A network has a torrent while it has a peer in the swarm. A single peer or a small swarm is searched for
//! another peer of the network. A large swarm is searched in one slot of the source only, whose peers lie in the lines that
//! the announce reads anyway, so a network has as many torrents there as slots with peers. The conversion between a
//! small and a large swarm therefore changes the counts of networks with several peers.
//!
//! Nothing here is done unless torrents are limited.

use shoal_base::source::Networks;

use crate::api::Rejection;
use crate::family::Family;
use crate::hash::HashKey;
use crate::memory::Memory;
use crate::pressure::Pressure;
use crate::shard::Shard;
use crate::swarm::large::Large;

/// Returns the networks of a peer in which there are others among `peers`. The peer itself is not counted.
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

/// Returns the networks of a peer of which there are others in its slot of a large swarm.
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

/// The effect on the counts when a swarm changes between small and large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    ToLarge,
    ToSmall,
}

/// Adapts the counts of the torrents of networks that have several peers in a swarm that is converted.
pub(crate) fn convert<P: Family>(pressure: &Pressure, key: &HashKey, peers: &[P], conversion: Conversion) {
    if !pressure.counts_torrents() {
        return;
    }
    for (index, peer) in peers.iter().enumerate() {
        let (before, slot) = (&peers[..index], peer.slot(key));
        let first = Networks::ALL.without(networks_among(peer, before));
        let in_slot = before.iter().filter(|other| other.slot(key) == slot);
        // The first of its network counts in both forms, the first of another slot in a large swarm only.
        let further = Networks::ALL.without(networks_among(peer, in_slot)).without(first);
        match conversion {
            Conversion::ToLarge => pressure.add_torrent(peer, further),
            Conversion::ToSmall => pressure.remove_torrent(peer, further),
        }
    }
}

impl<P: Family> Shard<P> {
    /// Decides whether a new peer may be stored. `present` returns those of its networks that have peers in the swarm.
    /// Returns the others, for which the swarm is a new torrent.
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

    /// Stops counting a torrent for a peer that has left a swarm in which these peers remain.
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
