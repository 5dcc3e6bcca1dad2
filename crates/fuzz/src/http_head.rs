//! Heads of HTTP requests.

use shoal_wire::http::Version;
use shoal_wire::http::head::{Body, HEAD_BYTES_MAX, HEADERS_MAX, HeadError, HeaderStorage, RequestHead};

/// Decodes the bytes as the head of a request and asks it everything that can be asked.
///
/// # Panics
/// Where something does not hold.
pub fn http_head(bytes: &[u8]) {
    let mut storage = HeaderStorage::new();
    match RequestHead::decode(bytes, &mut storage) {
        Ok(Some(head)) => check(bytes, &head),
        Ok(None) => assert!(bytes.len() < HEAD_BYTES_MAX, "what is not complete may still become so"),
        Err(HeadError::TargetTooLong | HeadError::TooLarge) => assert!(bytes.len() >= HEAD_BYTES_MAX),
        Err(HeadError::TooManyHeaders) => assert!(bytes.len() > HEADERS_MAX),
        Err(HeadError::Malformed(what)) => assert!(!what.is_empty()),
    }
}

fn check(bytes: &[u8], head: &RequestHead<'_, '_>) {
    assert!(head.bytes <= bytes.len().min(HEAD_BYTES_MAX));
    assert!(bytes[..head.bytes].ends_with(b"\n"));
    assert!(!head.path.is_empty() && !head.path.contains(&b'?') && !head.path.contains(&b'#'));
    assert!(!head.query.contains(&b'#') && !head.query.contains(&b' '));
    match head.body {
        Body::None => {}
        Body::Bytes(bytes) => assert!(bytes > 0),
        Body::Chunked => {
            assert_eq!(head.version, Version::Http11);
            assert_eq!(head.header("content-length").count(), 0, "one length only");
        }
    }
    if head.header("connection").next().is_none() {
        assert_eq!(head.keep_alive, head.version == Version::Http11);
        assert_eq!(head.upgrade(), None);
    }
    assert!(!head.accepts_gzip() || head.header("Accept-Encoding").next().is_some());
    let _ = head.host();

    // What follows a head does not change it, and nothing less is one.
    let mut storage = HeaderStorage::new();
    let again = RequestHead::decode(&bytes[..head.bytes], &mut storage).ok().flatten();
    let again = again.expect("the head alone is a head");
    assert_eq!((again.bytes, again.path, again.query), (head.bytes, head.path, head.query));
    assert_eq!((again.keep_alive, again.body), (head.keep_alive, head.body));
    let mut storage = HeaderStorage::new();
    assert!(matches!(RequestHead::decode(&bytes[..head.bytes - 1], &mut storage), Ok(None)));
}
