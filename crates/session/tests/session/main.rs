//! Connections as their peers see them: bytes in, bytes out, and what the connection waits for.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod frame_soup;
mod frames;
mod harness;
mod http;
mod pieces;
mod proxy;
mod quota;
mod response;
mod scrape;
mod secure_socket;
mod socket;
mod soup;
mod tls;
mod transfer;
mod upgrade;
mod webtorrent;
mod workers;
