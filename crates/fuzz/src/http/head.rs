//! The heads of HTTP requests.

use shoal_wire::http::Version;
use shoal_wire::http::head::{Body, HEAD_BYTES_MAX, HEADERS_MAX, HeadError, HeaderStorage, RequestHead};

/// Decodes the input as the head of a request and checks every accessor.
pub fn http_head(bytes: &[u8]) {
    let mut storage = HeaderStorage::new();
    let head = match RequestHead::decode(bytes, &mut storage) {
        Ok(Some(head)) => head,
        Ok(None) => {
            return assert!(bytes.len() < HEAD_BYTES_MAX, "an incomplete head may still become complete");
        }
        Err(HeadError::TargetTooLong | HeadError::TooLarge) => return assert!(bytes.len() >= HEAD_BYTES_MAX),
        Err(HeadError::TooManyHeaders) => return assert!(bytes.len() > HEADERS_MAX),
        Err(HeadError::Malformed(reason)) => return assert!(!reason.is_empty()),
    };
    assert!(head.bytes <= bytes.len().min(HEAD_BYTES_MAX));
    assert!(bytes[..head.bytes].ends_with(b"\n"));
    assert!(!head.path.is_empty() && !head.path.contains(&b'?') && !head.path.contains(&b'#'));
    assert!(!head.query.contains(&b'#') && !head.query.contains(&b' '));
    match head.body {
        Body::None => {}
        Body::Bytes(bytes) => assert!(bytes > 0),
        Body::Chunked => {
            assert_eq!(head.version, Version::Http11);
            assert_eq!(head.header("content-length").count(), 0, "a body has one length");
        }
    }
    if head.header("connection").next().is_none() {
        assert_eq!(head.keep_alive, head.version == Version::Http11);
        assert_eq!(head.upgrade(), None);
    }
    assert!(!head.accepts_gzip() || head.header("Accept-Encoding").next().is_some());
    let _ = head.host();

    // Bytes behind a head do not change it, and no shorter input is a head.
    let mut storage = HeaderStorage::new();
    let again = RequestHead::decode(&bytes[..head.bytes], &mut storage).ok().flatten();
    let again = again.expect("the bytes of the head are a head");
    assert_eq!((again.bytes, again.path, again.query), (head.bytes, head.path, head.query));
    assert_eq!((again.keep_alive, again.body), (head.keep_alive, head.body));
    let mut storage = HeaderStorage::new();
    assert!(matches!(RequestHead::decode(&bytes[..head.bytes - 1], &mut storage), Ok(None)));
}
