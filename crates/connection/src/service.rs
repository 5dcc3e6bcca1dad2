//! From bytes to bytes: the stages of a connection.
//!
//! Owns how a connection begins and ends, and what of it is heard by whom: the PROXY header by this module, what is
//! encrypted by TLS, and the rest by [`crate::conversation`].

use core::mem;
use std::fmt;
use std::sync::Arc;

use shoal_engine::Now;
use shoal_engine::http::Responder;
use shoal_wire::http::response::Status;
use shoal_wire::proxy::{self, Decoded};
use shoal_wire::stream::{Next, Origin};

use crate::answer;
use crate::conversation::Conversation;
use crate::session::{Session, Stage};
use crate::settings::{Listener, Settings};
use crate::source::Source;

/// Most bytes that are kept of a connection: what has come of a request, and an input more that came together with
/// requests whose answers have to be sent first. Whoever hands in more than that has not waited for them.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Serves the connections of one worker.
pub struct Service {
    settings: Arc<Settings>,
    tls: Option<shoal_tls::Server>,
    conversation: Conversation,
    /// What has come through TLS, for the time of a call.
    plaintext: Vec<u8>,
    /// What is to go through TLS, for the time of a call.
    reply: Vec<u8>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Service {
    /// A service for a worker, which is answered by `responder`, and has `tls` if there are listeners for it.
    #[must_use]
    pub fn new(settings: Arc<Settings>, responder: Responder, tls: Option<shoal_tls::Server>) -> Self {
        let conversation = Conversation::new(Arc::clone(&settings), responder);
        Self { settings, tls, conversation, plaintext: Vec::new(), reply: Vec::new() }
    }

    /// A connection was accepted.
    #[must_use]
    pub fn open(&self, origin: &Origin) -> Session {
        let listener = self.listener(origin);
        let source = Source::of(origin);
        let is_trusted = self.settings.proxy.trusts(source);
        let stage = if !listener.proxy_protocol {
            Stage::Http
        } else if is_trusted {
            Stage::Proxy
        } else {
            Stage::Over
        };
        Session::new(stage, listener.tls, source, is_trusted)
    }

    /// Bytes have arrived: takes all of `input`, appends what is to be sent to `output`, and tells what the connection
    /// waits for. With an empty input it is asked to go on after [`Next::More`].
    pub fn receive(
        &mut self,
        session: &mut Session,
        input: &mut [u8],
        output: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        let next = match session.stage {
            Stage::Proxy => self.receive_header(session, input, output, now),
            Stage::Http => self.receive_requests(session, input, output, now),
            Stage::Over => Next::Close,
        };
        if matches!(next, Next::Close | Next::Linger) {
            self.end(session);
        }
        next
    }

    /// The time of the connection is up, or the tracker stops. Whoever is in the middle of a request is told so.
    pub fn expire(&mut self, session: &mut Session, output: &mut Vec<u8>) {
        // An answer that is cut off must not look as if this was its end.
        if session.stage == Stage::Http && session.delivery.is_none() {
            self.say_goodbye(session, output);
        }
        self.end(session);
    }

    /// There is no room for a connection from `origin`. It is told so, save where TLS would have to come first.
    pub fn refuse(&self, origin: &Origin, output: &mut Vec<u8>) {
        if !self.listener(origin).tls {
            answer::last(Status::ServiceUnavailable, answer::BUSY, output);
        }
    }

    /// The connection is gone.
    pub fn close(&mut self, mut session: Session) {
        self.end(&mut session);
    }

    /// Whether connections from there count towards the limit of their source. Those of proxies do not.
    #[must_use]
    pub fn is_limited(&self, origin: &Origin) -> bool {
        let source = Source::of(origin);
        source != Source::Unix && !self.settings.proxy.trusts(source)
    }

    fn listener(&self, origin: &Origin) -> Listener {
        self.settings.listeners.get(origin.listener).copied().unwrap_or_default()
    }

    /// First stage: whom the proxy names as the source.
    fn receive_header(
        &mut self,
        session: &mut Session,
        input: &mut [u8],
        output: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        if session.kept.is_empty() {
            return self.take_header(session, input, output, now);
        }
        let mut kept = mem::take(&mut session.kept);
        kept.extend_from_slice(input);
        self.take_header(session, &mut kept, output, now)
    }

    fn take_header(
        &mut self,
        session: &mut Session,
        bytes: &mut [u8],
        output: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        match proxy::decode(bytes) {
            Decoded::Incomplete => {
                session.kept.extend_from_slice(bytes);
                Next::Busy
            }
            // Whoever it is does not speak the protocol, so there is no language to tell it in.
            Decoded::Malformed => Next::Close,
            Decoded::Header { bytes: header_bytes, source } => {
                session.source = source.map_or(Source::Unnamed, |source| Source::Ip(source.ip()));
                session.is_trusted = self.settings.proxy.trusts(session.source);
                session.stage = Stage::Http;
                self.receive_requests(session, &mut bytes[header_bytes..], output, now)
            }
        }
    }

    /// Second stage: requests, which may have to be decrypted.
    fn receive_requests(
        &mut self,
        session: &mut Session,
        input: &mut [u8],
        output: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        if session.is_tls {
            self.receive_tls(session, input, output, now)
        } else {
            self.converse(session, input, output, now)
        }
    }

    fn receive_tls(
        &mut self,
        session: &mut Session,
        input: &mut [u8],
        output: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        if session.tls.is_none() {
            let Some(server) = &self.tls else { return Next::Close };
            session.tls = Some(Box::new(shoal_tls::Session::new(server)));
        }
        let Some(mut tls) = session.tls.take() else { return Next::Close };
        let mut plaintext = mem::take(&mut self.plaintext);
        let next = match tls.open(input, &mut plaintext, output) {
            Ok(()) if tls.is_handshaking() && !tls.is_closed() => Next::Busy,
            Ok(()) => match self.converse_secretly(session, &mut tls, &plaintext, output, now) {
                // The rest of a record has to come as soon as that of a request.
                Next::Idle if tls.is_within_record() => Next::Busy,
                next => next,
            },
            Err(failure) => {
                if matches!(failure, shoal_tls::Failure::PlainHttp) {
                    answer::last(Status::BadRequest, answer::PLAIN_HTTP, output);
                }
                Next::Linger
            }
        };
        plaintext.clear();
        self.plaintext = plaintext;
        session.tls = Some(tls);
        next
    }

    fn converse_secretly(
        &mut self,
        session: &mut Session,
        tls: &mut shoal_tls::Session,
        plaintext: &[u8],
        output: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        let mut reply = mem::take(&mut self.reply);
        let mut next = self.converse(session, plaintext, &mut reply, now);
        tls.seal(&reply, output);
        reply.clear();
        self.reply = reply;
        // Whatever had come before was answered, and no more will come.
        if tls.is_closed() && matches!(next, Next::Idle | Next::Busy) {
            next = Next::Close;
        }
        if matches!(next, Next::Close | Next::Linger) {
            tls.close(output);
        }
        next
    }

    /// Third stage: answers the requests in what is kept and in `input`, and keeps what is left.
    fn converse(&mut self, session: &mut Session, input: &[u8], output: &mut Vec<u8>, now: Now) -> Next {
        if session.kept.is_empty() {
            // Most requests come in one piece, and are read where they lie.
            let (used, next) = self.conversation.go_on(session, input, output, now);
            if used < input.len() {
                session.kept = input[used..].to_vec();
            }
            return next;
        }
        if session.kept.len() + input.len() > KEPT_BYTES_MAX {
            return Next::Linger;
        }
        let mut kept = mem::take(&mut session.kept);
        kept.extend_from_slice(input);
        let (used, next) = self.conversation.go_on(session, &kept, output, now);
        kept.drain(..used);
        if !kept.is_empty() {
            kept.shrink_to(2 * kept.len());
            session.kept = kept;
        }
        next
    }

    fn say_goodbye(&mut self, session: &mut Session, output: &mut Vec<u8>) {
        let mut words = mem::take(&mut self.reply);
        if session.is_half_asked() {
            answer::last(Status::RequestTimeout, answer::TOO_SLOW, &mut words);
        }
        if let Some(tls) = &mut session.tls {
            tls.seal(&words, output);
            tls.close(output);
        } else {
            output.extend_from_slice(&words);
        }
        words.clear();
        self.reply = words;
    }

    /// Nothing is heard any more, and nothing is held.
    fn end(&mut self, session: &mut Session) {
        session.stage = Stage::Over;
        session.kept = Vec::new();
        session.tls = None;
        if session.delivery.take().is_some() {
            self.conversation.forget_delivery();
        }
    }
}
