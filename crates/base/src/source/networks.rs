//! A source, as hashes under a secret key.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};

use siphasher::sip::SipHasher13;

use crate::source::width::Width;

/// The source of a client, as hashes that do not reveal it: its IPv4 address, or its IPv6 /64 (a single host may have
/// all its addresses), and the wider networks around it ([`Width`]).
///
/// It takes seven bytes. The widest network is a keyed hash of 24 bits. Each further byte of the address follows,
/// masked by a secret of its network. Two /24 or two /32 therefore have the same hash with a probability of 2⁻²⁴, and
/// two addresses or two /64 of different ones with 2⁻³² at most. A network that holds little is rarely confused with
/// one that holds too much, even among thousands of those.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The /32 of an IPv6 address, which is never zero; zero for IPv4.
    allocation: [u8; 3],
    /// For IPv6, the rest of the /40, the /48, the /56 and the /64. For IPv4, the hash of the /24 in three bytes, and
    /// the rest of the address.
    rest: [u8; 4],
}

/// Some of the networks around a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// The IPv4 address or the IPv6 /64.
    pub address: bool,
    /// The /48. An IPv4 source has none, so this is ignored.
    pub site: bool,
}

/// The secret key for hashes of sources.
#[derive(Clone)]
pub struct SourceHasher(SipHasher13);

impl Source {
    /// Creates an IPv4 source from the hash of its address. The first 24 bits are the hash of its /24.
    pub const fn of_hash(hash: u32) -> Self {
        Self { allocation: [0; 3], rest: hash.to_le_bytes() }
    }

    /// Returns the source as bytes, for a process with the same secret.
    pub const fn to_bytes(self) -> [u8; 7] {
        let ([a, b, c], [d, e, f, g]) = (self.allocation, self.rest);
        [a, b, c, d, e, f, g]
    }

    /// Returns the source of these bytes.
    pub const fn from_bytes([a, b, c, d, e, f, g]: [u8; 7]) -> Self {
        Self { allocation: [a, b, c], rest: [d, e, f, g] }
    }

    /// Returns the group of the source, one of eight. Outbound queues count the offers of each group separately, so
    /// that a source that sends too many limits only its group.
    pub fn group(self) -> u8 {
        self.network().to_le_bytes()[3] >> 5
    }

    /// Returns the source's part among `parts`, by its IPv4 address or /48, or zero if `parts` is zero.
    pub fn part(self, parts: usize) -> usize {
        let hash = self.site_hash().unwrap_or_else(|| self.network_hash());
        usize::try_from(hash % (parts as u64).max(1)).unwrap_or(0)
    }

    /// Returns whether both belong to one IPv4 address or one IPv6 /48.
    pub fn is_same_site(self, other: Self) -> bool {
        let width = if self.is_v6() { Width::Site } else { Width::Source };
        self.is_v6() == other.is_v6() && self.hash(width) == other.hash(width)
    }

    /// Returns a hash of the address or /64.
    pub fn network(self) -> u32 {
        let [low @ .., _, _, _, _] = self.network_hash().to_le_bytes();
        u32::from_le_bytes(if self.is_v6() { low } else { self.rest })
    }

    /// Returns the hash of the address or /64, spread over the 64 bits that a [`Sketch`](crate::source::Sketch) uses.
    pub fn network_hash(self) -> u64 {
        self.hash(Width::Source)
    }

    /// Returns the hash of the /48, spread over 64 bits too, if there is one.
    pub fn site_hash(self) -> Option<u64> {
        self.is_v6().then(|| self.hash(Width::Site))
    }

    /// Returns the hashes of the networks that have shares of a short resource ([`Width::HOLDING_V6`]), narrowest
    /// first.
    pub fn networks(self) -> impl Iterator<Item = (u64, Width)> {
        let widths = if self.is_v6() { Width::HOLDING_V6.as_slice() } else { &Width::V4 };
        widths.iter().map(move |width| (self.hash(*width), *width))
    }

    fn is_v6(self) -> bool {
        self.allocation != [0; 3]
    }

    /// Returns the hash of a network, spread over 64 bits.
    fn hash(self, width: Width) -> u64 {
        let [a, b, c, d, e, f, g] = self.to_bytes();
        let of = |bytes| spread(u64::from_le_bytes(bytes));
        match (width, self.is_v6()) {
            (Width::Source, _) => of([a, b, c, d, e, f, g, 0]),
            (Width::Home, _) => of([a, b, c, d, e, f, 0, 1]),
            (Width::Site, _) => of([a, b, c, d, e, 0, 0, 2]),
            (Width::Block, true) => of([a, b, c, d, 0, 0, 0, 3]),
            (Width::Block, false) => of([0, 0, 0, d, e, f, 0, 3]),
            (Width::Allocation, _) => of([a, b, c, 0, 0, 0, 0, 4]),
        }
    }
}

impl Networks {
    /// All networks of a source.
    pub const ALL: Self = Self { address: true, site: true };

    /// Returns these networks without `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self { address: self.address && !others.address, site: self.site && !others.site }
    }
}

impl SourceHasher {
    /// Creates a hasher from its secret.
    pub fn new([first, second]: [u64; 2]) -> Self {
        Self(SipHasher13::new_with_keys(first, second))
    }

    /// Returns the source of a canonical address.
    pub fn source(&self, ip: IpAddr) -> Source {
        match ip {
            IpAddr::V4(ip) => self.source_v4(ip),
            IpAddr::V6(ip) => {
                let [subnet @ .., _, _, _, _, _, _, _, _] = ip.octets();
                self.source_v6(subnet)
            }
        }
    }

    /// Returns the source of an IPv4 address.
    pub fn source_v4(&self, ip: Ipv4Addr) -> Source {
        let [block @ .., host] = ip.octets();
        let [a, b, c, mask, ..] = self.0.hash(&block).to_le_bytes();
        Source { allocation: [0; 3], rest: [a, b, c, host ^ mask] }
    }

    /// Returns the source of an IPv6 address, from the bytes of its /64.
    pub fn source_v6(&self, subnet: [u8; 8]) -> Source {
        let [allocation @ .., block, site, home, own] = subnet;
        let [a, b, c, block_mask, site_mask, ..] = self.0.hash(&allocation).to_le_bytes();
        let [home_mask, own_mask, ..] = self.0.hash(&subnet[..6]).to_le_bytes();
        Source {
            allocation: if [a, b, c] == [0; 3] { [1, 0, 0] } else { [a, b, c] },
            rest: [block ^ block_mask, site ^ site_mask, home ^ home_mask, own ^ own_mask],
        }
    }
}

/// Permutes numbers such that every bit of the result depends on every bit of the argument. The argument must already
/// be secret.
pub const fn spread(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 29).wrapping_mul(0xd1b5_4a32_d192_ed03);
    number ^ number >> 32
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source(secret)")
    }
}

impl fmt::Debug for SourceHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourceHasher(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_source() {
        let hasher = SourceHasher::new([1, 2]);
        let source = |ip: &str| hasher.source(ip.parse().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:0:0:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        let site = |ip: &str| source(ip).site_hash();
        assert_eq!(site("2001:db8::1"), site("2001:db8:0:1::1"));
        assert_ne!(site("2001:db8::1"), site("2001:db8:1::1"));
        assert!(site("2001:db8::1").is_some());
        assert_eq!(site("192.0.2.1"), None);
        let same = |one, other| source(one).is_same_site(source(other));
        assert!(same("192.0.2.1", "192.0.2.1") && same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(!same("192.0.2.1", "192.0.2.2") && !same("2001:db8::1", "2001:db8:1::1"));
        assert!(!same("192.0.2.1", "2001:db8::1"));
        assert!(same("2001:db8::1", "2001:db8:0:100::1") && !same("2001:db8:1::", "2001:db8:2::"));
        assert_eq!(format!("{:?} {hasher:?}", source("::1")), "Source(secret) SourceHasher(secret)");
    }

    #[test]
    fn the_networks_of_a_source_are_those_of_its_address() {
        let hasher = SourceHasher::new([1, 2]);
        let networks = |ip: &str| hasher.source(ip.parse().unwrap()).networks().collect::<Vec<_>>();
        let shared = |one: &str, other: &str| {
            let (one, other) = (networks(one), networks(other));
            let shared = one.iter().filter(|network| other.contains(network));
            shared.map(|(_, width)| width.shares()).collect::<Vec<_>>()
        };
        assert_eq!(shared("192.0.2.1", "192.0.2.1"), [1, 64]);
        assert_eq!(shared("192.0.2.1", "192.0.2.2"), [64]);
        assert_eq!(shared("192.0.2.1", "192.0.3.1"), []);
        assert_eq!(shared("2001:db8::1", "2001:db8::2"), [1, 8, 64, 128]);
        assert_eq!(shared("2001:db8::1", "2001:db8:0:1::1"), [8, 64, 128]);
        assert_eq!(shared("2001:db8::1", "2001:db8:1::1"), [64, 128]);
        assert_eq!(shared("2001:db8::1", "2001:db8:100::1"), [128]);
        assert_eq!(shared("2001:db8::1", "2001:db9::1"), []);
        let source = hasher.source("2001:db8::1".parse().unwrap());
        assert!(Source::from_bytes(source.to_bytes()) == source);
    }

    #[test]
    fn many_sources_of_one_network_have_different_hashes() {
        let hasher = SourceHasher::new([1, 2]);
        let v6 = (0..100_000_u32).map(|number| {
            let [a, b, c, d] = number.to_be_bytes();
            hasher.source_v6([0x20, 1, 0xd, 0xb8, a, b, c, d])
        });
        let v4 = (0..100_000_u32).map(|number| hasher.source_v4(number.into()));
        for sources in [v6.collect::<Vec<_>>(), v4.collect()] {
            let mut networks: Vec<u32> = sources.iter().map(|source| source.network()).collect();
            networks.sort_unstable();
            networks.dedup();
            assert!(networks.len() >= sources.len() - 10, "{}", networks.len());
        }
    }
}
