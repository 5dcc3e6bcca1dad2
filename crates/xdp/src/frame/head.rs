//! The headers in front of a payload, which is already in its place.

use core::net::{IpAddr, SocketAddr};

use super::{
    Datagram, ETHERNET_BYTES, ETHERNET_IPV4, ETHERNET_IPV6, IPV4_BYTES, IPV6_BYTES, PROTOCOL_UDP, Sum,
    TAG_BYTES, UDP_BYTES,
};

/// The maximum length of all headers of a reply in bytes.
pub const REPLY_HEAD_BYTES_MAX: usize = ETHERNET_BYTES + TAG_BYTES + IPV6_BYTES + UDP_BYTES;

/// The TTL or hop limit of a reply: the default of Linux.
pub(super) const HOPS: u8 = 64;

/// IPv4: a reply is never fragmented. It therefore needs no identification (RFC 6864, section 4.1).
const DONT_FRAGMENT: u16 = 0x4000;

/// The Ethernet, IP and UDP headers of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The MAC address of the receiver.
    pub destination_mac: [u8; 6],
    /// The MAC address of the sender.
    pub source_mac: [u8; 6],
    /// The VLAN tag, with its type before it.
    pub tag: Option<[u8; TAG_BYTES]>,
    /// The sender.
    pub source: SocketAddr,
    /// The receiver, of the same family as the sender.
    pub destination: SocketAddr,
}

/// The error that the payload lies outside the buffer, is too long for IP, or leaves no room for the headers before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for the headers of a datagram, or for its payload")]
pub struct NoRoom;

/// Writes all headers of a reply directly before its payload, which is already at `out[payload_at..][..payload_len]`.
/// Returns the offset of the frame, which ends with the payload.
///
/// The reply returns to the source of the request: its MAC address, address and port, with the same VLAN tag. Fails if
/// `out` has no room.
pub fn write_reply_head(
    request: &[u8],
    datagram: &Datagram,
    out: &mut [u8],
    payload_at: usize,
    payload_len: usize,
) -> Result<usize, NoRoom> {
    Head::of_reply(request, datagram).ok_or(NoRoom)?.write(out, payload_at, payload_len)
}

impl Head {
    /// Returns the headers of a reply to a datagram, which was parsed from this frame.
    pub fn of_reply(request: &[u8], datagram: &Datagram) -> Option<Self> {
        let ethernet: &[u8; ETHERNET_BYTES] = request.first_chunk()?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *ethernet;
        let written = request.get(ETHERNET_BYTES - 2..datagram.ip_offset.checked_sub(2)?)?;
        let tag = match written {
            [] => None,
            tag => Some(tag.try_into().ok()?),
        };
        Some(Self {
            destination_mac: [s0, s1, s2, s3, s4, s5],
            source_mac: [d0, d1, d2, d3, d4, d5],
            tag,
            source: datagram.destination,
            destination: datagram.source,
        })
    }

    /// Returns the length of the headers in bytes.
    pub fn bytes(&self) -> usize {
        let ip = if self.source.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
        self.ethernet_bytes() + ip + UDP_BYTES
    }

    fn ethernet_bytes(&self) -> usize {
        ETHERNET_BYTES + self.tag.map_or(0, |tag| tag.len())
    }

    /// Writes the headers directly before a payload that is already in its place. Returns the offset of the frame.
    /// Fails if `out` has no room.
    pub fn write(&self, out: &mut [u8], payload_at: usize, payload_len: usize) -> Result<usize, NoRoom> {
        let start = payload_at.checked_sub(self.bytes()).ok_or(NoRoom)?;
        let end = payload_at.checked_add(payload_len).ok_or(NoRoom)?;
        let frame = out.get_mut(start..end).ok_or(NoRoom)?;
        let udp_bytes = UDP_BYTES + payload_len;
        let (head, payload) = frame.split_at_mut(self.bytes());
        let (ethernet, rest) = head.split_at_mut(self.ethernet_bytes());
        let (ip, udp) = rest.split_at_mut(rest.len() - UDP_BYTES);
        self.write_ethernet(ethernet);
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let total = u16::try_from(IPV4_BYTES + udp_bytes).map_err(|_| NoRoom)?;
                write_ipv4(ip, source.octets(), destination.octets(), total);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let length = u16::try_from(udp_bytes).map_err(|_| NoRoom)?;
                write_ipv6(ip, source.octets(), destination.octets(), length);
            }
            _ => return Err(NoRoom),
        }
        self.write_udp(udp, payload)?;
        Ok(start)
    }

    fn write_ethernet(&self, out: &mut [u8]) {
        let kind = if self.source.is_ipv4() { ETHERNET_IPV4 } else { ETHERNET_IPV6 };
        out[..6].copy_from_slice(&self.destination_mac);
        out[6..12].copy_from_slice(&self.source_mac);
        let kind_at = out.len() - 2;
        if let Some(tag) = self.tag {
            out[12..kind_at].copy_from_slice(&tag);
        }
        out[kind_at..].copy_from_slice(&kind.to_be_bytes());
    }

    fn write_udp(&self, out: &mut [u8], payload: &[u8]) -> Result<(), NoRoom> {
        let bytes = UDP_BYTES + payload.len();
        let length = u16::try_from(bytes).map_err(|_| NoRoom)?;
        let words = [self.source.port(), self.destination.port(), length];
        // The words are added from registers: a load of bytes that were just stored in parts must wait.
        let pseudo = Sum::of_pseudo_header(self.source.ip(), self.destination.ip(), bytes);
        let sum = words.into_iter().fold(pseudo, Sum::word).add(payload);
        // RFC 768: 0 means "no checksum", so a calculated 0 is sent as 0xffff, which is equal.
        let checksum = if sum.checksum() == 0 { 0xffff } else { sum.checksum() };
        let [source, destination, length] = words;
        for (out, word) in out.chunks_exact_mut(2).zip([source, destination, length, checksum]) {
            out.copy_from_slice(&word.to_be_bytes());
        }
        Ok(())
    }
}

fn write_ipv4(out: &mut [u8], source: [u8; 4], destination: [u8; 4], total_bytes: u16) {
    let (length, flags) = (total_bytes.to_be_bytes(), DONT_FRAGMENT.to_be_bytes());
    let mut header = [0x45, 0, length[0], length[1], 0, 0, flags[0], flags[1], HOPS, PROTOCOL_UDP, 0, 0];
    let checksum = Sum::default().add(&header).add(&source).add(&destination).checksum();
    header[10..].copy_from_slice(&checksum.to_be_bytes());
    out[..12].copy_from_slice(&header);
    out[12..16].copy_from_slice(&source);
    out[16..].copy_from_slice(&destination);
}

fn write_ipv6(out: &mut [u8], source: [u8; 16], destination: [u8; 16], payload_bytes: u16) {
    let length = payload_bytes.to_be_bytes();
    out[..8].copy_from_slice(&[0x60, 0, 0, 0, length[0], length[1], PROTOCOL_UDP, HOPS]);
    out[8..24].copy_from_slice(&source);
    out[24..].copy_from_slice(&destination);
}
