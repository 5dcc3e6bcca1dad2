//! Handshakes of WebSockets.

use shoal_wire::http::Version;
use shoal_wire::http::head::{Body, HEAD_BYTES_MAX, HeaderStorage, Method, RequestHead};
use shoal_wire::websocket::handshake::{Accept, Asked, Unaccepted, confirm, request, respond};

/// What a client may have asked with: the nonce of RFC 6455, 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Takes the bytes for a request and asks what it says about an upgrade, and for a response to a handshake.
///
/// # Panics
/// Where something does not hold.
pub fn websocket_handshake(bytes: &[u8]) {
    let mut storage = HeaderStorage::new();
    if let Ok(Some(head)) = RequestHead::decode(bytes, &mut storage) {
        check_request(&head);
    }
    check_response(bytes);
}

fn check_request(head: &RequestHead<'_, '_>) {
    match request(head) {
        Asked::No => {}
        Asked::Malformed(what) => assert!(!what.is_empty() && head.upgrade().is_some()),
        Asked::Version => assert!(head.upgrade().is_some()),
        Asked::WebSocket(accept) => check_agreed(head, &accept),
    }
}

fn check_agreed(head: &RequestHead<'_, '_>, accept: &Accept) {
    assert_eq!((head.method, head.version, head.body), (Method::Get, Version::Http11, Body::None));
    let mut keys = head.header("sec-websocket-key");
    let (Some(key), None) = (keys.next(), keys.next()) else { panic!("one key") };
    let key = str::from_utf8(key.trim_ascii()).expect("a key is ASCII");
    let mut response = Vec::new();
    respond(accept, &mut response);
    assert_eq!(confirm(&response, key), Ok(Some(response.len())), "who asked agrees");
}

fn check_response(bytes: &[u8]) {
    match confirm(bytes, KEY) {
        Ok(None) => assert!(bytes.len() < HEAD_BYTES_MAX, "what is not complete may still become so"),
        Ok(Some(head_bytes)) => {
            assert!(head_bytes <= bytes.len().min(HEAD_BYTES_MAX));
            assert!(bytes[..head_bytes].ends_with(b"\n"));
            assert_eq!(confirm(&bytes[..head_bytes], KEY), Ok(Some(head_bytes)));
            assert_eq!(confirm(&bytes[..head_bytes - 1], KEY), Ok(None));
        }
        Err(Unaccepted::Status(status)) => assert!(status < 1000 && status != 101),
        Err(_) => assert!(!bytes.is_empty()),
    }
}
