//! The clients of the published comparison of UDP trackers (`PUBLISHED` in `crates/load/src/preset.rs`): their torrents,
//! their lives, and their requests.

use std::net::{Ipv4Addr, SocketAddr};

use shoal_base::{Event, InfoHash, PeerId};
use shoal_engine::connection_id::ConnectionIds;
use shoal_wire::udp::{Announce, ConnectionId, Options, Request, TransactionId};

/// Space for the largest request: an announce with a token.
pub(crate) const REQUEST_BYTES_MAX: usize = 512;

const SCRAPE_HASHES_MAX: usize = 10;

const PEERS_WANTED: i32 = 30;

const SEEDER_SHARE: f64 = 0.75;

/// The share of peers that leave without an announce that stops, if peers leave.
const VANISH_SHARE: f64 = 0.25;

/// The share of peers in popular torrents, and the share of torrents within which popularity falls to 1/e.
const HEAD_SHARE: f64 = 0.727;
const HEAD_WIDTH: f64 = 0.002;

/// Number of addresses that requests come from.
const ADDRESSES: u8 = 8;

/// The weights of the kinds of request.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    pub(crate) connect: u32,
    pub(crate) announce: u32,
    pub(crate) scrape: u32,
}

pub(crate) struct Clients {
    torrents: u32,
    peers: Vec<Peer>,
    /// The chance that an announce is the last one of a peer, and that an announce of a leecher completes it.
    end_chance: f64,
    /// The peer that takes the place of one that has stopped. It announces itself next.
    successor: Option<usize>,
    connection_ids: [ConnectionId; ADDRESSES as usize],
    /// The options of announces, which peers use in turn.
    options: Vec<Vec<u8>>,
    rng: fastrand::Rng,
}

#[derive(Clone, Copy)]
struct Peer {
    torrent: u32,
    port: u16,
    is_seeder: bool,
}

impl Clients {
    pub(crate) fn new(
        torrents: u32,
        peers: u32,
        announces_per_life: u32,
        unix_s: u64,
        options: Vec<Vec<u8>>,
    ) -> Self {
        let ids = ConnectionIds::new(&super::KEY);
        let mut clients = Self {
            torrents,
            peers: Vec::new(),
            end_chance: if announces_per_life == 0 { 0.0 } else { 1.0 / f64::from(announces_per_life - 1) },
            successor: None,
            connection_ids: std::array::from_fn(|number| ids.issue(address(number).into(), unix_s)),
            options,
            rng: fastrand::Rng::with_seed(8),
        };
        clients.peers = (0..peers).map(|_| clients.draw_peer()).collect();
        clients
    }

    /// Writes the first announce of a peer. Returns its source and its length.
    pub(crate) fn start(&mut self, peer: u32, out: &mut [u8]) -> (SocketAddr, usize) {
        self.announce(peer as usize, Event::Started, out)
    }

    /// Writes the next request. Returns its source and its length.
    pub(crate) fn request(&mut self, mix: Mix, out: &mut [u8]) -> (SocketAddr, usize) {
        let drawn = self.rng.u32(0..mix.connect + mix.announce + mix.scrape);
        let peer = self.rng.usize(0..self.peers.len());
        let transaction_id = TransactionId(self.rng.u32(..));
        if drawn < mix.connect {
            let bytes = encode(&Request::Connect { transaction_id }, out);
            (source(peer), bytes)
        } else if drawn < mix.connect + mix.announce {
            self.next_announce(peer, out)
        } else {
            let mut info_hashes = [InfoHash([0; 20]); SCRAPE_HASHES_MAX];
            let info_hashes = &mut info_hashes[..self.rng.usize(1..=SCRAPE_HASHES_MAX)];
            // A torrent that is drawn by drawing a peer keeps its popularity.
            info_hashes.fill_with(|| info_hash(self.peers[self.rng.usize(0..self.peers.len())].torrent));
            let connection_id = self.connection_id(peer);
            (source(peer), encode(&Request::Scrape { connection_id, transaction_id, info_hashes }, out))
        }
    }

    fn next_announce(&mut self, drawn: usize, out: &mut [u8]) -> (SocketAddr, usize) {
        if let Some(successor) = self.successor.take() {
            return self.announce(successor, Event::Started, out);
        }
        let chance = self.rng.f64();
        if chance < self.end_chance {
            let new = self.draw_peer();
            let old = std::mem::replace(&mut self.peers[drawn], new);
            if self.rng.f64() < VANISH_SHARE {
                return self.announce(drawn, Event::Started, out);
            }
            self.successor = Some(drawn);
            return self.announce_of(old, drawn, Event::Stopped, out);
        }
        if !self.peers[drawn].is_seeder && chance < 2.0 * self.end_chance {
            self.peers[drawn].is_seeder = true;
            return self.announce(drawn, Event::Completed, out);
        }
        self.announce(drawn, Event::Update, out)
    }

    fn announce(&mut self, number: usize, event: Event, out: &mut [u8]) -> (SocketAddr, usize) {
        self.announce_of(self.peers[number], number, event, out)
    }

    fn announce_of(
        &mut self,
        peer: Peer,
        number: usize,
        event: Event,
        out: &mut [u8],
    ) -> (SocketAddr, usize) {
        let Peer { torrent, port, is_seeder } = peer;
        let announce = Announce {
            info_hash: info_hash(torrent),
            peer_id: PeerId(*b"-SL0100-............"),
            downloaded_bytes: 0.into(),
            left_bytes: i64::from(!is_seeder).into(),
            uploaded_bytes: 0.into(),
            event: Announce::event_number(event),
            ip: [0; 4],
            key: 0x5eed.into(),
            num_want: PEERS_WANTED.into(),
            port: port.into(),
        };
        let request = Request::Announce {
            connection_id: self.connection_id(number),
            transaction_id: TransactionId(self.rng.u32(..)),
            announce: &announce,
            options: Options::new(&self.options[number % self.options.len()]),
        };
        (source(number), encode(&request, out))
    }

    fn draw_peer(&mut self) -> Peer {
        let torrents = f64::from(self.torrents);
        let torrent = if self.rng.f64() < HEAD_SHARE {
            -(1.0 - self.rng.f64()).ln() * HEAD_WIDTH * torrents % torrents
        } else {
            self.rng.f64() * torrents
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is below `torrents`")]
        let torrent = torrent as u32;
        Peer { torrent, port: self.rng.u16(1..), is_seeder: self.rng.f64() < SEEDER_SHARE }
    }

    fn connection_id(&self, peer: usize) -> ConnectionId {
        self.connection_ids[peer % usize::from(ADDRESSES)]
    }
}

/// Returns the source of the requests of a peer. Its port is that of the peer's socket, not that of the peer.
fn source(peer: usize) -> SocketAddr {
    SocketAddr::from((address(peer % usize::from(ADDRESSES)), 40_000))
}

/// Returns an address that no default exempts.
fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, u8::try_from(number + 1).expect("there are a few addresses"))
}

fn info_hash(torrent: u32) -> InfoHash {
    let mut bytes = [0; 20];
    fastrand::Rng::with_seed(u64::from(torrent)).fill(&mut bytes);
    InfoHash(bytes)
}

fn encode(request: &Request<'_>, out: &mut [u8]) -> usize {
    request.encode(out).expect("the buffer has space for any of these requests")
}
