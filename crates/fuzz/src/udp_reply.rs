//! The whole path from datagrams to replies (codec, engine and a real store), compared with a naive model.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashSet;
use std::sync::Arc;

use shoal_base::transport::datagram::{Exchange, REPLY_BYTES_MAX};
use shoal_base::{Event, InfoHash, PeerV4, PeerV6};
use shoal_config::{Auto, Config, PrivateAddresses};
use shoal_engine::Now;
use shoal_engine::connection_id::{ConnectionIds, ConnectionKey};
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::udp::{Responder, SCRAPE_HASHES_MAX};
use shoal_store::Store;
use shoal_wire::udp::{
    Announce, AnnounceHead, Peers, Reply, Request, RequestError, ScrapeEntry, ScrapeHead, TransactionId,
};

use crate::model::Model;
use crate::script::{Connection, Step, address, steps};

const KEY: ConnectionKey = ConnectionKey::new([7; 16]);
const START: Now = Now { monotonic_s: 1000, monotonic_ms: 1_000_000, unix_s: 1_700_000_000 };

/// Seconds that pass where a step says so: more than half of a time slot of connection ids.
const PASSING_S: u64 = 70;

/// Age in seconds at which any connection id is stale.
const STALE_S: u64 = 100_000;

/// Most steps of an input, so that no input takes long.
const STEPS_MAX: usize = 256;

/// A tracker, and a model of what it should store.
struct Harness {
    config: Config,
    responder: Responder,
    connection_ids: ConnectionIds,
    model: Model,
    now: Now,
}

/// Runs the input as a script (see `script`) and checks every reply.
pub fn udp_reply(input: &[u8]) {
    let Some((&choices, rest)) = input.split_first() else { return };
    let mut harness = Harness::new(choices);
    let mut batch = Vec::new();
    for step in steps(rest).take(STEPS_MAX) {
        if step.time_passes {
            harness.serve(&mut batch);
            harness.now.unix_s += PASSING_S;
        }
        batch.push(harness.datagram(&step));
        if step.batch_ends {
            harness.serve(&mut batch);
        }
    }
    harness.serve(&mut batch);
}

impl Harness {
    /// Creates a tracker whose configuration depends on the bits of `choices`.
    fn new(choices: u8) -> Self {
        let mut config = Config::default();
        config.connection_id.answer_wrong = choices & 1 != 0;
        if choices & 2 != 0 {
            config.address.private = Auto::Set(PrivateAddresses::Refuse);
        }
        config.announce.numwant_max = if choices & 8 == 0 { 200 } else { 3 };
        config.udp.reply_bytes_max = if choices & 32 == 0 { 1232 } else { 548 };
        let store = shoal_store::Settings::new(
            64 << 20,
            2700,
            [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89],
        );
        let store = Arc::new(Store::new(&store).expect("address space for a small store"));
        let rng = fastrand::Rng::with_seed(1);
        Self {
            connection_ids: ConnectionIds::new(&KEY),
            responder: Responder::new(
                Context::new(Protocol::Udp, Arc::new(Policy::new(config.clone())), Tally::default(), rng),
                &KEY,
                store,
            ),
            config,
            model: Model::default(),
            now: START,
        }
    }

    fn datagram(&self, step: &Step<'_>) -> (SocketAddr, Vec<u8>) {
        let source = address(step.client);
        let issue = |client, unix_s| Some(self.connection_ids.issue(address(client).ip(), unix_s));
        let connection_id = match step.connection {
            Connection::Raw => None,
            Connection::Own => issue(step.client, self.now.unix_s),
            Connection::OfNext => issue(step.client + 1, self.now.unix_s),
            Connection::Stale => issue(step.client, self.now.unix_s - STALE_S),
        };
        let mut datagram = step.datagram.to_vec();
        if let (Some(connection_id), Some(field)) = (connection_id, datagram.first_chunk_mut()) {
            *field = connection_id.0.to_be_bytes();
        }
        (source, datagram)
    }

    fn serve(&mut self, batch: &mut Vec<(SocketAddr, Vec<u8>)>) {
        let mut replies = vec![[0xee; REPLY_BYTES_MAX]; batch.len()];
        let mut exchanges: Vec<Exchange<'_>> = batch
            .iter()
            .zip(&mut replies)
            .map(|((source, request), reply)| Exchange { source: *source, request, reply, reply_len: 1 })
            .collect();
        self.responder.serve(&mut exchanges, self.now);
        for Exchange { source, request, reply, reply_len } in &exchanges {
            self.check(*source, request, &reply[..*reply_len]);
        }
        batch.clear();
    }

    fn reply_bytes_max(&self) -> usize {
        usize::try_from(self.config.udp.reply_bytes_max).expect("a small number")
    }

    fn check(&mut self, source: SocketAddr, request: &[u8], reply: &[u8]) {
        let ip = source.ip().to_canonical();
        assert!(reply.len() <= self.reply_bytes_max(), "the reply fits its limit");
        if source.port() == 0 || ip.is_unspecified() || ip.is_multicast() {
            return assert!(reply.is_empty(), "the source cannot be answered");
        }
        let decoded = Reply::decode(reply).ok();
        assert_eq!(decoded.is_none(), reply.is_empty(), "the reply is well formed");
        match Request::decode(request) {
            Ok(Request::Connect { transaction_id }) => {
                let connection_id = self.connection_ids.issue(ip, self.now.unix_s);
                assert_eq!(decoded, Some(Reply::Connect { transaction_id, connection_id }));
                assert!(reply.len() <= request.len());
            }
            Ok(
                Request::Announce { connection_id, transaction_id, .. }
                | Request::Scrape { connection_id, transaction_id, .. },
            )
            | Err(RequestError::UnknownAction { connection_id, transaction_id, .. })
                if !self.connection_ids.accepts(connection_id, ip, self.now.unix_s) =>
            {
                // The address of the source is unverified: it gets silence, or an error no larger than its request.
                assert!(reply.len() <= request.len(), "no amplification");
                if !reply.is_empty() {
                    assert!(self.config.connection_id.answer_wrong);
                    assert_error(decoded, transaction_id, b"bad connection ID");
                }
            }
            Ok(Request::Announce { transaction_id, announce, .. }) => {
                self.check_announce(ip, transaction_id, announce, decoded);
            }
            Ok(Request::Scrape { transaction_id, info_hashes, .. }) => {
                self.check_scrape(ip, transaction_id, info_hashes, decoded);
            }
            Err(RequestError::UnknownAction { transaction_id, .. }) => {
                assert_error(decoded, transaction_id, b"unknown action");
            }
            Err(RequestError::Truncated(_) | RequestError::WrongProtocolId { .. }) => {
                assert!(reply.is_empty(), "an invalid request gets no reply");
            }
        }
    }

    fn check_scrape(
        &self,
        ip: IpAddr,
        transaction_id: TransactionId,
        info_hashes: &[InfoHash],
        reply: Option<Reply<'_>>,
    ) {
        let Some(Reply::Scrape { transaction_id: repeated, entries }) = reply else {
            panic!("{reply:?} to a scrape");
        };
        assert_eq!(repeated, transaction_id);
        let fitting = (self.reply_bytes_max() - size_of::<ScrapeHead>()) / size_of::<ScrapeEntry>();
        assert_eq!(entries.len(), info_hashes.len().min(SCRAPE_HASHES_MAX).min(fitting));
        for (info_hash, entry) in info_hashes.iter().zip(entries) {
            let counts = [entry.seeders.get(), entry.leechers.get()];
            assert_eq!(counts, self.model.counts(ip, *info_hash));
        }
    }

    fn check_announce(
        &mut self,
        ip: IpAddr,
        transaction_id: TransactionId,
        announce: &Announce,
        reply: Option<Reply<'_>>,
    ) {
        let stopped = announce.event() == Event::Stopped;
        if is_private(ip) && self.config.address.private == Auto::Set(PrivateAddresses::Refuse) && !stopped {
            return assert_error(reply, transaction_id, b"private addresses are not served by this tracker");
        }
        let Some(Reply::Announce { transaction_id: repeated, interval_s, leechers, seeders, peers }) = reply
        else {
            panic!("{reply:?} to {announce:?}");
        };
        assert_eq!(repeated, transaction_id);
        assert!((1800..=2100).contains(&interval_s));
        let swarm = self.model.announce(ip, announce);
        assert_eq!([seeders, leechers], swarm.counts());

        let peers = peers_of(ip, peers);
        let announcer = SocketAddr::new(ip, announce.port.get());
        assert!(!peers.contains(&announcer), "the announcer does not get its own address");
        assert_eq!(peers.iter().collect::<HashSet<_>>().len(), peers.len(), "no duplicates");
        let numwant_max = self.config.announce.numwant_max;
        let wanted = match announce.num_want.get() {
            _ if stopped => 0,
            ..0 => self.config.announce.numwant_default.min(numwant_max),
            numwant => numwant.unsigned_abs().min(numwant_max),
        };
        let wanted = usize::try_from(wanted).expect("a small number");
        // A peer at port 0 is not in the swarm, so its role is not in the model.
        let has_all = announce.event() == Event::Completed || announce.left_bytes.get() == 0;
        let announcer_seeds = has_all && !stopped;
        let eligible = |peer: &SocketAddr| match swarm.seeds.get(peer) {
            Some(&seeds) => *peer != announcer && !(announcer_seeds && seeds),
            None => false,
        };
        assert!(peers.iter().all(eligible), "{peers:?} of {swarm:?} for {announcer}");
        let available = swarm.seeds.keys().filter(|peer| eligible(peer)).count();
        let peer_bytes = if ip.is_ipv4() { size_of::<PeerV4>() } else { size_of::<PeerV6>() };
        let fitting = (self.reply_bytes_max() - size_of::<AnnounceHead>()) / peer_bytes;
        assert_eq!(peers.len(), available.min(wanted).min(fitting));
    }
}

fn assert_error(reply: Option<Reply<'_>>, transaction_id: TransactionId, message: &[u8]) {
    assert_eq!(reply, Some(Reply::Error { transaction_id, message }));
}

fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
    }
}

/// Returns the peers of a reply to `ip`, which are of the same family.
fn peers_of(ip: IpAddr, peers: Peers<'_>) -> Vec<SocketAddr> {
    if ip.is_ipv4() {
        let peers = peers.of_family::<PeerV4>().expect("whole v4 peers");
        peers.iter().map(|peer| peer.addr().into()).collect()
    } else {
        let peers = peers.of_family::<PeerV6>().expect("whole v6 peers");
        peers.iter().map(|peer| peer.addr().into()).collect()
    }
}
