//! Keyed hashing of what clients choose: info hashes, peer ids, offer ids, addresses.
//!
//! Nobody without the secret can aim at one place of a table, or name two things of one hash. Hashes of different kinds
//! of things come from different keys.

use core::fmt;
use core::net::IpAddr;

use shoal_types::{InfoHash, PeerId};
use siphasher::sip::SipHasher13;

/// Where an info hash is looked for: computed once, before any lock is taken.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub(crate) info_hash: InfoHash,
    pub(crate) hash: u64,
}

/// Where a client comes from, as hashes that do not reveal it: its IPv4 address, or its IPv6 /64, all of which one host
/// may have, and then its /48 as well.
///
/// It is kept for each peer, in seven bytes that would be padding. Two addresses or /64 share a hash with a probability of
/// 2⁻³², two /48 with one of 2⁻²⁴: a modest network is taken for that of a greedy one seldom, even with thousands of those.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Source {
    network: [u8; 4],
    /// Zero for IPv4, never for IPv6.
    site: [u8; 3],
}

impl Source {
    /// Which of a few groups it belongs to, by which the queue of a receiver tells greedy sources from others.
    #[must_use]
    pub const fn group(self) -> u8 {
        self.network[3] >> 5
    }

    /// Which of so many parts it falls into, by its IPv4 address or /48. Zero where there are none.
    #[must_use]
    pub fn part(self, parts: usize) -> usize {
        let hash = self.site_hash().unwrap_or_else(|| self.network_hash());
        usize::try_from(hash % (parts as u64).max(1)).unwrap_or(0)
    }

    /// The hash of the address or /64.
    pub(crate) const fn network(self) -> u32 {
        u32::from_le_bytes(self.network)
    }

    /// The hash of the address or /64, of all bits that a [`Sketch`](shoal_source::Sketch) wants.
    pub(crate) fn network_hash(self) -> u64 {
        spread(self.network().into())
    }

    /// The same of the /48, if there is one.
    pub(crate) fn site_hash(self) -> Option<u64> {
        let [a, b, c] = self.site;
        (self.site != [0; 3]).then(|| spread(u64::from_le_bytes([a, b, c, 0, 1, 0, 0, 0])))
    }
}

#[cfg(test)]
impl Source {
    /// The source of IPv4 whose hash is this.
    pub(crate) const fn of_hash(hash: u32) -> Self {
        Self { network: hash.to_le_bytes(), site: [0; 3] }
    }
}

/// The name of an offer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OfferKey(pub(crate) u64);

/// A peer id and its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(crate) peer_id: PeerId,
    pub(crate) hash: u64,
}

/// The secret, for each kind of things apart.
#[derive(Clone)]
pub(crate) struct Keys {
    info_hash: SipHasher13,
    peer_id: SipHasher13,
    offer: SipHasher13,
    source: SipHasher13,
}

impl Keys {
    pub(crate) fn new([first, second]: [u64; 2]) -> Self {
        // SipHash is a family of functions: any other key is another function.
        let keyed = |kind: u64| SipHasher13::new_with_keys(first, second.wrapping_add(kind));
        Self { info_hash: keyed(0), peer_id: keyed(1), offer: keyed(2), source: keyed(3) }
    }

    pub(crate) fn place(&self, info_hash: &InfoHash) -> Place {
        Place { info_hash: *info_hash, hash: self.info_hash.hash(&info_hash.0) }
    }

    pub(crate) fn name(&self, peer_id: &PeerId) -> Name {
        Name { peer_id: *peer_id, hash: self.peer_id.hash(&peer_id.0) }
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

    /// The hash of a peer of a torrent, as the one that completed it.
    pub(crate) fn completion(place: &Place, name: &Name) -> u64 {
        spread(place.hash ^ name.hash.rotate_left(1))
    }

    /// The hash of all completions of a torrent by one source: by its /48, or its IPv4 address.
    pub(crate) fn completions(place: &Place, source: Source) -> u64 {
        let of_source = source.site_hash().unwrap_or_else(|| source.network_hash());
        spread(place.hash ^ of_source.rotate_left(2))
    }
}

/// Makes every bit depend on every other, one to one, of a number that is a secret already.
const fn spread(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 29).wrapping_mul(0xd1b5_4a32_d192_ed03);
    number ^ number >> 32
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(secret)")
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
        let keys = Keys::new([1, 2]);
        let (info_hash, peer_id) = (InfoHash([7; 20]), PeerId([7; 20]));
        let mut hashes = [keys.place(&info_hash).hash, keys.name(&peer_id).hash, keys.offer(&[7; 20]).0];
        hashes.sort_unstable();
        assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]));
        let [low @ .., _, _, _, _] = keys.offer(&[7; 4]).0.to_le_bytes();
        assert_ne!(low, keys.source([7; 4].into()).network);
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let keys = Keys::new([1, 2]);
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
        let (one, other) = (Keys::new([1, 2]), Keys::new([1, 3]));
        assert_ne!(one.place(&InfoHash([7; 20])).hash, other.place(&InfoHash([7; 20])).hash);
        assert_eq!(one.place(&InfoHash([7; 20])).hash, Keys::new([1, 2]).place(&InfoHash([7; 20])).hash);
        assert_eq!(format!("{one:?}"), "Keys(secret)");
    }
}
