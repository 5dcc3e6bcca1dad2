//! Answers datagrams (BEP 15) by the rules of the engine.
//!
//! A batch is processed in passes, so that the cache misses of many requests overlap: the first pass reads,
//! verifies and decides every request, the next ones prefetch every swarm and every peer, and the last one
//! applies and answers the requests. The passes over swarms go from shard to shard (`batch`), and keep the order of
//! arrival within each swarm. Requests that need no swarm are answered in the first pass.
//!
//! BEP 15, "UDP connections / spoofing": until a source has proved its address by a connection id, no reply to it
//! is larger than its request.

mod batch;

use core::net::IpAddr;
use std::sync::Arc;

use shoal_config::Config;
use shoal_store::{Announced, LockedShard, Store};
use shoal_transport::datagram::{BATCH_MAX, Exchange, REPLY_BYTES_MAX};
use shoal_types::{Counts, InfoHash, PeerV4, PeerV6};
use shoal_wire::udp::{
    self as wire, Announce, AnnounceHead, ConnectReply, ConnectionId, Reply, RequestError, ScrapeEntry,
    ScrapeHead, TransactionId,
};

use self::batch::{Batch, Item, Work};
use crate::connection_id::{ConnectionIds, ConnectionKey};
use crate::counter::{Drop, Family, Kind, Outcome, Tally};
use crate::policy::{self, Decision, Policy, Protocol, Request, ScrapeRequest, Torrents};
use crate::refusal::Refusal;
use crate::{Now, address};

/// The number of torrents that the longest reply to a scrape has room for.
const SCRAPE_HASHES_MAX: usize = (REPLY_BYTES_MAX - size_of::<ScrapeHead>()) / size_of::<ScrapeEntry>();

/// Answers the datagrams of one worker.
#[derive(Debug)]
pub struct Responder {
    store: Arc<Store>,
    front: Front,
    /// The requests that wait for their swarms.
    v4: Box<Batch<PeerV4>>,
    v6: Box<Batch<PeerV6>>,
}

/// The data that decisions and replies need, except the store.
#[derive(Debug)]
struct Front {
    tally: Tally,
    rng: fastrand::Rng,
    policy: Arc<Policy>,
    connection_ids: ConnectionIds,
    limits_v4: Limits,
    limits_v6: Limits,
}

/// The limits of a reply over one family.
#[derive(Clone, Copy, Debug)]
struct Limits {
    reply_bytes_max: usize,
    scrape_hashes_max: usize,
}

/// The data that counting and answering a request needs.
#[derive(Clone, Copy, Debug)]
struct Query {
    family: Family,
    kind: Kind,
    transaction_id: TransactionId,
}

impl Responder {
    /// Creates a responder on the shared `store`, which counts into `tally` and draws from `rng`. Each worker needs its
    /// own seed; otherwise all workers hand out the same samples. Connection ids are made from `key`.
    #[must_use]
    pub fn new(
        policy: Arc<Policy>,
        key: &ConnectionKey,
        store: Arc<Store>,
        tally: Tally,
        rng: fastrand::Rng,
    ) -> Self {
        let config = policy.config();
        let connection_ids = ConnectionIds::new(key, config.connection_id.grace_s);
        let (limits_v4, limits_v6) = Limits::both(config);
        let front = Front { tally, rng, policy, connection_ids, limits_v4, limits_v6 };
        Self { store, front, v4: Box::new(Batch::new()), v6: Box::new(Batch::new()) }
    }

    /// Replaces the policy for all later batches.
    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        let (config, front) = (policy.config(), &mut self.front);
        front.connection_ids.set_grace_s(config.connection_id.grace_s);
        (front.limits_v4, front.limits_v6) = Limits::both(config);
        front.policy = policy;
    }

    /// Answers a batch. Afterwards, each exchange has its reply, or a `reply_len` of 0 if there is none.
    pub fn serve(&mut self, batch: &mut [Exchange<'_>], now: Now) {
        for chunk in batch.chunks_mut(BATCH_MAX) {
            self.serve_chunk(chunk, now);
        }
    }

    /// Answers at most `BATCH_MAX` datagrams.
    fn serve_chunk(&mut self, chunk: &mut [Exchange<'_>], now: Now) {
        for index in 0..chunk.len() {
            self.begin(chunk, index, now);
        }
        self.apply(chunk, now);
    }

    /// Reads, verifies and decides the request of one datagram. Answers it, unless it has to wait for swarms.
    #[inline]
    fn begin(&mut self, chunk: &mut [Exchange<'_>], index: usize, now: Now) {
        let (front, exchange) = (&mut self.front, &mut chunk[index]);
        exchange.reply_len = 0;
        let ip = exchange.source.ip().to_canonical();
        let family = Family::of(ip);
        if exchange.source.port() == 0 || address::is_nowhere(ip) {
            return front.tally.drop(family, Drop::UnanswerableSource);
        }
        match wire::Request::decode(exchange.request) {
            Ok(wire::Request::Connect { transaction_id }) => {
                let query = front.count(family, Kind::Connect, transaction_id);
                let connection_id = front.connection_ids.issue(ip, now.unix_s);
                // The reply is as large as the smallest request for one.
                let (reply, _rest) =
                    ConnectReply::split(exchange.reply).expect("any reply buffer holds 16 bytes");
                *reply = ConnectReply::new(transaction_id, connection_id);
                front.finish(exchange, query, Outcome::Ok, size_of::<ConnectReply>());
            }
            Ok(wire::Request::Announce { connection_id, transaction_id, announce, options: _ }) => {
                let query = front.count(family, Kind::Announce, transaction_id);
                let verified = front.verify(ip, connection_id, now);
                match verified.and_then(|()| front.admit(ip, announce)) {
                    Ok(decision) => self.push_announce(index, query, ip, announce, decision),
                    Err(refusal) => front.refuse(exchange, query, refusal),
                }
            }
            Ok(wire::Request::Scrape { connection_id, transaction_id, info_hashes }) => {
                let query = front.count(family, Kind::Scrape, transaction_id);
                // Hashes beyond the limit are left out: entry i of the reply is still that of hash i.
                let answered = info_hashes.len().min(front.limits(family).scrape_hashes_max);
                let info_hashes = &info_hashes[..answered];
                let torrents = Torrents::Named(info_hashes);
                let scrape = ScrapeRequest { protocol: Protocol::Udp, ip, torrents };
                let verified = front.verify(ip, connection_id, now);
                match verified.and_then(|()| front.policy.admit_scrape(&scrape)) {
                    Ok(()) => {
                        front.begin_scrape(exchange, query, info_hashes.len());
                        if self.v4.room().min(self.v6.room()) < info_hashes.len() {
                            self.apply(chunk, now);
                        }
                        self.push_scrape(index, query, info_hashes);
                    }
                    Err(refusal) => front.refuse(exchange, query, refusal),
                }
            }
            Err(RequestError::UnknownAction { connection_id, transaction_id, action: _ }) => {
                let query = front.count(family, Kind::Other, transaction_id);
                let verified = front.verify(ip, connection_id, now);
                front.refuse(exchange, query, verified.err().unwrap_or(Refusal::UnknownAction));
            }
            Err(RequestError::Truncated(_)) => front.tally.drop(family, Drop::Truncated),
            Err(RequestError::WrongProtocolId { .. }) => front.tally.drop(family, Drop::WrongProtocolId),
        }
    }

    /// Lets an admitted announce wait for its swarm.
    #[inline]
    fn push_announce(
        &mut self,
        index: usize,
        query: Query,
        ip: IpAddr,
        announce: &Announce,
        decision: Decision,
    ) {
        let Decision { action, peers_wanted, registers } = decision;
        let (sample_seed, port) = (self.front.rng.u64(..), announce.port.get());
        // Both families have the same places.
        let place = self.store.v4.locate(&announce.info_hash);
        match ip {
            IpAddr::V4(ip) => {
                let announce = shoal_store::Announce { peer: PeerV4::new(ip, port), action, peers_wanted };
                self.v4.push(place, index, query, Work::Announce { announce, registers, sample_seed });
            }
            IpAddr::V6(ip) => {
                let announce = shoal_store::Announce { peer: PeerV6::new(ip, port), action, peers_wanted };
                self.v6.push(place, index, query, Work::Announce { announce, registers, sample_seed });
            }
        }
    }

    /// Lets the torrents of an admitted scrape wait for their swarms.
    fn push_scrape(&mut self, index: usize, query: Query, info_hashes: &[InfoHash]) {
        for (entry, info_hash) in (0..).zip(info_hashes) {
            let place = self.store.v4.locate(info_hash);
            match query.family {
                Family::V4 => self.v4.push(place, index, query, Work::Scrape { entry }),
                Family::V6 => self.v6.push(place, index, query, Work::Scrape { entry }),
            }
        }
    }

    /// Applies and answers all waiting requests.
    fn apply(&mut self, chunk: &mut [Exchange<'_>], now: Now) {
        let Self { store, front, v4, v6 } = self;
        v4.prefetch_swarms(&store.v4);
        v6.prefetch_swarms(&store.v6);
        v4.prefetch_large(&store.v4);
        v6.prefetch_large(&store.v6);
        v4.prefetch_peers(&store.v4);
        v6.prefetch_peers(&store.v6);
        v4.apply(&store.v4, |shard, item| front.answer(shard, item, &mut chunk[item.exchange()], now));
        v6.apply(&store.v6, |shard, item| front.answer(shard, item, &mut chunk[item.exchange()], now));
    }
}

impl Front {
    /// Counts a request and returns its terms.
    #[inline]
    fn count(&mut self, family: Family, kind: Kind, transaction_id: TransactionId) -> Query {
        self.tally.request(family, kind);
        Query { family, kind, transaction_id }
    }

    #[inline]
    fn verify(&self, ip: IpAddr, connection_id: ConnectionId, now: Now) -> Result<(), Refusal> {
        if self.connection_ids.accepts(connection_id, ip, now.unix_s) {
            Ok(())
        } else {
            Err(Refusal::WrongConnectionId)
        }
    }

    fn admit(&self, ip: IpAddr, announce: &Announce) -> Result<Decision, Refusal> {
        // The address is that of the datagram. The `ip` field of the announce is ignored, because a client may not choose
        // it.
        let request = Request {
            peer_id: Some(&announce.peer_id),
            port: Some(announce.port.get()),
            event: announce.event(),
            left_bytes: Some(announce.left_bytes.get()),
            numwant: Some(announce.num_want.get().into()),
            ..Request::new(Protocol::Udp, ip, &announce.info_hash)
        };
        self.policy.admit(&request)
    }

    /// Answers with an error, unless the source is unverified and either the policy is silence or the error would
    /// be larger than the request.
    #[cold]
    fn refuse(&mut self, exchange: &mut Exchange<'_>, query: Query, refusal: Refusal) {
        let reply_bytes_max = self.limits(query.family).reply_bytes_max;
        let error_bytes_max = match refusal {
            Refusal::WrongConnectionId if self.policy.config().connection_id.answer_wrong => {
                exchange.request.len().min(reply_bytes_max)
            }
            Refusal::WrongConnectionId => 0,
            _ => reply_bytes_max,
        };
        let message = refusal.message().as_bytes();
        let reply = Reply::Error { transaction_id: query.transaction_id, message };
        match reply.encode(&mut exchange.reply[..error_bytes_max]) {
            Ok(reply_bytes) => self.finish(exchange, query, Outcome::Refused(refusal), reply_bytes),
            Err(_no_room) => self.tally.drop(query.family, Drop::WrongConnectionId),
        }
    }

    /// Writes the head of the reply to a scrape of no more torrents than fit the reply.
    fn begin_scrape(&mut self, exchange: &mut Exchange<'_>, query: Query, torrents: usize) {
        let (head, _entries) =
            ScrapeHead::split(exchange.reply).expect("any reply buffer holds the head of a scrape");
        *head = ScrapeHead::new(query.transaction_id);
        let reply_bytes = size_of::<ScrapeHead>() + torrents * size_of::<ScrapeEntry>();
        self.finish(exchange, query, Outcome::Ok, reply_bytes);
    }

    /// Applies a request and answers it, in the last pass. The store may still refuse it.
    #[inline]
    fn answer<P: shoal_store::Family>(
        &mut self,
        shard: &mut LockedShard<'_, P>,
        item: &Item<P>,
        exchange: &mut Exchange<'_>,
        now: Now,
    ) {
        let query = item.query;
        match &item.work {
            Work::Announce { announce, registers, sample_seed } => {
                let out = &mut exchange.reply[..self.limits(query.family).reply_bytes_max];
                let (head, room) =
                    AnnounceHead::split(out).expect("every reply limit leaves room for a head");
                let rng = &mut fastrand::Rng::with_seed(*sample_seed);
                let announced = if *registers {
                    shard.announce(&item.place, announce, now.monotonic_s, rng, room)
                } else {
                    let seeds = policy::seeds(announce.action);
                    Ok(shard.visit(&item.place, seeds, announce.peers_wanted, rng, room))
                };
                match announced {
                    Ok(Announced { counts: Counts { seeders, leechers, .. }, peers }) => {
                        let interval_s = self.policy.interval_s(Protocol::Udp, &mut self.rng);
                        *head = AnnounceHead::new(query.transaction_id, interval_s, leechers, seeders);
                        let reply_bytes = size_of::<AnnounceHead>() + peers * size_of::<P>();
                        self.finish(exchange, query, Outcome::Ok, reply_bytes);
                    }
                    Err(rejection) => self.refuse(exchange, query, rejection.into()),
                }
            }
            Work::Scrape { entry } => {
                let (_head, entries) =
                    ScrapeHead::split(exchange.reply).expect("any reply buffer holds the head of a scrape");
                let Counts { seeders, leechers, completed } = shard.scrape(&item.place);
                let (seeders, leechers) = (seeders.into(), leechers.into());
                entries[usize::from(*entry)] = ScrapeEntry { seeders, completed: completed.into(), leechers };
            }
        }
    }

    fn finish(&mut self, exchange: &mut Exchange<'_>, query: Query, outcome: Outcome, reply_bytes: usize) {
        exchange.reply_len = reply_bytes;
        self.tally.reply(query.family, query.kind, outcome);
    }

    const fn limits(&self, family: Family) -> Limits {
        match family {
            Family::V4 => self.limits_v4,
            Family::V6 => self.limits_v6,
        }
    }
}

impl Limits {
    /// The least that every host must accept unfragmented: 576 bytes less headers of 20 and 8 (RFC 791, section 3.1).
    const REPLY_BYTES_MIN: usize = 548;

    /// Returns the limits of both families. A value that the buffers cannot hold is moved to the nearest one that they
    /// can. The configuration refuses such values; here they must not break anything.
    fn both(config: &Config) -> (Self, Self) {
        let limits = |reply_bytes_max: u32| {
            let reply_bytes_max = usize::try_from(reply_bytes_max).unwrap_or(usize::MAX);
            let reply_bytes_max = reply_bytes_max.clamp(Self::REPLY_BYTES_MIN, REPLY_BYTES_MAX);
            let hashes_that_fit = (reply_bytes_max - size_of::<ScrapeHead>()) / size_of::<ScrapeEntry>();
            let hashes_max = usize::try_from(config.scrape.hashes_max).unwrap_or(usize::MAX);
            Self { reply_bytes_max, scrape_hashes_max: hashes_max.clamp(1, hashes_that_fit) }
        };
        (limits(config.udp.reply_bytes_max_v4), limits(config.udp.reply_bytes_max_v6))
    }
}
