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
use shoal_wire::stream::{Next, OUTPUT_BYTES_MAX};

use crate::answer;
use crate::scrape::{Delivery, Manner};
use crate::session::Session;
use crate::settings::Settings;
use crate::source::{NoClient, Source};

/// Most bytes of a body that are read past. Nothing that is served here needs one.
const BODY_BYTES_MAX: u16 = 1024;

/// What speaks on all connections of a worker.
pub(crate) struct Conversation {
    settings: Arc<Settings>,
    responder: Responder,
    /// How many full scrapes are under way.
    deliveries: usize,
    /// What an answer says, for the time of a call.
    body: Vec<u8>,
}

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Announce,
    Scrape,
}

/// The client at this address is to be answered by a full scrape.
struct FullScrapeBy(IpAddr);

impl Conversation {
    pub(crate) const fn new(settings: Arc<Settings>, responder: Responder) -> Self {
        Self { settings, responder, deliveries: 0, body: Vec::new() }
    }

    /// Answers the requests with which `input` begins, as long as they are whole. Returns how many bytes of it are
    /// done with, and what the connection waits for.
    pub(crate) fn go_on(
        &mut self,
        session: &mut Session,
        input: &[u8],
        out: &mut Vec<u8>,
        now: Now,
    ) -> (usize, Next) {
        let mut rest = input;
        loop {
            match self.step(session, &mut rest, out, now) {
                None => {}
                Some(next @ (Next::Close | Next::Linger)) => return (input.len(), next),
                Some(next) => return (input.len() - rest.len(), next),
            }
        }
    }

    /// A full scrape has ended before its time.
    pub(crate) fn forget_delivery(&mut self) {
        self.deliveries -= 1;
    }

    /// Goes on with the answer that is under way, or answers the next request. Returns what has to be waited for
    /// before another step.
    fn step(&mut self, session: &mut Session, rest: &mut &[u8], out: &mut Vec<u8>, now: Now) -> Option<Next> {
        if session.delivery.is_some() {
            return self.deliver(session, rest, out);
        }
        *rest = session.skip(rest);
        // RFC 9112, 2.2: empty lines before a request are to be ignored.
        *rest = &rest[head::empty_lines_bytes(rest)..];
        if session.skip_bytes > 0 {
            return Some(Next::Busy);
        }
        if rest.is_empty() {
            return Some(Next::Idle);
        }
        if out.len() >= OUTPUT_BYTES_MAX {
            return Some(Next::More);
        }
        let mut storage = HeaderStorage::new();
        match RequestHead::decode(rest, &mut storage) {
            Ok(None) => Some(Next::Busy),
            Err(error) => {
                let words = format!("{error}\n");
                answer::last(error.status(), &words, out);
                Some(Next::Linger)
            }
            Ok(Some(request)) => {
                *rest = &rest[request.bytes..];
                let goes_on = self.answer(session, &request, out, now);
                if goes_on { None } else { Some(parting(session, rest)) }
            }
        }
    }

    /// Says the next part of a full scrape.
    fn deliver(&mut self, session: &mut Session, rest: &[u8], out: &mut Vec<u8>) -> Option<Next> {
        let delivery = session.delivery.as_mut()?;
        if delivery.go_on(&self.responder, &mut self.body, out) {
            return Some(Next::More);
        }
        let goes_on = delivery.keeps_alive();
        session.delivery = None;
        self.deliveries -= 1;
        if goes_on { None } else { Some(parting(session, rest)) }
    }

    /// Answers a request, or begins to. Returns whether the connection goes on.
    fn answer(
        &mut self,
        session: &mut Session,
        request: &RequestHead<'_, '_>,
        out: &mut Vec<u8>,
        now: Now,
    ) -> bool {
        let skippable_bytes = skippable_bytes(request.body);
        // A body that is too long is not waited for, but it is on its way.
        session.skip_bytes = skippable_bytes.unwrap_or(u16::MAX);
        let has_known_end = skippable_bytes.is_some() && !request.may_hold_back_body();
        let keep_alive = has_known_end && request.keep_alive && self.settings.keep_alive;
        self.body.clear();
        let status = match (request.method, route(request.path)) {
            (Method::Other, _) => Status::MethodNotAllowed,
            _ if skippable_bytes.is_none() => Status::ContentTooLarge,
            (_, None) => Status::NotFound,
            (_, Some(route)) => match self.ask(session, request, route, now) {
                Ok(status) => status,
                Err(FullScrapeBy(ip)) => return self.begin_delivery(session, request, ip, keep_alive, out),
            },
        };
        if self.body.is_empty() {
            let words = if status == Status::NotFound { answer::NOT_FOUND } else { status.reason() };
            self.body.extend_from_slice(words.as_bytes());
        }
        let head = ResponseHead {
            status,
            version: request.version,
            keep_alive,
            framing: answer::length(&self.body),
            fields: answer::fields(status),
        };
        head.encode(out);
        if request.method != Method::Head {
            out.extend_from_slice(&self.body);
        }
        keep_alive
    }

    /// Has the engine answer into the body.
    fn ask(
        &mut self,
        session: &Session,
        request: &RequestHead<'_, '_>,
        route: Route,
        now: Now,
    ) -> Result<Status, FullScrapeBy> {
        let Ok(ip) = self.client(session, request) else {
            self.responder.refuse(None, Refusal::ProxyWithoutClient, &mut self.body);
            return Ok(Status::Ok);
        };
        match route {
            Route::Announce => self.responder.announce(ip, request.query, now, &mut self.body),
            Route::Scrape if !self.responder.is_full_scrape(request.query) => {
                self.responder.scrape(ip, request.query, &mut self.body);
            }
            Route::Scrape if self.deliveries < self.settings.full_scrapes_max => {
                return Err(FullScrapeBy(ip));
            }
            Route::Scrape => {
                self.responder.refuse(Some(ip), Refusal::TooManyScrapes, &mut self.body);
                return Ok(Status::ServiceUnavailable);
            }
        }
        Ok(Status::Ok)
    }

    fn begin_delivery(
        &mut self,
        session: &mut Session,
        request: &RequestHead<'_, '_>,
        ip: IpAddr,
        keep_alive: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let manner = Manner::new(request, keep_alive);
        manner.encode_head(out);
        // Here it is counted, as that of an announce is, whether its body is sent or not.
        let scrape = self.responder.begin_full_scrape(ip);
        if request.method == Method::Head {
            return manner.keeps_alive();
        }
        session.delivery = Some(Box::new(Delivery::new(scrape, manner)));
        self.deliveries += 1;
        // Whether the connection goes on is seen at its end.
        true
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

/// What a path stands for, if it is for anything.
const fn route(path: &[u8]) -> Option<Route> {
    match path {
        b"/announce" => Some(Route::Announce),
        b"/scrape" => Some(Route::Scrape),
        _ => None,
    }
}
