//! From bytes to bytes: the stages of a connection.
//!
//! Owns how a connection begins and ends, and what of it is heard by whom: the PROXY header by this module, what is
//! encrypted by TLS, and the rest by [`crate::conversation`].

use core::mem;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use shoal_engine::{Now, http, webtorrent};
use shoal_wire::http::response::Status;
use shoal_wire::proxy::{self, Decoded};
use shoal_wire::stream::{Claim, Class, Handle, Held, Next, Origin, SourceRoom};

use crate::answer;
use crate::conversation::{After, Conversation};
use crate::kept::Kept;
use crate::session::{Session, Stage};
use crate::settings::{Listener, Settings};
use crate::socket::{self, Sockets};
use crate::source::Source;

/// Most bytes that are kept of requests: what has come of one, and an input more that came together with requests whose
/// answers have to be sent first. Whoever hands in more than that has not waited for them.
const KEPT_BYTES_MAX: usize = 128 * 1024;

/// What a buffer for the time of a call keeps of its memory.
pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;

/// Serves the connections of one worker.
pub struct Service {
    settings: Arc<Settings>,
    tls: Option<shoal_tls::Server>,
    conversation: Conversation,
    /// None where WebTorrent is not served.
    sockets: Option<Sockets>,
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
    /// A service for a worker. Requests are answered by `http`, messages of WebSockets by `webtorrent`, if they are
    /// served; it has `tls` if there are listeners for it.
    #[must_use]
    pub fn new(
        settings: Arc<Settings>,
        http: http::Responder,
        webtorrent: Option<webtorrent::Responder>,
        tls: Option<shoal_tls::Server>,
    ) -> Self {
        let conversation = Conversation::new(Arc::clone(&settings), http, webtorrent.is_some());
        let sockets = webtorrent.map(|responder| Sockets::new(settings.websocket.clone(), responder));
        Self { settings, tls, conversation, sockets, plaintext: Vec::new(), reply: Vec::new() }
    }

    /// From now on `room` is asked whether a source may have one connection more, where a connection comes to count towards
    /// another source or limit than at first.
    #[must_use]
    pub fn with_room(mut self, room: Box<dyn SourceRoom>) -> Self {
        self.conversation.ask_for_room(room);
        self
    }

    /// A connection was accepted, which the back end calls `handle`.
    #[must_use]
    pub fn open(&self, origin: &Origin, handle: Handle) -> Session {
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
        Session::new(stage, listener.tls, source, is_trusted, handle)
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
            Stage::Http | Stage::Delivery(_) | Stage::Socket(_) => {
                self.receive_words(session, input, output, now)
            }
            Stage::Over => Next::Close,
        };
        self.end_if(next, session)
    }

    /// Returns what the connection counts towards from now on, where that has changed since the last call: a proxy has
    /// named its client, or it has become a WebSocket.
    pub fn claim(&self, session: &mut Session) -> Option<Claim> {
        if !mem::take(&mut session.has_claim) {
            return None;
        }
        let class = if matches!(session.stage, Stage::Socket(_)) { Class::WebSocket } else { Class::Http };
        Some(Claim { ip: self.settings.proxy.limited_ip(session.source), class })
    }

    /// The next connection that is to speak without having been asked.
    pub fn speaker(&mut self) -> Option<Handle> {
        self.sockets.as_mut()?.speaker()
    }

    /// Appends to `output` what waits for the connection, all of it, so that it leaves in one write.
    pub fn speak(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        if let (Some(sockets), Stage::Socket(socket)) = (&mut self.sockets, &mut session.stage) {
            sockets.fetch(socket, |words| match &mut session.tls {
                // Together, in as few records as it takes.
                Some(tls) => tls.seal(words, output),
                None => output.extend_from_slice(words),
            });
        }
        let next = session.stands();
        self.end_if(next, session)
    }

    /// The peer has not taken so many bytes of what it was told: what others have for it waits, within limits.
    pub fn backlog(&mut self, handle: Handle, unsent_bytes: usize) {
        if let Some(sockets) = &mut self.sockets {
            sockets.set_unsent(handle, unsent_bytes);
        }
    }

    /// How much memory a connection holds, with what waits for it and it does not take.
    #[must_use]
    pub fn held(&self, session: &Session) -> Held {
        let mut held = session.held();
        if let (Some(sockets), Stage::Socket(_)) = (&self.sockets, &session.stage) {
            held.variable += sockets.backlog_bytes(session.handle);
        }
        held
    }

    /// The peer has been silent for as long as it may: it is asked for a sign of life, or given up if it was asked
    /// before. Nobody would hear the reason.
    pub fn tend(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        let next = match &mut session.stage {
            Stage::Socket(socket) if !socket.is_silent() => {
                say(&mut session.tls, &mut self.reply, output, |words| socket.ping(words));
                session.stands()
            }
            _ => Next::Close,
        };
        self.end_if(next, session)
    }

    /// Takes in what other workers have for the connections of this one: at the beginning of a turn.
    pub fn collect(&mut self, now: Now) {
        if let Some(sockets) = &mut self.sockets {
            sockets.collect(now);
        }
    }

    /// Hands over what there is for connections of other workers: at the end of a turn. Returns the workers to be woken.
    pub fn dispatch(&mut self) -> impl Iterator<Item = u16> {
        // At once, also if nobody looks at the workers.
        self.sockets.as_mut().map(Sockets::dispatch).into_iter().flatten()
    }

    /// The time of the connection is up, or the tracker stops. Whoever is in the middle of a request is told so.
    pub fn expire(&mut self, session: &mut Session, output: &mut Vec<u8>, now: Now) {
        match session.stage {
            Stage::Http | Stage::Socket(_) => self.say_goodbye(session, output, now),
            // An answer that is cut off must not look as if this was its end, and before there is nothing to say.
            Stage::Delivery(_) | Stage::Proxy | Stage::Over => {}
        }
        self.end(session);
    }

    /// The connection holds more memory than others, and there is not enough: it is told so, and ends.
    pub fn shed(&mut self, session: &mut Session, output: &mut Vec<u8>, now: Now) {
        match session.stage {
            Stage::Http | Stage::Socket(_) => {
                let is_within_request = !session.kept.is_empty();
                let is_socket = matches!(session.stage, Stage::Socket(_));
                say(&mut session.tls, &mut self.reply, output, |words| {
                    if is_socket {
                        socket::say_shed(words);
                    } else if is_within_request {
                        answer::last(Status::ServiceUnavailable, answer::OUT_OF_MEMORY, now, words);
                    }
                });
                if let Some(tls) = &mut session.tls {
                    tls.close(output);
                }
            }
            // As when its time is up.
            Stage::Delivery(_) | Stage::Proxy | Stage::Over => {}
        }
        self.end(session);
    }

    /// Gives back memory that is kept for later and has become large: to be called every few seconds.
    pub fn trim(&mut self) {
        for scratch in [&mut self.plaintext, &mut self.reply] {
            scratch.shrink_to(SCRATCH_BYTES);
        }
        self.conversation.trim();
        if let Some(sockets) = &mut self.sockets {
            sockets.trim();
        }
    }

    /// There is no room for a connection from `origin`. It is told so, save where TLS would have to come first.
    pub fn refuse(&self, origin: &Origin, output: &mut Vec<u8>, now: Now) {
        if !self.listener(origin).tls {
            answer::last(Status::ServiceUnavailable, answer::BUSY, now, output);
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
        let mut kept = session.kept.take();
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
                session.kept.put(bytes.to_vec());
                Next::Busy
            }
            // Whoever it is does not speak the protocol, so there is no language to tell it in.
            Decoded::Malformed => Next::Close,
            Decoded::Header { bytes: header_bytes, source } => {
                session.source = source.map_or(Source::Unnamed, |source| Source::Ip(source.ip()));
                session.is_trusted = self.settings.proxy.trusts(session.source);
                session.stage = Stage::Http;
                session.has_claim = session.source != Source::Unnamed;
                if !self.conversation.has_room(session.source, Class::Http) {
                    session.has_claim = false;
                    return refuse_named(session, output, now);
                }
                self.receive_words(session, &mut bytes[header_bytes..], output, now)
            }
        }
    }

    /// Second stage: requests and frames, which may have to be decrypted.
    fn receive_words(
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
            Ok(()) => match self.converse_secretly(session, &mut tls, &mut plaintext, output, now) {
                // The rest of a record has to come as soon as that of a request.
                Next::Idle | Next::Standing if tls.is_within_record() => {
                    if plaintext.is_empty() {
                        Next::Busy
                    } else {
                        Next::BusyAnew
                    }
                }
                next => next,
            },
            Err(failure) => {
                if matches!(failure, shoal_tls::Failure::PlainHttp) {
                    answer::last(Status::BadRequest, answer::PLAIN_HTTP, now, output);
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
        plaintext: &mut [u8],
        output: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        let mut reply = mem::take(&mut self.reply);
        let mut next = self.converse(session, plaintext, &mut reply, now);
        tls.seal(&reply, output);
        reply.clear();
        self.reply = reply;
        // Whatever had come before was answered, and no more will come.
        if tls.is_closed() && matches!(next, Next::Idle | Next::Standing | Next::Busy | Next::BusyAnew) {
            next = Next::Close;
            if let Some(sockets) = &mut self.sockets {
                sockets.say_the_rest(session.handle, |words| tls.seal(words, output));
            }
        }
        if matches!(next, Next::Close | Next::Linger) {
            tls.close(output);
        }
        next
    }

    /// Third stage: hears what is said, be it requests or the frames of a WebSocket.
    fn converse(&mut self, session: &mut Session, input: &mut [u8], output: &mut Vec<u8>, now: Now) -> Next {
        match session.stage {
            Stage::Socket(_) => self.hear_frames(session, input, output, now),
            _ => self.hear_requests(session, input, output, now),
        }
    }

    /// Answers the requests in what is kept and in `input`, and keeps what is left.
    fn hear_requests(
        &mut self,
        session: &mut Session,
        input: &mut [u8],
        output: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        if session.kept.is_empty() {
            // Most requests come in one piece, and are read where they lie.
            let (used, after) = self.conversation.go_on(session, input, output, now);
            let rest = &mut input[used..];
            return match after {
                After::Upgrade(ip) => self.upgrade(session, ip, rest, output, now),
                After::Wait(next) => {
                    session.kept.put(rest.to_vec());
                    next
                }
            };
        }
        if session.kept.len() + input.len() > KEPT_BYTES_MAX {
            return Next::Linger;
        }
        let mut kept = session.kept.take();
        kept.extend_from_slice(input);
        let (used, after) = self.conversation.go_on(session, &kept, output, now);
        match after {
            After::Upgrade(ip) => self.upgrade(session, ip, &mut kept[used..], output, now),
            After::Wait(next) => {
                kept.drain(..used);
                kept.shrink_to(2 * kept.len());
                session.kept.put(kept);
                next
            }
        }
    }

    /// The connection has become a WebSocket of the client at `ip`. What has come behind the request are frames already.
    fn upgrade(
        &mut self,
        session: &mut Session,
        ip: IpAddr,
        rest: &mut [u8],
        output: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        let Some(sockets) = &self.sockets else { return Next::Close };
        session.stage = Stage::Socket(Box::new(sockets.enter(session.handle, ip)));
        (session.source, session.has_claim) = (Source::Ip(ip), true);
        self.hear_frames(session, rest, output, now)
    }

    fn hear_frames(
        &mut self,
        session: &mut Session,
        input: &mut [u8],
        output: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        match (&mut self.sockets, &mut session.stage) {
            (Some(sockets), Stage::Socket(socket)) => {
                sockets.hear(socket, &mut session.kept, input, output, now)
            }
            _ => Next::Close,
        }
    }

    fn say_goodbye(&mut self, session: &mut Session, output: &mut Vec<u8>, now: Now) {
        say(&mut session.tls, &mut self.reply, output, |words| match &session.stage {
            Stage::Socket(_) => socket::say_goodbye(words),
            _ if !session.kept.is_empty() => {
                answer::last(Status::RequestTimeout, answer::TOO_SLOW, now, words);
            }
            _ => {}
        });
        if let Some(tls) = &mut session.tls {
            tls.close(output);
        }
    }

    fn end_if(&mut self, next: Next, session: &mut Session) -> Next {
        if matches!(next, Next::Close | Next::Linger) {
            self.end(session);
        }
        next
    }

    /// Nothing is heard any more, and nothing is held.
    fn end(&mut self, session: &mut Session) {
        match (session.finish(), &mut self.sockets) {
            (Stage::Delivery(_), _) => self.conversation.forget_delivery(session.handle),
            (Stage::Socket(socket), Some(sockets)) => sockets.leave(*socket, &mut session.kept),
            _ => {}
        }
        session.kept = Kept::nothing();
        session.tls = None;
    }
}

/// Ends a connection of a client that a proxy names and that has too many. It is told so, save where TLS would have to come
/// first.
fn refuse_named(session: &Session, output: &mut Vec<u8>, now: Now) -> Next {
    if session.is_tls {
        return Next::Close;
    }
    answer::last(Status::ServiceUnavailable, answer::BUSY, now, output);
    Next::Linger
}

/// Has `speak` say something, inside of TLS or not. The buffer `reply` is for what goes through TLS.
fn say(
    tls: &mut Option<Box<shoal_tls::Session>>,
    reply: &mut Vec<u8>,
    output: &mut Vec<u8>,
    speak: impl FnOnce(&mut Vec<u8>),
) {
    let Some(tls) = tls else { return speak(output) };
    speak(reply);
    tls.seal(reply, output);
    reply.clear();
}
