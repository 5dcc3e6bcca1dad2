//! What must hold whatever bytes come in.
//!
//! Owns the bodies of the fuzz targets, as plain functions that panic where something does not hold. `fuzz/` wraps
//! them for libFuzzer, and the tests of this crate replay the corpora that it has collected, so that an ordinary test
//! run needs no fuzzer and no find is ever lost.
#![forbid(unsafe_code)]

mod client;
mod http_forwarded;
mod http_head;
mod http_query;
mod http_reply;
mod http_response;
mod model;
mod proxy;
mod udp_decode;
mod udp_reply;
mod websocket_handshake;
mod websocket_messages;
mod webtorrent_message;
mod webtorrent_received;

pub use http_forwarded::http_forwarded;
pub use http_head::http_head;
pub use http_query::http_query;
pub use http_reply::http_reply;
pub use http_response::http_response;
pub use proxy::proxy;
pub use udp_decode::udp_decode;
pub use udp_reply::udp_reply;
pub use websocket_handshake::websocket_handshake;
pub use websocket_messages::websocket_messages;
pub use webtorrent_message::webtorrent_message;
pub use webtorrent_received::webtorrent_received;

/// A property of all inputs.
pub type Body = fn(&[u8]);

/// Every target by the name of its corpus.
pub const TARGETS: [(&str, Body); 12] = [
    ("http_forwarded", http_forwarded),
    ("http_head", http_head),
    ("http_query", http_query),
    ("http_reply", http_reply),
    ("http_response", http_response),
    ("proxy", proxy),
    ("udp_decode", udp_decode),
    ("udp_reply", udp_reply),
    ("websocket_handshake", websocket_handshake),
    ("websocket_messages", websocket_messages),
    ("webtorrent_message", webtorrent_message),
    ("webtorrent_received", webtorrent_received),
];
