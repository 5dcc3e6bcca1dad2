//! A UDP client (BEP 15).

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use shoal_base::{Event, InfoHash, PeerId, PeerV4, PeerV6};
use shoal_wire::udp::{self, ConnectionId, Options, Reply, Request, TransactionId, encode_url_data};

/// The maximum size of a datagram.
const PACKET_BYTES_MAX: usize = 65_536;

/// A socket that receives from one tracker only, with its connection id.
#[derive(Debug)]
pub struct Client {
    /// The socket.
    pub socket: UdpSocket,
    connection_id: AtomicU64,
    tries: u32,
}

/// An announce.
#[derive(Clone, Copy, Debug)]
pub struct Announce {
    /// The torrent.
    pub info_hash: [u8; 20],
    /// The peer id.
    pub peer_id: [u8; 20],
    /// The number of bytes that the peer still needs.
    pub left: i64,
    /// The event.
    pub event: Event,
    /// The address that the peer asks to be listed under.
    pub ip: [u8; 4],
    /// The number of peers wanted; negative for as many as the tracker chooses.
    pub numwant: i32,
    /// The announced port.
    pub port: u16,
}

/// The reply to an announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Seconds until the next announce.
    pub interval_s: u32,
    /// The number of leechers.
    pub leechers: u32,
    /// The number of seeders.
    pub seeders: u32,
    /// Some of the peers.
    pub peers: Vec<SocketAddr>,
}

/// The counts of a torrent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of seeders.
    pub seeders: u32,
    /// The number of completed downloads.
    pub completed: u32,
    /// The number of leechers.
    pub leechers: u32,
}

/// The message of an error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "refused: {}", self.0)
    }
}

impl std::error::Error for Refused {}

impl Announce {
    /// Returns the update of a peer at this port that has everything.
    #[must_use]
    pub fn seeder(info_hash: [u8; 20], port: u16) -> Self {
        let peer_id = *b"-XX0001-abcdefghijkl";
        Self { info_hash, peer_id, left: 0, event: Event::Update, ip: [0; 4], numwant: -1, port }
    }

    /// Returns the update of a peer at this port that has nothing yet.
    #[must_use]
    pub fn leecher(info_hash: [u8; 20], port: u16) -> Self {
        Self { left: 1 << 20, ..Self::seeder(info_hash, port) }
    }

    /// Encodes the announce.
    #[must_use]
    pub fn packet(&self, connection_id: u64, transaction_id: u32) -> Vec<u8> {
        self.packet_with_url(connection_id, transaction_id, "")
    }

    /// Encodes the announce of a client with this path and query in its tracker URL (BEP 41).
    #[must_use]
    pub fn packet_with_url(&self, connection_id: u64, transaction_id: u32, url: &str) -> Vec<u8> {
        let mut options = [0; 2048];
        let bytes =
            if url.is_empty() { 0 } else { encode_url_data(url.as_bytes(), &mut options).unwrap_or(0) };
        encode(&Request::Announce {
            connection_id: ConnectionId(connection_id),
            transaction_id: TransactionId(transaction_id),
            announce: &udp::Announce {
                info_hash: InfoHash(self.info_hash),
                peer_id: PeerId(self.peer_id),
                downloaded_bytes: 0.into(),
                left_bytes: self.left.into(),
                uploaded_bytes: 0.into(),
                event: udp::Announce::event_number(self.event),
                ip: self.ip,
                key: 0x5eed.into(),
                num_want: self.numwant.into(),
                port: self.port.into(),
            },
            options: Options::new(&options[..bytes]),
        })
    }
}

impl Announced {
    /// Returns the number of seeders and leechers together.
    #[must_use]
    pub fn members(&self) -> u32 {
        self.leechers + self.seeders
    }
}

impl Counts {
    /// Returns the number of seeders and leechers together.
    #[must_use]
    pub fn members(&self) -> u32 {
        self.leechers + self.seeders
    }
}

impl Client {
    /// Opens a socket at `source`, or any address. A request is sent up to `tries` times, with the timeout for each.
    ///
    /// # Errors
    /// Returns an error if the address is not one of this host.
    pub fn bind(
        source: impl Into<Option<IpAddr>>,
        target: SocketAddr,
        timeout: Duration,
        tries: u32,
    ) -> io::Result<Self> {
        let any =
            || if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((source.into().unwrap_or_else(any), 0))?;
        socket.connect(target)?;
        socket.set_read_timeout(Some(timeout))?;
        Ok(Self { socket, connection_id: AtomicU64::new(0), tries })
    }

    /// Requests a connection id, which further requests use.
    ///
    /// # Errors
    /// Returns an error if there is no valid reply.
    pub fn connect(&self) -> Result<u64> {
        let reply = self.ask(&connect_packet(fastrand::u32(..)))?;
        let Reply::Connect { connection_id, .. } = decode(&reply)? else {
            bail!("another reply to a connect")
        };
        self.connection_id.store(connection_id.0, Ordering::Relaxed);
        Ok(connection_id.0)
    }

    /// Announces.
    ///
    /// # Errors
    /// Returns [`Refused`], or another error if there is no valid reply.
    pub fn announce(&self, announce: &Announce) -> Result<Announced> {
        let reply = self.ask(&announce.packet(self.connection_id(), fastrand::u32(..)))?;
        self.announced(decode(&reply)?).context("another reply to an announce")
    }

    /// Returns the contents of the reply to an announce.
    #[must_use]
    pub fn announced(&self, reply: Reply<'_>) -> Option<Announced> {
        let Reply::Announce { interval_s, leechers, seeders, peers, .. } = reply else { return None };
        let peers = if self.is_v6() {
            peers.of_family::<PeerV6>()?.iter().map(|peer| peer.addr().into()).collect()
        } else {
            peers.of_family::<PeerV4>()?.iter().map(|peer| peer.addr().into()).collect()
        };
        Some(Announced { interval_s, leechers, seeders, peers })
    }

    /// Scrapes torrents.
    ///
    /// # Errors
    /// Returns [`Refused`], or another error if there is no valid reply.
    pub fn scrape(&self, info_hashes: &[[u8; 20]]) -> Result<Vec<Counts>> {
        let reply = self.ask(&scrape_packet(self.connection_id(), fastrand::u32(..), info_hashes))?;
        let Reply::Scrape { entries, .. } = decode(&reply)? else { bail!("another reply to a scrape") };
        // A tracker may answer the first ones only.
        ensure!((1..=info_hashes.len()).contains(&entries.len()), "a scrape reply of {} bytes", reply.len());
        let counts = |entry: &udp::ScrapeEntry| Counts {
            seeders: entry.seeders.get(),
            completed: entry.completed.get(),
            leechers: entry.leechers.get(),
        };
        Ok(entries.iter().map(counts).collect())
    }

    /// Sends a request until its reply comes, and returns the reply.
    ///
    /// # Errors
    /// Returns an error of the socket if there is none.
    pub fn ask(&self, packet: &[u8]) -> io::Result<Vec<u8>> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.socket.send(packet).and_then(|_| self.reply_to(packet)) {
                Err(error) if super::is_timeout(&error) && tries < self.tries => {}
                reply => return reply,
            }
        }
    }

    fn reply_to(&self, packet: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            let reply = self.receive()?;
            // A late reply to an earlier request is skipped. Some trackers refuse with a packet that is too short for any reply.
            if reply.len() < 8 || reply[4..8] == packet[12..16] {
                return Ok(reply);
            }
        }
    }

    /// Waits for a datagram.
    ///
    /// # Errors
    /// Returns an error if none comes in time.
    pub fn receive(&self) -> io::Result<Vec<u8>> {
        let mut packet = [0; PACKET_BYTES_MAX];
        let length = self.socket.recv(&mut packet)?;
        Ok(packet[..length].to_vec())
    }

    /// Returns the connection id.
    #[must_use]
    pub fn connection_id(&self) -> u64 {
        self.connection_id.load(Ordering::Relaxed)
    }

    /// Returns whether replies contain IPv6 peers.
    #[must_use]
    pub fn is_v6(&self) -> bool {
        self.socket.peer_addr().is_ok_and(|address| address.is_ipv6())
    }
}

/// Encodes a connect request.
#[must_use]
pub fn connect_packet(transaction_id: u32) -> Vec<u8> {
    encode(&Request::Connect { transaction_id: TransactionId(transaction_id) })
}

/// Encodes a scrape.
#[must_use]
pub fn scrape_packet(connection_id: u64, transaction_id: u32, info_hashes: &[[u8; 20]]) -> Vec<u8> {
    let (connection_id, transaction_id) = (ConnectionId(connection_id), TransactionId(transaction_id));
    let info_hashes: Vec<InfoHash> = info_hashes.iter().copied().map(InfoHash).collect();
    encode(&Request::Scrape { connection_id, transaction_id, info_hashes: &info_hashes })
}

/// Decodes a reply. An error reply is an error.
fn decode(reply: &[u8]) -> Result<Reply<'_>> {
    match Reply::decode(reply) {
        Ok(Reply::Error { message, .. }) => bail!(Refused(String::from_utf8_lossy(message).into_owned())),
        Ok(reply) => Ok(reply),
        Err(_) => bail!("an invalid reply of {} bytes", reply.len()),
    }
}

fn encode(request: &Request<'_>) -> Vec<u8> {
    let mut packet = [0; PACKET_BYTES_MAX];
    let length = request.encode(&mut packet).expect("a request is smaller than any datagram");
    packet[..length].to_vec()
}
