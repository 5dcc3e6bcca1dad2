//! Exports all swarms in pieces, while the store is in use.
//!
//! The export goes through each shard by windows of selectors, like a [`Walk`](crate::Walk), and through each large
//! swarm in the same way. Selectors never change, so the export contains each swarm that exists throughout, and each
//! peer that stays in its swarm. Only peers of a large swarm that becomes small meanwhile may occur twice. The parts of
//! one call show one moment, the whole does not.
//!
//! A call exports an eighth of a segment of one shard, some hundred swarms, whose blocks a first pass prefetches. Two
//! alternatives cost more. Copying pages on write doubles the memory in the worst case and stops workers at page
//! faults. A log of changes would write every announce. Shards take turns, so that several threads can restore
//! consecutive blocks without waiting for the same lock.

use shoal_base::{InfoHash, PeerV4, PeerV6};

use super::{COUNTED, SwarmPart, SwarmSet};
use crate::family::{Family, PeerRow};
use crate::shard::Shard;
use crate::stamp::{Stamp, Tick};
use crate::store::Store;
use crate::swarm::large::Peers;
use crate::swarm::line::{Form, SwarmRow};
use crate::swarm::small::Small;
use crate::swarms::Swarms;

/// The number of windows of a segment of swarms. A lock is then held for at most some hundred swarms.
const WINDOWS: u32 = 8;

/// The progress of an export, with its buffers.
#[derive(Debug, Default)]
pub struct Export {
    /// The index of the set in [`SwarmSet::ALL`].
    set: usize,
    /// For each shard of the set, the first remaining selector, or `None` at the end.
    selectors: Vec<Option<u32>>,
    /// The next shard. Shards take turns, so that several threads can restore consecutive parts.
    shard: usize,
    /// The remaining large swarms of the last window.
    larges: Vec<LargeExport>,
    peers: Vec<u8>,
    ages: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct LargeExport {
    /// Without completed downloads once a part was exported.
    head: Head,
    /// Whether the table of the seeders, which comes first, is being exported.
    seeds: bool,
    /// The first remaining selector of the table.
    selector: u32,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    id: InfoHash,
    completed: u32,
    age_s: u32,
}

impl Export {
    /// Returns the set of the next parts, or `None` at the end.
    pub fn set(&self) -> Option<SwarmSet> {
        SwarmSet::ALL.get(self.set).copied()
    }

    /// Calls `visit` with the next parts, some hundreds or none. They belong to the set that [`set`](Self::set)
    /// returned before. A shard is locked meanwhile, so `visit` should only copy. Overdue peers are left out.
    pub fn next(&mut self, store: &Store, now_s: u32, mut visit: impl FnMut(&SwarmPart<'_>)) {
        let visit = &mut visit;
        match self.set() {
            Some(SwarmSet::V4) => self.next_of::<PeerV4>(&store.v4, now_s, visit),
            Some(SwarmSet::V6) => self.next_of::<PeerV6>(&store.v6, now_s, visit),
            Some(SwarmSet::PrivateV4) => self.next_of::<PeerV4>(&store.private.v4, now_s, visit),
            Some(SwarmSet::PrivateV6) => self.next_of::<PeerV6>(&store.private.v6, now_s, visit),
            None => {}
        }
    }

    fn next_of<P: Family>(&mut self, swarms: &Swarms<P>, now_s: u32, visit: &mut impl FnMut(&SwarmPart<'_>)) {
        if let Some(large) = self.larges.pop() {
            return self.export_large(swarms, large, now_s, visit);
        }
        if self.selectors.is_empty() {
            let begin = |shard| (!swarms.is_empty_shard(shard)).then_some(0);
            self.selectors.extend((0..swarms.shards()).map(begin));
        }
        let shards = (self.shard..swarms.shards()).chain(0..self.shard);
        match shards.into_iter().find_map(|shard| Some((shard, self.selectors[shard]?))) {
            Some((shard, first)) => {
                self.selectors[shard] = self.export_window(swarms, shard, first, now_s, visit);
                self.shard = (shard + 1) % swarms.shards();
            }
            None => {
                self.selectors.clear();
                (self.set, self.shard) = (self.set + 1, 0);
            }
        }
    }

    /// Exports the swarms of the next window of a shard. Large ones follow later. Returns the first selector after the
    /// window.
    fn export_window<P: Family>(
        &mut self,
        swarms: &Swarms<P>,
        shard: usize,
        first: u32,
        now_s: u32,
        visit: &mut impl FnMut(&SwarmPart<'_>),
    ) -> Option<u32> {
        let shard = swarms.lock_to_read(shard);
        let now = shard.ticks.at(now_s);
        let last = shard.last_of_window(first, WINDOWS);
        // The cache misses of the blocks overlap.
        shard.visit_swarms(first..=last, |line, slot| {
            if let Form::Small { block, .. } = line.form(slot) {
                shard.memory.prefetch_block(block);
            }
        });
        shard.visit_swarms(first..=last, |line, slot| {
            let (id, form) = (line.id(slot), line.form(slot));
            let head = Head {
                id,
                completed: shard.completed(line.downloads(slot), &id),
                age_s: shard.ages.age_s(line.age(slot), now_s),
            };
            if matches!(form, Form::Large { .. }) {
                self.larges.push(LargeExport { head, seeds: true, selector: 0 });
            } else {
                self.export_form(&shard, &form, head, now, visit);
            }
        });
        self.clear();
        let age_now = shard.ages.at(now_s);
        shard.visit_retained(first..=last, |entry| {
            let (id, age_s) = (entry.id, entry.age_s(age_now));
            visit(&self.part(Head { id, completed: entry.completed, age_s }, 0));
        });
        last.checked_add(1)
    }

    /// Exports the peers of the next segment of a large swarm.
    fn export_large<P: Family>(
        &mut self,
        swarms: &Swarms<P>,
        mut large: LargeExport,
        now_s: u32,
        visit: &mut impl FnMut(&SwarmPart<'_>),
    ) {
        let place = swarms.locate(&large.head.id);
        let shard = swarms.lock_to_read(place.shard());
        let now = shard.ticks.at(now_s);
        let Some((at, line)) = shard.search(&place) else {
            // Its completed downloads were not retained when its window was exported.
            self.clear();
            return visit(&self.part(Head { age_s: 0, ..large.head }, 0));
        };
        let form = line.form(at.slot());
        let head = Head { completed: core::mem::take(&mut large.head.completed), ..large.head };
        let Form::Large { index } = form else {
            return self.export_form(&shard, &form, head, now, visit);
        };
        let table: &Peers<P> = shard.larges.large(index).table(large.seeds);
        self.clear();
        let last = table.visit_segment(&shard.memory, &shard.key, large.selector..=u32::MAX, |line, slot| {
            self.push(&shard, &line.peers()[slot], line.stamps()[slot], now);
        });
        let seeders = if large.seeds { self.ages.len() } else { 0 };
        visit(&self.part(head, seeders));
        match (last.checked_add(1), large.seeds) {
            (Some(selector), _) => self.larges.push(LargeExport { selector, ..large }),
            (None, true) => self.larges.push(LargeExport { selector: 0, seeds: false, ..large }),
            (None, false) => {}
        }
    }

    fn export_form<P: Family>(
        &mut self,
        shard: &Shard<P>,
        form: &Form<P>,
        head: Head,
        now: Tick,
        visit: &mut impl FnMut(&SwarmPart<'_>),
    ) {
        self.clear();
        let mut seeders = 0;
        match form {
            Form::Single { entry, seeds } => {
                self.push(shard, &entry.peer, entry.stamp.0, now);
                seeders = usize::from(*seeds) * self.ages.len();
            }
            Form::Small { block, class, .. } => {
                let small = Small::<P>::read(shard.memory.block(*block, *class));
                for (index, (peer, stamp)) in small.peers.iter().zip(small.stamps).enumerate() {
                    self.push(shard, peer, *stamp, now);
                    if index < small.seeders {
                        seeders = self.ages.len();
                    }
                }
            }
            Form::Large { .. } => {}
        }
        visit(&self.part(head, seeders));
    }

    fn clear(&mut self) {
        self.peers.clear();
        self.ages.clear();
    }

    /// Appends a peer, unless it is overdue.
    fn push<P: Family>(&mut self, shard: &Shard<P>, peer: &P, stamp: u8, now: Tick) {
        let stamp = Stamp(stamp);
        if !shard.ticks.is_overdue(stamp, now) {
            self.peers.extend_from_slice(peer.as_bytes());
            let counted = if stamp.is_counted() { COUNTED } else { 0 };
            self.ages.push(stamp.age(now) | counted);
        }
    }

    fn part(&self, Head { id, completed, age_s }: Head, seeders: usize) -> SwarmPart<'_> {
        SwarmPart { id, completed, age_s, seeders, peers: &self.peers, ages: &self.ages }
    }
}
