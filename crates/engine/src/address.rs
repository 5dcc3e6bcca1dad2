//! Which addresses may enter a swarm.
//!
//! These rules apply to the source address of a request, or to an address that a trusted proxy vouches for. They
//! never apply to an address that a client names: an `ip` field would let an attacker put any host into a swarm.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use shoal_config::PrivateAddresses;
use shoal_store::PrivateNetwork;

use crate::refusal::Refusal;

/// Returns the canonical address of a source: that of IPv4 if it is v4-mapped.
#[inline(always)]
pub(crate) fn canonical(source: &SocketAddr) -> IpAddr {
    match source {
        SocketAddr::V4(source) => IpAddr::V4(*source.ip()),
        SocketAddr::V6(source) => canonical_v6(source.ip()),
    }
}

/// Does the same for IPv6. Not inlined, so that an IPv4 address stays one number.
#[inline(never)]
fn canonical_v6(ip: &Ipv6Addr) -> IpAddr {
    ip.to_canonical()
}

/// Checks that other peers could reach a peer at `ip`, which must be canonical (no v4-mapped v6 address).
///
/// # Errors
/// Returns [`Refusal::UnusableAddress`] for an unusable address, and [`Refusal::PrivateAddress`] for a private one if
/// the operator refuses these.
#[inline]
pub fn check(ip: IpAddr, private: PrivateAddresses) -> Result<(), Refusal> {
    if is_nowhere(ip) {
        Err(Refusal::UnusableAddress)
    } else if private == PrivateAddresses::Refuse && private_network(ip).is_some() {
        Err(Refusal::PrivateAddress)
    } else {
        Ok(())
    }
}

/// Returns whether no single host has this canonical address: it is unspecified, multicast, broadcast or reserved.
///
/// Addresses for documentation are not among these. They have no route, so no client proves to have one.
#[inline]
pub(crate) fn is_nowhere(ip: IpAddr) -> bool {
    match ip {
        // RFC 1122, section 3.2.1.3: all of 0.0.0.0/8 is "this network", never a destination. Multicast begins at 224, and
        // the addresses from 240 on are reserved (RFC 1112, section 4).
        IpAddr::V4(ip) => !matches!(ip.octets()[0], 1..=223),
        IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast(),
    }
}

/// The blocks of all private networks, with the lengths of their prefixes.
pub(crate) const PRIVATE_V4: [([u8; 4], u8); 6] = [
    ([10, 0, 0, 0], 8),
    ([172, 16, 0, 0], 12),
    ([192, 168, 0, 0], 16),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
];
pub(crate) const PRIVATE_V6: [([u16; 8], u8); 3] = [
    ([0, 0, 0, 0, 0, 0, 0, 1], 128),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
];

/// Whether an IPv4 address that begins with a byte may be private.
const MAY_BE_PRIVATE: [bool; 256] = {
    let mut may_be = [false; 256];
    let mut index = 0;
    while index < PRIVATE_V4.len() {
        let ([first, ..], _) = PRIVATE_V4[index];
        may_be[first as usize] = true;
        index += 1;
    }
    may_be
};

/// Returns the private network of a canonical address, if only that network can reach it. Addresses of one block
/// count as one network, since an address does not show where such a network ends.
#[inline]
pub fn private_network(ip: IpAddr) -> Option<PrivateNetwork> {
    match ip {
        // Nearly all addresses take this look-up alone.
        IpAddr::V4(ip) if !MAY_BE_PRIVATE[usize::from(ip.octets()[0])] => None,
        _ => block(ip),
    }
}

#[inline(never)]
fn block(ip: IpAddr) -> Option<PrivateNetwork> {
    match ip {
        IpAddr::V4(ip) => match ip.octets() {
            [10, ..] => Some(PrivateNetwork::Ten),
            [172, 16..=31, ..] => Some(PrivateNetwork::OneSevenTwo),
            [192, 168, ..] => Some(PrivateNetwork::OneNineTwo),
            // RFC 6598: 100.64.0.0/10 is shared by the customers of one carrier and unreachable from outside.
            [100, 64..=127, ..] => Some(PrivateNetwork::Shared),
            [127, ..] => Some(PrivateNetwork::Loopback),
            [169, 254, ..] => Some(PrivateNetwork::LinkLocal),
            _ => None,
        },
        IpAddr::V6(ip) if ip.is_loopback() => Some(PrivateNetwork::Loopback),
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(PrivateNetwork::LinkLocal),
        IpAddr::V6(ip) if ip.is_unique_local() => Some(PrivateNetwork::UniqueLocal),
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_all(ips: &[&str], private: PrivateAddresses, expected: Result<(), Refusal>) {
        for ip in ips {
            assert_eq!(check(ip.parse().unwrap(), private), expected, "{ip}");
        }
    }

    const UNUSABLE: &[&str] = &[
        "0.0.0.0",
        "0.1.2.3",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.254",
        "255.255.255.255",
        "::",
        "ff02::1",
        "ff0e::1",
    ];

    const PRIVATE: &[&str] = &[
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.254",
        "192.168.1.1",
        "127.0.0.1",
        "127.255.0.1",
        "169.254.1.1",
        "100.64.0.1",
        "100.127.255.254",
        "::1",
        "fe80::1",
        "febf::1",
        "fc00::1",
        "fdff::1",
    ];

    const PUBLIC: &[&str] = &[
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "223.255.255.255",
        "2001:db8::1",
        "fec0::1",
        "2606:4700::1111",
    ];

    #[test]
    fn unusable_addresses_are_always_refused() {
        for private in [PrivateAddresses::Serve, PrivateAddresses::Apart, PrivateAddresses::Refuse] {
            assert_all(UNUSABLE, private, Err(Refusal::UnusableAddress));
        }
    }

    #[test]
    fn private_addresses_are_served_unless_the_operator_refuses_them() {
        assert_all(PRIVATE, PrivateAddresses::Serve, Ok(()));
        assert_all(PRIVATE, PrivateAddresses::Apart, Ok(()));
        assert_all(PRIVATE, PrivateAddresses::Refuse, Err(Refusal::PrivateAddress));
    }

    #[test]
    fn private_addresses_of_one_block_are_one_network() {
        let network = |ip: &str| private_network(ip.parse().unwrap());
        for (ips, expected) in [
            (&["10.0.0.1", "10.255.0.1"][..], PrivateNetwork::Ten),
            (&["172.16.0.1", "172.31.255.254"], PrivateNetwork::OneSevenTwo),
            (&["192.168.1.1"], PrivateNetwork::OneNineTwo),
            (&["100.64.0.1", "100.127.255.254"], PrivateNetwork::Shared),
            (&["127.0.0.1", "::1"], PrivateNetwork::Loopback),
            (&["169.254.1.1", "fe80::1", "febf::1"], PrivateNetwork::LinkLocal),
            (&["fc00::1", "fdff::1"], PrivateNetwork::UniqueLocal),
        ] {
            assert!(ips.iter().all(|ip| network(ip) == Some(expected)), "{expected:?}");
        }
        assert!(PUBLIC.iter().all(|ip| network(ip).is_none()));
    }

    #[test]
    fn public_addresses_are_served() {
        for private in [PrivateAddresses::Serve, PrivateAddresses::Apart, PrivateAddresses::Refuse] {
            assert_all(PUBLIC, private, Ok(()));
        }
    }
}
