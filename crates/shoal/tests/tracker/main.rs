//! Tests from outside: they start the built program on ports of its own and use it as clients and operators do.
//!
//! `harness` starts and ends trackers, `client` speaks UDP by hand (not with the codecs of the tracker, whose
//! mistakes it would share), `web` speaks HTTP and TLS, `browser` WebTorrent, `page` reads the control listener, `top` watches it in a pseudo terminal, `frozen` stops a single thread of a tracker.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod access;
mod access_log;
mod access_urls;
mod blocklist;
mod broker;
mod browser;
mod cli;
mod client;
mod cluster;
mod cluster_credit;
mod cluster_faults;
mod cluster_shared;
mod cluster_swarms;
mod conformance;
mod control;
mod control_api;
mod control_tokens;
mod frozen;
mod harness;
mod holding;
mod http;
mod insight;
mod life;
mod limits;
mod listeners;
mod memory;
mod monitoring;
mod page;
mod private;
mod protocols;
mod reload;
mod rules;
mod sandbox;
mod service_manager;
mod state;
mod state_faults;
mod statistics;
mod systemd;
mod tls;
mod tokens;
mod top;
mod udp;
mod upgrade;
mod upgrade_sockets;
mod veth;
mod web;
mod ws;
mod xdp;
