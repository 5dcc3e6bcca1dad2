//! The tests of the store that need no program of their own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adopt;
mod ages;
mod changes;
mod format;
mod holding;
mod image;
mod peer_changes;
mod pressure;
mod sample;
mod selection;
mod snapshot;
#[path = "../support/export.rs"]
mod support;
mod threads;
mod visit;
