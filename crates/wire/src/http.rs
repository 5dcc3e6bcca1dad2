//! The HTTP tracker protocol (BEP 3, 7, 23, 24, 31, 48) over HTTP/1.0 and 1.1 (RFC 9112), in both directions.
//!
//! Owns the shapes on the wire: heads of requests and responses, queries, bencoded bodies, chunks, and what proxies
//! write into headers. A tracker uses [`head`], [`query`], [`reply`], [`response`] and [`forwarded`]; a client or a
//! load generator the reverse: [`request`], [`response`], [`received`] on top of [`bencode`]. Decoding borrows and
//! allocates nothing; encoding appends to the caller's vector. Must not read or write a socket, keep bytes between
//! two calls, or judge what a value says: that a port is 0 or a proxy is not trusted is for others to decide.

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

/// Version of a message. A later minor version is read as HTTP/1.1 (RFC 9110, 2.5); others are not spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: a connection is closed after one response unless both sides ask for the contrary.
    Http10,
    /// HTTP/1.1: a connection is kept unless one side says that it will close.
    Http11,
}

impl Version {
    /// From what httparse calls it.
    const fn from_minor(minor: u8) -> Self {
        if minor == 0 { Self::Http10 } else { Self::Http11 }
    }
}
