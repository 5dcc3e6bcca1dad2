//! Observations of a running tracker for its operator: which torrents change, which swarms are large, which software
//! clients use.
//!
//! Workers leave traces of their work in structures of a fixed size: a
//! [`ChangeBuffer`](shoal_base::change_buffer::ChangeBuffer) in each shard of a store, and a [`SampleRing`] for each
//! worker. A thread of the control plane collects them into the [`ChangeLog`], the [`Candidates`] for the largest
//! swarms, and the [`Clients`]. A worker never waits for that thread. If the thread falls behind, traces are lost,
//! and it notices the loss.
//!
//! The module must not touch sockets, files, threads or clocks: time and randomness are arguments.

mod candidates;
mod change_log;
mod clients;
mod sample;
mod software;

pub use candidates::Candidates;
pub use change_log::{ChangeLog, Changes, Cursor, CursorError};
pub use clients::{ClientShare, Clients};
pub use sample::{Sample, SampleRing, Sampler};
pub use software::{Software, Version, identify};
