//! Keyed hashing of what clients choose: info hashes, peer ids, offer ids, addresses.
//!
//! Nobody without the secret can aim at one place of a table, or name two things of one hash. Hashes of different kinds
//! of things come from different keys.

use core::fmt;
use core::net::IpAddr;

use shoal_protocol::{InfoHash, PeerId};
use siphasher::sip::SipHasher13;

/// Where an info hash is looked for: computed once, before any lock is taken.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub(crate) info_hash: InfoHash,
    pub(crate) hash: u64,
}

/// Where a client comes from, in a form that tells nobody: its IPv4 address, or its IPv6 /64, all of which one host may
/// have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Source(pub(crate) u64);

impl Source {
    /// Which of a few groups it belongs to, by which the queue of a receiver tells greedy sources from others.
    #[must_use]
    pub const fn group(self) -> u8 {
        (self.0 >> 61) as u8
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
        Source(match ip {
            IpAddr::V4(ip) => self.source.hash(&ip.octets()),
            IpAddr::V6(ip) => {
                let [network @ .., _, _, _, _, _, _, _, _] = ip.octets();
                self.source.hash(&network)
            }
        })
    }
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
        assert_ne!(keys.offer(&[7; 4]).0, keys.source([7; 4].into()).0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let keys = Keys::new([1, 2]);
        let source = |ip: &str| keys.source(ip.parse().unwrap()).0;
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:0:0:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    }

    #[test]
    fn the_secret_matters() {
        let (one, other) = (Keys::new([1, 2]), Keys::new([1, 3]));
        assert_ne!(one.place(&InfoHash([7; 20])).hash, other.place(&InfoHash([7; 20])).hash);
        assert_eq!(one.place(&InfoHash([7; 20])).hash, Keys::new([1, 2]).place(&InfoHash([7; 20])).hash);
        assert_eq!(format!("{one:?}"), "Keys(secret)");
    }
}
