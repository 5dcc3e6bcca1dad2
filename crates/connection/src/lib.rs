//! What is said on a connection, as state machines without I/O: a PROXY header, TLS, HTTP, WebSocket.
//!
//! Owns how a connection begins, goes on and ends, and the answers of HTTP that are not the tracker's own (statuses,
//! heads, framing). Must not touch sockets, threads or clocks, nor decide what a request is answered: bytes are handed
//! in, `shoal-engine` is asked, and bytes come out.
//!
//! [`Service`] is the whole of it: one for each worker, and a [`Session`] for each connection. Nothing that a peer
//! sends makes it panic, or keep more than a bounded number of bytes of a connection.
#![forbid(unsafe_code)]

mod answer;
mod conversation;
mod kept;
mod origin;
mod scrape;
mod service;
mod session;
mod settings;
mod socket;
mod source;
mod upgrade;

pub use service::Service;
pub use session::Session;
pub use settings::{ClientHeader, Listener, Origins, Proxy, Settings, WebSocket};
