//! Conformance of trackers, seen from outside: one named case for each rule.
//!
//! This crate owns the rules and checks them with nothing but sockets. It encodes and decodes the protocols by hand: if
//! it shared the codecs of the tracker, it would share their mistakes. It prints nothing and ends no process. It reads
//! the clock only to limit the duration of a case (`deadline`).
//!
//! A case uses its own info hashes, and its peers leave when it ends, so the suite can run repeatedly against a tracker
//! that serves others. Nothing that a tracker sends can make a case panic, and every wait and every case has a limit.
//!
//! Each protocol is a module with a list of cases: [`udp`], [`http`] and [`webtorrent`]. The cases of HTTP and
//! WebTorrent run over plain TCP and over TLS.
//!
//! The tests of the tracker run the cases over each back end and address family. The tests of this crate run them
//! against test trackers that break one rule each.
//!
//! # Example
//! ```
#![doc = include_str!("../examples/conform_udp.rs")]
//! ```
#![forbid(unsafe_code)]

mod answers;
mod case;
mod certificate;
mod connection;
mod context;
mod deadline;
pub mod http;
mod junit;
mod peer;
mod report;
mod rules;
mod run;
mod trace;
pub mod udp;
pub mod webtorrent;

pub use case::{Case, CaseVerdict, Severity};
pub use context::{InfoHash, Scheme, Target, Timing, info_hashes, random_seed};
pub use junit::junit;
pub use report::{Finding, Report, Run, SCHEMA, Summary};
pub use rules::operator::OperatorRules;
pub use run::{probe, run};
pub use trace::{Direction, TraceEntry};
