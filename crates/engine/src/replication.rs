//! Replication: the swarms of this store as copies of those of other nodes, and the reverse.
//!
//! Announces over UDP and HTTP change peers. A responder records each change as a [`Delta`](shoal_base::Delta) in a ring
//! ([`Recorder`]), from which one thread takes them for the other nodes. The deltas of other nodes go into the store by the
//! [`Applier`], and swarms of their snapshots by the [`Replica`], past the responders, so none of them is recorded again.
//!
//! This module owns which announces become deltas, and which deltas of others are applied. It must not know how they travel: order, loss and repetition are the concern of the cluster protocol. A delta may come twice or late; the swarms
//! are then right again with the next announce of the peer.

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
