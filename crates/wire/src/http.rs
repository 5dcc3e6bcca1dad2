//! The HTTP tracker protocol (BEP 3, 7, 23, 24, 31, 48) over HTTP/1.0 and 1.1 (RFC 9112), in both directions.
//!
//! Owns the layouts on the wire: heads of requests and responses, queries, bencoded bodies, chunks, and the headers
//! that proxies write. A tracker uses [`head`], [`query`], [`reply`], [`response`] and [`forwarded`]. A client or a
//! load generator does the reverse with [`request`], [`response`], and [`received`] on top of [`bencode`]. Decoding
//! borrows and does not allocate; encoding appends to the caller's vector. This module must not read or write a socket,
//! keep bytes between two calls, or judge a value: the caller decides whether port 0 is acceptable or a proxy is
//! trusted.

pub mod bencode;
pub mod date;
pub mod forwarded;
pub mod head;
pub mod query;
pub mod received;
pub mod reply;
pub mod request;
pub mod response;

mod field;
pub(crate) mod number;
mod percent;

/// The version of a message. A later minor version is read as HTTP/1.1 (RFC 9110, 2.5). Other major versions are not
/// supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: the connection closes after one response unless both sides ask to keep it.
    Http10,
    /// HTTP/1.1: the connection stays open unless one side announces that it will close.
    Http11,
}

impl Version {
    const fn from_minor(minor: u8) -> Self {
        if minor == 0 { Self::Http10 } else { Self::Http11 }
    }
}
