//! Addresses of the network of a siege: the tracker's, those of honest clients, those of attackers.
//!
//! IPv4 addresses come from 127.0.0.0/8, IPv6 addresses from the prefix for documentation (RFC 3849), which the network
//! namespace of the siege routes to itself as a whole. Honest clients share no /48 with each other nor with attackers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::number::{low8, low16};

/// The tracker's IPv4 address.
pub(crate) const TRACKER_V4: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The tracker's IPv6 address.
pub(crate) const TRACKER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The prefix that the namespace routes to itself.
pub(crate) const PREFIX_V6: &str = "2001:db8::/32";

/// The networks that are trusted proxies where an attack plays one.
pub(crate) const PROXIES: &str = "127.99.0.0/16";

/// Returns the IPv4 address of an honest client.
pub(crate) fn honest_v4(number: u32) -> IpAddr {
    Ipv4Addr::new(127, 1, low8(number >> 8), low8(number)).into()
}

/// Returns the IPv6 address of an honest client, each in a /48 of its own.
pub(crate) fn honest_v6(number: u32) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x1000 + low16(number & 0xfff), 1, 0, 0, 0, 1).into()
}

/// Returns the IPv4 address of an attacker.
pub(crate) fn hostile_v4(number: u32) -> IpAddr {
    Ipv4Addr::new(127, 66, low8(number >> 8), low8(number)).into()
}

/// Returns an IPv6 address of an attacker who has one /48, each in a /64 of its own.
pub(crate) fn hostile_v6(number: u32) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xbad, low16(number), 0, 0, 0, 1).into()
}

/// Returns the address of a trusted proxy.
pub(crate) fn proxy(number: u32) -> IpAddr {
    Ipv4Addr::new(127, 99, low8(number >> 8), low8(number)).into()
}
