//! The number of entries that each source of requests holds, and the number that it may hold.
//!
//! A source is what an attacker must multiply to look like many clients: an IPv4 address or an IPv6 network. This crate
//! owns the networks around an address and their shares ([`Width`]), the counts of the entries that sources hold
//! ([`NetworkCounts`]), the limits on them ([`Holdings`]), the rule for sharing a ceiling when it comes near
//! ([`allowance`]), the rates at which sources may ask ([`Rates`]), and the memory of recent events of a source
//! ([`Recent`]). All of it has a fixed size, whatever the number of sources.
//!
//! It counts sources by hashes under a secret key; the caller computes some of them. Without the key an attacker cannot
//! choose a source that shares its counters with another. The module must not use clocks or sockets.

mod counts;
mod holding;
mod networks;
mod rate;
mod recent;
mod share;
mod sketch;
mod width;

pub use counts::NetworkCounts;
pub use holding::{Excess, HoldingLimits, Holdings};
pub use networks::{Networks, Source, SourceHasher, spread};
pub use rate::{Bucket, Level, Rate, Rates, Taken};
pub use recent::{Download, Recent};
pub use share::{SWARM_SHARE_PEERS_MIN, allowance, swarm_share};
pub use sketch::Sketch;
pub use width::{Network, Width};
