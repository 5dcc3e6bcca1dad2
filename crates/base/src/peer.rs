//! Peer addresses in the compact format of the wire and the store.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An IPv4 peer: 4 bytes of address and 2 bytes of port, both big-endian (BEP 23).
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct PeerV4(pub [u8; 6]);

/// An IPv6 peer: 16 bytes of address and 2 bytes of port, both big-endian (BEP 7).
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct PeerV6(pub [u8; 18]);

impl PeerV4 {
    /// Encodes an address and a port.
    pub fn new(ip: Ipv4Addr, port: u16) -> Self {
        let ([a, b, c, d], [high, low]) = (ip.octets(), port.to_be_bytes());
        Self([a, b, c, d, high, low])
    }

    /// Returns the address and the port.
    pub fn addr(self) -> SocketAddrV4 {
        let [a, b, c, d, high, low] = self.0;
        SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
    }
}

impl PeerV6 {
    /// Encodes an address and a port.
    pub fn new(ip: Ipv6Addr, port: u16) -> Self {
        let mut bytes = [0; 18];
        bytes[..16].copy_from_slice(&ip.octets());
        bytes[16..].copy_from_slice(&port.to_be_bytes());
        Self(bytes)
    }

    /// Returns the address and the port.
    pub fn addr(self) -> SocketAddrV6 {
        let mut ip = [0; 16];
        ip.copy_from_slice(&self.0[..16]);
        SocketAddrV6::new(Ipv6Addr::from(ip), u16::from_be_bytes([self.0[16], self.0[17]]), 0, 0)
    }
}

impl fmt::Debug for PeerV4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addr().fmt(f)
    }
}

impl fmt::Debug for PeerV6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addr().fmt(f)
    }
}
