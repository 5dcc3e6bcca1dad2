//! The PROXY protocol, versions 1 and 2 (`proxy-protocol.txt` of HAProxy): what a proxy writes at the front of a
//! connection to say whose it is.
//!
//! Owns its layout, in both directions. Must not decide whether the proxy is to be believed, nor what it means that
//! it names no source.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io::Write as _;

/// Most bytes of a header that is read. Version 1 has 107 at most; version 2 could say 64 KiB, but what proxies append
/// (names, a checksum, parts of a certificate) is some hundred bytes.
pub const HEADER_BYTES_MAX: usize = 4 << 10;

/// Section 2.1: "the worst case (optional fields set to 0xff)", line end included.
const V1_BYTES_MAX: usize = 107;
const V1_SIGNATURE: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length.
const V2_HEAD_BYTES: usize = 16;
/// Source, destination and their ports.
const V2_INET_BYTES: u8 = 12;
const V2_INET6_BYTES: u8 = 36;

/// What the front of a connection says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// It is not all there yet.
    Incomplete,
    /// A header.
    Header {
        /// How many bytes it takes.
        bytes: usize,
        /// Who is behind the proxy, an IPv4 address mapped into IPv6 given as what it is. None where the proxy speaks
        /// for itself (`LOCAL`), does not know (`UNKNOWN`, `UNSPEC`), or was reached by a Unix socket.
        source: Option<SocketAddr>,
    },
    /// It is no header.
    Malformed,
}

/// Reads a header of either version from the front of `bytes`.
#[must_use]
pub fn decode(bytes: &[u8]) -> Decoded {
    if begins(bytes, V2_SIGNATURE) {
        decode_v2(bytes)
    } else if begins(bytes, V1_SIGNATURE) {
        decode_v1(bytes)
    } else {
        Decoded::Malformed
    }
}

/// Appends a header of version 1. A source and destination of different families, which it cannot express, become
/// `UNKNOWN`.
pub fn encode_v1(source: SocketAddr, destination: SocketAddr, out: &mut Vec<u8>) {
    let family = match (source, destination) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => "TCP4",
        (SocketAddr::V6(_), SocketAddr::V6(_)) => "TCP6",
        _ => return out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
    };
    let (from, to) = (source.ip(), destination.ip());
    write!(out, "PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port())
        .expect("a vector takes all that is written");
}

/// Appends a header of version 2. A source and destination of different families become `UNSPEC`.
pub fn encode_v2(source: SocketAddr, destination: SocketAddr, out: &mut Vec<u8>) {
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            push_v2_head(0x21, 0x11, V2_INET_BYTES, out);
            out.extend_from_slice(&[from.octets(), to.octets()].concat());
            out.extend_from_slice(&ports);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            push_v2_head(0x21, 0x21, V2_INET6_BYTES, out);
            out.extend_from_slice(&[from.octets(), to.octets()].concat());
            out.extend_from_slice(&ports);
        }
        _ => push_v2_head(0x21, 0x00, 0, out),
    }
}

/// Appends a header of version 2 by which a proxy speaks for itself, say to see whether the tracker lives.
pub fn encode_v2_local(out: &mut Vec<u8>) {
    push_v2_head(0x20, 0x00, 0, out);
}

fn push_v2_head(version_command: u8, family: u8, rest_bytes: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(V2_SIGNATURE);
    out.extend_from_slice(&[version_command, family, 0, rest_bytes]);
}

/// Whether the two agree as far as both go.
fn begins(bytes: &[u8], signature: &[u8]) -> bool {
    bytes.iter().zip(signature).all(|(byte, expected)| byte == expected)
}

fn decode_v1(bytes: &[u8]) -> Decoded {
    let window = bytes.get(..V1_BYTES_MAX).unwrap_or(bytes);
    let Some(line_bytes) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if window.len() < V1_BYTES_MAX { Decoded::Incomplete } else { Decoded::Malformed };
    };
    let words = window.get(V1_SIGNATURE.len()..line_bytes);
    match words.and_then(|words| core::str::from_utf8(words).ok()).map(v1_source) {
        Some(Ok(source)) => Decoded::Header { bytes: line_bytes + 2, source },
        Some(Err(NotV1)) | None => Decoded::Malformed,
    }
}

struct NotV1;

/// Section 2.1: family, both addresses, both ports, one space between two of them. What follows `UNKNOWN` is to be
/// ignored.
fn v1_source(words: &str) -> Result<Option<SocketAddr>, NotV1> {
    let mut words = words.split(' ');
    let mut word = || words.next().ok_or(NotV1);
    let family = word()?;
    if family == "UNKNOWN" {
        return Ok(None);
    }
    let (from, to) = (word()?, word()?);
    let (from_port, _) = (port(word()?)?, port(word()?)?);
    if words.next().is_some() {
        return Err(NotV1);
    }
    let from = match family {
        "TCP4" => both::<Ipv4Addr>(from, to)?.into(),
        "TCP6" => both::<Ipv6Addr>(from, to)?.into(),
        _ => return Err(NotV1),
    };
    Ok(Some(canonical(from, from_port)))
}

/// The first of two addresses that both have to be of the family.
fn both<A: core::str::FromStr>(from: &str, to: &str) -> Result<A, NotV1> {
    to.parse::<A>().map_err(|_| NotV1)?;
    from.parse().map_err(|_| NotV1)
}

fn port(word: &str) -> Result<u16, NotV1> {
    // The parser of the library would take a plus sign.
    if word.starts_with('+') { Err(NotV1) } else { word.parse().map_err(|_| NotV1) }
}

fn decode_v2(bytes: &[u8]) -> Decoded {
    let Some((head, rest)) = bytes.split_at_checked(V2_HEAD_BYTES) else { return Decoded::Incomplete };
    let rest_bytes = usize::from(u16::from_be_bytes([head[14], head[15]]));
    let header_bytes = V2_HEAD_BYTES + rest_bytes;
    if header_bytes > HEADER_BYTES_MAX {
        return Decoded::Malformed;
    }
    let Some(rest) = rest.get(..rest_bytes) else { return Decoded::Incomplete };
    match v2_source(head[12], head[13], rest) {
        Some(source) => Decoded::Header { bytes: header_bytes, source },
        None => Decoded::Malformed,
    }
}

/// Section 2.2. What follows the addresses (TLVs) is skipped. Nothing where the header is malformed.
fn v2_source(version_command: u8, family: u8, rest: &[u8]) -> Option<Option<SocketAddr>> {
    match (version_command, family) {
        // LOCAL: "the receiver must discard the protocol block including the family".
        (0x20, _) => Some(None),
        (0x21, 0x00) => Some(None),
        (0x21, 0x11 | 0x12) => {
            let (addresses, _) = rest.split_first_chunk::<{ V2_INET_BYTES as usize }>()?;
            let [a, b, c, d, _, _, _, _, high, low, _, _] = *addresses;
            Some(Some(canonical(Ipv4Addr::new(a, b, c, d).into(), u16::from_be_bytes([high, low]))))
        }
        (0x21, 0x21 | 0x22) => {
            let (addresses, _) = rest.split_first_chunk::<{ V2_INET6_BYTES as usize }>()?;
            let ip: [u8; 16] = *addresses.first_chunk()?;
            Some(Some(canonical(ip.into(), u16::from_be_bytes([addresses[32], addresses[33]]))))
        }
        // Two paths of 108 bytes.
        (0x21, 0x31 | 0x32) => (rest.len() >= 216).then_some(None),
        _ => None,
    }
}

fn canonical(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip.to_canonical(), port)
}
