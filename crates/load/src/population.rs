//! The simulated peers of one worker, and their lives.
//!
//! Owns who is in which torrent, at which port, and what it announces next. A peer is 8 bytes, so that a load of tens
//! of millions of peers fits beside the tracker.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use shoal_types::Event;

use crate::Population;
use crate::popularity::Chooser;

/// The peers of one worker, divided among its sockets: peer `n` speaks through socket `n % sockets`, for ever, since its
/// address is its identity.
#[derive(Debug)]
pub(crate) struct Peers {
    peers: Vec<Peer>,
    sockets: usize,
    chooser: Chooser,
    seeder_share: f64,
    /// The chance that an announce of a living peer is its last, as a share of 2^32.
    stop_chance: u32,
    /// The chance that an announce of a leecher completes it.
    complete_chance: u32,
    random: SmallRng,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    torrent: u32,
    port: u16,
    stage: Stage,
    /// How many peers had this place before, for another peer id.
    generation: u8,
}

const _: () = assert!(size_of::<Peer>() == 8);

/// Where a peer is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// To announce that it starts, with nothing yet.
    NewLeecher,
    /// To announce that it starts, with everything.
    NewSeeder,
    Leecher,
    Seeder,
}

/// What a peer announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Say {
    pub(crate) peer: u32,
    pub(crate) generation: u8,
    pub(crate) torrent: u32,
    pub(crate) port: u16,
    pub(crate) event: Event,
    pub(crate) left_bytes: i64,
}

/// What a leecher still lacks: any number but 0 says the same to a tracker.
pub(crate) const LEFT_BYTES: i64 = 1 << 30;

impl Peers {
    /// Makes `count` peers. The same arguments make the same peers with the same lives.
    pub(crate) fn new(population: &Population, count: usize, sockets: usize, seed: u64) -> Self {
        let mut peers = Self {
            peers: Vec::new(),
            sockets,
            chooser: Chooser::new(population),
            seeder_share: population.seeder_share,
            stop_chance: one_in(population.announces_per_life),
            // Half of the leechers live to see the end of their download.
            complete_chance: one_in(population.announces_per_life),
            random: SmallRng::seed_from_u64(seed),
        };
        peers.peers = (0..count).map(|_| peers.born(0)).collect();
        peers
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    /// A peer at random, of those that speak through `socket`.
    pub(crate) fn any(&mut self, socket: usize) -> u32 {
        let rows = (self.peers.len() - socket).div_ceil(self.sockets);
        let peer = self.random.random_range(0..rows) * self.sockets + socket;
        u32::try_from(peer).expect("there are at most 2^32 peers")
    }

    /// The torrent of a peer: choosing a torrent by choosing a peer keeps the popularity.
    pub(crate) fn torrent(&self, peer: u32) -> u32 {
        self.peers[peer as usize].torrent
    }

    /// What a peer says when the tracker has to learn of everybody: that it starts.
    pub(crate) fn start(&mut self, peer: u32) -> Say {
        let entry = &mut self.peers[peer as usize];
        entry.stage = match entry.stage {
            Stage::NewLeecher | Stage::Leecher => Stage::Leecher,
            Stage::NewSeeder | Stage::Seeder => Stage::Seeder,
        };
        let left_bytes = if entry.stage == Stage::Seeder { 0 } else { LEFT_BYTES };
        say(peer, entry, Event::Started, left_bytes)
    }

    /// What a peer says next in its life. One that stops makes room for another.
    pub(crate) fn next(&mut self, peer: u32) -> Say {
        let mut entry = self.peers[peer as usize];
        if matches!(entry.stage, Stage::NewLeecher | Stage::NewSeeder) {
            return self.start(peer);
        }
        let chance: u32 = self.random.random();
        let left_bytes = if entry.stage == Stage::Seeder { 0 } else { LEFT_BYTES };
        if chance < self.stop_chance {
            let last_words = say(peer, &entry, Event::Stopped, left_bytes);
            self.peers[peer as usize] = self.born(entry.generation.wrapping_add(1));
            return last_words;
        }
        if entry.stage == Stage::Leecher && chance - self.stop_chance < self.complete_chance {
            entry.stage = Stage::Seeder;
            self.peers[peer as usize] = entry;
            return say(peer, &entry, Event::Completed, 0);
        }
        say(peer, &entry, Event::Update, left_bytes)
    }

    fn born(&mut self, generation: u8) -> Peer {
        let is_seeder = self.random.random::<f64>() < self.seeder_share;
        Peer {
            torrent: self.chooser.choose(&mut self.random),
            // Port 0 is no port.
            port: self.random.random_range(1..=u16::MAX),
            stage: if is_seeder { Stage::NewSeeder } else { Stage::NewLeecher },
            generation,
        }
    }
}

fn say(peer: u32, entry: &Peer, event: Event, left_bytes: i64) -> Say {
    let Peer { torrent, port, generation, .. } = *entry;
    Say { peer, generation, torrent, port, event, left_bytes }
}

/// The chance of one in `times` as a share of 2^32; none where `times` is 0.
fn one_in(times: u32) -> u32 {
    u32::MAX.checked_div(times).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Popularity;

    fn peers(announces_per_life: u32) -> Peers {
        let population = Population {
            torrents: 100,
            peers: 1000,
            popularity: Popularity::Uniform,
            seeder_share: 0.25,
            announces_per_life,
        };
        Peers::new(&population, 1000, 3, 7)
    }

    #[test]
    fn a_life_begins_with_started_and_ends_with_stopped() {
        let mut peers = peers(10);
        let (mut is_alive, mut is_seeder, mut lives, mut completed) = (false, false, 0_u32, 0_u32);
        for _ in 0..100_000 {
            let said = peers.next(5);
            assert_eq!(said.event == Event::Started, !is_alive);
            is_alive = said.event != Event::Stopped;
            match said.event {
                Event::Started => is_seeder = said.left_bytes == 0,
                Event::Completed => {
                    assert!(!is_seeder && said.left_bytes == 0);
                    (is_seeder, completed) = (true, completed + 1);
                }
                Event::Stopped => lives += 1,
                Event::Update => {}
            }
            assert_eq!(said.left_bytes == 0, is_seeder);
        }
        // A start and ten more announces each: 100,000 / 11; three quarters start as leechers, half of them complete.
        assert!((8_600..9_600).contains(&lives), "{lives}");
        assert!((3_100..3_750).contains(&completed), "{completed}");
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
            let mut seen: Vec<u32> = (0..20_000).map(|_| peers.any(socket)).collect();
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
}
