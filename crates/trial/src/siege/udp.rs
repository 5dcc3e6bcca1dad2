//! A UDP tracker client, for honest clients and for attackers that follow the protocol.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use shoal_base::{Event, InfoHash, PeerId};
use shoal_wire::udp::{Announce, ConnectionId, Options, Reply, Request, TransactionId, encode_url_data};
use zerocopy::big_endian::{I32, I64, U16, U32};

use crate::siege::address::{hostile_v4, hostile_v6};
use crate::siege::socket;

/// The maximum size of a datagram.
const REPLY_BYTES_MAX: usize = 2048;

/// The number of times that a request is sent, since BEP 15 requires clients to repeat unanswered requests.
const TRIES_MAX: u32 = 3;

/// The maximum number of requests in flight on a socket.
const WINDOW: usize = 64;

/// The maximum wait for a reply of a window, after which replies count as lost.
const WINDOW_WAIT: Duration = Duration::from_millis(300);

/// A UDP socket with a connection id.
pub(crate) struct UdpClient {
    socket: UdpSocket,
    connection_id: ConnectionId,
    transactions: u32,
    reply: Box<[u8; REPLY_BYTES_MAX]>,
}

/// The fields of an announce.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The torrent.
    pub(crate) info_hash: [u8; 20],
    /// The announced port.
    pub(crate) port: u16,
    /// The event.
    pub(crate) event: Event,
    /// Whether the peer has everything.
    pub(crate) is_seeder: bool,
    /// The number of peers that are wanted.
    pub(crate) num_want: i32,
    /// The peer id.
    pub(crate) peer_id: [u8; 20],
}

/// The reply to an announce.
#[derive(Clone, Debug, Default)]
pub(crate) struct Swarm {
    /// Seeders and leechers together.
    pub(crate) members: u32,
    /// Some of them as compact peers, 6 or 18 bytes each.
    pub(crate) peers: Vec<u8>,
}

/// The counts of a torrent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Seeders and leechers together.
    pub(crate) members: u32,
    /// Completed downloads.
    pub(crate) completed: u32,
}

/// Counts of many requests and their replies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    /// Requests that were sent.
    pub(crate) sent: u64,
    /// Bytes that were sent.
    pub(crate) sent_bytes: u64,
    /// Replies that came.
    pub(crate) answered: u64,
    /// Those of them that were errors.
    pub(crate) errors: u64,
}

impl Peer {
    /// Returns a leecher that wants no peers.
    pub(crate) fn new(info_hash: [u8; 20], port: u16) -> Self {
        let peer_id = *b"-SG0001-siegesiegesi";
        Self { info_hash, port, event: Event::Started, is_seeder: false, num_want: 0, peer_id }
    }

    fn announce(&self) -> Announce {
        Announce {
            info_hash: InfoHash(self.info_hash),
            peer_id: PeerId(self.peer_id),
            downloaded_bytes: I64::new(0),
            left_bytes: I64::new(i64::from(!self.is_seeder)),
            uploaded_bytes: I64::new(0),
            event: Announce::event_number(self.event),
            ip: [0; 4],
            key: U32::new(7),
            num_want: I32::new(self.num_want),
            port: U16::new(self.port),
        }
    }

    /// Encodes the announce.
    pub(crate) fn packet(&self, connection_id: u64, transaction: u32) -> Vec<u8> {
        self.packet_with(connection_id, transaction, &[])
    }

    /// Encodes the announce of a client with this tracker URL (BEP 41).
    pub(crate) fn packet_with_url(&self, connection_id: u64, transaction: u32, url: &str) -> Vec<u8> {
        let mut options = [0; REPLY_BYTES_MAX];
        let bytes = encode_url_data(url.as_bytes(), &mut options).unwrap_or(0);
        self.packet_with(connection_id, transaction, &options[..bytes])
    }

    fn packet_with(&self, connection_id: u64, transaction: u32, options: &[u8]) -> Vec<u8> {
        encode(&Request::Announce {
            connection_id: ConnectionId(connection_id),
            transaction_id: TransactionId(transaction),
            announce: &self.announce(),
            options: Options::new(options),
        })
    }
}

impl UdpClient {
    /// Opens a socket and requests a connection id (BEP 15).
    pub(crate) fn open(source: IpAddr, target: SocketAddr, timeout: Duration) -> Result<Self> {
        let socket = socket::udp(source, target, timeout).context("no UDP socket")?;
        let unset = ConnectionId(0);
        let mut client =
            Self { socket, connection_id: unset, transactions: fastrand::u32(..), reply: Box::new([0; _]) };
        client.connect()?;
        Ok(client)
    }

    /// Requests a connection id again.
    pub(crate) fn connect(&mut self) -> Result<()> {
        let transaction_id = self.next();
        let packet = encode(&Request::Connect { transaction_id });
        self.connection_id = self.exchange(&packet, |reply| match reply {
            Reply::Connect { transaction_id: found, connection_id } if found == transaction_id => {
                Some(Ok(connection_id))
            }
            _ => None,
        })?;
        Ok(())
    }

    /// Announces and returns the reply.
    pub(crate) fn announce(&mut self, peer: &Peer) -> Result<Swarm> {
        let transaction_id = self.next();
        let packet = peer.packet(self.connection_id.0, transaction_id.0);
        self.exchange(&packet, |reply| match reply {
            Reply::Announce { transaction_id: found, leechers, seeders, peers, .. }
                if found == transaction_id =>
            {
                Some(Ok(Swarm { members: leechers + seeders, peers: peers.as_bytes().to_vec() }))
            }
            Reply::Error { transaction_id: found, message } if found == transaction_id => {
                Some(Err(String::from_utf8_lossy(message).into_owned()))
            }
            _ => None,
        })
    }

    /// Scrapes a torrent.
    pub(crate) fn scrape(&mut self, info_hash: [u8; 20]) -> Result<Counts> {
        let transaction_id = self.next();
        let connection_id = self.connection_id;
        let info_hashes = &[InfoHash(info_hash)];
        let packet = encode(&Request::Scrape { connection_id, transaction_id, info_hashes });
        self.exchange(&packet, |reply| match reply {
            Reply::Scrape { transaction_id: found, entries: [entry] } if found == transaction_id => {
                Some(Ok(Counts {
                    members: entry.seeders.get() + entry.leechers.get(),
                    completed: entry.completed.get(),
                }))
            }
            Reply::Error { transaction_id: found, message } if found == transaction_id => {
                Some(Err(String::from_utf8_lossy(message).into_owned()))
            }
            _ => None,
        })
    }

    /// Sends announces, a window at a time, until they end or `is_over`. Passes the peers of each reply to `on_peers`.
    pub(crate) fn announce_all(
        &mut self,
        peers: impl IntoIterator<Item = Peer>,
        is_over: impl Fn() -> bool,
        mut on_peers: impl FnMut(&[u8]),
    ) -> Flow {
        let id = self.connection_id.0;
        let packets = peers.into_iter().map(|peer| peer.packet(id, 1));
        self.send_all(packets, is_over, |reply| {
            if let Reply::Announce { peers, .. } = reply {
                on_peers(peers.as_bytes());
            }
        })
    }

    /// Sends datagrams, a window at a time, and waits for as many replies. Passes each reply to `on_reply`.
    pub(crate) fn send_all(
        &mut self,
        packets: impl IntoIterator<Item = Vec<u8>>,
        is_over: impl Fn() -> bool,
        mut on_reply: impl FnMut(Reply<'_>),
    ) -> Flow {
        let mut flow = Flow::default();
        let mut packets = packets.into_iter().peekable();
        let _ = self.socket.set_read_timeout(Some(WINDOW_WAIT));
        while packets.peek().is_some() && !is_over() {
            let mut in_flight = 0;
            for packet in packets.by_ref().take(WINDOW) {
                if self.socket.send(&packet).is_ok() {
                    in_flight += 1;
                    flow.sent += 1;
                    flow.sent_bytes += packet.len() as u64;
                }
            }
            for _ in 0..in_flight {
                let Ok(length) = self.socket.recv(&mut self.reply[..]) else { break };
                let Ok(reply) = Reply::decode(&self.reply[..length]) else { continue };
                flow.answered += 1;
                flow.errors += u64::from(matches!(reply, Reply::Error { .. }));
                on_reply(reply);
            }
        }
        flow
    }

    /// Returns the connection id.
    pub(crate) fn id(&self) -> u64 {
        self.connection_id.0
    }

    /// Returns whether replies contain IPv6 peers.
    pub(crate) fn is_v6(&self) -> bool {
        self.socket.peer_addr().is_ok_and(|address| address.is_ipv6())
    }

    fn next(&mut self) -> TransactionId {
        self.transactions = self.transactions.wrapping_add(1);
        TransactionId(self.transactions)
    }

    fn exchange<T>(
        &mut self,
        packet: &[u8],
        read: impl Fn(Reply<'_>) -> Option<Result<T, String>>,
    ) -> Result<T> {
        for _ in 0..TRIES_MAX {
            self.socket.send(packet).context("cannot send a datagram")?;
            loop {
                let length = match self.socket.recv(&mut self.reply[..]) {
                    Ok(length) => length,
                    Err(error) if is_timeout(&error) => break,
                    Err(error) => bail!("no reply: {error}"),
                };
                let reply = Reply::decode(&self.reply[..length]).context("an undecodable reply")?;
                if let Some(read) = read(reply) {
                    return read.map_err(|reason| anyhow::anyhow!("refused: {reason}"));
                }
            }
        }
        bail!("no reply to {TRIES_MAX} tries")
    }
}

impl Flow {
    /// Adds another flow.
    pub(crate) fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.answered += other.answered;
        self.errors += other.errors;
    }
}

/// Encodes a scrape.
pub(crate) fn scrape_packet(connection_id: u64, info_hashes: &[InfoHash]) -> Vec<u8> {
    let (connection_id, transaction_id) = (ConnectionId(connection_id), TransactionId(2));
    encode(&Request::Scrape { connection_id, transaction_id, info_hashes })
}

/// Encodes a connect request.
pub(crate) fn connect_packet() -> Vec<u8> {
    encode(&Request::Connect { transaction_id: TransactionId(3) })
}

/// Returns whether the error is a timeout.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Checks that a reply contains the peer at `ip` and `port`.
pub(crate) fn ensure_contains(peers: &[u8], ip: IpAddr, port: u16) -> Result<()> {
    let entry = compact(ip, port);
    let found = peers.chunks_exact(entry.len()).any(|peer| peer == entry);
    ensure!(found, "the other peer of the swarm is not in the reply");
    Ok(())
}

/// Returns a random info hash.
pub(crate) fn random_hash() -> [u8; 20] {
    let mut hash = [0; 20];
    fastrand::fill(&mut hash);
    hash
}

/// Returns the compact form of a peer.
pub(crate) fn compact(ip: IpAddr, port: u16) -> Vec<u8> {
    let mut entry = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    entry.extend_from_slice(&port.to_be_bytes());
    entry
}

/// Returns whether a compact peer has one of the attacker's addresses, by its /16 or /48.
pub(crate) fn is_hostile(peer: &[u8]) -> bool {
    let (source, prefix_bytes) = if peer.len() == 6 { (hostile_v4(0), 2) } else { (hostile_v6(0), 6) };
    peer.starts_with(&compact(source, 0)[..prefix_bytes])
}

fn encode(request: &Request<'_>) -> Vec<u8> {
    let mut packet = [0; REPLY_BYTES_MAX];
    let length = request.encode(&mut packet).unwrap_or(0);
    packet[..length].to_vec()
}

#[cfg(test)]
mod tests {
    use super::{compact, is_hostile};
    use crate::siege::address::{honest_v4, honest_v6, hostile_v4, hostile_v6};

    #[test]
    fn hostile_and_honest_addresses_are_distinguished() {
        for number in [0, 1, 255, 256, 1000] {
            assert!(
                is_hostile(&compact(hostile_v4(number), 1)) && is_hostile(&compact(hostile_v6(number), 1))
            );
            assert!(
                !is_hostile(&compact(honest_v4(number), 1)) && !is_hostile(&compact(honest_v6(number), 1))
            );
        }
    }
}
