//! One swarm: its peers, leechers before seeders.
//!
//! In this order, the possible receivers of a seeder's offers are the front of the list, and a sample is a draw of
//! positions. A small swarm is searched from end to end; a large one has an index by peer id.

use core::num::NonZeroU32;

use shoal_source::{Source, swarm_share};
use shoal_types::{Counts, PeerId};

use crate::api::{Address, OfferTarget};
use crate::index::Index;
use crate::key::PeerKey;
use crate::pending_offer::PendingOffers;

/// A swarm of more peers than the second number gets an index; one of fewer than the first loses it.
const INDEXED: (usize, usize) = (16, 32);

/// Maximum number of peers by which a list of peers grows or shrinks at once: 640 KiB, which the allocator moves by
/// changing page tables.
const PEERS_STEP_MAX: usize = 8192;

/// Capacity of a list of peers that is never freed.
const PEERS_RETAINED: usize = 4;

/// Maximum number of peers that are looked at for the share of a source.
const SHARE_SAMPLE: usize = 128;

/// Maximum number of peers of a swarm that are all counted before one is refused for the share of its source.
const SHARE_COUNTED: usize = 4096;

/// A connected peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) peer_id: PeerId,
    /// Whether it has been decided if its download is counted. One that joins as a seeder has none.
    pub(crate) is_download_decided: bool,
    /// The time of its last announce.
    pub(crate) announced_s: u32,
    pub(crate) address: Address,
    /// The source under which it is counted.
    pub(crate) source: Source,
    /// The time at which its connection was challenged, because another one announced the same peer id. `None` if the
    /// connection has shown since that it is alive.
    pub(crate) challenged_s: Option<NonZeroU32>,
    pub(crate) pending_offers: PendingOffers,
    /// The keyed hash of the peer id.
    hash: u64,
}

const _: () = assert!(size_of::<Peer>() == 80, "as `PEER_BYTES` assumes");
const _: () = assert!(size_of::<Swarm>() == 48, "as `PEER_BYTES` assumes");

/// The peers of one torrent.
#[derive(Debug, Default)]
pub(crate) struct Swarm {
    peers: Vec<Peer>,
    leechers: u32,
    /// Peers that are connected to other nodes.
    remote: u32,
    completed: u32,
    /// The time of its creation. It wraps, so that a swarm may be older than the clock.
    created_s: u32,
    /// The positions by peer id, if the swarm is large.
    index: Option<Box<Index>>,
}

impl Peer {
    pub(crate) fn new(key: &PeerKey, address: Address, source: Source) -> Self {
        let PeerKey { peer_id, hash } = *key;
        Self {
            peer_id,
            is_download_decided: false,
            announced_s: 0,
            address,
            source,
            challenged_s: None,
            pending_offers: PendingOffers::default(),
            hash,
        }
    }
}

impl Swarm {
    /// Creates a swarm without peers.
    pub(crate) fn new(now_s: u32) -> Self {
        Self { created_s: now_s, ..Self::default() }
    }

    /// Returns the seconds since its creation, at most 68 years.
    pub(crate) fn age_s(&self, now_s: u32) -> u32 {
        // A thread whose clock is ahead may have created it.
        now_s.wrapping_sub(self.created_s).cast_signed().max(0).cast_unsigned()
    }

    /// Makes the swarm as old as this.
    pub(crate) fn set_age_s(&mut self, age_s: u32, now_s: u32) {
        self.created_s = now_s.wrapping_sub(age_s.min(i32::MAX.cast_unsigned()));
    }

    /// Makes the swarm at least as old as this, and counts at least this number of downloads, as it did in another process.
    pub(crate) fn resume(&mut self, completed: u32, age_s: u32, now_s: u32) {
        self.completed = self.completed.max(completed);
        self.set_age_s(age_s.max(self.age_s(now_s)), now_s);
    }

    /// Returns whether some peers are connected to other nodes.
    pub(crate) const fn has_remote(&self) -> bool {
        self.remote > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |peers: usize| u32::try_from(peers).unwrap_or(u32::MAX);
        Counts {
            seeders: count(self.peers.len() - self.leechers()),
            leechers: self.leechers,
            completed: self.completed,
        }
    }

    /// Counts a download of the peer if `is_counted` returns true, and returns whether it did. This is decided once for
    /// each peer.
    pub(crate) fn complete(&mut self, position: usize, is_counted: impl FnOnce() -> bool) -> bool {
        let peer = &mut self.peers[position];
        let counts = !core::mem::replace(&mut peer.is_download_decided, true) && is_counted();
        self.completed = self.completed.saturating_add(u32::from(counts));
        counts
    }

    pub(crate) fn peer(&self, position: usize) -> &Peer {
        &self.peers[position]
    }

    pub(crate) fn peer_mut(&mut self, position: usize) -> &mut Peer {
        &mut self.peers[position]
    }

    pub(crate) fn is_seeder(&self, position: usize) -> bool {
        position >= self.leechers()
    }

    /// Returns the number of leechers, which is the position of the first seeder.
    fn leechers(&self) -> usize {
        as_usize(self.leechers)
    }

    /// Gives a peer to another connection.
    pub(crate) fn transfer(&mut self, position: usize, address: Address, source: Source) {
        let peer = &mut self.peers[position];
        self.remote = self.remote + u32::from(address.is_remote()) - u32::from(peer.address.is_remote());
        (peer.address, peer.source, peer.challenged_s) = (address, source, None);
    }

    /// Returns the position of a peer, which is valid until the next change.
    pub(crate) fn find(&self, key: &PeerKey) -> Option<usize> {
        let is_it = |peer: &Peer| peer.hash == key.hash && peer.peer_id == key.peer_id;
        match &self.index {
            None => self.peers.iter().position(is_it),
            Some(index) => {
                index.find(key.hash, |position| is_it(&self.peers[as_usize(position)])).map(as_usize)
            }
        }
    }

    /// Returns whether a new peer would give its source more than a share of the swarm, in per cent. In a swarm of more than
    /// 128 peers, as many that are drawn at random stand for all, so the share of a source may be
    /// exceeded by half before it is noticed almost always. In one of up to 4,096 peers, all are counted before a peer is
    /// refused; in a larger one, a source with two thirds of its share is refused now and then.
    pub(crate) fn exceeds_share(&self, source: Source, per_cent: u32, rng: &mut fastrand::Rng) -> bool {
        let len = self.peers.len();
        let allowed = swarm_share(len, per_cent);
        let is_of_source = |peer: &Peer| peer.source.is_same_site(source);
        if allowed > len {
            return false;
        }
        if len > SHARE_SAMPLE {
            let drawn = (0..SHARE_SAMPLE).filter(|_| is_of_source(&self.peers[rng.usize(..len)])).count();
            if drawn * len / SHARE_SAMPLE < allowed || len > SHARE_COUNTED {
                return drawn * len / SHARE_SAMPLE >= allowed;
            }
        }
        self.peers.iter().filter(|peer| is_of_source(peer)).count() >= allowed
    }

    /// Adds a peer that is not present. Returns its position.
    pub(crate) fn insert(&mut self, peer: Peer, seeds: bool) -> usize {
        let position = self.peers.len();
        if position == self.peers.capacity() {
            // A quarter more, up to a limit. By default, a vector would double.
            self.peers.reserve_exact((position / 4 + 1).min(PEERS_STEP_MAX));
        }
        let hash = peer.hash;
        self.remote += u32::from(peer.address.is_remote());
        self.peers.push(peer);
        match &mut self.index {
            Some(index) => {
                index.insert(hash, as_u32(position), |other| self.peers[as_usize(other)].hash);
            }
            None if self.peers.len() > INDEXED.1 => self.build_index(),
            None => {}
        }
        if seeds { position } else { self.make_leecher(position) }
    }

    /// Removes a peer and returns it. A peer from behind it takes its position, unless it was the last.
    pub(crate) fn remove(&mut self, position: usize) -> Option<Peer> {
        let position = if self.is_seeder(position) { position } else { self.make_seeder(position) };
        let last = self.peers.len() - 1;
        self.swap(position, last);
        if let Some(index) = &mut self.index {
            let hash_of = |position| self.peers[as_usize(position)].hash;
            index.remove(self.peers[last].hash, as_u32(last), hash_of);
        }
        let peer = self.peers.pop();
        self.remote -= u32::from(peer.as_ref().is_some_and(|peer| peer.address.is_remote()));
        self.shrink();
        peer
    }

    /// Makes the peer a seeder or a leecher. Returns its new position.
    pub(crate) fn set_role(&mut self, position: usize, seeds: bool) -> usize {
        match (self.is_seeder(position), seeds) {
            (false, true) => self.make_seeder(position),
            (true, false) => self.make_leecher(position),
            (true, true) | (false, false) => position,
        }
    }

    /// Draws up to `wanted` receivers for the offers of the peer at `own`: other peers, each at most once and all with
    /// the same probability. The offers of a seeder go to leechers only. If some peers are connected to other nodes, those of
    /// this node are preferred: twice as many are drawn, and these go first.
    pub(crate) fn draw(
        &self,
        own: usize,
        wanted: usize,
        rng: &mut fastrand::Rng,
        targets: &mut Vec<OfferTarget>,
    ) {
        if self.remote == 0 {
            return self.draw_any(own, wanted, rng, targets);
        }
        self.draw_any(own, 2 * wanted, rng, targets);
        // Those that are all there are come in their order.
        rng.shuffle(targets);
        targets.sort_by_key(|target| target.address.is_remote());
        targets.truncate(wanted);
    }

    /// Draws up to `wanted` receivers, wherever they are connected.
    fn draw_any(&self, own: usize, wanted: usize, rng: &mut fastrand::Rng, targets: &mut Vec<OfferTarget>) {
        let seeds = self.is_seeder(own);
        let others = if seeds { self.leechers() } else { self.peers.len() - 1 };
        // Converts a number among the others to a position: a leecher is left out, a seeder is behind all its receivers.
        let position = |drawn: usize| drawn + usize::from(drawn >= own);
        let target = |position: usize| OfferTarget {
            address: self.peers[position].address,
            peer_id: self.peers[position].peer_id,
            position: as_u32(position),
        };
        if wanted >= others {
            targets.extend((0..others).map(|drawn| target(position(drawn))));
            return;
        }
        // Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", 1987): one draw for each, and none is rejected.
        for last in others - wanted..others {
            let drawn = position(rng.usize(0..=last));
            let is_new = targets.iter().all(|target| target.position as usize != drawn);
            targets.push(target(if is_new { drawn } else { position(last) }));
        }
    }

    /// Moves the seeder to the end of the leechers.
    fn make_leecher(&mut self, position: usize) -> usize {
        self.swap(position, self.leechers());
        self.leechers += 1;
        self.leechers() - 1
    }

    /// Moves the leecher to the front of the seeders.
    fn make_seeder(&mut self, position: usize) -> usize {
        self.leechers -= 1;
        self.swap(position, self.leechers());
        self.leechers()
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        if let Some(index) = &mut self.index {
            let entry = |position: usize| (as_u32(position), self.peers[position].hash);
            index.swap(entry(one), entry(other));
        }
        self.peers.swap(one, other);
    }

    fn build_index(&mut self) {
        let hash_of = |position| self.peers[as_usize(position)].hash;
        let mut index = Index::new();
        for position in 0..as_u32(self.peers.len()) {
            index.insert(hash_of(position), position, hash_of);
        }
        self.index = Some(Box::new(index));
    }

    /// Frees memory that is no longer needed, but retains enough that a swarm of changing size does not do so all the
    /// time.
    fn shrink(&mut self) {
        let peers = self.peers.len();
        let unused_max = (self.peers.capacity() / 2).clamp(PEERS_RETAINED / 2, 2 * PEERS_STEP_MAX);
        if self.peers.capacity() > PEERS_RETAINED && self.peers.capacity() - peers > unused_max {
            self.peers.shrink_to(peers + (peers / 4).min(PEERS_STEP_MAX));
        }
        if peers < INDEXED.0 {
            self.index = None;
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
    use shoal_transport::stream::Handle;

    use super::*;

    fn key(number: u8, bits: u32) -> PeerKey {
        // The hash has few bits, so that peers share it.
        PeerKey { peer_id: PeerId([number; 20]), hash: (u64::from(number) % (1 << bits)) << 57 }
    }

    fn insert(swarm: &mut Swarm, key: &PeerKey, seeds: bool) {
        let handle = Handle { index: u32::from(key.peer_id.0[0]), generation: 0 };
        let position = swarm.insert(Peer::new(key, Address { worker: 0, handle }, Source::of_hash(1)), seeds);
        assert_eq!((swarm.peer(position).peer_id, swarm.is_seeder(position)), (key.peer_id, seeds));
    }

    #[test]
    fn peers_are_found_after_any_changes() {
        let mut rng = fastrand::Rng::with_seed(8);
        for (bits, peers) in [(0, 60), (3, 250), (7, 250), (7, 20)] {
            let mut swarm = Swarm::default();
            let mut known = [None; 256];
            for round in 0..6000 {
                let number = rng.u8(..peers);
                let (key, seeds) = (key(number, bits), rng.bool());
                // It grows at first, then shrinks, then grows again.
                let grows = rng.usize(..10) < [8, 2, 7][round / 2000];
                match (swarm.find(&key), grows) {
                    (None, true) => {
                        insert(&mut swarm, &key, seeds);
                        known[usize::from(number)] = Some(seeds);
                    }
                    (Some(position), true) => {
                        let position = swarm.set_role(position, seeds);
                        assert_eq!(swarm.peer(position).peer_id, key.peer_id);
                        known[usize::from(number)] = Some(seeds);
                    }
                    (Some(position), false) => {
                        swarm.remove(position);
                        known[usize::from(number)] = None;
                    }
                    (None, false) => {}
                }
                assert!(swarm.index.is_some() || swarm.len() <= INDEXED.1);
                assert!(swarm.index.as_ref().is_none_or(|index| index.len() == swarm.len()));
                let checked = rng.u8(..peers);
                let found = swarm.find(&self::key(checked, bits)).map(|position| swarm.is_seeder(position));
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
            insert(&mut swarm, &key(number, 7), number % 2 == 0);
            assert!(swarm.peers.capacity() <= swarm.len() * 5 / 4 + 1);
        }
        for number in 0..200 {
            let position = swarm.find(&key(number, 7)).unwrap();
            swarm.remove(position);
            assert!(swarm.peers.capacity() <= (swarm.len() * 2 + 1).max(PEERS_RETAINED));
            assert!(swarm.index.as_ref().is_none_or(|index| index.capacity() <= swarm.len() * 4 + 8));
        }
        assert!(swarm.index.is_none() && swarm.is_empty());
    }

    #[test]
    fn a_share_is_exact_in_small_swarms_and_estimated_in_large_ones() {
        let (one, mut rng) = (Source::of_hash(7), fastrand::Rng::with_seed(3));
        let mut exceeded = |len: u32, of_one: u32| {
            let mut swarm = Swarm::default();
            for number in 0..len {
                let mut peer_id = PeerId([0; 20]);
                peer_id.0[..4].copy_from_slice(&number.to_be_bytes());
                let key = PeerKey { peer_id, hash: u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) };
                let source = if number < of_one { one } else { Source::of_hash(1000 + number) };
                let handle = Handle { index: number, generation: 0 };
                swarm.insert(Peer::new(&key, Address { worker: 0, handle }, source), false);
            }
            (0..100).filter(|_| swarm.exceeds_share(one, 10, &mut rng)).count()
        };
        assert_eq!((exceeded(10, 3), exceeded(10, 4)), (0, 100), "four in any case");
        assert_eq!((exceeded(100, 9), exceeded(100, 10)), (0, 100));
        assert_eq!((exceeded(1000, 20), exceeded(1000, 250)), (0, 100));
    }
}
