//! Headers of the PROXY protocol.

use core::net::SocketAddr;

use shoal_wire::proxy::{Decoded, HEADER_BYTES_MAX, decode, encode_v1, encode_v2};

/// Decodes the bytes as a header, and encodes what comes out.
///
/// # Panics
/// Where something does not hold.
pub fn proxy(bytes: &[u8]) {
    match decode(bytes) {
        Decoded::Incomplete => assert!(bytes.len() < HEADER_BYTES_MAX, "this can still become a header"),
        Decoded::Malformed => assert!(!bytes.is_empty()),
        Decoded::Header { bytes: header_bytes, source } => {
            assert!(header_bytes <= bytes.len().min(HEADER_BYTES_MAX));
            assert_eq!(decode(&bytes[..header_bytes]), decode(bytes), "what follows does not matter");
            for truncated in 0..header_bytes {
                assert_eq!(decode(&bytes[..truncated]), Decoded::Incomplete);
            }
            if let Some(source) = source {
                check_source(source);
            }
        }
    }
}

fn check_source(source: SocketAddr) {
    assert_eq!(source.ip(), source.ip().to_canonical());
    for encode in [encode_v1, encode_v2] {
        let mut out = Vec::new();
        encode(source, source, &mut out);
        assert_eq!(decode(&out), Decoded::Header { bytes: out.len(), source: Some(source) });
    }
}
