//! The commands of an operator: clients of a running tracker, and tools for its files.
//!
//! | | |
//! |---|---|
//! | [`client`] | asks the control listener |
//! | [`ctl`] | changes a running tracker |
//! | [`top`] | watches it |
//! | [`cluster`] | its cluster |
//! | [`config`] | configurations to start from |
//! | [`doctor`] | the machine |
//! | [`health`] | whether it serves |
//! | [`access`] | the lists of torrents, in files and through a running tracker |
//! | [`state`] | snapshots |
//! | [`import`] | configurations of other trackers |
//! | [`tls`] | certificates to try HTTPS with |
//!
//! A command returns its text or a [`Failure`](shoal_runtime::failure::Failure). The program prints it and ends. The
//! crate must not serve anything.
#![deny(unsafe_code)]

pub mod access;
pub mod client;
pub mod cluster;
pub mod config;
pub mod ctl;
pub mod doctor;
mod finding;
pub mod health;
pub mod import;
pub mod state;
pub mod tls;
pub mod top;
