//! The swarm store: which peers share which torrent.
//!
//! This crate owns all swarms and peers, and their memory. It must not use sockets, files, threads or clocks: time and
//! randomness are arguments, so that a test can run the whole life of a swarm in microseconds.
//!
//! From the outside in: [`Store`] has one [`Swarms`] for each address family, which has shards behind small locks
//! (`shard`). A shard has a `table` of lines of swarms. A `swarm` is one peer in its line, a block of a few peers, or two
//! tables of lines of peers. A table consists of segments, which are rebuilt and split one at a time, so no operation ever
//! waits for growth. All of this lies in blocks of a few sizes in the pages of one arena (`memory`).
//!
//! The aim is the least memory and no pause, at every size from one torrent to tens of millions. A swarm takes 30 bytes
//! of a line of the table of swarms (42 for IPv6). Up to 232 peers (85 for IPv6) lie in one block.
//!
//! `unsafe` is only in `memory` and the lock in `sync`. Two contracts are stated and not expressed by
//! types: a page must not be used after its arena, and two processes must not use a store in the same memory file at
//! the same time.
//!
//! # Example
//! ```
#![doc = include_str!("../examples/swarms.rs")]
//! ```

mod age;
mod api;
mod expiry;
mod family;
mod hash;
mod holding;
mod image;
mod lock;
mod memory;
mod pressure;
mod retained;
mod sample;
mod shard;
mod snapshot;
pub mod snapshot_file;
mod source_limit;
mod stamp;
mod store;
mod swarm;
mod swarms;
mod sync;
mod table;
mod walk;

pub use api::{Announce, Announced, Listed, Rejection, Settings};
pub use family::Family;
pub use image::ImageError;
pub use memory::file::MemoryFile;
pub use memory::prefetch::prefetch;
pub use retained::RETAINED_HOURS_MAX;
pub use shoal_base::PeerChange;
pub use snapshot::{AGE_TICKS, Adopted, Ages, COUNTED, Export, Restored, SwarmPart, SwarmSet};
pub use store::Store;
pub use swarms::private::{PrivateNetwork, PrivateSwarms};
pub use swarms::{LockedShard, Place, SHARDS_MAX, StoredPeer, Swarms};
pub use walk::Walk;
