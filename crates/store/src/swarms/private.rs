//! The swarms of private networks, apart from all others.
//!
//! Their peers are useful only in their own network. So a torrent has one swarm for each such network, beside the
//! public one. These swarms have their own tables, so that no list of torrents contains them. A secret mask of its
//! network is applied to a swarm's info hash there: without the mask, no client can name an info hash that leads to
//! another network's swarm.
//!
//! Announces from such networks are rare, so they are served one by one and not in the passes of a batch. The
//! alternative was to filter the peers of replies. In a large swarm, neighbours would then hardly ever find each other.

use shoal_base::{Expired, InfoHash, PeerV4, PeerV6, Totals};

use crate::Place;
use crate::family::Family;
use crate::hash::HashKey;
use crate::swarms::Swarms;

/// A network that only its own hosts can reach, judged by its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrivateNetwork {
    /// 127.0.0.0/8 and `::1`: one host.
    Loopback,
    /// 169.254.0.0/16 and `fe80::/10`.
    LinkLocal,
    /// 10.0.0.0/8.
    Ten,
    /// 172.16.0.0/12.
    OneSevenTwo,
    /// 192.168.0.0/16.
    OneNineTwo,
    /// 100.64.0.0/10, which the customers of a carrier share (RFC 6598).
    Shared,
    /// `fc00::/7` (RFC 4193).
    UniqueLocal,
}

/// Purpose of the key of the masks, which is derived from the secret of the store.
const KEY_PURPOSE: u64 = 0x7072_6976_6174_6521;

/// Number of shards of a family. Few clients have private addresses.
pub(crate) const SHARDS: usize = 4;

/// The swarms of private networks.
#[derive(Debug)]
pub struct PrivateSwarms {
    /// Swarms of IPv4 peers.
    pub v4: Swarms<PeerV4>,
    /// Swarms of IPv6 peers.
    pub v6: Swarms<PeerV6>,
    key: HashKey,
}

impl PrivateNetwork {
    /// All private networks.
    pub const ALL: [Self; 7] = [
        Self::Loopback,
        Self::LinkLocal,
        Self::Ten,
        Self::OneSevenTwo,
        Self::OneNineTwo,
        Self::Shared,
        Self::UniqueLocal,
    ];
}

impl PrivateSwarms {
    pub(crate) fn new(v4: Swarms<PeerV4>, v6: Swarms<PeerV6>, key: &HashKey) -> Self {
        Self { v4, v6, key: key.derived(KEY_PURPOSE) }
    }

    /// Returns the place of a torrent's swarm in a network. It is the same in both families.
    pub fn locate(&self, info_hash: &InfoHash, network: PrivateNetwork) -> Place {
        self.v4.locate(&self.mask(info_hash, network))
    }

    /// Returns the candidates for the torrent's info hash: the masked one under the mask of each network.
    pub(crate) fn unmask(&self, masked: &InfoHash) -> [InfoHash; PrivateNetwork::ALL.len()] {
        // A mask is its own inverse.
        PrivateNetwork::ALL.map(|network| self.mask(masked, network))
    }

    pub(crate) fn remove(&self, info_hash: &InfoHash) -> bool {
        let removed = PrivateNetwork::ALL.map(|network| {
            let info_hash = self.mask(info_hash, network);
            let [v4, v6] = [self.v4.remove(&info_hash), self.v6.remove(&info_hash)];
            v4 || v6
        });
        removed.contains(&true)
    }

    pub(crate) fn totals(&self) -> [Totals; 2] {
        [self.v4.totals(), self.v6.totals()]
    }

    /// Advances expiry in all shards, see [`Swarms::expire`].
    pub(crate) fn expire(&self, now_s: u32, budget: usize) -> [Expired; 2] {
        [expire(&self.v4, now_s, budget), expire(&self.v6, now_s, budget)]
    }

    /// Returns an info hash under the mask of a network.
    fn mask(&self, info_hash: &InfoHash, network: PrivateNetwork) -> InfoHash {
        let mut masked = *info_hash;
        for (word, bytes) in (0..).zip(masked.0.chunks_mut(size_of::<u64>())) {
            let mask = self.key.hash(network as u64, word, 0).to_le_bytes();
            bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        }
        masked
    }
}

/// Advances expiry, unless the swarms are empty.
fn expire<P: Family>(swarms: &Swarms<P>, now_s: u32, budget: usize) -> Expired {
    if swarms.is_empty() { Expired::default() } else { swarms.expire(now_s, budget) }
}
