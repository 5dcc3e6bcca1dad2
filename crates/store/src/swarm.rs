//! The effect of an announce on a swarm in each of its forms, and the transitions between the forms.
//!
//! A single peer lies in the swarm's own slot, a few peers in a block, many in two tables. A swarm grows into the next
//! form when it has to. It falls back only when it is much smaller, so that it does not alternate between two forms.
//!
//! A swarm without peers is removed, because any client could otherwise fill the store with empty swarms. A peer is an
//! address and a port. The store holds no peer ids.
//!
//! The forms lie in a `line` of the table of swarms, in a block (`small`), or in tables of `peer_line`s (`large`).

pub(crate) mod large;
pub(crate) mod line;
pub(crate) mod peer_line;
pub(crate) mod small;

use shoal_base::Action;
use shoal_base::source::{Excess, Networks};

use self::large::{Large, LargeAt};
use self::line::Form;
use self::peer_line::PeerEntry;
use self::small::{Small, SmallMut};
use crate::api::{Announce, Rejection};
use crate::family::Family;
use crate::holding::{Conversion, convert, networks_among, networks_in_slot};
use crate::memory::arena::Purpose;
use crate::memory::slab::{Block, Class};
use crate::shard::Shard;
use crate::source_limit::SEVERAL;
use crate::stamp::{Stamp, Tick};
use crate::table::At;

/// A large swarm becomes small when its peers are fewer than this fraction of a full block.
const SMALL_AGAIN_SHARE: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome<P> {
    /// The change of the swarm's form or counts.
    pub(crate) change: Option<Change<P>>,
    /// The location of the announcer.
    pub(crate) location: Location,
    /// The earlier stamp of the announcer, if it was in the swarm in its present role.
    pub(crate) known: Option<Stamp>,
    /// Whether to count a completed download.
    pub(crate) completes: bool,
}

/// A change of a swarm that its shard must apply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<P> {
    /// The swarm now has this form, and perhaps other counts.
    To(Form<P>),
    /// No peer is left.
    Emptied,
}

/// The location of an announcer after its announce.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Location {
    /// The announcer is not in the swarm, or alone in it.
    Nowhere,
    /// The announcer is at this index of the small swarm.
    Small(usize),
    /// The announcer is in a table of the large swarm.
    Large(LargeAt),
}

impl<P> Outcome<P> {
    /// An announce that leaves form and counts unchanged.
    fn unchanged(location: Location, known: Option<Stamp>, completes: bool) -> Self {
        Self { change: None, location, known, completes }
    }

    /// An arrival that leaves the swarm in this form.
    fn changed(form: Form<P>, location: Location, completes: bool) -> Self {
        Self { change: Some(Change::To(form)), location, known: None, completes }
    }

    /// A departure that leaves the swarm in this form, or empty.
    fn left(form: Option<Form<P>>) -> Self {
        let change = Some(form.map_or(Change::Emptied, Change::To));
        Self { change, location: Location::Nowhere, known: None, completes: false }
    }
}

/// The announcer as the swarm will store it.
#[derive(Clone, Copy)]
pub(crate) struct Arrival<P> {
    peer: P,
    now: Tick,
    seeds: bool,
    completes: bool,
    /// Whether the download of a new peer is decided: counted now, or never, since the peer had everything before.
    is_decided: bool,
}

impl<P: Family> Arrival<P> {
    fn new(announce: &Announce<P>, now: Tick) -> Self {
        let (seeds, completes) = (announce.action != Action::Leech, announce.action == Action::Complete);
        Self { peer: announce.peer, now, seeds, completes, is_decided: seeds }
    }

    /// Creates the arrival of a peer with this entry.
    pub(crate) fn restored(entry: &PeerEntry<P>, seeds: bool) -> Self {
        let PeerEntry { peer, stamp } = *entry;
        Self { peer, now: stamp.tick(), seeds, completes: stamp.is_counted(), is_decided: stamp.is_counted() }
    }

    /// Returns the new stamp, given the earlier one, and whether to count a download now.
    fn stamp(&self, old: Stamp) -> (Stamp, bool) {
        let was_counted = old.is_counted();
        (Stamp::new(self.now, was_counted || self.completes), self.completes && !was_counted)
    }

    fn entry(&self) -> PeerEntry<P> {
        PeerEntry { peer: self.peer, stamp: Stamp::new(self.now, self.is_decided) }
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
        if announce.action == Action::Stop {
            return Ok(self.stop(form, &announce.peer));
        }
        self.arrive(form, &Arrival::new(announce, now))
    }

    /// Like `apply`, for a peer that does not leave.
    #[inline]
    pub(crate) fn arrive(&mut self, form: &Form<P>, arrival: &Arrival<P>) -> Result<Outcome<P>, Rejection> {
        match form {
            Form::Single { entry, seeds } if entry.peer == arrival.peer => {
                let known = (*seeds == arrival.seeds).then_some(entry.stamp);
                let (stamp, completes) = arrival.stamp(entry.stamp);
                let entry = PeerEntry { peer: arrival.peer, stamp };
                let form = Form::Single { entry, seeds: arrival.seeds };
                Ok(Outcome { known, ..Outcome::changed(form, Location::Nowhere, completes) })
            }
            Form::Single { entry, seeds } => self.join_single(entry, *seeds, arrival),
            Form::Small { block, class, is_skewed } => self.arrive_small(*block, *class, *is_skewed, arrival),
            Form::Large { index } => self.arrive_large(*index, arrival),
        }
    }

    /// Lets a second peer join a single one.
    #[inline(never)]
    fn join_single(
        &mut self,
        stored: &PeerEntry<P>,
        stored_seeds: bool,
        arrival: &Arrival<P>,
    ) -> Result<Outcome<P>, Rejection> {
        let others = [stored.peer];
        self.check_source_limit(&arrival.peer, &others, small::count_source(&others, &arrival.peer))?;
        let new = self.admit(&arrival.peer, || networks_among(&arrival.peer, &others))?;
        self.ensure_room()?;
        let class = small::class_for::<P>(2).expect("two peers fit the smallest blocks");
        let block = self.memory.take_block(class);
        let mut small = SmallMut::edit(self.memory.block_mut(block, class));
        small.push(stored, stored_seeds);
        let location = small.push(&arrival.entry(), arrival.seeds).map_or(Location::Nowhere, Location::Small);
        self.pressure.add_torrent(&arrival.peer, new);
        // The new peer may have displaced the stored one, but never the reverse.
        let form = Form::Small { block, class, is_skewed: false };
        Ok(Outcome::changed(form, location, arrival.completes))
    }

    #[inline]
    fn arrive_small(
        &mut self,
        block: Block,
        class: Class,
        is_skewed: bool,
        arrival: &Arrival<P>,
    ) -> Result<Outcome<P>, Rejection> {
        let small = Small::<P>::read(self.memory.block(block, class));
        if let Some(index) = small.index(&arrival.peer) {
            let old = Stamp(small.stamps[index]);
            let (stamp, completes) = arrival.stamp(old);
            let keeps_role = (index < small.seeders) == arrival.seeds;
            let mut small = SmallMut::<P>::edit(self.memory.block_mut(block, class));
            let location = Location::Small(small.update(index, stamp, arrival.seeds));
            return Ok(if keeps_role {
                Outcome::unchanged(location, Some(old), completes)
            } else {
                Outcome::changed(Form::Small { block, class, is_skewed }, location, completes)
            });
        }
        self.join_small(block, class, is_skewed, arrival)
    }

    /// Like `arrive_small`, for a peer that is not in the swarm.
    #[inline(never)]
    fn join_small(
        &mut self,
        block: Block,
        class: Class,
        is_skewed: bool,
        arrival: &Arrival<P>,
    ) -> Result<Outcome<P>, Rejection> {
        let small = Small::<P>::read(self.memory.block(block, class));
        let others = small::count_source(small.peers, &arrival.peer);
        self.check_source_limit(&arrival.peer, small.peers, others)?;
        let count = small.peers.len();
        let is_skewed = is_skewed || (others + 1 >= SEVERAL && self.source_limit.is_some());
        let new = self.admit(&arrival.peer, || networks_among(&arrival.peer, small.peers))?;
        let entry = arrival.entry();
        if let Some(index) = SmallMut::edit(self.memory.block_mut(block, class)).push(&entry, arrival.seeds) {
            self.pressure.add_torrent(&arrival.peer, new);
            let form = Form::Small { block, class, is_skewed };
            return Ok(Outcome::changed(form, Location::Small(index), arrival.completes));
        }
        self.ensure_room()?;
        let Some(larger) = small::class_for::<P>(count + 1) else {
            let (index, at) = self.enlarge(block, class, is_skewed, &entry, arrival.seeds)?;
            let location = Location::Large(LargeAt { at, seeds: arrival.seeds });
            return Ok(Outcome::changed(Form::Large { index }, location, arrival.completes));
        };
        self.pressure.add_torrent(&arrival.peer, new);
        let block = small::resize::<P>(&mut self.memory, block, class, larger);
        let index = SmallMut::edit(self.memory.block_mut(block, larger)).push(&entry, arrival.seeds);
        let location = index.map_or(Location::Nowhere, Location::Small);
        Ok(Outcome::changed(Form::Small { block, class: larger, is_skewed }, location, arrival.completes))
    }

    #[inline]
    fn arrive_large(&mut self, index: u32, arrival: &Arrival<P>) -> Result<Outcome<P>, Rejection> {
        let (memory, key) = (&mut self.memory, &self.key);
        let large = self.larges.large_mut(index);
        let (hash, seeds) = (arrival.peer.hash(key), arrival.seeds);
        if let Some((found, old)) = large.find(memory, hash, &arrival.peer, seeds) {
            let (stamp, completes) = arrival.stamp(old);
            large.set_stamp(memory, found, stamp);
            return Ok(Outcome::unchanged(Location::Large(found), Some(old), completes));
        }
        self.change_role(index, hash, arrival)
    }

    /// Like `arrive_large`, for a peer that is not in the table of its role.
    #[inline(never)]
    fn change_role(&mut self, index: u32, hash: u64, arrival: &Arrival<P>) -> Result<Outcome<P>, Rejection> {
        let (memory, key, seeds) = (&mut self.memory, &self.key, arrival.seeds);
        let large = self.larges.large_mut(index);
        let Some((found, old)) = large.find(memory, hash, &arrival.peer, !seeds) else {
            return self.join_large(index, hash, arrival);
        };
        // A peer that changes its role needs no more memory in the end, but may need some during the change.
        let (stamp, completes) = arrival.stamp(old);
        let entry = PeerEntry { peer: arrival.peer, stamp };
        let has_room = memory.has_room_for(Purpose::Moving);
        let at = has_room.then(|| large.insert(memory, key, (hash, &entry), seeds)).flatten();
        let Some(at) = at else {
            // The peer keeps its old role, so that it is not lost. A later announce changes the role, when there is
            // room.
            large.set_stamp(memory, found, stamp);
            return Ok(Outcome::unchanged(Location::Large(found), Some(old), completes));
        };
        large.remove(memory, key, found);
        Ok(Outcome::changed(Form::Large { index }, Location::Large(LargeAt { at, seeds }), completes))
    }

    /// Like `arrive_large`, for a peer that is in neither table.
    fn join_large(&mut self, index: u32, hash: u64, arrival: &Arrival<P>) -> Result<Outcome<P>, Rejection> {
        if let Some(limit) = self.source_limit {
            let (large, memory) = (self.larges.large(index), &self.memory);
            let slot = arrival.peer.slot(&self.key);
            let in_slot = large.count_in_slot(memory, &self.key, &arrival.peer, slot);
            let count_elsewhere = || large.count_elsewhere(memory, &self.key, &arrival.peer, limit);
            if !self.is_exempt {
                limit.check_in_slots(in_slot, large.len(), count_elsewhere)?;
            }
            // In a large swarm, a few peers of one source in other slots have little effect.
            if !large.is_skewed && in_slot + 1 >= SEVERAL {
                self.larges.large_mut(index).is_skewed = true;
            }
        }
        let new = self.admit(&arrival.peer, || {
            networks_in_slot(self.larges.large(index), &self.memory, &self.key, &arrival.peer)
        })?;
        self.ensure_room()?;
        let large = self.larges.large_mut(index);
        let at = large.insert(&mut self.memory, &self.key, (hash, &arrival.entry()), arrival.seeds);
        let at = at.ok_or(Rejection::Full)?;
        self.pressure.add_torrent(&arrival.peer, new);
        let location = Location::Large(LargeAt { at, seeds: arrival.seeds });
        Ok(Outcome::changed(Form::Large { index }, location, arrival.completes))
    }

    /// Checks the limit on a source's peers in a small swarm for a new peer, whose source already has `others` of the
    /// peers.
    #[inline]
    fn check_source_limit(&self, new_peer: &P, peers: &[P], others: usize) -> Result<(), Excess> {
        match self.source_limit {
            Some(limit) if !self.is_exempt => limit.check(new_peer, peers, others, &self.key),
            _ => Ok(()),
        }
    }

    /// Reserves the memory that a new peer may need.
    #[inline]
    fn ensure_room(&mut self) -> Result<(), Rejection> {
        if self.memory.has_room() { Ok(()) } else { Err(Rejection::Full) }
    }

    /// Removes a peer, if it is in the swarm.
    #[inline(never)]
    fn stop(&mut self, form: &Form<P>, peer: &P) -> Outcome<P> {
        match form {
            Form::Single { entry, .. } if entry.peer == *peer => {
                self.leave_small(peer, || &[]);
                Outcome::left(None)
            }
            Form::Single { .. } => Outcome::unchanged(Location::Nowhere, None, false),
            Form::Small { block, class, is_skewed } => self.stop_small(*block, *class, *is_skewed, peer),
            Form::Large { index } => self.stop_large(*index, peer),
        }
    }

    fn stop_small(&mut self, block: Block, class: Class, is_skewed: bool, peer: &P) -> Outcome<P> {
        let Some(index) = Small::<P>::read(self.memory.block(block, class)).index(peer) else {
            return Outcome::unchanged(Location::Nowhere, None, false);
        };
        SmallMut::<P>::edit(self.memory.block_mut(block, class)).remove(index);
        self.leave_small(peer, || Small::<P>::read(self.memory.block(block, class)).peers);
        Outcome::left(self.reduce_small(block, class, is_skewed))
    }

    fn stop_large(&mut self, index: u32, peer: &P) -> Outcome<P> {
        let large = self.larges.large_mut(index);
        let hash = peer.hash(&self.key);
        for seeds in [false, true] {
            if let Some((found, _stamp)) = large.find(&self.memory, hash, peer, seeds) {
                large.remove(&mut self.memory, &self.key, found);
                if self.pressure.counts_torrents() {
                    let remaining = networks_in_slot(self.larges.large(index), &self.memory, &self.key, peer);
                    self.pressure.remove_torrent(peer, Networks::ALL.without(remaining));
                }
                return Outcome::left(self.reduce_large(index));
            }
        }
        Outcome::unchanged(Location::Nowhere, None, false)
    }

    /// Returns the form of a small swarm that has just lost peers, or `None` if no peer is left.
    pub(crate) fn reduce_small(&mut self, block: Block, class: Class, is_skewed: bool) -> Option<Form<P>> {
        let small = Small::<P>::read(self.memory.block(block, class));
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
                // Half as many again must fit, so that a returning peer does not cause another move.
                let fitting = small::class_for::<P>(count + count / 2).filter(|&fitting| fitting < class);
                match fitting.filter(|_| self.memory.has_room_for_block(Purpose::Shrinking)) {
                    Some(fitting) => {
                        let block = small::resize::<P>(&mut self.memory, block, class, fitting);
                        Some(Form::Small { block, class: fitting, is_skewed })
                    }
                    None => Some(Form::Small { block, class, is_skewed }),
                }
            }
        }
    }

    /// Returns the form of a large swarm that may have lost peers, or `None` if no peer is left.
    pub(crate) fn reduce_large(&mut self, index: u32) -> Option<Form<P>> {
        let large = self.larges.large(index);
        let count = large.len() as usize;
        if count == 0 {
            self.larges.remove(index).release(&mut self.memory);
            return None;
        }
        let is_compact = !large.leechers.has_directory() && !large.seeders.has_directory();
        if count > small::peers_max::<P>() / SMALL_AGAIN_SHARE
            || !is_compact
            || !self.memory.has_room_for_block(Purpose::Shrinking)
        {
            return Some(Form::Large { index });
        }
        let class = small::class_for::<P>(count.max(2)).expect("a third of what fits a block fits a block");
        let block = self.memory.take_block(class);
        let mut large = self.larges.remove(index);
        let mut entries = Vec::with_capacity(count);
        large.entries(&self.memory, |entry, seeds| entries.push((entry, seeds)));
        let mut small = SmallMut::edit(self.memory.block_mut(block, class));
        for (entry, seeds) in &entries {
            small.push(entry, *seeds);
        }
        large.release(&mut self.memory);
        let small = Small::<P>::read(self.memory.block(block, class));
        convert(&self.pressure, &self.key, small.peers, Conversion::ToSmall);
        // A table does not count sources as exactly as a block does.
        let is_skewed = self.source_limit.is_some() && (large.is_skewed || small.is_skewed());
        self.reduce_small(block, class, is_skewed)
    }

    /// Converts a full small swarm into a large one with one more peer. Returns its index and the location of that
    /// peer. Changes nothing if some peer finds no place, for lack of memory for more lines.
    fn enlarge(
        &mut self,
        block: Block,
        class: Class,
        is_skewed: bool,
        new: &PeerEntry<P>,
        new_seeds: bool,
    ) -> Result<(u32, At), Rejection> {
        if !self.memory.has_room_for(Purpose::Growing) {
            return Err(Rejection::Full);
        }
        let small = Small::<P>::read(self.memory.block(block, class));
        let entries: Vec<_> = (0..small.peers.len()).map(|index| small.entry(index)).collect();
        let peers = small.peers.to_vec();
        let (leechers, seeders) = (small.peers.len() - small.seeders, small.seeders);
        let seeds_of_tables = self.larges.next_table_seeds(&self.key);
        let mut large = Large::holding(&mut self.memory, seeds_of_tables, leechers, seeders);
        large.is_skewed = is_skewed;
        let (memory, key) = (&mut self.memory, &self.key);
        let mut insert =
            |entry: &PeerEntry<P>, seeds| large.insert(memory, key, (entry.peer.hash(key), entry), seeds);
        let all_are_placed = entries.iter().all(|(entry, seeds)| insert(entry, *seeds).is_some());
        let at = if all_are_placed { insert(new, new_seeds) } else { None };
        let Some(at) = at else {
            large.release(&mut self.memory);
            return Err(Rejection::Full);
        };
        convert(&self.pressure, &self.key, &peers, Conversion::ToLarge);
        if self.pressure.counts_torrents() {
            let present = networks_in_slot(&large, &self.memory, &self.key, &new.peer);
            self.pressure.add_torrent(&new.peer, Networks::ALL.without(present));
        }
        self.memory.put_block(block);
        Ok((self.larges.add(large), at))
    }
}
