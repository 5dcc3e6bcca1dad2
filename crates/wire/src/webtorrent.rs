//! The WebTorrent tracker protocol: JSON (RFC 8259) in messages of a WebSocket, in both directions.
//!
//! There is no BEP for it; its measure is what clients send. Owns the shapes of messages: a tracker uses [`decode`]
//! and [`reply`]; a load generator the reverse, [`request`] and [`received`]. Offers and answers (what two browsers
//! have to tell each other, about 2 KB) are handed over as the bytes that came: they are checked to be JSON objects of
//! a bounded size, never interpreted and never written anew. No tree of values is ever built. Must not know frames,
//! keep bytes between two calls, or decide what is done with a message.
//!
//! Info hashes, peer ids and offer ids are binary in a text: each byte b is the character U+00b, written as it is or as
//! an escape. Where a key comes twice in an object, the last one wins.

pub mod received;
pub mod reply;
pub mod request;

mod json;
mod message;
mod text;

pub use json::{DEPTH_MAX, JsonError};
pub use message::{Announce, Answer, Fault, Limits, Offer, Offers, Request, Storage, Unreadable, decode};
pub use text::{OFFER_ID_BYTES_MAX, OfferId};

/// What a message is about, by its key `action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An announce, and also the offers and answers that follow from it.
    Announce,
    /// A scrape.
    Scrape,
}

impl Action {
    /// The name on the wire.
    const fn name(self) -> &'static str {
        match self {
            Self::Announce => "announce",
            Self::Scrape => "scrape",
        }
    }
}
