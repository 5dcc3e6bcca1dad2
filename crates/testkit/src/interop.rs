//! Interoperability tests: real BitTorrent clients against the real tracker.
//!
//! This module owns the means to run clients as processes on their own network, and the scenarios of the tests. It does
//! not use the tracker's internals: it sees the tracker as clients and operators do.

pub mod bencode;
pub mod bridge;
pub mod client;
mod cluster;
pub mod ingress;
pub mod metrics;
pub mod network;
pub mod payload;
pub mod proxies;
pub mod refusal;
pub mod route;
pub mod signalling;
pub mod testbed;
pub mod tracker;
pub mod transfer;
pub mod workers;
