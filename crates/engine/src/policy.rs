//! Admission: the one decision about announces and scrapes, for all protocols.
//!
//! A front end states a request as a [`Request`] or a [`ScrapeRequest`], independently of its encoding. The
//! [`Policy`] decides whether the request is served, in which role and for how many peers, and when the client should
//! announce again. A rule about clients, torrents or peer ids belongs here, and then holds for every protocol.
//!
//! The decision comes before any access to a swarm, and allocates nothing. Afterwards the store may still refuse a
//! peer, for lack of memory. A policy is immutable and shared by all workers. Limits that count requests keep their
//! counts outside of it, as atomics.
//!
//! A client at port 0 receives peers of the swarm but is not registered: it accepts no connections but makes some.
//! The claimed address (`ip`) is never part of a request.

mod gate;
mod terms;

use core::net::IpAddr;
use std::sync::Arc;

use shoal_access::Access;
use shoal_access::networks::{Answer, NetworkTable};
use shoal_access::ports::PortSet;
use shoal_access::rules::{HeaderMatch, Verdict};
use shoal_access::token::Url;
use shoal_base::metrics::labels;
use shoal_base::{Action, Event, InfoHash, PeerId};
use shoal_config::{Auto, Config, PrivateAddresses};
use shoal_store::PrivateNetwork;

use crate::limits::{self, Activity, Limits, SourceRates};
use crate::pace::{Overload, Pace};
use crate::refusal::{Refusal, Refused, Words};
use crate::suspension::Suspension;
use crate::tokens::{Shown, SocketToken, Tokens};
use crate::watch::{Sighting, Watch};
use crate::{Now, address};

pub use gate::Gate;
pub use terms::Interval;

labels! {
    /// The protocol of a request, with or without TLS.
    pub enum Protocol {
        /// The UDP tracker protocol (BEP 15).
        Udp = "udp",
        /// Announces and scrapes over HTTP (BEP 3).
        Http = "http",
        /// Messages over WebSockets.
        WebTorrent = "webtorrent",
    }
}

/// The operator's rules.
#[derive(Clone, Debug)]
pub struct Policy {
    config: Config,
    private_addresses: PrivateAddresses,
    /// Whether announces are subject to limits and addresses alone, as by default. One branch then stands for all other rules.
    is_plain: bool,
    /// Whether all addresses of the tracker itself are private.
    is_host_private: bool,
    access: Option<Arc<Access>>,
    /// Whether the lists permit every torrent that has a swarm in the store.
    permits_swarms: bool,
    /// Whether announces over UDP are looked at again before they are applied.
    looks_again: bool,
    /// Whether a rule or a limit may be about requests for connection ids.
    checks_connects: bool,
    /// The parts of the service that are suspended, if there are any.
    suspension: Option<Arc<Suspension>>,
    limits: Option<Limits>,
    tokens: Option<Arc<Tokens>>,
    /// Serves the networks whose peers have no limits, if there are any.
    exempt: Option<Arc<NetworkTable>>,
    /// The rules about what earns a ban, if anything does.
    watch: Option<Arc<Watch>>,
}

/// An announce, in terms that all protocols share.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The protocol.
    pub protocol: Protocol,
    /// The address that the request came from, which is canonical (no v4-mapped v6 address).
    pub ip: IpAddr,
    /// The torrent.
    pub info_hash: &'r InfoHash,
    /// The peer id. Clients may omit it over HTTP.
    pub peer_id: Option<&'r PeerId>,
    /// The port on which the client accepts peers; 0 if it accepts none. `None` if peers reach it through the tracker
    /// (WebTorrent).
    pub port: Option<u16>,
    /// The event.
    pub event: Event,
    /// The number of bytes that the client still needs, if it sends one. Clients that do not know it send negative or
    /// huge numbers.
    pub left_bytes: Option<i64>,
    /// The number of peers that the client wants, if it sends one. A negative number leaves it to the tracker.
    pub numwant: Option<i64>,
    /// The part of the request that may hold a token.
    pub shown: Shown<'r>,
    /// The rule about the head of the request, see [`Policy::match_headers`].
    pub headers: HeaderMatch,
    /// Whether the front end calls [`Policy::check_torrent`] itself if the torrent has no swarm, provided that the
    /// policy [permits all swarms](Policy::permits_swarms). The front end looks for the swarm anyway, which saves
    /// most look-ups in lists.
    pub is_torrent_checked_later: bool,
    /// The number of requests for which this one counts towards limits, as the [`Gate`] of the front end has drawn it.
    pub drawn: u32,
}

impl<'r> Request<'r> {
    /// Returns a regular update with no optional field. A front end sets the fields of its protocol, so that a new
    /// field concerns only the protocols that send it.
    pub fn new(protocol: Protocol, ip: IpAddr, info_hash: &'r InfoHash) -> Self {
        let (event, shown, headers) = (Event::Update, Shown::Nothing, HeaderMatch::default());
        Self {
            protocol,
            ip,
            info_hash,
            peer_id: None,
            port: None,
            event,
            left_bytes: None,
            numwant: None,
            shown,
            headers,
            is_torrent_checked_later: false,
            drawn: 1,
        }
    }
}

/// A scrape, in terms that all protocols share.
#[derive(Clone, Copy, Debug)]
pub struct ScrapeRequest<'r> {
    /// The protocol.
    pub protocol: Protocol,
    /// The canonical address that the request came from.
    pub ip: IpAddr,
    /// The torrents.
    pub torrents: Torrents<'r>,
    /// The part of the request that may hold a token.
    pub shown: Shown<'r>,
    /// The rule about the head of the request.
    pub headers: HeaderMatch,
}

/// The parts of a request that rules are about.
#[derive(Clone, Copy)]
struct Said<'r> {
    ip: IpAddr,
    headers: HeaderMatch,
    peer_id: Option<&'r PeerId>,
}

/// The torrents of a scrape.
#[derive(Clone, Copy, Debug)]
pub enum Torrents<'r> {
    /// The torrents with these info hashes.
    Named(&'r [InfoHash]),
    /// All torrents of the tracker.
    All,
}

/// How an admitted announce is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The action of the announcing peer on its swarm.
    pub action: Action,
    /// Maximum number of peers in the reply. Over WebTorrent, maximum number of offers to relay.
    pub peers_wanted: usize,
    /// Whether the peer enters the swarm. A peer that accepts no connections can still open some. It gets peers and
    /// counts but enters no swarm, because no peer could reach it.
    pub registers: bool,
    /// The interval of a rule in seconds, in place of the usual one.
    pub interval_s: Option<u32>,
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl Policy {
    /// Creates the policy of a configuration, without lists.
    pub fn new(config: Config) -> Self {
        let exempt = limits::exempt(&config.limits);
        Self {
            private_addresses: private_addresses(&config, false),
            is_plain: false,
            is_host_private: false,
            config,
            access: None,
            permits_swarms: false,
            looks_again: false,
            checks_connects: false,
            suspension: None,
            limits: None,
            tokens: None,
            exempt,
            watch: None,
        }
        .settled()
    }

    /// Returns the policy after a change of its rules.
    fn settled(self) -> Self {
        let is_plain = self.access.is_none()
            && self.suspension.is_none()
            && self.tokens.is_none()
            && self.private_addresses != PrivateAddresses::Refuse;
        let looks_again =
            self.permits_swarms || self.watch.as_ref().is_some_and(|watch| watch.looks_at_all());
        let is_limited = self.limits.as_ref().is_some_and(|limits| limits.has(Activity::UdpConnect));
        let checks_connects = self.access.is_some() || is_limited;
        Self { is_plain, looks_again, checks_connects, ..self }
    }

    /// Returns the policy of a tracker whose own addresses are all private, or are not. `address.private` may follow from it.
    #[must_use]
    pub fn with_private_host(self, is_host_private: bool) -> Self {
        let private_addresses = private_addresses(&self.config, is_host_private);
        Self { private_addresses, is_host_private, ..self }.settled()
    }

    /// Returns whether all addresses of the tracker itself are private.
    pub const fn is_host_private(&self) -> bool {
        self.is_host_private
    }

    /// Returns how clients with private addresses are served.
    pub const fn private_addresses(&self) -> PrivateAddresses {
        self.private_addresses
    }

    /// Returns the policy with draining on or off. While draining, it refuses all announces except those of leaving
    /// clients.
    #[must_use]
    pub fn with_draining(self, is_draining: bool) -> Self {
        self.suspend(|suspension| suspension.is_draining = is_draining)
    }

    /// Returns the policy with a change of what is out of service.
    #[must_use]
    pub fn suspend(self, change: impl FnOnce(&mut Suspension)) -> Self {
        let mut suspension = self.suspension.as_deref().cloned().unwrap_or_default();
        change(&mut suspension);
        Self { suspension: (!suspension.is_empty()).then(|| Arc::new(suspension)), ..self }.settled()
    }

    /// Returns the policy with the same out of service as in another one.
    #[must_use]
    pub fn with_suspension_of(self, other: &Self) -> Self {
        Self { suspension: other.suspension.clone(), ..self }.settled()
    }

    /// Returns what is out of service, if anything is.
    pub fn suspension(&self) -> Option<&Suspension> {
        self.suspension.as_deref()
    }

    /// Returns the policy with other lists.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        Self { access: (!access.is_empty()).then(|| Arc::new(access)), permits_swarms: false, ..self }
            .settled()
    }

    /// Returns a policy that asks the lists only about torrents without a swarm. The caller has removed the swarms of
    /// all forbidden torrents from the store, and no other policy can bring one back.
    #[must_use]
    pub fn with_permitted_swarms(self) -> Self {
        let has_lists = self.access.as_ref().is_some_and(|access| access.torrents.is_some());
        Self { permits_swarms: has_lists, ..self }.settled()
    }

    /// Returns whether the lists are only asked about torrents without a swarm, for requests that [say
    /// so](Request::is_torrent_checked_later).
    #[inline]
    pub const fn permits_swarms(&self) -> bool {
        self.permits_swarms
    }

    /// Returns whether each announce over UDP is looked at again before it is applied: lists are asked about new torrents, or
    /// all announces are looked at for bans.
    #[inline]
    pub(crate) const fn looks_again(&self) -> bool {
        self.looks_again
    }

    /// Decides about a request for a connection id, and if it gets one, counts it. Otherwise it gets no reply: an error would be
    /// larger than the request.
    #[inline]
    pub(crate) fn admit_connect(&self, ip: IpAddr, now: Now) -> Result<(), Refusal> {
        if self.checks_connects { self.check_connect(ip, now) } else { Ok(()) }
    }

    #[inline(never)]
    fn check_connect(&self, ip: IpAddr, now: Now) -> Result<(), Refusal> {
        if self.drops(ip, HeaderMatch::default()) {
            return Err(Refusal::Dropped);
        }
        self.limit(ip, Activity::UdpConnect, now)
    }

    /// Returns the lists, if there are any.
    pub fn access(&self) -> Option<&Access> {
        self.access.as_deref()
    }

    /// Returns the text of a refusal for the client to show: the operator's own words, if any.
    pub fn message(&self, refused: Refused) -> &str {
        let words = refused.reason.and_then(|words| match words {
            Words::Rule(reason) => self.access()?.reason(reason),
            Words::Pause(part) => self.suspension()?.pause(part).map(|pause| pause.message()),
        });
        words.unwrap_or(refused.refusal.message())
    }

    /// Returns the number of minutes after which a refused client should try again, if time alone may change the answer.
    pub fn retry_in_minutes(&self, refused: Refused) -> Option<u32> {
        match refused.reason {
            Some(Words::Pause(part)) => self.suspension()?.pause(part).map(|pause| pause.retry_in_minutes),
            _ => refused.refusal.retry_in_minutes(),
        }
    }

    /// Returns the policy with these limits of sources.
    #[must_use]
    pub fn with_limits(self, limits: Option<Limits>) -> Self {
        Self { limits, ..self }.settled()
    }

    /// Returns the private network of a client at a canonical address, if the peers of such networks are kept apart.
    #[inline]
    pub fn network_apart(&self, ip: IpAddr) -> Option<PrivateNetwork> {
        if self.private_addresses == PrivateAddresses::Apart { address::private_network(ip) } else { None }
    }

    /// Returns whether the peers of a client at a canonical address have no limits.
    pub fn is_exempt(&self, ip: IpAddr) -> bool {
        self.exempt.as_ref().is_some_and(|exempt| exempt.serves(ip))
    }

    /// Returns the limits of sources, if there are any.
    #[inline]
    pub const fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }

    /// Returns the recent activity of the sources, if any rule depends on it.
    pub fn sources(&self) -> Option<&Arc<SourceRates>> {
        let of_tokens = || self.tokens().map(Tokens::sources);
        let of_watch = || self.watch().map(Watch::sources);
        self.limits().map(Limits::sources).or_else(of_tokens).or_else(of_watch)
    }

    /// Returns the policy with these rules about what earns a ban.
    #[must_use]
    pub fn with_watch(self, watch: Option<Watch>) -> Self {
        Self { watch: watch.map(Arc::new), ..self }.settled()
    }

    /// Returns the rules about what earns a ban, if anything does.
    pub fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    /// Counts what the client at a canonical address does, if it may earn a ban. The client must have proved its address.
    pub fn observe(&self, ip: IpAddr, sighting: Sighting<'_>, weight: u32, now: Now) {
        if let Some(watch) = &self.watch {
            watch.observe(ip, sighting, weight, now);
        }
    }

    /// Returns whether any source has a ban that it has earned.
    #[inline]
    pub fn has_bans(&self) -> bool {
        self.access.as_ref().is_some_and(|access| access.bans.is_some())
    }

    /// Returns whether the client at a canonical address has earned a ban. It gets no reply then.
    #[inline]
    pub fn is_banned(&self, ip: IpAddr) -> bool {
        match self.access.as_ref().and_then(|access| access.bans.as_ref()) {
            None => false,
            Some(bans) => !bans.serves(ip),
        }
    }

    /// Returns the policy with these rules about tokens.
    #[must_use]
    pub fn with_tokens(self, tokens: Option<Tokens>) -> Self {
        Self { tokens: tokens.map(Arc::new), ..self }.settled()
    }

    /// Returns the rules about tokens, if there are any.
    pub fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_deref()
    }

    /// Reads the token in the request that opens a WebSocket, for a client at a canonical address. The error says why
    /// the client has to connect again later. Its announces report any other fault of the token.
    pub fn read_socket_token(&self, ip: IpAddr, url: Url<'_>, now: Now) -> Result<SocketToken, Refusal> {
        self.tokens
            .as_ref()
            .map_or_else(|| Ok(SocketToken::default()), |tokens| tokens.read_socket(url, ip, now))
    }

    /// Verifies the refused token of a WebSocket again if it may be good by now: its key was unknown, it was not
    /// valid yet, or the rules have changed. Does so at most once a second.
    pub fn refresh_socket_token(&self, token: &mut SocketToken, ip: IpAddr, now: Now) {
        if let Some(tokens) = self.tokens() {
            tokens.refresh_socket(token, ip, now);
        }
    }

    /// Returns whether a WebSocket began with a token that has expired since, or whose key was removed.
    pub(crate) fn is_spent(&self, token: &SocketToken, now: Now) -> bool {
        self.tokens().is_some_and(|tokens| tokens.is_spent(token, now))
    }

    /// Decides whether the client at a canonical address may do something now, and if so, counts it. Fails with
    /// [`Refusal::RateLimited`] if its source does so too often.
    #[inline]
    pub fn limit(&self, ip: IpAddr, activity: Activity, now: Now) -> Result<(), Refusal> {
        match &self.limits {
            Some(limits) if limits.has(activity) && !limits.admit(ip, activity, 1, now) => {
                self.observe_excess(limits, ip, activity, 1, now);
                Err(Refusal::RateLimited)
            }
            _ => Ok(()),
        }
    }

    /// Counts what a client does beyond a limit, unless its address may be forged.
    #[cold]
    fn observe_excess(&self, limits: &Limits, ip: IpAddr, activity: Activity, weight: u32, now: Now) {
        if let Some(rate) = limits.rate(activity).filter(|_| activity != Activity::UdpConnect) {
            self.observe(ip, Sighting::OverLimit(rate), weight, now);
        }
    }

    /// Counts a token that was refused, if its signature was wrong.
    #[cold]
    fn observe_token(&self, refusal: Refusal, ip: IpAddr, now: Now) {
        // A source that is limited may show good tokens.
        if refusal == Refusal::TokenBadSignature {
            self.observe(ip, Sighting::BadToken, 1, now);
        }
    }

    /// Returns the configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether an announce from an address that can be answered passes by itself: no rule applies, it was not drawn,
    /// and it does not count towards limits. Most announces do. [`decide`](Self::decide) then needs few of their fields, which
    /// stay in registers; a [`Request`] would put all of them on the stack.
    #[inline]
    pub(crate) fn passes(&self, ip: IpAddr, protocol: Protocol, drawn: u32, now: Now) -> bool {
        self.is_plain && drawn == 0 && self.weight(ip, protocol, drawn, now) == 0
    }

    /// Returns how an announce is served that no rule changes.
    #[inline]
    pub(crate) fn decide(
        &self,
        protocol: Protocol,
        (event, left_bytes): (Event, Option<i64>),
        port: Option<u16>,
        numwant: Option<i64>,
    ) -> Decision {
        let (action, interval_s) = (action(event, left_bytes), None);
        if action == Action::Stop {
            return Decision { action, peers_wanted: 0, registers: true, interval_s };
        }
        let peers_wanted = self.peers_wanted(protocol, numwant);
        Decision { action, peers_wanted, registers: port != Some(0), interval_s }
    }

    /// Decides about an announce. The error says why the client may not enter the swarm. A leaving client needs no
    /// token, and may have any peer id, any port, and any address outside of networks that are not served.
    pub fn admit(&self, request: &Request<'_>, now: Now) -> Result<Decision, Refused> {
        let said = Said { ip: request.ip, headers: request.headers, peer_id: request.peer_id };
        let interval_s = self.receive(said, request.protocol, request.drawn, now)?;
        let Request { protocol, event, left_bytes, port, numwant, .. } = *request;
        let decision = Decision { interval_s, ..self.decide(protocol, (event, left_bytes), port, numwant) };
        if decision.action == Action::Stop {
            return Ok(decision);
        }
        if address::is_nowhere(request.ip) {
            return Err(Refusal::UnusableAddress.into());
        }
        let may_register = self.is_plain || self.apply_rules(request, now)?;
        Ok(Decision { registers: may_register && decision.registers, ..decision })
    }

    /// Applies the rules of the operator to an announce. Returns whether its peer may be handed out. Not inlined, so that
    /// trackers without rules pay nothing for it.
    #[inline(never)]
    fn apply_rules(&self, request: &Request<'_>, now: Now) -> Result<bool, Refused> {
        if let Some(suspension) = &self.suspension {
            suspension.check_announce(request.protocol, request.ip)?;
        }
        address::check(request.ip, self.private_addresses)?;
        let mut may_register = true;
        if let Some(access) = &self.access {
            may_register = apply_rules(access, request)?;
            if !(self.permits_swarms && request.is_torrent_checked_later) {
                check_access(access, request.info_hash)?;
            }
        }
        // A signature costs more than all other rules.
        if let Some(tokens) = &self.tokens
            && let Err(refusal) = tokens.check(request.shown, request.ip, request.info_hash, now)
        {
            self.observe_token(refusal, request.ip, now);
            return Err(refusal.into());
        }
        Ok(may_register)
    }

    /// Decides whether a request is served at all. Returns the interval of a rule in seconds, if one applies. The request
    /// counts as often as `drawn` says, or once if its source is counted exactly.
    #[inline]
    fn receive(
        &self,
        said: Said<'_>,
        protocol: Protocol,
        drawn: u32,
        now: Now,
    ) -> Result<Option<u32>, Refused> {
        let interval_s = match &self.access {
            Some(access) if !self.is_plain => self.apply_request_rules(access, said)?,
            _ => None,
        };
        let weight = self.weight(said.ip, protocol, drawn, now);
        if weight > 0 {
            self.count(said.ip, protocol, weight, now)?;
        }
        Ok(interval_s)
    }

    /// Returns the number of requests for which a request counts towards limits.
    #[inline]
    fn weight(&self, ip: IpAddr, protocol: Protocol, drawn: u32, now: Now) -> u32 {
        self.limits.as_ref().map_or(0, |limits| limits.weight(ip, protocol, drawn, now))
    }

    /// Counts a request of a source for `weight` requests. Only these requests pass the rules that count. Not inlined, since
    /// few requests do.
    #[inline(never)]
    fn count(&self, ip: IpAddr, protocol: Protocol, weight: u32, now: Now) -> Result<(), Refusal> {
        match &self.limits {
            Some(limits) if !limits.admit(ip, Activity::Request(protocol), weight, now) => {
                self.observe_excess(limits, ip, Activity::Request(protocol), weight, now);
                Err(Refusal::RateLimited)
            }
            _ => Ok(()),
        }
    }

    /// Applies the lists of networks and the rules about what requests say. Not inlined, so that trackers without any pay
    /// nothing for them.
    #[inline(never)]
    fn apply_request_rules(&self, access: &Access, said: Said<'_>) -> Result<Option<u32>, Refused> {
        let answer = answer(access, said.ip);
        if answer == Answer::Denied {
            return Err(Refusal::NetworkDenied.into());
        }
        let Some(rules) = &access.rules else { return Ok(None) };
        match rules.judge(answer, said.headers, said.peer_id, || self.is_exempt(said.ip)) {
            Verdict::Served(interval_s) => Ok(interval_s),
            Verdict::Refused(by, reason) => {
                Err(Refused { refusal: by.into(), reason: reason.map(Words::Rule) })
            }
            Verdict::Dropped => Err(Refusal::Dropped.into()),
        }
    }

    /// Finds the rule about a request over HTTP, if any is about a part of its head. `head` returns its host and its
    /// User-Agent, and is only called if rules are about these.
    #[inline]
    pub fn match_headers<'h>(
        &self,
        head: impl FnOnce() -> (Option<&'h [u8]>, Option<&'h [u8]>),
    ) -> HeaderMatch {
        match self.access().and_then(|access| access.rules.as_deref()) {
            Some(rules) if rules.reads_headers() => {
                let (host, user_agent) = head();
                rules.match_headers(host, user_agent)
            }
            _ => HeaderMatch::default(),
        }
    }

    /// Returns the interval of the rule about an admitted announce over UDP, in seconds.
    pub(crate) fn rule_interval_s(&self, ip: IpAddr, peer_id: &PeerId) -> Option<u32> {
        let access = self.access()?;
        access.rules.as_ref()?.interval_s(answer(access, ip), peer_id)
    }

    /// Returns whether a rule drops everything from a canonical address, before it has shown a peer id. `headers` is
    /// the rule about the head of its request.
    pub fn drops(&self, ip: IpAddr, headers: HeaderMatch) -> bool {
        let Some(access) = &self.access else { return false };
        let rules = access.rules.as_ref();
        rules.is_some_and(|rules| rules.drops(answer(access, ip), headers, || self.is_exempt(ip)))
    }

    /// Decides whether a torrent is served to any client. The error says why it is not.
    pub fn check_torrent(&self, info_hash: &InfoHash) -> Result<(), Refused> {
        self.access.as_ref().map_or(Ok(()), |access| check_access(access, info_hash))
    }

    /// Checks the lists for the torrent and the network of a peer that another process has admitted. The error says why
    /// the client may no longer enter the swarm.
    pub(crate) fn check_lists(&self, ip: IpAddr, info_hash: &InfoHash) -> Result<(), Refused> {
        self.check_network(ip)?;
        self.check_torrent(info_hash)
    }

    /// Returns whether neither a list nor a rule refuses the network of a canonical address.
    pub fn serves_network(&self, ip: IpAddr) -> bool {
        self.check_network(ip).is_ok()
    }

    /// Checks the lists and the rules for the network of a peer at a canonical address.
    #[inline(never)]
    pub(crate) fn check_network(&self, ip: IpAddr) -> Result<(), Refusal> {
        let Some(access) = &self.access else { return Ok(()) };
        let answer = answer(access, ip);
        let is_refused = || access.rules.as_ref().is_some_and(|rules| rules.refuses_network(answer));
        if answer == Answer::Denied || (is_refused() && !self.is_exempt(ip)) {
            return Err(Refusal::NetworkDenied);
        }
        Ok(())
    }

    /// Decides about a scrape at the pace of the worker. Torrents that are not served have no swarm, so their counts
    /// are zeros without a rule. The error says why the client may not know the counts. Only HTTP can carry the counts
    /// of all torrents.
    pub fn admit_scrape(&self, request: &ScrapeRequest<'_>, pace: Pace, now: Now) -> Result<(), Refused> {
        let said = Said { ip: request.ip, headers: request.headers, peer_id: None };
        self.receive(said, request.protocol, 1, now)?;
        if let Some(suspension) = &self.suspension {
            suspension.check(request.protocol, request.ip)?;
        }
        let shed_from = match (request.torrents, request.protocol) {
            (Torrents::Named(_), _) => Overload::Scrapes,
            (Torrents::All, Protocol::Http) if self.config.http.full_scrape => Overload::FullScrapes,
            (Torrents::All, _) => return Err(Refusal::FullScrapeOff.into()),
        };
        if pace.overload() >= shed_from {
            return Err(Refusal::Overloaded.into());
        }
        if let Some(tokens) = &self.tokens
            && let Err(refusal) = tokens.check_scrape(request.shown, request.ip, request.torrents, now)
        {
            self.observe_token(refusal, request.ip, now);
            return Err(refusal.into());
        }
        Ok(())
    }

    /// Decides about a download of the published deny list. The error says why the client may not have it.
    pub fn admit_download(&self, ip: IpAddr, headers: HeaderMatch, now: Now) -> Result<(), Refused> {
        self.receive(Said { ip, headers, peer_id: None }, Protocol::Http, 1, now)?;
        Ok(())
    }
}

/// Returns how clients with private addresses are served.
fn private_addresses(config: &Config, is_host_private: bool) -> PrivateAddresses {
    match config.address.private {
        Auto::Set(private) => private,
        Auto::Auto if is_host_private => PrivateAddresses::Serve,
        Auto::Auto => PrivateAddresses::Apart,
    }
}

/// Applies the operator's rules about clients and ports to an announce. Returns whether its peer may be handed out.
fn apply_rules(access: &Access, request: &Request<'_>) -> Result<bool, Refused> {
    if let Some(clients) = &access.clients {
        let checked = clients.check(request.peer_id);
        checked
            .map_err(|reason| Refused { refusal: Refusal::ClientDenied, reason: reason.map(Words::Rule) })?;
    }
    let is_denied = |ports: &PortSet| request.port.is_some_and(|port| ports.contains(port));
    Ok(!access.ports_deny.as_deref().is_some_and(is_denied))
}

/// Looks an address up in the table of networks. Not inlined either.
#[inline(never)]
fn answer(access: &Access, ip: IpAddr) -> Answer {
    access.networks.as_ref().map_or(Answer::Served, |networks| networks.answer(ip))
}

fn check_access(access: &Access, info_hash: &InfoHash) -> Result<(), Refused> {
    if let Some(torrents) = &access.torrents {
        torrents.check(info_hash)?;
    }
    Ok(())
}

/// Returns what an announce does to its peer. A client that does not know what it lacks counts as downloading. A
/// client that has just completed has everything, even if it claims otherwise.
const fn action(event: Event, left_bytes: Option<i64>) -> Action {
    match (event, left_bytes) {
        (Event::Stopped, _) => Action::Stop,
        (Event::Completed, _) => Action::Complete,
        (Event::Started | Event::Update, Some(0)) => Action::Seed,
        (Event::Started | Event::Update, _) => Action::Leech,
    }
}

/// Returns whether the peer has everything.
pub(crate) const fn seeds(action: Action) -> bool {
    matches!(action, Action::Seed | Action::Complete)
}

#[cfg(test)]
mod tests {
    use shoal_access::HashKey;
    use shoal_access::torrents::{TableBuilder, TorrentLists};

    use shoal_access::clients::ClientLists;
    use shoal_access::networks::Network;
    use shoal_access::ports::Ports;

    use super::*;
    use crate::pace::Load;

    const NOW: Now = Now { monotonic_s: 0, monotonic_ms: 0, unix_s: 0 };

    /// Returns the pace of a worker that has been behind for so many seconds.
    pub(super) fn behind(seconds: u64) -> Pace {
        Pace::default().after(seconds * 1000, Load { busy: 1000, is_behind: true })
    }

    /// Returns a policy with changes to the default configuration.
    pub(super) fn policy(change: impl FnOnce(&mut Config)) -> Policy {
        let mut config = Config::default();
        change(&mut config);
        Policy::new(config)
    }

    fn request() -> Request<'static> {
        Request {
            peer_id: Some(&PeerId([2; 20])),
            port: Some(6881),
            left_bytes: Some(1),
            ..Request::new(Protocol::Udp, "192.0.2.1".parse().unwrap(), &InfoHash([1; 20]))
        }
    }

    fn scrape(protocol: Protocol, torrents: Torrents<'_>) -> ScrapeRequest<'_> {
        let headers = HeaderMatch::default();
        ScrapeRequest { protocol, ip: request().ip, torrents, shown: Shown::Nothing, headers }
    }

    #[test]
    fn roles() {
        let action = |event, left_bytes| {
            policy(|_| {}).admit(&Request { event, left_bytes, ..request() }, NOW).unwrap().action
        };
        for event in [Event::Update, Event::Started] {
            assert_eq!(action(event, Some(0)), Action::Seed);
            for unknown_or_more in [None, Some(1), Some(-1), Some(i64::MIN), Some(i64::MAX)] {
                assert_eq!(action(event, unknown_or_more), Action::Leech);
            }
        }
        for left_bytes in [None, Some(0), Some(1), Some(-1)] {
            assert_eq!(action(Event::Completed, left_bytes), Action::Complete);
            assert_eq!(action(Event::Stopped, left_bytes), Action::Stop);
        }
    }

    #[test]
    fn what_passes_by_itself_is_decided_like_any_announce() {
        let policy = policy(|_| {});
        let passes = |policy: &Policy, drawn| policy.passes(request().ip, Protocol::Udp, drawn, NOW);
        for event in [Event::Update, Event::Started, Event::Completed, Event::Stopped] {
            for (left_bytes, port, numwant) in
                [(Some(0), Some(6881), None), (Some(1), Some(0), Some(-1)), (None, None, Some(7))]
            {
                let request = Request { event, left_bytes, port, numwant, drawn: 0, ..request() };
                let decision = policy.decide(Protocol::Udp, (event, left_bytes), port, numwant);
                assert_eq!(decision, policy.admit(&request, NOW).unwrap());
            }
        }
        assert!(passes(&policy, 0) && !passes(&policy, Gate::WEIGHT));
        assert!(!passes(&policy.clone().with_draining(true), 0));
        let ports_deny = Some(Arc::new(PortSet::new(&[])));
        assert!(!passes(&policy.with_access(Access { ports_deny, ..Access::default() }), 0));
    }

    #[test]
    fn numwant() {
        let policy = policy(|config| {
            (config.announce.numwant_default, config.announce.numwant_max) = (50, 200);
            config.webtorrent.offers_max = 7;
        });
        for protocol in [Protocol::Udp, Protocol::Http] {
            let wanted = |numwant| {
                policy.admit(&Request { protocol, numwant, ..request() }, NOW).unwrap().peers_wanted
            };
            for absent in [None, Some(-1), Some(-2), Some(i64::MIN)] {
                assert_eq!(wanted(absent), 50);
            }
            for exact in [0_u8, 1, 2, 3, 49, 50, 51, 199, 200] {
                assert_eq!(wanted(Some(exact.into())), usize::from(exact));
            }
            for too_many in [201, 1000, i64::from(u32::MAX) + 1, i64::MAX] {
                assert_eq!(wanted(Some(too_many)), 200);
            }
        }
        for (numwant, expected) in [(None, 7), (Some(-1), 7), (Some(0), 0), (Some(6), 6), (Some(8), 7)] {
            let request = Request { protocol: Protocol::WebTorrent, numwant, ..request() };
            assert_eq!(policy.admit(&request, NOW).unwrap().peers_wanted, expected, "{numwant:?}");
        }
    }

    #[test]
    fn the_default_numwant_obeys_the_cap() {
        let policy = policy(|config| config.announce.numwant_max = 30);
        assert_eq!(policy.admit(&request(), NOW).unwrap().peers_wanted, 30);
    }

    #[test]
    fn a_peer_at_port_0_is_served_but_not_registered() {
        let policy = policy(|config| config.address.private = Auto::Set(PrivateAddresses::Refuse));
        for event in [Event::Update, Event::Started, Event::Completed] {
            let reachable = policy.admit(&Request { event, ..request() }, NOW).unwrap();
            let hidden = policy.admit(&Request { port: Some(0), event, ..request() }, NOW).unwrap();
            let relayed = policy.admit(&Request { port: None, event, ..request() }, NOW).unwrap();
            assert!(reachable.registers && !hidden.registers && relayed.registers);
            assert_eq!(hidden, Decision { registers: false, ..reachable });
        }
        let private = Request { ip: "10.0.0.1".parse().unwrap(), port: Some(0), ..request() };
        assert_eq!(policy.admit(&private, NOW), Err(Refusal::PrivateAddress.into()));
    }

    /// Returns a policy with changes to the rules.
    fn ruled(change: impl FnOnce(&mut Access)) -> Policy {
        let mut access = Access::default();
        change(&mut access);
        policy(|_| {}).with_access(access)
    }

    #[test]
    fn a_denied_port_is_served_but_not_registered() {
        let ports = PortSet::new(&[Ports(1..=1023)]);
        let policy = ruled(|access| access.ports_deny = Some(Arc::new(ports)));
        for (port, registers) in [(Some(25), false), (Some(1024), true), (Some(0), false), (None, true)] {
            assert_eq!(policy.admit(&Request { port, ..request() }, NOW).unwrap().registers, registers);
        }
    }

    #[test]
    fn a_denied_network_gets_nothing_from_any_protocol() {
        let network = Network::single(request().ip);
        let table = NetworkTable::new(None, &[network]);
        let policy = ruled(|access| access.networks = Some(Arc::new(table)));
        for protocol in Protocol::ALL {
            for event in [Event::Update, Event::Stopped] {
                let denied = Request { protocol, event, ..request() };
                assert_eq!(policy.admit(&denied, NOW), Err(Refusal::NetworkDenied.into()));
                let served = Request { ip: "192.0.2.2".parse().unwrap(), ..denied };
                assert!(policy.admit(&served, NOW).is_ok());
            }
            let scrape = scrape(protocol, Torrents::Named(&[]));
            assert_eq!(
                policy.admit_scrape(&scrape, Pace::default(), NOW),
                Err(Refusal::NetworkDenied.into())
            );
        }
    }

    #[test]
    fn a_denied_client_may_only_leave() {
        let clients = ClientLists::new(&[], &["%02 please update".parse().unwrap()]);
        let policy = ruled(|access| access.clients = Some(Arc::new(clients)));
        let refused = policy.admit(&request(), NOW).unwrap_err();
        assert_eq!((refused.refusal, policy.message(refused)), (Refusal::ClientDenied, "please update"));
        assert!(policy.admit(&Request { peer_id: None, ..request() }, NOW).is_ok());
        assert!(policy.admit(&Request { peer_id: Some(&PeerId([3; 20])), ..request() }, NOW).is_ok());
        assert!(policy.admit(&Request { event: Event::Stopped, ..request() }, NOW).is_ok());
    }

    #[test]
    fn unusable_and_private_addresses_are_refused_by_every_protocol() {
        for protocol in Protocol::ALL {
            let at = |ip: &str, private| {
                policy(|config| config.address.private = Auto::Set(private))
                    .admit(&Request { protocol, ip: ip.parse().unwrap(), ..request() }, NOW)
                    .map(|_| ())
            };
            assert_eq!(at("224.0.0.1", PrivateAddresses::Serve), Err(Refusal::UnusableAddress.into()));
            assert_eq!(at("10.0.0.1", PrivateAddresses::Refuse), Err(Refusal::PrivateAddress.into()));
            assert_eq!(at("10.0.0.1", PrivateAddresses::Apart), Ok(()));
        }
    }

    #[test]
    fn a_denied_torrent_is_refused_by_every_protocol_with_the_words_of_the_operator() {
        let key = HashKey::new([1, 2, 3, 4]);
        let table = |byte, words| {
            let mut builder = TableBuilder::default();
            builder.add(InfoHash([byte; 20]), words).unwrap();
            Arc::new(builder.build(&key))
        };
        let deny = vec![table(1, Some("a notice")), table(2, None)];
        let torrents =
            TorrentLists::new(key, Some(vec![table(1, None), table(2, None), table(3, None)]), deny);
        let policy =
            policy(|_| {}).with_access(Access { torrents: Some(Arc::new(torrents)), ..Access::default() });
        for protocol in Protocol::ALL {
            let refused = |byte, event| {
                let request = Request { protocol, info_hash: &InfoHash([byte; 20]), event, ..request() };
                policy
                    .admit(&request, NOW)
                    .map(|_| ())
                    .map_err(|refused| (refused.refusal, policy.message(refused)))
            };
            let default = "this torrent is not served by this tracker";
            assert_eq!(refused(1, Event::Update), Err((Refusal::TorrentDenied, "a notice")));
            assert_eq!(refused(2, Event::Completed), Err((Refusal::TorrentDenied, default)));
            assert_eq!(refused(3, Event::Started), Ok(()));
            assert_eq!(refused(4, Event::Update), Err((Refusal::TorrentNotAllowed, default)));
            assert_eq!(refused(1, Event::Stopped), Ok(()), "any client may leave");
        }
    }

    #[test]
    fn any_client_may_leave_and_gets_no_peers() {
        let policy = policy(|config| config.address.private = Auto::Set(PrivateAddresses::Refuse));
        for ip in ["0.0.0.0", "255.255.255.255", "ff02::1", "127.0.0.1", "192.0.2.1"] {
            for port in [None, Some(0), Some(6881)] {
                let ip = ip.parse().unwrap();
                let leave = Request { ip, port, event: Event::Stopped, numwant: Some(50), ..request() };
                let (action, interval_s) = (Action::Stop, None);
                let decision = Decision { action, peers_wanted: 0, registers: true, interval_s };
                assert_eq!(policy.admit(&leave, NOW), Ok(decision));
            }
        }
    }

    #[test]
    fn only_http_can_carry_a_full_scrape() {
        for (protocol, full_scrape, expected) in [
            (Protocol::Http, true, Ok(())),
            (Protocol::Http, false, Err(Refusal::FullScrapeOff.into())),
            (Protocol::WebTorrent, true, Err(Refusal::FullScrapeOff.into())),
        ] {
            let policy = policy(|config| config.http.full_scrape = full_scrape);
            let all = scrape(protocol, Torrents::All);
            assert_eq!(policy.admit_scrape(&all, Pace::default(), NOW), expected);
            let named = ScrapeRequest { torrents: Torrents::Named(&[InfoHash([1; 20])]), ..all };
            assert_eq!(policy.admit_scrape(&named, Pace::default(), NOW), Ok(()));
        }
    }

    #[test]
    fn an_overloaded_worker_refuses_scrapes_of_all_torrents_first() {
        let policy = policy(|config| config.http.full_scrape = true);
        let protocol = Protocol::Http;
        let scrape = |torrents, pace| {
            policy.admit_scrape(&scrape(protocol, torrents), pace, NOW).map_err(|refused| refused.refusal)
        };
        let named = Torrents::Named(&[InfoHash([1; 20])]);
        for (seconds, all_served, named_served) in
            [(0, true, true), (1, true, true), (2, false, true), (4, false, false)]
        {
            let pace = behind(seconds);
            assert_eq!(scrape(Torrents::All, pace), all_served.then_some(()).ok_or(Refusal::Overloaded));
            assert_eq!(scrape(named, pace), named_served.then_some(()).ok_or(Refusal::Overloaded));
        }
    }
}
