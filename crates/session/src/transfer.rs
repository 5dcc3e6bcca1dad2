//! Sessions that another process continues.
//!
//! This module owns the encoding of their state. Only a session without TLS and without a response or WebSocket in progress
//! can be continued: everything else has state that cannot be copied.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::service::Service;
use crate::session::{Session, Stage};
use crate::source::ClientSource;

/// The state of a session.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    /// Whether the header of the PROXY protocol is expected, and not a request.
    expects_header: bool,
    /// Whether a TLS handshake comes first.
    expects_tls: bool,
    source: Source,
    skip_bytes: u16,
    partial: Vec<u8>,
}

/// As [`ClientSource`].
#[derive(Debug, Serialize, Deserialize)]
enum Source {
    Ip(IpAddr),
    Unix,
    Unnamed,
}

impl Service {
    /// Ends a session here and returns its state, unless it has to stay.
    pub fn detach(&mut self, session: &mut Session) -> Option<Vec<u8>> {
        let expects_header = match session.stage {
            Stage::Proxy => true,
            Stage::Http if session.tls.is_none() => false,
            Stage::Http | Stage::Delivery(_) | Stage::WebSocket(_) | Stage::Over => return None,
        };
        let source = match session.source {
            ClientSource::Ip(ip) => Source::Ip(ip),
            ClientSource::Unix => Source::Unix,
            ClientSource::Unnamed => Source::Unnamed,
        };
        let partial = session.partial.take();
        let (expects_tls, skip_bytes) = (session.is_tls, session.skip_bytes);
        let state = State { expects_header, expects_tls, source, skip_bytes, partial };
        session.finish();
        Some(postcard::to_allocvec(&state).expect("every state can be encoded"))
    }

    /// Gives a new session the state of one that another process has detached. Returns whether that is possible.
    pub fn attach(&self, session: &mut Session, state: &[u8]) -> bool {
        let Ok(State { expects_header, expects_tls, source, skip_bytes, partial }) =
            postcard::from_bytes(state)
        else {
            return false;
        };
        if expects_tls && !self.has_tls() {
            return false;
        }
        session.stage = if expects_header { Stage::Proxy } else { Stage::Http };
        (session.is_tls, session.skip_bytes) = (expects_tls, skip_bytes);
        session.source = match source {
            Source::Ip(ip) => ClientSource::Ip(ip),
            Source::Unix => ClientSource::Unix,
            Source::Unnamed => ClientSource::Unnamed,
        };
        session.is_trusted = self.trusts(session.source);
        session.quota_changed = true;
        session.partial.put(partial);
        true
    }
}
