//! What is kept of a connected client.

use core::net::IpAddr;

use shoal_relay::{Address, Bucket, Source, Swarms};
use shoal_types::{InfoHash, PeerId};
use shoal_wire::stream::Handle;

use crate::address;
use crate::counter::Family;
use crate::refusal::Refusal;

/// How many peers are looked at, when there are as many as there may be, to find some that have been forgotten.
const PRUNED_AT_ONCE: usize = 16;

/// A connected client: where it is, whence it came, and which peers it is. Owns no memory before its first announce, and
/// 40 bytes a peer then.
#[derive(Debug)]
pub struct Member {
    handle: Handle,
    source: Source,
    /// In no order. Some may have been forgotten by the swarms since, or taken over by another connection.
    peers: Vec<Peer>,
    pub(super) family: Family,
    /// Claims of it that wait to be decided.
    pub(super) claims: u8,
    /// What it may still have relayed.
    pub(super) bucket: Bucket,
    /// Why it may enter no swarm.
    pub(super) refusal: Option<Refusal>,
}

const _: () = assert!(size_of::<Member>() <= 48, "there may be a hundred thousand of them");

/// What a client is in one swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) info_hash: InfoHash,
    pub(super) peer_id: PeerId,
}

impl Member {
    pub(super) fn new(handle: Handle, ip: IpAddr, source: Source, refuse_private_addresses: bool) -> Self {
        Self {
            handle,
            source,
            peers: Vec::new(),
            family: Family::of(ip),
            claims: 0,
            bucket: Bucket::default(),
            refusal: address::check(ip, refuse_private_addresses).err(),
        }
    }

    pub(super) const fn address(&self, worker: u16) -> Address {
        Address { worker, handle: self.handle }
    }

    /// The connection of the client.
    #[must_use]
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    pub(super) const fn source(&self) -> Source {
        self.source
    }

    /// How much memory the list of its peers takes.
    #[must_use]
    pub const fn list_bytes(&self) -> usize {
        self.peers.capacity() * size_of::<Peer>()
    }

    pub(super) fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Notes a peer that the swarms have taken in.
    pub(super) fn add(&mut self, peer: Peer) {
        if self.peers.contains(&peer) {
            return;
        }
        if self.peers.len() == self.peers.capacity() {
            // Most clients are in one swarm only.
            self.peers.reserve_exact(self.peers.len().max(1));
        }
        self.peers.push(peer);
    }

    /// Notes that a peer has left.
    pub(super) fn remove(&mut self, peer: &Peer) {
        if let Some(place) = self.peers.iter().position(|other| other == peer) {
            self.peers.swap_remove(place);
        }
        if self.peers.is_empty() {
            self.peers = Vec::new();
        }
    }

    /// Looks for peers that are not there any more, among some drawn at random: who is full asks often. Returns whether
    /// there were any.
    pub(super) fn prune(&mut self, swarms: &Swarms, worker: u16, rng: &mut fastrand::Rng) -> bool {
        let address = self.address(worker);
        let before = self.peers.len();
        for _ in 0..PRUNED_AT_ONCE.min(before) {
            if self.peers.is_empty() {
                break;
            }
            let place = rng.usize(..self.peers.len());
            let Peer { info_hash, peer_id } = self.peers[place];
            if !swarms.has(&swarms.locate(&info_hash), &peer_id, address) {
                self.peers.swap_remove(place);
            }
        }
        self.peers.len() < before
    }
}
