//! The tracker's program. It connects the other crates and owns everything that they must not touch: the clock,
//! the threads, the signals, the log and the interaction with the operator.
//!
//! [`cli`] is the entry point. `tracker` controls the life of a tracker, from the configuration to the last
//! worker. `pool` and `worker` are its data plane. `control` is the listener for operators, which never delays a
//! request.
#![deny(unsafe_code)]

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: shoal_testkit::allocator::CountingAllocator = shoal_testkit::allocator::CountingAllocator;

mod access;
mod access_log;
mod activation;
mod advice;
mod allocator;
mod ancillary;
mod background;
mod bound;
mod broker;
mod certificates;
pub mod cli;
mod clock;
mod cluster;
mod config_file;
mod control;
mod control_client;
mod ctl;
mod descriptors;
mod drain;
mod failure;
mod frozen_swarms;
mod hand_over;
mod heartbeat;
mod history;
mod insight;
mod keeper;
mod listening;
mod log;
mod memory;
mod output;
mod overload;
mod panics;
mod periodic;
mod phase;
mod pool;
mod printable;
mod privileges;
mod process;
mod processing;
mod processors;
mod public_statistics;
mod published;
mod reload;
mod repeated;
mod replace_file;
mod sandbox;
mod service;
mod service_manager;
mod service_status;
mod settings;
mod signals;
mod state;
mod stats;
mod sync;
mod tls;
mod token_keys;
mod top;
mod tracker;
mod version;
mod worker;
mod xdp;
