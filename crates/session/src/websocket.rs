//! WebSockets: from frames to messages, and the control frames.
//!
//! This module owns how a WebSocket continues and ends (RFC 6455): pings, closes, and the reaction to a peer that
//! breaks the rules. The engine handles the contents of messages. Its replies wait in its outbound queues, together
//! with messages from other clients, until the connection is asked to write. The module must not know where bytes come
//! from or go to.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shoal_access::rules::HeaderMatch;
use shoal_base::transport::stream::{Handle, Next, OUTPUT_BYTES_MAX};
use shoal_engine::Now;
use shoal_engine::pace::Pace;
use shoal_engine::policy::Policy;
use shoal_engine::tokens::SocketToken;
use shoal_engine::webtorrent::{Disconnection, Member, MemberState, Responder};
use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::websocket::{CloseCode, Event, Reader, Role};

use crate::partial::{PartialInput, Spares};
use crate::settings::WebSocketSettings;

/// The state of a WebSocket in addition to the session. An idle one owns no memory beyond this and the engine's list of
/// its torrents.
#[derive(Debug)]
pub(crate) struct WebSocket {
    reader: Reader,
    member: Member,
    /// Whether it was pinged and has sent nothing since.
    is_pinged: bool,
}

// There may be a hundred thousand idle ones.
const _: () = assert!(size_of::<WebSocket>() <= 96);

/// The client that has opened a WebSocket.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Its address.
    pub(crate) ip: IpAddr,
    /// Its token.
    pub(crate) token: SocketToken,
    /// The rule about the head of its request.
    pub(crate) headers: HeaderMatch,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SocketState {
    member: MemberState,
    /// The fragments of an incomplete message, and whether it is text.
    fragments: Option<(bool, Vec<u8>)>,
}

pub(crate) struct WebSocketHandler {
    settings: WebSocketSettings,
    responder: Responder,
    spares: Spares,
    /// The address of the client whose input this call reads.
    ip: IpAddr,
    /// Whether this call has read a whole message.
    has_message: bool,
}

/// The close reason for a client that leaves more replies unread than may be queued.
const REPLIES_UNREAD: &str = "too many replies are left unread";

/// The close reason for a client whose announce was refused because the tracker drains.
const DRAINING: &str = "this tracker is about to stop";

/// The next step after a frame.
enum Step {
    /// The next frame is read.
    Continue,
    /// The frame is still incomplete.
    Wait,
    /// The last frame was written.
    End(Next),
}

impl WebSocket {
    /// Returns its memory for a fragmented message.
    pub(crate) const fn buffered_bytes(&self) -> usize {
        self.reader.buffered_bytes()
    }

    /// Returns the memory of its list of torrents and of its token.
    pub(crate) fn member_bytes(&self) -> usize {
        self.member.held_bytes()
    }

    pub(crate) fn has_peers(&self) -> bool {
        self.member.has_peers()
    }

    /// Returns what the connection waits for if the buffered bytes are no whole frame.
    pub(crate) const fn awaits(&self, partial: &PartialInput) -> Next {
        if partial.is_empty() && !self.reader.is_within_message() { Next::Upgraded } else { Next::Busy }
    }

    pub(crate) const fn is_silent(&self) -> bool {
        self.is_pinged
    }

    pub(crate) fn ping(&mut self, out: &mut Vec<u8>) {
        self.is_pinged = true;
        frame::encode(Opcode::Ping, &[], None, out);
    }
}

/// Writes the close frame for a WebSocket that has timed out, or whose tracker stops or `is_replaced`: then the client
/// can connect again at once.
pub(crate) fn write_close(is_replaced: bool, out: &mut Vec<u8>) {
    let code = if is_replaced { CloseCode::ServiceRestart } else { CloseCode::GoingAway };
    frame::close(code, "", None, out);
}

/// Writes the close frame for a WebSocket that is closed for lack of memory.
pub(crate) fn write_shed(out: &mut Vec<u8>) {
    frame::close(CloseCode::TryAgainLater, "", None, out);
}

impl WebSocketHandler {
    pub(crate) fn new(settings: WebSocketSettings, responder: Responder) -> Self {
        Self {
            settings,
            responder,
            spares: Spares::default(),
            ip: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            has_message: false,
        }
    }

    /// Registers the connection `handle` as a WebSocket.
    pub(crate) fn enter(&self, handle: Handle, opened: Opened) -> WebSocket {
        let Opened { ip, token, headers } = opened;
        let member = self.responder.enter(handle, ip, token, headers);
        WebSocket { reader: Reader::new(), member, is_pinged: false }
    }

    /// Returns the state of a WebSocket for another process, and takes its fragments. Returns `None`, without a change,
    /// if it has to stay.
    pub(crate) fn detach(&self, socket: &mut WebSocket, now: Now) -> Option<SocketState> {
        let member = self.responder.state_of(&socket.member, now)?;
        Some(SocketState { member, fragments: socket.reader.take_fragments() })
    }

    /// Registers the connection `handle` of the client at `ip` as a WebSocket that another process has detached.
    /// Forgets an unanswered ping.
    pub(crate) fn attach(&mut self, handle: Handle, ip: IpAddr, state: SocketState, now: Now) -> WebSocket {
        let SocketState { member, fragments } = state;
        let (reader, member) =
            (Reader::with_fragments(fragments), self.responder.attach(handle, ip, member, now));
        WebSocket { reader, member, is_pinged: false }
    }

    pub(crate) fn reconfigure(&mut self, settings: WebSocketSettings, policy: Arc<Policy>) {
        self.settings = settings;
        self.responder.set_policy(policy);
    }

    /// Sets how far the intervals of all later replies are raised.
    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.responder.set_pace(pace);
    }

    pub(crate) fn leave(&mut self, socket: WebSocket, partial: &mut PartialInput) {
        partial.spare(&mut self.spares);
        self.responder.leave(socket.member);
    }

    /// Reads the frames of the client at `ip` in the partial input and in `input`, and buffers the rest.
    pub(crate) fn receive(
        &mut self,
        socket: &mut WebSocket,
        partial: &mut PartialInput,
        ip: IpAddr,
        mut input: &mut [u8],
        out: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        (socket.is_pinged, self.ip, self.has_message) = (false, ip, false);
        self.responder.expire(&mut socket.member);
        // Only the bytes of the begun frame are copied together; all others are read in place.
        while !partial.is_empty() && !input.is_empty() {
            let missing_bytes = whole_bytes(partial.bytes_mut()).saturating_sub(partial.len()).max(1);
            let (missing, rest) = input.split_at_mut(missing_bytes.min(input.len()));
            self.keep(partial, missing);
            let (used, end) = self.read(socket, partial.bytes_mut(), out, now);
            partial.consume(used, &mut self.spares);
            if let Some(end) = end {
                return end;
            }
            input = rest;
        }
        let (used, end) = self.read(socket, input, out, now);
        self.keep(partial, &input[used..]);
        match end.unwrap_or_else(|| socket.awaits(partial)) {
            Next::Busy if self.has_message => Next::BusyNew,
            next => next,
        }
    }

    /// Returns the next connection with queued messages.
    pub(crate) fn next_to_write(&mut self) -> Option<Handle> {
        self.responder.next_to_flush()
    }

    /// Returns whether to ping a WebSocket with its next output. It must have answered an earlier ping first.
    pub(crate) fn is_doubtful(&self, socket: &WebSocket) -> bool {
        !socket.is_pinged && self.responder.is_ping_requested(socket.member.handle())
    }

    /// Calls `fetch` with all queued bytes of a WebSocket, if there are any. They are whole frames.
    pub(crate) fn fetch(&mut self, socket: &mut WebSocket, fetch: impl FnOnce(&[u8])) {
        self.responder.expire(&mut socket.member);
        self.responder.drain(socket.member.handle(), fetch);
    }

    /// Drains the queue of the connection `handle` with `write` before its close frame: it holds the replies to
    /// messages that were complete before the end. A queue longer than the maximum output is discarded, because a peer
    /// that reads nothing could otherwise cause much memory to be held.
    pub(crate) fn drain(&mut self, handle: Handle, write: impl FnOnce(&[u8])) {
        self.responder.drain(handle, |bytes| {
            if bytes.len() <= OUTPUT_BYTES_MAX {
                write(bytes);
            }
        });
    }

    /// Records how many written bytes the socket of a connection has not yet accepted.
    pub(crate) fn set_unsent(&mut self, handle: Handle, unsent_bytes: usize) {
        self.responder.set_unsent(handle, unsent_bytes);
    }

    /// Puts off the messages for a connection that waits for its turn.
    pub(crate) fn put_off(&mut self, handle: Handle) {
        self.responder.put_off(handle);
    }

    pub(crate) fn queued_bytes(&self, handle: Handle) -> usize {
        self.responder.queued_bytes(handle)
    }

    /// Returns how many bytes are queued for a connection that does not read them.
    pub(crate) fn backlog_bytes(&self, handle: Handle) -> usize {
        self.responder.backlog_bytes(handle)
    }

    pub(crate) fn trim(&mut self) {
        self.spares.trim();
        self.responder.trim();
    }

    pub(crate) fn collect(&mut self, now: Now) {
        self.responder.collect(now);
    }

    /// Dispatches the messages for other workers. Returns the workers to wake.
    pub(crate) fn dispatch(&mut self) -> impl Iterator<Item = u16> {
        self.responder.dispatch()
    }

    /// Reads all whole frames of `bytes`. Returns how many bytes were consumed, and how the WebSocket ends if it does.
    fn read(
        &mut self,
        socket: &mut WebSocket,
        bytes: &mut [u8],
        out: &mut Vec<u8>,
        now: Now,
    ) -> (usize, Option<Next>) {
        let mut used = 0;
        loop {
            match self.step(socket, bytes, &mut used, out, now) {
                Step::Continue => {}
                Step::Wait => return (used, None),
                Step::End(next) => return (bytes.len(), Some(next)),
            }
        }
    }

    fn step(
        &mut self,
        socket: &mut WebSocket,
        bytes: &mut [u8],
        used: &mut usize,
        out: &mut Vec<u8>,
        now: Now,
    ) -> Step {
        let rest = &mut bytes[*used..];
        let read = match socket.reader.read(rest, Role::Server, self.settings.message_bytes_max) {
            Ok(read) => read,
            Err(violation) => {
                self.responder.observe_malformed(self.ip, now);
                self.drain(socket.member.handle(), |bytes| out.extend_from_slice(bytes));
                frame::close(violation.close_code(), violation.reason(), None, out);
                // The peer may be in the middle of a long message.
                return Step::End(Next::Linger);
            }
        };
        match read.event {
            None if read.used == 0 => return Step::Wait,
            // A fragment.
            None => {}
            // Any input shows that the peer is alive.
            Some(Event::Pong(_)) => {}
            Some(Event::Message(message)) => {
                self.has_message = true;
                match self.responder.receive(&mut socket.member, self.ip, message, now) {
                    Ok(()) => {}
                    Err(Disconnection::RepliesUnread) => {
                        frame::close(CloseCode::Policy, REPLIES_UNREAD, None, out);
                        return Step::End(Next::Linger);
                    }
                    Err(Disconnection::Dropped) => return Step::End(Next::Close),
                    Err(Disconnection::Draining) => {
                        self.drain(socket.member.handle(), |bytes| out.extend_from_slice(bytes));
                        frame::close(CloseCode::ServiceRestart, DRAINING, None, out);
                        return Step::End(Next::Linger);
                    }
                    Err(Disconnection::Banned) => return Step::End(Next::Close),
                }
            }
            // The pong is queued rather than written at once: a write would extend the time limit of a peer that is in
            // the middle of a message.
            Some(Event::Ping(payload)) => self
                .responder
                .append(&socket.member, |queue| frame::encode(Opcode::Pong, payload, None, queue)),
            Some(Event::Close(code)) => {
                self.drain(socket.member.handle(), |bytes| out.extend_from_slice(bytes));
                // RFC 6455, 5.5.1 and 7.1.1: the close is answered, and then the server closes first.
                frame::answer_close(code, None, out);
                return Step::End(Next::Close);
            }
        }
        *used += read.used;
        Step::Continue
    }

    /// Buffers `input`, which is the rest of a begun frame, or the beginning of one. The reader has accepted the head
    /// of the frame, so it is no longer than a message may be.
    fn keep(&mut self, partial: &mut PartialInput, input: &[u8]) {
        let whole_bytes = whole_bytes(if partial.is_empty() { input } else { partial.bytes_mut() });
        partial.append(input, whole_bytes, &mut self.spares);
    }
}

/// Returns the length of the frame that begins with these bytes, including its head, or the maximum length of a head if
/// it is incomplete.
fn whole_bytes(begun: &[u8]) -> usize {
    match frame::decode(begun, Role::Server) {
        Ok(Some(head)) => {
            usize::try_from(head.payload_bytes).unwrap_or(usize::MAX).saturating_add(head.head_bytes)
        }
        Ok(None) | Err(_) => frame::HEAD_BYTES_MAX,
    }
}
