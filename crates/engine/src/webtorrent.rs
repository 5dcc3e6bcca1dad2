//! Answers the messages of WebTorrent clients by the rules of the engine, and relays the messages that clients
//! have for each other.
//!
//! This module is given one whole message at a time, and its sender. It writes every reply and every relayed
//! message to the outbound queue of the receiving connection, as whole WebSocket frames that are ready to be
//! sent; `shoal-session` fetches them from there. Incoming frames, pings and closing belong to
//! `shoal-session`.
//!
//! Peers of both families share a swarm: browsers do not connect to the address that the tracker knows.

mod claim;
mod member;

use core::fmt::Write;
use core::net::IpAddr;
use std::sync::Arc;

use shoal_config::Config;
use shoal_insight::Sampler;
use shoal_relay::{
    Address, Announced, AnswerMatch, Dispatcher, MessageKind, OfferKey, OfferTarget, Rejection, SwarmKey,
    Swarms, WriteError,
};
use shoal_source::Excess;
use shoal_transport::stream::Handle;
use shoal_types::{Action, Counts, Event, InfoHash, PeerId};
use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::webtorrent::{
    self as wire, Announce, Answer, Limits, OFFER_ID_BYTES_MAX, Offer, Storage, Unreadable, reply,
};

use self::claim::{Claim, Claims, Suspect, Suspects};
pub use self::member::Member;
use self::member::Peer;
use crate::Now;
use crate::access_log::{AccessLog, AnnouncedPeer, LoggedClient, Record, saturated};
use crate::caller::Handling;
use crate::counter::{Kind, Loss, Outcome, Relay, Tally};
use crate::pace::Pace;
use crate::policy::{Policy, Protocol, Request, ScrapeRequest, Torrents};
use crate::refusal::{Refusal, Refused};
use crate::tokens::{Shown, SocketToken};

/// Bytes that surround an offer and its id in the relayed message, including the head of the frame, if no byte of
/// the info hash or the peer id has to be escaped.
const OFFER_HEAD_BYTES: usize = 114;

/// Answers the WebTorrent clients of one worker.
#[derive(Debug)]
pub struct Responder {
    limits: Limits,
    /// The decoded parts of the current message.
    storage: Storage,
    inner: Inner,
}

/// Why a client is to be disconnected after its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnection {
    /// It leaves more replies unread than may be queued.
    RepliesUnread,
    /// Its announce was refused because the tracker drains. It announces to another one on a new connection.
    Draining,
}

/// A responder without the buffers of the current message.
#[derive(Debug)]
struct Inner {
    policy: Arc<Policy>,
    pace: Pace,
    swarms: Arc<Swarms>,
    dispatcher: Dispatcher,
    tally: Tally,
    rng: fastrand::Rng,
    sampler: Sampler,
    /// Announces that wait until another connection has shown whether it is alive.
    claims: Claims,
    /// Connections that were challenged lately.
    suspects: Suspects,
    /// The time of the last poll round.
    now: Now,
    /// The keys of the current offers.
    offers: Vec<OfferKey>,
    /// The receivers of the current offers.
    targets: Vec<OfferTarget>,
    /// The torrents of the current scrape.
    info_hashes: Vec<InfoHash>,
    /// The error text for the current message.
    error_text: String,
    /// Whether the reply to the current message did not fit the queue.
    is_reply_lost: bool,
    /// Whether the current message was refused because the tracker drains.
    is_draining: bool,
    /// The size of the last reply in bytes.
    reply_bytes: usize,
    /// None if messages are not logged.
    access_log: Option<AccessLog>,
}

impl Responder {
    /// Creates a responder on the shared `swarms`, which counts into `tally` and draws from `rng`. Each worker
    /// needs its own seed; otherwise all workers draw the same peers.
    #[must_use]
    pub fn new(
        policy: Arc<Policy>,
        swarms: Arc<Swarms>,
        dispatcher: Dispatcher,
        tally: Tally,
        rng: fastrand::Rng,
    ) -> Self {
        let limits = limits(policy.config());
        let inner = Inner {
            policy,
            pace: Pace::default(),
            swarms,
            dispatcher,
            tally,
            rng,
            sampler: Sampler::off(),
            claims: Claims::default(),
            suspects: Suspects::default(),
            now: Now::default(),
            offers: Vec::new(),
            targets: Vec::new(),
            info_hashes: Vec::new(),
            error_text: String::new(),
            is_reply_lost: false,
            is_draining: false,
            reply_bytes: 0,
            access_log: None,
        };
        Self { limits, storage: Storage::default(), inner }
    }

    /// Records all later messages that are replied to.
    pub fn set_access_log(&mut self, log: AccessLog) {
        self.inner.access_log = Some(log);
    }

    /// Replaces the policy for all later messages.
    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        self.limits = limits(policy.config());
        self.inner.policy = policy;
    }

    /// Sets how far the intervals of all later replies are raised.
    pub const fn set_pace(&mut self, pace: Pace) {
        self.inner.pace = pace;
    }

    /// Takes samples of all later announces.
    pub fn set_sampler(&mut self, sampler: Sampler) {
        self.inner.sampler = sampler;
    }

    /// Registers a client that has connected from `ip`, which is canonical, with this token. It is in no swarm before it
    /// announces.
    #[must_use]
    pub fn enter(&self, handle: Handle, ip: IpAddr, token: SocketToken) -> Member {
        Member::new(handle, ip, self.inner.swarms.source(ip), token)
    }

    /// Answers a message of the client, which connected from `ip`. Afterwards, everything that results from it is in the
    /// outbound queues. Returns why the client is to be disconnected, if it is.
    pub fn receive(
        &mut self,
        member: &mut Member,
        ip: IpAddr,
        message: &[u8],
        now: Now,
    ) -> Result<(), Disconnection> {
        let Self { limits, storage, inner } = self;
        (inner.is_reply_lost, inner.is_draining) = (false, false);
        if let Some(log) = &mut inner.access_log {
            log.set_now(now);
        }
        match wire::decode(message, limits, storage) {
            Ok(wire::Request::Announce(announce)) => inner.announce(member, ip, &announce, now),
            Ok(wire::Request::Answer(answer)) => inner.answer(member, &answer, now),
            Ok(wire::Request::Scrape(info_hashes)) => inner.scrape(member, ip, info_hashes, now),
            Err(unreadable) => inner.fail_message(member, ip, &unreadable),
        }
        if inner.is_reply_lost {
            Err(Disconnection::RepliesUnread)
        } else if inner.is_draining {
            Err(Disconnection::Draining)
        } else {
            Ok(())
        }
    }

    /// Appends whole frames, written by `write`, to the queue of a client. This is for frames that do not answer
    /// a message.
    pub fn append(&mut self, member: &Member, write: impl FnOnce(&mut Vec<u8>)) {
        self.inner.queue(member, write);
    }

    /// Removes a client that has disconnected: all its peers leave their swarms.
    pub fn leave(&mut self, member: Member) {
        let Inner { swarms, dispatcher, claims, .. } = &mut self.inner;
        dispatcher.remove(member.handle());
        if member.claims > 0 {
            claims.abandon(&member);
        }
        let address = member.address(dispatcher.worker());
        for Peer { info_hash, peer_id } in member.peers() {
            swarms.leave(&swarms.swarm_key(info_hash), peer_id, address);
        }
    }

    /// Returns the next connection with queued messages, see [`Dispatcher::next_to_flush`].
    pub fn next_to_flush(&mut self) -> Option<Handle> {
        self.inner.dispatcher.next_to_flush()
    }

    /// Calls `read` with the queued bytes of a connection, in place, so that they can be encrypted without a
    /// copy.
    pub fn drain<R>(&mut self, handle: Handle, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.inner.dispatcher.drain(handle, read)
    }

    /// Records how many written bytes the socket of a connection has not yet accepted, see
    /// [`Dispatcher::set_unsent`].
    pub fn set_unsent(&mut self, handle: Handle, unsent_bytes: usize) {
        self.inner.dispatcher.set_unsent(handle, unsent_bytes);
    }

    /// Handles a pong of a client. It may answer the ping that challenged the client on account of a peer.
    pub fn receive_pong(&mut self, member: &Member, payload: &[u8]) {
        let Inner { swarms, dispatcher, .. } = &self.inner;
        if let Some((info_hash, peer_id)) = claim::parse(payload) {
            swarms.confirm_alive(
                &swarms.swarm_key(&info_hash),
                &peer_id,
                member.address(dispatcher.worker()),
            );
        }
    }

    /// Checks the connections whose challenges are about to run out, a bounded number at a time, and returns how many
    /// were checked. Where `is_receiving` tells that the peer is still receiving earlier output, the ping may not have
    /// arrived, and the connection keeps its peer id.
    pub fn check_suspects(&mut self, mut is_receiving: impl FnMut(Handle) -> bool) -> usize {
        let Inner { suspects, swarms, dispatcher, now, .. } = &mut self.inner;
        let mut checked = 0;
        for Suspect { handle, info_hash, peer_id } in suspects.take_due(now.monotonic_s) {
            checked += 1;
            if is_receiving(handle) {
                let address = Address { worker: dispatcher.worker(), handle };
                swarms.confirm_alive(&swarms.swarm_key(&info_hash), &peer_id, address);
            }
        }
        checked
    }

    /// Decides the claims of a client that are due: by now, the connection that had the peer has answered the challenge
    /// or has not. This connection was woken for them. Must be called before the queued bytes of the connection are
    /// fetched. Offers are not relayed; the next announce brings new ones.
    pub fn decide_claims(&mut self, member: &mut Member) {
        let inner = &mut self.inner;
        while member.claims > 0
            && let Some(Claim { ip, info_hash, peer_id, action, event, .. }) = inner.claims.take(member)
        {
            // The rules may have changed since the announce.
            inner.policy.refresh_socket_token(&mut member.token, ip, inner.now);
            let shown = Shown::Socket(&member.token);
            let admitted = inner.policy.admit_again(ip, &info_hash, shown, inner.now);
            let entered = admitted.and_then(|()| {
                let key = inner.swarms.swarm_key(&info_hash);
                inner.offers.clear();
                let joining = Joining { info_hash, peer_id, action, key, is_exempt: false };
                let entered = inner.enter(member, ip, joining, inner.now);
                entered.map_err(|rejected| rejected.into_refusal().into())
            });
            inner.reply(member, &Announcement { ip, info_hash, peer_id, event }, entered);
        }
    }

    /// Returns how many bytes are queued for a client that does not read them, see [`Dispatcher::backlog_bytes`].
    #[must_use]
    pub fn backlog_bytes(&self, handle: Handle) -> usize {
        self.inner.dispatcher.backlog_bytes(handle)
    }

    /// Collects the messages that clients of other workers have for those of this one, and wakes the connections
    /// with a claim that is due. Must be called before a poll round.
    pub fn collect(&mut self, now: Now) {
        let Self { inner, .. } = self;
        inner.now = now;
        if let Some(log) = &mut inner.access_log {
            log.set_now(now);
        }
        inner.dispatcher.collect();
        while let Some((handle, payload)) = inner.dispatcher.next_challenge() {
            inner.challenge(handle, &payload, now);
        }
        while let Some(handle) = inner.claims.next_due(now.monotonic_s) {
            inner.dispatcher.request_flush(handle);
        }
        inner.count_losses();
    }

    /// Frees memory that was not needed since the last call. To be called every few seconds.
    pub fn trim(&mut self) {
        self.inner.dispatcher.trim();
        self.inner.suspects.trim();
    }

    /// Sends the messages for clients of other workers, and returns the workers that are to be woken. Must be
    /// called after a poll round.
    pub fn dispatch(&mut self) -> impl Iterator<Item = u16> {
        // The next dispatch counts the messages that this one loses.
        self.inner.count_losses();
        self.inner.dispatcher.dispatch()
    }
}

impl Inner {
    fn announce(&mut self, member: &mut Member, ip: IpAddr, announce: &Announce<'_>, now: Now) {
        self.tally.request(member.family, Kind::Announce);
        self.policy.refresh_socket_token(&mut member.token, ip, now);
        self.targets.clear();
        let &Announce { info_hash, peer_id, event, .. } = announce;
        let announcement = Announcement { ip, info_hash, peer_id, event };
        let request = Request {
            peer_id: Some(&announce.peer_id),
            event: announce.event,
            left_bytes: announce.left_bytes,
            numwant: announce.numwant,
            shown: Shown::Socket(&member.token),
            ..Request::new(Protocol::WebTorrent, ip, &announce.info_hash)
        };
        let decision = match self.policy.admit(&request, now) {
            Ok(decision) => decision,
            Err(refused) => return self.reply(member, &announcement, Err(refused)),
        };
        let key = self.swarms.swarm_key(&announce.info_hash);
        let entered = match decision.action {
            Action::Stop => {
                // A peer of another connection stays.
                let address = member.address(self.dispatcher.worker());
                let left = self.swarms.leave(&key, &announce.peer_id, address);
                // This also applies if the swarm forgot the peer or another connection took it over before, so that it
                // no longer counts.
                member.remove(&Peer { info_hash: announce.info_hash, peer_id: announce.peer_id });
                Ok(left.counts)
            }
            action => {
                self.name_offers(member, announce, decision.peers_wanted, now);
                let joining = Joining { info_hash, peer_id, action, key, is_exempt: false };
                match self.enter(member, ip, joining, now) {
                    Err(Rejected::Taken(holder))
                        if self.claim(member, &announcement, action, holder, now) =>
                    {
                        return;
                    }
                    entered => entered.map_err(|rejected| rejected.into_refusal().into()),
                }
            }
        };
        if let Ok(counts) = entered
            && self.sampler.is_due()
        {
            self.sampler.take(&announce.info_hash, Some(&announce.peer_id), counts);
        }
        let has_entered = entered.is_ok();
        self.reply(member, &announcement, entered);
        if has_entered {
            self.relay_offers(member, announce, now);
        }
    }

    /// Answers an announce.
    fn reply(&mut self, member: &Member, announcement: &Announcement, entered: Result<Counts, Refused>) {
        let info_hash = &announcement.info_hash;
        let outcome = match entered {
            Ok(Counts { seeders, leechers, .. }) => {
                let interval_s = self.policy.interval_s(Protocol::WebTorrent, self.pace, &mut self.rng);
                self.queue_text(member, |out| reply::announce(info_hash, interval_s, seeders, leechers, out));
                Outcome::Ok
            }
            Err(refused) => {
                let action = Some(wire::Action::Announce);
                let policy = Arc::clone(&self.policy);
                self.queue_text(member, |out| {
                    reply::failure(action, Some(info_hash), policy.message(refused), out);
                });
                self.is_draining |= refused.refusal == Refusal::Draining;
                Outcome::Refused(refused.refusal)
            }
        };
        self.tally.reply(member.family, Kind::Announce, outcome);
        let offers = self.targets.len();
        self.log(member, announcement.ip, Kind::Announce, outcome, |record| {
            record.info_hash = Some(announcement.info_hash);
            let (event, peer_id) = (announcement.event, Some(announcement.peer_id));
            record.announced = Some(AnnouncedPeer { event, port: 0, peer_id });
            if let Ok(Counts { seeders, leechers, .. }) = entered {
                record.counts = Some([seeders, leechers]);
                record.peers = saturated(offers);
            }
        });
    }

    /// Records a message from `ip` that was answered. `describe` adds details.
    fn log(
        &mut self,
        member: &Member,
        ip: IpAddr,
        kind: Kind,
        outcome: Outcome,
        describe: impl FnOnce(&mut Record),
    ) {
        let Some(log) = &mut self.access_log else { return };
        let reply_bytes = self.reply_bytes;
        log.record(&self.policy.config().log, |settings| {
            let client = LoggedClient::new(settings, Some(ip));
            let mut record = Record::new(Protocol::WebTorrent, member.family, kind, outcome, client);
            record.reply_bytes = saturated(reply_bytes);
            describe(&mut record);
            record
        });
    }

    /// Handles an announce of a peer that belongs to another connection: challenges that connection and lets the
    /// announce wait. Returns false if the announce cannot wait and is to be refused.
    fn claim(
        &mut self,
        member: &mut Member,
        announcement: &Announcement,
        action: Action,
        holder: Address,
        now: Now,
    ) -> bool {
        let &Announcement { ip, info_hash, peer_id, event } = announcement;
        let claim = Claim { handle: member.handle(), info_hash, peer_id, action, ip, event };
        if !self.claims.add(member, claim, now.monotonic_s) {
            return false;
        }
        let payload = claim::payload(&info_hash, &peer_id);
        if holder.worker == self.dispatcher.worker() {
            self.challenge(holder.handle, &payload, now);
        } else {
            // If the message is lost, the holder is not challenged and keeps its peer.
            let _ =
                self.dispatcher.write(holder, MessageKind::Challenge, |out| out.extend_from_slice(&payload));
        }
        true
    }

    /// Pings a connection of this worker to find out whether it is alive, on account of a peer. A connection that
    /// has unsent bytes is not pinged: messages from other clients must not make it seem dead, and if it is dead,
    /// its own timeout will show that.
    fn challenge(&mut self, handle: Handle, payload: &[u8], now: Now) {
        let Some((info_hash, peer_id)) = claim::parse(payload) else { return };
        let address = Address { worker: self.dispatcher.worker(), handle };
        let key = self.swarms.swarm_key(&info_hash);
        if self.dispatcher.has_unsent(handle)
            || !self.swarms.challenge(&key, &peer_id, address, now.monotonic_s)
        {
            return;
        }
        let ping = |out: &mut Vec<u8>| frame::encode(Opcode::Ping, payload, None, out);
        if self.dispatcher.write(address, MessageKind::Reply, ping).is_err() {
            self.swarms.confirm_alive(&key, &peer_id, address);
        } else {
            self.suspects.add(Suspect { handle, info_hash, peer_id }, now.monotonic_s);
        }
    }

    /// Adds or refreshes a peer, with the offers in `self.offers`, and stores their targets in `self.targets`.
    fn enter(
        &mut self,
        member: &mut Member,
        ip: IpAddr,
        joining: Joining,
        now: Now,
    ) -> Result<Counts, Rejected> {
        match self.enter_or_prune(member, &joining, now) {
            Err(Rejection::Excess(excess)) => {
                self.handle_excess(member, ip, joining, excess, now).map_err(Rejected::For)
            }
            entered => entered.map_err(rejected),
        }
    }

    /// Serves a client whose peer would exceed a limit.
    #[cold]
    fn handle_excess(
        &mut self,
        member: &mut Member,
        ip: IpAddr,
        joining: Joining,
        excess: Excess,
        now: Now,
    ) -> Result<Counts, Refusal> {
        match self.policy.handle_excess(ip, excess) {
            Handling::Exempt => {
                let entered = self.enter_or_prune(member, &Joining { is_exempt: true, ..joining }, now);
                entered.map_err(|rejection| rejected(rejection).into_refusal())
            }
            // No other client could answer its offers, so none is relayed.
            Handling::Answer => {
                self.targets.clear();
                self.tally.unregistered(member.family, excess.into());
                Ok(self.swarms.scrape(&joining.key))
            }
            Handling::Refuse(refusal) => Err(refusal),
        }
    }

    /// Adds or refreshes a peer. A client with a full list of peers may have some that the swarms have forgotten.
    fn enter_or_prune(
        &mut self,
        member: &mut Member,
        joining: &Joining,
        now: Now,
    ) -> Result<Counts, Rejection> {
        let worker = self.dispatcher.worker();
        let mut announced = self.enter_swarm(member, joining, now);
        if announced == Err(Rejection::MayNotJoin) && member.prune(&self.swarms, worker, &mut self.rng) {
            announced = self.enter_swarm(member, joining, now);
        }
        let Announced { counts, joined } = announced?;
        if joined {
            member.add(Peer { info_hash: joining.info_hash, peer_id: joining.peer_id });
        }
        Ok(counts)
    }

    fn enter_swarm(&mut self, member: &Member, joining: &Joining, now: Now) -> Result<Announced, Rejection> {
        let &Joining { peer_id, action, ref key, is_exempt, .. } = joining;
        let torrents_max = as_usize(self.policy.config().webtorrent.torrents_per_connection_max);
        let announce = shoal_relay::Announce {
            address: member.address(self.dispatcher.worker()),
            source: member.source(),
            peer_id,
            action,
            may_join: member.peers().len() < torrents_max,
            is_exempt,
            offers: &self.offers,
        };
        self.swarms.announce(key, &announce, now.monotonic_s, &mut self.rng, &mut self.targets)
    }

    /// Stores the keys of the offers to relay in `self.offers`: no more than are wanted, and no more than the
    /// sender's allowance covers now, except that the last offer may exceed it.
    fn name_offers(&mut self, member: &Member, announce: &Announce<'_>, wanted: usize, now: Now) {
        let (swarms, mut room) = (&self.swarms, [0; OFFER_ID_BYTES_MAX]);
        let mut bytes_left = swarms.relay_bytes_available(member.source(), member.bucket, now.monotonic_s);
        self.offers.clear();
        let mut refused = 0;
        for offer in announce.offers.iter().take(wanted) {
            if bytes_left == 0 {
                refused += 1;
                continue;
            }
            bytes_left = bytes_left.saturating_sub(relayed_bytes(&offer));
            self.offers.push(swarms.offer_key(offer.offer_id.bytes(&mut room)));
        }
        self.tally.lose(Loss::RateLimited, refused);
    }

    fn relay_offers(&mut self, member: &mut Member, announce: &Announce<'_>, now: Now) {
        if self.targets.is_empty() {
            return;
        }
        let kind = MessageKind::Offer(member.source().group());
        let mut bytes = 0;
        for (target, offer) in self.targets.iter().zip(announce.offers.iter()) {
            bytes += relayed_bytes(&offer);
            let written = self.dispatcher.write(target.address, kind, |out| {
                frame::write_text(out, |out| {
                    reply::offer(&announce.info_hash, &announce.peer_id, &offer, out);
                });
            });
            count_relayed(&mut self.tally, Relay::Offer, written);
        }
        self.swarms.charge_relay(member.source(), &mut member.bucket, bytes, now.monotonic_s);
    }

    /// Relays an answer to the client that awaits it. The sender gets no reply in any case.
    fn answer(&mut self, member: &Member, answer: &Answer<'_>, now: Now) {
        self.tally.request(member.family, Kind::Answer);
        let answerer = member.address(self.dispatcher.worker());
        let offer = self.swarms.offer_key(answer.offer_id.bytes(&mut [0; OFFER_ID_BYTES_MAX]));
        let key = self.swarms.swarm_key(&answer.info_hash);
        let matched = self.swarms.match_answer(
            &key,
            &answer.to_peer_id,
            (answerer, &answer.peer_id),
            offer,
            now.monotonic_s,
        );
        match matched {
            AnswerMatch::Offerer(offerer) => {
                let written = self.dispatcher.write(offerer, MessageKind::Answer, |out| {
                    frame::write_text(out, |out| {
                        reply::answer(&answer.info_hash, &answer.peer_id, answer, out);
                    });
                });
                count_relayed(&mut self.tally, Relay::Answer, written);
            }
            AnswerMatch::NotPending => self.tally.lose(Loss::Unawaited, 1),
            AnswerMatch::PeerGone => self.tally.lose(Loss::Gone, 1),
        }
    }

    /// Answers a scrape. Torrents without peers get zeros.
    fn scrape(&mut self, member: &mut Member, ip: IpAddr, info_hashes: &[InfoHash], now: Now) {
        let (kind, torrents) = match info_hashes {
            [] => (Kind::FullScrape, Torrents::All),
            named => (Kind::Scrape, Torrents::Named(named)),
        };
        self.tally.request(member.family, kind);
        self.policy.refresh_socket_token(&mut member.token, ip, now);
        let shown = Shown::Socket(&member.token);
        let request = ScrapeRequest { protocol: Protocol::WebTorrent, ip, torrents, shown };
        if let Err(refusal) = self.policy.admit_scrape(&request, now) {
            let action = Some(wire::Action::Scrape);
            self.queue_text(member, |out| reply::failure(action, None, refusal.message(), out));
            self.tally.reply(member.family, kind, Outcome::Refused(refusal));
            return self.log_scrape(member, ip, kind, Outcome::Refused(refusal), info_hashes);
        }
        let mut named = core::mem::take(&mut self.info_hashes);
        named.clear();
        named.extend_from_slice(info_hashes);
        // Each hash occurs once, because the keys of an object must be unique.
        named.sort_unstable();
        named.dedup();
        let swarms = Arc::clone(&self.swarms);
        self.queue_text(member, |out| {
            reply::scrape_begin(out);
            for info_hash in &named {
                let Counts { seeders, leechers, completed } = swarms.scrape(&swarms.swarm_key(info_hash));
                reply::scrape_file(info_hash, seeders, leechers, completed, out);
            }
            reply::scrape_end(out);
        });
        self.info_hashes = named;
        self.tally.reply(member.family, kind, Outcome::Ok);
        self.log_scrape(member, ip, kind, Outcome::Ok, info_hashes);
    }

    fn log_scrape(
        &mut self,
        member: &Member,
        ip: IpAddr,
        kind: Kind,
        outcome: Outcome,
        info_hashes: &[InfoHash],
    ) {
        self.log(member, ip, kind, outcome, |record| {
            record.info_hash = info_hashes.first().copied();
            record.torrents = saturated(info_hashes.len());
        });
    }

    /// Answers a message that cannot be decoded with an error that names its action and torrent, as far as they
    /// are known. Clients take an error without an action as one of the whole connection, and reconnect with all
    /// their torrents.
    fn fail_message(&mut self, member: &Member, ip: IpAddr, unreadable: &Unreadable) {
        let kind = match unreadable.action {
            Some(wire::Action::Announce) => Kind::Announce,
            Some(wire::Action::Scrape) => Kind::Scrape,
            None => Kind::Other,
        };
        self.tally.request(member.family, kind);
        let mut error_text = core::mem::take(&mut self.error_text);
        error_text.clear();
        write!(error_text, "{}", unreadable.fault).expect("writing to a string never fails");
        self.queue_text(member, |out| {
            reply::failure(unreadable.action, unreadable.info_hash.as_ref(), &error_text, out);
        });
        self.error_text = error_text;
        let outcome = Outcome::Refused(Refusal::BadMessage);
        self.tally.reply(member.family, kind, outcome);
        self.log(member, ip, kind, outcome, |record| record.info_hash = unreadable.info_hash);
    }

    /// Queues a text message for the client that sent the current message.
    fn queue_text(&mut self, member: &Member, write: impl FnOnce(&mut Vec<u8>)) {
        self.queue(member, |out| frame::write_text(out, write));
    }

    /// Appends the frames that `write` writes to the queue of the client.
    fn queue(&mut self, member: &Member, write: impl FnOnce(&mut Vec<u8>)) {
        let address = member.address(self.dispatcher.worker());
        self.reply_bytes = 0;
        let write_counted = |out: &mut Vec<u8>| {
            let before = out.len();
            write(out);
            self.reply_bytes = out.len() - before;
        };
        match self.dispatcher.write(address, MessageKind::Reply, write_counted) {
            Ok(()) => {}
            Err(WriteError::QueueFull) => {
                self.is_reply_lost = true;
                self.tally.lose(Loss::ReplyQueueFull, 1);
            }
            Err(error) => self.tally.lose(loss(error), 1),
        }
    }

    fn count_losses(&mut self) {
        let losses = self.dispatcher.take_losses();
        self.tally.lose(Loss::Gone, losses.gone);
        self.tally.lose(Loss::MailboxFull, losses.mailbox_full);
        self.tally.lose(Loss::QueueFull, losses.queue_full);
    }
}

/// Returns what the decoder of messages accepts.
fn limits(config: &Config) -> Limits {
    Limits {
        offers_max: as_usize(config.webtorrent.offers_max),
        offer_bytes_max: as_usize(config.webtorrent.offer_max.0),
        info_hashes_max: as_usize(config.scrape.hashes_max),
    }
}

fn as_usize(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or(usize::MAX)
}

/// The client of an announce, and what it announces.
struct Announcement {
    ip: IpAddr,
    info_hash: InfoHash,
    peer_id: PeerId,
    event: Event,
}

/// A peer that is to enter a swarm.
#[derive(Clone, Copy)]
struct Joining {
    info_hash: InfoHash,
    peer_id: PeerId,
    action: Action,
    key: SwarmKey,
    /// Whether its source has no limits.
    is_exempt: bool,
}

/// Why a peer is not admitted to a swarm.
enum Rejected {
    /// This connection has the peer.
    Taken(Address),
    For(Refusal),
}

impl Rejected {
    fn into_refusal(self) -> Refusal {
        match self {
            Self::Taken(_) => Refusal::PeerIdTaken,
            Self::For(refusal) => refusal,
        }
    }
}

fn rejected(rejection: Rejection) -> Rejected {
    match rejection {
        Rejection::PeerIdTaken(holder) => Rejected::Taken(holder),
        Rejection::MayNotJoin => Rejected::For(Refusal::TooManyTorrents),
        Rejection::Full => Rejected::For(Refusal::StoreFull),
        Rejection::OverShare => Rejected::For(Refusal::SourceOverShare),
        Rejection::Excess(excess) => Rejected::For(excess.into()),
    }
}

const fn loss(error: WriteError) -> Loss {
    match error {
        WriteError::Gone => Loss::Gone,
        WriteError::QueueFull => Loss::QueueFull,
        WriteError::MailboxFull => Loss::MailboxFull,
    }
}

/// Returns how many bytes a sender is charged for an offer: the size of the message that relays it.
const fn relayed_bytes(offer: &Offer<'_>) -> u64 {
    (OFFER_HEAD_BYTES + offer.offer_id.raw().len() + offer.offer.len()) as u64
}

fn count_relayed(tally: &mut Tally, relay: Relay, written: Result<(), WriteError>) {
    match written {
        Ok(()) => tally.relay(relay),
        Err(error) => tally.lose(loss(error), 1),
    }
}
