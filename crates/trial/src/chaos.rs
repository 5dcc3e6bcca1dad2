//! A tracker under load while it is restarted, killed, stopped, or its state is damaged: it counts the requests that stay
//! without an answer or get two, and the peers that are lost, and judges both.
//!
//! Owns the load that keeps its schedule whatever the tracker does ([`load`]), the tracker and the ways to disturb it
//! ([`tracker`], [`event`]), and the verdict ([`threshold`]). The XDP data path has full load instead ([`full_load`]), and an account
//! of its requests ([`account`]). It must not share a decision with the tracker under test.
//!
//! The load keeps a [`record::Record`] of each request. All figures are computed from the records when the load has
//! ended, so the tests of the figures need no tracker and no clock.

pub mod account;
pub mod event;
pub mod full_load;
pub mod load;
pub mod measure;
pub mod record;
pub mod report;
pub mod result;
pub mod run;
pub mod threshold;
pub mod tracker;

mod counters;
mod disk;
mod http;
mod plot;
mod sample;
mod socket_drops;
mod udp;
mod websocket;
