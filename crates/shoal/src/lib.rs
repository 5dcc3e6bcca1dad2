//! The tracker's program: it puts the crates together and owns everything that they must not touch, which is the
//! clock, the threads, the signals, the log and the operator.
//!
//! [`cli`] is the way in. `tracker` says how a tracker lives, from the configuration to the last worker;
//! `crew` and `worker` are its data plane, `control` the listener for operators, which never stands
//! between a request and its reply.
#![deny(unsafe_code)]

mod advice;
mod allocator;
mod certificates;
pub mod cli;
mod clock;
mod control;
mod crew;
mod descriptors;
mod desk;
mod failure;
mod keeper;
mod log;
mod memory;
mod process;
mod processors;
mod pulse;
mod settings;
mod signals;
mod tls;
mod tracker;
mod version;
mod worker;
