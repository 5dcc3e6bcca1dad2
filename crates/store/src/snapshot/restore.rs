//! Restores swarms of a snapshot into a store.
//!
//! They come as [`Export`](super::Export) has left them, in any order and from several threads. No limit of a source
//! applies, since the peers were admitted before; the ceiling of memory does.
//!
//! A swarm that fits in a block is built at once, in its final form. Tables get their size in advance, since
//! step-by-step growth places each entry ten times. With the keys of the last run, swarms come in the order of the
//! tables, so that their lines are in the cache (`bench-runs/ways-tried.md` has figures).

use shoal_base::source::Networks;
use shoal_base::{InfoHash, PeerV4, PeerV6};
use zerocopy::FromBytes;

use super::{AGE_TICKS, COUNTED, SwarmPart, SwarmSet};
use crate::age::AgeStamp;
use crate::family::Family;
use crate::holding::networks_among;
use crate::shard::Shard;
use crate::stamp::{Stamp, Tick, Ticks};
use crate::store::Store;
use crate::swarm::Arrival;
use crate::swarm::line::{Form, SwarmRow};
use crate::swarm::peer_line::PeerEntry;
use crate::swarm::small::{self, SmallMut};
use crate::swarms::Swarms;
use crate::{Place, PrivateNetwork};

/// Number of swarms whose cache misses overlap.
pub(super) const PREFETCHED: usize = 32;

/// Converts the ages of a snapshot to the present.
#[derive(Clone, Debug)]
pub struct Ages {
    /// For each age in the snapshot's ticks, the age in the store's ticks, or `None` if the peer is overdue.
    ticks: Box<[Option<u8>; 128]>,
    /// The time since the export.
    elapsed_s: u32,
}

impl Ages {
    /// Converts ages that a store with the first timeout exported `elapsed_s` ago, for a store with the second, both in
    /// seconds.
    pub fn new(from_timeout_s: u32, to_timeout_s: u32, elapsed_s: u32) -> Self {
        let (from, to) = (Ticks::new(from_timeout_s), Ticks::new(to_timeout_s));
        let ticks = core::array::from_fn(|ticks| {
            let age_s = u64::from(from.tick_s()) * ticks as u64 + u64::from(elapsed_s);
            let age = u8::try_from(age_s / u64::from(to.tick_s())).ok()?;
            (age_s <= u64::from(to_timeout_s) && age < 128).then_some(age)
        });
        Self { ticks: Box::new(ticks), elapsed_s }
    }

    pub(super) const fn elapsed_s(&self) -> u32 {
        self.elapsed_s
    }

    /// Returns the stamp of a peer with this age, unless it is overdue.
    fn stamp(&self, age: u8, now: Tick) -> Option<Stamp> {
        let ticks = self.ticks[usize::from(age & AGE_TICKS)]?;
        Some(Stamp::new(now.before(ticks), age & COUNTED != 0))
    }
}

/// Numbers of peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Peers that are in the store now.
    pub peers: u64,
    /// Peers that are left out, because they are overdue.
    pub overdue: u64,
    /// Peers that are left out, because memory is short.
    pub refused: u64,
    /// Torrents without peers whose completed downloads are retained.
    pub retained: u64,
}

impl core::ops::AddAssign for Restored {
    fn add_assign(&mut self, other: Self) {
        self.peers += other.peers;
        self.overdue += other.overdue;
        self.refused += other.refused;
        self.retained += other.retained;
    }
}

/// The peers of a part that are not overdue, seeders first.
#[derive(Debug)]
pub(super) struct Entries<P> {
    pub(super) entries: Vec<PeerEntry<P>>,
    pub(super) seeders: usize,
}

impl<P: Family> Entries<P> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), seeders: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the peers from `first` on, and the number of seeders among them.
    pub(super) fn from(&self, first: usize) -> (&[PeerEntry<P>], usize) {
        (&self.entries[first..], self.seeders.saturating_sub(first))
    }

    /// Replaces the peers by those of a part. Returns how many were left out.
    pub(super) fn read(&mut self, part: &SwarmPart<'_>, ages: &Ages, now: Tick) -> usize {
        self.entries.clear();
        self.seeders = 0;
        let peers = <[P]>::ref_from_bytes(part.peers).unwrap_or_default();
        for (index, (peer, age)) in peers.iter().zip(part.ages).enumerate() {
            if let Some(stamp) = ages.stamp(*age, now) {
                self.entries.push(PeerEntry { peer: *peer, stamp });
                if index < part.seeders {
                    self.seeders = self.entries.len();
                }
            }
        }
        peers.len() - self.entries.len()
    }
}

impl Store {
    /// Returns the number of swarms of each set, in the order of [`SwarmSet::ALL`].
    pub fn swarm_counts(&self) -> [u64; SwarmSet::ALL.len()] {
        let [private_v4, private_v6] = self.private.totals();
        [self.v4.totals(), self.v6.totals(), private_v4, private_v6].map(|totals| totals.swarms)
    }

    /// Makes room for this many more swarms of a set, so that they come in faster. Does nothing in shards that have
    /// swarms.
    pub fn reserve(&self, set: SwarmSet, swarms: u64) {
        match set {
            SwarmSet::V4 => self.v4.reserve(swarms),
            SwarmSet::V6 => self.v6.reserve(swarms),
            SwarmSet::PrivateV4 => self.private.v4.reserve(swarms),
            SwarmSet::PrivateV6 => self.private.v6.reserve(swarms),
        }
    }

    /// Returns the identity of a torrent's swarm in a private network, as in [`SwarmPart::id`].
    pub fn private_id(&self, info_hash: &InfoHash, network: PrivateNetwork) -> InfoHash {
        self.private.locate(info_hash, network).id
    }

    /// Returns the candidates for the info hash of a private network's part, if it comes from a store with the same
    /// keys.
    pub fn unmask(&self, id: &InfoHash) -> [InfoHash; PrivateNetwork::ALL.len()] {
        self.private.unmask(id)
    }

    /// Adds swarms of a set, or parts of swarms, before there is traffic. A peer that is already in the store gets the
    /// state of the part.
    pub fn restore(&self, set: SwarmSet, parts: &[SwarmPart<'_>], ages: &Ages, now_s: u32) -> Restored {
        match set {
            SwarmSet::V4 => restore::<PeerV4>(&self.v4, parts, ages, now_s),
            SwarmSet::V6 => restore::<PeerV6>(&self.v6, parts, ages, now_s),
            SwarmSet::PrivateV4 => restore::<PeerV4>(&self.private.v4, parts, ages, now_s),
            SwarmSet::PrivateV6 => restore::<PeerV6>(&self.private.v6, parts, ages, now_s),
        }
    }
}

fn restore<P: Family>(swarms: &Swarms<P>, parts: &[SwarmPart<'_>], ages: &Ages, now_s: u32) -> Restored {
    let mut restored = Restored::default();
    let mut entries = Entries::new();
    let mut places = Vec::with_capacity(PREFETCHED);
    for parts in parts.chunks(PREFETCHED) {
        places.clear();
        places.extend(parts.iter().map(|part| swarms.locate(&part.id)));
        places.iter().for_each(|place| swarms.prefetch_swarm(place));
        // Swarms of one shard usually follow each other, so that one lock serves several.
        let mut first = 0;
        for run in places.chunk_by(|one, other| one.shard() == other.shard()) {
            let mut locked = swarms.lock(run[0].shard());
            let shard = locked.shard_mut();
            let now = shard.ticks.at(now_s);
            for (part, place) in parts[first..].iter().zip(run) {
                let overdue = entries.read(part, ages, now);
                let age_s = part.age_s.saturating_add(ages.elapsed_s);
                let age = shard.ages.stamp_of_age(age_s, now_s);
                let peers = shard.restore(place, age, &entries);
                let emptied_s = if part.ages.is_empty() { age_s } else { ages.elapsed_s };
                let is_retained = shard.restore_completed(place, part.completed, emptied_s, now_s);
                restored += Restored {
                    peers: peers as u64,
                    overdue: overdue as u64,
                    refused: (entries.entries.len() - peers) as u64,
                    retained: is_retained.into(),
                };
            }
            first += run.len();
        }
    }
    restored
}

impl<P: Family> Shard<P> {
    /// Adds the peers of a swarm. Returns how many of them the swarm now has.
    fn restore(&mut self, place: &Place, age: AgeStamp, peers: &Entries<P>) -> usize {
        self.is_exempt = true;
        let mut count = 0;
        let mut rest = peers.entries.as_slice();
        if self.search(place).is_none() {
            count = self.restore_swarm(place, age, peers.from(0));
            rest = &rest[count..];
        }
        for (index, entry) in (count..).zip(rest) {
            count += usize::from(self.restore_peer(place, entry, index < peers.seeders));
        }
        self.is_exempt = false;
        count
    }

    /// Adds completed downloads to a swarm, or retains them if the torrent has had no peer for `emptied_s`. Returns
    /// whether they are retained.
    fn restore_completed(&mut self, place: &Place, completed: u32, emptied_s: u32, now_s: u32) -> bool {
        if completed == 0 {
            return false;
        }
        let id = &place.id;
        if let Some((at, _)) = self.search(place) {
            self.add_downloads(at, id, completed);
            return false;
        }
        let before = self.retained.take(&mut self.memory, &self.key, place.hash, id);
        let len = self.retained.table.len();
        self.retain(*id, completed.saturating_add(before), emptied_s, now_s);
        self.retained.table.len() > len
    }

    /// Creates a swarm with as many of its first peers as a small swarm holds, seeders first. Returns their number.
    pub(super) fn restore_swarm(
        &mut self,
        place: &Place,
        age: AgeStamp,
        (entries, all_seeders): (&[PeerEntry<P>], usize),
    ) -> usize {
        let entries = &entries[..entries.len().min(small::peers_max::<P>())];
        let count = entries.len();
        let Some((first, others)) = entries.split_first() else { return 0 };
        if !self.memory.has_room_for_swarm() {
            return 0;
        }
        let at = self.insert_single(place, 0, (first, all_seeders > 0), Networks::ALL, age);
        let Some(at) = at else { return 0 };
        self.return_retained(at, place);
        let class = small::class_for::<P>(count).filter(|_| !others.is_empty() && self.memory.has_room());
        let Some(class) = class else { return 1 };
        let block = self.memory.take_block(class);
        let mut small = SmallMut::edit(self.memory.block_mut(block, class));
        for (index, entry) in entries.iter().enumerate() {
            small.push(entry, index < all_seeders);
        }
        let is_skewed = self.source_limit.is_some() && small.into_small().is_skewed();
        self.swarms
            .line_mut(&mut self.memory, at)
            .set_form(at.slot(), &Form::Small { block, class, is_skewed });
        for (index, entry) in (1..).zip(others) {
            self.pressure.add(&entry.peer);
            if self.pressure.counts_torrents() {
                let before = entries[..index].iter().map(|entry| &entry.peer);
                let new = Networks::ALL.without(networks_among(&entry.peer, before));
                self.pressure.add_torrent(&entry.peer, new);
            }
        }
        let seeders = others.len().min(all_seeders.saturating_sub(1));
        self.tally.seeders += seeders as u64;
        self.tally.leechers += (others.len() - seeders) as u64;
        count
    }

    /// Adds a peer to a swarm, if the swarm exists. Returns whether the swarm now has the peer.
    fn restore_peer(&mut self, place: &Place, entry: &PeerEntry<P>, seeds: bool) -> bool {
        let Some((at, line)) = self.search(place) else { return false };
        let form = line.form(at.slot());
        let before = self.roles(&form);
        let Ok(outcome) = self.arrive(&form, &Arrival::restored(entry, seeds)) else { return false };
        if let Some(change) = outcome.change {
            // An arriving peer leaves no swarm empty.
            self.take_note(at, &change, before, &entry.peer, 0);
        }
        true
    }
}
