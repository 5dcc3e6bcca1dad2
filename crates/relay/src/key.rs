//! Keyed hashes of values that clients choose: info hashes, peer ids, offer ids, addresses.
//!
//! Without the secret, a client cannot aim at one bucket of a table or find two values with the same hash. Each kind of
//! value has its own key.

use core::fmt;
use core::net::IpAddr;

use shoal_types::{InfoHash, PeerId};
use siphasher::sip::SipHasher13;

/// An info hash and its keyed hash: computed once per request by [`Swarms::swarm_key`](crate::Swarms::swarm_key),
/// before any lock is taken.
#[derive(Clone, Copy, Debug)]
pub struct SwarmKey {
    pub(crate) info_hash: InfoHash,
    pub(crate) hash: u64,
}

/// The source of a client, as hashes that do not reveal it: its IPv4 address, or its IPv6 /64 (of which one host may
/// have all addresses) together with its /48.
///
/// It is stored for each peer, in seven bytes that would otherwise be padding. Two addresses or /64s have the same hash
/// with a probability of 2⁻³², two /48s with one of 2⁻²⁴. A modest network is therefore rarely confused with a greedy
/// one, even if there are thousands of greedy ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Source {
    network: [u8; 4],
    /// Zero for IPv4, never for IPv6.
    site: [u8; 3],
}

impl Source {
    /// Returns the group of the source, one of eight. Outbound queues count the offers of each group separately, so
    /// that a greedy source limits only its group.
    #[must_use]
    pub const fn group(self) -> u8 {
        self.network[3] >> 5
    }

    /// Returns which of `parts` parts the source belongs to, by its IPv4 address or /48. Returns zero if `parts` is zero.
    #[must_use]
    pub fn part(self, parts: usize) -> usize {
        let hash = self.site_hash().unwrap_or_else(|| self.network_hash());
        usize::try_from(hash % (parts as u64).max(1)).unwrap_or(0)
    }

    /// Returns the hash of the address or /64.
    pub(crate) const fn network(self) -> u32 {
        u32::from_le_bytes(self.network)
    }

    /// Returns the hash of the address or /64, spread over the 64 bits that a [`Sketch`](shoal_source::Sketch) uses.
    pub(crate) fn network_hash(self) -> u64 {
        spread(self.network().into())
    }

    /// Returns the hash of the /48, spread in the same way, if there is one.
    pub(crate) fn site_hash(self) -> Option<u64> {
        let [a, b, c] = self.site;
        (self.site != [0; 3]).then(|| spread(u64::from_le_bytes([a, b, c, 0, 1, 0, 0, 0])))
    }
}

#[cfg(test)]
impl Source {
    /// Returns an IPv4 source with this hash.
    pub(crate) const fn of_hash(hash: u32) -> Self {
        Self { network: hash.to_le_bytes(), site: [0; 3] }
    }
}

/// The keyed hash of an offer id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OfferKey(pub(crate) u64);

/// A peer id and its keyed hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerKey {
    pub(crate) peer_id: PeerId,
    pub(crate) hash: u64,
}

/// The secret keys, one for each kind of value.
#[derive(Clone)]
pub(crate) struct KeyHasher {
    info_hash: SipHasher13,
    peer_id: SipHasher13,
    offer: SipHasher13,
    source: SipHasher13,
}

impl KeyHasher {
    pub(crate) fn new([first, second]: [u64; 2]) -> Self {
        // SipHash is a family of functions: each key selects a different one.
        let keyed = |kind: u64| SipHasher13::new_with_keys(first, second.wrapping_add(kind));
        Self { info_hash: keyed(0), peer_id: keyed(1), offer: keyed(2), source: keyed(3) }
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
        let network = |bytes: &[u8]| {
            let [network @ .., _, _, _, _] = self.source.hash(bytes).to_le_bytes();
            network
        };
        match ip {
            IpAddr::V4(ip) => Source { network: network(&ip.octets()), site: [0; 3] },
            IpAddr::V6(ip) => {
                let [site @ .., _, _, _, _, _, _, _, _, _, _] = ip.octets();
                let [subnet @ .., _, _, _, _, _, _, _, _] = ip.octets();
                let [a, b, c, ..] = self.source.hash(&site).to_le_bytes();
                let site = if [a, b, c] == [0; 3] { [1, 0, 0] } else { [a, b, c] };
                Source { network: network(&subnet), site }
            }
        }
    }

    /// Returns the hash of the completed download of a torrent by a peer.
    pub(crate) fn download(swarm: &SwarmKey, peer: &PeerKey) -> u64 {
        spread(swarm.hash ^ peer.hash.rotate_left(1))
    }

    /// Returns the hash of all completed downloads of a torrent by one source, that is a /48 or an IPv4 address.
    pub(crate) fn downloads(swarm: &SwarmKey, source: Source) -> u64 {
        let of_source = source.site_hash().unwrap_or_else(|| source.network_hash());
        spread(swarm.hash ^ of_source.rotate_left(2))
    }
}

/// Permutes numbers such that every bit of the result depends on every bit of the argument, which must be secret
/// already.
const fn spread(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 29).wrapping_mul(0xd1b5_4a32_d192_ed03);
    number ^ number >> 32
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher(secret)")
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source(secret)")
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
        assert_ne!(low, keys.source([7; 4].into()).network);
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let keys = KeyHasher::new([1, 2]);
        let source = |ip: &str| keys.source(ip.parse().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:0:0:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        let site = |ip: &str| source(ip).site_hash();
        assert_eq!(site("2001:db8::1"), site("2001:db8:0:1::1"));
        assert_ne!(site("2001:db8::1"), site("2001:db8:1::1"));
        assert!(site("2001:db8::1").is_some());
        assert_eq!(site("192.0.2.1"), None);
    }

    #[test]
    fn the_secret_matters() {
        let (one, other) = (KeyHasher::new([1, 2]), KeyHasher::new([1, 3]));
        assert_ne!(one.swarm(&InfoHash([7; 20])).hash, other.swarm(&InfoHash([7; 20])).hash);
        assert_eq!(one.swarm(&InfoHash([7; 20])).hash, KeyHasher::new([1, 2]).swarm(&InfoHash([7; 20])).hash);
        assert_eq!(format!("{one:?}"), "KeyHasher(secret)");
    }
}
