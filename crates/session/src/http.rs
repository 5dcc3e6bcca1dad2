//! HTTP requests and their responses, in order.
//!
//! This module owns how a request is answered: by the engine if it is for the tracker, or else by a status. It must not
//! know where bytes come from or go to.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use shoal_access::token::{Url, is_token};
use shoal_access::torrents::Publication;
use shoal_base::transport::stream::{ConnectionKind, Handle, Next, OUTPUT_BYTES_MAX, SourceCapacity};
use shoal_config::ClientHeader;
use shoal_engine::Now;
use shoal_engine::counter::Kind;
use shoal_engine::http::{BlocklistFormat, Responder};
use shoal_engine::limits::Activity;
use shoal_engine::pace::Pace;
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::refusal::Refusal;
use shoal_wire::http::date::Date;
use shoal_wire::http::head::{self, Body, HeaderStorage, Method, RequestHead};
use shoal_wire::http::reply::ScrapeFormat;
use shoal_wire::http::response::{Framing, PLAIN_TEXT, ResponseHead, Status};
use shoal_wire::websocket::handshake::{self, Accept};

use crate::challenges::Challenges;
use crate::counters::{SessionCounters, StatusLabel, Upgraded};
use crate::delivery::{Content, Delivery, DeliveryFormat, DeliverySlots, Progress};
use crate::origin;
use crate::response::{self, Dates};
use crate::service::{Call, SCRATCH_BYTES};
use crate::session::{Session, Stage};
use crate::settings::SessionSettings;
use crate::source::{ClientSource, NoClient};
use crate::statistics::{self, Document, Statistics, StatisticsPath};
use crate::upgrade::{self, Upgrade};
use crate::websocket::Opened;

/// Maximum number of full scrapes and lists that a worker writes at the same time. Each holds about half a mebibyte
/// while it is compressed, and takes processor time from announces.
const DELIVERIES_MAX: usize = 1;

/// Maximum size of a skipped body. No request needs a body.
const BODY_BYTES_MAX: u16 = 1024;

pub(crate) struct HttpHandler {
    settings: Arc<SessionSettings>,
    counters: Arc<SessionCounters>,
    responder: Responder,
    /// Whether a connection may become a WebSocket.
    upgrades: bool,
    slots: DeliverySlots,
    /// The challenges of a certificate authority, if it issues certificates to this tracker.
    challenges: Option<Arc<Challenges>>,
    /// The last rendered public statistics.
    statistics: Arc<Statistics>,
    /// `None` if sources are not limited.
    source_capacity: Option<Box<dyn SourceCapacity>>,
    dates: Dates,
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Announce,
    Scrape,
    FullScrape(ScrapeFormat),
    Blocklist(BlocklistFormat),
    Statistics(StatisticsPath),
}

/// The next step after the requests of an input.
#[derive(Debug)]
pub(crate) enum Served {
    /// The connection waits for this.
    Wait(Next),
    /// The following bytes are WebSocket frames of this client.
    Upgrade(Opened),
}

/// The first bytes of a TLS connection: a record of a handshake (RFC 8446, 5.1).
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// How a request is answered.
enum Decision {
    /// With the end of the connection.
    Close,
    /// With success only: the reply is not made.
    Head,
    /// With this status and the body that was written.
    Answer(Status),
    /// With a full scrape for the client at this address.
    FullScrape(ScrapeFormat, IpAddr),
    /// With the published deny list for the client at this address.
    Blocklist(BlocklistFormat, Validators, IpAddr),
    /// With nothing, because the client has this version of the published deny list.
    NotModified(Validators),
    /// With statistics for the client at this address.
    Statistics(Arc<Document>, IpAddr),
    /// With an upgrade to a WebSocket for this client.
    Upgrade(Accept, Opened),
    /// With nothing: a rule drops the request, and the connection closes.
    Nothing,
}

/// The fields by which a client recognises its version of the published deny list (RFC 9110, 8.8).
struct Validators {
    etag: String,
    /// `None` in the very second of a change, after which the list might change once more.
    last_modified: Option<Date>,
}

impl HttpHandler {
    /// Creates a handler whose `responder` answers requests for the tracker. `upgrades` allows connections to become
    /// WebSockets.
    pub(crate) fn new(
        settings: Arc<SessionSettings>,
        counters: Arc<SessionCounters>,
        responder: Responder,
        upgrades: bool,
        challenges: Option<Arc<Challenges>>,
    ) -> Self {
        let slots = DeliverySlots::new(DELIVERIES_MAX);
        Self {
            settings,
            counters,
            responder,
            upgrades,
            slots,
            challenges,
            statistics: Arc::default(),
            source_capacity: None,
            dates: Dates::new(),
            body: Vec::new(),
        }
    }

    /// Replaces the settings and the policy for all later requests.
    pub(crate) fn reconfigure(&mut self, settings: Arc<SessionSettings>, policy: Arc<Policy>) {
        self.responder.set_policy(policy);
        self.settings = settings;
    }

    /// Replaces the public statistics for all later requests.
    pub(crate) fn set_statistics(&mut self, statistics: Arc<Statistics>) {
        self.statistics = statistics;
    }

    /// Sets how far the intervals of all later replies are raised.
    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.responder.set_pace(pace);
    }

    /// Sets the capacity check for sources.
    pub(crate) fn set_source_capacity(&mut self, capacity: Box<dyn SourceCapacity>) {
        self.source_capacity = Some(capacity);
    }

    /// Returns whether `source` may open a connection now, and if so, counts it.
    pub(crate) fn may_connect(&self, source: ClientSource, now: Now) -> bool {
        let ip = self.settings.proxy.limited_ip(source);
        ip.is_none_or(|ip| self.responder.limit(ip, Activity::TcpConnect, now).is_ok())
    }

    /// Returns whether `source` has earned a ban. A trusted proxy never has.
    pub(crate) fn is_banned(&self, source: ClientSource) -> bool {
        matches!(source, ClientSource::Ip(ip) if self.responder.is_banned(ip))
    }

    /// The same, and counts that the source gets no reply.
    pub(crate) fn drops_banned(&mut self, source: ClientSource) -> bool {
        matches!(source, ClientSource::Ip(ip) if self.responder.drops_banned(ip))
    }

    /// Counts bytes of `session` that are no request. Those that come through a proxy may be of any client.
    fn observe_malformed(&self, session: &Session, now: Now) {
        if let (ClientSource::Ip(ip), false) = (session.source, self.is_proxied(session)) {
            self.responder.observe_malformed(ip, now);
        }
    }

    /// Returns whether a header names the client of each request.
    fn is_proxied(&self, session: &Session) -> bool {
        self.settings.proxy.header != ClientHeader::None && session.is_trusted
    }

    /// Decides about a request of a client that has earned a ban. The connection of a proxy stays open for others.
    fn decide_banned(&mut self, session: &Session, request: &RequestHead<'_, '_>) -> Option<Decision> {
        let ip = self.client(session, request).ok().filter(|ip| self.responder.is_banned(*ip))?;
        if self.is_proxied(session) {
            self.responder.refuse(Some(ip), Refusal::Banned, &mut self.body);
            return Some(Decision::Answer(Status::Forbidden));
        }
        self.responder.drops_banned(ip);
        Some(Decision::Close)
    }

    /// Returns whether `source` may have one more connection of a kind.
    pub(crate) fn has_capacity(&self, source: ClientSource, kind: ConnectionKind) -> bool {
        match (&self.source_capacity, self.settings.proxy.limited_ip(source)) {
            (Some(capacity), Some(ip)) => capacity.has_capacity(ip, kind),
            _ => true,
        }
    }

    /// Answers the complete requests at the beginning of `input`, or continues the response in progress. Returns how
    /// many bytes were consumed, and what follows.
    pub(crate) fn serve(&mut self, call: &mut Call<'_>, input: &[u8]) -> (usize, Served) {
        let mut rest = input;
        let next = loop {
            if matches!(call.session.stage, Stage::Delivery(_)) {
                match self.deliver(call, rest) {
                    None => continue,
                    Some(next) => break next,
                }
            }
            rest = call.session.skip(rest);
            // RFC 9112, 2.2: empty lines before a request are to be ignored.
            rest = &rest[head::empty_lines_bytes(rest)..];
            if call.session.skip_bytes > 0 {
                break Next::Busy;
            }
            if rest.is_empty() {
                break Next::Idle;
            }
            if call.output.len() >= OUTPUT_BYTES_MAX {
                break Next::More;
            }
            let mut storage = HeaderStorage::new();
            let request = match RequestHead::decode(rest, &mut storage) {
                Ok(Some(request)) => request,
                Ok(None) => break Next::Busy,
                Err(error) => {
                    // Any web page can make its visitors speak TLS here.
                    if !rest.starts_with(&TLS_HANDSHAKE) {
                        self.observe_malformed(call.session, call.now);
                    }
                    let text = format!("{error}\n");
                    response::write_last(&self.counters, error.status(), &text, call.now, call.output);
                    break Next::Linger;
                }
            };
            rest = &rest[request.bytes..];
            match self.answer(call, &request, rest) {
                None => {}
                Some(Served::Wait(next)) => break next,
                Some(served) => return (input.len() - rest.len(), served),
            }
        };
        let used =
            if matches!(next, Next::Close | Next::Linger) { input.len() } else { input.len() - rest.len() };
        (used, Served::Wait(next))
    }

    pub(crate) fn trim(&mut self) {
        self.body.shrink_to(SCRATCH_BYTES);
    }

    /// Frees the slot of a delivery that was cut off.
    pub(crate) fn forget_delivery(&mut self, handle: Handle) {
        self.slots.free(handle);
    }

    /// Writes the next part of a long response. Cuts off a response that has lost its slot: without its end, the client
    /// cannot take it for complete.
    fn deliver(&mut self, call: &mut Call<'_>, rest: &[u8]) -> Option<Next> {
        let Call { session, output, .. } = call;
        let Stage::Delivery(delivery) = &mut session.stage else { return None };
        let Some(slot) = self.slots.of(session.handle) else { return Some(Next::Close) };
        let bytes_before = output.len();
        let progress = delivery.write_next(&self.responder, &mut self.body, output);
        slot.add_sent(output.len() - bytes_before);
        match progress {
            Progress::More => return Some(Next::More),
            Progress::CutOff => return Some(Next::Close),
            Progress::Complete => {}
        }
        let stays_open = delivery.keeps_alive();
        session.stage = Stage::Http;
        self.slots.free(session.handle);
        if stays_open { None } else { Some(close_mode(session, rest)) }
    }

    /// Answers a request that is followed by `rest`, or begins to. Returns what follows, unless it is another step.
    fn answer(&mut self, call: &mut Call<'_>, request: &RequestHead<'_, '_>, rest: &[u8]) -> Option<Served> {
        let skippable_bytes = skippable_bytes(request.body);
        // A body that is too long is not awaited, but the client is sending it.
        call.session.skip_bytes = skippable_bytes.unwrap_or(u16::MAX);
        let has_known_end = skippable_bytes.is_some() && !request.may_hold_back_body();
        let keep_alive = has_known_end && request.keep_alive;
        self.body.clear();
        let stays_open = match self.decide(call.session, request, call.now) {
            Decision::Close => return Some(Served::Wait(Next::Close)),
            Decision::Head => {
                // The length of a body that is not made is unknown.
                self.write_head(Status::Ok, request, false, call, (PLAIN_TEXT, &[]), Framing::Close);
                false
            }
            Decision::Answer(status) => {
                self.respond(status, request, keep_alive, call);
                keep_alive
            }
            // A long response is counted when it begins, even without its body, like an announce.
            Decision::FullScrape(format, ip) => {
                let content = Content::FullScrape(self.responder.begin_full_scrape(ip, format));
                self.begin_delivery(call, request, keep_alive, content, (PLAIN_TEXT, &[]))
            }
            Decision::Blocklist(format, validators, ip) => {
                let Some(list) = self.responder.begin_download(ip, format) else {
                    return Some(Served::Wait(Next::Close));
                };
                let fields = (format.content_type(), &*validators.fields());
                self.begin_delivery(call, request, keep_alive, Content::Blocklist(list), fields)
            }
            Decision::NotModified(validators) => {
                let fields = validators.fields();
                self.write(Status::NotModified, request, keep_alive, call, (PLAIN_TEXT, &fields));
                keep_alive
            }
            Decision::Statistics(document, ip) => {
                self.responder.count_statistics(ip, document.body.len());
                self.body.extend_from_slice(document.body.as_bytes());
                let fields = (document.content_type, &statistics::FIELDS[..]);
                self.write(Status::Ok, request, keep_alive, call, fields);
                keep_alive
            }
            Decision::Nothing => return Some(Served::Wait(Next::Close)),
            Decision::Upgrade(accept, opened) => {
                self.counters.responses.of(StatusLabel::SwitchingProtocols).increment();
                handshake::respond(&accept, call.output);
                return Some(Served::Upgrade(opened));
            }
        };
        if stays_open { None } else { Some(Served::Wait(close_mode(call.session, rest))) }
    }

    /// Begins a long response with the type and these fields. Returns whether the connection stays open for now.
    fn begin_delivery(
        &mut self,
        call: &mut Call<'_>,
        request: &RequestHead<'_, '_>,
        keep_alive: bool,
        content: Content,
        (content_type, fields): (&str, &[(&str, &str)]),
    ) -> bool {
        self.counters.responses.of(StatusLabel::Ok).increment();
        let format = DeliveryFormat::new(request, keep_alive);
        format.encode_head(content_type, fields, self.dates.at(call.now), call.output);
        if request.method == Method::Head {
            self.slots.free(call.session.handle);
            return format.keeps_alive();
        }
        call.session.stage = Stage::Delivery(Box::new(Delivery::new(content, format)));
        // The end of the delivery decides whether the connection stays open.
        true
    }

    /// Decides how to answer a request, and passes it to the engine if it is for the tracker. The engine then writes
    /// the reply to the body, which must be empty before the call.
    fn decide(&mut self, session: &Session, request: &RequestHead<'_, '_>, now: Now) -> Decision {
        let url = Url { path: request.path, query: request.query };
        self.responder.set_now(now);
        if self.responder.has_bans()
            && let Some(decision) = self.decide_banned(session, request)
        {
            return decision;
        }
        let headers = self.responder.match_headers(|| (request.host(), request.header("User-Agent").next()));
        let websocket = self.upgrades.then_some(&self.settings.websocket);
        match upgrade::decide(websocket, request, || self.client(session, request)) {
            Upgrade::NotRequested => {}
            Upgrade::Accepted(_, ip) if self.responder.drops(ip) => {
                self.counters.upgrades.of(Upgraded::Dropped).increment();
                return Decision::Nothing;
            }
            Upgrade::Accepted(_, ip)
                if self.responder.limit(ip, Activity::Request(Protocol::WebTorrent), now).is_err() =>
            {
                self.counters.upgrades.of(Upgraded::RateLimited).increment();
                self.body.extend_from_slice(response::TOO_OFTEN.as_bytes());
                return Decision::Answer(Status::TooManyRequests);
            }
            Upgrade::Accepted(accept, ip)
                if self.has_capacity(ClientSource::Ip(ip), ConnectionKind::WebSocket) =>
            {
                return match self.responder.read_socket_token(ip, url, now) {
                    Ok(token) => {
                        self.counters.upgrades.of(Upgraded::Accepted).increment();
                        Decision::Upgrade(accept, Opened { ip, token, headers })
                    }
                    Err(refusal) => {
                        self.counters.upgrades.of(Upgraded::TokenLimited).increment();
                        writeln!(self.body, "{}", refusal.message())
                            .expect("writing to a vector never fails");
                        Decision::Answer(Status::TooManyRequests)
                    }
                };
            }
            Upgrade::Accepted(..) => {
                self.counters.upgrades.of(Upgraded::Limit).increment();
                self.body.extend_from_slice(response::TOO_MANY_WEBSOCKETS.as_bytes());
                return Decision::Answer(Status::ServiceUnavailable);
            }
            Upgrade::Declined(outcome, status, text) => {
                self.counters.upgrades.of(outcome).increment();
                self.body.extend_from_slice(text.as_bytes());
                return Decision::Answer(status);
            }
            Upgrade::NoClient => {
                self.counters.upgrades.of(Upgraded::Unnamed).increment();
                self.refuse_unnamed();
                return Decision::Answer(Status::BadRequest);
            }
        }
        let route = match (request.method, self.route(request)) {
            (Method::Other, _) => return Decision::Answer(Status::MethodNotAllowed),
            _ if request.body == Body::Chunked => return Decision::Answer(Status::LengthRequired),
            _ if skippable_bytes(request.body).is_none() => return Decision::Answer(Status::ContentTooLarge),
            (_, Some(Route::Blocklist(_))) if self.responder.publication().is_none() => {
                return Decision::Answer(Status::NotFound);
            }
            (_, Some(Route::Statistics(path))) if self.statistics.find(path, request.query).is_none() => {
                return Decision::Answer(Status::NotFound);
            }
            (_, None) => {
                match self.challenges.as_ref().and_then(|challenges| challenges.http(request.path)) {
                    Some(key_authorization) => {
                        self.body.extend_from_slice(key_authorization.as_bytes());
                        return Decision::Answer(Status::Ok);
                    }
                    None => return Decision::Answer(Status::NotFound),
                }
            }
            (_, Some(route)) => route,
        };
        let Ok(ip) = self.client(session, request) else {
            self.refuse_unnamed();
            return Decision::Answer(Status::Ok);
        };
        // Statistics change nothing, and are for all.
        let is_public = matches!(route, Route::Statistics(_));
        if !is_public && !self.settings.cross_site && origin::is_cross_site(request) {
            self.responder.refuse(Some(ip), Refusal::CrossSite, &mut self.body);
            return Decision::Answer(Status::Forbidden);
        }
        match route {
            // RFC 9110, 9.2.1: HEAD is safe, so it registers no peer.
            Route::Announce if request.method == Method::Head => return Decision::Head,
            Route::Announce => self.responder.announce(ip, url, now, &mut self.body),
            Route::Scrape => self.responder.scrape(ip, url, now, &mut self.body),
            Route::FullScrape(format) => match self.responder.admit_full_scrape(ip, url, now) {
                Err(refused) => self.responder.refuse(Some(ip), refused, &mut self.body),
                Ok(()) if self.slots.take(session.handle, ip, now) => {
                    return Decision::FullScrape(format, ip);
                }
                Ok(()) => {
                    self.responder.refuse(Some(ip), Refusal::TooManyScrapes, &mut self.body);
                    return Decision::Answer(Status::ServiceUnavailable);
                }
            },
            Route::Blocklist(format) => return self.decide_download(session, request, format, ip, now),
            Route::Statistics(path) => return self.decide_statistics(path, request, ip, now),
        }
        if self.body.is_empty() { Decision::Nothing } else { Decision::Answer(Status::Ok) }
    }

    /// Returns the route of a request, by its path and by the queries of a full scrape.
    fn route(&self, request: &RequestHead<'_, '_>) -> Option<Route> {
        Some(match route(request.path)? {
            Route::Scrape if self.responder.is_full_scrape(request.query) => {
                Route::FullScrape(ScrapeFormat::Bencoded)
            }
            Route::Statistics(StatisticsPath::Page) => self
                .responder
                .opentracker_list(request.query)
                .map_or(Route::Statistics(StatisticsPath::Page), Route::FullScrape),
            route => route,
        })
    }

    fn decide_statistics(
        &mut self,
        path: StatisticsPath,
        request: &RequestHead<'_, '_>,
        ip: IpAddr,
        now: Now,
    ) -> Decision {
        if let Err(refused) = self.admit_page(Kind::Statistics, ip, now) {
            return refused;
        }
        match self.statistics.find(path, request.query) {
            Some(document) => Decision::Statistics(Arc::clone(document), ip),
            None => Decision::Answer(Status::NotFound),
        }
    }

    /// Decides whether the client at `ip` may read a page of this kind now. If not, writes the refusal and returns how
    /// it is answered.
    fn admit_page(&mut self, kind: Kind, ip: IpAddr, now: Now) -> Result<(), Decision> {
        let Err(refused) = self.responder.admit_download(ip, now) else { return Ok(()) };
        self.responder.refuse_page(ip, kind, refused, &mut self.body);
        Err(match refused.refusal {
            Refusal::Dropped => Decision::Nothing,
            Refusal::RateLimited => Decision::Answer(Status::TooManyRequests),
            _ => Decision::Answer(Status::Forbidden),
        })
    }

    fn decide_download(
        &mut self,
        session: &Session,
        request: &RequestHead<'_, '_>,
        format: BlocklistFormat,
        ip: IpAddr,
        now: Now,
    ) -> Decision {
        if let Err(refused) = self.admit_page(Kind::Blocklist, ip, now) {
            return refused;
        }
        let Some(publication) = self.responder.publication() else {
            return Decision::Answer(Status::NotFound);
        };
        let validators = Validators::new(publication, now);
        if validators.match_those_of(request) {
            return Decision::NotModified(validators);
        }
        // A request for the head alone takes no time.
        if request.method != Method::Head && !self.slots.take(session.handle, ip, now) {
            self.responder.refuse_page(ip, Kind::Blocklist, Refusal::TooManyDownloads, &mut self.body);
            return Decision::Answer(Status::ServiceUnavailable);
        }
        Decision::Blocklist(format, validators, ip)
    }

    fn respond(
        &mut self,
        status: Status,
        request: &RequestHead<'_, '_>,
        keep_alive: bool,
        call: &mut Call<'_>,
    ) {
        if self.body.is_empty() {
            let text = if status == Status::NotFound { response::NOT_FOUND } else { status.reason() };
            self.body.extend_from_slice(text.as_bytes());
        }
        self.write(status, request, keep_alive, call, (PLAIN_TEXT, response::fields(status)));
    }

    /// Writes a response with the body, its type and these fields.
    fn write(
        &mut self,
        status: Status,
        request: &RequestHead<'_, '_>,
        keep_alive: bool,
        call: &mut Call<'_>,
        (content_type, fields): (&str, &[(&str, &str)]),
    ) {
        let framing = response::length(&self.body);
        self.write_head(status, request, keep_alive, call, (content_type, fields), framing);
        if request.method != Method::Head {
            call.output.extend_from_slice(&self.body);
        }
    }

    fn write_head(
        &mut self,
        status: Status,
        request: &RequestHead<'_, '_>,
        keep_alive: bool,
        call: &mut Call<'_>,
        (content_type, fields): (&str, &[(&str, &str)]),
        framing: Framing,
    ) {
        self.counters.responses.of(status.into()).increment();
        let date = self.dates.at(call.now);
        let version = request.version;
        ResponseHead { status, version, keep_alive, content_type, framing, date, fields }.encode(call.output);
    }

    /// Writes the error for a trusted proxy that does not name its client.
    fn refuse_unnamed(&mut self) {
        self.responder.refuse(None, Refusal::ProxyWithoutClient, &mut self.body);
    }

    /// Returns the address of the client.
    fn client(&self, session: &Session, request: &RequestHead<'_, '_>) -> Result<IpAddr, NoClient> {
        match (self.settings.proxy.header, session.source) {
            (header, _) if self.is_proxied(session) => {
                self.settings.proxy.client(header, request.header(header.spelling()))
            }
            (_, ClientSource::Ip(ip)) => Ok(ip),
            (_, ClientSource::Unix | ClientSource::Unnamed) => Err(NoClient),
        }
    }
}

impl Validators {
    /// Returns the present validators of a list.
    fn new(publication: &Publication, now: Now) -> Self {
        let Publication { fields, digest, since_unix_s } = publication;
        let bits = [fields.date, fields.reference, fields.reason].map(|field| if field { '1' } else { '0' });
        let [date, reference, reason] = bits;
        Self {
            // It is weak, because the order of the torrents may differ between two responses with the same content.
            etag: format!("W/\"{digest:016x}-{date}{reference}{reason}\""),
            last_modified: (now.unix_s >= *since_unix_s).then(|| Date::from_unix_s(*since_unix_s)),
        }
    }

    fn fields(&self) -> Vec<(&str, &str)> {
        let last_modified = self.last_modified.as_ref().map(|date| ("Last-Modified", date.as_str()));
        // A cache may keep the list, but has to ask whether it is still current.
        [("ETag", &*self.etag), ("Cache-Control", "no-cache")].into_iter().chain(last_modified).collect()
    }

    /// Returns whether a client has this version (RFC 9110, 13.1). A date must equal the sent one.
    fn match_those_of(&self, request: &RequestHead<'_, '_>) -> bool {
        let mut tags = request.header("if-none-match").peekable();
        if tags.peek().is_none() {
            let date = self.last_modified.as_ref().map(Date::as_bytes);
            return request.header("if-modified-since").next().is_some_and(|since| date == Some(since));
        }
        let opaque = self.etag.trim_start_matches("W/").as_bytes();
        tags.flat_map(|tags| tags.split(|&byte| byte == b','))
            .map(<[u8]>::trim_ascii)
            .any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == opaque)
    }
}

/// Returns the length of a body, if it is short enough to be skipped.
fn skippable_bytes(body: Body) -> Option<u16> {
    match body {
        Body::None => Some(0),
        Body::Bytes(bytes) => u16::try_from(bytes).ok().filter(|bytes| *bytes <= BODY_BYTES_MAX),
        Body::Chunked => None,
    }
}

/// Returns how a connection ends after its last response.
const fn close_mode(session: &Session, rest: &[u8]) -> Next {
    // Unread input makes the kernel reset the connection, and the response may be lost with it.
    if rest.is_empty() && session.skip_bytes == 0 { Next::Close } else { Next::Linger }
}

/// Returns the route of a path, if it has one. Torrents name trackers by various paths whose last segment names the
/// request: `/announce/`, `/announce.php`, `//announce`, `/some/folder/announce`. A token may follow it.
fn route(path: &[u8]) -> Option<Route> {
    match path {
        b"/announce" => Some(Route::Announce),
        b"/scrape" => Some(Route::Scrape),
        b"/" => Some(Route::Statistics(StatisticsPath::Home)),
        b"/stats" => Some(Route::Statistics(StatisticsPath::Page)),
        b"/stats.json" => Some(Route::Statistics(StatisticsPath::Json)),
        b"/blocklist.txt" => Some(Route::Blocklist(BlocklistFormat::Text)),
        b"/blocklist.json" => Some(Route::Blocklist(BlocklistFormat::Json)),
        [b'/', segments @ ..] => {
            let end = segments.iter().rposition(|&byte| byte != b'/')? + 1;
            let mut backwards =
                segments[..end].rsplit(|&byte| byte == b'/').filter(|segment| !segment.is_empty());
            let last = backwards.next().filter(|last| !is_token(last)).or_else(|| backwards.next())?;
            match last.strip_suffix(b".php").unwrap_or(last) {
                b"announce" => Some(Route::Announce),
                b"scrape" => Some(Route::Scrape),
                _ => None,
            }
        }
        _ => None,
    }
}
