//! How much each source of requests holds, and how much it may.
//!
//! A source is what an attacker has to multiply to look like many clients: an IPv4 address, an IPv6 network. This crate
//! owns the counts of what sources hold ([`Sketch`]), the rule by which a ceiling is shared when it comes near
//! ([`allowance`]), and the memory of what a source did lately ([`Recent`]). All of it has a fixed size, however many
//! sources there are.
//!
//! It knows sources only as 64-bit hashes, which the caller makes under a secret key: without the key an attacker cannot
//! choose a source that shares its counters with another. It must not touch clocks, sockets or addresses.
#![forbid(unsafe_code)]

mod recent;
mod share;
mod sketch;

pub use recent::Recent;
pub use share::allowance;
pub use sketch::Sketch;
