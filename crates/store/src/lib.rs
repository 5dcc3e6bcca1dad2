//! The swarm store: who shares which torrent.
//!
//! Owns every swarm and peer. Must not touch sockets, files, threads or clocks: time and randomness are arguments.
//! TEMPORARY surface: the shape is final, the bodies come with the real store.

mod api;

pub use api::{Action, Announce, Announced, Counts, Expired, Full, Place, Settings, Store, Swarms, Totals};
