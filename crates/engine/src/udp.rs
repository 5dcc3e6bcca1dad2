//! Answers datagrams (BEP 15) by the rules of the engine.
//!
//! A batch goes through in passes, so that the cache misses of many requests overlap: every request is read, verified
//! and decided upon; then every swarm is prefetched; then every peer; then all is applied and answered, in the order
//! of arrival. Whatever needs no swarm is answered in the first pass.
//!
//! BEP 15, "UDP connections / spoofing": until a source has proved its address by a connection id, no reply to it is
//! larger than its request.

mod lookup;

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arrayvec::ArrayVec;
use shoal_store::Store;
use shoal_wire::datagram::{BATCH_MAX, Exchange};
use shoal_wire::udp::{Announce, ConnectionId, Reply, Request, RequestError, TransactionId};

use self::lookup::{Lookup, Terms};
use crate::connection::ConnectionIds;
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

/// What a reply over one family can hold.
#[derive(Clone, Copy, Debug)]
struct Limits {
    reply_bytes_max: usize,
    scrape_hashes_max: usize,
}

/// What it takes to count and answer a request.
#[derive(Clone, Copy, Debug)]
struct Query {
    family: Family,
    kind: Kind,
    transaction_id: TransactionId,
}

/// What is to be done about a datagram.
#[derive(Debug)]
enum Verdict<'b> {
    Ignore(Family, Drop),
    Connect(Query, ConnectionId),
    Refuse(Query, Refusal),
    Grant(Query, Lookup<'b>),
}

/// A granted request that waits for its swarms.
#[derive(Debug)]
struct Pending<'b> {
    /// Its place in the batch.
    index: usize,
    query: Query,
    lookup: Lookup<'b>,
    /// The seed of its sample, which is known so early that the sample can be loaded in advance.
    dice: u64,
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

    /// Answers a batch: each exchange is left with its reply, or with a `reply_len` of 0 where there is none.
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
            match self.judge(exchange.source, exchange.request, now) {
                Verdict::Ignore(family, reason) => self.tally.drop(family, reason),
                Verdict::Connect(query, connection_id) => self.connect(exchange, query, connection_id),
                Verdict::Refuse(query, refusal) => {
                    self.tally.request(query.family, query.kind);
                    self.refuse(exchange, query, refusal);
                }
                Verdict::Grant(query, lookup) => {
                    self.tally.request(query.family, query.kind);
                    pending.push(Pending { index, query, lookup, dice: self.rng.u64(..) });
                }
            }
        }
        for Pending { lookup, .. } in &pending {
            lookup.prefetch_swarms(&self.store);
        }
        for Pending { lookup, .. } in &pending {
            lookup.prefetch_large(&self.store);
        }
        // What is drawn here is drawn again when the sample is taken.
        for Pending { lookup, dice, .. } in &pending {
            lookup.prefetch_peers(&self.store, fastrand::Rng::with_seed(*dice));
        }
        for Pending { index, query, lookup, dice } in &pending {
            self.grant(&mut chunk[*index], *query, lookup, now, *dice);
        }
    }

    /// Reads, verifies and decides, without touching a swarm.
    fn judge<'b>(&self, source: SocketAddr, request: &'b [u8], now: Now) -> Verdict<'b> {
        let ip = source.ip().to_canonical();
        let family = Family::of(ip);
        if source.port() == 0 || address::check(ip, false).is_err() {
            return Verdict::Ignore(family, Drop::UnanswerableSource);
        }
        let query = |kind, transaction_id| Query { family, kind, transaction_id };
        let (query, decision) = match Request::decode(request) {
            Ok(Request::Connect { transaction_id }) => {
                let connection_id = self.connection_ids.issue(ip, now.unix_s);
                return Verdict::Connect(query(Kind::Connect, transaction_id), connection_id);
            }
            Ok(Request::Announce { connection_id, transaction_id, announce, options: _ }) => {
                let verified = self.verify(ip, connection_id, now);
                let decision = verified.and_then(|()| self.decide_announce(ip, announce));
                (query(Kind::Announce, transaction_id), decision)
            }
            Ok(Request::Scrape { connection_id, transaction_id, info_hashes }) => {
                let verified = self.verify(ip, connection_id, now);
                // Beyond the limit hashes are left out: entry i of the reply still is that of hash i.
                let answered = info_hashes.len().min(self.limits(family).scrape_hashes_max);
                let decision = verified.map(|()| Lookup::scrape(family, &info_hashes[..answered]));
                (query(Kind::Scrape, transaction_id), decision)
            }
            Err(RequestError::UnknownAction { connection_id, transaction_id, action: _ }) => {
                let verified = self.verify(ip, connection_id, now);
                (query(Kind::Other, transaction_id), verified.and(Err(Refusal::UnknownAction)))
            }
            Err(RequestError::Truncated(_)) => return Verdict::Ignore(family, Drop::Truncated),
            Err(RequestError::WrongProtocolId { .. }) => {
                return Verdict::Ignore(family, Drop::WrongProtocolId);
            }
        };
        match decision {
            Ok(lookup) => Verdict::Grant(query, lookup),
            Err(refusal) => Verdict::Refuse(query, refusal),
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
        // The address is that of the datagram; the `ip` field of the announce is nobody's to choose.
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

    /// Hands out a connection id. The reply is as large as the smallest request for one.
    fn connect(&mut self, exchange: &mut Exchange<'_>, query: Query, connection_id: ConnectionId) {
        self.tally.request(query.family, query.kind);
        let reply = Reply::Connect { transaction_id: query.transaction_id, connection_id };
        let reply_bytes = reply.encode(exchange.reply).expect("any reply buffer holds 16 bytes");
        self.finish(exchange, query, Outcome::Ok, reply_bytes);
    }

    /// Answers with an error, save where the source is unverified and silence is the policy or the error would be
    /// larger than the request.
    fn refuse(&mut self, exchange: &mut Exchange<'_>, query: Query, refusal: Refusal) {
        let reply_bytes_max = self.limits(query.family).reply_bytes_max;
        let room_bytes = match (refusal, self.wrong_connection_id) {
            (Refusal::WrongConnectionId, WrongConnectionId::Silence) => 0,
            (Refusal::WrongConnectionId, WrongConnectionId::Error) => {
                exchange.request.len().min(reply_bytes_max)
            }
            (_, _) => reply_bytes_max,
        };
        let message = refusal.message().as_bytes();
        let reply = Reply::Error { transaction_id: query.transaction_id, message };
        match reply.encode(&mut exchange.reply[..room_bytes]) {
            Ok(reply_bytes) => self.finish(exchange, query, Outcome::Refused(refusal), reply_bytes),
            Err(_no_room) => self.tally.drop(query.family, Drop::WrongConnectionId),
        }
    }

    /// Last pass: does what was granted. The store may still refuse it.
    fn grant(&mut self, exchange: &mut Exchange<'_>, query: Query, lookup: &Lookup<'_>, now: Now, dice: u64) {
        let out = &mut exchange.reply[..self.limits(query.family).reply_bytes_max];
        let interval_s = self.policy.interval_s(&mut self.rng);
        let terms = Terms { transaction_id: query.transaction_id, interval_s };
        match lookup.answer(&self.store, terms, now, &mut fastrand::Rng::with_seed(dice), out) {
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
