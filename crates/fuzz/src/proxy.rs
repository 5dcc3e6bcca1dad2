//! The headers in which proxies name the client: forwarding headers of HTTP, and the PROXY protocol.

use core::net::IpAddr;

use shoal_wire::http::forwarded::{HOPS_MAX, NoAddress, address, forwarded, x_forwarded_for};
use shoal_wire::http::head::HEAD_BYTES_MAX;
use shoal_wire::proxy::{Decoded, HEADER_BYTES_MAX, decode, encode_v1, encode_v2};

/// The address that a proxy appends. No earlier part of the header may hide it.
const APPENDED: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 77));

/// Reads each line of the input as a forwarding header, in every syntax.
pub fn http_forwarded(input: &[u8]) {
    // A header field is part of a head, which is never longer than this.
    if input.len() > HEAD_BYTES_MAX {
        return;
    }
    let lines = || input.split(|&byte| byte == b'\n');
    for line in lines() {
        if let Ok(ip) = address(line) {
            assert_eq!(ip, ip.to_canonical());
            assert_eq!(address(ip.to_string().as_bytes()), Ok(ip));
            assert_eq!(x_forwarded_for([line].into_iter()).collect::<Vec<_>>(), [Ok(ip)]);
        }
    }
    check_hops(&x_forwarded_for(lines()).collect::<Vec<_>>());
    check_hops(&forwarded(lines()).collect::<Vec<_>>());

    let list = [input, b", 192.0.2.77"].concat();
    assert_eq!(x_forwarded_for([&list[..]].into_iter()).next(), Some(Ok(APPENDED)));
    let elements = [input, b", for=192.0.2.77"].concat();
    match forwarded([&elements[..]].into_iter()).next() {
        Some(Err(NoAddress::Malformed)) => {}
        hop => assert_eq!(hop, Some(Ok(APPENDED)), "nothing hides what a proxy appends"),
    }
}

fn check_hops(hops: &[Result<IpAddr, NoAddress>]) {
    assert!(hops.len() <= HOPS_MAX + 1);
    let cut = hops.iter().position(|hop| *hop == Err(NoAddress::TooManyHops));
    assert!(cut.is_none_or(|hop| hop == HOPS_MAX));
    assert_eq!(hops.len() > HOPS_MAX, cut.is_some());
}

/// Decodes the input as a header of the PROXY protocol, and encodes the result again.
pub fn proxy(bytes: &[u8]) {
    match decode(bytes) {
        Decoded::Incomplete => assert!(bytes.len() < HEADER_BYTES_MAX, "the input may still become a header"),
        Decoded::Malformed => assert!(!bytes.is_empty()),
        Decoded::Header { bytes: header_bytes, source } => {
            assert!(header_bytes <= bytes.len().min(HEADER_BYTES_MAX));
            assert_eq!(
                decode(&bytes[..header_bytes]),
                decode(bytes),
                "bytes behind the header do not matter"
            );
            for truncated in 0..header_bytes {
                assert_eq!(decode(&bytes[..truncated]), Decoded::Incomplete);
            }
            let Some(source) = source else { return };
            assert_eq!(source.ip(), source.ip().to_canonical());
            for encode in [encode_v1, encode_v2] {
                let mut out = Vec::new();
                encode(source, source, &mut out);
                assert_eq!(decode(&out), Decoded::Header { bytes: out.len(), source: Some(source) });
            }
        }
    }
}
