//! Requests and their answers, one after the other.
//!
//! Owns what a request is answered: by the engine where it is for the tracker, by a status where it is not. Must not
//! know where the bytes come from or go to.

use std::net::IpAddr;
use std::sync::Arc;

use shoal_engine::Now;
use shoal_engine::http::Responder;
use shoal_engine::refusal::Refusal;
use shoal_wire::http::head::{self, Body, HeaderStorage, Method, RequestHead};
use shoal_wire::http::response::{ResponseHead, Status};
use shoal_wire::stream::{Class, Handle, Next, OUTPUT_BYTES_MAX, SourceRoom};
use shoal_wire::websocket::handshake::{self, Accept};

use crate::answer::{self, Dates};
use crate::origin;
use crate::scrape::{Delivery, Manner, Slots};
use crate::service::SCRATCH_BYTES;
use crate::session::{Session, Stage};
use crate::settings::Settings;
use crate::source::{NoClient, Source};
use crate::upgrade::{self, Upgrade};

/// Most bytes of a body that are read past. Nothing that is served here needs one.
const BODY_BYTES_MAX: u16 = 1024;

/// What speaks on all connections of a worker.
pub(crate) struct Conversation {
    settings: Arc<Settings>,
    responder: Responder,
    /// Whether a connection may become a WebSocket.
    upgrades: bool,
    /// The full scrapes that are under way.
    slots: Slots,
    /// None where sources are not limited.
    room: Option<Box<dyn SourceRoom>>,
    dates: Dates,
    /// What an answer says, for the time of a call.
    body: Vec<u8>,
}

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Announce,
    Scrape,
}

/// What follows some requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// This is waited for.
    Wait(Next),
    /// What follows are frames of a WebSocket of the client at this address.
    Upgrade(IpAddr),
}

/// How a request is answered.
enum Decision {
    /// By this status and what is in the body by then.
    Answer(Status),
    /// By a full scrape for the client at this address.
    FullScrape(IpAddr),
    /// By frames for the client at this address.
    Upgrade(Accept, IpAddr),
}

impl Conversation {
    /// The responder answers requests for the tracker. Where a connection may become a WebSocket, `upgrades` is set.
    pub(crate) fn new(settings: Arc<Settings>, responder: Responder, upgrades: bool) -> Self {
        let slots = Slots::new(settings.full_scrapes_max);
        Self { settings, responder, upgrades, slots, room: None, dates: Dates::new(), body: Vec::new() }
    }

    /// From now on `room` is asked whether a source may have one connection more.
    pub(crate) fn ask_for_room(&mut self, room: Box<dyn SourceRoom>) {
        self.room = Some(room);
    }

    /// Whether `source` may have one connection more of a class.
    pub(crate) fn has_room(&self, source: Source, class: Class) -> bool {
        match (&self.room, self.settings.proxy.limited_ip(source)) {
            (Some(room), Some(ip)) => room.has_room(ip, class),
            _ => true,
        }
    }

    /// Answers the requests with which `input` begins, as long as they are whole. Returns how many bytes of it are
    /// done with, and what follows.
    pub(crate) fn go_on(
        &mut self,
        session: &mut Session,
        input: &[u8],
        out: &mut Vec<u8>,
        now: Now,
    ) -> (usize, After) {
        let mut rest = input;
        loop {
            match self.step(session, &mut rest, out, now) {
                None => {}
                Some(after @ After::Wait(Next::Close | Next::Linger)) => return (input.len(), after),
                Some(after) => return (input.len() - rest.len(), after),
            }
        }
    }

    /// Gives back memory of the buffer, where it has become large.
    pub(crate) fn trim(&mut self) {
        self.body.shrink_to(SCRATCH_BYTES);
    }

    /// The full scrape on a connection has ended before its time.
    pub(crate) fn forget_delivery(&mut self, handle: Handle) {
        self.slots.give_back(handle);
    }

    /// Goes on with the answer that is under way, or answers the next request. Returns what follows, unless it is
    /// another step.
    fn step(
        &mut self,
        session: &mut Session,
        rest: &mut &[u8],
        out: &mut Vec<u8>,
        now: Now,
    ) -> Option<After> {
        if matches!(session.stage, Stage::Delivery(_)) {
            return self.deliver(session, rest, out).map(After::Wait);
        }
        *rest = session.skip(rest);
        // RFC 9112, 2.2: empty lines before a request are to be ignored.
        *rest = &rest[head::empty_lines_bytes(rest)..];
        if session.skip_bytes > 0 {
            return Some(After::Wait(Next::Busy));
        }
        if rest.is_empty() {
            return Some(After::Wait(Next::Idle));
        }
        if out.len() >= OUTPUT_BYTES_MAX {
            return Some(After::Wait(Next::More));
        }
        let mut storage = HeaderStorage::new();
        match RequestHead::decode(rest, &mut storage) {
            Ok(None) => Some(After::Wait(Next::Busy)),
            Err(error) => {
                let words = format!("{error}\n");
                answer::last(error.status(), &words, now, out);
                Some(After::Wait(Next::Linger))
            }
            Ok(Some(request)) => {
                *rest = &rest[request.bytes..];
                self.answer(session, &request, rest, out, now)
            }
        }
    }

    /// Says the next part of a full scrape. One that has lost its slot breaks off, and cannot be taken for whole without
    /// its end.
    fn deliver(&mut self, session: &mut Session, rest: &[u8], out: &mut Vec<u8>) -> Option<Next> {
        let Stage::Delivery(delivery) = &mut session.stage else { return None };
        let Some(slot) = self.slots.of(session.handle) else { return Some(Next::Close) };
        let bytes_before = out.len();
        let has_more = delivery.go_on(&self.responder, &mut self.body, out);
        slot.note_sent(out.len() - bytes_before);
        if has_more {
            return Some(Next::More);
        }
        let goes_on = delivery.keeps_alive();
        session.stage = Stage::Http;
        self.slots.give_back(session.handle);
        if goes_on { None } else { Some(parting(session, rest)) }
    }

    /// Answers a request behind which `rest` has come, or begins to. Returns what follows, unless it is another step.
    fn answer(
        &mut self,
        session: &mut Session,
        request: &RequestHead<'_, '_>,
        rest: &[u8],
        out: &mut Vec<u8>,
        now: Now,
    ) -> Option<After> {
        let skippable_bytes = skippable_bytes(request.body);
        // A body that is too long is not waited for, but it is on its way.
        session.skip_bytes = skippable_bytes.unwrap_or(u16::MAX);
        let has_known_end = skippable_bytes.is_some() && !request.may_hold_back_body();
        let keep_alive = has_known_end && request.keep_alive && self.settings.keep_alive;
        self.body.clear();
        let goes_on = match self.decide(session, request, now) {
            Decision::Answer(status) => {
                self.respond(status, request, keep_alive, out, now);
                keep_alive
            }
            Decision::FullScrape(ip) => self.begin_delivery(session, request, ip, keep_alive, out, now),
            Decision::Upgrade(accept, ip) => {
                handshake::respond(&accept, out);
                return Some(After::Upgrade(ip));
            }
        };
        if goes_on { None } else { Some(After::Wait(parting(session, rest))) }
    }

    /// Finds out how a request is answered. The body is empty before.
    fn decide(&mut self, session: &Session, request: &RequestHead<'_, '_>, now: Now) -> Decision {
        let websocket = self.upgrades.then_some(&self.settings.websocket);
        match upgrade::consider(websocket, request, || self.client(session, request)) {
            Upgrade::Unasked => {}
            Upgrade::Granted(accept, ip) if self.has_room(Source::Ip(ip), Class::WebSocket) => {
                return Decision::Upgrade(accept, ip);
            }
            Upgrade::Granted(..) => {
                self.body.extend_from_slice(answer::TOO_MANY_WEBSOCKETS.as_bytes());
                return Decision::Answer(Status::ServiceUnavailable);
            }
            Upgrade::Declined(status, words) => {
                self.body.extend_from_slice(words.as_bytes());
                return Decision::Answer(status);
            }
            Upgrade::Unnamed => {
                self.refuse_unnamed();
                return Decision::Answer(Status::BadRequest);
            }
        }
        match (request.method, route(request.path)) {
            (Method::Other, _) => Decision::Answer(Status::MethodNotAllowed),
            _ if skippable_bytes(request.body).is_none() => Decision::Answer(Status::ContentTooLarge),
            (_, None) => Decision::Answer(Status::NotFound),
            (_, Some(route)) => self.ask(session, request, route, now),
        }
    }

    /// Writes an answer with what is in the body, or with words that belong to the status.
    fn respond(
        &mut self,
        status: Status,
        request: &RequestHead<'_, '_>,
        keep_alive: bool,
        out: &mut Vec<u8>,
        now: Now,
    ) {
        if self.body.is_empty() {
            let words = if status == Status::NotFound { answer::NOT_FOUND } else { status.reason() };
            self.body.extend_from_slice(words.as_bytes());
        }
        let head = ResponseHead {
            status,
            version: request.version,
            keep_alive,
            framing: answer::length(&self.body),
            date: self.dates.at(now),
            fields: answer::fields(status),
        };
        head.encode(out);
        if request.method != Method::Head {
            out.extend_from_slice(&self.body);
        }
    }

    /// Has the engine answer into the body.
    fn ask(&mut self, session: &Session, request: &RequestHead<'_, '_>, route: Route, now: Now) -> Decision {
        let Ok(ip) = self.client(session, request) else {
            self.refuse_unnamed();
            return Decision::Answer(Status::Ok);
        };
        if !self.settings.cross_site && origin::is_cross_site(request) {
            self.responder.refuse(Some(ip), Refusal::CrossSite, &mut self.body);
            return Decision::Answer(Status::Forbidden);
        }
        match route {
            Route::Announce => self.responder.announce(ip, request.query, now, &mut self.body),
            Route::Scrape if !self.responder.is_full_scrape(request.query) => {
                self.responder.scrape(ip, request.query, &mut self.body);
            }
            Route::Scrape if self.slots.take(session.handle, ip, now) => return Decision::FullScrape(ip),
            Route::Scrape => {
                self.responder.refuse(Some(ip), Refusal::TooManyScrapes, &mut self.body);
                return Decision::Answer(Status::ServiceUnavailable);
            }
        }
        Decision::Answer(Status::Ok)
    }

    fn begin_delivery(
        &mut self,
        session: &mut Session,
        request: &RequestHead<'_, '_>,
        ip: IpAddr,
        keep_alive: bool,
        out: &mut Vec<u8>,
        now: Now,
    ) -> bool {
        let manner = Manner::new(request, keep_alive);
        manner.encode_head(self.dates.at(now), out);
        // Here it is counted, as that of an announce is, whether its body is sent or not.
        let scrape = self.responder.begin_full_scrape(ip);
        if request.method == Method::Head {
            self.slots.give_back(session.handle);
            return manner.keeps_alive();
        }
        session.stage = Stage::Delivery(Box::new(Delivery::new(scrape, manner)));
        // Whether the connection goes on is seen at its end.
        true
    }

    /// Tells a trusted proxy that it has to say for whom it asks.
    fn refuse_unnamed(&mut self) {
        self.responder.refuse(None, Refusal::ProxyWithoutClient, &mut self.body);
    }

    /// Who asks.
    fn client(&self, session: &Session, request: &RequestHead<'_, '_>) -> Result<IpAddr, NoClient> {
        match (self.settings.proxy.header, session.source) {
            (Some(header), _) if session.is_trusted => {
                self.settings.proxy.client(header, request.header(header.name()))
            }
            (_, Source::Ip(ip)) => Ok(ip),
            (_, Source::Unix | Source::Unnamed) => Err(NoClient),
        }
    }
}

/// How long a body is, if it is short enough to be read past.
fn skippable_bytes(body: Body) -> Option<u16> {
    match body {
        Body::None => Some(0),
        Body::Bytes(bytes) => u16::try_from(bytes).ok().filter(|bytes| *bytes <= BODY_BYTES_MAX),
        Body::Chunked => None,
    }
}

/// How a connection ends after its last answer.
const fn parting(session: &Session, rest: &[u8]) -> Next {
    // What is left unread makes the kernel reset the connection, and the answer may be lost with it.
    if rest.is_empty() && session.skip_bytes == 0 { Next::Close } else { Next::Linger }
}

/// What a path stands for, if it is for anything. Torrents name trackers by paths of all kinds, in which the last segment
/// tells what is wanted: `/announce/`, `/announce.php`, `//announce`, `/some/folder/announce`.
fn route(path: &[u8]) -> Option<Route> {
    match path {
        b"/announce" => Some(Route::Announce),
        b"/scrape" => Some(Route::Scrape),
        [b'/', segments @ ..] => {
            let end = segments.iter().rposition(|&byte| byte != b'/')? + 1;
            let last = segments[..end].rsplit(|&byte| byte == b'/').next()?;
            match last.strip_suffix(b".php").unwrap_or(last) {
                b"announce" => Some(Route::Announce),
                b"scrape" => Some(Route::Scrape),
                _ => None,
            }
        }
        _ => None,
    }
}
