//! The worker's side of the access log: records of all requests, or of a share of them, which another thread writes.
//!
//! This module decides which requests are recorded, and the fields of a record. A responder passes its records
//! through a ring of fixed size, and never waits: with a full ring, the record is lost and counted. The module must
//! not format or write.
//!
//! Each protocol and worker has its own ring (`rtrb`). Without an access log, a batch of datagrams costs one branch,
//! and so does a request over a connection. A batch is recorded in a pass after the replies, which reads requests and
//! replies again. A refusal is recorded where it is decided, because a reply does not name the reason. Addresses are
//! reduced to networks before they enter the ring.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use shoal_base::metrics::Counter;
use shoal_base::{Event, InfoHash, PeerId};
use shoal_config::{LogConfig, LoggedAddresses};
use shoal_wire::udp::{Reply, Request};

use crate::Now;
use crate::counter::{Family, Kind, Outcome};
use crate::policy::Protocol;

/// The number of records that wait to be written. One takes 128 bytes. The writing thread comes at least every few
/// milliseconds.
pub const RECORDS_MAX: usize = 4096;

/// The memory of a ring.
pub const RING_BYTES: usize = RECORDS_MAX * size_of::<Record>();

const _: () = assert!(size_of::<Record>() <= 128, "a ring of each responder has 4096 of them");

/// A request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When the request was answered, in milliseconds on the monotonic clock.
    pub monotonic_ms: u64,
    /// The protocol.
    pub protocol: Protocol,
    /// The address family of the client.
    pub family: Family,
    /// The kind of request.
    pub kind: Kind,
    /// How it was answered.
    pub outcome: Outcome,
    /// The client, in the detail that the operator has chosen.
    pub client: LoggedClient,
    /// The torrent of an announce, or the first one of a scrape.
    pub info_hash: Option<InfoHash>,
    /// The number of torrents of a scrape.
    pub torrents: u32,
    /// The client's statements about itself in an announce.
    pub announced: Option<AnnouncedPeer>,
    /// The seeders and leechers in the reply to an announce.
    pub counts: Option<[u32; 2]>,
    /// The number of peers in the reply, or of relayed offers over WebTorrent.
    pub peers: u32,
    /// The size of the reply in bytes, without headers. 0 if there was no reply, or if it came in pieces.
    pub reply_bytes: u32,
}

/// The client's statements about itself in an announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnouncedPeer {
    /// The event.
    pub event: Event,
    /// The port at which the client accepts connections; 0 over WebTorrent.
    pub port: u16,
    /// The peer id, if the client has sent one.
    pub peer_id: Option<PeerId>,
}

/// The client of a request, in the detail that the operator has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedClient {
    /// The client is not logged, or a proxy has not named it.
    Unknown,
    /// The client's address.
    Address(IpAddr),
    /// The client's network: its first address and the length of the prefix.
    Network(IpAddr, u8),
}

/// The sending end of a ring, at which a responder records requests.
#[derive(Debug)]
pub struct AccessLog {
    ring: rtrb::Producer<Record>,
    lost: Arc<Counter>,
    rng: fastrand::Rng,
    /// The number of requests before the next recorded one.
    skip: u32,
    now: Now,
}

/// The receiving end of a ring, from which another thread takes the records.
#[derive(Debug)]
pub struct AccessRecords {
    ring: rtrb::Consumer<Record>,
    lost: Arc<Counter>,
}

/// Returns the two ends of a ring. `rng` decides which requests are recorded.
pub fn ring(rng: fastrand::Rng) -> (AccessLog, AccessRecords) {
    let (producer, consumer) = rtrb::RingBuffer::new(RECORDS_MAX);
    let lost = Arc::<Counter>::default();
    let log = AccessLog { ring: producer, lost: Arc::clone(&lost), rng, skip: 0, now: Now::default() };
    (log, AccessRecords { ring: consumer, lost })
}

impl AccessLog {
    /// Sets the time of the requests that follow.
    pub(crate) const fn set_now(&mut self, now: Now) {
        self.now = now;
    }

    /// Records a request if it is due. `describe` fills in everything except the time.
    pub(crate) fn record(&mut self, settings: &LogConfig, describe: impl FnOnce(&LogConfig) -> Record) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let every = settings.access_sample;
        if every > 1 {
            // The intervals are random, so that clients that announce in step with each other are not
            // over-represented. Their mean is the configured one.
            self.skip = self.rng.u32(0..=2 * (every - 1));
        }
        let record = Record { monotonic_ms: self.now.monotonic_ms, ..describe(settings) };
        if self.ring.push(record).is_err() {
            self.lost.increment();
        }
    }
}

impl AccessRecords {
    /// Takes the next record, if there is one.
    pub fn take(&mut self) -> Option<Record> {
        self.ring.pop().ok()
    }

    /// Returns the number of records that were lost because the ring was full.
    pub fn lost(&self) -> u64 {
        self.lost.read()
    }
}

impl Record {
    pub(crate) const fn new(
        protocol: Protocol,
        family: Family,
        kind: Kind,
        outcome: Outcome,
        client: LoggedClient,
    ) -> Self {
        Self {
            monotonic_ms: 0,
            protocol,
            family,
            kind,
            outcome,
            client,
            info_hash: None,
            torrents: 0,
            announced: None,
            counts: None,
            peers: 0,
            reply_bytes: 0,
        }
    }

    /// Adds what a datagram and its reply, which is empty if there is none, tell.
    pub(crate) fn read_datagram(&mut self, request: &[u8], reply: &[u8]) {
        self.reply_bytes = saturated(reply.len());
        match Request::decode(request) {
            Ok(Request::Connect { .. }) => self.kind = Kind::Connect,
            Ok(Request::Announce { announce, .. }) => {
                self.kind = Kind::Announce;
                self.info_hash = Some(announce.info_hash);
                let (event, port, peer_id) = (announce.event(), announce.port.get(), Some(announce.peer_id));
                self.announced = Some(AnnouncedPeer { event, port, peer_id });
                if let Ok(Reply::Announce { seeders, leechers, peers, .. }) = Reply::decode(reply) {
                    let peer_bytes = match self.family {
                        Family::V4 => size_of::<shoal_base::PeerV4>(),
                        Family::V6 => size_of::<shoal_base::PeerV6>(),
                    };
                    self.counts = Some([seeders, leechers]);
                    self.peers = saturated(peers.as_bytes().len() / peer_bytes);
                }
            }
            Ok(Request::Scrape { info_hashes, .. }) => {
                self.kind = Kind::Scrape;
                self.info_hash = info_hashes.first().copied();
                self.torrents = saturated(info_hashes.len());
            }
            Err(_) => self.kind = Kind::Other,
        }
    }
}

impl LoggedClient {
    /// Returns the logged form of the client at `ip`, if its address is known.
    pub(crate) fn new(settings: &LogConfig, ip: Option<IpAddr>) -> Self {
        match (settings.access_addresses, ip) {
            (LoggedAddresses::None, _) | (_, None) => Self::Unknown,
            (LoggedAddresses::Full, Some(ip)) => Self::Address(ip),
            (LoggedAddresses::Network, Some(IpAddr::V4(ip))) => {
                let [a, b, c, _] = ip.octets();
                Self::Network(Ipv4Addr::new(a, b, c, 0).into(), 24)
            }
            (LoggedAddresses::Network, Some(IpAddr::V6(ip))) => {
                let [a, b, c, ..] = ip.segments();
                Self::Network(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into(), 48)
            }
        }
    }
}

pub(crate) fn saturated(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(access_sample: u32) -> LogConfig {
        LogConfig { access_sample, ..LogConfig::default() }
    }

    fn record(_: &LogConfig) -> Record {
        Record::new(Protocol::Udp, Family::V4, Kind::Connect, Outcome::Ok, LoggedClient::Unknown)
    }

    #[test]
    fn a_full_ring_loses_records_and_counts_them() {
        let (mut log, mut records) = ring(fastrand::Rng::with_seed(1));
        for _ in 0..RECORDS_MAX + 3 {
            log.record(&settings(1), record);
        }
        assert_eq!(records.lost(), 3);
        assert_eq!(core::iter::from_fn(|| records.take()).count(), RECORDS_MAX);
    }

    #[test]
    fn one_of_so_many_requests_is_recorded() {
        let (mut log, mut records) = ring(fastrand::Rng::with_seed(1));
        for _ in 0..100_000 {
            log.record(&settings(100), record);
        }
        let count = core::iter::from_fn(|| records.take()).count();
        assert!((800..1200).contains(&count), "{count}");
    }

    #[test]
    fn networks_stand_for_their_addresses() {
        let logged = |access_addresses, ip: &str| {
            let settings = LogConfig { access_addresses, ..LogConfig::default() };
            LoggedClient::new(&settings, Some(ip.parse().unwrap()))
        };
        let network = |ip: &str, bits| LoggedClient::Network(ip.parse().unwrap(), bits);
        assert_eq!(logged(LoggedAddresses::Network, "192.0.2.77"), network("192.0.2.0", 24));
        assert_eq!(logged(LoggedAddresses::Network, "2001:db8:7:8::9"), network("2001:db8:7::", 48));
        assert_eq!(logged(LoggedAddresses::None, "192.0.2.77"), LoggedClient::Unknown);
        let address = LoggedClient::Address("192.0.2.77".parse().unwrap());
        assert_eq!(logged(LoggedAddresses::Full, "192.0.2.77"), address);
    }
}
