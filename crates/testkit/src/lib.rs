//! The kit of tests and trials: what they need around a tracker.
//!
//! | | owns |
//! |---|---|
//! | [`client`] | the clients of tests and trials, one for each protocol |
//! | [`tools`] | the programs and packages that tests run, and where to find them |
//! | [`documents`] | pages of the documentation, and a shell that follows them |
//! | [`process`] | the launcher: a program with its output, and its end |
//! | [`ports`] | unused ports |
//! | [`tracker`] | a Shoal under test |
//! | [`container`] | the image of a container |
//! | [`namespace`] | network namespaces |
//! | [`network`] | two network namespaces with a pair of interfaces between them, and VLANs |
//! | [`debian`] | the Debian package of the tracker |
//! | [`interop`] | real BitTorrent clients, browsers and proxies, and the scenarios in which they meet a tracker |
//! | [`web_server`] | a web server that misbehaves on demand |
//! | [`allocator`] | an allocator that counts |
//! | [`callgrind`] | instructions of a benchmark |
//! | [`tokens`] | an issuer of tokens |
//! | [`nats`] | real NATS servers |
//! | [`pebble`] | a real ACME certificate authority |
//!
//! [`tokens`] needs the feature `tls`; [`nats`] and [`pebble`] need the feature `nats`. The kit must not be part of the tracker.
#![deny(unsafe_code)]

pub mod allocator;
pub mod callgrind;
pub mod client;
pub mod container;
pub mod debian;
pub mod documents;
pub mod interop;
pub mod namespace;
#[cfg(feature = "nats")]
pub mod nats;
pub mod network;
#[cfg(feature = "nats")]
pub mod pebble;
pub mod ports;
pub mod process;
#[cfg(feature = "tls")]
pub mod tokens;
pub mod tools;
pub mod tracker;
pub mod web_server;
