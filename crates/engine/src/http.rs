//! Answers announces and scrapes over HTTP (BEP 3, 7, 23, 24, 31, 48) by the rules of the engine.
//!
//! The input of this module is the path and query of a request and the client's address. It appends one bencoded
//! dictionary to the caller's buffer. The HTTP around it (statuses, headers, framing, the client's trusted address)
//! belongs to `shoal-session`.
//!
//! Unlike UDP, HTTP can carry peers of both families in one reply (BEP 7). A client therefore gets both, and all
//! counts are sums over both.

mod blocklist;
mod full_scrape;
mod peer_list;

use core::fmt::Write;
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use shoal_access::rules::HeaderMatch;
use shoal_access::token::Url;
use shoal_access::torrents::{Publication, TorrentLists};
use shoal_base::{Counts, InfoHash, PeerChange, Transfer};
use shoal_config::OpentrackerMode;
use shoal_store::Store;
use shoal_wire::http::query::{AnnounceQuery, QueryError, ScrapeQuery, transferred};
use shoal_wire::http::reply::{self, AnnounceReply, RetryIn, ScrapeFile, ScrapeFormat};

pub use self::blocklist::{Blocklist, BlocklistFormat};
pub use self::full_scrape::FullScrape;
use self::peer_list::PeerList;
use crate::Now;
use crate::access_log::{AnnouncedPeer, Record, saturated};
use crate::context::Context;
use crate::counter::{Family, Kind, Outcome};
use crate::limits::Activity;
use crate::pace::Pace;
use crate::policy::{Policy, Protocol, Request, ScrapeRequest, Torrents};
use crate::refusal::{Refusal, Refused};
use crate::tokens::{Shown, SocketToken};
use crate::watch::Sighting;

/// Maximum number of info hashes in the reply to a scrape. An 8 KiB request holds fewer, so clients meet that limit
/// first. Further hashes are left out; the keys of the reply show which hashes are answered.
const SCRAPE_HASHES_MAX: usize = 300;

/// Answers the HTTP requests of one worker.
#[derive(Debug)]
pub struct Responder {
    store: Arc<Store>,
    context: Context,
    /// The rule about the head of the current request.
    headers: HeaderMatch,
    /// The peers of the current reply.
    peer_list: PeerList,
    info_hashes: Vec<InfoHash>,
    error_text: String,
}

impl Responder {
    /// Creates a responder on the shared `store`.
    pub fn new(context: Context, store: impl Into<Arc<Store>>) -> Self {
        Self {
            store: store.into(),
            context,
            headers: HeaderMatch::default(),
            peer_list: PeerList::new(),
            info_hashes: Vec::with_capacity(SCRAPE_HASHES_MAX),
            error_text: String::new(),
        }
    }

    /// Sets the time at which the requests that follow are recorded.
    pub const fn set_now(&mut self, now: Now) {
        self.context.set_now(now);
    }

    /// Finds the rule about the head of the request that follows, see [`Policy::match_headers`], and returns it.
    #[inline]
    pub fn match_headers<'h>(
        &mut self,
        head: impl FnOnce() -> (Option<&'h [u8]>, Option<&'h [u8]>),
    ) -> HeaderMatch {
        self.headers = self.context.policy.match_headers(head);
        self.headers
    }

    /// Decides whether a rule drops the current request of the client at the canonical `ip`, before it has shown a peer
    /// id.
    pub fn drops(&self, ip: IpAddr) -> bool {
        self.context.policy.drops(ip, self.headers)
    }

    /// Replaces the policy for all later requests.
    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        self.context.set_policy(policy);
    }

    /// Sets how far the intervals of all later replies are raised.
    pub fn set_pace(&mut self, pace: Pace) {
        self.context.set_pace(pace);
    }

    /// Answers an announce by the client at the canonical `ip`: the client joins, refreshes or leaves the swarm of
    /// its own family. A client with addresses of both families announces from each. Writes nothing if a rule drops the
    /// announce: the connection is then to be closed.
    pub fn announce(&mut self, ip: IpAddr, url: Url<'_>, now: Now, body: &mut Vec<u8>) {
        let family = Family::of(ip);
        self.context.tally.request(family, Kind::Announce);
        let before = body.len();
        let announce = match AnnounceQuery::decode(url.query) {
            Err(error) => {
                self.observe_malformed(ip, now);
                self.fail_query(family, Kind::Announce, error, body);
                let outcome = Outcome::Refused(Refusal::BadQuery);
                return self.log(Some(ip), Kind::Announce, outcome, |_| body.len() - before);
            }
            Ok(announce) => announce,
        };
        let answered = self.answer_announce(ip, &announce, url, now, body);
        let outcome = match answered {
            Ok(_) => {
                self.context.tally.reply(family, Kind::Announce, Outcome::Ok);
                Outcome::Ok
            }
            Err(refused) => {
                self.fail(family, Kind::Announce, refused, body);
                Outcome::Refused(refused.refusal)
            }
        };
        self.log(Some(ip), Kind::Announce, outcome, |record| {
            record.info_hash = Some(announce.info_hash);
            let (event, peer_id) = (announce.event, announce.peer_id);
            record.announced = Some(AnnouncedPeer { event, port: announce.port, peer_id });
            if let Ok((counts, peers)) = answered {
                record.counts = Some([counts.seeders, counts.leechers]);
                record.peers = saturated(peers);
            }
            body.len() - before
        });
    }

    /// Answers a scrape of named torrents by the client at the canonical `ip`. Refuses a scrape of all torrents, see
    /// [`is_full_scrape`](Self::is_full_scrape). Writes nothing if a rule drops the scrape.
    pub fn scrape(&mut self, ip: IpAddr, url: Url<'_>, now: Now, body: &mut Vec<u8>) {
        let family = Family::of(ip);
        let kind = if names_torrents(url.query) { Kind::Scrape } else { Kind::FullScrape };
        self.context.tally.request(family, kind);
        let before = body.len();
        if let Err(error) = self.read_scrape(url.query) {
            self.observe_malformed(ip, now);
            self.fail_query(family, kind, error, body);
            let outcome = Outcome::Refused(Refusal::BadQuery);
            return self.log(Some(ip), kind, outcome, |_| body.len() - before);
        }
        let torrents = Torrents::Named(&self.info_hashes);
        let admitted = match kind {
            Kind::FullScrape => Err(Refusal::FullScrapeOff.into()),
            _ => {
                let (protocol, shown, headers) = (Protocol::Http, Shown::Url(url), self.headers);
                let request = ScrapeRequest { protocol, ip, torrents, shown, headers };
                self.context.policy.admit_scrape(&request, self.context.pace, now)
            }
        };
        let outcome = match admitted {
            Ok(()) => {
                self.write_scrape(&self.store, body);
                self.context.tally.reply(family, kind, Outcome::Ok);
                Outcome::Ok
            }
            Err(refused) => {
                self.fail(family, kind, refused, body);
                Outcome::Refused(refused.refusal)
            }
        };
        let (first, torrents) = (self.info_hashes.first().copied(), self.info_hashes.len());
        self.log(Some(ip), kind, outcome, |record| {
            (record.info_hash, record.torrents) = (first, saturated(torrents));
            body.len() - before
        });
    }

    /// Returns whether the query asks for all torrents and the operator publishes them. The caller then asks
    /// [`admit_full_scrape`](Self::admit_full_scrape). It answers by [`begin_full_scrape`](Self::begin_full_scrape)
    /// if the scrape is admitted, and refuses it otherwise.
    pub fn is_full_scrape(&self, query: &[u8]) -> bool {
        self.context.policy.config().http.full_scrape && !names_torrents(query)
    }

    /// Decides about a scrape of all torrents by the client at the canonical `ip`. The error says why the scrape is
    /// refused.
    pub fn admit_full_scrape(&self, ip: IpAddr, url: Url<'_>, now: Now) -> Result<(), Refused> {
        let (protocol, shown, headers) = (Protocol::Http, Shown::Url(url), self.headers);
        let request = ScrapeRequest { protocol, ip, torrents: Torrents::All, shown, headers };
        self.context.policy.admit_scrape(&request, self.context.pace, now)
    }

    /// Decides whether the client at the canonical `ip` may do something now, and if so, counts it. Fails with
    /// [`Refusal::RateLimited`] if its source does so too often.
    pub fn limit(&self, ip: IpAddr, activity: Activity, now: Now) -> Result<(), Refusal> {
        self.context.policy.limit(ip, activity, now)
    }

    /// Returns whether any source has a ban that it has earned.
    pub fn has_bans(&self) -> bool {
        self.context.policy.has_bans()
    }

    /// Returns whether the client at the canonical `ip` has earned a ban, and if so, counts that it gets no reply.
    pub fn drops_banned(&mut self, ip: IpAddr) -> bool {
        self.context.drops_banned(ip)
    }

    /// Returns whether the client at the canonical `ip` has earned a ban.
    pub fn is_banned(&self, ip: IpAddr) -> bool {
        self.context.policy.is_banned(ip)
    }

    /// Counts a request of the client at the canonical `ip` that cannot be understood.
    pub fn observe_malformed(&self, ip: IpAddr, now: Now) {
        self.context.policy.observe(ip, Sighting::Malformed, 1, now);
    }

    /// Reads the token in the request that opens a WebSocket, see [`Policy::read_socket_token`]. The error says why the
    /// client has to connect again later.
    pub fn read_socket_token(&self, ip: IpAddr, url: Url<'_>, now: Now) -> Result<SocketToken, Refusal> {
        self.context.policy.read_socket_token(ip, url, now)
    }

    /// Returns the requested format of the list of all torrents, if a query for statistics asks for the list and the
    /// operator publishes it, see [`OpentrackerMode::Tpbs`]. The caller then proceeds as after
    /// [`is_full_scrape`](Self::is_full_scrape).
    pub fn opentracker_list(&self, query: &[u8]) -> Option<ScrapeFormat> {
        let config = self.context.policy.config();
        let is_published =
            config.http.full_scrape && config.statistics.opentracker.contains(&OpentrackerMode::Tpbs);
        if is_published { full_scrape::opentracker_list(query) } else { None }
    }

    /// Begins the reply to a scrape of all torrents by the client at the canonical `ip`.
    pub fn begin_full_scrape(&mut self, ip: IpAddr, format: ScrapeFormat) -> FullScrape {
        let family = Family::of(ip);
        self.context.tally.request(family, Kind::FullScrape);
        self.context.tally.reply(family, Kind::FullScrape, Outcome::Ok);
        self.log(Some(ip), Kind::FullScrape, Outcome::Ok, |_| 0);
        FullScrape::new(format)
    }

    /// Returns the published form of the deny list, if it is published.
    pub fn publication(&self) -> Option<&Publication> {
        self.torrent_lists()?.publication()
    }

    /// Decides whether the client at the canonical `ip` may download the published deny list or statistics. The error
    /// says why the download is refused.
    pub fn admit_download(&self, ip: IpAddr, now: Now) -> Result<(), Refused> {
        self.context.policy.admit_download(ip, self.headers, now)
    }

    /// Begins the published deny list for the client at the canonical `ip`, if it is published.
    pub fn begin_download(&mut self, ip: IpAddr, format: BlocklistFormat) -> Option<Blocklist> {
        let list = Blocklist::new(self.torrent_lists()?, format)?;
        self.context.tally.request(Family::of(ip), Kind::Blocklist);
        self.context.tally.reply(Family::of(ip), Kind::Blocklist, Outcome::Ok);
        self.log(Some(ip), Kind::Blocklist, Outcome::Ok, |_| 0);
        Some(list)
    }

    /// Counts a reply of public statistics to the client at the canonical `ip`.
    pub fn count_statistics(&mut self, ip: IpAddr, bytes: usize) {
        self.context.tally.request(Family::of(ip), Kind::Statistics);
        self.context.tally.reply(Family::of(ip), Kind::Statistics, Outcome::Ok);
        self.log(Some(ip), Kind::Statistics, Outcome::Ok, |_| bytes);
    }

    /// Refuses a request that a person made, with a text for people. Writes nothing if a rule drops the request.
    pub fn refuse_page(&mut self, ip: IpAddr, kind: Kind, refused: impl Into<Refused>, body: &mut Vec<u8>) {
        let (refused, family) = (refused.into(), Family::of(ip));
        let refusal = refused.refusal;
        self.context.tally.request(family, kind);
        let before = body.len();
        self.context.tally.reply(family, kind, Outcome::Refused(refusal));
        if refusal != Refusal::Dropped {
            body.extend_from_slice(self.context.policy.message(refused).as_bytes());
            body.push(b'\n');
        }
        self.log(Some(ip), kind, Outcome::Refused(refusal), |_| body.len() - before);
    }

    fn torrent_lists(&self) -> Option<&TorrentLists> {
        self.context.policy.access()?.torrents.as_deref()
    }

    /// Refuses a request for a reason outside of its query. A client with an unknown address counts as IPv4.
    pub fn refuse(&mut self, ip: Option<IpAddr>, refused: impl Into<Refused>, body: &mut Vec<u8>) {
        let refused = refused.into();
        let refusal = refused.refusal;
        let family = ip.map_or(Family::V4, Family::of);
        let kind = match refusal {
            Refusal::FullScrapeOff | Refusal::TooManyScrapes => Kind::FullScrape,
            _ => Kind::Other,
        };
        self.context.tally.request(family, kind);
        let before = body.len();
        self.fail(family, kind, refused, body);
        self.log(ip, kind, Outcome::Refused(refusal), |_| body.len() - before);
    }

    /// Answers an announce. Returns the counts and the number of peers in the reply.
    fn answer_announce(
        &mut self,
        ip: IpAddr,
        announce: &AnnounceQuery,
        url: Url<'_>,
        now: Now,
        body: &mut Vec<u8>,
    ) -> Result<(Counts, usize), Refused> {
        let request = Request {
            peer_id: announce.peer_id.as_ref(),
            port: Some(announce.port),
            event: announce.event,
            left_bytes: announce.left_bytes.and_then(|left| i64::try_from(left).ok()),
            numwant: announce.numwant,
            shown: Shown::Url(url),
            drawn: self.context.gate.draw(),
            headers: self.headers,
            ..Request::new(Protocol::Http, ip, &announce.info_hash)
        };
        let decision = self.context.policy.admit(&request, now)?;
        let address = SocketAddr::new(ip, announce.port);
        let (peer_list, info_hash) = (&mut self.peer_list, &announce.info_hash);
        let context = &mut self.context;
        let given =
            peer_list.announce(&self.store, info_hash, decision, &mut context.caller(&address, now))?;
        if let Some(recorder) = &mut context.recorder {
            recorder.record(given.change, decision.action, info_hash, (ip, announce.port));
        }
        if let Some(credit) = &mut context.credit {
            let [uploaded, downloaded] = transferred(url.query);
            let transfer = Transfer { uploaded, downloaded, left: announce.left_bytes };
            credit.record(&context.policy, &request, transfer, now);
        }
        let peer = announce.peer_id.as_ref().map(|peer_id| (info_hash, announce.port, peer_id));
        let has_joined = given.change == PeerChange::Joined;
        context.observe_announce(ip, Sighting::Announce { has_joined, peer }, request.drawn, now);
        if context.sampler.is_due() {
            context.sampler.take(info_hash, announce.peer_id.as_ref(), given.counts);
        }
        let interval_s = context.ruled_interval_s(decision.interval_s);
        let reply = AnnounceReply {
            complete: given.counts.seeders,
            downloaded: given.counts.completed,
            incomplete: given.counts.leechers,
            interval_s,
            min_interval_s: context.policy.min_interval_s(Protocol::Http, context.pace, interval_s),
            external_ip: Some(ip),
            peers_v4: given.peers_v4,
            peers_v6: given.peers_v6,
            form: announce.form,
            warning: None,
            tracker_id: None,
        };
        reply.encode(body);
        Ok((given.counts, given.peers_v4.len() + given.peers_v6.len()))
    }

    /// Reads the torrents of a scrape, in ascending order and without duplicates, as the keys of a dictionary must
    /// be.
    fn read_scrape(&mut self, query: &[u8]) -> Result<(), QueryError> {
        self.info_hashes.clear();
        for info_hash in ScrapeQuery::new(query).take(SCRAPE_HASHES_MAX) {
            self.info_hashes.push(info_hash?);
        }
        self.info_hashes.sort_unstable();
        self.info_hashes.dedup();
        Ok(())
    }

    /// Writes the reply to a scrape. Torrents without peers get zeros: libtorrent takes a missing entry as a broken
    /// reply, and BEP 48 does not say that an entry may be missing.
    fn write_scrape(&self, store: &Store, body: &mut Vec<u8>) {
        let (v4, v6) = (&store.v4, &store.v6);
        for info_hash in &self.info_hashes {
            let place = v4.locate(info_hash);
            v4.prefetch_swarm(&place);
            v6.prefetch_swarm(&place);
        }
        reply::scrape_begin(body);
        for info_hash in &self.info_hashes {
            let place = v4.locate(info_hash);
            reply::scrape_file(*info_hash, scrape_file(v4.scrape(&place).plus(v6.scrape(&place))), body);
        }
        reply::scrape_end(None, body);
    }

    /// Records a request of the client at `ip`, if known. `describe` adds details, and returns the size of the reply
    /// in bytes.
    fn log(
        &mut self,
        ip: Option<IpAddr>,
        kind: Kind,
        outcome: Outcome,
        describe: impl FnOnce(&mut Record) -> usize,
    ) {
        self.context.log(ip, kind, outcome, |record| record.reply_bytes = saturated(describe(record)));
    }

    fn fail_query(&mut self, family: Family, kind: Kind, error: QueryError, body: &mut Vec<u8>) {
        self.error_text.clear();
        write!(self.error_text, "{error}").expect("writing to a string never fails");
        reply::failure(&self.error_text, None, body);
        self.context.tally.reply(family, kind, Outcome::Refused(Refusal::BadQuery));
    }

    fn fail(&mut self, family: Family, kind: Kind, refused: impl Into<Refused>, body: &mut Vec<u8>) {
        let refused = refused.into();
        let refusal = refused.refusal;
        if refusal != Refusal::Dropped {
            let retry_in = self.context.policy.retry_in_minutes(refused).map(RetryIn::Minutes);
            reply::failure(self.context.policy.message(refused), retry_in, body);
        }
        self.context.tally.reply(family, kind, Outcome::Refused(refusal));
    }
}

fn names_torrents(query: &[u8]) -> bool {
    ScrapeQuery::new(query).next().is_some()
}

const fn scrape_file(counts: Counts) -> ScrapeFile {
    ScrapeFile { complete: counts.seeders, downloaded: counts.completed, incomplete: counts.leechers }
}
