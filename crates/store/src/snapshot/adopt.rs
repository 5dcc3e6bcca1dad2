//! Merges swarms of another store into one that is in use.
//!
//! The other store may know a peer better or worse. A peer here takes the other store's role and time only if that
//! store has surely seen a later announce, beyond any rounding. No peer is removed. The count of downloads becomes the
//! larger of the two, since both stores have counted the same downloads, as far as each knew them.
//!
//! Limits of sources do not apply, as in a restore, but the ceiling of memory does.
//!
//! Ages count as up to two ticks older than they are. The mark of a counted download comes along, so that no node
//! counts it again.

use shoal_base::{PeerV4, PeerV6};

use super::restore::{Ages, Entries, PREFETCHED};
use super::{SwarmPart, SwarmSet};
use crate::Place;
use crate::age::AgeStamp;
use crate::family::Family;
use crate::shard::Shard;
use crate::stamp::{Stamp, Tick, Ticks};
use crate::store::Store;
use crate::swarm::Arrival;
use crate::swarm::line::{Form, SwarmRow};
use crate::swarm::peer_line::PeerEntry;
use crate::swarm::small::Small;
use crate::swarms::Swarms;

/// Maximum number of peers that are adopted under one lock, beyond the first ones of a new swarm.
const PEERS_PER_LOCK: usize = 64;

/// Maximum time in seconds for which a part travels between stores.
const TRANSIT_S: u32 = 10;

/// Numbers of peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Peers that were new here.
    pub added: u64,
    /// Peers that have announced later at the other store, and now have its role and time.
    pub renewed: u64,
    /// Peers that stay unchanged, because they have announced here as late.
    pub known: u64,
    /// Peers that are left out, because they are overdue.
    pub overdue: u64,
    /// Peers that are left out, because memory is short.
    pub refused: u64,
}

impl core::ops::AddAssign for Adopted {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.renewed += other.renewed;
        self.known += other.known;
        self.overdue += other.overdue;
        self.refused += other.refused;
    }
}

impl Ages {
    /// Converts ages that a store in use with the first timeout has just exported, for a store with the second, both in
    /// seconds. A peer never seems to have announced later than it did, but up to two 64ths of the timeout earlier.
    pub fn of_other_store(from_timeout_s: u32, to_timeout_s: u32) -> Self {
        // An age is rounded down twice: in the export, and when it becomes a stamp.
        let rounding_s = Ticks::new(from_timeout_s).tick_s() + Ticks::new(to_timeout_s).tick_s();
        Self::new(from_timeout_s, to_timeout_s, rounding_s.saturating_add(TRANSIT_S))
    }
}

impl Store {
    /// Merges another store's swarms of a set, or parts of swarms, while the store is in use. Locks one shard for the
    /// time of some dozens of announces.
    pub fn adopt(&self, set: SwarmSet, parts: &[SwarmPart<'_>], ages: &Ages, now_s: u32) -> Adopted {
        match set {
            SwarmSet::V4 => adopt::<PeerV4>(&self.v4, parts, ages, now_s),
            SwarmSet::V6 => adopt::<PeerV6>(&self.v6, parts, ages, now_s),
            SwarmSet::PrivateV4 => adopt::<PeerV4>(&self.private.v4, parts, ages, now_s),
            SwarmSet::PrivateV6 => adopt::<PeerV6>(&self.private.v6, parts, ages, now_s),
        }
    }
}

fn adopt<P: Family>(swarms: &Swarms<P>, parts: &[SwarmPart<'_>], ages: &Ages, now_s: u32) -> Adopted {
    let mut adopted = Adopted::default();
    let mut peers = Entries::new();
    let mut places = Vec::with_capacity(PREFETCHED);
    let now = Ticks::new(swarms.timeout_s()).at(now_s);
    for parts in parts.chunks(PREFETCHED) {
        places.clear();
        places.extend(parts.iter().map(|part| swarms.locate(&part.id)));
        places.iter().for_each(|place| swarms.prefetch_swarm(place));
        for (part, place) in parts.iter().zip(&places) {
            adopted.overdue += peers.read(part, ages, now) as u64;
            let mut first = 0;
            while first < peers.len() {
                let mut locked = swarms.lock(place.shard());
                let shard = locked.shard_mut();
                let age = shard.ages.stamp_of_age(part.age_s.saturating_add(ages.elapsed_s()), now_s);
                first = shard.adopt(place, age, (&peers, first), now, &mut adopted);
            }
            if part.completed > 0 {
                let emptied_s = if part.ages.is_empty() { part.age_s } else { 0 };
                let mut locked = swarms.lock(place.shard());
                locked.shard_mut().adopt_completed(place, part.completed, emptied_s, now_s);
            }
        }
    }
    adopted
}

impl<P: Family> Shard<P> {
    /// Adopts the next peers of a part, from `first` on. Returns the first remaining one.
    fn adopt(
        &mut self,
        place: &Place,
        age: AgeStamp,
        (peers, first): (&Entries<P>, usize),
        now: Tick,
        adopted: &mut Adopted,
    ) -> usize {
        self.is_exempt = true;
        let mut next = first;
        if self.search(place).is_none() {
            let count = self.restore_swarm(place, age, peers.from(first));
            adopted.added += count as u64;
            next += count;
        }
        let end = peers.len().min(next + PEERS_PER_LOCK);
        for index in next..end {
            self.adopt_peer(place, &peers.entries[index], index < peers.seeders, now, adopted);
        }
        self.is_exempt = false;
        self.note_change(place.hash, &place.id);
        end
    }

    /// Adopts a peer of a swarm, if the swarm exists.
    fn adopt_peer(
        &mut self,
        place: &Place,
        entry: &PeerEntry<P>,
        seeds: bool,
        now: Tick,
        adopted: &mut Adopted,
    ) {
        let found = self.search(place).map(|(at, line)| (at, line.form(at.slot())));
        let Some((at, form)) = found else {
            adopted.refused += 1;
            return;
        };
        let here = self.stamp(&form, &entry.peer);
        let (entry, seeds, count) = match here {
            None => (*entry, seeds, &mut adopted.added),
            Some((stamp, _)) if stamp.age(now) > entry.stamp.age(now) => {
                (*entry, seeds, &mut adopted.renewed)
            }
            Some((stamp, seeds)) => {
                adopted.known += 1;
                if stamp.is_counted() || !entry.stamp.is_counted() {
                    return;
                }
                // The adopted count contains the download, so it must not be counted once more.
                let stamp = Stamp::new(stamp.tick(), true);
                (PeerEntry { peer: entry.peer, stamp }, seeds, &mut 0)
            }
        };
        let before = self.roles(&form);
        let Ok(outcome) = self.arrive(&form, &Arrival::restored(&entry, seeds)) else {
            adopted.refused += 1;
            return;
        };
        *count += 1;
        if let Some(change) = outcome.change {
            // An arriving peer leaves no swarm empty.
            self.take_note(at, &change, before, &entry.peer, 0);
        }
    }

    pub(crate) fn stamp(&self, form: &Form<P>, peer: &P) -> Option<(Stamp, bool)> {
        match form {
            Form::Single { entry, seeds } => (entry.peer == *peer).then_some((entry.stamp, *seeds)),
            Form::Small { block, class, .. } => {
                let small = Small::<P>::read(self.memory.block(*block, *class));
                small.index(peer).map(|index| (Stamp(small.stamps[index]), index < small.seeders))
            }
            Form::Large { index } => {
                let (large, hash) = (self.larges.large(*index), peer.hash(&self.key));
                [true, false].into_iter().find_map(|seeds| {
                    let (_, stamp) = large.find(&self.memory, hash, peer, seeds)?;
                    Some((stamp, seeds))
                })
            }
        }
    }

    /// Raises the completed downloads of a torrent to a number. Without a peer here, they are retained as if the last
    /// one had left `emptied_s` ago.
    fn adopt_completed(&mut self, place: &Place, completed: u32, emptied_s: u32, now_s: u32) {
        let id = &place.id;
        let found = self.search(place).map(|(at, line)| (at, line.downloads(at.slot())));
        let known = match found {
            Some((_, downloads)) => self.completed(downloads, id),
            None => self.retained.completed(&self.memory, place.hash, id),
        };
        if completed <= known {
            return;
        }
        match found {
            Some((at, _)) => {
                self.add_downloads(at, id, completed - known);
            }
            None => {
                self.forget_retained(place);
                self.retain(*id, completed, emptied_s, now_s);
            }
        }
        self.note_change(place.hash, &place.id);
    }
}
