//! A WebSocket to a tracker: the handshake, messages out, messages in, and an end.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::frame::{self, BINARY, CLOSE, CONTINUATION, FIN, Frame, PING, PONG, TEXT};
use super::handshake::{accept, new_key, request};
use super::message::{Counts, Fields, Kind, Message, shown};
use crate::case::{Checked, Unmet, ensure};
use crate::connection::{self, Connection};
use crate::context::Context;
use crate::http::response::{Progress, Response};
use crate::trace::Direction;

/// Most times that one wait looks at a socket. A tracker that sends a byte at a time does not hold up the suite.
const LOOKS_MAX: u32 = 20_000;

/// Most refusals of one message.
const REFUSALS_MAX: usize = 5;

/// How long one look lasts where several sockets are watched in turn.
pub(super) const GLANCE: Duration = Duration::from_millis(5);

/// What comes over a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Message(Message),
    Pong(Vec<u8>),
    /// With its code, if it has one.
    Close(Option<u16>),
    /// The end of the connection.
    End,
    /// Nothing for that long.
    Silence,
}

/// A socket. On drop it says goodbye, and with it go its peers.
pub(super) struct Socket<'c> {
    context: &'c Context<'c>,
    connection: Connection,
    unread: Vec<u8>,
    /// A message of which not every fragment has come.
    partial: Option<(u8, Vec<u8>)>,
    inbox: VecDeque<Message>,
    is_open: bool,
    has_ended: bool,
}

impl<'c> Socket<'c> {
    /// A socket from the usual local address.
    pub(super) fn open(context: &'c Context<'c>) -> Checked<Self> {
        Self::open_from(context, context.target.sources.first().copied(), context.target.address)
    }

    /// That many of them.
    pub(super) fn open_many(context: &'c Context<'c>, count: usize) -> Checked<Vec<Self>> {
        (0..count).map(|_| Self::open(context)).collect()
    }

    /// A socket from the local address number `index`; there may be no such address.
    pub(super) fn open_at_source(context: &'c Context<'c>, index: usize) -> Checked<Self> {
        Self::open_from(context, Some(context.source(index)?), context.target.address)
    }

    /// A socket to the same tracker over the other family.
    pub(super) fn open_of_other_family(context: &'c Context<'c>) -> Checked<Self> {
        let missing = || Unmet::NotSupported("the tracker is known by one family only".to_owned());
        Self::open_from(context, None, context.target.other_family.ok_or_else(missing)?)
    }

    fn open_from(context: &'c Context<'c>, source: Option<IpAddr>, tracker: SocketAddr) -> Checked<Self> {
        let mut socket = Self::connect_from(context, source, tracker)?;
        let key = new_key(context);
        socket.send(&request(context.target, &context.target.path, &key, &[]));
        socket.confirm(&key)?;
        Ok(socket)
    }

    /// A connection over which nobody has asked for anything yet.
    pub(super) fn connect(context: &'c Context<'c>) -> Checked<Self> {
        Self::connect_from(context, context.target.sources.first().copied(), context.target.address)
    }

    fn connect_from(context: &'c Context<'c>, source: Option<IpAddr>, tracker: SocketAddr) -> Checked<Self> {
        let connection = Connection::open(context, tracker, source);
        let connection = connection.map_err(|error| no_connection(&error, tracker))?;
        Ok(Self {
            context,
            connection,
            unread: Vec::new(),
            partial: None,
            inbox: VecDeque::new(),
            is_open: false,
            has_ended: false,
        })
    }

    /// Sends bytes. A tracker that has closed the connection is noticed when something is awaited from it.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let words = if self.is_open { "frame".to_owned() } else { crate::http::first_line(bytes) };
        self.context.trace.borrow_mut().add(Direction::Sent, words, bytes);
        self.send_untold(bytes);
    }

    /// The same for what would fill the trace.
    pub(super) fn send_untold(&mut self, bytes: &[u8]) {
        let _ = self.connection.send(bytes);
    }

    /// Sends bytes, and says whether the tracker still takes them.
    pub(super) fn tries_to_send(&mut self, bytes: &[u8]) -> bool {
        self.connection.send(bytes).is_ok()
    }

    /// A frame of this client.
    pub(super) fn frame(&self, first: u8, payload: &[u8]) -> Vec<u8> {
        frame_of(self.context, first, payload)
    }

    /// Sends a message as one frame of text.
    pub(super) fn say(&mut self, message: &str) {
        let frame = self.frame(FIN | TEXT, message.as_bytes());
        self.context.trace.borrow_mut().add(Direction::Sent, shown(message.as_bytes()), &frame);
        self.send_untold(&frame);
    }

    /// Waits for the response to a handshake; none is a close, or silence.
    pub(super) fn response(&mut self) -> Checked<Option<Response>> {
        for _ in 0..LOOKS_MAX {
            let switches =
                self.unread.starts_with(b"HTTP/1.1 101") || self.unread.starts_with(b"HTTP/1.0 101");
            let progress = Response::read(&self.unread, switches, self.has_ended);
            match progress {
                Ok(Progress::Whole(response)) => {
                    self.unread.drain(..response.raw.len());
                    self.context.trace.borrow_mut().add(Direction::Seen, response.words(), &response.raw);
                    self.is_open = response.status == 101;
                    return Ok(Some(*response));
                }
                Ok(Progress::Partial) => {}
                Err(_) if self.unread.is_empty() => return Ok(None),
                Err(wrong) => {
                    let seen = format!("{wrong}, in {}", self.unread.escape_ascii());
                    return Err(Unmet::Fail { expected: "a response of HTTP/1".to_owned(), seen });
                }
            }
            if !self.wait(self.patience())? {
                break;
            }
        }
        if !self.has_ended {
            self.context.silences.set(self.context.silences.get() + 1);
        }
        Ok(None)
    }

    /// Waits for the response to a handshake with this key, which has to accept it.
    pub(super) fn confirm(&mut self, key: &str) -> Checked<Response> {
        let expected = "101 with the Sec-WebSocket-Accept of the key";
        let Some(response) = self.response()? else {
            let seen = if self.has_ended { "a close without a response" } else { "no response" };
            return Err(Unmet::Fail { expected: expected.to_owned(), seen: seen.to_owned() });
        };
        let is_accepted = response.status == 101
            && response.header("sec-websocket-accept") == Some(&accept(key))
            && response.has_token("upgrade", "websocket")
            && response.has_token("connection", "upgrade");
        let headers = format!("{}, {:?}", response.words(), response.headers);
        ensure(is_accepted, expected, headers)?;
        Ok(response)
    }

    /// What comes next, after what is in the inbox. Pings are answered.
    pub(super) fn hear(&mut self) -> Checked<Heard> {
        if let Some(message) = self.inbox.pop_front() {
            return Ok(Heard::Message(message));
        }
        self.hear_for(self.patience())
    }

    fn hear_for(&mut self, patience: Duration) -> Checked<Heard> {
        for _ in 0..LOOKS_MAX {
            if let Some(frame) = frame::read(&self.unread).map_err(|wrong| self.no_frame(wrong))? {
                self.unread.drain(..frame.bytes);
                if let Some(heard) = self.take(frame)? {
                    return Ok(heard);
                }
            } else if self.has_ended {
                return Ok(Heard::End);
            } else if !self.wait(patience)? {
                return Ok(Heard::Silence);
            }
        }
        Err(self.no_frame("too many pieces".to_owned()))
    }

    fn take(&mut self, frame: Frame) -> Checked<Option<Heard>> {
        let Frame { is_last, opcode, payload, .. } = frame;
        match opcode {
            PING => {
                let pong = self.frame(FIN | PONG, &payload);
                self.send_untold(&pong);
                return Ok(None);
            }
            PONG => return Ok(Some(Heard::Pong(payload))),
            CLOSE => {
                self.is_open = false;
                let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                let words = format!("close frame {}", payload.escape_ascii());
                self.context.trace.borrow_mut().add(Direction::Seen, words, &payload);
                return Ok(Some(Heard::Close(code)));
            }
            _ => {}
        }
        let (opcode, whole) = match (self.partial.take(), opcode) {
            (None, TEXT | BINARY) => (opcode, payload),
            (Some((opcode, before)), CONTINUATION) => (opcode, [before, payload].concat()),
            _ => return Err(self.no_frame("a fragment out of place".to_owned())),
        };
        if !is_last {
            self.partial = Some((opcode, whole));
            return Ok(None);
        }
        self.context.trace.borrow_mut().add(Direction::Seen, shown(&whole), &whole);
        let wrong = |wrong| Unmet::Fail { expected: "a message with a JSON object".to_owned(), seen: wrong };
        Message::read(whole, opcode).map(|message| Some(Heard::Message(message))).map_err(wrong)
    }

    fn no_frame(&self, wrong: String) -> Unmet {
        self.context.trace.borrow_mut().add(Direction::Seen, "bytes".to_owned(), &self.unread);
        Unmet::Fail { expected: "frames of RFC 6455".to_owned(), seen: wrong }
    }

    /// TCP loses nothing, so the tries of UDP are one long wait here.
    fn patience(&self) -> Duration {
        self.context.target.timing.reply * self.context.tries
    }

    /// Whether there was anything to hear: bytes, or the end.
    fn wait(&mut self, patience: Duration) -> Checked<bool> {
        if self.has_ended {
            return Ok(false);
        }
        match self.connection.hear(self.context.deadline.bound(patience)?) {
            Ok(connection::Heard::Bytes(bytes)) => self.unread.extend(bytes),
            Ok(connection::Heard::End) => self.has_ended = true,
            Ok(connection::Heard::Silence) => return Ok(false),
            Err(error) => {
                return Err(Unmet::Fail {
                    expected: "a connection that carries messages".to_owned(),
                    seen: format!("the connection fails: {error}"),
                });
            }
        }
        Ok(true)
    }

    /// Whether the tracker has sent anything by now, or closed the connection.
    pub(super) fn has_anything(&mut self) -> bool {
        self.wait(Duration::ZERO).unwrap_or(true)
    }

    /// Waits for a message. Others are put into the inbox, but for one that tells of a failure: that is the answer.
    pub(super) fn expect(&mut self, what: &str, is_it: impl Fn(&Message) -> bool) -> Checked<Message> {
        if let Some(at) = self.inbox.iter().position(&is_it) {
            return Ok(self.inbox.remove(at).expect("it was found there"));
        }
        for _ in 0..LOOKS_MAX {
            let seen = match self.hear_for(self.patience())? {
                Heard::Message(message) if is_it(&message) => return Ok(message),
                Heard::Message(message) if message.kind() == Kind::Failure => message.words(),
                Heard::Message(message) => {
                    self.inbox.push_back(message);
                    continue;
                }
                Heard::Pong(_) => continue,
                Heard::Close(code) => format!("a close frame with code {code:?}"),
                Heard::End => "the connection is closed".to_owned(),
                Heard::Silence => {
                    self.context.silences.set(self.context.silences.get() + 1);
                    let others: Vec<String> = self.inbox.iter().map(Message::words).collect();
                    format!("nothing of the kind for a while; messages: [{}]", others.join(", "))
                }
            };
            return Err(Unmet::Fail { expected: what.to_owned(), seen });
        }
        Err(self.no_frame("too many messages".to_owned()))
    }

    /// Waits for the next message of this kind.
    pub(super) fn expect_kind(&mut self, kind: Kind) -> Checked<Message> {
        let what = match kind {
            Kind::Reply => "an announce reply",
            Kind::Offer => "an offer that is relayed",
            Kind::Answer => "an answer that is relayed",
            Kind::Scrape => "a scrape reply",
            Kind::Failure => "a failure reason",
            Kind::Other => "another message",
        };
        self.expect(what, |message| message.kind() == kind)
    }

    /// Announces, and returns the reply.
    pub(super) fn announce(&mut self, fields: &Fields) -> Checked<Message> {
        self.say(&fields.text());
        self.expect_kind(Kind::Reply)
    }

    /// Announces, and ends the case unless the reply has these counts.
    pub(super) fn announce_counting(&mut self, fields: &Fields, complete: i64, incomplete: i64) -> Checked {
        let reply = self.announce(fields)?;
        ensure(
            reply.counts() == Some(Counts { complete, incomplete }),
            format!("complete {complete}, incomplete {incomplete}"),
            reply.words(),
        )
    }

    /// The counts of a torrent, by a scrape. Those of one that the tracker does not know are zeros.
    pub(super) fn counts(&mut self, hash: [u8; 20]) -> Checked<Counts> {
        let file = self.scrape_one(hash)?;
        let number = |key: &str| file.get(key).and_then(serde_json::Value::as_i64).unwrap_or_default();
        Ok(Counts { complete: number("complete"), incomplete: number("incomplete") })
    }

    /// The entry of a torrent in a scrape; null where there is none.
    pub(super) fn scrape_one(&mut self, hash: [u8; 20]) -> Checked<serde_json::Value> {
        self.say(&Fields::scrape(&super::message::binary(&hash)).text());
        Ok(self.expect_kind(Kind::Scrape)?.file(&hash).cloned().unwrap_or_default())
    }

    /// Asks for something and waits until it is told, whatever else is said before: what this socket has sent is done.
    pub(super) fn settle(&mut self, hash: [u8; 20]) -> Checked {
        self.say(&Fields::scrape(&super::message::binary(&hash)).text());
        let is_end = |message: &Message| matches!(message.kind(), Kind::Scrape | Kind::Failure);
        // A refusal of what went before may come first.
        for _ in 0..REFUSALS_MAX {
            if self.expect("a scrape reply", is_end)?.kind() == Kind::Scrape {
                return Ok(());
            }
        }
        ensure(false, "a scrape reply", "one refusal after the other")
    }

    /// Asks for something and waits until it is told. Returns how many offers came before.
    pub(super) fn offers_until_settled(&mut self, hash: [u8; 20]) -> Checked<usize> {
        self.settle(hash)?;
        Ok(take_offers(&mut self.inbox).len())
    }

    /// Ends the case unless a scrape tells these counts.
    pub(super) fn ensure_counts(&mut self, hash: [u8; 20], complete: i64, incomplete: i64) -> Checked {
        let seen = self.counts(hash)?;
        let expected = format!("complete {complete}, incomplete {incomplete} in a scrape");
        ensure(seen == Counts { complete, incomplete }, expected, format!("{seen:?}"))
    }

    /// The same, with patience: what follows from the end of another socket takes a moment.
    pub(super) fn await_counts(&mut self, hash: [u8; 20], complete: i64, incomplete: i64) -> Checked {
        let expected = Counts { complete, incomplete };
        for _ in 0..self.glances() {
            if self.counts(hash)? == expected {
                return Ok(());
            }
            self.rest(GLANCE)?;
        }
        self.ensure_counts(hash, complete, incomplete)
    }

    /// How many glances make the patience of the suite.
    fn glances(&self) -> u128 {
        (self.patience().as_millis() / GLANCE.as_millis()).max(1)
    }

    /// Puts into the inbox what comes within that time.
    pub(super) fn rest(&mut self, patience: Duration) -> Checked {
        for _ in 0..LOOKS_MAX {
            match self.hear_for(patience)? {
                Heard::Message(message) => self.inbox.push_back(message),
                Heard::Pong(_) => {}
                Heard::Close(_) | Heard::End | Heard::Silence => break,
            }
        }
        Ok(())
    }

    /// Everything that has come, and what comes within the time that something that should not come is waited for.
    pub(super) fn overhear(&mut self) -> Checked<Vec<Message>> {
        // Whatever the tracker had to say before this reply is on its way by then.
        self.rest(self.context.target.timing.quiet)?;
        Ok(self.inbox.drain(..).collect())
    }

    /// Whether the connection ends, and the code of the close frame before that. What else comes is not looked at.
    pub(super) fn end(&mut self) -> Checked<(bool, Option<u16>)> {
        let mut code = None;
        for _ in 0..LOOKS_MAX {
            match self.hear_for(self.patience())? {
                Heard::Close(found) => {
                    code = found.or(Some(1005));
                    // The other side of the closing handshake (RFC 6455, 5.5.1); the server closes the connection.
                    let goodbye = self.frame(FIN | CLOSE, &found.unwrap_or(1000).to_be_bytes());
                    self.send_untold(&goodbye);
                }
                Heard::Message(_) | Heard::Pong(_) => {}
                Heard::End => return Ok((true, code)),
                Heard::Silence => break,
            }
        }
        Ok((false, code))
    }

    /// Ends the connection without a word of WebSocket.
    pub(super) fn vanish(mut self) {
        self.is_open = false;
    }
}

impl Drop for Socket<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let goodbye = self.frame(FIN | CLOSE, &1000_u16.to_be_bytes());
            let _ = self.connection.send(&goodbye);
        }
    }
}

/// A frame of a client.
pub(super) fn frame_of(context: &Context<'_>, first: u8, payload: &[u8]) -> Vec<u8> {
    frame::masked(context.random().to_be_bytes(), first, payload)
}

/// Waits until these sockets have that many offers together, and then a little for more of them. Returns those of each.
pub(super) fn offers(sockets: &mut [Socket<'_>], expected: usize) -> Checked<Vec<Vec<Message>>> {
    let glances = sockets.first().map_or(1, Socket::glances);
    let mut found: Vec<Vec<Message>> = sockets.iter().map(|_| Vec::new()).collect();
    for _ in 0..glances {
        if found.iter().map(Vec::len).sum::<usize>() >= expected {
            break;
        }
        gather(sockets, &mut found, GLANCE)?;
    }
    let quiet = sockets.first().map_or(GLANCE, |socket| socket.context.target.timing.quiet);
    gather(sockets, &mut found, quiet)?;
    gather(sockets, &mut found, Duration::ZERO)?;
    Ok(found)
}

fn gather(sockets: &mut [Socket<'_>], found: &mut [Vec<Message>], patience: Duration) -> Checked {
    // One wait is enough for all: while the first one is heard, the others' bytes arrive.
    for (at, (socket, found)) in sockets.iter_mut().zip(found).enumerate() {
        socket.rest(if at == 0 { patience } else { Duration::ZERO })?;
        found.extend(take_offers(&mut socket.inbox));
    }
    Ok(())
}

fn take_offers(inbox: &mut VecDeque<Message>) -> Vec<Message> {
    let is_offer = |message: &Message| message.kind() == Kind::Offer;
    let (offers, others): (Vec<Message>, Vec<Message>) = inbox.drain(..).partition(is_offer);
    inbox.extend(others);
    offers
}

fn no_connection(error: &io::Error, tracker: SocketAddr) -> Unmet {
    if error.kind() == io::ErrorKind::AddrNotAvailable {
        return Unmet::NotSupported(format!("cannot ask {tracker} from here: {error}"));
    }
    Unmet::Fail {
        expected: "a tracker that takes connections".to_owned(),
        seen: format!("no connection to {tracker}: {error}"),
    }
}
