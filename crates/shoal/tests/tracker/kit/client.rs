//! The UDP client (BEP 15), for a test that needs every reply.

use std::net::{IpAddr, SocketAddr};

use shoal_base::Event;
use shoal_testkit::client::udp;
pub(crate) use shoal_testkit::client::udp::{Announce, Announced, Counts, connect_packet, scrape_packet};
use shoal_wire::udp::Reply;

use crate::kit::harness::PATIENCE;

pub(crate) const ANNOUNCE: u32 = 1;
pub(crate) const ERROR: u32 = 3;

pub(crate) const COMPLETED: Event = Event::Completed;
pub(crate) const STARTED: Event = Event::Started;
pub(crate) const STOPPED: Event = Event::Stopped;

/// A socket that talks to one tracker.
pub(crate) struct Client(udp::Client);

impl Client {
    /// A client of the tracker at `tracker`, on the loopback address of the same family.
    pub(crate) fn new(tracker: SocketAddr) -> Self {
        let ip = if tracker.is_ipv4() { "127.0.0.1" } else { "::1" };
        Self::from_ip(ip.parse().expect("an address"), tracker)
    }

    /// A client at `ip`. Receives answers from the address of `tracker` only, because its socket is connected.
    pub(crate) fn from_ip(ip: IpAddr, tracker: SocketAddr) -> Self {
        Self(udp::Client::bind(ip, tracker, PATIENCE, 1).expect("the address is a local one"))
    }

    /// Where it sends from.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.socket.local_addr().expect("it is bound")
    }

    /// Sends a datagram.
    pub(crate) fn send(&self, packet: &[u8]) {
        self.0.socket.send(packet).expect("loopback takes it");
    }

    /// The next datagram.
    pub(crate) fn receive(&self) -> Vec<u8> {
        self.0.receive().expect("the tracker answers")
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
        self.0.connect().expect("the tracker answers")
    }

    /// Announces, with a connection id of its own.
    pub(crate) fn announce(&self, announce: &Announce) -> Announced {
        self.connect();
        self.0.announce(announce).expect("the tracker serves it")
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
        let decoded = Reply::decode(reply).expect("a reply");
        assert_eq!(word(reply, 4), transaction_id, "{decoded:?}");
        self.0.announced(decoded).unwrap_or_else(|| panic!("{decoded:?}"))
    }

    /// Asks for the counts of torrents.
    pub(crate) fn scrape(&self, info_hashes: &[[u8; 20]]) -> Vec<Counts> {
        self.connect();
        self.0.scrape(info_hashes).expect("the tracker answers")
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
