//! Real BitTorrent clients against the real tracker: a test harness.
//!
//! Owns the means to run clients as processes on a network of their own, and the story that each test tells. It must
//! not know the tracker's insides: it sees the tracker as clients and operators do.
#![forbid(unsafe_code)]

pub mod bencode;
pub mod bridging;
pub mod certificate;
pub mod client;
pub mod front;
pub mod metrics;
pub mod namespace;
pub mod network;
pub mod patience;
pub mod payload;
pub mod process;
pub mod proxies;
pub mod sharing;
pub mod signalling;
pub mod stage;
pub mod tools;
pub mod tracker;
pub mod way;
pub mod workers;
