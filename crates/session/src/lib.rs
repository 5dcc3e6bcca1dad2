//! The protocols of a connection as state machines without I/O: PROXY header, TLS, HTTP and WebSocket.
//!
//! This crate owns how a connection begins, continues and ends, and the HTTP responses that are not the tracker's own
//! (statuses, headers, framing). It must not touch sockets, threads or clocks, nor decide how the tracker answers a
//! request: it takes bytes, asks `shoal-engine`, and produces bytes.
//!
//! [`Service`] is the entry point: there is one for each worker, and a [`Session`] for each connection. No input makes
//! it panic or hold more than a bounded number of bytes of a connection.
//!
//! An idle connection owns no buffers. Input is parsed where it was received. Only the beginning of an incomplete
//! request is buffered, and the buffer is released with the reply. For the same reason, TLS uses rustls without its
//! buffers.
#![forbid(unsafe_code)]

mod challenges;
mod counters;
mod delivery;
mod http;
mod origin;
mod partial;
mod response;
mod service;
mod session;
mod settings;
mod source;
mod statistics;
pub mod tls;
mod transfer;
mod upgrade;
mod websocket;

pub use challenges::{AcmeAccount, ChallengeError, Challenges, TlsAnswer};
pub use counters::SessionCounters;
pub use service::Service;
pub use session::Session;
pub use settings::{
    ListenerProtocols, MESSAGE_BYTES_MAX, Origins, SessionSettings, TrustedProxies, WebSocketSettings,
    listeners,
};
pub use statistics::{Document, Statistics, StatisticsPath};
