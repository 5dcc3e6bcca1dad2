//! A WebSocket client of a tracker: the handshake, messages in both directions, and the close.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::frame::{self, BINARY, CLOSE, CONTINUATION, FIN, Frame, PING, PONG, TEXT};
use super::handshake::{accept, new_key, request};
use super::message::{Counts, Fields, Kind, Message, shown};
use crate::case::{Checked, Unmet, ensure};
use crate::connection::{Connection, connect_error};
use crate::context::Context;
use crate::http::response::{Progress, Response};
use crate::trace::Direction;

/// The number of reads in one wait, so that a tracker that sends one byte at a time does not block the suite.
const READS_MAX: u32 = 20_000;

/// The maximum number of refusals before a scrape reply.
const REFUSALS_MAX: usize = 5;

/// The time for which each socket is read when several are polled in turn.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SocketEvent {
    Message(Message),
    Pong(Vec<u8>),
    /// A close frame, with its code if present.
    Close(Option<u16>),
    End,
    Timeout,
}

/// A WebSocket. It sends a close frame on drop, which removes its peers.
pub(super) struct Socket<'c> {
    context: &'c Context<'c>,
    connection: Connection,
    /// The opcode and the fragments of an incomplete message.
    partial: Option<(u8, Vec<u8>)>,
    /// Messages that were received but not yet returned.
    pending: VecDeque<Message>,
    is_open: bool,
}

impl<'c> Socket<'c> {
    pub(super) fn open(context: &'c Context<'c>) -> Checked<Self> {
        Self::open_between(context, context.target.sources.first().copied(), context.target.address)
    }

    pub(super) fn open_many(context: &'c Context<'c>, count: usize) -> Checked<Vec<Self>> {
        (0..count).map(|_| Self::open(context)).collect()
    }

    /// Opens a socket from this local address, which may not exist.
    pub(super) fn open_at(context: &'c Context<'c>, source: IpAddr) -> Checked<Self> {
        Self::open_between(context, Some(source), context.target.address)
    }

    pub(super) fn open_between(
        context: &'c Context<'c>,
        source: Option<IpAddr>,
        tracker: SocketAddr,
    ) -> Checked<Self> {
        let mut socket = Self::connect_from(context, source, tracker)?;
        let key = new_key(context);
        socket.send(&request(context.target, &context.target.path, &key, &[]));
        socket.confirm(&key)?;
        Ok(socket)
    }

    pub(super) fn connect(context: &'c Context<'c>) -> Checked<Self> {
        Self::connect_from(context, context.target.sources.first().copied(), context.target.address)
    }

    fn connect_from(context: &'c Context<'c>, source: Option<IpAddr>, tracker: SocketAddr) -> Checked<Self> {
        let connection = Connection::open(context, tracker, source);
        let connection = connection.map_err(|error| connect_error(&error, tracker))?;
        Ok(Self { context, connection, partial: None, pending: VecDeque::new(), is_open: false })
    }

    /// Sends bytes. If the tracker has closed the connection, the next read reports it.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let text = if self.is_open { "frame".to_owned() } else { crate::http::describe_request(bytes) };
        self.context.trace.borrow_mut().add(Direction::Sent, text, bytes);
        self.send_untraced(bytes);
    }

    /// Sends bytes without recording them, since they would fill the trace.
    pub(super) fn send_untraced(&mut self, bytes: &[u8]) {
        let _ = self.connection.send(bytes);
    }

    /// Sends bytes and returns whether the connection still accepts them.
    pub(super) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.connection.send(bytes).is_ok()
    }

    pub(super) fn frame(&self, first: u8, payload: &[u8]) -> Vec<u8> {
        frame_of(self.context, first, payload)
    }

    pub(super) fn send_text(&mut self, message: &str) {
        let frame = self.frame(FIN | TEXT, message.as_bytes());
        self.context.trace.borrow_mut().add(Direction::Sent, shown(message.as_bytes()), &frame);
        self.send_untraced(&frame);
    }

    /// Waits for the response to a handshake, or returns `None` after a close or a timeout.
    pub(super) fn response(&mut self) -> Checked<Option<Response>> {
        for _ in 0..READS_MAX {
            let switches = self.connection.unread.starts_with(b"HTTP/1.1 101")
                || self.connection.unread.starts_with(b"HTTP/1.0 101");
            let progress = Response::read(&self.connection.unread, switches, self.connection.has_ended);
            match progress {
                Ok(Progress::Whole(response)) => {
                    self.connection.unread.drain(..response.raw.len());
                    self.context.trace.borrow_mut().add(Direction::Seen, response.describe(), &response.raw);
                    self.is_open = response.status == 101;
                    return Ok(Some(*response));
                }
                Ok(Progress::Partial) => {}
                Err(_) if self.connection.unread.is_empty() => return Ok(None),
                Err(wrong) => {
                    let seen = format!("{wrong}, in {}", self.connection.unread.escape_ascii());
                    return Err(Unmet::Fail { expected: "a response of HTTP/1".to_owned(), seen });
                }
            }
            if !self.wait(self.timeout())? {
                break;
            }
        }
        if !self.connection.has_ended {
            self.context.unanswered.set(self.context.unanswered.get() + 1);
        }
        Ok(None)
    }

    pub(super) fn confirm(&mut self, key: &str) -> Checked<Response> {
        let expected = "101 with the Sec-WebSocket-Accept of the key";
        let Some(response) = self.response()? else {
            let seen = if self.connection.has_ended { "a close without a response" } else { "no response" };
            return Err(Unmet::Fail { expected: expected.to_owned(), seen: seen.to_owned() });
        };
        let is_accepted = response.status == 101
            && response.header("sec-websocket-accept") == Some(&accept(key))
            && response.has_token("upgrade", "websocket")
            && response.has_token("connection", "upgrade");
        let headers = format!("{}, {:?}", response.describe(), response.headers);
        ensure(is_accepted, expected, headers)?;
        Ok(response)
    }

    /// Returns the next pending message or event. Answers pings.
    pub(super) fn next_event(&mut self) -> Checked<SocketEvent> {
        if let Some(message) = self.pending.pop_front() {
            return Ok(SocketEvent::Message(message));
        }
        self.read_event(self.timeout())
    }

    fn read_event(&mut self, timeout: Duration) -> Checked<SocketEvent> {
        for _ in 0..READS_MAX {
            if let Some(frame) =
                frame::read(&self.connection.unread).map_err(|wrong| self.frame_error(wrong))?
            {
                self.connection.unread.drain(..frame.bytes);
                if let Some(event) = self.handle_frame(frame)? {
                    return Ok(event);
                }
            } else if self.connection.has_ended {
                return Ok(SocketEvent::End);
            } else if !self.wait(timeout)? {
                return Ok(SocketEvent::Timeout);
            }
        }
        Err(self.frame_error("too many small pieces".to_owned()))
    }

    fn handle_frame(&mut self, frame: Frame) -> Checked<Option<SocketEvent>> {
        let Frame { is_last, opcode, payload, .. } = frame;
        match opcode {
            PING => {
                let pong = self.frame(FIN | PONG, &payload);
                self.send_untraced(&pong);
                return Ok(None);
            }
            PONG => return Ok(Some(SocketEvent::Pong(payload))),
            CLOSE => {
                self.is_open = false;
                let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                let text = format!("close frame {}", payload.escape_ascii());
                self.context.trace.borrow_mut().add(Direction::Seen, text, &payload);
                return Ok(Some(SocketEvent::Close(code)));
            }
            _ => {}
        }
        let (opcode, whole) = match (self.partial.take(), opcode) {
            (None, TEXT | BINARY) => (opcode, payload),
            (Some((opcode, before)), CONTINUATION) => (opcode, [before, payload].concat()),
            _ => return Err(self.frame_error("a fragment out of order".to_owned())),
        };
        if !is_last {
            self.partial = Some((opcode, whole));
            return Ok(None);
        }
        self.context.trace.borrow_mut().add(Direction::Seen, shown(&whole), &whole);
        let wrong = |wrong| Unmet::Fail { expected: "a message with a JSON object".to_owned(), seen: wrong };
        Message::read(whole, opcode).map(|message| Some(SocketEvent::Message(message))).map_err(wrong)
    }

    fn frame_error(&self, wrong: String) -> Unmet {
        self.context.trace.borrow_mut().add(Direction::Seen, "bytes".to_owned(), &self.connection.unread);
        Unmet::Fail { expected: "frames of RFC 6455".to_owned(), seen: wrong }
    }

    /// Returns the longest wait. TCP loses nothing, so one long wait replaces the retries of UDP.
    fn timeout(&self) -> Duration {
        self.context.target.timing.reply * self.context.tries
    }

    fn wait(&mut self, timeout: Duration) -> Checked<bool> {
        self.connection.wait(timeout, "messages")
    }

    /// Returns whether the tracker has sent anything or closed the connection.
    pub(super) fn has_input(&mut self) -> bool {
        self.wait(Duration::ZERO).unwrap_or(true)
    }

    /// Waits for a message. Other messages become pending, except a failure reason, which fails the case.
    pub(super) fn expect(&mut self, what: &str, is_it: impl Fn(&Message) -> bool) -> Checked<Message> {
        self.expect_within(self.timeout(), what, is_it)
    }

    fn expect_within(
        &mut self,
        timeout: Duration,
        what: &str,
        is_it: impl Fn(&Message) -> bool,
    ) -> Checked<Message> {
        if let Some(at) = self.pending.iter().position(&is_it) {
            return Ok(self.pending.remove(at).expect("the position is in bounds"));
        }
        for _ in 0..READS_MAX {
            let seen = match self.read_event(timeout)? {
                SocketEvent::Message(message) if is_it(&message) => return Ok(message),
                SocketEvent::Message(message) if message.kind() == Kind::Failure => message.describe(),
                SocketEvent::Message(message) => {
                    self.pending.push_back(message);
                    continue;
                }
                SocketEvent::Pong(_) => continue,
                SocketEvent::Close(code) => format!("a close frame with code {code:?}"),
                SocketEvent::End => "the connection is closed".to_owned(),
                SocketEvent::Timeout => {
                    self.context.unanswered.set(self.context.unanswered.get() + 1);
                    let others: Vec<String> = self.pending.iter().map(Message::describe).collect();
                    format!("no such message before the timeout; other messages: [{}]", others.join(", "))
                }
            };
            return Err(Unmet::Fail { expected: what.to_owned(), seen });
        }
        Err(self.frame_error("too many messages".to_owned()))
    }

    pub(super) fn expect_kind(&mut self, kind: Kind) -> Checked<Message> {
        let what = match kind {
            Kind::Reply => "an announce reply",
            Kind::Offer => "a relayed offer",
            Kind::Answer => "a relayed answer",
            Kind::Scrape => "a scrape reply",
            Kind::Failure => "a failure reason",
            Kind::Other => "another message",
        };
        self.expect(what, |message| message.kind() == kind)
    }

    pub(super) fn ensure_served(context: &Context<'_>) -> Checked {
        Socket::open(context)?.announce(&Fields::announce(context.hash(0), 1)).map(drop)
    }

    pub(super) fn announce(&mut self, fields: &Fields) -> Checked<Message> {
        self.send_text(&fields.text());
        self.expect_kind(Kind::Reply)
    }

    /// Announces and fails the case unless the reply has these counts.
    pub(super) fn announce_counting(&mut self, fields: &Fields, complete: i64, incomplete: i64) -> Checked {
        let reply = self.announce(fields)?;
        ensure(
            reply.counts() == Some(Counts { complete, incomplete }),
            format!("complete {complete}, incomplete {incomplete}"),
            reply.describe(),
        )
    }

    /// Scrapes the counts of a torrent. The counts of an unknown torrent are zeros.
    pub(super) fn counts(&mut self, hash: [u8; 20]) -> Checked<Counts> {
        let file = self.scrape_one(hash)?;
        let number = |key: &str| file.get(key).and_then(serde_json::Value::as_i64).unwrap_or_default();
        Ok(Counts { complete: number("complete"), incomplete: number("incomplete") })
    }

    /// Scrapes a torrent and returns its entry, or null if there is none.
    pub(super) fn scrape_one(&mut self, hash: [u8; 20]) -> Checked<serde_json::Value> {
        self.send_text(&Fields::scrape(&super::message::binary(&hash)).text());
        Ok(self.expect_kind(Kind::Scrape)?.file(&hash).cloned().unwrap_or_default())
    }

    /// Sends a scrape and waits for its reply. The tracker has then processed everything that this socket has sent.
    pub(super) fn barrier(&mut self, hash: [u8; 20]) -> Checked {
        self.send_text(&Fields::scrape(&super::message::binary(&hash)).text());
        let is_end = |message: &Message| matches!(message.kind(), Kind::Scrape | Kind::Failure);
        // Refusals of earlier messages may come first.
        for _ in 0..REFUSALS_MAX {
            if self.expect("a scrape reply", is_end)?.kind() == Kind::Scrape {
                return Ok(());
            }
        }
        ensure(false, "a scrape reply", "only refusals")
    }

    /// Waits for the reply to a scrape and returns the number of offers that arrived before it.
    pub(super) fn offers_before_barrier(&mut self, hash: [u8; 20]) -> Checked<usize> {
        self.barrier(hash)?;
        Ok(take_offers(&mut self.pending).len())
    }

    /// Fails the case unless a scrape returns these counts.
    pub(super) fn ensure_counts(&mut self, hash: [u8; 20], complete: i64, incomplete: i64) -> Checked {
        let seen = self.counts(hash)?;
        let expected = format!("complete {complete}, incomplete {incomplete} in a scrape");
        ensure(seen == Counts { complete, incomplete }, expected, format!("{seen:?}"))
    }

    /// Waits until a scrape returns these counts, because the end of another socket takes a moment to have an effect.
    pub(super) fn await_counts(&mut self, hash: [u8; 20], complete: i64, incomplete: i64) -> Checked {
        let expected = Counts { complete, incomplete };
        for _ in 0..self.polls() {
            if self.counts(hash)? == expected {
                return Ok(());
            }
            self.buffer_for(POLL_INTERVAL)?;
        }
        self.ensure_counts(hash, complete, incomplete)
    }

    fn polls(&self) -> u128 {
        (self.timeout().as_millis() / POLL_INTERVAL.as_millis()).max(1)
    }

    /// Receives messages until nothing arrives within `timeout`, and keeps them pending.
    pub(super) fn buffer_for(&mut self, timeout: Duration) -> Checked {
        for _ in 0..READS_MAX {
            match self.read_event(timeout)? {
                SocketEvent::Message(message) => self.pending.push_back(message),
                SocketEvent::Pong(_) => {}
                SocketEvent::Close(_) | SocketEvent::End | SocketEvent::Timeout => break,
            }
        }
        Ok(())
    }

    /// Returns all pending messages and those that arrive within the time to wait for replies that should not come.
    pub(super) fn drain(&mut self) -> Checked<Vec<Message>> {
        self.buffer_for(self.context.target.timing.quiet)?;
        Ok(self.pending.drain(..).collect())
    }

    /// Waits for the end of the connection. Returns whether it came, and the code of the close frame before it.
    pub(super) fn wait_for_end(&mut self) -> Checked<(bool, Option<u16>)> {
        let mut code = None;
        for _ in 0..READS_MAX {
            match self.read_event(self.timeout())? {
                SocketEvent::Close(found) => {
                    code = found.or(Some(1005));
                    // The client's side of the closing handshake (RFC 6455, 5.5.1); the server closes the connection.
                    let close = self.frame(FIN | CLOSE, &found.unwrap_or(1000).to_be_bytes());
                    self.send_untraced(&close);
                }
                SocketEvent::Message(_) | SocketEvent::Pong(_) => {}
                SocketEvent::End => return Ok((true, code)),
                SocketEvent::Timeout => break,
            }
        }
        Ok((false, code))
    }

    pub(super) fn abort(mut self) {
        self.is_open = false;
    }
}

impl Drop for Socket<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let close = self.frame(FIN | CLOSE, &1000_u16.to_be_bytes());
            let _ = self.connection.send(&close);
        }
    }
}

pub(super) fn frame_of(context: &Context<'_>, first: u8, payload: &[u8]) -> Vec<u8> {
    frame::masked(context.random().to_be_bytes(), first, payload)
}

/// Waits until these sockets together have `expected` offers, and then briefly for more. Returns the offers of each.
pub(super) fn offers(sockets: &mut [Socket<'_>], expected: usize) -> Checked<Vec<Vec<Message>>> {
    let polls = sockets.first().map_or(1, Socket::polls);
    let mut found: Vec<Vec<Message>> = sockets.iter().map(|_| Vec::new()).collect();
    for _ in 0..polls {
        if found.iter().map(Vec::len).sum::<usize>() >= expected {
            break;
        }
        gather(sockets, &mut found, POLL_INTERVAL)?;
    }
    let quiet = sockets.first().map_or(POLL_INTERVAL, |socket| socket.context.target.timing.quiet);
    gather(sockets, &mut found, quiet)?;
    gather(sockets, &mut found, Duration::ZERO)?;
    Ok(found)
}

fn gather(sockets: &mut [Socket<'_>], found: &mut [Vec<Message>], timeout: Duration) -> Checked {
    // One wait is enough for all: while the first socket is read, input for the others arrives.
    for (at, (socket, found)) in sockets.iter_mut().zip(found).enumerate() {
        socket.buffer_for(if at == 0 { timeout } else { Duration::ZERO })?;
        found.extend(take_offers(&mut socket.pending));
    }
    Ok(())
}

fn take_offers(pending: &mut VecDeque<Message>) -> Vec<Message> {
    let is_offer = |message: &Message| message.kind() == Kind::Offer;
    let (offers, others): (Vec<Message>, Vec<Message>) = pending.drain(..).partition(is_offer);
    pending.extend(others);
    offers
}
