//! A tracker under test, and its clients.
//!
//! `harness` starts and ends trackers, `client` speaks UDP, `web` HTTP and TLS, `browser` WebTorrent. `page` reads the control
//! listener, `frozen` stops a single thread of a tracker, and `conformance` runs the conformance suite.

pub(crate) mod browser;
pub(crate) mod client;
pub(crate) mod conformance;
pub(crate) mod frozen;
pub(crate) mod harness;
pub(crate) mod page;
pub(crate) mod protocols;
pub(crate) mod web;
