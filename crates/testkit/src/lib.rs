//! The kit of tests and trials: what they need around a tracker.
//!
//! | | owns |
//! |---|---|
//! | [`tools`] | the programs and packages that tests run, and where to find them |
//! | [`network`] | two network namespaces with a pair of interfaces between them, and VLANs |
//! | [`web_server`] | a web server that misbehaves on demand |
//! | [`allocator`] | an allocator that counts |
//! | [`certificate`] | a verifier that accepts any certificate |
//! | [`tokens`] | an issuer of tokens |
//! | [`nats`] | real NATS servers |
//!
//! The last three need the feature `tls`. The kit must not be part of the tracker, and must not read what the tracker's own
//! code wrote with the tracker's own code: it would share its mistakes.
#![deny(unsafe_code)]

pub mod allocator;
#[cfg(feature = "tls")]
pub mod certificate;
#[cfg(feature = "tls")]
pub mod nats;
pub mod network;
#[cfg(feature = "tls")]
pub mod tokens;
pub mod tools;
pub mod web_server;
