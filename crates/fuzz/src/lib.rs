//! What must hold whatever bytes come in.
//!
//! Owns the bodies of the fuzz targets, as plain functions that panic where something does not hold. `fuzz/` wraps
//! them for libFuzzer, and the tests of this crate replay the corpora that it has collected, so that an ordinary test
//! run needs no fuzzer and no find is ever lost.
#![forbid(unsafe_code)]

mod client;
mod model;
mod udp_decode;
mod udp_reply;

pub use udp_decode::udp_decode;
pub use udp_reply::udp_reply;

/// A property of all inputs.
pub type Body = fn(&[u8]);

/// Every target by the name of its corpus.
pub const TARGETS: [(&str, Body); 2] = [("udp_decode", udp_decode), ("udp_reply", udp_reply)];
