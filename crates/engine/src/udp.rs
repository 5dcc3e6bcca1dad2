//! Answers datagrams (BEP 15) by the rules of the engine.
//!
//! A batch is processed in passes, so that the cache misses of many requests overlap: the first pass reads,
//! verifies and decides every request, the next ones prefetch every swarm and every peer, and the last one
//! applies and answers the requests in the order of arrival. Requests that need no swarm are answered in the
//! first pass.
//!
//! BEP 15, "UDP connections / spoofing": until a source has proved its address by a connection id, no reply to it
//! is larger than its request.

mod lookup;

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arrayvec::ArrayVec;
use shoal_config::Config;
use shoal_store::Store;
use shoal_transport::datagram::{BATCH_MAX, Exchange, REPLY_BYTES_MAX};
use shoal_wire::udp::{
    self as wire, Announce, ConnectionId, Reply, RequestError, ScrapeEntry, ScrapeHead, TransactionId,
};

use self::lookup::{Lookup, Terms};
use crate::connection_id::{ConnectionIds, ConnectionKey};
use crate::counter::{Drop, Family, Kind, Outcome, Tally};
use crate::policy::{Policy, Protocol, Request, ScrapeRequest, Torrents};
use crate::refusal::Refusal;
use crate::{Now, address};

/// Answers the datagrams of one worker.
#[derive(Debug)]
pub struct Responder {
    store: Arc<Store>,
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

/// The action to take on a datagram.
#[derive(Debug)]
enum Disposition<'b> {
    Ignore(Family, Drop),
    Connect(Query, ConnectionId),
    Refuse(Query, Refusal),
    Serve(Query, Lookup<'b>),
}

/// An admitted request that waits for its swarms.
#[derive(Debug)]
struct Pending<'b> {
    /// Its index in the batch.
    index: usize,
    query: Query,
    lookup: Lookup<'b>,
    /// The seed of its sample. It is drawn this early so that the peers of the sample can be prefetched.
    sample_seed: u64,
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
        Self { store, tally, rng, policy, connection_ids, limits_v4, limits_v6 }
    }

    /// Replaces the policy for all later batches.
    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        let config = policy.config();
        self.connection_ids.set_grace_s(config.connection_id.grace_s);
        (self.limits_v4, self.limits_v6) = Limits::both(config);
        self.policy = policy;
    }

    /// Answers a batch. Afterwards, each exchange has its reply, or a `reply_len` of 0 if there is none.
    pub fn serve(&mut self, batch: &mut [Exchange<'_>], now: Now) {
        for chunk in batch.chunks_mut(BATCH_MAX) {
            self.serve_chunk(chunk, now);
        }
    }

    /// Answers at most `BATCH_MAX` datagrams.
    fn serve_chunk(&mut self, chunk: &mut [Exchange<'_>], now: Now) {
        let mut pending = ArrayVec::<Pending<'_>, BATCH_MAX>::new();
        for (index, exchange) in chunk.iter_mut().enumerate() {
            exchange.reply_len = 0;
            match self.classify(exchange.source, exchange.request, now) {
                Disposition::Ignore(family, reason) => self.tally.drop(family, reason),
                Disposition::Connect(query, connection_id) => {
                    self.tally.request(query.family, query.kind);
                    let reply = Reply::Connect { transaction_id: query.transaction_id, connection_id };
                    // The reply is as large as the smallest request for one.
                    let reply_bytes = reply.encode(exchange.reply).expect("any reply buffer holds 16 bytes");
                    self.finish(exchange, query, Outcome::Ok, reply_bytes);
                }
                Disposition::Refuse(query, refusal) => {
                    self.tally.request(query.family, query.kind);
                    self.refuse(exchange, query, refusal);
                }
                Disposition::Serve(query, lookup) => {
                    self.tally.request(query.family, query.kind);
                    pending.push(Pending { index, query, lookup, sample_seed: self.rng.u64(..) });
                }
            }
        }
        for Pending { lookup, .. } in &pending {
            lookup.prefetch_swarms(&self.store);
        }
        for Pending { lookup, .. } in &pending {
            lookup.prefetch_large(&self.store);
        }
        // Sampling later draws the same peers again.
        for Pending { lookup, sample_seed, .. } in &pending {
            lookup.prefetch_peers(&self.store, fastrand::Rng::with_seed(*sample_seed));
        }
        for Pending { index, query, lookup, sample_seed } in &pending {
            self.answer(&mut chunk[*index], *query, lookup, now, *sample_seed);
        }
    }

    /// Reads and verifies a datagram and decides what to do with it, without touching a swarm.
    fn classify<'b>(&self, source: SocketAddr, request: &'b [u8], now: Now) -> Disposition<'b> {
        let ip = source.ip().to_canonical();
        let family = Family::of(ip);
        if source.port() == 0 || address::check(ip, false).is_err() {
            return Disposition::Ignore(family, Drop::UnanswerableSource);
        }
        let query = |kind, transaction_id| Query { family, kind, transaction_id };
        let (query, decision) = match wire::Request::decode(request) {
            Ok(wire::Request::Connect { transaction_id }) => {
                let connection_id = self.connection_ids.issue(ip, now.unix_s);
                return Disposition::Connect(query(Kind::Connect, transaction_id), connection_id);
            }
            Ok(wire::Request::Announce { connection_id, transaction_id, announce, options: _ }) => {
                let verified = self.verify(ip, connection_id, now);
                let decision = verified.and_then(|()| self.admit(ip, announce));
                (query(Kind::Announce, transaction_id), decision)
            }
            Ok(wire::Request::Scrape { connection_id, transaction_id, info_hashes }) => {
                let verified = self.verify(ip, connection_id, now);
                // Hashes beyond the limit are left out: entry i of the reply is still that of hash i.
                let answered = info_hashes.len().min(self.limits(family).scrape_hashes_max);
                let info_hashes = &info_hashes[..answered];
                let torrents = Torrents::Named(info_hashes);
                let scrape = ScrapeRequest { protocol: Protocol::Udp, ip, torrents };
                let admitted = verified.and_then(|()| self.policy.admit_scrape(&scrape));
                let decision = admitted.map(|()| Lookup::scrape(family, info_hashes));
                (query(Kind::Scrape, transaction_id), decision)
            }
            Err(RequestError::UnknownAction { connection_id, transaction_id, action: _ }) => {
                let verified = self.verify(ip, connection_id, now);
                (query(Kind::Other, transaction_id), verified.and(Err(Refusal::UnknownAction)))
            }
            Err(RequestError::Truncated(_)) => return Disposition::Ignore(family, Drop::Truncated),
            Err(RequestError::WrongProtocolId { .. }) => {
                return Disposition::Ignore(family, Drop::WrongProtocolId);
            }
        };
        match decision {
            Ok(lookup) => Disposition::Serve(query, lookup),
            Err(refusal) => Disposition::Refuse(query, refusal),
        }
    }

    fn verify(&self, ip: IpAddr, connection_id: ConnectionId, now: Now) -> Result<(), Refusal> {
        if self.connection_ids.accepts(connection_id, ip, now.unix_s) {
            Ok(())
        } else {
            Err(Refusal::WrongConnectionId)
        }
    }

    fn admit<'b>(&self, ip: IpAddr, announce: &Announce) -> Result<Lookup<'b>, Refusal> {
        let port = announce.port.get();
        // The address is that of the datagram. The `ip` field of the announce is ignored, because a client may not choose
        // it.
        let request = Request {
            peer_id: Some(&announce.peer_id),
            port: Some(port),
            event: announce.event(),
            left_bytes: Some(announce.left_bytes.get()),
            numwant: Some(announce.num_want.get().into()),
            ..Request::new(Protocol::Udp, ip, &announce.info_hash)
        };
        let decision = self.policy.admit(&request)?;
        Ok(Lookup::announce(&self.store, &announce.info_hash, SocketAddr::new(ip, port), decision))
    }

    /// Answers with an error, unless the source is unverified and either the policy is silence or the error would
    /// be larger than the request.
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

    /// Applies and answers a request, in the last pass. The store may still refuse it.
    fn answer(
        &mut self,
        exchange: &mut Exchange<'_>,
        query: Query,
        lookup: &Lookup<'_>,
        now: Now,
        sample_seed: u64,
    ) {
        let out = &mut exchange.reply[..self.limits(query.family).reply_bytes_max];
        let interval_s = self.policy.interval_s(Protocol::Udp, &mut self.rng);
        let terms = Terms { transaction_id: query.transaction_id, interval_s };
        match lookup.answer(&self.store, terms, now, &mut fastrand::Rng::with_seed(sample_seed), out) {
            Ok(reply_bytes) => self.finish(exchange, query, Outcome::Ok, reply_bytes),
            Err(refusal) => self.refuse(exchange, query, refusal),
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
