//! Handshakes of WebSockets.

use shoal_wire::http::Version;
use shoal_wire::http::head::{Body, HEAD_BYTES_MAX, HeaderStorage, Method, RequestHead};
use shoal_wire::websocket::handshake::{Asked, Unaccepted, confirm, request, respond};

/// The key of a client's request: the nonce of RFC 6455, 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Decodes the input as a request that may ask for an upgrade, and as the response to a handshake.
pub fn websocket_handshake(bytes: &[u8]) {
    let mut storage = HeaderStorage::new();
    if let Ok(Some(head)) = RequestHead::decode(bytes, &mut storage) {
        match request(&head) {
            Asked::No => {}
            Asked::Malformed(reason) => assert!(!reason.is_empty() && head.upgrade().is_some()),
            Asked::Version => assert!(head.upgrade().is_some()),
            Asked::WebSocket(accept) => {
                assert_eq!(
                    (head.method, head.version, head.body),
                    (Method::Get, Version::Http11, Body::None)
                );
                let mut keys = head.header("sec-websocket-key");
                let (Some(key), None) = (keys.next(), keys.next()) else { panic!("one key") };
                let key = str::from_utf8(key.trim_ascii()).expect("a key is ASCII");
                let mut response = Vec::new();
                respond(&accept, &mut response);
                assert_eq!(
                    confirm(&response, key),
                    Ok(Some(response.len())),
                    "the client accepts the response"
                );
            }
        }
    }
    match confirm(bytes, KEY) {
        Ok(None) => assert!(bytes.len() < HEAD_BYTES_MAX, "an incomplete response may still become complete"),
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
