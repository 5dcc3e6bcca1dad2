//! The shared foundation of a tracker: types of the protocols, contracts between I/O and protocol code, counters,
//! sources of requests, and the way to open an operator's files.
//!
//! | | owns |
//! |---|---|
//! | the root | info hash, peer id, event, peer address, counts of swarms: names and memory layouts |
//! | [`transport`] | the traits and types at the border between I/O and protocol code |
//! | [`metrics`] | counters, each declared once with its name and help |
//! | [`source`] | what each source of requests holds and may hold |
//! | [`change_buffer`] | the torrents of a shard that have changed |
//! | [`mod@file`] | reading files that any program may replace at any time |
//!
//! The crate does not know about encodings (`shoal-wire`), decisions (`shoal-engine`) or storage (`shoal-store`), so
//! all of these can depend on it. It has no sockets, threads or clocks.
#![forbid(unsafe_code)]

mod announce;
pub mod change_buffer;
mod credit;
mod delta;
pub mod file;
pub mod metrics;
mod peer;
pub mod source;
mod swarm;
pub mod transport;

pub use announce::{Event, InfoHash, PeerId};
pub use credit::{Credit, CreditProtocol, SUBJECT_BYTES_MAX, Subject, Transfer};
pub use delta::{Delta, PeerChange, Presence};
pub use peer::{PeerV4, PeerV6};
pub use swarm::{Action, Counts, Expired, Totals};
