//! The tests of the relay that need no allocator of their own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;
mod oracle;
mod pressure;
mod remote;
mod resume;
mod sample;
mod threads;
