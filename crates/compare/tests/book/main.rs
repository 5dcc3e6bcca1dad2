#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]
//! The book of a made-up comparison: its figures by hand, its files, and that nothing from outside becomes markup.

mod connections;
mod figures;
mod files;
mod sample;
mod webtorrent;
