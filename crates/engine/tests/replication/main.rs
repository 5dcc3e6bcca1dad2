//! Nodes without a network between them: what the responders of one record, and what others make of it.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod adopting;
mod applying;
mod node;
mod recording;
