//! The types that all tracker protocols share: info hash, peer id, event, peer address, and the counts of swarms.
//!
//! This crate owns names and memory layouts only. It does not know about encodings (`shoal-wire`), decisions
//! (`shoal-engine`) or storage (`shoal-store`), so that all of these can depend on it.
#![forbid(unsafe_code)]

mod announce;
mod credit;
mod delta;
mod peer;
mod swarm;

pub use announce::{Event, InfoHash, PeerId};
pub use credit::{Credit, CreditProtocol, SUBJECT_BYTES_MAX, Subject, Transfer};
pub use delta::{Delta, PeerChange, Presence};
pub use peer::{PeerV4, PeerV6};
pub use swarm::{Action, Counts, Expired, Totals};
