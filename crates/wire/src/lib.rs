//! Tracker wire formats: bytes to requests, replies to bytes.
//!
//! This crate owns the shapes on the wire and nothing else. It has no sockets, no clock, no store and takes no
//! decisions; whatever bytes it is given, it answers with a value or a typed error and never panics.
#![forbid(unsafe_code)]

pub mod datagram;
pub mod http;
pub mod proxy;
pub mod stream;
pub mod udp;
pub mod websocket;
pub mod webtorrent;
