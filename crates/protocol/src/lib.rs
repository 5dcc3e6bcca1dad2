//! The nouns that every BitTorrent tracker protocol shares: info hash, peer id, event, peer address.
//!
//! This crate owns names and shapes only. It must not know any encoding (that is `shoal-wire`), any decision
//! (`shoal-engine`) or any storage (`shoal-store`), so that all of them can speak of the same things.
#![forbid(unsafe_code)]

mod announce;
mod id;
mod peer;

pub use announce::Event;
pub use id::{InfoHash, PeerId};
pub use peer::{PeerV4, PeerV6};
