//! A source, as hashes under a secret key.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};

use siphasher::sip::SipHasher13;

/// The source of a client, as hashes that do not reveal it: its IPv4 address, or its IPv6 /64 (of which one host may
/// have all addresses) together with its /48.
///
/// It takes seven bytes. Two addresses or /64s have the same hash with a probability of 2⁻³², two /48s with one of 2⁻²⁴.
/// A modest network is therefore rarely confused with a greedy one, even if there are thousands of greedy ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Source {
    network: [u8; 4],
    /// Zero for IPv4, never for IPv6.
    site: [u8; 3],
}

/// Some of the networks that a source consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// The IPv4 address or the IPv6 /64.
    pub address: bool,
    /// The /48. An IPv4 source has none, whatever this says.
    pub site: bool,
}

/// The secret under which sources are hashed.
#[derive(Clone)]
pub struct SourceHasher(SipHasher13);

impl Source {
    /// Creates an IPv4 source from the hash of its address.
    #[must_use]
    pub const fn of_hash(hash: u32) -> Self {
        Self { network: hash.to_le_bytes(), site: [0; 3] }
    }

    /// Returns the source as bytes, for a process with the same secret.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 7] {
        let ([a, b, c, d], [e, f, g]) = (self.network, self.site);
        [a, b, c, d, e, f, g]
    }

    /// Returns the source of these bytes.
    #[must_use]
    pub const fn from_bytes([a, b, c, d, e, f, g]: [u8; 7]) -> Self {
        Self { network: [a, b, c, d], site: [e, f, g] }
    }

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

    /// Returns whether both are of one IPv4 address or one IPv6 /48.
    #[must_use]
    pub fn is_same_site(self, other: Self) -> bool {
        self.site == other.site && (self.site != [0; 3] || self.network == other.network)
    }

    /// Returns the hash of the address or /64.
    #[must_use]
    pub const fn network(self) -> u32 {
        u32::from_le_bytes(self.network)
    }

    /// Returns the hash of the address or /64, spread over the 64 bits that a [`Sketch`](crate::Sketch) uses.
    #[must_use]
    pub fn network_hash(self) -> u64 {
        spread(self.network().into())
    }

    /// Returns the hash of the /48, spread in the same way, if there is one.
    #[must_use]
    pub fn site_hash(self) -> Option<u64> {
        let [a, b, c] = self.site;
        (self.site != [0; 3]).then(|| spread(u64::from_le_bytes([a, b, c, 0, 1, 0, 0, 0])))
    }
}

impl Networks {
    /// All networks of a source.
    pub const ALL: Self = Self { address: true, site: true };

    /// Returns those that are not among `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self { address: self.address && !others.address, site: self.site && !others.site }
    }
}

impl SourceHasher {
    /// Creates a hasher from its secret.
    #[must_use]
    pub fn new([first, second]: [u64; 2]) -> Self {
        Self(SipHasher13::new_with_keys(first, second))
    }

    /// Returns the source of a canonical address.
    #[must_use]
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
    #[must_use]
    pub fn source_v4(&self, ip: Ipv4Addr) -> Source {
        Source { network: self.network(&ip.octets()), site: [0; 3] }
    }

    /// Returns the source of an IPv6 address, given by the bytes of its /64.
    #[must_use]
    pub fn source_v6(&self, subnet: [u8; 8]) -> Source {
        let [site @ .., _, _] = subnet;
        let [a, b, c, ..] = self.0.hash(&site).to_le_bytes();
        let site = if [a, b, c] == [0; 3] { [1, 0, 0] } else { [a, b, c] };
        Source { network: self.network(&subnet), site }
    }

    fn network(&self, bytes: &[u8]) -> [u8; 4] {
        let [network @ .., _, _, _, _] = self.0.hash(bytes).to_le_bytes();
        network
    }
}

/// Permutes numbers such that every bit of the result depends on every bit of the argument, which must be secret
/// already.
#[must_use]
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
        assert_eq!(format!("{:?} {hasher:?}", source("::1")), "Source(secret) SourceHasher(secret)");
    }
}
