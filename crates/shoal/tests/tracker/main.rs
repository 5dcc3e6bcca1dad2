//! Tests from outside: they start the built program on ports of its own and use it as clients and operators do.
//!
//! `kit` has the clients and the tracker under test.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod access;
mod access_log;
mod acme;
mod broker;
mod cli;
mod cluster;
mod control;
mod http;
mod insight;
mod kit;
mod life;
mod limits;
mod listeners;
mod reload;
mod sandbox;
mod service_manager;
mod state;
mod tls;
mod tokens;
mod top;
mod udp;
mod upgrade;
mod veth;
mod ws;
mod xdp;
