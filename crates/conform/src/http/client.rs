//! A client of an HTTP tracker: connections that send requests, wait for responses, and leave the swarms at the end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::bencode::{Value, read};
use super::reply::{Strictness, announced, scraped};
use super::request::{Parameters, announce_path, describe, get, scrape_path};
use super::response::{BYTES_MAX, Progress, Response};
use crate::case::{Checked, Unmet};
use crate::connection::{Connection, connect_error};
use crate::context::Context;
use crate::peer::{Announce, Announced, Counts, STOPPED};
use crate::rules;
use crate::rules::operator::{Reaction, Refusal};
use crate::trace::Direction;

/// The number of reads in one wait, so that a tracker that sends one byte at a time does not block the suite.
const READS_MAX: u32 = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Response(Box<Response>),
    /// The tracker closes the connection without a response.
    Closed,
    Silence,
}

pub(super) struct HttpConnection<'c> {
    context: &'c Context<'c>,
    connection: Connection,
}

impl HttpConnection<'_> {
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.context.trace.borrow_mut().add(Direction::Sent, describe(bytes), bytes);
        self.send_untraced(bytes);
    }

    /// Sends a piece of a request without recording it, since pieces would fill the trace.
    pub(super) fn send_untraced(&mut self, bytes: &[u8]) {
        // A tracker may refuse a request, respond and close before it has read everything.
        let _ = self.connection.send(bytes);
    }

    /// Sends bytes and returns whether the connection still accepts them.
    pub(super) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.connection.send(bytes).is_ok()
    }

    pub(super) fn close_write(&mut self) {
        let _ = self.connection.close_write();
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.connection.local_address().ok()
    }

    pub(super) fn receive(&mut self) -> Checked<Answer> {
        self.receive_for("GET")
    }

    /// Waits for the next response, which is to a request with this method.
    pub(super) fn receive_for(&mut self, method: &str) -> Checked<Answer> {
        for _ in 0..READS_MAX {
            if self.connection.unread.is_empty() && self.connection.has_ended {
                return Ok(Answer::Closed);
            }
            let progress =
                Response::read(&self.connection.unread, method == "HEAD", self.connection.has_ended);
            let progress = progress.map_err(|wrong| self.no_response(wrong))?;
            if let Progress::Whole(response) = progress {
                self.connection.unread.drain(..response.raw.len());
                self.context.trace.borrow_mut().add(Direction::Seen, response.describe(), &response.raw);
                return Ok(Answer::Response(response));
            }
            if self.connection.unread.len() > BYTES_MAX {
                return Err(self.no_response("too many bytes".to_owned()));
            }
            if self.wait()? {
                continue;
            }
            if !self.connection.unread.is_empty() {
                return Err(self.no_response("no further bytes before the timeout".to_owned()));
            }
            self.context.unanswered.set(self.context.unanswered.get() + 1);
            return Ok(Answer::Silence);
        }
        Err(self.no_response("too many small pieces".to_owned()))
    }

    pub(super) fn receive_response(&mut self) -> Checked<Response> {
        match self.receive()? {
            Answer::Response(response) => Ok(*response),
            other => Err(unanswered(&other)),
        }
    }

    /// Waits for the tracker to close the connection. Returns whether it did, and what it sent before.
    pub(super) fn wait_for_close(&mut self) -> Checked<(bool, Vec<u8>)> {
        for _ in 0..READS_MAX {
            if self.connection.has_ended || !self.wait()? {
                break;
            }
        }
        Ok((self.connection.has_ended, std::mem::take(&mut self.connection.unread)))
    }

    /// Returns what arrives within the time to wait for replies that should not come.
    pub(super) fn drain(&mut self) -> Checked<Vec<u8>> {
        let quiet = self.context.target.timing.quiet;
        self.wait_for(quiet)?;
        Ok(std::mem::take(&mut self.connection.unread))
    }

    /// Returns whether the tracker has sent anything or closed the connection.
    pub(super) fn has_input(&mut self) -> bool {
        self.wait_for(Duration::ZERO).unwrap_or(true)
    }

    fn wait(&mut self) -> Checked<bool> {
        // TCP loses nothing, so one long wait replaces the retries of UDP.
        self.wait_for(self.context.target.timing.reply * self.context.tries)
    }

    fn wait_for(&mut self, timeout: Duration) -> Checked<bool> {
        self.connection.wait(timeout, "a response")
    }

    fn no_response(&self, wrong: String) -> Unmet {
        self.context.trace.borrow_mut().add(Direction::Seen, "bytes".to_owned(), &self.connection.unread);
        let seen = format!("{wrong}, in {}", super::response::shown(&self.connection.unread));
        Unmet::Fail { expected: "a response of HTTP/1".to_owned(), seen }
    }
}

fn unanswered(answer: &Answer) -> Unmet {
    let seen = match answer {
        Answer::Response(response) => response.describe(),
        Answer::Closed => "the connection is closed without a response".to_owned(),
        Answer::Silence => "no response, and the connection stays open".to_owned(),
    };
    Unmet::Fail { expected: "a response".to_owned(), seen }
}

/// Tells a refusal, by a failure reason or by a status, from the reply to an announce.
fn react(response: &Response) -> Checked<Reaction> {
    let refused = |text: &[u8], tells_when| {
        let text = String::from_utf8(text.to_vec()).unwrap_or_default();
        Ok(Reaction::Refused(Refusal { text, tells_when, described: response.describe() }))
    };
    if matches!(response.status, 403 | 429 | 503) {
        return refused(&response.body, response.header("retry-after").is_some());
    }
    let (reply, _) = read(&response.body).unwrap_or_default();
    match reply.bytes("failure reason") {
        Some(reason) => {
            // BEP 31 writes the number as a string in its example.
            let minutes = match reply.value("retry in") {
                Some(Value::Integer(minutes)) => Some(*minutes),
                Some(Value::Bytes(text)) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
                _ => None,
            };
            refused(reason, minutes.is_some_and(|minutes| minutes > 0))
        }
        None => announced(response).map(Reaction::Served),
    }
}

/// A client that reuses its connection as long as the tracker keeps it open. On drop its peers leave their swarms.
pub(crate) struct Client<'c> {
    pub(super) context: &'c Context<'c>,
    source: Option<IpAddr>,
    tracker: SocketAddr,
    idle: RefCell<Option<HttpConnection<'c>>>,
    joined: RefCell<BTreeSet<([u8; 20], u16)>>,
}

impl<'c> Client<'c> {
    pub(crate) fn new(context: &'c Context<'c>) -> Self {
        Self::between(context, context.target.sources.first().copied(), context.target.address)
    }

    /// Creates a client at this local address, which may not exist.
    pub(crate) fn at(context: &'c Context<'c>, source: IpAddr) -> Self {
        Self::between(context, Some(source), context.target.address)
    }

    pub(super) fn between(context: &'c Context<'c>, source: Option<IpAddr>, tracker: SocketAddr) -> Self {
        Self { context, source, tracker, idle: RefCell::default(), joined: RefCell::default() }
    }

    pub(super) fn connect(&self) -> Checked<HttpConnection<'c>> {
        let connection = Connection::open(self.context, self.tracker, self.source);
        let connection = connection.map_err(|error| connect_error(&error, self.tracker))?;
        Ok(HttpConnection { context: self.context, connection })
    }

    /// Sends a request over the idle connection or over a new one, and returns the reaction of the tracker.
    pub(super) fn request_any(&self, request: &[u8]) -> Checked<Answer> {
        let idle = self.idle.take();
        if let Some(mut connection) = idle {
            connection.send(request);
            match connection.receive() {
                Ok(Answer::Closed) | Err(_) => {
                    // The tracker may close an idle connection at any time (RFC 9112, 9.3.1).
                }
                Ok(answer) => return Ok(self.reuse(connection, answer)),
            }
        }
        let mut connection = self.connect()?;
        connection.send(request);
        let answer = connection.receive()?;
        Ok(self.reuse(connection, answer))
    }

    /// Keeps the connection for the next request if the response permits it.
    fn reuse(&self, connection: HttpConnection<'c>, answer: Answer) -> Answer {
        if let Answer::Response(response) = &answer
            && response.keeps_connection()
        {
            self.idle.replace(Some(connection));
        }
        answer
    }

    pub(super) fn request(&self, request: &[u8]) -> Checked<Response> {
        match self.request_any(request)? {
            Answer::Response(response) => Ok(*response),
            other => Err(unanswered(&other)),
        }
    }

    pub(super) fn announce_request(&self, announce: &Announce) -> Vec<u8> {
        get(self.context.target, &self.announce_path(announce), &[])
    }

    pub(super) fn announce_request_with(
        &self,
        announce: &Announce,
        edit: impl FnOnce(Parameters) -> Parameters,
    ) -> Vec<u8> {
        self.record(announce);
        get(self.context.target, &announce_path(self.context.target, &edit(Parameters::of(announce))), &[])
    }

    pub(super) fn announce_path(&self, announce: &Announce) -> String {
        self.record(announce);
        announce_path(self.context.target, &Parameters::of(announce))
    }

    /// Records a peer that may have joined or left: the stopped event of a peer that never joined is harmless.
    fn record(&self, announce: &Announce) {
        let peer = (announce.info_hash, announce.port);
        if announce.event == STOPPED {
            self.joined.borrow_mut().remove(&peer);
        } else {
            self.joined.borrow_mut().insert(peer);
        }
    }

    pub(super) fn announce_with(
        &self,
        announce: &Announce,
        edit: impl FnOnce(Parameters) -> Parameters,
    ) -> Checked<Announced> {
        announced(&self.request(&self.announce_request_with(announce, edit))?)
    }

    pub(super) fn announce_with_headers(&self, announce: &Announce, headers: &[&str]) -> Checked<Announced> {
        let path = self.announce_path(announce);
        announced(&self.request(&get(self.context.target, &path, headers))?)
    }

    pub(super) fn scrape_request(&self, info_hashes: &[[u8; 20]]) -> Vec<u8> {
        let path = scrape_path(self.context.target, &Parameters::scrape(info_hashes));
        get(self.context.target, &path, &[])
    }
}

impl rules::Client for Client<'_> {
    fn announce(&self, announce: &Announce) -> Checked<Announced> {
        announced(&self.request(&self.announce_request(announce))?)
    }

    fn react(&self, announce: &Announce) -> Checked<Reaction> {
        match self.request_any(&self.announce_request(announce))? {
            Answer::Response(response) => react(&response),
            Answer::Closed | Answer::Silence => Ok(Reaction::Silence),
        }
    }

    fn try_announce(&self, announce: &Announce) -> Checked {
        self.request_any(&self.announce_request(announce)).map(drop)
    }

    fn announce_all(&self, announces: &[Announce]) -> Checked<Vec<Announced>> {
        announces.iter().map(|announce| self.announce(announce)).collect()
    }

    fn scrape(&self, info_hashes: &[[u8; 20]]) -> Checked<Vec<Counts>> {
        let files = scraped(&self.request(&self.scrape_request(info_hashes))?, Strictness::Lenient)?;
        let counts = |hash: &[u8; 20]| {
            files.iter().find(|(found, _)| found == hash).map_or_else(Counts::default, |(_, counts)| *counts)
        };
        Ok(info_hashes.iter().map(counts).collect())
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        let unanswered = self.context.unanswered.get();
        self.context.trace.borrow_mut().pause(true);
        for (hash, port) in self.joined.take() {
            let stopped = Announce::seeder(hash, port).with_event(STOPPED).wanting(0);
            let answer = self.request_any(&self.announce_request(&stopped));
            // The tracker may have ended.
            if !answer.is_ok_and(|answer| answer != Answer::Silence) {
                break;
            }
        }
        self.context.trace.borrow_mut().pause(false);
        self.context.unanswered.set(unanswered);
    }
}
