//! `shoal-lab compare` as its users run it: tiny comparisons, misbehaving trackers, and interrupts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod bad_input;
mod end;
mod http;
mod laboratory;
mod misbehaviour;
mod result;
mod ws;
