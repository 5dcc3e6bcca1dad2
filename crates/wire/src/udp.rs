//! The UDP tracker protocol (BEP 15) with its announce options (BEP 41), in both directions.
//!
//! Owns the layout of every packet. A tracker decodes a [`Request`] and encodes a [`Reply`]; a client or a load
//! generator does the reverse with the same types. Decoding borrows from the packet and copies nothing. Encoding never
//! writes beyond the caller's buffer. This module must not judge the meaning of a field: the caller decides whether
//! port 0 is acceptable or a connection id is stale.
//!
//! BEP 15: "Do not expect packets to be exactly of a certain size. Future extensions could increase the size of
//! packets." So a request may be longer than its layout. The rest is ignored.

mod error;
mod option;
mod reply;
mod request;

pub use error::{NoRoom, ReplyError, RequestError, Truncated};
pub use option::{Options, UrlData, encode_url_data};
pub use reply::{AnnounceHead, ConnectReply, Peers, Reply, ScrapeEntry, ScrapeHead};
pub use request::{Announce, Request};

/// The value in place of the connection id in a connect request (BEP 15, "connect").
pub const PROTOCOL_ID: u64 = 0x0417_2710_1980;

/// The number that a tracker assigns on connect and requires in every other request (BEP 15, "UDP connections /
/// spoofing").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u64);

/// The number by which a client matches replies to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransactionId(pub u32);

mod action {
    pub(super) const CONNECT: u32 = 0;
    pub(super) const ANNOUNCE: u32 = 1;
    pub(super) const SCRAPE: u32 = 2;
    pub(super) const ERROR: u32 = 3;
}

/// Writes `parts` back to back to the front of `out`, all of them or none, and returns the number of bytes.
fn write(parts: &[&[u8]], out: &mut [u8]) -> Result<usize, NoRoom> {
    let needed_bytes = parts.iter().map(|part| part.len()).sum();
    let room_bytes = out.len();
    let mut rest = out.get_mut(..needed_bytes).ok_or(NoRoom { needed_bytes, room_bytes })?;
    for part in parts {
        let (front, back) = rest.split_at_mut(part.len());
        front.copy_from_slice(part);
        rest = back;
    }
    Ok(needed_bytes)
}
