//! WebSockets: from frames to what is heard, and what is said of them besides.
//!
//! Owns how a WebSocket goes on and ends (RFC 6455): pings, closes, and what becomes of a peer that breaks the rules.
//! What a message says is for the engine to hear, whose answers do not come back here: they wait in its postroom, with
//! whatever others have to say to the client, until the connection is asked to speak. Must not know where the bytes come
//! from or go to.

use std::net::IpAddr;

use shoal_engine::Now;
use shoal_engine::webtorrent::{Member, Responder};
use shoal_wire::stream::{Handle, Next, OUTPUT_BYTES_MAX};
use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::websocket::{CloseCode, Event, Reader, Role};

use crate::kept::{Kept, Spares};
use crate::settings::WebSocket;

/// What is kept of a WebSocket beside the session. One that idles owns no memory beyond this and what the engine keeps
/// of its torrents.
#[derive(Debug)]
pub(crate) struct Socket {
    reader: Reader,
    member: Member,
    /// Whether it was asked for a sign of life and has given none since.
    is_pinged: bool,
}

// A hundred thousand of these may idle.
const _: () = assert!(size_of::<Socket>() <= 88);

/// What speaks on all WebSockets of a worker.
pub(crate) struct Sockets {
    settings: WebSocket,
    responder: Responder,
    spares: Spares,
    /// Whether a whole message was heard in this call.
    has_heard: bool,
}

/// Why a client is disconnected that leaves more replies unread than may wait.
const REPLIES_UNREAD: &str = "too many replies are left unread";

/// What comes of a frame.
enum Step {
    /// The next one is looked at.
    GoOn,
    /// It is not whole yet.
    Wait,
    /// The last one was said.
    End(Next),
}

impl Socket {
    /// How much memory it holds of a message that comes in fragments.
    pub(crate) const fn kept_bytes(&self) -> usize {
        self.reader.kept_bytes()
    }

    /// How much memory the list of its torrents takes.
    pub(crate) const fn list_bytes(&self) -> usize {
        self.member.list_bytes()
    }

    /// What is waited for, where these bytes have come and are no whole frame.
    pub(crate) const fn awaits(&self, kept: &Kept) -> Next {
        if kept.is_empty() && !self.reader.is_within_message() { Next::Standing } else { Next::Busy }
    }

    /// The same, right after a whole message.
    const fn awaits_next(&self, kept: &Kept) -> Next {
        match self.awaits(kept) {
            Next::Busy => Next::BusyAnew,
            next => next,
        }
    }

    /// Whether it was asked for a sign of life and has given none.
    pub(crate) const fn is_silent(&self) -> bool {
        self.is_pinged
    }

    /// Asks for a sign of life.
    pub(crate) fn ping(&mut self, out: &mut Vec<u8>) {
        self.is_pinged = true;
        frame::encode(Opcode::Ping, &[], None, out);
    }
}

/// Says that the time of a WebSocket is up, or the tracker stops.
pub(crate) fn say_goodbye(out: &mut Vec<u8>) {
    frame::close(CloseCode::GoingAway, "", None, out);
}

/// Says that there is not enough memory for the WebSocket.
pub(crate) fn say_shed(out: &mut Vec<u8>) {
    frame::close(CloseCode::TryAgainLater, "", None, out);
}

impl Sockets {
    pub(crate) fn new(settings: WebSocket, responder: Responder) -> Self {
        Self { settings, responder, spares: Spares::default(), has_heard: false }
    }

    /// The connection `handle` of the client at `ip` has become a WebSocket.
    pub(crate) fn enter(&self, handle: Handle, ip: IpAddr) -> Socket {
        Socket { reader: Reader::new(), member: self.responder.enter(handle, ip), is_pinged: false }
    }

    /// The WebSocket is over.
    pub(crate) fn leave(&mut self, socket: Socket, kept: &mut Kept) {
        kept.spare(&mut self.spares);
        self.responder.leave(socket.member);
    }

    /// Hears the frames in what is kept and in `input`, and keeps what is left.
    pub(crate) fn hear(
        &mut self,
        socket: &mut Socket,
        kept: &mut Kept,
        input: &mut [u8],
        out: &mut Vec<u8>,
        now: Now,
    ) -> Next {
        (socket.is_pinged, self.has_heard) = (false, false);
        let end = self.hear_all(socket, kept, input, out, now);
        end.unwrap_or_else(|| if self.has_heard { socket.awaits_next(kept) } else { socket.awaits(kept) })
    }

    fn hear_all(
        &mut self,
        socket: &mut Socket,
        kept: &mut Kept,
        mut input: &mut [u8],
        out: &mut Vec<u8>,
        now: Now,
    ) -> Option<Next> {
        // Only what belongs to the frame that has begun is put together; all else is read where it lies.
        while !kept.is_empty() && !input.is_empty() {
            let missing_bytes = whole_bytes(kept.bytes_mut()).saturating_sub(kept.len()).max(1);
            let (missing, rest) = input.split_at_mut(missing_bytes.min(input.len()));
            self.keep(kept, missing);
            let (used, end) = self.read(socket, kept.bytes_mut(), out, now);
            kept.consume(used, &mut self.spares);
            if end.is_some() {
                return end;
            }
            input = rest;
        }
        let (used, end) = self.read(socket, input, out, now);
        self.keep(kept, &input[used..]);
        end
    }

    /// The next connection that is to speak.
    pub(crate) fn speaker(&mut self) -> Option<Handle> {
        self.responder.speaker()
    }

    /// Lets `fetch` see all that waits for a WebSocket, if anything does: whole frames.
    pub(crate) fn fetch(&mut self, socket: &mut Socket, fetch: impl FnOnce(&[u8])) {
        self.responder.decide_claims(&mut socket.member);
        self.responder.fetch(socket.member.handle(), fetch);
    }

    /// Before the last words to the connection `handle`: has `say` say what waits for it, which answers what came whole
    /// before the end. More than an answer may be is lost, or a peer that reads nothing could have much held for it.
    pub(crate) fn say_the_rest(&mut self, handle: Handle, say: impl FnOnce(&[u8])) {
        self.responder.fetch(handle, |words| {
            if words.len() <= OUTPUT_BYTES_MAX {
                say(words);
            }
        });
    }

    /// The socket of a connection has not taken so many bytes of what it was told.
    pub(crate) fn set_unsent(&mut self, handle: Handle, unsent_bytes: usize) {
        self.responder.set_unsent(handle, unsent_bytes);
    }

    /// How many bytes wait for a connection that does not take what it is told.
    pub(crate) fn backlog_bytes(&self, handle: Handle) -> usize {
        self.responder.backlog_bytes(handle)
    }

    /// Gives back memory that is kept for later.
    pub(crate) fn trim(&mut self) {
        self.spares.trim();
        self.responder.trim();
    }

    /// Takes in what other workers have left.
    pub(crate) fn collect(&mut self, now: Now) {
        self.responder.collect(now);
    }

    /// Hands over what is for other workers. Tells which of them to wake.
    pub(crate) fn dispatch(&mut self) -> impl Iterator<Item = u16> {
        self.responder.dispatch()
    }

    /// Hears all whole frames of `bytes`. Returns how many bytes are done with, and how the WebSocket ends if it does.
    fn read(
        &mut self,
        socket: &mut Socket,
        bytes: &mut [u8],
        out: &mut Vec<u8>,
        now: Now,
    ) -> (usize, Option<Next>) {
        let mut used = 0;
        loop {
            match self.step(socket, bytes, &mut used, out, now) {
                Step::GoOn => {}
                Step::Wait => return (used, None),
                Step::End(next) => return (bytes.len(), Some(next)),
            }
        }
    }

    fn step(
        &mut self,
        socket: &mut Socket,
        bytes: &mut [u8],
        used: &mut usize,
        out: &mut Vec<u8>,
        now: Now,
    ) -> Step {
        let rest = &mut bytes[*used..];
        let read = match socket.reader.read(rest, Role::Server, self.settings.message_bytes_max) {
            Ok(read) => read,
            Err(violation) => {
                self.say_the_rest(socket.member.handle(), |words| out.extend_from_slice(words));
                frame::close(violation.close_code(), violation.reason(), None, out);
                // Whoever it is may be in the middle of something long.
                return Step::End(Next::Linger);
            }
        };
        match read.event {
            None if read.used == 0 => return Step::Wait,
            // A fragment.
            None => {}
            // All that comes is a sign of life, and this one may be for another one who asks for it.
            Some(Event::Pong(payload)) => self.responder.take_pong(&socket.member, payload),
            Some(Event::Message(message)) => {
                self.has_heard = true;
                if !self.responder.hear(&mut socket.member, message, now) {
                    frame::close(CloseCode::Policy, REPLIES_UNREAD, None, out);
                    return Step::End(Next::Linger);
                }
            }
            // Not said at once, which would give time anew to whoever is in the middle of a message: that is held for it.
            Some(Event::Ping(payload)) => {
                self.responder.append(&socket.member, |post| frame::encode(Opcode::Pong, payload, None, post))
            }
            Some(Event::Close(code)) => {
                self.say_the_rest(socket.member.handle(), |words| out.extend_from_slice(words));
                // RFC 6455, 5.5.1 and 7.1.1: it is answered, and then it is for the server to close first.
                frame::answer_close(code, None, out);
                return Step::End(Next::Close);
            }
        }
        *used += read.used;
        Step::GoOn
    }

    /// Keeps `input`, which is the rest of a frame that was begun, or the beginning of one. The reader has found nothing
    /// wrong with its head, so it is no longer than a message may be.
    fn keep(&mut self, kept: &mut Kept, input: &[u8]) {
        let whole_bytes = whole_bytes(if kept.is_empty() { input } else { kept.bytes_mut() });
        kept.append(input, whole_bytes, &mut self.spares);
    }
}

/// How long the frame will be that has begun like this, head and all, or else its head at most.
fn whole_bytes(begun: &[u8]) -> usize {
    match frame::decode(begun, Role::Server) {
        Ok(Some(head)) => {
            usize::try_from(head.payload_bytes).unwrap_or(usize::MAX).saturating_add(head.head_bytes)
        }
        Ok(None) | Err(_) => frame::HEAD_BYTES_MAX,
    }
}
