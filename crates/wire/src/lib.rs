//! Tracker wire formats: decodes bytes to requests and encodes replies to bytes.
//!
//! This crate owns only the layouts on the wire. It has no sockets, no clock and no store, and takes no decisions. For
//! any input it returns a value or a typed error, and it never panics.
//!
//! # Example
//! ```
#![doc = include_str!("../examples/announce.rs")]
//! ```
#![forbid(unsafe_code)]

pub mod http;
pub mod proxy;
pub mod udp;
pub mod websocket;
pub mod webtorrent;
