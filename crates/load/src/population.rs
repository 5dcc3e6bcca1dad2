//! The simulated peers of one worker, and their lives.
//!
//! Owns the torrent and the port of each peer, its ids, and the next announce that it sends. A peer takes 8 bytes, so
//! that a load of tens of millions of peers fits beside the tracker.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use shoal_base::{Event, InfoHash, PeerId};

use crate::Population;
use crate::popularity::TorrentDistribution;
use crate::tally::Kind;

/// The peers of one worker. Peer `n` always uses socket `n % sockets`, since its address is its identity. Over
/// connections, a socket is a source address (HTTP) or a connection (WebSockets).
#[derive(Debug)]
pub(crate) struct Peers {
    peers: Vec<Peer>,
    sockets: usize,
    torrents: TorrentDistribution,
    seeder_share: f64,
    vanish_share: f64,
    /// The chance that a life ends instead of another announce, as a share of 2^32.
    end_chance: u32,
    /// The chance that an announce of a leecher completes it.
    complete_chance: u32,
    /// For each socket, the peer that replaces one that has stopped. It announces next, so that the number stays.
    successors: Vec<Option<u32>>,
    random: SmallRng,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    torrent: u32,
    port: u16,
    stage: Stage,
    /// How many peers came before it under the same number, each with a peer id of its own.
    generation: u8,
}

const _: () = assert!(size_of::<Peer>() == 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It will announce itself as started, with everything left to download.
    NewLeecher,
    /// It will announce itself as started, with nothing left to download.
    NewSeeder,
    Leecher,
    Seeder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerAnnounce {
    pub(crate) peer: u32,
    pub(crate) generation: u8,
    pub(crate) torrent: u32,
    pub(crate) port: u16,
    pub(crate) event: Event,
    pub(crate) left_bytes: i64,
}

/// The bytes that a leecher has left to download. Any number but 0 means the same to a tracker.
pub(crate) const LEFT_BYTES: i64 = 1 << 30;

impl Peers {
    /// Creates `count` peers. The same arguments create the same peers with the same lives.
    pub(crate) fn new(population: &Population, count: usize, sockets: usize, seed: u64) -> Self {
        let mut peers = Self {
            peers: Vec::new(),
            sockets,
            torrents: TorrentDistribution::new(population),
            seeder_share: population.seeder_share,
            vanish_share: population.vanish_share,
            end_chance: chance_after_start(population.announces_per_life),
            // Half of the leechers complete their download before they leave.
            complete_chance: chance_after_start(population.announces_per_life),
            successors: vec![None; sockets],
            random: SmallRng::seed_from_u64(seed),
        };
        peers.peers = (0..count).map(|_| peers.create(0)).collect();
        peers
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn sockets(&self) -> usize {
        self.sockets
    }

    /// Returns the swarm of each torrent, up to the last torrent that has a peer.
    pub(crate) fn swarms(&self) -> Vec<Swarm> {
        let torrents = self.peers.iter().map(|peer| peer.torrent as usize + 1).max();
        let mut swarms = vec![Swarm::default(); torrents.unwrap_or(0)];
        self.peers.iter().for_each(|peer| swarms[peer.torrent as usize].peers += 1);
        swarms
    }

    pub(crate) fn draw(&mut self, socket: usize) -> u32 {
        let rows = (self.peers.len() - socket).div_ceil(self.sockets);
        let peer = self.random.random_range(0..rows) * self.sockets + socket;
        u32::try_from(peer).expect("there are at most 2^32 peers")
    }

    /// Returns the torrent of a peer. A torrent that is drawn by drawing a peer keeps its popularity.
    pub(crate) fn torrent(&self, peer: u32) -> u32 {
        self.peers[peer as usize].torrent
    }

    pub(crate) fn start(&mut self, peer: u32) -> PeerAnnounce {
        let entry = &mut self.peers[peer as usize];
        entry.stage = match entry.stage {
            Stage::NewLeecher | Stage::Leecher => Stage::Leecher,
            Stage::NewSeeder | Stage::Seeder => Stage::Seeder,
        };
        let left_bytes = if entry.stage == Stage::Seeder { 0 } else { LEFT_BYTES };
        announce(peer, entry, Event::Started, left_bytes)
    }

    /// Returns the next announce of a peer, or of a successor on its socket that has yet to start.
    pub(crate) fn next(&mut self, drawn: u32) -> PeerAnnounce {
        let socket = drawn as usize % self.sockets;
        let peer = self.successors[socket].take().unwrap_or(drawn);
        let mut entry = self.peers[peer as usize];
        if matches!(entry.stage, Stage::NewLeecher | Stage::NewSeeder) {
            return self.start(peer);
        }
        let chance: u32 = self.random.random();
        let left_bytes = if entry.stage == Stage::Seeder { 0 } else { LEFT_BYTES };
        if chance < self.end_chance {
            self.peers[peer as usize] = self.create(entry.generation.wrapping_add(1));
            if self.random.random::<f64>() < self.vanish_share {
                return self.start(peer);
            }
            self.successors[socket] = Some(peer);
            return announce(peer, &entry, Event::Stopped, left_bytes);
        }
        if entry.stage == Stage::Leecher && chance - self.end_chance < self.complete_chance {
            entry.stage = Stage::Seeder;
            self.peers[peer as usize] = entry;
            return announce(peer, &entry, Event::Completed, 0);
        }
        announce(peer, &entry, Event::Update, left_bytes)
    }

    fn create(&mut self, generation: u8) -> Peer {
        let is_seeder = self.random.random::<f64>() < self.seeder_share;
        Peer {
            torrent: self.torrents.draw(&mut self.random),
            // Port 0 is not valid.
            port: self.random.random_range(1..=u16::MAX),
            stage: if is_seeder { Stage::NewSeeder } else { Stage::NewLeecher },
            generation,
        }
    }
}

fn announce(peer: u32, entry: &Peer, event: Event, left_bytes: i64) -> PeerAnnounce {
    let Peer { torrent, port, generation, .. } = *entry;
    PeerAnnounce { peer, generation, torrent, port, event, left_bytes }
}

/// Returns the chance that an announce ends a life, as a share of 2^32, for lives of this average length. 0: never.
fn chance_after_start(announces_per_life: u32) -> u32 {
    let further = announces_per_life.saturating_sub(1);
    u32::MAX.checked_div(further).unwrap_or(0)
}

/// A swarm of the load, and the size that the tracker gives it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Swarm {
    pub(crate) peers: u32,
    /// The highest count of peers in a reply; 0 if no reply had one.
    pub(crate) counted: u32,
}

impl Swarm {
    pub(crate) fn note(&mut self, counted: u64) {
        self.counted = self.counted.max(u32::try_from(counted).unwrap_or(u32::MAX));
    }

    fn missing(&self) -> u64 {
        const PORTS: u64 = 65_535;
        // Peers of one address that have drawn the same port are one peer.
        let peers = u64::from(self.peers).min(PORTS);
        let different = peers - peers * peers / (2 * PORTS);
        // A reply without counts shows nothing.
        if self.counted == 0 { 0 } else { different.saturating_sub(self.counted.into()) }
    }
}

/// Returns a lower bound of the peers that the tracker does not count. Some trackers leave out the announcer.
pub(crate) fn unregistered(swarms: &[Swarm]) -> u64 {
    swarms.iter().map(Swarm::missing).filter(|missing| *missing > 1).sum()
}

/// The peers that a fill still has to announce.
#[derive(Debug)]
pub(crate) struct Fill {
    peers: usize,
    next: Vec<usize>,
    /// Peers whose announce was lost.
    again: Vec<u32>,
}

impl Fill {
    pub(crate) fn new(peers: &Peers) -> Self {
        Self { peers: peers.len(), next: (0..peers.sockets).collect(), again: Vec::new() }
    }

    /// Notes a lost request. If it was an announce, its peer has to be announced again.
    pub(crate) fn add_lost(&mut self, kind: Kind, peer: u32) {
        if kind == Kind::Announce {
            self.again.push(peer);
        }
    }

    pub(crate) fn take_of(&mut self, socket: usize) -> Option<u32> {
        let sockets = self.next.len();
        let again = self.again.pop_if(|peer| *peer as usize % sockets == socket);
        if again.is_some() || self.next[socket] >= self.peers {
            return again;
        }
        let peer = u32::try_from(self.next[socket]).ok();
        self.next[socket] += sockets;
        peer
    }

    /// Takes a peer of any socket, preferably of `socket`.
    pub(crate) fn take_any(&mut self, socket: usize) -> Option<u32> {
        if let Some(peer) = self.again.pop() {
            return Some(peer);
        }
        let has_peers = |next: &usize| *next < self.peers;
        let socket =
            if has_peers(&self.next[socket]) { socket } else { self.next.iter().position(has_peers)? };
        self.take_of(socket)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.again.is_empty() && self.next.iter().all(|next| *next >= self.peers)
    }
}

/// Returns the info hash of a torrent of a load with this seed, for trackers that serve listed torrents only.
pub fn info_hash(seed: u64, torrent: u32) -> InfoHash {
    let mut state = mix(seed) ^ u64::from(torrent);
    let mut hash = [0; 20];
    for piece in hash.chunks_mut(8) {
        state = mix(state);
        piece.copy_from_slice(&state.to_be_bytes()[..piece.len()]);
    }
    InfoHash(hash)
}

/// Returns the peer id of the peer with this number, of the client `SL` (BEP 20).
pub(crate) fn peer_id(seed: u64, number: u64) -> PeerId {
    let mut id = *b"-SL0100-............";
    id[8..16].copy_from_slice(&mix(seed ^ mix(number)).to_be_bytes());
    PeerId(id)
}

/// Mixes by SplitMix64: different inputs have different outputs, and each bit of the output depends on the whole input.
pub(crate) fn mix(input: u64) -> u64 {
    let state = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::Popularity;

    const POPULATION: Population = Population {
        torrents: 100,
        peers: 1000,
        popularity: Popularity::Uniform,
        seeder_share: 0.25,
        announces_per_life: 10,
        vanish_share: 0.0,
    };

    fn peers(announces_per_life: u32) -> Peers {
        Peers::new(&Population { announces_per_life, ..POPULATION }, 1000, 3, 7)
    }

    #[test]
    fn a_life_begins_with_started_and_ends_with_stopped() {
        let mut peers = peers(10);
        let (mut is_alive, mut is_seeder, mut lives, mut completed) = (false, false, 0_u32, 0_u32);
        for _ in 0..100_000 {
            let announce = peers.next(5);
            assert_eq!(announce.event == Event::Started, !is_alive);
            is_alive = announce.event != Event::Stopped;
            match announce.event {
                Event::Started => is_seeder = announce.left_bytes == 0,
                Event::Completed => {
                    assert!(!is_seeder && announce.left_bytes == 0);
                    (is_seeder, completed) = (true, completed + 1);
                }
                Event::Stopped => lives += 1,
                Event::Update => {}
            }
            assert_eq!(announce.left_bytes == 0, is_seeder);
        }
        // Ten announces each: 100,000 / 10; three quarters start as leechers, half of them complete.
        assert!((9_500..10_500).contains(&lives), "{lives}");
        assert!((3_450..4_050).contains(&completed), "{completed}");
    }

    #[test]
    fn a_peer_that_stops_is_replaced_at_once() {
        let mut peers = peers(5);
        (0..1000).for_each(|peer| assert_eq!(peers.start(peer).event, Event::Started));
        let mut stopped = [None; 3];
        for step in 0..50_000 {
            let socket = step % 3;
            let drawn = peers.draw(socket);
            let announce = peers.next(drawn);
            let expected = stopped[socket].take();
            assert_eq!(expected.is_some(), announce.event == Event::Started);
            assert_eq!(announce.peer, expected.unwrap_or(drawn));
            stopped[socket] = (announce.event == Event::Stopped).then_some(announce.peer);
        }
    }

    #[test]
    fn a_share_of_the_peers_vanishes() {
        let population = Population { vanish_share: 0.25, ..POPULATION };
        let mut peers = Peers::new(&population, 1000, 3, 7);
        let count = |events: &[Event], event| events.iter().filter(|other| **other == event).count();
        let events: Vec<Event> = (0..100_000).map(|_| peers.next(5).event).collect();
        let [started, stopped] = [Event::Started, Event::Stopped].map(|event| count(&events, event));
        let vanished = (started - stopped) * 100 / started;
        assert!((23..=27).contains(&vanished), "{vanished} %");
    }

    #[test]
    fn peers_that_never_leave_only_complete() {
        let mut peers = peers(0);
        assert_eq!(peers.next(1).event, Event::Started);
        assert!((0..10_000).all(|_| peers.next(1).event == Event::Update));
    }

    #[test]
    fn every_peer_keeps_to_its_socket() {
        let mut peers = peers(10);
        for socket in 0..3 {
            let mut seen: Vec<u32> = (0..20_000).map(|_| peers.draw(socket)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert!(seen.iter().all(|peer| *peer as usize % 3 == socket));
            assert_eq!(seen.len(), (1000 - socket).div_ceil(3));
        }
    }

    #[test]
    fn a_seed_repeats_everything() {
        let lives = || {
            let mut peers = peers(5);
            (0..1000).map(|peer| peers.next(peer)).collect::<Vec<_>>()
        };
        assert_eq!(lives(), lives());
    }

    #[test]
    fn a_hash_belongs_to_its_torrent_and_seed() {
        let hashes: HashSet<[u8; 20]> =
            (0..10_000).flat_map(|torrent| [info_hash(1, torrent).0, info_hash(2, torrent).0]).collect();
        assert_eq!(hashes.len(), 20_000);
        assert_eq!(info_hash(1, 7), info_hash(1, 7));
    }
}
