//! All tests of the formats, in one program: each further one would be linked again.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod http_forwarded;
mod http_head;
mod http_query;
mod http_reply;
mod http_request;
mod http_response;
mod proxy;
mod udp_bytes;
mod udp_round_trip;
mod websocket_frame;
mod websocket_handshake;
mod websocket_messages;
mod webtorrent_malformed;
mod webtorrent_message;
mod webtorrent_reply;
mod webtorrent_round_trip;
