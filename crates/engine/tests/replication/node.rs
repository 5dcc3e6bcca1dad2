//! A node: a store with its responders over UDP and HTTP, whose changes are recorded.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use shoal_access::token::Url;
use shoal_base::transport::datagram::{Exchange, REPLY_BYTES_MAX};
use shoal_base::{Delta, Event, InfoHash, PeerId};
use shoal_config::Config;
use shoal_engine::connection_id::{ConnectionIds, ConnectionKey};
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::replication::{Applier, RecordedDeltas, Replica, ring};
use shoal_engine::{Now, http, udp};
use shoal_store::{Settings, Store};
use shoal_wire::udp::{Announce, Options, Reply, Request, TransactionId};

const KEY: ConnectionKey = ConnectionKey::new([7; 16]);

/// When nodes begin.
pub(crate) const BEGIN: Now = Now { monotonic_s: 100_000, monotonic_ms: 100_000_000, unix_s: 1_700_000_000 };

pub(crate) const TIMEOUT_S: u32 = 2700;

/// An announce over either protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(crate) info_hash: InfoHash,
    pub(crate) address: SocketAddr,
    pub(crate) event: Event,
    /// The number of bytes that are left.
    pub(crate) left: i64,
}

pub(crate) struct Node {
    pub(crate) store: Arc<Store>,
    pub(crate) replica: Replica,
    pub(crate) now: Now,
    udp: udp::Responder,
    http: http::Responder,
    recorded: [RecordedDeltas; 2],
}

pub(crate) fn settings(secret: u64) -> Settings {
    Settings::new(256 << 20, TIMEOUT_S, [secret, 22, 33, 44])
}

pub(crate) fn hash(number: u16) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

/// Returns the `n`th of many addresses of either family.
pub(crate) fn address(n: u16, is_v6: bool) -> SocketAddr {
    let [high, low] = n.to_be_bytes();
    let ip = if is_v6 {
        IpAddr::from([0x2001, 0xdb8, n, 0, 0, 0, 0, 1])
    } else {
        IpAddr::from([77, 1, high, low])
    };
    SocketAddr::new(ip, 6881)
}

impl Node {
    pub(crate) fn new(secret: u64) -> Self {
        Self::with(&settings(secret), Config::default())
    }

    pub(crate) fn with(settings: &Settings, config: Config) -> Self {
        let store = Arc::new(Store::with_shards(settings, 8).expect("address space"));
        let rng = fastrand::Rng::with_seed(3);
        let policy = Arc::new(Policy::new(config).with_private_host(true));
        let context = |protocol| {
            let (recorder, deltas) = ring();
            let mut context = Context::new(protocol, Arc::clone(&policy), Tally::default(), rng.clone());
            context.recorder = Some(recorder);
            (context, deltas)
        };
        let ((of_udp, udp_deltas), (of_http, http_deltas)) =
            (context(Protocol::Udp), context(Protocol::Http));
        let http = http::Responder::new(of_http, Arc::clone(&store));
        let udp = udp::Responder::new(of_udp, &KEY, Arc::clone(&store));
        let replica = Replica::new(Applier::new(policy, Arc::clone(&store)));
        Self { store, replica, now: BEGIN, udp, http, recorded: [udp_deltas, http_deltas] }
    }

    pub(crate) fn pass(&mut self, seconds: u32) {
        self.now.monotonic_s += seconds;
        self.now.monotonic_ms += u64::from(seconds) * 1000;
        self.now.unix_s += u64::from(seconds);
    }

    /// Returns the replica at the time of the node.
    pub(crate) fn replica_now(&mut self) -> &mut Replica {
        self.replica.set_now(self.now);
        &mut self.replica
    }

    /// Returns the peers of a torrent, with whether they seed, and their ages in seconds.
    pub(crate) fn peers(&self, torrent: u16) -> BTreeMap<SocketAddr, (bool, u32)> {
        let peers = self.store.peers(&hash(torrent), 10_000, self.now.monotonic_s);
        peers.into_iter().map(|peer| (peer.address, (peer.seeds, peer.age_s))).collect()
    }

    pub(crate) fn announce_udp(&mut self, announced: Announced) {
        self.announce_batch(&[announced]);
    }

    /// Announces over UDP in one batch, which asserts success.
    pub(crate) fn announce_batch(&mut self, announces: &[Announced]) {
        let requests: Vec<Vec<u8>> = announces.iter().map(|announced| self.request(announced)).collect();
        let mut replies = vec![[0; REPLY_BYTES_MAX]; announces.len()];
        let mut batch: Vec<Exchange<'_>> = announces
            .iter()
            .zip(&requests)
            .zip(&mut replies)
            .map(|((announced, request), reply)| Exchange {
                source: SocketAddr::new(announced.address.ip(), 5000),
                request,
                reply,
                reply_len: 0,
            })
            .collect();
        self.udp.serve(&mut batch, self.now);
        for exchange in &batch {
            let reply = Reply::decode(&exchange.reply[..exchange.reply_len]);
            assert!(matches!(reply, Ok(Reply::Announce { .. })), "{reply:?}");
        }
    }

    fn request(&self, announced: &Announced) -> Vec<u8> {
        let announce = Announce {
            info_hash: announced.info_hash,
            peer_id: PeerId([b'-'; 20]),
            downloaded_bytes: 0.into(),
            left_bytes: announced.left.into(),
            uploaded_bytes: 0.into(),
            event: Announce::event_number(announced.event),
            ip: [0; 4],
            key: 0.into(),
            num_want: (-1).into(),
            port: announced.address.port().into(),
        };
        let connection_id = ConnectionIds::new(&KEY).issue(announced.address.ip(), self.now.unix_s);
        let (transaction_id, options) = (TransactionId(7), Options::default());
        let request = Request::Announce { connection_id, transaction_id, announce: &announce, options };
        let mut packet = [0; 512];
        let bytes = request.encode(&mut packet).unwrap();
        packet[..bytes].to_vec()
    }

    /// Announces over HTTP, which asserts success.
    pub(crate) fn announce_http(&mut self, announced: Announced) {
        let Announced { info_hash, address, event, left } = announced;
        let mut query = "info_hash=".to_owned();
        info_hash.0.iter().for_each(|byte| write!(query, "%{byte:02x}").unwrap());
        write!(query, "&peer_id=-XX0001-abcdefghijkl&port={}&left={left}", address.port()).unwrap();
        query += match event {
            Event::Update => "",
            Event::Started => "&event=started",
            Event::Completed => "&event=completed",
            Event::Stopped => "&event=stopped",
        };
        let url = Url { path: b"/announce", query: query.as_bytes() };
        let mut body = Vec::new();
        self.http.announce(address.ip(), url, self.now, &mut body);
        assert!(!body.starts_with(b"d14:failure"), "{}", String::from_utf8_lossy(&body));
    }

    /// Takes the recorded deltas of both responders.
    pub(crate) fn take(&mut self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        for recorded in &mut self.recorded {
            recorded.drain(usize::MAX, |delta| deltas.push(delta));
        }
        deltas
    }

    /// Returns the number of deltas that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.recorded.iter().map(RecordedDeltas::lost).sum()
    }
}

/// Announces a random peer in a random torrent, over either protocol and family.
pub(crate) fn random_announce(node: &mut Node, rng: &mut fastrand::Rng) {
    // One peer, a few, many.
    const PEERS: [u16; 4] = [1, 3, 40, 400];
    let torrent = rng.usize(..PEERS.len());
    let events = [Event::Update, Event::Started, Event::Update, Event::Completed, Event::Stopped];
    let announced = Announced {
        info_hash: hash(u16::try_from(torrent).unwrap()),
        address: address(rng.u16(..PEERS[torrent]), rng.bool()),
        event: events[rng.usize(..events.len())],
        left: rng.i64(0..2),
    };
    if rng.bool() { node.announce_udp(announced) } else { node.announce_http(announced) }
}

/// Asserts that two nodes, whose clocks show the same, have the same peers in the same roles, and the same counts. The
/// ages at one may be higher by a period.
#[track_caller]
pub(crate) fn assert_equal(one: &Node, other: &Node) {
    for torrent in 0..5 {
        let (peers, others) = (one.peers(torrent), other.peers(torrent));
        let roles = |peers: &BTreeMap<SocketAddr, (bool, u32)>| -> Vec<_> {
            peers.iter().map(|(peer, (seeds, _))| (*peer, *seeds)).collect()
        };
        assert_eq!(roles(&peers), roles(&others));
        assert_eq!(one.store.counts(&hash(torrent)), other.store.counts(&hash(torrent)));
        for ((_, age_s), (_, other_age_s)) in peers.values().zip(others.values()) {
            assert!(age_s.abs_diff(*other_age_s) <= TIMEOUT_S / 3, "{age_s} s, {other_age_s} s");
        }
    }
}
