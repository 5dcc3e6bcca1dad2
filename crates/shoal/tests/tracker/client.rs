//! A client of the UDP tracker protocol (BEP 15), written out by hand.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::harness::PATIENCE;

/// The number of the protocol in a connect request.
const PROTOCOL_ID: u64 = 0x0417_2710_1980;

pub(crate) const CONNECT: u32 = 0;
pub(crate) const ANNOUNCE: u32 = 1;
pub(crate) const SCRAPE: u32 = 2;
pub(crate) const ERROR: u32 = 3;

/// A socket that talks to one tracker.
pub(crate) struct Client {
    socket: UdpSocket,
}

/// The fields of an announce. Starts from [`Announce::seeder`] or [`Announce::leecher`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announce {
    pub(crate) info_hash: [u8; 20],
    pub(crate) left: i64,
    pub(crate) event: u32,
    pub(crate) ip: [u8; 4],
    pub(crate) numwant: i32,
    pub(crate) port: u16,
}

pub(crate) const COMPLETED: u32 = 1;
pub(crate) const STARTED: u32 = 2;
pub(crate) const STOPPED: u32 = 3;

/// The answer to an announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) interval_s: u32,
    pub(crate) leechers: u32,
    pub(crate) seeders: u32,
    pub(crate) peers: Vec<SocketAddr>,
}

/// The counts of a torrent in the answer to a scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) seeders: u32,
    pub(crate) completed: u32,
    pub(crate) leechers: u32,
}

impl Announce {
    /// A peer at this port that has everything.
    pub(crate) fn seeder(info_hash: [u8; 20], port: u16) -> Self {
        Self { info_hash, left: 0, event: 0, ip: [0; 4], numwant: -1, port }
    }

    /// A peer at this port that has nothing yet.
    pub(crate) fn leecher(info_hash: [u8; 20], port: u16) -> Self {
        Self { left: 1 << 20, ..Self::seeder(info_hash, port) }
    }

    /// The 98 bytes.
    pub(crate) fn packet(&self, connection_id: u64, transaction_id: u32) -> Vec<u8> {
        let mut packet = head(connection_id, ANNOUNCE, transaction_id);
        packet.extend(self.info_hash);
        packet.extend(b"-XX0001-abcdefghijkl");
        packet.extend(0_i64.to_be_bytes()); // downloaded
        packet.extend(self.left.to_be_bytes());
        packet.extend(0_i64.to_be_bytes()); // uploaded
        packet.extend(self.event.to_be_bytes());
        packet.extend(self.ip);
        packet.extend(0x5eed_u32.to_be_bytes()); // key
        packet.extend(self.numwant.to_be_bytes());
        packet.extend(self.port.to_be_bytes());
        assert_eq!(packet.len(), 98);
        packet
    }
}

/// The head that all requests share.
fn head(connection_id: u64, action: u32, transaction_id: u32) -> Vec<u8> {
    [&connection_id.to_be_bytes()[..], &action.to_be_bytes(), &transaction_id.to_be_bytes()].concat()
}

/// A connect request.
pub(crate) fn connect_packet(transaction_id: u32) -> Vec<u8> {
    head(PROTOCOL_ID, CONNECT, transaction_id)
}

/// A scrape request.
pub(crate) fn scrape_packet(connection_id: u64, transaction_id: u32, info_hashes: &[[u8; 20]]) -> Vec<u8> {
    [head(connection_id, SCRAPE, transaction_id), info_hashes.concat()].concat()
}

impl Client {
    /// A client of the tracker at `tracker`, on the loopback address of the same family.
    pub(crate) fn new(tracker: SocketAddr) -> Self {
        let ip = if tracker.is_ipv4() { "127.0.0.1" } else { "::1" };
        Self::from_ip(ip.parse().expect("an address"), tracker)
    }

    /// A client at `ip`. Receives answers from the address of `tracker` only, because its socket is connected.
    pub(crate) fn from_ip(ip: IpAddr, tracker: SocketAddr) -> Self {
        let socket = UdpSocket::bind((ip, 0)).expect("the address is a local one");
        socket.connect(tracker).expect("both are of the same family");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
        Self { socket }
    }

    /// Where it sends from.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is bound")
    }

    /// Sends a datagram.
    pub(crate) fn send(&self, packet: &[u8]) {
        self.socket.send(packet).expect("loopback takes it");
    }

    /// The next datagram.
    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut buffer = [0; 65_536];
        let bytes = self.socket.recv(&mut buffer).expect("the tracker answers");
        buffer[..bytes].to_vec()
    }

    /// Sends a request and returns its answer.
    pub(crate) fn ask(&self, packet: &[u8]) -> Vec<u8> {
        self.send(packet);
        self.receive()
    }

    /// Makes sure that nothing sent so far gets an answer: a connect request sent after it is answered first.
    /// One socket's datagrams go to one worker, which keeps their order.
    pub(crate) fn assert_silence(&self, about: &str) {
        let reply = self.ask(&connect_packet(0x51_1e_4c_e0));
        assert_eq!(
            reply[..8],
            [[0; 4], [0x51, 0x1e, 0x4c, 0xe0]].concat(),
            "an answer to {about}: {reply:02x?}"
        );
    }

    /// Asks for a connection id.
    pub(crate) fn connect(&self) -> u64 {
        let reply = self.ask(&connect_packet(7));
        assert_eq!(reply.len(), 16, "{reply:02x?}");
        assert_eq!((word(&reply, 0), word(&reply, 4)), (CONNECT, 7), "{reply:02x?}");
        u64::from_be_bytes(reply[8..].try_into().expect("8 bytes"))
    }

    /// Announces, with a connection id of its own.
    pub(crate) fn announce(&self, announce: &Announce) -> Announced {
        let packet = announce.packet(self.connect(), 0x0a0b_0c0d);
        self.read_announced(&self.ask(&packet), 0x0a0b_0c0d)
    }

    /// Announces one after the other, but without waiting for each answer. Returns the answers in the same order.
    pub(crate) fn announce_all(&self, announces: impl IntoIterator<Item = Announce>) -> Vec<Announced> {
        /// Few enough for any socket buffer.
        const ON_THE_WAY_MAX: usize = 64;
        let connection_id = self.connect();
        let announces: Vec<Announce> = announces.into_iter().collect();
        let mut answers = Vec::with_capacity(announces.len());
        for some in announces.chunks(ON_THE_WAY_MAX) {
            some.iter().for_each(|announce| self.send(&announce.packet(connection_id, 5)));
            answers.extend(some.iter().map(|_| self.read_announced(&self.receive(), 5)));
        }
        answers
    }

    /// Reads the answer to an announce.
    fn read_announced(&self, reply: &[u8], transaction_id: u32) -> Announced {
        assert!(reply.len() >= 20, "{reply:02x?}");
        let text = String::from_utf8_lossy(&reply[8..]);
        assert_eq!((word(reply, 0), word(reply, 4)), (ANNOUNCE, transaction_id), "{text:?}");
        let peer_bytes = if self.address().is_ipv4() { 6 } else { 18 };
        let peers = &reply[20..];
        assert_eq!(peers.len() % peer_bytes, 0, "{reply:02x?}");
        Announced {
            interval_s: word(reply, 8),
            leechers: word(reply, 12),
            seeders: word(reply, 16),
            peers: peers.chunks(peer_bytes).map(read_peer).collect(),
        }
    }

    /// Asks for the counts of torrents.
    pub(crate) fn scrape(&self, info_hashes: &[[u8; 20]]) -> Vec<Counts> {
        let reply = self.ask(&scrape_packet(self.connect(), 9, info_hashes));
        assert!(reply.len() >= 8, "{reply:02x?}");
        assert_eq!((word(&reply, 0), word(&reply, 4)), (SCRAPE, 9), "{reply:02x?}");
        assert_eq!((reply.len() - 8) % 12, 0, "{reply:02x?}");
        let counts = |entry: &[u8]| Counts {
            seeders: word(entry, 0),
            completed: word(entry, 4),
            leechers: word(entry, 8),
        };
        reply[8..].chunks(12).map(counts).collect()
    }

    /// Sends a request that is to be refused, and returns the words of the error.
    pub(crate) fn refusal(&self, packet: &[u8]) -> String {
        let reply = self.ask(packet);
        assert!(reply.len() >= 8, "{reply:02x?}");
        assert_eq!(word(&reply, 0), ERROR, "{reply:02x?}");
        assert_eq!(reply[4..8], packet[12..16], "the transaction id");
        String::from_utf8(reply[8..].to_vec()).expect("errors are text")
    }
}

/// The 32-bit number at `offset`.
pub(crate) fn word(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes(bytes[offset..offset + 4].try_into().expect("4 bytes"))
}

fn read_peer(bytes: &[u8]) -> SocketAddr {
    let (ip, port) = bytes.split_at(bytes.len() - 2);
    let port = u16::from_be_bytes([port[0], port[1]]);
    let ip = match <[u8; 4]>::try_from(ip) {
        Ok(ip) => IpAddr::from(ip),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(ip).expect("16 bytes")),
    };
    SocketAddr::new(ip, port)
}
