//! A siege: attacks on the built tracker, each while honest clients of every protocol use it.
//!
//! This module owns the attacks, the honest clients whose replies are checked one by one, the measurements and the verdict.
//! An attack is a program against a running tracker with stated limits; see [`ATTACKS`]. The siege attacks only the
//! tracker that it started itself, in its own network namespace, and accepts no other target. Everything is bounded in
//! time and count. It shares the codecs with the tracker, never its decisions.

mod address;
mod attack;
mod attacks;
mod cluster;
mod context;
mod honest;
mod http;
mod matrix;
pub mod namespace;
mod nats;
mod report;
mod run;
mod tracker;
mod udp;
mod verdict;
mod websocket;
mod wire;

pub use attack::{Attack, Layer, Limits, Mode, Setting};
pub use attacks::ATTACKS;
pub use context::Check;
pub use honest::Protocol;
pub use matrix::{By, PROMISES, Path, Promise, Tests, holes};
pub use report::{Report, list, with_matrix, with_promises};
pub use run::{Outcome, run};
pub use tracker::Program;
pub use verdict::{Honest, Measured, breaches};
