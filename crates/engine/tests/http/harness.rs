//! A tracker without sockets or clocks, which answers requests over HTTP and over UDP.

#[path = "../support/config.rs"]
mod config;

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use shoal_access::token::Url;
use shoal_base::transport::datagram::{Exchange, REPLY_BYTES_MAX};
use shoal_base::{Event, InfoHash, PeerId, PeerV4, PeerV6};
use shoal_config::Config;
use shoal_engine::connection_id::{ConnectionIds, ConnectionKey};
use shoal_engine::context::Context;
use shoal_engine::counter::{Counters, Family, Kind, Outcome, Tally};
use shoal_engine::policy::Protocol;
use shoal_engine::{Now, http, udp};
use shoal_store::Store;
use shoal_wire::udp::{Announce, Options, Reply, Request, TransactionId};

use crate::bencode::Value;

pub(crate) use config::{configured, policy};

pub(crate) const HASH: InfoHash = InfoHash([0xaa; 20]);
const KEY: ConnectionKey = ConnectionKey::new([7; 16]);

pub(crate) struct Tracker {
    pub(crate) http: http::Responder,
    udp: udp::Responder,
    pub(crate) store: Arc<Store>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) now: Now,
}

/// An announce reply in the terms of the tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Swarm {
    pub(crate) complete: i64,
    pub(crate) incomplete: i64,
    pub(crate) downloaded: i64,
    /// Peers of IPv4 come first.
    pub(crate) peers: Vec<SocketAddr>,
}

pub(crate) fn store_settings() -> shoal_store::Settings {
    shoal_store::Settings::new(
        256 << 20,
        2700,
        [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89],
    )
}

pub(crate) fn hash(number: u16) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

/// Returns the parameter that names a torrent, with every byte escaped.
pub(crate) fn named(info_hash: &InfoHash) -> String {
    info_hash.0.iter().fold("info_hash=".to_owned(), |mut text, byte| {
        write!(text, "%{byte:02x}").unwrap();
        text
    })
}

/// Returns the query of a client with this port and this many bytes left.
pub(crate) fn query(info_hash: &InfoHash, port: u16, left: u64) -> String {
    let peer_id = "-XX0001-abcdefghijkl";
    format!(
        "{}&peer_id={peer_id}&port={port}&uploaded=0&downloaded=0&left={left}&compact=1",
        named(info_hash)
    )
}

pub(crate) fn leecher(port: u16) -> String {
    query(&HASH, port, 1)
}

pub(crate) fn seeder(port: u16) -> String {
    query(&HASH, port, 0)
}

/// Returns the query with one more parameter.
pub(crate) fn with(parameter: &str, query: &str) -> String {
    format!("{query}&{parameter}")
}

/// Returns the `n`th of many clients over IPv4, each with an address of its own.
pub(crate) fn v4(n: u16) -> IpAddr {
    let [high, low] = n.to_be_bytes();
    IpAddr::from([77, 1, high, low])
}

/// Returns the `n`th of many clients over IPv6.
pub(crate) fn v6(n: u16) -> IpAddr {
    IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n])
}

pub(crate) const FAMILIES: [fn(u16) -> IpAddr; 2] = [v4, v6];

pub(crate) fn at(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}

impl Tracker {
    pub(crate) fn new(config: &Config) -> Self {
        Self::with_store(config, &store_settings())
    }

    pub(crate) fn with_store(config: &Config, store: &shoal_store::Settings) -> Self {
        let tally = Tally::default();
        let counters = tally.counters();
        let store = Arc::new(Store::with_shards(store, 8).expect("address space"));
        let rng = fastrand::Rng::with_seed(3);
        let policy = Arc::new(policy(config));
        let http = http::Responder::new(
            Context::new(Protocol::Http, Arc::clone(&policy), tally, rng.clone()),
            Arc::clone(&store),
        );
        let udp = udp::Responder::new(
            Context::new(Protocol::Udp, policy, Tally::default(), rng),
            &KEY,
            Arc::clone(&store),
        );
        Self {
            http,
            udp,
            store,
            counters,
            now: Now { monotonic_s: 1000, monotonic_ms: 1_000_000, unix_s: 1_700_000_000 },
        }
    }

    /// Announces over HTTP and returns the raw reply.
    #[track_caller]
    pub(crate) fn ask(&mut self, ip: IpAddr, query: &str) -> Value {
        // The responder must ignore earlier contents of the buffer.
        let mut body = b"before".to_vec();
        self.http.announce(ip, url(query), self.now, &mut body);
        Value::read(body.strip_prefix(b"before").unwrap())
    }

    /// Announces over HTTP and asserts success.
    #[track_caller]
    pub(crate) fn announce(&mut self, ip: IpAddr, query: &str) -> Swarm {
        swarm_of(&self.ask(ip, query))
    }

    /// Announces over HTTP, asserts a refusal and returns its reason.
    #[track_caller]
    pub(crate) fn refusal(&mut self, ip: IpAddr, query: &str) -> String {
        self.ask(ip, query).text("failure reason").to_owned()
    }

    /// Scrapes over HTTP and returns the raw reply.
    #[track_caller]
    pub(crate) fn scrape(&mut self, ip: IpAddr, query: &str) -> Value {
        let mut body = Vec::new();
        self.http.scrape(ip, url(query), self.now, &mut body);
        Value::read(&body)
    }

    /// Returns the counts of one torrent: complete, incomplete, downloaded.
    #[track_caller]
    pub(crate) fn counts(&mut self, info_hash: &InfoHash) -> [i64; 3] {
        let reply = self.scrape(v4(999), &named(info_hash));
        counts_of(&reply, info_hash).expect("the torrent was asked for")
    }

    /// Announces over UDP and returns the peers of the reply.
    #[track_caller]
    pub(crate) fn announce_udp(&mut self, ip: IpAddr, port: u16, left: i64) -> Vec<SocketAddr> {
        let announce = Announce {
            info_hash: HASH,
            peer_id: PeerId([b'-'; 20]),
            downloaded_bytes: 0.into(),
            left_bytes: left.into(),
            uploaded_bytes: 0.into(),
            event: Announce::event_number(Event::Started),
            ip: [0; 4],
            key: 0.into(),
            num_want: (-1).into(),
            port: port.into(),
        };
        let connection_id = ConnectionIds::new(&KEY).issue(ip, self.now.unix_s);
        let (transaction_id, options) = (TransactionId(7), Options::default());
        let request = Request::Announce { connection_id, transaction_id, announce: &announce, options };
        let (mut packet, mut reply) = ([0; 512], [0; REPLY_BYTES_MAX]);
        let bytes = request.encode(&mut packet).unwrap();
        let source = at(ip, 5000);
        let mut batch = [Exchange { source, request: &packet[..bytes], reply: &mut reply, reply_len: 0 }];
        self.udp.serve(&mut batch, self.now);
        let reply_bytes = batch[0].reply_len;
        match Reply::decode(&reply[..reply_bytes]) {
            Ok(Reply::Announce { peers, .. }) if ip.is_ipv4() => addresses_v4(peers.of_family().unwrap()),
            Ok(Reply::Announce { peers, .. }) => addresses_v6(peers.of_family().unwrap()),
            other => panic!("{other:?} to an announce"),
        }
    }

    pub(crate) fn requests(&self, kind: Kind) -> u64 {
        Family::ALL.iter().map(|&family| self.counters.requests(family, kind)).sum()
    }

    pub(crate) fn replies(&self, kind: Kind, outcome: Outcome) -> u64 {
        Family::ALL.iter().map(|&family| self.counters.replies(family, kind, outcome)).sum()
    }
}

fn addresses_v4(peers: &[PeerV4]) -> Vec<SocketAddr> {
    peers.iter().map(|peer| peer.addr().into()).collect()
}

fn addresses_v6(peers: &[PeerV6]) -> Vec<SocketAddr> {
    peers.iter().map(|peer| peer.addr().into()).collect()
}

#[track_caller]
pub(crate) fn swarm_of(reply: &Value) -> Swarm {
    assert_eq!(reply.find("failure reason"), None);
    let v4 = reply.bytes("peers").chunks(6).map(|peer| PeerV4(peer.try_into().unwrap()).addr().into());
    let peers6 = reply.find("peers6").map_or(&[][..], |_| reply.bytes("peers6"));
    let v6 = peers6.chunks(18).map(|peer| PeerV6(peer.try_into().unwrap()).addr().into());
    Swarm {
        complete: reply.integer("complete"),
        incomplete: reply.integer("incomplete"),
        downloaded: reply.integer("downloaded"),
        peers: v4.chain(v6).collect(),
    }
}

pub(crate) fn counts_of(reply: &Value, info_hash: &InfoHash) -> Option<[i64; 3]> {
    let file = reply.find("files")?.dictionary().get(&info_hash.0[..])?;
    assert_eq!(file.dictionary().len(), 3);
    Some(["complete", "incomplete", "downloaded"].map(|key| file.integer(key)))
}

/// Returns the peers, and asserts that they are distinct.
#[track_caller]
pub(crate) fn distinct(swarm: &Swarm) -> Vec<SocketAddr> {
    let mut peers = swarm.peers.clone();
    peers.sort_unstable();
    peers.dedup();
    assert_eq!(peers.len(), swarm.peers.len(), "no peer twice");
    peers
}

/// Returns the URL with a query.
pub(crate) fn url(query: &(impl AsRef<[u8]> + ?Sized)) -> Url<'_> {
    Url { path: b"/announce", query: query.as_ref() }
}
