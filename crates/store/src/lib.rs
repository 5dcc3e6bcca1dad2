//! The swarm store: which peers share which torrent.
//!
//! This crate owns all swarms and peers, and their memory. It must not use sockets, files, threads or clocks: time and
//! randomness are arguments, so that a test can run the whole life of a swarm in microseconds.
//!
//! From the outside in: [`Store`] has one [`Swarms`] for each address family, which has shards behind small locks
//! (`shard`). A shard has a `table` of `swarm_line`s. A swarm is one peer in its line, a block of a few peers
//! (`small`), or two tables of `peer_line`s (`large`). A table consists of `segment`s, which are rebuilt and split one
//! at a time, so no operation waits for growth. All of this lies in blocks of a few sizes (`slab`) in the pages of one
//! `arena`.
//!
//! The aim is the least memory and no pause, at every size from one torrent to tens of millions. A swarm takes 30 bytes
//! of a line of the table of swarms (42 for IPv6). Up to 232 peers (85 for IPv6) lie in one block.
//!
//! `unsafe` occurs only in `arena`, `prefetch`, the lock in `sync`, and one call of `memory`. Types do not express two
//! of its contracts: no page is used after its arena, and no two processes use a store in the same memory file at the
//! same time.

mod age;
mod api;
mod arena;
mod expiry;
mod family;
mod hash;
mod holding;
mod image;
mod info_hash;
mod large;
mod lock;
mod memory;
mod memory_file;
mod peer_line;
mod prefetch;
mod pressure;
mod private;
mod retained;
mod sample;
mod segment;
mod selection;
mod shard;
mod slab;
mod small;
mod snapshot;
pub mod snapshot_file;
mod source_limit;
mod stamp;
mod store;
mod swarm;
mod swarm_line;
mod swarms;
mod sync;
mod table;
mod walk;

pub use api::{Announce, Announced, Listed, Rejection, Settings};
pub use family::Family;
pub use image::ImageError;
pub use memory_file::MemoryFile;
pub use prefetch::prefetch;
pub use private::{PrivateNetwork, PrivateSwarms};
pub use retained::RETAINED_HOURS_MAX;
pub use shoal_base::PeerChange;
pub use snapshot::{AGE_TICKS, Adopted, Ages, COUNTED, Export, Restored, SwarmPart, SwarmSet};
pub use store::Store;
pub use swarms::{LockedShard, Place, SHARDS_MAX, StoredPeer, Swarms};
pub use walk::Walk;
