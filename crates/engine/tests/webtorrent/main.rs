//! The WebTorrent responder over real swarms: messages in, frames out.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod announce;
mod any_bytes;
mod harness;
mod identity;
mod metrics;
mod nodes;
mod relay;
mod scrape;
