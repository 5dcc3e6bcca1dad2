//! The protocol by which several trackers behave as one.
//!
//! Each node answers from its own memory and tells the others what its announces change ([`Delta`](shoal_base::Delta)).
//! The state is soft: a live peer announces again within an interval, which is told again, so losses heal by
//! themselves. Sequence numbers, resends and snapshots only speed this up.
//!
//! [`Node`] is the whole protocol of one node as a state machine: messages and the time in, messages and changes of the
//! swarms ([`Swarms`]) out. This module must not touch sockets, threads, clocks or the store, so that many nodes, a
//! lossy bus and years of faults run in one test. It does not know NATS: any bus suffices that passes messages by
//! subjects, loses some, and mostly keeps the order between one sender and one receiver.
//!
//! | Subject | Messages |
//! |---|---|
//! | `shoal.NAME.delta.SHARD` | batches of deltas for the torrents of a shard |
//! | `shoal.NAME.hello` | the state of each node, every second |
//! | `shoal.NAME.node.ID` | requests and replies to one node |
//! | `shoal.NAME.credit` | announces of users, for other programs |
//!
//! No node depends on another one, or on clocks that agree. `tests/simulation` runs nodes, a bus and clients on virtual
//! time under faults that follow from a seed: nodes that crash or lose the bus, cuts, loss, reordering, repetition,
//! delay, garbage. A thousand schedules run in each test, and `SHOAL_SIMULATION_SEED` replays one.

mod allowance;
mod api;
mod credit;
mod delta;
pub mod message;
mod meter;
mod node;
mod outbox;
mod remote;
mod resync;
mod segment;
mod stream;
mod subject;

pub use api::{Counters, Damaged, NodeId, NodeState, NodeStatus, Outgoing, Scope, Settings, Status, Swarms};
pub use credit::{
    CREDIT_BATCH_BYTES_MAX, CREDIT_BYTES_MAX, CREDIT_BYTES_MIN, CreditHead, CreditRecord, credit_subject,
    decode_credits, encode_credit, encode_credit_head,
};
pub use delta::{DELTA_BYTES_MAX, Deltas, decode_deltas, encode_delta, encode_presence};
pub use message::Malformed;
pub use node::{MESSAGE_BYTES_MAX, Node, WAITING_BYTES_MAX};
pub use outbox::BATCH_BYTES_MAX;
pub use segment::{
    SEGMENT_ENTRY_HEAD_BYTES, SEGMENT_HEAD_BYTES, SegmentBatch, SegmentContents, SegmentEntry,
    decode_segment, decode_segment_entry, encode_segment_entry, encode_segment_head,
};
pub use subject::{SHARDS, shard_of};
