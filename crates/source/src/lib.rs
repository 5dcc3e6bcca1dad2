//! The number of entries that each source of requests holds, and the number that it may hold.
//!
//! A source is what an attacker has to multiply to look like many clients: an IPv4 address or an IPv6 network. This
//! crate owns the counts of the entries that sources hold ([`Sketch`]), the rule by which a ceiling is shared when it
//! comes near ([`allowance`]), the rates at which sources may ask ([`Rates`]), and the memory of recent events of a
//! source ([`Recent`]). All of it has a fixed size, whatever the number of sources.
//!
//! It knows sources only as 64-bit hashes, which the caller computes under a secret key: without the key an attacker
//! cannot choose a source that shares its counters with another. It must not use clocks, sockets or addresses.
#![forbid(unsafe_code)]

mod rate;
mod recent;
mod share;
mod sketch;

pub use rate::{Bucket, Level, Rate, Rates};
pub use recent::Recent;
pub use share::allowance;
pub use sketch::Sketch;
