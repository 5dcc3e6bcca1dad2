//! The state of a connected client.

use core::net::IpAddr;

use shoal_access::rules::HeaderMatch;
use shoal_base::transport::stream::Handle;
use shoal_base::{InfoHash, PeerId};
use shoal_relay::{Address, Source, Swarms, TokenBucket};

use crate::counter::Family;
use crate::tokens::SocketToken;

/// Maximum number of peer ids with which a connection takes part in one torrent. Ordinary clients have one, or
/// briefly two.
pub(super) const PEER_IDS_PER_TORRENT_MAX: usize = 4;

/// How many peers of a full list are checked at a time, to find those that the swarms have forgotten.
const PRUNED_AT_ONCE: usize = 16;

/// A connected client: its connection, its source and its peers. It owns no heap memory before its first announce,
/// and 40 bytes per peer from then on.
#[derive(Debug)]
pub struct Member {
    handle: Handle,
    source: Source,
    /// The peers, in no order. The swarms may have forgotten some of them.
    peers: Vec<Peer>,
    pub(super) family: Family,
    /// The remaining relay allowance.
    pub(super) bucket: TokenBucket,
    /// The token with which it connected.
    pub(super) token: SocketToken,
    /// The rule about the head of the request with which it connected.
    pub(super) headers: HeaderMatch,
}

const _: () = assert!(size_of::<Member>() <= 56, "there may be a hundred thousand of them");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) info_hash: InfoHash,
    pub(super) peer_id: PeerId,
}

impl Member {
    pub(super) fn new(
        handle: Handle,
        ip: IpAddr,
        source: Source,
        token: SocketToken,
        headers: HeaderMatch,
    ) -> Self {
        Self {
            handle,
            source,
            peers: Vec::new(),
            family: Family::of(ip),
            bucket: TokenBucket::default(),
            token,
            headers,
        }
    }

    pub(super) const fn address(&self, worker: u16) -> Address {
        Address { worker, handle: self.handle }
    }

    /// Returns the connection of the client.
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    pub(super) const fn source(&self) -> Source {
        self.source
    }

    /// Returns the memory of its list of peers and of its token.
    pub fn held_bytes(&self) -> usize {
        self.peers.capacity() * size_of::<Peer>() + self.token.held_bytes()
    }

    /// Returns whether it has a peer in a swarm.
    pub fn has_peers(&self) -> bool {
        !self.peers.is_empty()
    }

    pub(super) fn peers(&self) -> &[Peer] {
        &self.peers
    }

    pub(super) fn take_peers(&mut self) -> Vec<Peer> {
        core::mem::take(&mut self.peers)
    }

    /// Returns whether the client may have one more peer of a torrent. At the limit, removes the peers that the
    /// swarms have forgotten.
    pub(super) fn may_add(&mut self, swarms: &Swarms, worker: u16, info_hash: &InfoHash) -> bool {
        let is_full = |peers: &[Peer]| {
            peers.iter().filter(|peer| peer.info_hash == *info_hash).count() >= PEER_IDS_PER_TORRENT_MAX
        };
        if is_full(&self.peers) {
            let (key, address) = (swarms.swarm_key(info_hash), self.address(worker));
            self.peers
                .retain(|peer| peer.info_hash != *info_hash || swarms.has_peer(&key, &peer.peer_id, address));
        }
        !is_full(&self.peers)
    }

    pub(super) fn add(&mut self, peer: Peer) {
        if self.peers.contains(&peer) {
            return;
        }
        if self.peers.len() == self.peers.capacity() {
            // Most clients are in only one swarm.
            self.peers.reserve_exact(self.peers.len().max(1));
        }
        self.peers.push(peer);
    }

    pub(super) fn remove(&mut self, peer: &Peer) {
        if let Some(index) = self.peers.iter().position(|other| other == peer) {
            self.peers.swap_remove(index);
        }
        if self.peers.is_empty() {
            self.peers = Vec::new();
        }
    }

    /// Checks some random peers and removes those that the swarms have forgotten. It checks only some because a full
    /// client asks often. Returns whether it removed any.
    pub(super) fn prune(&mut self, swarms: &Swarms, worker: u16, rng: &mut fastrand::Rng) -> bool {
        let address = self.address(worker);
        let before = self.peers.len();
        for _ in 0..PRUNED_AT_ONCE.min(before) {
            if self.peers.is_empty() {
                break;
            }
            let index = rng.usize(..self.peers.len());
            let Peer { info_hash, peer_id } = self.peers[index];
            if !swarms.has_peer(&swarms.swarm_key(&info_hash), &peer_id, address) {
                self.peers.swap_remove(index);
            }
        }
        self.peers.len() < before
    }
}
