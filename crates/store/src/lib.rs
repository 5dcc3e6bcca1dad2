//! The swarm store: which peers share which torrent.
//!
//! This crate owns all swarms and peers, and the memory they live in. It must not use sockets, files, threads or
//! clocks: time and randomness are arguments, so that the whole life of a swarm can run in a test in microseconds.
//!
//! From the outside in: [`Store`] has one [`Swarms`] for each address family, which has shards behind small locks
//! (`shard`). A shard has a `table` of `swarm_line`s. A swarm is one peer in its line, a block of a few peers
//! (`small`), or two tables of `peer_line`s (`large`). A table has `rows` in the order of a secret seed, and moves to
//! new ones when an attacker exploits that order. Rows grow by single lines (`level`), in pages from one `arena`, so no
//! operation ever waits for growth.

mod api;
mod arena;
mod expiry;
mod family;
mod hash;
mod large;
mod level;
mod lines;
mod memory;
mod peer_line;
mod prefetch;
mod pressure;
mod rows;
mod sample;
mod selection;
mod shard;
mod slab;
mod small;
mod source_limit;
mod stamp;
mod swarm;
mod swarm_line;
mod swarms;
mod table;
mod walk;

pub use api::{Announce, Announced, Listed, Rejection, Settings, Store};
pub use family::Family;
pub use swarms::{Place, Swarms};
pub use walk::Walk;
