//! The types that every BitTorrent tracker protocol shares: info hash, peer id, event and peer address.
//!
//! This crate owns names and memory layouts only. It does not know about encodings (`shoal-wire`), decisions
//! (`shoal-engine`) or storage (`shoal-store`), so that all of these can depend on it.
#![forbid(unsafe_code)]

mod announce;
mod peer;

pub use announce::{Event, InfoHash, PeerId};
pub use peer::{PeerV4, PeerV6};
