//! Addresses in the network of a siege: the tracker's, those of honest clients, and those of attackers.
//!
//! IPv4 addresses are in 127.0.0.0/8. IPv6 addresses are in the documentation prefixes (RFC 3849 and RFC 9637), which the
//! network namespace of the siege routes to itself. Attackers have the whole /32 of the first one. Honest clients are in a
//! /32 of the second one, and share no /48 with each other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The tracker's IPv4 address.
pub(crate) const TRACKER_V4: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The tracker's IPv6 address.
pub(crate) const TRACKER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The prefixes that the namespace routes to itself.
pub(crate) const PREFIXES_V6: [&str; 2] = ["2001:db8::/32", "3fff::/20"];

/// The network of addresses that a tracker takes for public ones. The namespace routes it to itself, so no host of that network is
/// reached.
pub(crate) const PUBLIC_V4: &str = "11.0.0.0/8";

/// The one public address of the customers of a carrier.
pub(crate) const CARRIER_V4: Ipv4Addr = Ipv4Addr::new(11, 64, 0, 1);

/// The networks of trusted proxies, for attacks that act as one.
pub(crate) const PROXIES: &str = "127.99.0.0/16";

/// Returns the IPv4 address of an honest client.
pub(crate) fn honest_v4(number: u32) -> IpAddr {
    Ipv4Addr::new(127, 1, low8(number >> 8), low8(number)).into()
}

/// Returns the public IPv4 address of an honest client.
pub(crate) fn public_honest_v4(number: u32) -> IpAddr {
    Ipv4Addr::new(11, 1, low8(number >> 8), low8(number)).into()
}

/// Returns the public IPv4 address of an attacker.
pub(crate) fn public_hostile_v4(number: u32) -> IpAddr {
    Ipv4Addr::new(11, 66, low8(number >> 8), low8(number)).into()
}

/// Returns the IPv6 address of an honest client, each in its own /48.
pub(crate) fn honest_v6(number: u32) -> IpAddr {
    Ipv6Addr::new(0x3fff, 0, 0x1000 + low16(number & 0xfff), 1, 0, 0, 0, 1).into()
}

/// Returns the IPv4 address of an attacker.
pub(crate) fn hostile_v4(number: u32) -> IpAddr {
    Ipv4Addr::new(127, 66, low8(number >> 8), low8(number)).into()
}

/// Returns an IPv6 address of an attacker that has one /48, each in its own /64.
pub(crate) fn hostile_v6(number: u32) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xbad, low16(number), 0, 0, 0, 1).into()
}

/// Returns an address of an attacker that has addresses of both families, which take turns in fours.
pub(crate) fn hostile(number: u32) -> IpAddr {
    if (number / 4).is_multiple_of(2) { hostile_v4(number) } else { hostile_v6(number) }
}

/// Returns the IPv4 address of an attacker, each in its own /24.
pub(crate) fn hostile_block_v4(number: u32) -> IpAddr {
    Ipv4Addr::new(127, 100 + low8(number >> 8), low8(number), 1).into()
}

/// Returns an IPv6 address of an attacker that has one /32, each in its own /48. The first 512 are in one /39.
pub(crate) fn hostile_site_v6(number: u32) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x2000 + low16(number), 0, 0, 0, 0, 1).into()
}

/// Returns the address of a trusted proxy.
pub(crate) fn proxy(number: u32) -> IpAddr {
    Ipv4Addr::new(127, 99, low8(number >> 8), low8(number)).into()
}

/// Returns the lower 16 bits.
fn low16(number: u32) -> u16 {
    (number & 0xffff) as u16
}

/// Returns the lower 8 bits.
fn low8(number: u32) -> u8 {
    (number & 0xff) as u8
}
