#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]
//! The report of an invented comparison: its figures, computed by hand, its files, and the escaping of its text.

mod connections;
mod figures;
mod files;
mod sample;
mod webtorrent;
