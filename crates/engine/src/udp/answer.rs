//! Decisions about single requests, and their replies. The passes over a batch belong to the parent.

use core::net::IpAddr;

use shoal_base::transport::datagram::Exchange;
use shoal_base::{Action, Counts, Event, PeerV4, PeerV6, Transfer};
use shoal_store::{Announced, LockedShard, PeerChange, PrivateNetwork, Rejection, Store};
use shoal_wire::udp::{
    self as wire, Announce, AnnounceHead, ConnectionId, Options, Reply, ScrapeEntry, ScrapeHead,
    TransactionId,
};

use super::{Front, Limits, Peer, Query, first_info_hash, log_datagram};
use crate::batch::{self, Batch, ITEMS_MAX, Item, Work};
use crate::caller::Caller;
use crate::counter::{Drop, Family, Kind, Outcome};
use crate::policy::{Decision, Policy, Protocol, Request};
use crate::refusal::{Refusal, Refused};
use crate::tokens::Shown;
use crate::watch::Sighting;
use crate::{Now, address};

impl Front {
    /// Applies and answers the requests of both families.
    pub(super) fn apply(
        &mut self,
        store: &Store,
        v4: &mut Batch<PeerV4, TransactionId, ITEMS_MAX>,
        v6: &mut Batch<PeerV6, TransactionId, ITEMS_MAX>,
        chunk: &mut [Exchange<'_>],
        now: Now,
    ) {
        batch::prefetch(store, v4, v6);
        v4.apply(&store.v4, |shard, item| self.answer(shard, item, &mut chunk[item.index()], now));
        v6.apply(&store.v6, |shard, item| self.answer(shard, item, &mut chunk[item.index()], now));
    }

    /// Counts a request and returns its terms.
    #[inline]
    pub(super) fn count(&mut self, family: Family, kind: Kind, transaction_id: TransactionId) -> Query {
        self.context.tally.request(family, kind);
        Query { family, kind, transaction_id }
    }

    #[inline(always)]
    pub(super) fn verify(&self, ip: IpAddr, connection_id: ConnectionId, now: Now) -> Result<(), Refusal> {
        if self.connection_ids.accepts(connection_id, ip, now.unix_s) {
            Ok(())
        } else {
            Err(Refusal::WrongConnectionId)
        }
    }

    /// Returns the work of an admitted announce.
    #[inline]
    pub(super) fn work<P: Peer>(&mut self, peer: P, event: Event, decision: Decision, drawn: u32) -> Work<P> {
        let Decision { action, peers_wanted, registers, interval_s } = decision;
        let is_ruled = interval_s.is_some();
        let is_plain = registers && !is_ruled && drawn == 0 && !self.context.policy.looks_again();
        // Peers that do not fit the reply are not worth a prefetch.
        let peers_wanted = peers_wanted.min(self.limits(P::FAMILY).peers_max);
        let announce = shoal_store::Announce { peer, action, peers_wanted };
        let (joins, sample_seed) = (event == Event::Started, self.context.rng.u64(..));
        Work::Announce { announce, registers, joins, is_plain, is_ruled, drawn, sample_seed }
    }

    /// Answers with an error, unless the policy is silence, or the source is unverified and the error would be larger
    /// than the request.
    #[cold]
    pub(super) fn refuse(&mut self, exchange: &mut Exchange<'_>, query: Query, refused: impl Into<Refused>) {
        let refused = refused.into();
        let refusal = refused.refusal;
        let reply_bytes_max = self.limits(query.family).reply_bytes_max;
        let error_bytes_max = match refusal {
            Refusal::WrongConnectionId if self.context.policy.config().connection_id.answer_wrong => {
                exchange.request.len().min(reply_bytes_max)
            }
            Refusal::WrongConnectionId => 0,
            Refusal::RateLimited
                if self.context.policy.limits().is_some_and(|limits| limits.udp_silent()) =>
            {
                0
            }
            Refusal::Dropped => 0,
            _ => reply_bytes_max,
        };
        let message = self.context.policy.message(refused).as_bytes();
        let reply = Reply::Error { transaction_id: query.transaction_id, message };
        match reply.encode(&mut exchange.reply[..error_bytes_max]) {
            Ok(reply_bytes) => self.finish(exchange, query, Outcome::Refused(refusal), reply_bytes),
            Err(_no_room) if refusal == Refusal::RateLimited => {
                self.context.tally.drop(query.family, Drop::RateLimited);
            }
            Err(_no_room) if refusal == Refusal::Dropped => {
                self.context.tally.drop(query.family, Drop::Rule);
            }
            Err(_no_room) => self.context.tally.drop(query.family, Drop::WrongConnectionId),
        }
        self.log_refused(exchange, refusal);
    }

    /// Drops an unverified request of an unknown action. It may be another tracker's error, whose text is at the
    /// place of the action: both trackers would answer each other forever.
    #[cold]
    pub(super) fn leave_unanswered(&mut self, exchange: &Exchange<'_>, query: Query, refusal: Refusal) {
        self.context.tally.drop(query.family, Drop::WrongConnectionId);
        self.log_refused(exchange, refusal);
    }

    /// Logs a request that was answered with an error, or not at all.
    pub(super) fn log_refused(&mut self, exchange: &Exchange<'_>, refusal: Refusal) {
        log_datagram(&mut self.context, exchange, Outcome::Refused(refusal));
    }

    /// Writes the head of a scrape's reply, which must have room for all torrents.
    pub(super) fn begin_scrape(&mut self, exchange: &mut Exchange<'_>, query: Query, torrents: usize) {
        let (head, _entries) =
            ScrapeHead::split(exchange.reply).expect("any reply buffer holds the head of a scrape");
        *head = ScrapeHead::new(query.transaction_id);
        let reply_bytes = size_of::<ScrapeHead>() + torrents * size_of::<ScrapeEntry>();
        self.finish(exchange, query, Outcome::Ok, reply_bytes);
    }

    /// Applies a request and answers it, in the last pass. The store may still refuse it.
    #[inline]
    fn answer<P: Peer>(
        &mut self,
        shard: &mut LockedShard<'_, P>,
        item: &Item<P, TransactionId>,
        exchange: &mut Exchange<'_>,
        now: Now,
    ) {
        match &item.work {
            Work::Announce { announce, is_plain: true, sample_seed, .. } => {
                // The seed of the passes before, so that the sample is what they have prefetched.
                let rng = &mut fastrand::Rng::with_seed(*sample_seed);
                let out = &mut exchange.reply[..self.limits(P::FAMILY).reply_bytes_max];
                let (_head, room) = AnnounceHead::split(out).expect(HAS_HEAD);
                match shard.announce(&item.place, announce, now.monotonic_s, rng, room) {
                    Ok(announced) => {
                        let terms = Terms::plain(announce.action, *sample_seed);
                        self.complete::<P>(exchange, item.tag, terms, announced, now);
                    }
                    Err(rejection) => self.answer_rejected(shard, item, exchange, rejection, now),
                }
            }
            Work::Announce { .. } => self.look_again(shard, item, exchange, now),
            Work::Scrape { entry } => {
                let (_head, entries) =
                    ScrapeHead::split(exchange.reply).expect("any reply buffer holds the head of a scrape");
                let Counts { seeders, leechers, completed } = shard.scrape(&item.place);
                let (seeders, leechers) = (seeders.into(), leechers.into());
                entries[usize::from(*entry)] = ScrapeEntry { seeders, completed: completed.into(), leechers };
            }
        }
    }

    /// Answers an announce that is not plain.
    #[inline(never)]
    fn look_again<P: Peer>(
        &mut self,
        shard: &mut LockedShard<'_, P>,
        item: &Item<P, TransactionId>,
        exchange: &mut Exchange<'_>,
        now: Now,
    ) {
        let Work::Announce { announce, registers, is_ruled, drawn, sample_seed, .. } = &item.work else {
            unreachable!("only announces are looked at again")
        };
        if self.context.policy.permits_swarms()
            && !shard.contains(&item.place)
            && let Err(refused) = self.check_new(announce.action, exchange)
        {
            return self.refuse(exchange, Query::of_announce::<P>(item.tag), refused);
        }
        let rng = &mut fastrand::Rng::with_seed(*sample_seed);
        let interval_s = if *is_ruled { self.interval_of_rule(exchange) } else { None };
        let watched = self.context.watched(*drawn);
        let terms = Terms { interval_s, watched, ..Terms::plain(announce.action, *sample_seed) };
        self.answer_announce::<P>(exchange, item.tag, terms, now, |caller, room| {
            let mut caller = Caller { rng, ..caller };
            caller.announce_locked(shard, &item.place, announce, *registers, room)
        });
    }

    /// Answers an announce whose peer the store has not registered.
    #[cold]
    #[inline(never)]
    fn answer_rejected<P: Peer>(
        &mut self,
        shard: &mut LockedShard<'_, P>,
        item: &Item<P, TransactionId>,
        exchange: &mut Exchange<'_>,
        rejection: Rejection,
        now: Now,
    ) {
        let Work::Announce { announce, sample_seed, .. } = &item.work else {
            unreachable!("only announces register peers")
        };
        let rng = &mut fastrand::Rng::with_seed(*sample_seed);
        let terms = Terms::plain(announce.action, *sample_seed);
        self.answer_announce::<P>(exchange, item.tag, terms, now, |caller, room| {
            Caller { rng, ..caller }.serve_rejected(shard, &item.place, announce, rejection, room)
        });
    }

    /// Decides about an announce of a torrent without a swarm, see
    /// [`Policy::permits_swarms`](crate::policy::Policy::permits_swarms).
    #[cold]
    fn check_new(&self, action: Action, exchange: &Exchange<'_>) -> Result<(), Refused> {
        match first_info_hash(exchange.request) {
            Some(info_hash) if action != Action::Stop => self.context.policy.check_torrent(&info_hash),
            _ => Ok(()),
        }
    }

    /// Answers an announce from a private network that is kept apart.
    #[cold]
    #[inline(never)]
    pub(super) fn answer_apart(
        &mut self,
        store: &Store,
        network: PrivateNetwork,
        (announce, decision): (&Announce, Decision),
        exchange: &mut Exchange<'_>,
        query: Query,
        now: Now,
    ) {
        let Decision { action, peers_wanted, registers, interval_s } = decision;
        // Private addresses earn no bans.
        let terms = Terms { interval_s, ..Terms::plain(action, self.context.rng.u64(..)) };
        let transaction_id = query.transaction_id;
        let port = announce.port.get();
        let place = store.v4.locate(&announce.info_hash);
        let private_place = store.private.locate(&announce.info_hash, network);
        match address::canonical(&exchange.source) {
            IpAddr::V4(ip) => {
                let announce = shoal_store::Announce { peer: PeerV4::new(ip, port), action, peers_wanted };
                let (near, far) = ((&store.private.v4, &private_place), (&store.v4, &place));
                self.answer_announce::<PeerV4>(exchange, transaction_id, terms, now, |mut caller, room| {
                    caller.announce_apart(near, far, &announce, registers, room)
                });
            }
            IpAddr::V6(ip) => {
                let announce = shoal_store::Announce { peer: PeerV6::new(ip, port), action, peers_wanted };
                let (near, far) = ((&store.private.v6, &private_place), (&store.v6, &place));
                self.answer_announce::<PeerV6>(exchange, transaction_id, terms, now, |mut caller, room| {
                    caller.announce_apart(near, far, &announce, registers, room)
                });
            }
        }
    }

    /// Returns the interval of a rule for an admitted announce, in seconds. The datagram is decoded again, so that
    /// trackers without such rules need not carry the interval through the passes.
    #[cold]
    fn interval_of_rule(&self, exchange: &Exchange<'_>) -> Option<u32> {
        let Ok(wire::Request::Announce { announce, .. }) = wire::Request::decode(exchange.request) else {
            return None;
        };
        let ip = address::canonical(&exchange.source);
        self.context.policy.rule_interval_s(ip, &announce.peer_id)
    }

    /// Answers an announce, for which `serve` changes the swarm and writes the peers.
    fn answer_announce<P: Peer>(
        &mut self,
        exchange: &mut Exchange<'_>,
        transaction_id: TransactionId,
        terms: Terms,
        now: Now,
        serve: impl FnOnce(Caller<'_>, &mut [u8]) -> Result<Announced, Refusal>,
    ) {
        let out = &mut exchange.reply[..self.limits(P::FAMILY).reply_bytes_max];
        let (_head, room) = AnnounceHead::split(out).expect(HAS_HEAD);
        match serve(self.context.caller(&exchange.source, now), room) {
            Ok(announced) => self.complete::<P>(exchange, transaction_id, terms, announced, now),
            Err(refusal) => self.refuse(exchange, Query::of_announce::<P>(transaction_id), refusal),
        }
    }

    /// Completes the reply to an announce whose peers are written, and records the announce.
    #[inline(always)]
    fn complete<P: Peer>(
        &mut self,
        exchange: &mut Exchange<'_>,
        transaction_id: TransactionId,
        terms: Terms,
        announced: Announced,
        now: Now,
    ) {
        let Announced { counts, peers, change } = announced;
        let Counts { seeders, leechers, .. } = counts;
        let interval_s = self.context.drawn_interval_s(terms.interval_s, terms.random);
        let (head, _peers) = AnnounceHead::split(exchange.reply).expect(HAS_HEAD);
        *head = AnnounceHead::new(transaction_id, interval_s, leechers, seeders);
        let reply_bytes = size_of::<AnnounceHead>() + peers * size_of::<P>();
        self.finish(exchange, Query::of_announce::<P>(transaction_id), Outcome::Ok, reply_bytes);
        let is_sample = self.context.sampler.is_due();
        if is_sample || terms.watched > 0 || self.context.recorder.is_some() || self.context.credit.is_some()
        {
            self.record(exchange, (change, terms.action), is_sample.then_some(counts), terms.watched, now);
        }
    }

    /// Records an announce: the change of its peer for other nodes, the announce itself if users are credited, a sample if
    /// it is one, and what may earn a ban if the announce stands for `watched` of them. The datagram is decoded again, so
    /// that trackers that record nothing need not carry its fields through the passes.
    #[inline(never)]
    fn record(
        &mut self,
        exchange: &Exchange<'_>,
        (change, action): (PeerChange, Action),
        sample: Option<Counts>,
        watched: u32,
        now: Now,
    ) {
        let Ok(wire::Request::Announce { announce, options, .. }) = wire::Request::decode(exchange.request)
        else {
            return;
        };
        let ip = address::canonical(&exchange.source);
        if let Some(recorder) = &mut self.context.recorder {
            recorder.record(change, action, &announce.info_hash, (ip, announce.port.get()));
        }
        if let Some(credit) = &mut self.context.credit {
            let transfer = Transfer {
                uploaded: Transfer::known(announce.uploaded_bytes.get()),
                downloaded: Transfer::known(announce.downloaded_bytes.get()),
                left: Transfer::known(announce.left_bytes.get()),
            };
            credit.record(&self.context.policy, &request(ip, announce, options), transfer, now);
        }
        if watched > 0 {
            let (has_joined, port) = (change == PeerChange::Joined, announce.port.get());
            let peer = Some((&announce.info_hash, port, &announce.peer_id));
            let sighting = Sighting::Announce { has_joined, peer };
            self.context.policy.observe(ip, sighting, watched, now);
        }
        if let Some(counts) = sample {
            self.context.sampler.take(&announce.info_hash, Some(&announce.peer_id), counts);
        }
    }

    pub(super) fn finish(
        &mut self,
        exchange: &mut Exchange<'_>,
        query: Query,
        outcome: Outcome,
        reply_bytes: usize,
    ) {
        exchange.reply_len = reply_bytes;
        self.context.tally.reply(query.family, query.kind, outcome);
    }

    pub(super) const fn limits(&self, family: Family) -> Limits {
        match family {
            Family::V4 => self.limits_v4,
            Family::V6 => self.limits_v6,
        }
    }
}

/// Why a reply has room for the head of an announce's reply.
const HAS_HEAD: &str = "every reply buffer and every reply limit has room for a head";

/// The terms on which a served announce is answered and recorded.
#[derive(Clone, Copy)]
struct Terms {
    action: Action,
    /// The interval of a rule in seconds, in place of the usual one.
    interval_s: Option<u32>,
    /// The number of announces for which this one stands if it is looked at for bans, and 0 otherwise.
    watched: u32,
    /// Draws the interval.
    random: u32,
}

impl Terms {
    /// Returns the terms of a plain announce. The interval takes the upper half of the sample's seed, of which the sample
    /// itself takes a hash.
    const fn plain(action: Action, sample_seed: u64) -> Self {
        Self { action, interval_s: None, watched: 0, random: (sample_seed >> 32) as u32 }
    }
}

impl Query {
    const fn of_announce<P: Peer>(transaction_id: TransactionId) -> Self {
        Self { family: P::FAMILY, kind: Kind::Announce, transaction_id }
    }
}

/// Decides about an announce that [passes](Policy::passes) by itself.
#[inline]
pub(super) fn decide(policy: &Policy, announce: &Announce) -> Decision {
    let left_bytes = Some(announce.left_bytes.get());
    let (port, numwant) = (Some(announce.port.get()), Some(announce.num_want.get().into()));
    policy.decide(Protocol::Udp, (announce.event(), left_bytes), port, numwant)
}

/// Returns an announce in the terms of the policy.
pub(super) fn request<'r>(ip: IpAddr, announce: &'r Announce, options: Options<'r>) -> Request<'r> {
    // The address is the source of the datagram. The `ip` field is ignored, because a client may not choose its
    // address.
    Request {
        peer_id: Some(&announce.peer_id),
        port: Some(announce.port.get()),
        event: announce.event(),
        left_bytes: Some(announce.left_bytes.get()),
        numwant: Some(announce.num_want.get().into()),
        shown: Shown::Options(options),
        is_torrent_checked_later: true,
        ..Request::new(Protocol::Udp, ip, &announce.info_hash)
    }
}
