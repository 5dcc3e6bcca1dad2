//! Replication: swarms of this store are copied to other nodes, and their swarms are copied here.
//!
//! Announces over UDP and HTTP change peers. A responder records each change as a [`Delta`](shoal_base::Delta) in a
//! ring ([`Recorder`]), from which one thread takes it for the other nodes. The [`Applier`] puts the deltas of other
//! nodes into the store, and the [`Replica`] puts the swarms of their snapshots there. Both bypass the responders, so
//! nothing is recorded again.
//!
//! This module decides which announces become deltas, and which deltas of others apply. It must not know how deltas
//! travel: the cluster protocol handles order, loss and repetition. A delta may come twice or late; the peer's next
//! announce corrects the swarms.

mod admission;
mod applier;
mod recorder;
mod replica;

pub use admission::{RefusedPeer, ReplicationCounters};
pub use applier::Applier;
pub use recorder::{
    DELTAS_MAX, PRESENCE_RING_BYTES, PRESENCES_MAX, RING_BYTES, Recorded, RecordedDeltas, Recorder,
    presence_ring, ring,
};
pub use replica::{BLOCK_BYTES_MAX, Damaged, Replica, ReplicaExport};
