//! What an announce does to a swarm, in each of its forms, and how it passes from one form to the next.
//!
//! One peer is stored in the swarm's own slot, a few in a block, many in two tables. A swarm grows into the next
//! form when it has to, and falls back only when it is much smaller, so that it does not go back and forth.

use crate::api::{Action, Announce, Counts, Rejection};
use crate::arena::Purpose;
use crate::family::Family;
use crate::large::{Large, LargeAt};
use crate::peer_line::PeerEntry;
use crate::shard::Shard;
use crate::slab::{Block, Class};
use crate::small::{self, Small, SmallMut};
use crate::source_limit::SEVERAL;
use crate::stamp::{Stamp, Tick};
use crate::swarm_line::Form;

/// A large swarm becomes a small one when its peers are fewer than one in this many that would fit.
const SMALL_AGAIN_SHARE: usize = 3;

/// ... and its tables have settled to no more lines than this, so that the move is short.
const SMALL_AGAIN_LINES_MAX: u32 = 256;

/// What an announce did to a swarm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome<P> {
    /// The swarm's form afterwards; nothing if nobody is left.
    pub(crate) form: Option<Form<P>>,
    /// Where the announcer is.
    pub(crate) landed: Landed,
    /// Whether a completed download is to be counted.
    pub(crate) completes: bool,
    /// Seeders and leechers before.
    pub(crate) before: (u32, u32),
    /// Seeders and leechers after.
    pub(crate) after: (u32, u32),
}

/// Where an announcer is afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Landed {
    /// Not in the swarm, or alone in it.
    Nowhere,
    /// At this index of the small swarm.
    Small(usize),
    /// In a table of the large swarm.
    Large(LargeAt),
    /// Not in the swarm, which has as many peers of its source as it may.
    Unregistered,
}

impl<P> Outcome<P> {
    pub(crate) fn counts(&self, completed: u32) -> Counts {
        let (seeders, leechers) = self.after;
        Counts { seeders, leechers, completed }
    }
}

/// The announcer as it is to be stored.
#[derive(Clone, Copy)]
struct Arrival<P> {
    peer: P,
    now: Tick,
    seeds: bool,
    completes: bool,
}

impl<P: Family> Arrival<P> {
    fn new(announce: &Announce<P>, now: Tick) -> Self {
        let seeds = announce.action != Action::Leech;
        Self { peer: announce.peer, now, seeds, completes: announce.action == Action::Complete }
    }

    /// Its stamp, given the one it had, and whether a download is to be counted now.
    fn stamp(&self, old: Option<Stamp>) -> (Stamp, bool) {
        let was_counted = old.is_some_and(Stamp::is_counted);
        (Stamp::new(self.now, was_counted || self.completes), self.completes && !was_counted)
    }

    /// Its entry as a newcomer.
    fn entry(&self) -> PeerEntry<P> {
        PeerEntry { peer: self.peer, stamp: self.stamp(None).0 }
    }
}

impl<P: Family> Shard<P> {
    /// Applies an announce to a swarm that has at least one peer.
    #[inline]
    pub(crate) fn apply(
        &mut self,
        form: &Form<P>,
        announce: &Announce<P>,
        now: Tick,
    ) -> Result<Outcome<P>, Rejection> {
        let before = self.roles(form);
        let arrival = Arrival::new(announce, now);
        let (form, landed, completes) = match (form, announce.action) {
            (Form::Single { entry, .. }, Action::Stop) if entry.peer == announce.peer => {
                (None, Landed::Nowhere, false)
            }
            (Form::Single { .. }, Action::Stop) => (Some(*form), Landed::Nowhere, false),
            (Form::Small { block, class, is_skewed }, Action::Stop) => {
                self.stop_small(*block, *class, *is_skewed, &announce.peer)
            }
            (Form::Large { index }, Action::Stop) => self.stop_large(*index, &announce.peer),
            (Form::Single { entry, seeds }, _) => self.arrive_single(entry, *seeds, &arrival)?,
            (Form::Small { block, class, is_skewed }, _) => {
                self.arrive_small(*block, *class, *is_skewed, &arrival)?
            }
            (Form::Large { index }, _) => self.arrive_large(*index, &arrival)?,
        };
        let after = form.as_ref().map_or((0, 0), |form| self.roles(form));
        Ok(Outcome { form, landed, completes, before, after })
    }

    fn arrive_single(
        &mut self,
        resident: &PeerEntry<P>,
        resident_seeds: bool,
        arrival: &Arrival<P>,
    ) -> Result<(Option<Form<P>>, Landed, bool), Rejection> {
        if resident.peer == arrival.peer {
            let (stamp, completes) = arrival.stamp(Some(resident.stamp));
            let entry = PeerEntry { peer: arrival.peer, stamp };
            return Ok((Some(Form::Single { entry, seeds: arrival.seeds }), Landed::Nowhere, completes));
        }
        let others = [resident.peer];
        if self.is_one_too_many(&arrival.peer, &others, small::count_source(&others, &arrival.peer)) {
            return Ok(self.turn_away(Form::Single { entry: *resident, seeds: resident_seeds }));
        }
        self.admit(&arrival.peer)?;
        self.find_room()?;
        let class = small::class_for::<P>(2).expect("two peers fit the smallest blocks");
        let block = self.memory.take_block(class);
        let mut small = SmallMut::edit(self.memory.block_mut(block));
        small.push(resident, resident_seeds);
        let landed = small.push(&arrival.entry(), arrival.seeds).map_or(Landed::Nowhere, Landed::Small);
        // The newcomer may have pushed the resident aside, never the other way round.
        Ok((Some(Form::Small { block, class, is_skewed: false }), landed, arrival.completes))
    }

    fn arrive_small(
        &mut self,
        block: Block,
        class: Class,
        is_skewed: bool,
        arrival: &Arrival<P>,
    ) -> Result<(Option<Form<P>>, Landed, bool), Rejection> {
        let small = Small::<P>::read(self.memory.block(block));
        if let Some(index) = small.index(&arrival.peer) {
            let (stamp, completes) = arrival.stamp(Some(Stamp(small.stamps[index])));
            let index = SmallMut::<P>::edit(self.memory.block_mut(block)).update(index, stamp, arrival.seeds);
            return Ok((Some(Form::Small { block, class, is_skewed }), Landed::Small(index), completes));
        }
        let others = small::count_source(small.peers, &arrival.peer);
        if self.is_one_too_many(&arrival.peer, small.peers, others) {
            return Ok(self.turn_away(Form::Small { block, class, is_skewed }));
        }
        let count = small.peers.len();
        let is_skewed = is_skewed || (others + 1 >= SEVERAL && self.source_limit.is_some());
        self.admit(&arrival.peer)?;
        let entry = arrival.entry();
        if let Some(index) = SmallMut::edit(self.memory.block_mut(block)).push(&entry, arrival.seeds) {
            let form = Form::Small { block, class, is_skewed };
            return Ok((Some(form), Landed::Small(index), arrival.completes));
        }
        self.find_room()?;
        let Some(class) = small::class_for::<P>(count + 1) else {
            let (index, seeds) = (self.enlarge(block, is_skewed), arrival.seeds);
            let (hash, large) = (entry.peer.hash(&self.key), self.larges.large_mut(index));
            let at = large.insert(&mut self.memory, &self.key, (hash, &entry), seeds);
            let landed = at.map_or(Landed::Nowhere, |at| Landed::Large(LargeAt { at, seeds }));
            return Ok((Some(Form::Large { index }), landed, arrival.completes));
        };
        let block = small::resize::<P>(&mut self.memory, block, class);
        let index = SmallMut::edit(self.memory.block_mut(block)).push(&entry, arrival.seeds);
        Ok((
            Some(Form::Small { block, class, is_skewed }),
            index.map_or(Landed::Nowhere, Landed::Small),
            arrival.completes,
        ))
    }

    fn arrive_large(
        &mut self,
        index: u32,
        arrival: &Arrival<P>,
    ) -> Result<(Option<Form<P>>, Landed, bool), Rejection> {
        let form = Some(Form::Large { index });
        let (memory, key) = (&mut self.memory, &self.key);
        let large = self.larges.large_mut(index);
        let (hash, seeds) = (arrival.peer.hash(key), arrival.seeds);
        if let Some(at) = large.find(memory, hash, &arrival.peer, seeds) {
            let found = LargeAt { at, seeds };
            let (stamp, completes) = arrival.stamp(Some(large.stamp(memory, found)));
            large.set_stamp(memory, found, stamp);
            return Ok((form, Landed::Large(found), completes));
        }
        let Some(at) = large.find(memory, hash, &arrival.peer, !seeds) else {
            return self.arrive_large_anew(index, hash, arrival);
        };
        // A peer that changes its role takes no more room than before, but may need some first.
        let found = LargeAt { at, seeds: !seeds };
        let (stamp, completes) = arrival.stamp(Some(large.stamp(memory, found)));
        let entry = PeerEntry { peer: arrival.peer, stamp };
        let has_room = memory.has_room_for(Purpose::Moving);
        let at = has_room.then(|| large.insert(memory, key, (hash, &entry), seeds)).flatten();
        let Some(at) = at else {
            // It stays where it is, so that it is not forgotten, and changes its role at an announce that finds room.
            large.set_stamp(memory, found, stamp);
            return Ok((form, Landed::Large(found), completes));
        };
        large.remove(memory, key, found);
        Ok((form, Landed::Large(LargeAt { at, seeds }), completes))
    }

    /// As `arrive_large`, of a peer that is in neither table.
    fn arrive_large_anew(
        &mut self,
        index: u32,
        hash: u64,
        arrival: &Arrival<P>,
    ) -> Result<(Option<Form<P>>, Landed, bool), Rejection> {
        let form = Form::Large { index };
        if let Some(limit) = self.source_limit {
            let (large, memory) = (self.larges.large(index), &self.memory);
            let slot = arrival.peer.slot(&self.key);
            let beside = large.count_in_slot(memory, &self.key, &arrival.peer, slot);
            let count_elsewhere = || large.count_elsewhere(memory, &self.key, &arrival.peer, limit);
            if limit.is_reached_in_slots(beside, count_elsewhere) {
                return Ok(self.turn_away(form));
            }
            if !large.is_skewed && large.would_be_skewed(beside, count_elsewhere) {
                self.larges.large_mut(index).is_skewed = true;
            }
        }
        self.admit(&arrival.peer)?;
        self.find_room()?;
        let large = self.larges.large_mut(index);
        let at = large.insert(&mut self.memory, &self.key, (hash, &arrival.entry()), arrival.seeds);
        let at = at.ok_or(Rejection::Full)?;
        Ok((Some(form), Landed::Large(LargeAt { at, seeds: arrival.seeds }), arrival.completes))
    }

    /// Whether a newcomer is one too many of its source, which has `others` of the peers of a small swarm.
    #[inline]
    fn is_one_too_many(&self, newcomer: &P, peers: &[P], others: usize) -> bool {
        self.source_limit.is_some_and(|limit| limit.is_reached(newcomer, peers, others, &self.key))
    }

    /// Whether the share of its source leaves room for a newcomer.
    #[inline]
    fn admit(&self, newcomer: &P) -> Result<(), Rejection> {
        if self.pressure.admits(newcomer) { Ok(()) } else { Err(Rejection::OverShare) }
    }

    /// Gets hold of the memory that a newcomer may need.
    #[inline]
    fn find_room(&mut self) -> Result<(), Rejection> {
        if self.memory.has_room() { Ok(()) } else { Err(Rejection::Full) }
    }

    /// Leaves a swarm as it is, without the newcomer.
    #[cold]
    fn turn_away(&mut self, form: Form<P>) -> (Option<Form<P>>, Landed, bool) {
        self.tally.unregistered += 1;
        (Some(form), Landed::Unregistered, false)
    }

    fn stop_small(
        &mut self,
        block: Block,
        class: Class,
        is_skewed: bool,
        peer: &P,
    ) -> (Option<Form<P>>, Landed, bool) {
        let form = match Small::<P>::read(self.memory.block(block)).index(peer) {
            Some(index) => {
                SmallMut::<P>::edit(self.memory.block_mut(block)).remove(index);
                self.reduce_small(block, class, is_skewed)
            }
            None => Some(Form::Small { block, class, is_skewed }),
        };
        (form, Landed::Nowhere, false)
    }

    fn stop_large(&mut self, index: u32, peer: &P) -> (Option<Form<P>>, Landed, bool) {
        let large = self.larges.large_mut(index);
        let hash = peer.hash(&self.key);
        for seeds in [false, true] {
            if let Some(at) = large.find(&self.memory, hash, peer, seeds) {
                large.remove(&mut self.memory, &self.key, LargeAt { at, seeds });
                return (self.reduce_large(index), Landed::Nowhere, false);
            }
        }
        (Some(Form::Large { index }), Landed::Nowhere, false)
    }

    /// The form of a small swarm that has just lost peers. Nothing if it lost its last.
    pub(crate) fn reduce_small(&mut self, block: Block, class: Class, is_skewed: bool) -> Option<Form<P>> {
        let small = Small::<P>::read(self.memory.block(block));
        match small.peers.len() {
            0 => {
                self.memory.put_block(block);
                None
            }
            1 => {
                let (entry, seeds) = small.entry(0);
                self.memory.put_block(block);
                Some(Form::Single { entry, seeds })
            }
            count => {
                // Half again as many must fit, so that one who comes back does not move everybody.
                let fitting = small::class_for::<P>(count + count / 2).filter(|&fitting| fitting < class);
                match fitting.filter(|_| self.memory.has_room_for(Purpose::Shrinking)) {
                    Some(class) => {
                        let block = small::resize::<P>(&mut self.memory, block, class);
                        Some(Form::Small { block, class, is_skewed })
                    }
                    None => Some(Form::Small { block, class, is_skewed }),
                }
            }
        }
    }

    /// The form of a large swarm that may have lost peers. Nothing if it lost its last.
    pub(crate) fn reduce_large(&mut self, index: u32) -> Option<Form<P>> {
        let large = self.larges.large(index);
        let (count, large_lines) = (large.len() as usize, large.leechers.end() + large.seeders.end());
        if count == 0 {
            self.larges.remove(index).release(&mut self.memory);
            return None;
        }
        let settled = large_lines <= SMALL_AGAIN_LINES_MAX;
        if count > small::peers_max::<P>() / SMALL_AGAIN_SHARE
            || !settled
            || !self.memory.has_room_for(Purpose::Shrinking)
        {
            return Some(Form::Large { index });
        }
        let class = small::class_for::<P>(count.max(2)).expect("a third of what fits a block fits a block");
        let block = self.memory.take_block(class);
        let mut large = self.larges.remove(index);
        let mut entries = Vec::with_capacity(count);
        large.entries(&self.memory, |entry, seeds| entries.push((entry, seeds)));
        let mut small = SmallMut::edit(self.memory.block_mut(block));
        for (entry, seeds) in &entries {
            small.push(entry, *seeds);
        }
        large.release(&mut self.memory);
        // In a table a source is not counted as exactly as it could be here.
        let is_skewed = self.source_limit.is_some()
            && (large.is_skewed || Small::<P>::read(self.memory.block(block)).is_skewed());
        self.reduce_small(block, class, is_skewed)
    }

    /// Turns a full small swarm into a large one.
    fn enlarge(&mut self, block: Block, is_skewed: bool) -> u32 {
        let small = Small::<P>::read(self.memory.block(block));
        let entries: Vec<_> = (0..small.peers.len()).map(|index| small.entry(index)).collect();
        let (leechers, seeders) = (small.peers.len() - small.seeders, small.seeders);
        let seeds_of_tables = self.larges.next_seeds(&self.key);
        let mut large = Large::holding(&mut self.memory, seeds_of_tables, leechers, seeders);
        large.is_skewed = is_skewed;
        for (entry, seeds) in &entries {
            let at = large.insert(&mut self.memory, &self.key, (entry.peer.hash(&self.key), entry), *seeds);
            debug_assert!(at.is_some(), "a block of entries fills fewer lines than an insertion may pass");
        }
        self.memory.put_block(block);
        self.larges.add(large)
    }
}
