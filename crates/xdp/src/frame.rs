//! The model of a frame: Ethernet, VLAN tags, IP, UDP. It reads and writes bytes, and knows no kernel.
//!
//! The eBPF program does the same: [`model`] gives its verdict for each frame, and a test compares both. A frame may
//! contain any bytes: each length and offset in it is checked against the length of the frame.
//!
//! A datagram is read only if the kernel would deliver it too. Frames that are unusual (fragments, extension headers)
//! or wrong (lengths, checksums) are rejected here and left to the kernel, which knows all the rules.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Range;

mod checksum;
mod head;
pub mod model;

pub use checksum::Checksum;
pub use head::{Head, NoRoom, REPLY_HEAD_BYTES_MAX, write_reply_head};

use checksum::Sum;

/// Lengths in bytes of a header without options.
const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;

/// The maximum length of a frame that the program hands to a socket, in bytes. The reply is written after the frame,
/// in the same memory.
pub const REDIRECTED_BYTES_MAX: usize = 2304;

/// Types of what an Ethernet frame contains (`linux/if_ether.h`).
const ETHERNET_IPV4: u16 = 0x0800;
const ETHERNET_IPV6: u16 = 0x86dd;
pub(crate) const ETHERNET_TAG: u16 = 0x8100;
pub(crate) const ETHERNET_PROVIDER_TAG: u16 = 0x88a8;

/// Protocol numbers of IP (`linux/in.h`, `linux/in6.h`).
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_FRAGMENT: u8 = 44;

/// The IPv6 extension headers of RFC 8200, 4302, 6275, 7401 and 5533 after which another header follows, except for the
/// fragment header.
const EXTENSION_HEADERS: [u8; 7] = [0, 43, 51, 60, 135, 139, 140];

/// The bits of an IPv4 header that only fragments have set: "more fragments", and the offset.
const FRAGMENT_BITS: u16 = 0x3fff;

/// A datagram in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Its source.
    pub source: SocketAddr,
    /// Its destination.
    pub destination: SocketAddr,
    /// Offset of the IP header in the frame. A VLAN tag may precede it.
    pub ip_offset: usize,
    /// Offset of the UDP header.
    pub udp_offset: usize,
    /// Range of the payload. Padding may follow it.
    pub payload: Range<usize>,
}

/// The reason why a frame is left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// It contains something other than UDP over IP, or more than one VLAN tag.
    #[error("no UDP over IP")]
    NotUdp,
    /// It ends before the end of a header.
    #[error("it ends within a header")]
    Truncated,
    /// It contains a part of a datagram.
    #[error("a fragment")]
    Fragment,
    /// IPv6 extension headers come before the datagram.
    #[error("it has IPv6 extension headers")]
    ExtensionHeaders,
    /// The lengths of IP and UDP contradict each other or the length of the frame.
    #[error("its lengths contradict each other")]
    BadLength,
    /// The checksum of the IPv4 header is wrong.
    #[error("the checksum of its IPv4 header is wrong")]
    BadHeaderChecksum,
    /// A MAC address is a group address, so it cannot be the source of a reply.
    #[error("it was sent to or by a group of hosts")]
    GroupAddress,
    /// The source is a loopback address. Only the kernel can tell a real one from a forged one.
    #[error("it came from a loopback address")]
    Loopback,
}

impl Datagram {
    /// Returns whether the IPv4 header has options.
    pub fn has_options(&self) -> bool {
        self.destination.is_ipv4() && self.udp_offset - self.ip_offset > IPV4_BYTES
    }

    /// Checks the UDP checksum of the datagram, which was parsed from this frame.
    pub fn checksum(&self, frame: &[u8]) -> Checksum {
        let (Some(field), Some(datagram)) =
            (be16(frame, self.udp_offset + 6), frame.get(self.udp_offset..self.payload.end))
        else {
            return Checksum::Wrong;
        };
        let pseudo = Sum::of_pseudo_header(self.source.ip(), self.destination.ip(), datagram.len());
        if field == 0 {
            // RFC 768: "An all zero transmitted checksum value means that the transmitter generated no checksum".
            // RFC 8200, section 8.1, forbids it over IPv6.
            return if self.source.is_ipv4() { Checksum::Absent } else { Checksum::Wrong };
        }
        if pseudo.add(datagram).fold() == 0xffff {
            Checksum::Valid
        } else if field == pseudo.fold() {
            Checksum::Partial
        } else {
            Checksum::Wrong
        }
    }
}

/// Reads the headers of a frame, but does not check the UDP checksum: [`Datagram::checksum`] does. Fails if the frame
/// must be left to the kernel.
pub fn parse(frame: &[u8]) -> Result<Datagram, Rejection> {
    let (ethernet_type, ip_offset) = ethernet(frame)?;
    let ip = &frame[ip_offset..];
    let (source, destination, ip_header_bytes, ip_bytes) = match ethernet_type {
        ETHERNET_IPV4 => ipv4(ip)?,
        ETHERNET_IPV6 => ipv6(ip)?,
        _ => return Err(Rejection::NotUdp),
    };
    let udp = ip.get(ip_header_bytes..).ok_or(Rejection::Truncated)?;
    let [source_port, destination_port, udp_bytes] = match udp {
        [a, b, c, d, e, f, _, _, ..] => [[*a, *b], [*c, *d], [*e, *f]].map(u16::from_be_bytes),
        _ => return Err(Rejection::Truncated),
    };
    let udp_bytes = usize::from(udp_bytes);
    if ip_bytes > ip.len() || udp_bytes < UDP_BYTES || ip_header_bytes + udp_bytes != ip_bytes {
        return Err(Rejection::BadLength);
    }
    if destination.is_ipv4() && Sum::default().add(&ip[..ip_header_bytes]).fold() != 0xffff {
        return Err(Rejection::BadHeaderChecksum);
    }
    if (frame[0] | frame[6]) & 1 != 0 {
        return Err(Rejection::GroupAddress);
    }
    if source.is_loopback() {
        return Err(Rejection::Loopback);
    }
    let udp_offset = ip_offset + ip_header_bytes;
    Ok(Datagram {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
        ip_offset,
        udp_offset,
        payload: udp_offset + UDP_BYTES..udp_offset + udp_bytes,
    })
}

/// Returns the type of the Ethernet payload, and its offset. A VLAN tag may precede it.
fn ethernet(frame: &[u8]) -> Result<(u16, usize), Rejection> {
    let kind_at =
        |end: usize| frame.get(..end).and_then(|head| be16(head, end - 2)).ok_or(Rejection::Truncated);
    match kind_at(ETHERNET_BYTES)? {
        ETHERNET_TAG | ETHERNET_PROVIDER_TAG => {
            let end = ETHERNET_BYTES + TAG_BYTES;
            Ok((kind_at(end)?, end))
        }
        other => Ok((other, ETHERNET_BYTES)),
    }
}

/// Source, destination, length of the header, and length of the whole packet.
type Ip = (IpAddr, IpAddr, usize, usize);

/// Reads an IPv4 header (RFC 791, section 3.1).
fn ipv4(ip: &[u8]) -> Result<Ip, Rejection> {
    let header: &[u8; IPV4_BYTES] = ip.first_chunk().ok_or(Rejection::Truncated)?;
    let header_bytes = usize::from(header[0] & 0xf) * 4;
    if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES || header[9] != PROTOCOL_UDP {
        return Err(Rejection::NotUdp);
    }
    if u16::from_be_bytes([header[6], header[7]]) & FRAGMENT_BITS != 0 {
        return Err(Rejection::Fragment);
    }
    let [source, destination] =
        [12, 16].map(|at| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]));
    let ip_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    Ok((source.into(), destination.into(), header_bytes, ip_bytes))
}

/// Reads an IPv6 header (RFC 8200, section 3).
fn ipv6(ip: &[u8]) -> Result<Ip, Rejection> {
    let header: &[u8; IPV6_BYTES] = ip.first_chunk().ok_or(Rejection::Truncated)?;
    if header[0] >> 4 != 6 {
        return Err(Rejection::NotUdp);
    }
    match header[6] {
        PROTOCOL_UDP => {}
        PROTOCOL_FRAGMENT => return Err(Rejection::Fragment),
        other if EXTENSION_HEADERS.contains(&other) => return Err(Rejection::ExtensionHeaders),
        _ => return Err(Rejection::NotUdp),
    }
    let [source, destination] = [8, 24].map(|at| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        Ipv6Addr::from(octets)
    });
    let payload_bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
    Ok((source.into(), destination.into(), IPV6_BYTES, IPV6_BYTES + payload_bytes))
}

fn be16(frame: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
