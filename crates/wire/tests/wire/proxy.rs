//! Headers of the PROXY protocol, byte by byte and in round trips.

use core::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use shoal_wire::proxy::{Decoded, HEADER_BYTES_MAX, decode, encode_v1, encode_v2, encode_v2_local};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn v2(version_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let rest_bytes = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[version_command, family], &rest_bytes, rest].concat()
}

fn assert_source(header: &[u8], source: Option<&str>) {
    let expected = Decoded::Header { bytes: header.len(), source: source.map(address) };
    let followed = [header, b"GET / HTTP/1.1\r\n\r\n"].concat();
    assert_eq!(decode(&followed), expected, "{}", header.escape_ascii());
    for bytes in 0..header.len() {
        assert_eq!(decode(&header[..bytes]), Decoded::Incomplete, "{bytes} of {}", header.escape_ascii());
    }
}

#[test]
fn version_1() {
    assert_source(b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", Some("192.0.2.1:56324"));
    assert_source(b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n", Some("[2001:db8::1]:1"));
    assert_source(b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", Some("192.0.2.1:1"));
    assert_source(b"PROXY UNKNOWN\r\n", None);
    let full = "ffff:f...f:ffff ffff:f...f:ffff 65535 65535";
    assert_source(format!("PROXY UNKNOWN {full}\r\n").as_bytes(), None);
}

#[test]
fn version_1_has_a_longest_line() {
    let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(107 - 16));
    assert_source(longest.as_bytes(), None);
    let longer = format!("PROXY UNKNOWN {}\r\n", "x".repeat(107 - 15));
    assert_eq!(decode(longer.as_bytes()), Decoded::Malformed);
    assert_eq!(decode(&longer.as_bytes()[..107]), Decoded::Malformed, "as soon as it is clear");
}

#[test]
fn version_1_malformed() {
    for line in [
        "GET / HTTP/1.1\r\n",
        "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY\r\n",
        "PROXY \r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 2001:db8::2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 x\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n\r\n",
    ] {
        assert_eq!(decode(line.as_bytes()), Decoded::Malformed, "{line:?}");
    }
    assert_eq!(decode(b"PROXY TCP4 \xff\r\n"), Decoded::Malformed);
}

#[test]
fn version_2() {
    let inet = [&[192, 0, 2, 1, 192, 0, 2, 2, 0x1a, 0xe1, 0, 80][..], b"\x03\x00\x04abcd"].concat();
    assert_source(&v2(0x21, 0x11, &inet[..12]), Some("192.0.2.1:6881"));
    assert_source(&v2(0x21, 0x11, &inet), Some("192.0.2.1:6881"));
    assert_source(&v2(0x21, 0x12, &inet), Some("192.0.2.1:6881"));

    let mut inet6 = [0; 36];
    inet6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    inet6[32..34].copy_from_slice(&6881_u16.to_be_bytes());
    assert_source(&v2(0x21, 0x21, &inet6), Some("[2001:db8::]:6881"));
    inet6[..16]
        .copy_from_slice(&"192.0.2.1".parse::<core::net::Ipv4Addr>().unwrap().to_ipv6_mapped().octets());
    assert_source(&v2(0x21, 0x21, &inet6), Some("192.0.2.1:6881"));
}

#[test]
fn version_2_without_a_source() {
    assert_source(&v2(0x21, 0x00, b""), None);
    assert_source(&v2(0x21, 0x00, b"anything"), None);
    assert_source(&v2(0x21, 0x31, &[0; 216]), None);
    assert_source(&v2(0x20, 0x00, b""), None);
    assert_source(&v2(0x20, 0x11, &[0; 12]), None);
    assert_source(&v2(0x20, 0xff, b"anything"), None);
}

#[test]
fn version_2_malformed() {
    for header in [
        v2(0x11, 0x11, &[0; 12]),
        v2(0x31, 0x11, &[0; 12]),
        v2(0x22, 0x11, &[0; 12]),
        v2(0x21, 0x11, &[0; 11]),
        v2(0x21, 0x21, &[0; 35]),
        v2(0x21, 0x31, &[0; 215]),
        v2(0x21, 0x13, &[0; 36]),
        v2(0x21, 0x41, &[0; 216]),
        v2(0x21, 0x01, &[0; 216]),
        [&SIGNATURE[..11], b"x", &[0x21, 0x11, 0, 0]].concat(),
    ] {
        assert_eq!(decode(&header), Decoded::Malformed, "{}", header.escape_ascii());
    }
}

#[test]
fn version_2_is_bounded() {
    assert_source(&v2(0x20, 0, &vec![0; HEADER_BYTES_MAX - 16]), None);
    let longer = v2(0x20, 0, &vec![0; HEADER_BYTES_MAX - 15]);
    assert_eq!(decode(&longer[..16]), Decoded::Malformed, "as soon as it is clear");
}

#[test]
fn encoders() {
    let (v4, v6) = (address("192.0.2.1:1"), address("[2001:db8::1]:2"));
    let mut out = Vec::new();
    encode_v1(v4, address("192.0.2.2:3"), &mut out);
    assert_eq!(out, b"PROXY TCP4 192.0.2.1 192.0.2.2 1 3\r\n");
    for encode in [encode_v1, encode_v2] {
        let mut out = Vec::new();
        encode(v4, v6, &mut out);
        assert_source(&out, None);
    }
    let mut out = Vec::new();
    encode_v2_local(&mut out);
    assert_source(&out, None);
}

fn pair() -> impl Strategy<Value = [SocketAddr; 2]> {
    let v4 =
        any::<[([u8; 4], u16); 2]>().prop_map(|pair| pair.map(|(ip, port)| SocketAddr::new(ip.into(), port)));
    let v6 = any::<[([u8; 16], u16); 2]>()
        .prop_map(|pair| pair.map(|(ip, port)| SocketAddr::new(ip.into(), port)));
    prop_oneof![v4, v6]
}

proptest! {
    #[test]
    fn a_source_is_read_as_it_was_written([source, destination] in pair()) {
        for encode in [encode_v1, encode_v2] {
            let mut out = Vec::new();
            encode(source, destination, &mut out);
            let expected = SocketAddr::new(IpAddr::to_canonical(&source.ip()), source.port());
            prop_assert_eq!(decode(&out), Decoded::Header { bytes: out.len(), source: Some(expected) });
        }
    }

    #[test]
    fn any_bytes_are_decided_upon_in_bounded_time(front in any::<bool>(), mut bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if front {
            bytes.splice(0..0, SIGNATURE.iter().copied());
        }
        match decode(&bytes) {
            Decoded::Header { bytes: header_bytes, .. } => prop_assert!(header_bytes <= bytes.len()),
            Decoded::Incomplete => prop_assert!(bytes.len() < HEADER_BYTES_MAX),
            Decoded::Malformed => {}
        }
    }
}
