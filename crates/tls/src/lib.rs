//! TLS for trackers: certificates, tickets, and sessions that take bytes and give bytes.
//!
//! Owns what is configured about TLS and the state of each connection's. Must not touch sockets: ciphertext is handed
//! in, plaintext comes out, and the other way round.
#![forbid(unsafe_code)]
