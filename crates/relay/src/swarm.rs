//! One swarm: its peers, in four zones.
//!
//! One peer of each source represents it, a leecher if there is one. Offers of other sources go to representatives
//! only, as long as these and the offerer's own neighbours suffice. So a source with a thousand peers receives as many
//! offers from others as a source with one. Among themselves, the peers of a source have no limit. A peer that has
//! announced more recently than the representative of its source takes its place.
//!
//! The zones are contiguous, so that a sample is a draw of positions: non-representative seeders, non-representative
//! leechers, representative seeders, and representative leechers. Most swarms only have the last two. A small swarm is
//! searched from end to end; a large one has indexes by peer id and by source.
//!
//! A peer is identified by its peer id and its connection. The first connection of this node with a peer id is found by
//! that id. All others, and the peers of other nodes, are found by the id together with the address.
//!
//! To the swarms, a peer of another node has that node as its address. Per torrent, a connection has at most four peer
//! ids.

mod receivers;

use core::ops::Range;

use shoal_base::source::{Source, swarm_share};
use shoal_base::{Counts, InfoHash, PeerId};

use crate::api::Address;
use crate::index::Index;
use crate::key::PeerKey;
use crate::pending_offer::{PENDING_OFFERS_BY_ADDRESS_MAX, PENDING_OFFERS_MAX, PendingOffers};

/// A swarm of more peers than the second number gets indexes. A swarm of fewer than the first loses them.
const INDEXED: (usize, usize) = (16, 32);

/// Maximum number of peers by which a list of peers grows or shrinks at once: 640 KiB, which the allocator moves by
/// changing page tables.
const PEERS_STEP_MAX: usize = 8192;

/// Capacity of a list of peers that is never freed.
const PEERS_RETAINED: usize = 4;

/// Maximum number of peers in the sample for the share of a source.
const SHARE_SAMPLE: usize = 128;

/// Maximum size of a swarm in which all peers are counted before one is refused for the share of its source.
const SHARE_COUNTED: usize = 4096;

/// The zones, see [`zone`].
const ZONES: usize = 4;
const SURPLUS_SEEDERS: usize = 0;
const SURPLUS_LEECHERS: usize = 1;
const SEEDERS: usize = 2;
const LEECHERS: usize = 3;

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) peer_id: PeerId,
    /// Whether it is found by its peer id and its address together, and not by its peer id alone.
    pub(crate) is_by_address: bool,
    /// Whether the tracker has already decided about counting its download. A peer that joins as a seeder has none.
    pub(crate) is_download_decided: bool,
    /// The time of its last announce.
    pub(crate) announced_s: u32,
    pub(crate) address: Address,
    pub(crate) source: Source,
    pub(crate) pending_offers: PendingOffers,
    /// The keyed hash of its peer id, or of its peer id and address.
    hash: u64,
}

const _: () = assert!(size_of::<Peer>() == 80, "as `PEER_BYTES` assumes");
const _: () = assert!(size_of::<Swarm>() == 72, "as `PEER_BYTES` assumes");

#[derive(Debug)]
pub(crate) struct Swarm {
    pub(crate) info_hash: InfoHash,
    peers: Vec<Peer>,
    /// The ends of all zones but the last.
    ends: [u32; ZONES - 1],
    completed: u32,
    /// The time of its creation. It wraps, so that a swarm may be older than the clock.
    created_s: u32,
    /// The positions by hash, if the swarm is large.
    indexes: Option<Box<Indexes>>,
}

#[derive(Debug)]
struct Indexes {
    /// All positions, by the hashes of their peers.
    peers: Index<u32>,
    /// The positions of representatives, by the hashes of their sources.
    sources: Index<u32>,
    /// Number of peers that are found by peer id and address.
    by_address: u32,
}

impl Peer {
    pub(crate) fn new(key: &PeerKey, address: Address, source: Source, is_by_address: bool) -> Self {
        Self {
            peer_id: key.peer_id,
            is_by_address,
            is_download_decided: false,
            announced_s: 0,
            address,
            source,
            pending_offers: PendingOffers::default(),
            hash: if is_by_address { key.hash_at(address) } else { key.hash },
        }
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the maximum number of its pending offers.
    pub(crate) const fn offers_max(&self) -> usize {
        if self.is_by_address { PENDING_OFFERS_BY_ADDRESS_MAX } else { PENDING_OFFERS_MAX }
    }

    /// Returns the memory of its pending offers. If the peer is found by its address, they are in a table as well,
    /// where each takes up to 36 bytes.
    pub(crate) fn offer_bytes(&self) -> u64 {
        self.pending_offers.memory_bytes() * if self.is_by_address { 4 } else { 1 }
    }
}

fn zone(seeds: bool, represents: bool) -> usize {
    2 * usize::from(represents) + usize::from(!seeds)
}

/// Returns the hash of an IPv4 address or /48.
fn site_hash(source: Source) -> u64 {
    source.site_hash().unwrap_or_else(|| source.network_hash())
}

impl Swarm {
    /// Creates a swarm without peers.
    pub(crate) fn new(info_hash: InfoHash, now_s: u32) -> Self {
        let (peers, ends) = (Vec::new(), [0; ZONES - 1]);
        Self { info_hash, peers, ends, completed: 0, created_s: now_s, indexes: None }
    }

    /// Returns the seconds since its creation, at most 68 years.
    pub(crate) fn age_s(&self, now_s: u32) -> u32 {
        // A thread whose clock is ahead may have created it.
        now_s.wrapping_sub(self.created_s).cast_signed().max(0).cast_unsigned()
    }

    pub(crate) fn set_age_s(&mut self, age_s: u32, now_s: u32) {
        self.created_s = now_s.wrapping_sub(age_s.min(i32::MAX.cast_unsigned()));
    }

    /// Makes the swarm at least this old, with at least this number of downloads, as it was in another process.
    pub(crate) fn resume(&mut self, completed: u32, age_s: u32, now_s: u32) {
        self.completed = self.completed.max(completed);
        self.set_age_s(age_s.max(self.age_s(now_s)), now_s);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |peers: usize| u32::try_from(peers).unwrap_or(u32::MAX);
        let leechers = self.range(SURPLUS_LEECHERS).len() + self.range(LEECHERS).len();
        Counts {
            seeders: count(self.peers.len() - leechers),
            leechers: count(leechers),
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
        matches!(self.zone_of(position), SURPLUS_SEEDERS | SEEDERS)
    }

    /// Returns the positions of all seeders or of all leechers.
    pub(crate) fn positions(&self, seeds: bool) -> impl Iterator<Item = usize> {
        self.range(zone(seeds, true)).chain(self.range(zone(seeds, false)))
    }

    fn zone_of(&self, position: usize) -> usize {
        self.ends.iter().filter(|end| position >= as_usize(**end)).count()
    }

    fn range(&self, zone: usize) -> Range<usize> {
        let start = if zone == 0 { 0 } else { as_usize(self.ends[zone - 1]) };
        start..self.ends.get(zone).map_or(self.peers.len(), |end| as_usize(*end))
    }

    /// Returns the position of the first representative.
    fn representatives(&self) -> usize {
        as_usize(self.ends[SURPLUS_LEECHERS])
    }

    /// Returns the position of a peer, valid until the next change.
    pub(crate) fn find(&self, key: &PeerKey, address: Address) -> Option<usize> {
        let first = if address.is_remote() { None } else { self.first(key) };
        if first.is_some_and(|position| self.peers[position].address == address) {
            return first;
        }
        if self.indexes.as_ref().is_some_and(|indexes| indexes.by_address == 0) {
            return None;
        }
        self.find_hash(key.hash_at(address), |peer| peer.address == address && peer.peer_id == key.peer_id)
    }

    /// Returns the position of the first peer of this node with this peer id.
    pub(crate) fn first(&self, key: &PeerKey) -> Option<usize> {
        self.find_hash(key.hash, |peer| !peer.is_by_address && peer.peer_id == key.peer_id)
    }

    pub(crate) fn find_hash(&self, hash: u64, is_match: impl Fn(&Peer) -> bool) -> Option<usize> {
        let is_it = |peer: &Peer| peer.hash == hash && is_match(peer);
        match &self.indexes {
            None => self.peers.iter().position(is_it),
            Some(indexes) => {
                indexes.peers.find(hash, |position| is_it(&self.peers[as_usize(position)])).map(as_usize)
            }
        }
    }

    /// Returns the position of the peer that represents a source.
    fn representative(&self, source: Source) -> Option<usize> {
        match &self.indexes {
            None => {
                (self.representatives()..self.len()).find(|&at| self.peers[at].source.is_same_site(source))
            }
            Some(indexes) => {
                let is_it = |position| self.peers[as_usize(position)].source.is_same_site(source);
                indexes.sources.find(site_hash(source), is_it).map(as_usize)
            }
        }
    }

    /// Returns whether a new peer would give its source more than a share of the swarm, in per cent. In a swarm of more
    /// than 128 peers, a random sample of 128 stands for all. A source may exceed its share by half before that is
    /// noticed almost always. In a swarm of up to 4,096 peers, all are counted before a peer is refused. In a larger
    /// swarm, a source with two thirds of its share is refused now and then.
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
            // A quarter more, up to a limit. A vector would double by default.
            self.peers.reserve_exact((position / 4 + 1).min(PEERS_STEP_MAX));
        }
        let represents = self.representative(peer.source).is_none();
        let (hash, is_by_address) = (peer.hash, peer.is_by_address);
        self.peers.push(peer);
        let is_large = self.peers.len() > INDEXED.1;
        if let Some(indexes) = &mut self.indexes {
            indexes.by_address += u32::from(is_by_address);
            indexes.peers.insert(hash, as_u32(position), |other| self.peers[as_usize(other)].hash);
        }
        let position = self.relocate(position, zone(seeds, represents));
        if self.indexes.is_some() {
            if represents {
                self.add_representative(position);
            }
        } else if is_large {
            self.build_indexes();
        }
        position
    }

    /// Removes a peer and returns it. Only later peers change their positions.
    pub(crate) fn remove(&mut self, position: usize) -> Option<Peer> {
        if position >= self.representatives() {
            self.remove_representative(position);
        }
        let position = self.relocate(position, LEECHERS);
        let last = self.peers.len() - 1;
        self.swap(position, last);
        if let Some(indexes) = &mut self.indexes {
            let hash_of = |position| self.peers[as_usize(position)].hash;
            indexes.peers.remove(self.peers[last].hash, as_u32(last), hash_of);
            indexes.by_address -= u32::from(self.peers[last].is_by_address);
        }
        let peer = self.peers.pop();
        self.shrink();
        peer
    }

    /// Makes the peer a seeder or a leecher. Returns its new position.
    pub(crate) fn set_role(&mut self, position: usize, seeds: bool) -> usize {
        self.relocate(position, zone(seeds, position >= self.representatives()))
    }

    /// Makes a peer that announces the representative of its source, in two cases: the present one has not announced
    /// since this one last did, or it is a seeder and this one is a leecher, to which seeders offer first. Returns its
    /// new position.
    pub(crate) fn represent(&mut self, position: usize) -> usize {
        if position >= self.representatives() {
            return position;
        }
        let &Peer { peer_id, hash, address, source, announced_s, .. } = &self.peers[position];
        if let Some(present) = self.representative(source) {
            let is_outranked = self.is_seeder(present) && !self.is_seeder(position);
            if !is_outranked && self.peers[present].announced_s >= announced_s {
                return position;
            }
            self.remove_representative(present);
            self.relocate(present, zone(self.is_seeder(present), false));
        }
        // It may have moved.
        let is_it = |peer: &Peer| peer.address == address && peer.peer_id == peer_id;
        let Some(position) = self.find_hash(hash, is_it) else { return position };
        let position = self.relocate(position, zone(self.is_seeder(position), true));
        self.add_representative(position);
        position
    }

    /// Makes a peer of this node the first one with its peer id.
    pub(crate) fn make_first(&mut self, position: usize, key: &PeerKey) {
        let former = self.peers[position].hash;
        (self.peers[position].hash, self.peers[position].is_by_address) = (key.hash, false);
        if let Some(indexes) = &mut self.indexes {
            let hash_of = |position| self.peers[as_usize(position)].hash;
            indexes.peers.remove(former, as_u32(position), hash_of);
            indexes.peers.insert(key.hash, as_u32(position), hash_of);
            indexes.by_address -= 1;
        }
    }

    /// Moves a peer to a zone. Returns its new position. On the way to a later zone, only later peers move.
    fn relocate(&mut self, position: usize, to: usize) -> usize {
        let (mut position, mut zone) = (position, self.zone_of(position));
        while zone < to {
            let last = as_usize(self.ends[zone]) - 1;
            self.swap(position, last);
            self.ends[zone] -= 1;
            (position, zone) = (last, zone + 1);
        }
        while zone > to {
            let first = as_usize(self.ends[zone - 1]);
            self.swap(position, first);
            self.ends[zone - 1] += 1;
            (position, zone) = (first, zone - 1);
        }
        position
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        if let Some(indexes) = &mut self.indexes {
            let entry = |position: usize| (as_u32(position), self.peers[position].hash);
            indexes.peers.swap(entry(one), entry(other));
            let entry = |position: usize| (as_u32(position), site_hash(self.peers[position].source));
            indexes.sources.swap(entry(one), entry(other));
        }
        self.peers.swap(one, other);
    }

    fn add_representative(&mut self, position: usize) {
        if let Some(indexes) = &mut self.indexes {
            let hash_of = |position| site_hash(self.peers[as_usize(position)].source);
            indexes.sources.insert(hash_of(as_u32(position)), as_u32(position), hash_of);
        }
    }

    fn remove_representative(&mut self, position: usize) {
        if let Some(indexes) = &mut self.indexes {
            let hash_of = |position| site_hash(self.peers[as_usize(position)].source);
            indexes.sources.remove(hash_of(as_u32(position)), as_u32(position), hash_of);
        }
    }

    fn build_indexes(&mut self) {
        let hash_of = |position| self.peers[as_usize(position)].hash;
        let mut peers = Index::new();
        for position in 0..as_u32(self.peers.len()) {
            peers.insert(hash_of(position), position, hash_of);
        }
        let by_address = as_u32(self.peers.iter().filter(|peer| peer.is_by_address).count());
        self.indexes = Some(Box::new(Indexes { peers, sources: Index::new(), by_address }));
        (self.representatives()..self.len()).for_each(|position| self.add_representative(position));
    }

    /// Frees memory, but retains enough that a swarm of changing size does not do so all the time.
    fn shrink(&mut self) {
        let peers = self.peers.len();
        let unused_max = (self.peers.capacity() / 2).clamp(PEERS_RETAINED / 2, 2 * PEERS_STEP_MAX);
        if self.peers.capacity() > PEERS_RETAINED && self.peers.capacity() - peers > unused_max {
            self.peers.shrink_to(peers + (peers / 4).min(PEERS_STEP_MAX));
        }
        if peers < INDEXED.0 {
            self.indexes = None;
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
    use shoal_base::transport::stream::Handle;

    use super::*;

    fn key(number: u8, bits: u32) -> PeerKey {
        // The hash has few bits, so that peers share it.
        PeerKey { peer_id: PeerId([number; 20]), hash: (u64::from(number) % (1 << bits)) << 57 }
    }

    fn at(connection: u32) -> Address {
        Address { worker: 0, handle: Handle { index: connection, generation: 0 } }
    }

    fn swarm() -> Swarm {
        Swarm::new(InfoHash([1; 20]), 0)
    }

    fn insert(swarm: &mut Swarm, key: &PeerKey, connection: u32, source: u32, seeds: bool) {
        let is_by_address = swarm.first(key).is_some();
        let peer = Peer::new(key, at(connection), Source::of_hash(source), is_by_address);
        let position = swarm.insert(peer, seeds);
        let Peer { peer_id, address, .. } = swarm.peer(position);
        assert_eq!((*peer_id, *address, swarm.is_seeder(position)), (key.peer_id, at(connection), seeds));
    }

    /// Checks that each source has one representative at most, and that the zones and the indexes agree.
    fn check(swarm: &Swarm) {
        let representatives = swarm.representatives();
        let mut sources: Vec<u32> =
            (representatives..swarm.len()).map(|at| swarm.peer(at).source.network()).collect();
        let of_zones = sources.len();
        sources.sort_unstable();
        sources.dedup();
        assert_eq!(sources.len(), of_zones, "one of each source");
        assert!(swarm.ends.is_sorted() && representatives <= swarm.len());
        if let Some(Indexes { peers, sources, by_address }) = swarm.indexes.as_deref() {
            assert_eq!((peers.len(), sources.len()), (swarm.len(), of_zones));
            let counted = swarm.peers.iter().filter(|peer| peer.is_by_address).count();
            assert_eq!(*by_address as usize, counted);
        } else {
            assert!(swarm.len() <= INDEXED.1);
        }
        for position in representatives..swarm.len() {
            assert_eq!(swarm.representative(swarm.peer(position).source), Some(position));
        }
    }

    #[test]
    fn peers_are_found_after_any_changes() {
        let mut rng = fastrand::Rng::with_seed(8);
        for (bits, peers, sources) in [(0, 60, 9), (3, 250, 9), (7, 250, 300), (7, 20, 3)] {
            let mut swarm = swarm();
            // Each peer id on three connections.
            let mut known = std::collections::BTreeMap::new();
            for round in 0..6000 {
                let (number, connection) = (rng.u8(..peers), rng.u32(..3));
                let (key, seeds) = (key(number, bits), rng.bool());
                let identity = (number, connection);
                // It grows at first, then shrinks, then grows again.
                let grows = rng.usize(..10) < [8, 2, 7][round / 2000];
                match (swarm.find(&key, at(connection)), grows) {
                    (None, true) => {
                        let source = (u32::from(number) + connection) % sources;
                        insert(&mut swarm, &key, connection, source, seeds);
                        known.insert(identity, seeds);
                    }
                    (Some(position), true) => {
                        if swarm.peer(position).is_by_address && swarm.first(&key).is_none() {
                            swarm.make_first(position, &key);
                        }
                        let position = swarm.represent(position);
                        let position = swarm.set_role(position, seeds);
                        swarm.peer_mut(position).announced_s = u32::try_from(round).unwrap();
                        assert_eq!(swarm.peer(position).peer_id, key.peer_id);
                        assert_eq!(swarm.peer(position).address, at(connection));
                        known.insert(identity, seeds);
                    }
                    (Some(position), false) => {
                        swarm.remove(position);
                        known.remove(&identity);
                    }
                    (None, false) => {}
                }
                if round % 16 == 0 {
                    check(&swarm);
                }
                let checked = (rng.u8(..peers), rng.u32(..3));
                let found = swarm.find(&self::key(checked.0, bits), at(checked.1));
                assert_eq!(found.map(|position| swarm.is_seeder(position)), known.get(&checked).copied());
            }
            let seeders = known.values().filter(|seeds| **seeds).count();
            let counts = swarm.counts();
            assert_eq!((counts.seeders as usize, counts.leechers as usize), (seeders, known.len() - seeders));
        }
    }

    #[test]
    fn memory_follows_the_peers() {
        let mut swarm = swarm();
        for number in 0..200 {
            insert(&mut swarm, &key(number, 7), number.into(), number.into(), number % 2 == 0);
            assert!(swarm.peers.capacity() <= swarm.len() * 5 / 4 + 1);
        }
        for number in 0..200 {
            let position = swarm.find(&key(number, 7), at(number.into())).unwrap();
            swarm.remove(position);
            assert!(swarm.peers.capacity() <= (swarm.len() * 2 + 1).max(PEERS_RETAINED));
            let indexes = swarm.indexes.as_deref();
            let capacity =
                indexes.map_or(0, |indexes| indexes.peers.capacity().max(indexes.sources.capacity()));
            assert!(capacity <= swarm.len() * 4 + 8);
        }
        assert!(swarm.indexes.is_none() && swarm.is_empty());
    }

    #[test]
    fn a_share_is_exact_in_small_swarms_and_estimated_in_large_ones() {
        let (one, mut rng) = (Source::of_hash(7), fastrand::Rng::with_seed(3));
        let mut exceeded = |len: u32, of_one: u32| {
            let mut swarm = swarm();
            for number in 0..len {
                let mut peer_id = PeerId([0; 20]);
                peer_id.0[..4].copy_from_slice(&number.to_be_bytes());
                let key = PeerKey { peer_id, hash: u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) };
                let source = if number < of_one { one } else { Source::of_hash(1000 + number) };
                swarm.insert(Peer::new(&key, at(number), source, false), false);
            }
            (0..100).filter(|_| swarm.exceeds_share(one, 10, &mut rng)).count()
        };
        assert_eq!((exceeded(10, 3), exceeded(10, 4)), (0, 100), "four in any case");
        assert_eq!((exceeded(100, 9), exceeded(100, 10)), (0, 100));
        assert_eq!((exceeded(1000, 20), exceeded(1000, 250)), (0, 100));
    }

    #[test]
    fn a_source_has_one_representative_which_announces() {
        let mut swarm = swarm();
        let find = |swarm: &Swarm, number| swarm.find(&key(number, 7), at(number.into())).unwrap();
        let represents = |swarm: &Swarm, number| find(swarm, number) >= swarm.representatives();
        (0..3).for_each(|number| insert(&mut swarm, &key(number, 7), number.into(), 5, number == 1));
        insert(&mut swarm, &key(9, 7), 9, 6, true);
        assert_eq!([0, 1, 2, 9].map(|number| represents(&swarm, number)), [true, false, false, true]);
        // All announce in turn: none replaces the first one.
        for (now_s, number) in [(10, 0), (11, 1), (12, 2), (20, 0), (21, 1)] {
            let position = find(&swarm, number);
            let position = swarm.represent(position);
            swarm.peer_mut(position).announced_s = now_s;
        }
        assert!(represents(&swarm, 0));
        // The first one has been silent since the second one last announced.
        let position = find(&swarm, 1);
        assert!(swarm.represent(position) >= swarm.representatives());
        assert_eq!([0, 1, 2, 9].map(|number| represents(&swarm, number)), [false, true, false, true]);
        check(&swarm);
        // It leaves, and the next one that announces takes its place.
        let position = find(&swarm, 1);
        swarm.remove(position);
        let position = find(&swarm, 2);
        swarm.represent(position);
        assert_eq!([0, 2, 9].map(|number| represents(&swarm, number)), [false, true, true]);
        check(&swarm);
    }
}
