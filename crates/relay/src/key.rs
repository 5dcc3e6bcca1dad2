//! Keyed hashes of values that clients choose: info hashes, peer ids, offer ids, addresses.
//!
//! Without the secret, a client cannot aim at one bucket of a table or find two values with the same hash. Each kind of
//! value has its own key.

use core::fmt;
use core::net::IpAddr;

use shoal_base::source::{Source, SourceHasher, spread};
use shoal_base::{InfoHash, PeerId};
use siphasher::sip::SipHasher13;

use crate::api::Address;

/// An info hash and its keyed hash. [`Swarms::swarm_key`](crate::Swarms::swarm_key) computes it once per request,
/// before any lock is taken.
#[derive(Clone, Copy, Debug)]
pub struct SwarmKey {
    pub(crate) info_hash: InfoHash,
    pub(crate) hash: u64,
}

/// The keyed hash of an offer id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OfferKey(pub(crate) u64);

#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerKey {
    pub(crate) peer_id: PeerId,
    pub(crate) hash: u64,
}

impl PeerKey {
    pub(crate) const fn hash_at(&self, address: Address) -> u64 {
        let Address { worker, handle } = address;
        let handle_bits = (handle.generation as u64) << 32 | handle.index as u64;
        spread(spread(self.hash ^ handle_bits) ^ worker as u64)
    }
}

impl OfferKey {
    /// Returns the key of the offer if this peer makes it.
    pub(crate) const fn of(self, offerer: &PeerKey) -> Self {
        Self(self.0 ^ offerer.hash.rotate_left(32))
    }
}

/// The secret keys, one for each kind of value.
#[derive(Clone)]
pub(crate) struct KeyHasher {
    info_hash: SipHasher13,
    peer_id: SipHasher13,
    offer: SipHasher13,
    source: SourceHasher,
}

impl KeyHasher {
    pub(crate) fn new([first, second]: [u64; 2]) -> Self {
        // SipHash is a family of functions: each key selects a different one.
        let keyed = |kind: u64| SipHasher13::new_with_keys(first, second.wrapping_add(kind));
        let source = SourceHasher::new([first, second.wrapping_add(3)]);
        Self { info_hash: keyed(0), peer_id: keyed(1), offer: keyed(2), source }
    }

    /// Returns this hasher with another one for sources.
    pub(crate) fn with_sources(self, source: &SourceHasher) -> Self {
        Self { source: source.clone(), ..self }
    }

    pub(crate) fn swarm(&self, info_hash: &InfoHash) -> SwarmKey {
        SwarmKey { info_hash: *info_hash, hash: self.info_hash.hash(&info_hash.0) }
    }

    pub(crate) fn peer(&self, peer_id: &PeerId) -> PeerKey {
        PeerKey { peer_id: *peer_id, hash: self.peer_id.hash(&peer_id.0) }
    }

    pub(crate) fn offer(&self, offer_id: &[u8]) -> OfferKey {
        OfferKey(self.offer.hash(offer_id))
    }

    pub(crate) fn source(&self, ip: IpAddr) -> Source {
        self.source.source(ip)
    }

    /// Returns the hash of the completed download of a torrent by a peer.
    pub(crate) fn download(swarm: &SwarmKey, peer: &PeerKey) -> u64 {
        spread(swarm.hash ^ peer.hash.rotate_left(1))
    }

    /// Returns the hash of all completed downloads of a torrent by one source: an IPv4 address or a /48.
    pub(crate) fn downloads(swarm: &SwarmKey, source: Source) -> u64 {
        let of_source = source.site_hash().unwrap_or_else(|| source.network_hash());
        spread(swarm.hash ^ of_source.rotate_left(2))
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher(secret)")
    }
}

impl fmt::Debug for OfferKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfferKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_of_different_kinds_have_different_hashes() {
        let keys = KeyHasher::new([1, 2]);
        let (info_hash, peer_id) = (InfoHash([7; 20]), PeerId([7; 20]));
        let mut hashes = [keys.swarm(&info_hash).hash, keys.peer(&peer_id).hash, keys.offer(&[7; 20]).0];
        hashes.sort_unstable();
        assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]));
        let [low @ .., _, _, _, _] = keys.offer(&[7; 4]).0.to_le_bytes();
        assert_ne!(low, keys.source([7; 4].into()).network().to_le_bytes());
    }

    #[test]
    fn the_secret_matters() {
        let (one, other) = (KeyHasher::new([1, 2]), KeyHasher::new([1, 3]));
        assert_ne!(one.swarm(&InfoHash([7; 20])).hash, other.swarm(&InfoHash([7; 20])).hash);
        assert_eq!(one.swarm(&InfoHash([7; 20])).hash, KeyHasher::new([1, 2]).swarm(&InfoHash([7; 20])).hash);
        assert_eq!(format!("{one:?}"), "KeyHasher(secret)");
    }
}
