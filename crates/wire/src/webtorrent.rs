//! The WebTorrent tracker protocol: JSON (RFC 8259) in messages of a WebSocket, in both directions.
//!
//! No BEP specifies it; the messages of clients are the reference. This module owns the layouts of messages. A tracker
//! uses [`decode`] and [`reply`]; a load generator does the reverse with [`request`] and [`received`]. Offers and
//! answers (the session descriptions that two browsers exchange, about 2 KB each) are passed on byte for byte: they are
//! checked to be JSON objects of a bounded size, but never interpreted or re-encoded. No tree of values is built. This
//! module must not know frames, keep bytes between two calls, or decide about a message.
//!
//! Info hashes, peer ids and offer ids are binary data in text: each byte b is the character U+00b, written literally
//! or as an escape. If a key occurs several times in an object, the last one wins.

pub mod received;
pub mod reply;
pub mod request;

mod json;
mod message;
mod text;

pub use json::{DEPTH_MAX, JsonError};
pub use message::{Announce, Answer, Fault, Limits, Offer, Offers, Request, Storage, Unreadable, decode};
pub use text::{OFFER_ID_BYTES_MAX, OfferId};

/// The subject of a message, from its key `action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An announce, or an offer or answer that results from one.
    Announce,
    /// A scrape.
    Scrape,
}

impl Action {
    /// Returns the name on the wire.
    const fn name(self) -> &'static str {
        match self {
            Self::Announce => "announce",
            Self::Scrape => "scrape",
        }
    }
}
