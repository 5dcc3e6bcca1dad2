//! A client of an HTTP tracker: connections that ask, wait, and take their leave.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::reply::{announced, scraped};
use super::request::{Parameters, announce_path, get, scrape_path, words};
use super::response::{BYTES_MAX, Progress, Response};
use crate::case::{Checked, Unmet};
use crate::connection::{Connection, Heard};
use crate::context::Context;
use crate::peer::{Announce, Announced, Counts, STOPPED};
use crate::rules;
use crate::trace::Direction;

/// Most times that one wait looks at a connection. A tracker that sends a byte at a time does not hold up the suite.
const READS_MAX: u32 = 10_000;

/// What a tracker does about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Response(Box<Response>),
    /// It closes the connection without a response.
    Closed,
    /// Nothing, for long.
    Silence,
}

/// A connection and what has come over it but is not read yet.
pub(super) struct Line<'c> {
    context: &'c Context<'c>,
    connection: Connection,
    unread: Vec<u8>,
    has_ended: bool,
    is_fresh: bool,
}

impl Line<'_> {
    /// Sends bytes. A tracker that has closed the connection is noticed when its answer is awaited.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.context.trace.borrow_mut().add(Direction::Sent, words(bytes), bytes);
        self.send_untold(bytes);
    }

    /// The same for pieces of a request, which would fill the trace.
    pub(super) fn send_untold(&mut self, bytes: &[u8]) {
        // A tracker may refuse a request, answer, and close, all before it has read everything.
        let _ = self.connection.send(bytes);
    }

    /// Sends bytes, and says whether the tracker still takes them.
    pub(super) fn tries_to_send(&mut self, bytes: &[u8]) -> bool {
        self.connection.send(bytes).is_ok()
    }

    /// Says that nothing more will be sent.
    pub(super) fn finish_sending(&mut self) {
        let _ = self.connection.finish_sending();
    }

    /// Where the client is, as it sees it.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.connection.local_address().ok()
    }

    /// Waits for the next response.
    pub(super) fn receive(&mut self) -> Checked<Answer> {
        self.receive_to("GET")
    }

    /// Waits for the next response, which answers this method.
    pub(super) fn receive_to(&mut self, method: &str) -> Checked<Answer> {
        for _ in 0..READS_MAX {
            if self.unread.is_empty() && self.has_ended {
                return Ok(Answer::Closed);
            }
            let progress = Response::read(&self.unread, method == "HEAD", self.has_ended);
            let progress = progress.map_err(|wrong| self.no_response(wrong))?;
            if let Progress::Whole(response) = progress {
                self.unread.drain(..response.raw.len());
                self.context.trace.borrow_mut().add(Direction::Seen, response.words(), &response.raw);
                self.is_fresh = false;
                return Ok(Answer::Response(response));
            }
            if self.unread.len() > BYTES_MAX {
                return Err(self.no_response("too many bytes".to_owned()));
            }
            if self.wait()? {
                continue;
            }
            if !self.unread.is_empty() {
                return Err(self.no_response("no more for a while".to_owned()));
            }
            self.context.silences.set(self.context.silences.get() + 1);
            return Ok(Answer::Silence);
        }
        Err(self.no_response("too many pieces".to_owned()))
    }

    /// Waits for the next response, of which there must be one.
    pub(super) fn receive_response(&mut self) -> Checked<Response> {
        match self.receive()? {
            Answer::Response(response) => Ok(*response),
            other => Err(unanswered(&other)),
        }
    }

    /// Whether the tracker closes the connection, after some patience. What it sends until then is an answer to
    /// nothing, and comes back, too.
    pub(super) fn is_closed(&mut self) -> Checked<(bool, Vec<u8>)> {
        for _ in 0..READS_MAX {
            if self.has_ended || !self.wait()? {
                break;
            }
        }
        Ok((self.has_ended, std::mem::take(&mut self.unread)))
    }

    /// What comes within the time that something that should not come is waited for.
    pub(super) fn overhear(&mut self) -> Checked<Vec<u8>> {
        let quiet = self.context.target.timing.quiet;
        self.wait_for(quiet)?;
        Ok(std::mem::take(&mut self.unread))
    }

    /// Whether the tracker has sent anything by now, or closed the connection.
    pub(super) fn has_anything(&mut self) -> bool {
        self.wait_for(Duration::ZERO).unwrap_or(true)
    }

    /// Whether there was anything to hear: bytes, or the end.
    fn wait(&mut self) -> Checked<bool> {
        // TCP loses nothing, so the tries of UDP are one long wait here.
        self.wait_for(self.context.target.timing.reply * self.context.tries)
    }

    fn wait_for(&mut self, patience: Duration) -> Checked<bool> {
        if self.has_ended {
            return Ok(false);
        }
        match self.connection.hear(self.context.deadline.bound(patience)?) {
            Ok(Heard::Bytes(bytes)) => {
                self.unread.extend(bytes);
                Ok(true)
            }
            Ok(Heard::End) => {
                self.has_ended = true;
                Ok(true)
            }
            Ok(Heard::Silence) => Ok(false),
            Err(error) => Err(Unmet::Fail {
                expected: "a connection that carries a response".to_owned(),
                seen: format!("the connection fails: {error}"),
            }),
        }
    }

    fn no_response(&self, wrong: String) -> Unmet {
        self.context.trace.borrow_mut().add(Direction::Seen, "bytes".to_owned(), &self.unread);
        let seen = format!("{wrong}, in {}", super::response::shown(&self.unread));
        Unmet::Fail { expected: "a response of HTTP/1".to_owned(), seen }
    }
}

/// What a case that needs a response ends with where there is none.
fn unanswered(answer: &Answer) -> Unmet {
    let seen = match answer {
        Answer::Response(response) => response.words(),
        Answer::Closed => "the connection is closed without a response".to_owned(),
        Answer::Silence => "no response, and the connection stays open".to_owned(),
    };
    Unmet::Fail { expected: "a response".to_owned(), seen }
}

/// Somebody who asks one tracker, over a connection that is kept as long as the tracker keeps it. On drop the peers
/// leave their swarms.
pub(crate) struct Client<'c> {
    pub(super) context: &'c Context<'c>,
    source: Option<IpAddr>,
    tracker: SocketAddr,
    kept: RefCell<Option<Line<'c>>>,
    joined: RefCell<BTreeSet<([u8; 20], u16)>>,
}

impl<'c> Client<'c> {
    /// A client at the usual local address.
    pub(crate) fn new(context: &'c Context<'c>) -> Self {
        Self::at(context, context.target.sources.first().copied(), context.target.address)
    }

    /// A client at the local address number `index`; there may be no such address.
    pub(crate) fn at_source(context: &'c Context<'c>, index: usize) -> Checked<Self> {
        Ok(Self::at(context, Some(context.source(index)?), context.target.address))
    }

    /// A client that asks the same tracker over the other family.
    pub(crate) fn of_other_family(context: &'c Context<'c>) -> Checked<Self> {
        let missing = || Unmet::NotSupported("the tracker is known by one family only".to_owned());
        Ok(Self::at(context, None, context.target.other_family.ok_or_else(missing)?))
    }

    fn at(context: &'c Context<'c>, source: Option<IpAddr>, tracker: SocketAddr) -> Self {
        Self { context, source, tracker, kept: RefCell::default(), joined: RefCell::default() }
    }

    /// A new connection.
    pub(super) fn connect(&self) -> Checked<Line<'c>> {
        let connection = Connection::open(self.context, self.tracker, self.source);
        let connection = connection.map_err(|error| self.no_connection(&error))?;
        Ok(Line { context: self.context, connection, unread: Vec::new(), has_ended: false, is_fresh: true })
    }

    fn no_connection(&self, error: &io::Error) -> Unmet {
        if error.kind() == io::ErrorKind::AddrNotAvailable {
            return Unmet::NotSupported(format!("cannot ask {} from here: {error}", self.tracker));
        }
        Unmet::Fail {
            expected: "a tracker that takes connections".to_owned(),
            seen: format!("no connection to {}: {error}", self.tracker),
        }
    }

    /// Sends a request over the kept connection, or over a new one, and returns what the tracker does about it.
    pub(super) fn ask_anything(&self, request: &[u8]) -> Checked<Answer> {
        let kept = self.kept.take();
        if let Some(mut line) = kept {
            line.send(request);
            match line.receive() {
                Ok(Answer::Closed) | Err(_) => {
                    // The tracker may close an idle connection whenever it likes (RFC 9112, 9.3.1).
                }
                other => return self.keep(line, other?),
            }
        }
        let mut line = self.connect()?;
        line.send(request);
        let answer = line.receive()?;
        self.keep(line, answer)
    }

    fn keep(&self, line: Line<'c>, answer: Answer) -> Checked<Answer> {
        if let Answer::Response(response) = &answer
            && response.keeps_connection()
        {
            self.kept.replace(Some(line));
        }
        Ok(answer)
    }

    /// Sends a request and returns the response.
    pub(super) fn ask(&self, request: &[u8]) -> Checked<Response> {
        match self.ask_anything(request)? {
            Answer::Response(response) => Ok(*response),
            other => Err(unanswered(&other)),
        }
    }

    /// The request of an announce, changed by `edit`. Its peer is noted, whatever it is changed to: who never joined
    /// does no harm by leaving.
    pub(super) fn announce_request(
        &self,
        announce: &Announce,
        edit: impl FnOnce(Parameters) -> Parameters,
    ) -> Vec<u8> {
        get(self.context.target, &self.announce_path(announce, edit), &[])
    }

    /// The path and query of the same.
    pub(super) fn announce_path(
        &self,
        announce: &Announce,
        edit: impl FnOnce(Parameters) -> Parameters,
    ) -> String {
        self.remember(announce);
        announce_path(self.context.target, &edit(Parameters::of(announce)))
    }

    /// Announces with other parameters.
    pub(super) fn announce_with(
        &self,
        announce: &Announce,
        edit: impl FnOnce(Parameters) -> Parameters,
    ) -> Checked<Announced> {
        announced(&self.ask(&self.announce_request(announce, edit))?)
    }

    /// Announces with other headers.
    pub(super) fn announce_under(&self, announce: &Announce, headers: &[&str]) -> Checked<Announced> {
        let path = self.announce_path(announce, |parameters| parameters);
        announced(&self.ask(&get(self.context.target, &path, headers))?)
    }

    /// The request of a scrape.
    pub(super) fn scrape_request(&self, info_hashes: &[[u8; 20]]) -> Vec<u8> {
        let path = scrape_path(self.context.target, &Parameters::scrape(info_hashes));
        get(self.context.target, &path, &[])
    }

    fn remember(&self, announce: &Announce) {
        let peer = (announce.info_hash, announce.port);
        if announce.event == STOPPED {
            self.joined.borrow_mut().remove(&peer);
        } else {
            self.joined.borrow_mut().insert(peer);
        }
    }

    fn leave(&self) -> Checked {
        for (hash, port) in self.joined.take() {
            let stopped = Announce::seeder(hash, port).with_event(STOPPED).wanting(0);
            if self.ask_anything(&self.announce_request(&stopped, |parameters| parameters))?
                == Answer::Silence
            {
                break;
            }
        }
        Ok(())
    }
}

impl rules::Client for Client<'_> {
    fn announce(&self, announce: &Announce) -> Checked<Announced> {
        self.announce_with(announce, |parameters| parameters)
    }

    fn announce_in_vain(&self, announce: &Announce) -> Checked {
        self.ask_anything(&self.announce_request(announce, |parameters| parameters)).map(drop)
    }

    fn announce_all(&self, announces: &[Announce]) -> Checked<Vec<Announced>> {
        announces.iter().map(|announce| self.announce(announce)).collect()
    }

    fn scrape(&self, info_hashes: &[[u8; 20]]) -> Checked<Vec<Counts>> {
        let files = scraped(&self.ask(&self.scrape_request(info_hashes))?)?;
        let counts = |hash: &[u8; 20]| {
            files.iter().find(|(found, _)| found == hash).map_or_else(Counts::default, |(_, counts)| *counts)
        };
        Ok(info_hashes.iter().map(counts).collect())
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        let silences = self.context.silences.get();
        self.context.trace.borrow_mut().pause(true);
        // A tracker that has gone needs no farewell.
        let _ = self.leave();
        self.context.trace.borrow_mut().pause(false);
        self.context.silences.set(silences);
    }
}
