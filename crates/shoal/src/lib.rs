//! The tracker's program. It connects the other crates and owns everything that they must not touch: the threads, the
//! signals, the privileges and the life of the process.
//!
//! [`cli`] is the entry point. `tracker` controls the life of a tracker, from the configuration to the last worker.
//! `pool` and `worker` are its data plane. `shoal-control` and `shoal-cluster` run alongside them and never delay a
//! request.
#![deny(unsafe_code)]

mod access_log;
mod acme;
mod ancillary;
mod broker;
mod certificates;
pub mod cli;
mod cluster;
mod hand_over;
mod init;
mod memory;
mod operations;
mod privileges;
mod reload;
mod sandbox;
mod service_manager;
mod settings;
mod signals;
mod sockets;
mod state;
mod tracker;
mod version;
mod worker;
mod xdp;

pub use memory::allocator::Allocator;
