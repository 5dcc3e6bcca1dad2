//! The PROXY protocol, versions 1 and 2 (`proxy-protocol.txt` of HAProxy): a proxy begins a connection with this header
//! to name its client.
//!
//! Owns the layout of the header, in both directions. It must not decide whether the proxy is trusted, nor how to treat
//! a header without a source.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io::Write as _;

/// The maximum length of a header in bytes. Version 1 has at most 107. Version 2 could announce 64 KiB, but the data
/// that proxies append (names, a checksum, parts of a certificate) takes some hundred bytes.
pub const HEADER_BYTES_MAX: usize = 4 << 10;

/// Section 2.1: "the worst case (optional fields set to 0xff)", line end included.
const V1_BYTES_MAX: usize = 107;
const V1_SIGNATURE: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The length of signature, version and command, family, and length.
const V2_HEAD_BYTES: usize = 16;
/// The length of source, destination and their ports.
const V2_INET_BYTES: u8 = 12;
const V2_INET6_BYTES: u8 = 36;

/// The result of decoding the front of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The header is incomplete.
    Incomplete,
    /// A complete header.
    Header {
        /// The length of the header in bytes.
        bytes: usize,
        /// The client behind the proxy; an IPv4-mapped IPv6 address is given as IPv4. `None` if the proxy connects for
        /// itself (`LOCAL`), does not know the client (`UNKNOWN`, `UNSPEC`), or received the connection over a Unix
        /// socket.
        source: Option<SocketAddr>,
    },
    /// The bytes are not a header.
    Malformed,
}

/// Decodes a header of either version from the front of `bytes`.
pub fn decode(bytes: &[u8]) -> Decoded {
    if begins(bytes, V2_SIGNATURE) {
        decode_v2(bytes)
    } else if begins(bytes, V1_SIGNATURE) {
        decode_v1(bytes)
    } else {
        Decoded::Malformed
    }
}

/// Appends a header of version 1. It becomes `UNKNOWN` if source and destination have different families, which version
/// 1 cannot express.
pub fn encode_v1(source: SocketAddr, destination: SocketAddr, out: &mut Vec<u8>) {
    let family = match (source, destination) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => "TCP4",
        (SocketAddr::V6(_), SocketAddr::V6(_)) => "TCP6",
        _ => return out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
    };
    let (from, to) = (source.ip(), destination.ip());
    write!(out, "PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port())
        .expect("writing to a vector does not fail");
}

/// Appends a header of version 2. It becomes `UNSPEC` if source and destination have different families.
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

/// Appends a header of version 2 for a proxy's own connection, for example for a health check.
pub fn encode_v2_local(out: &mut Vec<u8>) {
    push_v2_head(0x20, 0x00, 0, out);
}

fn push_v2_head(version_command: u8, family: u8, rest_bytes: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(V2_SIGNATURE);
    out.extend_from_slice(&[version_command, family, 0, rest_bytes]);
}

/// Returns whether the two agree in the length of the shorter one.
fn begins(bytes: &[u8], signature: &[u8]) -> bool {
    bytes.iter().zip(signature).all(|(byte, expected)| byte == expected)
}

fn decode_v1(bytes: &[u8]) -> Decoded {
    let window = bytes.get(..V1_BYTES_MAX).unwrap_or(bytes);
    let Some(line_bytes) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if window.len() < V1_BYTES_MAX { Decoded::Incomplete } else { Decoded::Malformed };
    };
    let fields = window.get(V1_SIGNATURE.len()..line_bytes);
    match fields.and_then(|fields| core::str::from_utf8(fields).ok()).map(v1_source) {
        Some(Ok(source)) => Decoded::Header { bytes: line_bytes + 2, source },
        Some(Err(NotV1)) | None => Decoded::Malformed,
    }
}

struct NotV1;

/// Parses the fields of section 2.1: family, both addresses and both ports, separated by single spaces. Anything after
/// `UNKNOWN` is ignored.
fn v1_source(fields: &str) -> Result<Option<SocketAddr>, NotV1> {
    let mut fields = fields.split(' ');
    let mut field = || fields.next().ok_or(NotV1);
    let family = field()?;
    if family == "UNKNOWN" {
        return Ok(None);
    }
    let (from, to) = (field()?, field()?);
    let (from_port, _) = (port(field()?)?, port(field()?)?);
    if fields.next().is_some() {
        return Err(NotV1);
    }
    let from = match family {
        "TCP4" => both::<Ipv4Addr>(from, to)?.into(),
        "TCP6" => both::<Ipv6Addr>(from, to)?.into(),
        _ => return Err(NotV1),
    };
    Ok(Some(canonical(from, from_port)))
}

/// Parses the first of two addresses, which must both belong to the family.
fn both<A: core::str::FromStr>(from: &str, to: &str) -> Result<A, NotV1> {
    to.parse::<A>().map_err(|_| NotV1)?;
    from.parse().map_err(|_| NotV1)
}

fn port(field: &str) -> Result<u16, NotV1> {
    // The standard parser would accept a plus sign.
    if field.starts_with('+') { Err(NotV1) } else { field.parse().map_err(|_| NotV1) }
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

/// Reads the source of section 2.2 and skips the data after the addresses (TLVs). Returns `None` if the header is
/// malformed.
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
        // Two paths of 108 bytes each.
        (0x21, 0x31 | 0x32) => (rest.len() >= 216).then_some(None),
        _ => None,
    }
}

fn canonical(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip.to_canonical(), port)
}
