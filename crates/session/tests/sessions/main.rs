//! Sessions with rustls clients, in memory.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod abuse;
mod certificates;
mod forger;
mod handshake;
mod identity;
mod peer;
mod records;
mod resumption;
