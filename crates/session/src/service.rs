//! The stages of a connection.
//!
//! This module owns how a connection begins and ends, and which layer handles its bytes: the PROXY header is
//! decoded here, encrypted bytes go through TLS, and requests are handled by [`crate::http`]. The clock is read by the
//! caller, once for each poll round.

use core::mem;
use std::fmt;
use std::sync::Arc;

use shoal_base::transport::stream::{
    ConnectionKind, Detached, Handle, Held, Next, Quota, Remote, SourceCapacity, StreamService,
};
use shoal_engine::pace::Pace;
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::processing::Stopwatch;
use shoal_engine::{Now, http, webtorrent};
use shoal_wire::http::response::Status;
use shoal_wire::proxy::{self, Decoded};

use crate::counters::{Handshake, SessionCounters};
use crate::http::{HttpHandler, Served};
use crate::partial::PartialInput;
use crate::response;
use crate::session::{Session, Stage};
use crate::settings::{ListenerProtocols, SessionSettings};
use crate::source::ClientSource;
use crate::statistics::Statistics;
use crate::websocket::{self, Opened, WebSocketHandler};

/// Maximum size of the partial input of requests: an incomplete request, and one more input that arrived together with
/// requests whose responses have to be sent first. A client that sends more has not waited for them.
const PARTIAL_BYTES_MAX: usize = 128 * 1024;

/// Capacity that a trimmed scratch buffer retains.
pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;

/// Serves the connections of one worker.
pub struct Service {
    pub(crate) settings: Arc<SessionSettings>,
    /// The settings that describe the listeners of the back end. Other settings may be newer.
    listener_settings: Arc<SessionSettings>,
    counters: Arc<SessionCounters>,
    tls: Option<crate::tls::Server>,
    pub(crate) http: HttpHandler,
    /// `None` if WebTorrent is not served.
    pub(crate) websockets: Option<WebSocketHandler>,
    /// Scratch buffer for decrypted input.
    plaintext: Vec<u8>,
    /// Scratch buffer for output that is to be encrypted.
    reply: Vec<u8>,
    /// Whether another process serves in place of this one.
    is_replaced: bool,
    /// The time of the poll round.
    pub(crate) now: Now,
    stopwatch: Stopwatch,
    /// Whether the last input was that of a WebSocket.
    is_socket_input: bool,
}

/// One call of the service for a connection: the context of all functions in the call.
pub(crate) struct Call<'c> {
    pub(crate) session: &'c mut Session,
    /// The bytes to send. Within TLS, they still have to be encrypted.
    pub(crate) output: &'c mut Vec<u8>,
    pub(crate) now: Now,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Service {
    /// Creates the service of a worker. `http` answers requests, and `webtorrent` answers messages of WebSockets,
    /// if they are served. `tls` is required for TLS listeners. `stopwatch` measures inputs.
    pub fn new(
        settings: Arc<SessionSettings>,
        http: http::Responder,
        webtorrent: Option<webtorrent::Responder>,
        tls: Option<crate::tls::Server>,
        stopwatch: Stopwatch,
    ) -> Self {
        let counters = Arc::<SessionCounters>::default();
        let challenges = tls.as_ref().and_then(|tls| tls.challenges().cloned());
        let upgrades = webtorrent.is_some();
        let http = HttpHandler::new(Arc::clone(&settings), Arc::clone(&counters), http, upgrades, challenges);
        let websockets =
            webtorrent.map(|responder| WebSocketHandler::new(settings.websocket.clone(), responder));
        Self {
            listener_settings: Arc::clone(&settings),
            settings,
            counters,
            tls,
            http,
            websockets,
            plaintext: Vec::new(),
            reply: Vec::new(),
            is_replaced: false,
            now: Now::default(),
            stopwatch,
            is_socket_input: false,
        }
    }

    /// Sets `capacity`, which decides whether a source may have one more connection when a connection changes its
    /// source or limit.
    pub fn set_source_capacity(&mut self, capacity: Box<dyn SourceCapacity>) {
        self.http.set_source_capacity(capacity);
    }

    /// Replaces the settings and the policy for all later input. Open connections stay open, and keep the source that a
    /// proxy has named. The numbers of listeners keep their meaning until [`adopt_listeners`](Self::adopt_listeners).
    pub fn reconfigure(&mut self, settings: Arc<SessionSettings>, policy: &Arc<Policy>) {
        self.http.reconfigure(Arc::clone(&settings), Arc::clone(policy));
        if let Some(websockets) = &mut self.websockets {
            websockets.reconfigure(settings.websocket.clone(), Arc::clone(policy));
        }
        self.settings = settings;
    }

    /// Gives the numbers of listeners the meaning of the last settings. To be called when the back end has replaced its
    /// listeners, because it first accepts the last connections of the old ones.
    pub fn adopt_listeners(&mut self) {
        self.listener_settings = Arc::clone(&self.settings);
    }

    /// Replaces the public statistics for all later requests.
    pub fn set_statistics(&mut self, statistics: Arc<Statistics>) {
        self.http.set_statistics(statistics);
    }

    /// Sets how far the intervals of all later replies are raised.
    pub fn set_pace(&mut self, pace: Pace) {
        self.http.set_pace(pace);
        if let Some(websockets) = &mut self.websockets {
            websockets.set_pace(pace);
        }
    }

    /// Records that another process serves in place of this one, to which WebSocket clients can connect at once.
    pub const fn set_replaced(&mut self) {
        self.is_replaced = true;
    }

    /// Returns the counters of the sessions, for an exporter.
    pub fn counters(&self) -> Arc<SessionCounters> {
        Arc::clone(&self.counters)
    }

    /// Sets the time of calls before the next poll round: for connections that come from another process, or that wait at
    /// listeners which go.
    pub fn set_time(&mut self, now: Now) {
        self.now = now;
    }

    /// Begins a poll round: sets the time of all calls until the next one, and collects the messages from other workers.
    pub fn begin_round(&mut self, now: Now) {
        self.now = now;
        if let Some(websockets) = &mut self.websockets {
            websockets.collect(now);
        }
    }

    /// Ends a poll round: dispatches the messages for connections of other workers, and returns the workers to be woken.
    pub fn end_round(&mut self) -> impl Iterator<Item = u16> {
        self.stopwatch.end(Protocol::WebTorrent);
        // The dispatch happens at once, even if the caller does not iterate over the workers.
        self.websockets.as_mut().map(WebSocketHandler::dispatch).into_iter().flatten()
    }

    /// Frees memory of scratch buffers that have become large. To be called every few seconds.
    pub fn trim(&mut self) {
        for scratch in [&mut self.plaintext, &mut self.reply] {
            scratch.shrink_to(SCRATCH_BYTES);
        }
        self.http.trim();
        if let Some(websockets) = &mut self.websockets {
            websockets.trim();
        }
    }

    pub(crate) const fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns whether a source is a trusted proxy.
    pub(crate) fn trusts(&self, source: ClientSource) -> bool {
        self.settings.proxy.trusts(source)
    }

    fn listener(&self, remote: &Remote) -> ListenerProtocols {
        self.listener_settings.listeners.get(remote.listener).copied().unwrap_or_default()
    }

    /// Reads which source the proxy names, and then the bytes after the header.
    fn receive_header(&mut self, call: &mut Call<'_>, input: &mut [u8]) -> Next {
        let mut buffered = call.session.partial.take();
        let bytes = if buffered.is_empty() {
            input
        } else {
            buffered.extend_from_slice(input);
            &mut buffered
        };
        let (header_bytes, source) = match proxy::decode(bytes) {
            Decoded::Incomplete => {
                call.session.partial.put(bytes.to_vec());
                return Next::Busy;
            }
            // The peer does not use the PROXY protocol, so there is no known protocol for an error.
            Decoded::Malformed => return Next::Close,
            Decoded::Header { bytes, source } => (bytes, source),
        };
        let session = &mut *call.session;
        session.source = source.map_or(ClientSource::Unnamed, |source| ClientSource::Ip(source.ip()));
        session.is_trusted = self.settings.proxy.trusts(session.source);
        session.stage = Stage::Http;
        if self.http.drops_banned(session.source) {
            return Next::Close;
        }
        let payload = &mut bytes[header_bytes..];
        let is_admitted = self.http.has_capacity(session.source, ConnectionKind::Http)
            && self.http.may_connect(session.source, call.now);
        match (is_admitted, session.is_tls) {
            (true, is_tls) => {
                session.quota_changed = session.source != ClientSource::Unnamed;
                if is_tls { self.receive_tls(call, payload) } else { self.receive_plaintext(call, payload) }
            }
            // An error would have to wait for TLS.
            (false, true) => Next::Close,
            (false, false) => {
                let (counters, status) = (&self.counters, Status::ServiceUnavailable);
                response::write_last(counters, status, response::BUSY, call.now, call.output);
                Next::Linger
            }
        }
    }

    /// Decrypts the input, handles it, and encrypts the output.
    fn receive_tls(&mut self, call: &mut Call<'_>, input: &mut [u8]) -> Next {
        let mut tls = match (call.session.tls.take(), &self.tls) {
            (Some(tls), _) => tls,
            (None, Some(server)) => Box::new(crate::tls::Session::new(server)),
            (None, None) => return Next::Close,
        };
        let mut plaintext = mem::take(&mut self.plaintext);
        let was_handshaking = tls.is_handshaking();
        let opened = tls.open(input, &mut plaintext, call.output);
        if was_handshaking && let Some(outcome) = handshake_outcome(&tls, &opened) {
            self.counters.handshakes.of(outcome).increment();
        }
        let next = match opened {
            Ok(()) if tls.is_handshaking() && !tls.is_closed() => Next::Busy,
            Ok(()) => {
                let mut reply = mem::take(&mut self.reply);
                let mut inner = Call { session: call.session, output: &mut reply, now: call.now };
                let mut next = self.receive_plaintext(&mut inner, &mut plaintext);
                // As without TLS, a connection is not idle before its first request, and not among the first to make
                // room.
                if was_handshaking && plaintext.is_empty() && next == Next::Idle {
                    next = Next::Busy;
                }
                tls.seal(&reply, call.output);
                reply.clear();
                self.reply = reply;
                self.finish_tls(call, &mut tls, next, !plaintext.is_empty())
            }
            Err(failure) => {
                if matches!(failure, crate::tls::Failure::PlainHttp) {
                    let (counters, status) = (&self.counters, Status::BadRequest);
                    response::write_last(counters, status, response::PLAIN_HTTP, call.now, call.output);
                }
                plaintext.clear();
                self.plaintext = plaintext;
                // Without its TLS session, nothing more is counted or written.
                return Next::Linger;
            }
        };
        plaintext.clear();
        self.plaintext = plaintext;
        call.session.tls = Some(tls);
        next
    }

    /// Adapts `next` to the state of TLS after an input, and closes TLS if the session ends.
    fn finish_tls(
        &mut self,
        call: &mut Call<'_>,
        tls: &mut crate::tls::Session,
        mut next: Next,
        has_plaintext: bool,
    ) -> Next {
        // All earlier input was answered, and no more will arrive.
        if tls.is_closed() && matches!(next, Next::Idle | Next::Upgraded | Next::Busy | Next::BusyNew) {
            next = Next::Close;
            if let Some(websockets) = &mut self.websockets {
                websockets.drain(call.session.handle, |bytes| tls.seal(bytes, call.output));
            }
        }
        match next {
            Next::Close | Next::Linger => tls.close(call.output),
            // The rest of a record must arrive as soon as the rest of a request.
            Next::Idle | Next::Upgraded if tls.is_within_record() => {
                next = if has_plaintext { Next::BusyNew } else { Next::Busy };
            }
            _ => {}
        }
        next
    }

    /// Handles frames of a WebSocket, or answers the requests in the partial input and in `input` and buffers the rest.
    fn receive_plaintext(&mut self, call: &mut Call<'_>, input: &mut [u8]) -> Next {
        if let Stage::WebSocket(_) = call.session.stage {
            return self.receive_frames(call, input);
        }
        if call.session.partial.is_empty() {
            // Most requests arrive in one piece and are read in place.
            let (used, served) = self.http.serve(call, input);
            let rest = &mut input[used..];
            return match served {
                Served::Upgrade(opened) => self.upgrade(call, opened, rest),
                Served::Wait(next) => {
                    call.session.partial.put(rest.to_vec());
                    next
                }
            };
        }
        if call.session.partial.len() + input.len() > PARTIAL_BYTES_MAX {
            return Next::Linger;
        }
        let mut partial = call.session.partial.take();
        partial.extend_from_slice(input);
        let (used, served) = self.http.serve(call, &partial);
        match served {
            Served::Upgrade(opened) => self.upgrade(call, opened, &mut partial[used..]),
            Served::Wait(next) => {
                partial.drain(..used);
                partial.shrink_to(2 * partial.len());
                call.session.partial.put(partial);
                next
            }
        }
    }

    /// Turns the connection into a WebSocket. The bytes after the request are already frames.
    fn upgrade(&mut self, call: &mut Call<'_>, opened: Opened, rest: &mut [u8]) -> Next {
        let Some(websockets) = &self.websockets else { return Next::Close };
        let (session, ip) = (&mut *call.session, opened.ip);
        session.stage = Stage::WebSocket(Box::new(websockets.enter(session.handle, opened)));
        (session.source, session.quota_changed) = (ClientSource::Ip(ip), true);
        self.receive_frames(call, rest)
    }

    fn receive_frames(&mut self, call: &mut Call<'_>, input: &mut [u8]) -> Next {
        let Call { session, output, now } = call;
        match (&mut self.websockets, &mut session.stage, session.source) {
            (Some(websockets), Stage::WebSocket(socket), ClientSource::Ip(ip)) => {
                websockets.receive(socket, &mut session.partial, ip, input, output, *now)
            }
            _ => Next::Close,
        }
    }

    fn write_close(&mut self, session: &mut Session, output: &mut Vec<u8>) {
        write_through_tls(&mut session.tls, &mut self.reply, output, |bytes| match &session.stage {
            Stage::WebSocket(_) => websocket::write_close(self.is_replaced, bytes),
            _ if !session.partial.is_empty() => {
                response::write_last(
                    &self.counters,
                    Status::RequestTimeout,
                    response::TOO_SLOW,
                    self.now,
                    bytes,
                );
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

    /// Ends a session: it reads no more input and holds no memory.
    pub(crate) fn end(&mut self, session: &mut Session) {
        match (session.finish(), &mut self.websockets) {
            (Stage::Delivery(_), _) => self.http.forget_delivery(session.handle),
            (Stage::WebSocket(socket), Some(websockets)) => websockets.leave(*socket, &mut session.partial),
            _ => {}
        }
        session.partial = PartialInput::nothing();
        if session.tls.take().is_some_and(|tls| tls.is_handshaking()) {
            self.counters.handshakes.of(Handshake::Abandoned).increment();
        }
    }
}

impl StreamService for Service {
    type Session = Session;

    fn open(&mut self, remote: &Remote, handle: Handle) -> Session {
        let listener = self.listener(remote);
        let source = ClientSource::of(remote);
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

    fn receive(&mut self, session: &mut Session, input: &mut [u8], output: &mut Vec<u8>) -> Next {
        // Without input, the connection continues with an earlier one.
        if !input.is_empty() {
            self.stopwatch.begin();
        }
        let mut call = Call { session, output, now: self.now };
        let next = match call.session.stage {
            Stage::Proxy => self.receive_header(&mut call, input),
            Stage::Http | Stage::Delivery(_) | Stage::WebSocket(_) if call.session.is_tls => {
                self.receive_tls(&mut call, input)
            }
            Stage::Http | Stage::Delivery(_) | Stage::WebSocket(_) => {
                self.receive_plaintext(&mut call, input)
            }
            Stage::Over => Next::Close,
        };
        self.is_socket_input = session.is_websocket();
        self.end_if(next, session)
    }

    fn replied(&mut self) {
        // Messages of WebSockets leave at the end of the poll round.
        if !self.is_socket_input {
            self.stopwatch.end(Protocol::Http);
        }
    }

    fn changed_quota(&mut self, session: &mut Session) -> Option<Quota> {
        if !mem::take(&mut session.quota_changed) {
            return None;
        }
        let kind = if matches!(session.stage, Stage::WebSocket(_)) {
            ConnectionKind::WebSocket
        } else {
            ConnectionKind::Http
        };
        Some(Quota { ip: self.settings.proxy.limited_ip(session.source), kind })
    }

    fn is_established(&self, session: &Session) -> bool {
        matches!(&session.stage, Stage::WebSocket(socket) if socket.has_peers())
    }

    fn next_to_write(&mut self) -> Option<Handle> {
        self.websockets.as_mut()?.next_to_write()
    }

    fn write(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        let mut is_pinged = false;
        if let (Some(websockets), Stage::WebSocket(socket)) = (&mut self.websockets, &mut session.stage) {
            let is_doubtful = websockets.is_doubtful(socket);
            websockets.fetch(socket, |bytes| match &mut session.tls {
                // All bytes are sealed together, in as few records as possible.
                Some(tls) => tls.seal(bytes, output),
                None => output.extend_from_slice(bytes),
            });
            // In the middle of a message, its time limit decides.
            if is_doubtful && socket.awaits(&session.partial) == Next::Upgraded {
                is_pinged = true;
                write_through_tls(&mut session.tls, &mut self.reply, output, |bytes| socket.ping(bytes));
            }
        }
        let next = match session.awaits() {
            Next::Upgraded if is_pinged => Next::Pinged,
            next => next,
        };
        self.end_if(next, session)
    }

    fn set_backlog(&mut self, handle: Handle, unsent_bytes: usize) {
        if let Some(websockets) = &mut self.websockets {
            websockets.set_unsent(handle, unsent_bytes);
        }
    }

    fn put_off(&mut self, handle: Handle) {
        if let Some(websockets) = &mut self.websockets {
            websockets.put_off(handle);
        }
    }

    fn held(&self, session: &Session) -> Held {
        let mut held = session.held();
        if let (Some(websockets), Stage::WebSocket(_)) = (&self.websockets, &session.stage) {
            held.variable += websockets.backlog_bytes(session.handle);
        }
        held
    }

    /// Pings the peer, or closes the connection if it was pinged before. The peer would not receive a reason.
    fn keep_alive(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        let next = match &mut session.stage {
            Stage::WebSocket(socket) if !socket.is_silent() => {
                write_through_tls(&mut session.tls, &mut self.reply, output, |bytes| socket.ping(bytes));
                session.awaits()
            }
            _ => Next::Close,
        };
        self.end_if(next, session)
    }

    fn expire(&mut self, session: &mut Session, output: &mut Vec<u8>) {
        match session.stage {
            Stage::Http | Stage::WebSocket(_) => self.write_close(session, output),
            // A truncated response must not look complete. Before the first request there is nothing to write.
            Stage::Delivery(_) | Stage::Proxy | Stage::Over => {}
        }
        self.end(session);
    }

    fn shed(&mut self, session: &mut Session, output: &mut Vec<u8>) {
        match session.stage {
            Stage::Http | Stage::WebSocket(_) => {
                let is_within_request = !session.partial.is_empty();
                let is_socket = matches!(session.stage, Stage::WebSocket(_));
                write_through_tls(&mut session.tls, &mut self.reply, output, |bytes| {
                    if is_socket {
                        websocket::write_shed(bytes);
                    } else if is_within_request {
                        response::write_last(
                            &self.counters,
                            Status::ServiceUnavailable,
                            response::OUT_OF_MEMORY,
                            self.now,
                            bytes,
                        );
                    }
                });
                if let Some(tls) = &mut session.tls {
                    tls.close(output);
                }
            }
            // The same as in `expire`.
            Stage::Delivery(_) | Stage::Proxy | Stage::Over => {}
        }
        self.end(session);
    }

    /// The client gets an error, unless TLS would have to come first, or it has earned a ban.
    fn refuse(&mut self, remote: &Remote, output: &mut Vec<u8>) {
        if !self.listener(remote).tls && !self.http.is_banned(ClientSource::of(remote)) {
            response::write_last(
                &self.counters,
                Status::ServiceUnavailable,
                response::BUSY,
                self.now,
                output,
            );
        }
    }

    fn close(&mut self, mut session: Session) {
        self.end(&mut session);
    }

    /// Connections of proxies count once they name their client.
    fn may_connect(&mut self, remote: &Remote) -> bool {
        !self.http.drops_banned(ClientSource::of(remote))
            && self.http.may_connect(ClientSource::of(remote), self.now)
    }

    fn is_limited(&self, remote: &Remote) -> bool {
        let source = ClientSource::of(remote);
        source != ClientSource::Unix && !self.settings.proxy.trusts(source)
    }

    fn detach(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Option<Detached> {
        self.take_state(session, output)
    }

    fn attach(&mut self, handle: Handle, state: &[u8]) -> Option<Session> {
        self.resume(handle, state)
    }

    fn is_encrypted(&self, session: &Session) -> bool {
        session.is_encrypted()
    }

    fn can_stay(&self, session: &Session) -> bool {
        session.is_websocket()
    }

    fn refuse_detached(&mut self, kind: ConnectionKind, output: &mut Vec<u8>) {
        if kind == ConnectionKind::WebSocket {
            websocket::write_shed(output);
        }
    }

    /// The process that has the TLS session of a WebSocket ends the input when it is about to end itself; then the client is to
    /// connect again.
    fn end_input(&mut self, session: &mut Session, output: &mut Vec<u8>) {
        if let (Stage::WebSocket(_), true, Some(websockets)) =
            (&session.stage, session.is_tunnelled, &mut self.websockets)
        {
            websockets.drain(session.handle, |bytes| output.extend_from_slice(bytes));
            websocket::write_close(true, output);
        }
    }
}

/// Returns the outcome of a handshake that was in progress before the last input, if it has one now.
fn handshake_outcome(
    tls: &crate::tls::Session,
    opened: &Result<(), crate::tls::Failure>,
) -> Option<Handshake> {
    match opened {
        Err(failure) => Some(failure.kind().into()),
        Ok(()) if tls.is_handshaking() => None,
        Ok(()) if tls.is_resumed() => Some(Handshake::Resumed),
        Ok(()) => Some(Handshake::Full),
    }
}

/// Appends the bytes of `write` to `output`, through TLS if there is any. `reply` is the scratch buffer for TLS.
fn write_through_tls(
    tls: &mut Option<Box<crate::tls::Session>>,
    reply: &mut Vec<u8>,
    output: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let Some(tls) = tls else { return write(output) };
    write(reply);
    tls.seal(reply, output);
    reply.clear();
}
