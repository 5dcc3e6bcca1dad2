//! The HTTP responder over a real store: queries in, bencoded dictionaries out.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod announce;
mod any_bytes;
mod bencode;
mod full_scrape;
mod harness;
mod refusal;
mod scrape;
