//! Answers datagrams (BEP 15) by the rules of the engine.
//!
//! A batch is processed in passes, so that the cache misses of many requests overlap: the first pass reads, verifies
//! and decides every request, the next ones prefetch every swarm and every peer, and the last one applies and answers
//! the requests. The passes over swarms go from shard to shard (`batch`), and keep the order of arrival within each
//! swarm. The first pass also answers requests that need no swarm.
//!
//! BEP 15, "UDP connections / spoofing": until a source has proved its address by a connection id, no reply to it is
//! larger than its request.

mod answer;

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arrayvec::ArrayVec;
use shoal_access::rules::HeaderMatch;
use shoal_access::torrents::TorrentLists;
use shoal_base::transport::datagram::{BATCH_MAX, Exchange, REPLY_BYTES_MAX};
use shoal_base::{Action, InfoHash, PeerV4, PeerV6};
use shoal_config::Config;
use shoal_store::{PrivateNetwork, Store, prefetch};
use shoal_wire::udp::{
    self as wire, Announce, AnnounceHead, ConnectReply, Options, Reply, RequestError, ScrapeEntry,
    ScrapeHead, TransactionId,
};

use crate::batch::{Batch, ITEMS_MAX, Work};
use crate::connection_id::{ConnectionIds, ConnectionKey};
use crate::context::Context;
use crate::counter::{Drop, Family, Kind, Outcome};
use crate::limits::Activity;
use crate::pace::Pace;
use crate::policy::{Decision, Policy, Protocol, Request, ScrapeRequest, Torrents};
use crate::refusal::{Refusal, Refused};
use crate::tokens::Shown;
use crate::watch::Sighting;
use crate::{Now, address};

/// Maximum number of torrents for which a scrape is answered. BEP 15 lets clients send "about 74".
pub const SCRAPE_HASHES_MAX: usize = 74;

const _: () =
    assert!(SCRAPE_HASHES_MAX <= (REPLY_BYTES_MAX - size_of::<ScrapeHead>()) / size_of::<ScrapeEntry>());

/// Size of the fields before the first info hash of an announce or a scrape (BEP 15).
const REQUEST_HEAD_BYTES: usize = 16;

/// Answers the datagrams of one worker.
#[derive(Debug)]
pub struct Responder {
    store: Arc<Store>,
    front: Front,
    /// The requests that wait for their swarms.
    v4: Box<Batch<PeerV4, TransactionId, ITEMS_MAX>>,
    v6: Box<Batch<PeerV6, TransactionId, ITEMS_MAX>>,
}

/// A peer of one family, which announces itself from an address of that family.
trait Peer: shoal_store::Family {
    const FAMILY: Family;
}

impl Peer for PeerV4 {
    const FAMILY: Family = Family::V4;
}

impl Peer for PeerV6 {
    const FAMILY: Family = Family::V6;
}

/// The data for decisions and replies, except the store.
#[derive(Debug)]
struct Front {
    context: Context,
    connection_ids: ConnectionIds,
    limits_v4: Limits,
    limits_v6: Limits,
}

/// The limits of a reply over one family.
#[derive(Clone, Copy, Debug)]
struct Limits {
    reply_bytes_max: usize,
    peers_max: usize,
    scrape_hashes_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Query {
    family: Family,
    kind: Kind,
    transaction_id: TransactionId,
}

impl Responder {
    /// Creates a responder on the shared `store`. Connection ids are made from `key`.
    pub fn new(context: Context, key: &ConnectionKey, store: impl Into<Arc<Store>>) -> Self {
        let (limits_v4, limits_v6) = Limits::both(context.policy.config());
        let front = Front { context, connection_ids: ConnectionIds::new(key), limits_v4, limits_v6 };
        Self { store: store.into(), front, v4: Box::new(Batch::new()), v6: Box::new(Batch::new()) }
    }

    /// Replaces the policy for all later batches.
    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        (self.front.limits_v4, self.front.limits_v6) = Limits::both(policy.config());
        self.front.context.set_policy(policy);
    }

    /// Makes connection ids from another key for all later batches. Ids of the previous key keep their validity.
    pub fn set_connection_key(&mut self, key: &ConnectionKey, unix_s: u64) {
        self.front.connection_ids.replace_key(key, unix_s);
    }

    /// Sets how far the intervals of all later replies are raised.
    pub fn set_pace(&mut self, pace: Pace) {
        self.front.context.set_pace(pace);
    }

    /// Answers a batch. Afterwards, each exchange has its reply, or a `reply_len` of 0 if there is none.
    pub fn serve(&mut self, batch: &mut [Exchange<'_>], now: Now) {
        for chunk in batch.chunks_mut(BATCH_MAX) {
            self.serve_chunk(chunk, now);
        }
    }

    /// Answers at most `BATCH_MAX` datagrams.
    fn serve_chunk(&mut self, chunk: &mut [Exchange<'_>], now: Now) {
        if let Some(lists) = self.front.context.policy.access().and_then(|access| access.torrents.as_deref())
            && !self.front.context.policy.permits_swarms()
        {
            // Announces have their info hash at the same place as scrapes the first of theirs, which are not looked up, but rare.
            prefetch_lists(lists, chunk.iter().filter_map(|exchange| first_info_hash(exchange.request)));
        }
        if let Some(limits) = self.front.context.policy.limits()
            && limits.is_exact(Protocol::Udp)
        {
            for exchange in &*chunk {
                limits.prefetch(address::canonical(&exchange.source), Activity::Request(Protocol::Udp));
            }
        }
        self.front.context.set_now(now);
        for index in 0..chunk.len() {
            self.begin(chunk, index, now);
        }
        self.apply(chunk, now);
        if self.front.context.access_log.is_some() {
            log_answered(&mut self.front.context, chunk);
        }
    }

    /// Reads, verifies and decides the request of one datagram. Answers it, unless it has to wait for swarms.
    #[inline]
    fn begin(&mut self, chunk: &mut [Exchange<'_>], index: usize, now: Now) {
        let (front, exchange) = (&mut self.front, &mut chunk[index]);
        exchange.reply_len = 0;
        let ip = address::canonical(&exchange.source);
        let family = Family::of(ip);
        if exchange.source.port() == 0 || address::is_nowhere(ip) {
            return front.context.tally.drop(family, Drop::UnanswerableSource);
        }
        if front.context.drops_banned(ip) {
            return;
        }
        match wire::Request::decode(exchange.request) {
            Ok(wire::Request::Connect { transaction_id }) => {
                let query = front.count(family, Kind::Connect, transaction_id);
                if let Err(refusal) = front.context.policy.admit_connect(ip, now) {
                    let is_rule = refusal == Refusal::Dropped;
                    front.context.tally.drop(family, if is_rule { Drop::Rule } else { Drop::RateLimited });
                    return front.log_refused(exchange, refusal);
                }
                let connection_id = front.connection_ids.issue(ip, now.unix_s);
                // The reply is as large as the smallest connect request.
                let (reply, _rest) =
                    ConnectReply::split(exchange.reply).expect("any reply buffer holds 16 bytes");
                *reply = ConnectReply::new(transaction_id, connection_id);
                front.finish(exchange, query, Outcome::Ok, size_of::<ConnectReply>());
            }
            Ok(wire::Request::Announce { connection_id, transaction_id, announce, options }) => {
                front.context.tally.request(family, Kind::Announce);
                if let Err(refusal) = front.verify(ip, connection_id, now) {
                    let query = Query { family, kind: Kind::Announce, transaction_id };
                    return front.refuse(exchange, query, refusal);
                }
                let (drawn, policy) = (front.context.gate.draw(), &front.context.policy);
                if !policy.passes(ip, Protocol::Udp, drawn, now) || policy.network_apart(ip).is_some() {
                    return self.admit(exchange, index, (announce, options), transaction_id, drawn, now);
                }
                let decision = answer::decide(policy, announce);
                self.push_announce(index, &exchange.source, announce, transaction_id, decision, 0);
            }
            Ok(wire::Request::Scrape { connection_id, transaction_id, info_hashes }) => {
                let query = front.count(family, Kind::Scrape, transaction_id);
                let torrents = Torrents::Named(info_hashes);
                // BEP 41 extends announces only.
                let shown = Shown::Nothing;
                let headers = HeaderMatch::default();
                let scrape = ScrapeRequest { protocol: Protocol::Udp, ip, torrents, shown, headers };
                let verified = front.verify(ip, connection_id, now).map_err(Refused::from);
                match verified
                    .and_then(|()| front.context.policy.admit_scrape(&scrape, front.context.pace, now))
                {
                    Ok(()) => self.push_scrape(chunk, index, query, info_hashes, now),
                    Err(refused) => front.refuse(exchange, query, refused),
                }
            }
            Err(RequestError::UnknownAction { connection_id, transaction_id, action: _ }) => {
                let query = front.count(family, Kind::Other, transaction_id);
                match front.verify(ip, connection_id, now) {
                    Ok(()) => {
                        front.context.policy.observe(ip, Sighting::Malformed, 1, now);
                        front.refuse(exchange, query, Refusal::UnknownAction);
                    }
                    Err(refusal) => front.leave_unanswered(exchange, query, refusal),
                }
            }
            Err(RequestError::Truncated(_)) => front.context.tally.drop(family, Drop::Truncated),
            Err(RequestError::WrongProtocolId { .. }) => {
                front.context.tally.drop(family, Drop::WrongProtocolId)
            }
        }
    }

    /// Decides about an announce that does not pass by itself.
    #[inline(never)]
    fn admit(
        &mut self,
        exchange: &mut Exchange<'_>,
        index: usize,
        (announce, options): (&Announce, Options<'_>),
        transaction_id: TransactionId,
        drawn: u32,
        now: Now,
    ) {
        let ip = address::canonical(&exchange.source);
        let query = Query { family: Family::of(ip), kind: Kind::Announce, transaction_id };
        let policy = &self.front.context.policy;
        match policy.admit(&Request { drawn, ..answer::request(ip, announce, options) }, now) {
            Ok(decision) => match policy.network_apart(ip) {
                None => {
                    let source = &exchange.source;
                    self.push_announce(index, source, announce, transaction_id, decision, drawn);
                }
                Some(network) => self.serve_apart(network, announce, decision, exchange, query, now),
            },
            Err(refused) => self.front.refuse(exchange, query, refused),
        }
    }

    /// Answers an admitted announce from a private network that is kept apart. Waiting requests never concern its
    /// swarm, so their order stays.
    #[cold]
    fn serve_apart(
        &mut self,
        network: PrivateNetwork,
        announce: &Announce,
        decision: Decision,
        exchange: &mut Exchange<'_>,
        query: Query,
        now: Now,
    ) {
        let Self { store, front, .. } = self;
        // The decision may have left this check to the search for the public swarm.
        if decision.action != Action::Stop
            && let Err(refused) = front.context.policy.check_torrent(&announce.info_hash)
        {
            return front.refuse(exchange, query, refused);
        }
        front.answer_apart(store, network, (announce, decision), exchange, query, now);
    }

    /// Lets an admitted announce wait for its swarm.
    #[inline(always)]
    fn push_announce(
        &mut self,
        index: usize,
        source: &SocketAddr,
        announce: &Announce,
        transaction_id: TransactionId,
        decision: Decision,
        drawn: u32,
    ) {
        let place = self.store.locate(&announce.info_hash);
        let port = announce.port.get();
        match address::canonical(source) {
            IpAddr::V4(ip) => {
                let work = self.front.work(PeerV4::new(ip, port), announce.event(), decision, drawn);
                self.v4.push(place, index, transaction_id, work);
            }
            IpAddr::V6(ip) => {
                let work = self.front.work(PeerV6::new(ip, port), announce.event(), decision, drawn);
                self.v6.push(place, index, transaction_id, work);
            }
        }
    }

    /// Lets the torrents of an admitted scrape wait for their swarms.
    #[inline(never)]
    fn push_scrape(
        &mut self,
        chunk: &mut [Exchange<'_>],
        index: usize,
        query: Query,
        info_hashes: &[InfoHash],
        now: Now,
    ) {
        // Hashes beyond the limit are left out. Entry i of the reply still belongs to hash i.
        let answered = info_hashes.len().min(self.front.limits(query.family).scrape_hashes_max);
        let info_hashes = &info_hashes[..answered];
        self.front.begin_scrape(&mut chunk[index], query, answered);
        // The rest of the batch may be announces, which do not check for room.
        let needed = answered + chunk.len() - index - 1;
        if self.v4.room().min(self.v6.room()) < needed {
            self.apply(chunk, now);
        }
        for (entry, info_hash) in (0..).zip(info_hashes) {
            let place = self.store.locate(info_hash);
            match query.family {
                Family::V4 => self.v4.push(place, index, query.transaction_id, Work::Scrape { entry }),
                Family::V6 => self.v6.push(place, index, query.transaction_id, Work::Scrape { entry }),
            }
        }
    }

    fn apply(&mut self, chunk: &mut [Exchange<'_>], now: Now) {
        let Self { store, front, v4, v6 } = self;
        front.apply(store, v4, v6, chunk, now);
    }
}

/// Prefetches the entries of the operator's lists that the decisions about a batch will read.
#[inline(never)]
pub(crate) fn prefetch_lists(lists: &TorrentLists, info_hashes: impl Iterator<Item = InfoHash>) {
    let hashes: ArrayVec<_, BATCH_MAX> =
        info_hashes.map(|info_hash| lists.hash(&info_hash)).take(BATCH_MAX).collect();
    for hash in &hashes {
        lists.bounds(*hash).for_each(prefetch);
    }
    for hash in &hashes {
        lists.entries(*hash).for_each(prefetch);
    }
}

/// Returns the bytes at the place of the first info hash of an announce or a scrape.
fn first_info_hash(request: &[u8]) -> Option<InfoHash> {
    Some(InfoHash(*request.get(REQUEST_HEAD_BYTES..)?.first_chunk()?))
}

/// Logs the requests that were answered as they wished. The others were logged when they were refused.
#[inline(never)]
fn log_answered(context: &mut Context, chunk: &[Exchange<'_>]) {
    for exchange in chunk {
        let reply = &exchange.reply[..exchange.reply_len];
        if !reply.is_empty() && !matches!(Reply::decode(reply), Ok(Reply::Error { .. })) {
            log_datagram(context, exchange, Outcome::Ok);
        }
    }
}

fn log_datagram(context: &mut Context, exchange: &Exchange<'_>, outcome: Outcome) {
    let ip = address::canonical(&exchange.source);
    context.log(Some(ip), Kind::Other, outcome, |record| {
        record.read_datagram(exchange.request, &exchange.reply[..exchange.reply_len]);
    });
}

impl Limits {
    /// The largest datagram that every host must accept unfragmented: 576 bytes less headers of 20 and 8 (RFC 791,
    /// section 3.1).
    const REPLY_BYTES_MIN: usize = 548;

    /// Returns the limits of both families, clamped to what the buffers hold. The configuration refuses larger
    /// values; here they must not break anything.
    fn both(config: &Config) -> (Self, Self) {
        let reply_bytes_max = usize::try_from(config.udp.reply_bytes_max).unwrap_or(usize::MAX);
        let reply_bytes_max = reply_bytes_max.clamp(Self::REPLY_BYTES_MIN, REPLY_BYTES_MAX);
        let limits = |peer_bytes: usize| {
            let hashes_that_fit = (reply_bytes_max - size_of::<ScrapeHead>()) / size_of::<ScrapeEntry>();
            let peers_max = (reply_bytes_max - size_of::<AnnounceHead>()) / peer_bytes;
            Self { reply_bytes_max, peers_max, scrape_hashes_max: SCRAPE_HASHES_MAX.min(hashes_that_fit) }
        };
        (limits(size_of::<PeerV4>()), limits(size_of::<PeerV6>()))
    }
}
