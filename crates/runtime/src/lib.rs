//! The parts of a running tracker that its planes share: data plane, control plane and cluster.
//!
//! | | owns |
//! |---|---|
//! | [`clock`] | the readings of the time for workers, lists and records |
//! | [`live`] | everything that workers take from the configuration and that can change |
//! | [`published`] | a value that one thread replaces and workers follow without waiting |
//! | [`lists`] | the operator's lists: sources, bans, changes, and the removal of swarms that they forbid |
//! | [`token_keys`] | the keys of tokens, read again while the tracker runs |
//! | [`config_file`] | reading the configuration, at the start and later |
//! | [`counters`], [`division`] | figures of the control plane, and the division of the memory |
//! | [`heartbeat`] | whether threads respond |
//! | [`periodic`], [`background`], [`panics`] | threads that serve no requests |
//! | [`state_directory`] | the directory of the state, which no other tracker uses |
//! | [`log`], [`repeated`], [`printable`], [`output`] | the texts for an operator |
//! | [`advice`], [`certificates`], [`descriptors`], [`machine`] | what the start and `shoal doctor` judge about the host in the same words |
//! | [`failure`] | why the program ends, and its exit code |
//! | [`random`] | random numbers for secrets |
//! | [`replace_file`] | files that are replaced as a whole |
//!
//! The crate must not open sockets, serve requests, or know the control listener or the cluster.
#![deny(unsafe_code)]

pub mod advice;
pub mod background;
pub mod certificates;
pub mod clock;
pub mod config_file;
pub mod counters;
pub mod descriptors;
pub mod division;
pub mod failure;
pub mod heartbeat;
pub mod lists;
pub mod live;
pub mod log;
pub mod machine;
pub mod output;
pub mod panics;
pub mod periodic;
pub mod printable;
pub mod published;
pub mod random;
pub mod repeated;
pub mod replace_file;
pub mod state_directory;
mod sync;
pub mod token_keys;
