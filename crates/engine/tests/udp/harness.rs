//! A tracker without sockets, and its clients.

#[path = "../support/config.rs"]
mod config;

use std::net::SocketAddr;
use std::sync::Arc;

use shoal_base::transport::datagram::{Exchange, REPLY_BYTES_MAX};
use shoal_base::{Event, InfoHash, PeerId, PeerV4, PeerV6};
use shoal_config::Config;
use shoal_engine::Now;
use shoal_engine::connection_id::ConnectionKey;
use shoal_engine::context::Context;
use shoal_engine::counter::{Counters, Drop, Family, Kind, Outcome, Tally};
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::udp::Responder;
use shoal_store::Store;
use shoal_wire::udp::{Announce, ConnectionId, Options, Reply, Request, ScrapeEntry, TransactionId};

pub(crate) use config::{configured, policy};

pub(crate) const TRANSACTION: TransactionId = TransactionId(0x5eed_cafe);
pub(crate) const HASH: InfoHash = InfoHash([0xaa; 20]);

pub(crate) struct Tracker {
    responder: Responder,
    pub(crate) counters: Arc<Counters>,
    pub(crate) now: Now,
}

/// An announce reply in the terms of the tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Swarm {
    pub(crate) interval_s: u32,
    pub(crate) leechers: u32,
    pub(crate) seeders: u32,
    pub(crate) peers: Vec<SocketAddr>,
}

pub(crate) fn store_settings() -> shoal_store::Settings {
    shoal_store::Settings::new(
        256 << 20,
        2700,
        [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89],
    )
}

/// Returns a leecher that leaves the number of peers to the tracker.
pub(crate) fn leecher(port: u16) -> Announce {
    Announce {
        info_hash: HASH,
        peer_id: PeerId([b'-'; 20]),
        downloaded_bytes: 0.into(),
        left_bytes: 1.into(),
        uploaded_bytes: 0.into(),
        event: Announce::event_number(Event::Started),
        ip: [0; 4],
        key: 0.into(),
        num_want: (-1).into(),
        port: port.into(),
    }
}

pub(crate) fn seeder(port: u16) -> Announce {
    Announce { left_bytes: 0.into(), ..leecher(port) }
}

pub(crate) fn with_event(event: Event, announce: Announce) -> Announce {
    Announce { event: Announce::event_number(event), ..announce }
}

impl Tracker {
    pub(crate) fn new(config: &Config) -> Self {
        Self::with_store(config, &store_settings())
    }

    pub(crate) fn with_store(config: &Config, store: &shoal_store::Settings) -> Self {
        let tally = Tally::default();
        let counters = tally.counters();
        let store = Arc::new(Store::new(store).expect("address space"));
        let (policy, key) = (Arc::new(policy(config)), ConnectionKey::new([7; 16]));
        let responder = Responder::new(
            Context::new(Protocol::Udp, policy, tally, fastrand::Rng::with_seed(3)),
            &key,
            store,
        );
        Self {
            responder,
            counters,
            now: Now { monotonic_s: 1000, monotonic_ms: 1_000_000, unix_s: 1_700_000_000 },
        }
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.responder.set_policy(Arc::new(policy));
    }

    /// Sends many datagrams as one batch.
    pub(crate) fn batch(&mut self, datagrams: &[(SocketAddr, Vec<u8>)]) -> Vec<Vec<u8>> {
        // Left-overs of earlier replies, which must not appear in this one.
        let mut replies = vec![[0xee; REPLY_BYTES_MAX]; datagrams.len()];
        let mut exchanges: Vec<Exchange<'_>> = datagrams
            .iter()
            .zip(&mut replies)
            .map(|((source, request), reply)| Exchange { source: *source, request, reply, reply_len: 77 })
            .collect();
        self.responder.serve(&mut exchanges, self.now);
        exchanges.iter().map(|exchange| exchange.reply[..exchange.reply_len].to_vec()).collect()
    }

    pub(crate) fn datagram(&mut self, source: SocketAddr, request: &[u8]) -> Vec<u8> {
        self.batch(&[(source, request.to_vec())]).remove(0)
    }

    pub(crate) fn ask(&mut self, source: SocketAddr, request: &Request<'_>) -> Vec<u8> {
        self.datagram(source, &bytes_of(request))
    }

    pub(crate) fn connect(&mut self, source: SocketAddr) -> ConnectionId {
        let reply = self.ask(source, &Request::Connect { transaction_id: TRANSACTION });
        match Reply::decode(&reply) {
            Ok(Reply::Connect { transaction_id: TRANSACTION, connection_id }) => connection_id,
            other => panic!("{other:?} to a connect"),
        }
    }

    /// Connects, announces and returns the raw reply.
    pub(crate) fn announce_raw(&mut self, source: SocketAddr, announce: &Announce) -> Vec<u8> {
        let connection_id = self.connect(source);
        self.ask(source, &announce_request(connection_id, announce))
    }

    /// Connects, announces and asserts success.
    pub(crate) fn announce(&mut self, source: SocketAddr, announce: &Announce) -> Swarm {
        swarm_of(source, &self.announce_raw(source, announce))
    }

    /// Connects, announces, asserts a refusal and returns its reason.
    pub(crate) fn refusal(&mut self, source: SocketAddr, announce: &Announce) -> String {
        error_of(&self.announce_raw(source, announce))
    }

    /// Connects, scrapes and asserts success. Returns seeders, completed and leechers of each torrent.
    pub(crate) fn scrape(&mut self, source: SocketAddr, info_hashes: &[InfoHash]) -> Vec<[u32; 3]> {
        let connection_id = self.connect(source);
        let request = Request::Scrape { connection_id, transaction_id: TRANSACTION, info_hashes };
        entries_of(&self.ask(source, &request))
    }

    pub(crate) fn requests(&self, kind: Kind) -> u64 {
        Family::ALL.iter().map(|&family| self.counters.requests(family, kind)).sum()
    }

    pub(crate) fn replies(&self, kind: Kind, outcome: Outcome) -> u64 {
        Family::ALL.iter().map(|&family| self.counters.replies(family, kind, outcome)).sum()
    }

    pub(crate) fn drops(&self, reason: Drop) -> u64 {
        Family::ALL.iter().map(|&family| self.counters.drops(family, reason)).sum()
    }
}

pub(crate) fn bytes_of(request: &Request<'_>) -> Vec<u8> {
    let mut packet = [0; 8192];
    let bytes = request.encode(&mut packet).expect("room for any request of these tests");
    packet[..bytes].to_vec()
}

pub(crate) fn announce_request(connection_id: ConnectionId, announce: &Announce) -> Request<'_> {
    Request::Announce { connection_id, transaction_id: TRANSACTION, announce, options: Options::default() }
}

#[track_caller]
pub(crate) fn swarm_of(source: SocketAddr, reply: &[u8]) -> Swarm {
    match Reply::decode(reply) {
        Ok(Reply::Announce { transaction_id: TRANSACTION, interval_s, leechers, seeders, peers }) => {
            let peers = if source.ip().to_canonical().is_ipv4() {
                let peers = peers.of_family::<PeerV4>().expect("whole v4 peers");
                peers.iter().map(|peer| peer.addr().into()).collect()
            } else {
                let peers = peers.of_family::<PeerV6>().expect("whole v6 peers");
                peers.iter().map(|peer| peer.addr().into()).collect()
            };
            Swarm { interval_s, leechers, seeders, peers }
        }
        other => panic!("{other:?} to an announce"),
    }
}

#[track_caller]
pub(crate) fn error_of(reply: &[u8]) -> String {
    match Reply::decode(reply) {
        Ok(Reply::Error { transaction_id: TRANSACTION, message }) => {
            String::from_utf8(message.to_vec()).expect("messages are UTF-8")
        }
        other => panic!("{other:?} where an error was due"),
    }
}

#[track_caller]
pub(crate) fn entries_of(reply: &[u8]) -> Vec<[u32; 3]> {
    match Reply::decode(reply) {
        Ok(Reply::Scrape { transaction_id: TRANSACTION, entries }) => {
            let numbers =
                |entry: &ScrapeEntry| [entry.seeders.get(), entry.completed.get(), entry.leechers.get()];
            entries.iter().map(numbers).collect()
        }
        other => panic!("{other:?} to a scrape"),
    }
}

pub(crate) fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Returns the `n`th of many clients, each with an address of its own.
pub(crate) fn client_v4(n: u32) -> SocketAddr {
    let [_, b, c, d] = n.to_be_bytes();
    SocketAddr::from(([77, b, c, d], 6881))
}

pub(crate) fn client_v6(n: u32) -> SocketAddr {
    let [a, b] = [n >> 16, n & 0xffff].map(|half| u16::try_from(half).expect("16 bits"));
    SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, a, b], 6881))
}
