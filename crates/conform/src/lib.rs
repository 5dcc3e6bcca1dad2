//! Conformance of trackers, seen from outside: one named case for each rule.
//!
//! Owns the rules, and how each is checked with nothing but sockets. Speaks the protocols by hand, byte by byte: the
//! codecs of the tracker are no dependency, since a suite that shares them would share their mistakes. Prints
//! nothing and ends no process; that is the business of the program that runs it. Reads the clock only to bound a case
//! (`deadline`).
//!
//! A case uses info hashes of its own, and its peers leave when it ends. So the suite may be run against a tracker
//! that serves others, and again and again. Nothing that a tracker sends can make a case panic, and every wait and
//! every case has an end.
//!
//! Each protocol is a module with a list of cases: [`udp`], [`http`] and [`webtorrent`]. TLS is no protocol of its own but
//! what the cases of the latter two are carried by.
#![forbid(unsafe_code)]

mod case;
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
mod trust;
pub mod udp;
pub mod webtorrent;

pub use case::{Case, Severity, Verdict};
pub use context::{InfoHash, Scheme, Target, Timing, info_hashes, random_seed};
pub use junit::junit;
pub use report::{Finding, Report, Run, SCHEMA, Summary};
pub use run::{Unreachable, probe, run};
pub use trace::{Direction, Event};
