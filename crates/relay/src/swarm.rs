//! One swarm: its peers, leechers before seeders.
//!
//! In that order whom a seeder's offers may go to is the front of the list, and a sample is a draw of positions. A small
//! swarm is searched from end to end; a big one has an index by peer id.

use core::num::NonZeroU32;

use hashbrown::HashTable;
use shoal_types::PeerId;

use crate::address::Address;
use crate::api::{Counts, Target};
use crate::debt::Debts;
use crate::key::{Name, Source};

/// Peers from which on a swarm has an index, and below which it has none again.
const INDEXED: (usize, usize) = (32, 16);

/// Room of a list that is never given back.
const PEERS_KEPT: usize = 4;

/// A peer that is connected.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) peer_id: PeerId,
    /// Whether its download has been counted, or is not to be.
    pub(crate) counted: bool,
    /// When it announced last.
    pub(crate) heard_s: u32,
    pub(crate) address: Address,
    /// The source that it is counted for.
    pub(crate) source: Source,
    /// When its connection was asked for a sign of life because another one announced the same peer id; none if it has
    /// given one since.
    pub(crate) challenged_s: Option<NonZeroU32>,
    pub(crate) debts: Debts,
    /// Of the peer id.
    hash: u64,
}

const _: () = assert!(size_of::<Peer>() == 80, "as `PEER_BYTES` supposes");

/// The peers of one torrent.
#[derive(Debug, Default)]
pub(crate) struct Swarm {
    peers: Vec<Peer>,
    leechers: usize,
    completed: u32,
    /// Positions by peer id, in a swarm that is big.
    index: Option<Box<HashTable<u32>>>,
}

impl Peer {
    pub(crate) fn new(name: &Name, address: Address, source: Source) -> Self {
        let Name { peer_id, hash } = *name;
        let debts = Debts::default();
        Self { peer_id, counted: false, heard_s: 0, address, source, challenged_s: None, debts, hash }
    }
}

impl Swarm {
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |peers: usize| u32::try_from(peers).unwrap_or(u32::MAX);
        Counts {
            seeders: count(self.peers.len() - self.leechers),
            leechers: count(self.leechers),
            completed: self.completed,
        }
    }

    /// Counts a download of the peer, unless that has been decided already or `is_counted` says no.
    pub(crate) fn complete(&mut self, position: usize, is_counted: impl FnOnce() -> bool) {
        let peer = &mut self.peers[position];
        if !peer.counted {
            peer.counted = true;
            self.completed = self.completed.saturating_add(u32::from(is_counted()));
        }
    }

    pub(crate) fn peer(&self, position: usize) -> &Peer {
        &self.peers[position]
    }

    pub(crate) fn peer_mut(&mut self, position: usize) -> &mut Peer {
        &mut self.peers[position]
    }

    pub(crate) fn seeds(&self, position: usize) -> bool {
        position >= self.leechers
    }

    /// Where the peer is, until the next change.
    pub(crate) fn find(&self, name: &Name) -> Option<usize> {
        let is_it = |peer: &Peer| peer.hash == name.hash && peer.peer_id == name.peer_id;
        match &self.index {
            None => self.peers.iter().position(is_it),
            Some(index) => index
                .find(name.hash, |&position| is_it(&self.peers[as_usize(position)]))
                .map(|&position| as_usize(position)),
        }
    }

    /// Takes in a peer that is not there. Returns where it is.
    pub(crate) fn insert(&mut self, peer: Peer, seeds: bool) -> usize {
        let position = self.peers.len();
        if position == self.peers.capacity() {
            // A quarter more, where a vector of its own accord would double.
            self.peers.reserve_exact(position / 4 + 1);
        }
        let hash = peer.hash;
        self.peers.push(peer);
        match &mut self.index {
            Some(index) => {
                index.insert_unique(hash, as_u32(position), |&other| self.peers[as_usize(other)].hash);
            }
            None if self.peers.len() > INDEXED.0 => self.build_index(),
            None => {}
        }
        if seeds { position } else { self.make_leecher(position) }
    }

    /// Takes the peer out, and returns it. Its position is then that of another, which was behind it, or the end.
    pub(crate) fn remove(&mut self, position: usize) -> Option<Peer> {
        let position = if self.seeds(position) { position } else { self.make_seeder(position) };
        let last = self.peers.len() - 1;
        self.swap(position, last);
        if let Some(index) = &mut self.index {
            let hash = self.peers[last].hash;
            if let Ok(entry) = index.find_entry(hash, |&other| as_usize(other) == last) {
                entry.remove();
            }
        }
        let peer = self.peers.pop();
        self.shrink();
        peer
    }

    /// Makes the peer what it now is. Returns where it then is.
    pub(crate) fn set_role(&mut self, position: usize, seeds: bool) -> usize {
        match (self.seeds(position), seeds) {
            (false, true) => self.make_seeder(position),
            (true, false) => self.make_leecher(position),
            (true, true) | (false, false) => position,
        }
    }

    /// Draws up to `wanted` peers for the offers of the peer at `own`, each at most once and all equally likely; never
    /// itself, and for a seeder leechers only.
    pub(crate) fn draw(&self, own: usize, wanted: usize, rng: &mut fastrand::Rng, targets: &mut Vec<Target>) {
        let seeds = self.seeds(own);
        let others = if seeds { self.leechers } else { self.peers.len() - 1 };
        // Positions among the others: a leecher is to be left out, a seeder is behind all whom it may meet.
        let position = |drawn: usize| drawn + usize::from(drawn >= own);
        let target =
            |position: usize| Target { address: self.peers[position].address, position: as_u32(position) };
        if wanted >= others {
            targets.extend((0..others).map(|drawn| target(position(drawn))));
            return;
        }
        // Floyd's sample (Bentley and Floyd, "A sample of brilliance", 1987): one draw for each, and no draw in vain.
        for last in others - wanted..others {
            let drawn = position(rng.usize(0..=last));
            let is_new = targets.iter().all(|target| target.position() != drawn);
            targets.push(target(if is_new { drawn } else { position(last) }));
        }
    }

    /// Moves the seeder to the end of the leechers.
    fn make_leecher(&mut self, position: usize) -> usize {
        self.swap(position, self.leechers);
        self.leechers += 1;
        self.leechers - 1
    }

    /// Moves the leecher to the front of the seeders.
    fn make_seeder(&mut self, position: usize) -> usize {
        self.leechers -= 1;
        self.swap(position, self.leechers);
        self.leechers
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        if let Some(index) = &mut self.index {
            let place_of = |position: usize| {
                let hash = self.peers[position].hash;
                index.find_bucket_index(hash, |&entry| as_usize(entry) == position)
            };
            // Both are found before either is changed, as the changed entry could be taken for the other.
            let places = [(place_of(one), other), (place_of(other), one)];
            for (place, position) in places {
                if let Some(entry) = place.and_then(|place| index.get_bucket_mut(place)) {
                    *entry = as_u32(position);
                }
            }
        }
        self.peers.swap(one, other);
    }

    fn build_index(&mut self) {
        let hash_of = |&position: &u32| self.peers[as_usize(position)].hash;
        let mut index = HashTable::with_capacity(self.peers.len());
        for position in 0..as_u32(self.peers.len()) {
            index.insert_unique(hash_of(&position), position, hash_of);
        }
        self.index = Some(Box::new(index));
    }

    /// Gives back what is no longer needed, with enough left over that a swarm which comes and goes does not do so all
    /// the time.
    fn shrink(&mut self) {
        let peers = self.peers.len();
        if self.peers.capacity() > PEERS_KEPT && peers < self.peers.capacity() / 2 {
            self.peers.shrink_to(peers + peers / 4);
        }
        if peers < INDEXED.1 {
            self.index = None;
        }
        if let Some(index) = &mut self.index
            && peers < index.capacity() / 4
        {
            index.shrink_to(peers * 2, |&position| self.peers[as_usize(position)].hash);
        }
    }
}

fn as_u32(position: usize) -> u32 {
    u32::try_from(position).expect("a swarm of 2^32 peers would take 320 GiB")
}

fn as_usize(position: u32) -> usize {
    usize::try_from(position).expect("an address has 32 bits or more")
}

#[cfg(test)]
mod tests {
    use shoal_wire::stream::Handle;

    use super::*;

    fn name(number: u8, bits: u32) -> Name {
        // Few bits of hash, so that peers share it.
        Name { peer_id: PeerId([number; 20]), hash: (u64::from(number) % (1 << bits)) << 57 }
    }

    fn insert(swarm: &mut Swarm, name: &Name, seeds: bool) {
        let handle = Handle { index: u32::from(name.peer_id.0[0]), generation: 0 };
        let position =
            swarm.insert(Peer::new(name, Address { worker: 0, handle }, Source::of_hash(1)), seeds);
        assert_eq!((swarm.peer(position).peer_id, swarm.seeds(position)), (name.peer_id, seeds));
    }

    #[test]
    fn peers_are_found_whatever_came_and_went_and_changed() {
        let mut rng = fastrand::Rng::with_seed(8);
        for (bits, peers) in [(0, 60), (3, 250), (7, 250), (7, 20)] {
            let mut swarm = Swarm::default();
            let mut known = [None; 256];
            for round in 0..6000 {
                let number = rng.u8(..peers);
                let (name, seeds) = (name(number, bits), rng.bool());
                // It grows at first, then shrinks, then grows again.
                let grows = rng.usize(..10) < [8, 2, 7][round / 2000];
                match (swarm.find(&name), grows) {
                    (None, true) => {
                        insert(&mut swarm, &name, seeds);
                        known[usize::from(number)] = Some(seeds);
                    }
                    (Some(position), true) => {
                        let position = swarm.set_role(position, seeds);
                        assert_eq!(swarm.peer(position).peer_id, name.peer_id);
                        known[usize::from(number)] = Some(seeds);
                    }
                    (Some(position), false) => {
                        swarm.remove(position);
                        known[usize::from(number)] = None;
                    }
                    (None, false) => {}
                }
                assert!(swarm.index.is_some() || swarm.len() <= INDEXED.0);
                assert!(swarm.index.as_ref().is_none_or(|index| index.len() == swarm.len()));
                let checked = rng.u8(..peers);
                let found = swarm.find(&self::name(checked, bits)).map(|position| swarm.seeds(position));
                assert_eq!(found, known[usize::from(checked)]);
            }
            let seeders = known.iter().filter(|seeds| **seeds == Some(true)).count();
            let leechers = known.iter().filter(|seeds| **seeds == Some(false)).count();
            let counts = swarm.counts();
            assert_eq!((counts.seeders as usize, counts.leechers as usize), (seeders, leechers));
        }
    }

    #[test]
    fn memory_follows_the_peers() {
        let mut swarm = Swarm::default();
        for number in 0..200 {
            insert(&mut swarm, &name(number, 7), number % 2 == 0);
            assert!(swarm.peers.capacity() <= swarm.len() * 5 / 4 + 1);
        }
        for number in 0..200 {
            let position = swarm.find(&name(number, 7)).unwrap();
            swarm.remove(position);
            assert!(swarm.peers.capacity() <= (swarm.len() * 2 + 1).max(PEERS_KEPT));
            assert!(swarm.index.as_ref().is_none_or(|index| index.capacity() <= swarm.len() * 4 + 8));
        }
        assert!(swarm.index.is_none() && swarm.is_empty());
    }
}
