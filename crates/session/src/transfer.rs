//! Sessions that another process continues.
//!
//! This module owns the encoding of their state. Some state cannot be copied. A TLS session has secrets, so it stays as
//! a [`Cipher`] that encrypts and decrypts for the other process. A full scrape in progress stays altogether.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use shoal_base::transport::stream::{Cipher, ConnectionKind, DETACHED_BYTES_MAX, Detached, Handle, Quota};
use shoal_engine::webtorrent::Responder;

use crate::service::Service;
use crate::session::{Session, Stage};
use crate::source::ClientSource;
use crate::websocket::SocketState;

#[derive(Debug, Serialize, Deserialize)]
struct State {
    stage: StageState,
    /// Whether a TLS handshake comes first.
    expects_tls: bool,
    /// Whether the TLS session stays in the process that has detached this one, or in an earlier one.
    is_tunnelled: bool,
    source: Source,
    skip_bytes: u16,
    partial: Vec<u8>,
}

/// The encoded form of a [`Stage`].
#[derive(Debug, Serialize, Deserialize)]
enum StageState {
    Proxy,
    Http,
    WebSocket(SocketState),
}

/// The encoded form of a [`ClientSource`].
#[derive(Debug, Serialize, Deserialize)]
enum Source {
    Ip(IpAddr),
    Unix,
    Unnamed,
}

/// The TLS session of a connection whose session another process continues.
#[derive(Debug)]
struct TlsCipher(Box<crate::tls::Session>);

impl Cipher for TlsCipher {
    fn open(&mut self, input: &mut [u8], plaintext: &mut Vec<u8>, output: &mut Vec<u8>) -> bool {
        // After a failure, the output ends with an alert.
        self.0.open(input, plaintext, output).is_ok() && !self.0.is_closed()
    }

    fn seal(&mut self, plaintext: &[u8], output: &mut Vec<u8>) {
        self.0.seal(plaintext, output);
    }

    fn close(&mut self, output: &mut Vec<u8>) {
        self.0.close(output);
    }
}

impl Service {
    /// Ends a session that another process continues, and returns its state, unless it has to stay. Appends what is queued
    /// for the peer to `output`, which holds what the peer has not accepted yet.
    pub(crate) fn take_state(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Option<Detached> {
        let is_movable = match (&session.stage, &session.tls) {
            (Stage::Proxy, _) => true,
            (Stage::Http | Stage::WebSocket(_), Some(tls)) => !tls.is_closed(),
            (Stage::Http | Stage::WebSocket(_), None) => true,
            (Stage::Delivery(_) | Stage::Over, _) => false,
        };
        if !is_movable || self.detached_bytes(session) + output.len() > DETACHED_BYTES_MAX {
            return None;
        }
        let (stage, kind) = match (&mut session.stage, &mut self.websockets) {
            (Stage::WebSocket(socket), Some(websockets)) => {
                let state = websockets.detach(socket, self.now)?;
                websockets.fetch(socket, |bytes| match &mut session.tls {
                    Some(tls) => tls.seal(bytes, output),
                    None => output.extend_from_slice(bytes),
                });
                (StageState::WebSocket(state), ConnectionKind::WebSocket)
            }
            (Stage::Proxy, _) => (StageState::Proxy, ConnectionKind::Http),
            _ => (StageState::Http, ConnectionKind::Http),
        };
        let quota = Quota { ip: self.settings.proxy.limited_ip(session.source), kind };
        let source = match session.source {
            ClientSource::Ip(ip) => Source::Ip(ip),
            ClientSource::Unix => Source::Unix,
            ClientSource::Unnamed => Source::Unnamed,
        };
        let cipher = session.tls.take().map(|tls| Box::new(TlsCipher(tls)) as Box<dyn Cipher>);
        let state = State {
            stage,
            expects_tls: session.is_tls && cipher.is_none(),
            is_tunnelled: session.is_tunnelled || cipher.is_some(),
            source,
            skip_bytes: session.skip_bytes,
            partial: session.partial.take(),
        };
        self.end(session);
        let state = postcard::to_allocvec(&state).expect("every state can be encoded");
        Some(Detached { state, quota, cipher })
    }

    /// Creates the session of the connection `handle` from the state of one that another process has detached. Returns
    /// `None` if it cannot continue here.
    pub(crate) fn resume(&mut self, handle: Handle, state: &[u8]) -> Option<Session> {
        let State { stage, expects_tls, is_tunnelled, source, skip_bytes, partial } =
            postcard::from_bytes(state).ok()?;
        if expects_tls && !self.has_tls() {
            return None;
        }
        let source = match source {
            Source::Ip(ip) => ClientSource::Ip(ip),
            Source::Unix => ClientSource::Unix,
            Source::Unnamed => ClientSource::Unnamed,
        };
        let stage = match (stage, &mut self.websockets, source) {
            (StageState::Proxy, ..) => Stage::Proxy,
            (StageState::Http, ..) => Stage::Http,
            (StageState::WebSocket(state), Some(websockets), ClientSource::Ip(ip)) => {
                Stage::WebSocket(Box::new(websockets.attach(handle, ip, state, self.now)))
            }
            (StageState::WebSocket(_), ..) => return None,
        };
        let mut session = Session::new(stage, expects_tls, source, self.trusts(source), handle);
        (session.is_tunnelled, session.skip_bytes) = (is_tunnelled, skip_bytes);
        // The trusted proxies may differ here.
        session.quota_changed = true;
        session.partial.put(partial);
        Some(session)
    }

    /// Returns how large the state of a session and its queued output are at most.
    fn detached_bytes(&self, session: &Session) -> usize {
        let of_socket = match (&session.stage, &self.websockets) {
            (Stage::WebSocket(socket), Some(websockets)) => {
                // The encoding of a peer is half as long again as its place in the list.
                2 * socket.member_bytes()
                    + Responder::PENDING_OFFERS_BYTES_MAX
                    + websockets.queued_bytes(session.handle)
            }
            _ => 0,
        };
        size_of::<State>() + session.buffered_bytes() + of_socket
    }
}
