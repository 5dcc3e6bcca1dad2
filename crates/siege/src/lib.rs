//! A siege: attacks on the built tracker, each beside honest clients of every protocol.
//!
//! Owns the attacks, the honest clients that are checked answer by answer, what is measured meanwhile, and the verdict.
//! An attack is a program against a running tracker, with stated bars; see [`ATTACKS`]. The siege aims at the tracker
//! that it started itself, in a network namespace of its own, and cannot be given any other target. Everything is
//! bounded in time and count. It shares the codecs with the tracker, never its decisions.
#![forbid(unsafe_code)]

mod attack;
mod attacks;
mod clock;
mod context;
mod honest;
mod http;
pub mod namespace;
mod number;
mod report;
mod run;
mod socket;
mod source;
mod tls;
mod tracker;
mod udp;
mod usage;
mod verdict;
mod websocket;

pub use attack::{Attack, Bars, Form, Layer, Setting};
pub use attacks::ATTACKS;
pub use context::Claim;
pub use honest::Protocol;
pub use report::{Report, list, list_markdown};
pub use run::{Outcome, run};
pub use tracker::Program;
pub use verdict::{Honest, Measured, breaches};
