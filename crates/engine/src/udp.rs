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
use shoal_store::Store;
use shoal_transport::datagram::{BATCH_MAX, Exchange};
use shoal_wire::udp::{Announce, ConnectionId, Reply, Request, RequestError, TransactionId};

use self::lookup::{Lookup, Terms};
use crate::connection_id::ConnectionIds;
use crate::counter::{Drop, Family, Kind, Outcome, Tally};
use crate::policy::{Policy, Wish};
use crate::refusal::Refusal;
use crate::{Now, Settings, WrongConnectionId, address};

/// Answers the datagrams of one worker.
#[derive(Debug)]
pub struct Responder {
    store: Arc<Store>,
    tally: Tally,
    rng: fastrand::Rng,
    policy: Policy,
    connection_ids: ConnectionIds,
    wrong_connection_id: WrongConnectionId,
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
    Grant(Query, Lookup<'b>),
}

/// A granted request that waits for its swarms.
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
    /// A responder on the common `store`, which counts into `tally` and draws from `rng`. Each worker needs a seed
    /// of its own, or they all hand out the same samples.
    #[must_use]
    pub fn new(settings: &Settings, store: Arc<Store>, tally: Tally, rng: fastrand::Rng) -> Self {
        Self {
            store,
            tally,
            rng,
            policy: Policy::new(settings),
            connection_ids: ConnectionIds::new(&settings.connection_key, settings.connection_grace_s),
            wrong_connection_id: settings.wrong_connection_id,
            limits_v4: Limits::new(settings.reply_bytes_max_v4, settings.scrape_hashes_max),
            limits_v6: Limits::new(settings.reply_bytes_max_v6, settings.scrape_hashes_max),
        }
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
                Disposition::Connect(query, connection_id) => self.connect(exchange, query, connection_id),
                Disposition::Refuse(query, refusal) => {
                    self.tally.request(query.family, query.kind);
                    self.refuse(exchange, query, refusal);
                }
                Disposition::Grant(query, lookup) => {
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
            self.grant(&mut chunk[*index], *query, lookup, now, *sample_seed);
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
        let (query, decision) = match Request::decode(request) {
            Ok(Request::Connect { transaction_id }) => {
                let connection_id = self.connection_ids.issue(ip, now.unix_s);
                return Disposition::Connect(query(Kind::Connect, transaction_id), connection_id);
            }
            Ok(Request::Announce { connection_id, transaction_id, announce, options: _ }) => {
                let verified = self.verify(ip, connection_id, now);
                let decision = verified.and_then(|()| self.decide_announce(ip, announce));
                (query(Kind::Announce, transaction_id), decision)
            }
            Ok(Request::Scrape { connection_id, transaction_id, info_hashes }) => {
                let verified = self.verify(ip, connection_id, now);
                // Hashes beyond the limit are left out: entry i of the reply is still that of hash i.
                let answered = info_hashes.len().min(self.limits(family).scrape_hashes_max);
                let decision = verified.map(|()| Lookup::scrape(family, &info_hashes[..answered]));
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
            Ok(lookup) => Disposition::Grant(query, lookup),
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

    fn decide_announce<'b>(&self, ip: IpAddr, announce: &Announce) -> Result<Lookup<'b>, Refusal> {
        // The address is that of the datagram. The `ip` field of the announce is ignored, because a client may
        // not choose it.
        let wish = Wish {
            ip,
            port: announce.port.get(),
            event: announce.event(),
            left_bytes: Some(announce.left_bytes.get()),
            numwant: Some(announce.num_want.get().into()),
        };
        let grant = self.policy.decide(&wish)?;
        Ok(Lookup::announce(&self.store, &announce.info_hash, &wish, grant))
    }

    /// Answers with a connection id. The reply is as large as the smallest request for one.
    fn connect(&mut self, exchange: &mut Exchange<'_>, query: Query, connection_id: ConnectionId) {
        self.tally.request(query.family, query.kind);
        let reply = Reply::Connect { transaction_id: query.transaction_id, connection_id };
        let reply_bytes = reply.encode(exchange.reply).expect("any reply buffer holds 16 bytes");
        self.finish(exchange, query, Outcome::Ok, reply_bytes);
    }

    /// Answers with an error, unless the source is unverified and either the policy is silence or the error would
    /// be larger than the request.
    fn refuse(&mut self, exchange: &mut Exchange<'_>, query: Query, refusal: Refusal) {
        let reply_bytes_max = self.limits(query.family).reply_bytes_max;
        let error_bytes_max = match (refusal, self.wrong_connection_id) {
            (Refusal::WrongConnectionId, WrongConnectionId::Silence) => 0,
            (Refusal::WrongConnectionId, WrongConnectionId::Error) => {
                exchange.request.len().min(reply_bytes_max)
            }
            (_, _) => reply_bytes_max,
        };
        let message = refusal.message().as_bytes();
        let reply = Reply::Error { transaction_id: query.transaction_id, message };
        match reply.encode(&mut exchange.reply[..error_bytes_max]) {
            Ok(reply_bytes) => self.finish(exchange, query, Outcome::Refused(refusal), reply_bytes),
            Err(_no_room) => self.tally.drop(query.family, Drop::WrongConnectionId),
        }
    }

    /// Applies and answers a request, in the last pass. The store may still refuse it.
    fn grant(
        &mut self,
        exchange: &mut Exchange<'_>,
        query: Query,
        lookup: &Lookup<'_>,
        now: Now,
        sample_seed: u64,
    ) {
        let out = &mut exchange.reply[..self.limits(query.family).reply_bytes_max];
        let interval_s = self.policy.interval_s(&mut self.rng);
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
    fn new(reply_bytes_max: usize, scrape_hashes_max: u32) -> Self {
        let (least, most) = Settings::REPLY_BYTES.into_inner();
        let reply_bytes_max = reply_bytes_max.clamp(least, most);
        let hashes_that_fit = Settings::scrape_hashes_in(reply_bytes_max);
        let scrape_hashes_max = usize::try_from(scrape_hashes_max).unwrap_or(usize::MAX);
        Self { reply_bytes_max, scrape_hashes_max: scrape_hashes_max.clamp(1, hashes_that_fit) }
    }
}
