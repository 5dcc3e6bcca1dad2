//! The networks around an address that have shares of short resources, and their shares: the only definition of both.
//!
//! A wide network may belong to one attacker or to many customers, and the tracker cannot distinguish the two. So it
//! has more than the share of a single source, but far less than the sum of all its sources.
//!
//! | IPv4 | IPv6 | shares |
//! |---|---|---|
//! | address | /64 | 1 |
//! | | /56 | 2 |
//! | | /48 | 8 |
//! | /24 | /40 | 64 |
//! | | /32 | 128 |
//!
//! All widths have shares of resources that become short: connections, and the room of the store and of the relay. A
//! limit that an operator sets in figures only holds for the networks of one customer ([`Width::is_of_customer`]). For
//! wider ones, it would refuse customers of large providers while there is enough for all.
//!
//! In a swarm and in a reply, a source is an IPv4 address or an IPv6 /48. This table holds for the store, the relay and
//! connections alike, because an attacker multiplies what one of them counts least. Carriers and hosters put strangers
//! into a /24 or a /32, so these have large shares.

use core::net::IpAddr;

/// The width of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// A source: an IPv4 address, or an IPv6 /64, the least that a customer gets.
    Source,
    /// An IPv6 /56, which many homes get.
    Home,
    /// An IPv6 /48, which sites get, and anyone who asks for it.
    Site,
    /// An IPv4 /24, the smallest network with its own route, or an IPv6 /40, which contains 256 sites. A carrier or a
    /// hoster may put hundreds of customers into one.
    Block,
    /// An IPv6 /32, which registries give to every provider.
    Allocation,
}

/// A network of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    bits: u64,
    width: Width,
}

impl Width {
    /// The widths of the networks of an IPv4 address, the narrowest first.
    pub const V4: [Self; 2] = [Self::Source, Self::Block];

    /// The widths of the networks of an IPv6 address, the narrowest first.
    pub const V6: [Self; 5] = [Self::Source, Self::Home, Self::Site, Self::Block, Self::Allocation];

    /// The widths of IPv6 networks whose entries are counted. A /56 rarely has more than a /64, and each width costs
    /// four counters.
    pub const HOLDING_V6: [Self; 4] = [Self::Source, Self::Site, Self::Block, Self::Allocation];

    /// Maximum number of networks of an address.
    pub const COUNT: usize = Self::V6.len();

    /// The number of IPv6 widths whose networks belong to one customer.
    pub const OF_CUSTOMER: usize = 3;

    /// Returns the share of such a network as a multiple of a single source's.
    pub const fn shares(self) -> u32 {
        match self {
            Self::Source => 1,
            Self::Home => 2,
            Self::Site => 8,
            Self::Block => 64,
            Self::Allocation => 128,
        }
    }

    /// Returns the length of the prefix of such an IPv6 network.
    pub const fn prefix_v6(self) -> u32 {
        match self {
            Self::Source => 64,
            Self::Home => 56,
            Self::Site => 48,
            Self::Block => 40,
            Self::Allocation => 32,
        }
    }

    /// Returns whether such a network usually belongs to one customer.
    pub const fn is_of_customer(self) -> bool {
        matches!(self, Self::Source | Self::Home | Self::Site)
    }
}

impl Network {
    /// Returns the networks of a canonical address, the narrowest first.
    pub fn all(ip: IpAddr) -> impl Iterator<Item = Self> + Clone {
        let (widths, bits) = match ip {
            IpAddr::V4(ip) => (Width::V4.as_slice(), u64::from(u32::from(ip))),
            IpAddr::V6(ip) => {
                let [a, b, c, d, e, f, g, h, ..] = ip.octets();
                (Width::V6.as_slice(), u64::from_be_bytes([a, b, c, d, e, f, g, h]))
            }
        };
        // No IPv6 network in use begins with 16 zero bits, so none equals an IPv4 network.
        widths.iter().map(move |&width| {
            let host_bits = if ip.is_ipv4() {
                if width == Width::Source { 0 } else { 8 }
            } else {
                64 - width.prefix_v6()
            };
            Self { bits: bits >> host_bits, width }
        })
    }

    /// Returns the width of the network.
    pub const fn width(self) -> Width {
        self.width
    }
}

// The widths of a customer are the first ones.
const _: () = {
    let mut index = 0;
    while index < Width::COUNT {
        assert!(Width::V6[index].is_of_customer() == (index < Width::OF_CUSTOMER));
        index += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ip: &str) -> Vec<Network> {
        Network::all(ip.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_share_networks_as_far_as_their_prefixes_are_equal() {
        let shared = |one: &str, other: &str| {
            all(one).into_iter().zip(all(other)).filter(|(one, other)| one == other).count()
        };
        assert_eq!(shared("192.0.2.1", "192.0.2.1"), 2);
        assert_eq!(shared("192.0.2.1", "192.0.2.2"), 1, "a /24");
        assert_eq!(shared("192.0.2.1", "192.0.3.1"), 0);
        let v6 = [
            "2001:db8::2",
            "2001:db8:0:1::",
            "2001:db8:0:100::",
            "2001:db8:1::",
            "2001:db8:100::",
            "2001:db9::",
        ];
        assert_eq!(v6.map(|other| shared("2001:db8::1", other)), [5, 4, 3, 2, 1, 0]);
        assert!(!all("192.0.2.1").iter().any(|network| all("2001:db8::1").contains(network)));
    }

    #[test]
    fn a_wider_network_has_a_larger_share() {
        for widths in [Width::V4.as_slice(), &Width::V6] {
            assert!(widths.is_sorted_by(|one, other| one.shares() < other.shares()));
        }
    }
}
