//! One shard: a part of the swarms of one family, with the memory they live in. Only one thread uses it at a time.

use core::cmp;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use shoal_source::Recent;
use shoal_types::{Action, Counts};

use crate::api::{Announce, Announced, Listed, Rejection};
use crate::arena::Arena;
use crate::expiry::Sweep;
use crate::family::{Family, PeerRow};
use crate::hash::{HashKey, Seed};
use crate::large::Large;
use crate::memory::Memory;
use crate::peer_line::PeerEntry;
use crate::prefetch::prefetch;
use crate::pressure::Pressure;
use crate::selection::select;
use crate::small::{Small, copy_peers};
use crate::source_limit::SourceLimit;
use crate::stamp::{Stamp, Ticks};
use crate::swarm::{Location, Outcome};
use crate::swarm_line::{Form, Swarm, SwarmLine};
use crate::table::{At, Bucket, Table};
use crate::{Place, sample};

/// Totals of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) swarms: u64,
    pub(crate) seeders: u64,
    pub(crate) leechers: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    pub(crate) unregistered: u64,
}

/// Maximum number of moves, of a few lines each, by which one step of a walk over all torrents advances a renewal.
const LISTED_MOVES_MAX: usize = 32;

impl Tally {
    /// Returns the number of peers that the sweep has removed, for either cause.
    pub(crate) fn forgotten(&self) -> u64 {
        self.expired + self.evicted
    }
}

/// Settings that all shards of a store share.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) key: HashKey,
    pub(crate) timeout_s: u32,
    pub(crate) source_limit: Option<SourceLimit>,
    pub(crate) pressure: Arc<Pressure>,
}

/// Number of completed downloads of a torrent that are counted for one source during one timeout, unless the number of
/// its peers is not limited either. Several clients behind one address may download the same torrent.
const DOWNLOADS_PER_SOURCE_MAX: u32 = 8;

/// A part of the swarms of one family.
#[derive(Debug)]
pub(crate) struct Shard<P: Family> {
    pub(crate) key: HashKey,
    pub(crate) ticks: Ticks,
    pub(crate) source_limit: Option<SourceLimit>,
    pub(crate) pressure: Arc<Pressure>,
    /// Recently completed downloads, so that a peer that leaves and returns is not counted again.
    completions: Recent,
    pub(crate) swarms: Table<SwarmLine<P>>,
    pub(crate) order: Order,
    pub(crate) larges: Larges<P>,
    pub(crate) sweep: Sweep,
    pub(crate) tally: Tally,
    /// Declared last, so that it is dropped after everything that holds its pages.
    pub(crate) memory: Memory,
}

/// The order of a shard's table of swarms. The shard of the other family with the same index has the same order, so
/// that a walk finds both swarms of a torrent in the same window. If either table must be renewed, its shard raises the
/// generation that both share, and the other shard follows.
#[derive(Debug)]
pub(crate) struct Order {
    shard: u64,
    generation: u32,
    shared: Arc<AtomicU32>,
}

impl Order {
    pub(crate) fn new(shard: u64, shared: Arc<AtomicU32>) -> Self {
        Self { shard, generation: 0, shared }
    }

    /// Returns the generation that both families should have.
    #[inline]
    fn wanted(&self) -> u32 {
        self.shared.load(Ordering::Relaxed)
    }

    /// Requests the generation after that of this table.
    fn raise(&self) {
        let next = self.generation.wrapping_add(1);
        // If the other family was first, its generation serves for both.
        let _other_was_first =
            self.shared.compare_exchange(self.generation, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Returns the seed of the tables of swarms with this index, of both families, in one of their generations.
pub(crate) fn seed_of_swarms(key: &HashKey, shard: u64, generation: u32) -> Seed {
    key.seed(shard, u64::from(generation))
}

/// The large swarms of a shard, by index.
#[derive(Debug)]
pub(crate) struct Larges<P: Family> {
    list: Vec<Option<Box<Large<P>>>>,
    vacant: Vec<u32>,
    /// Inputs of the seeds of their tables: a number that no other shard has, and the number of seeds made so far.
    origin: u64,
    made: u64,
}

impl<P: Family> Larges<P> {
    fn new(shard: u64) -> Self {
        // There are few shards, and a peer has less than 256 bytes, so no two shards of a store have the same origin.
        let origin = u64::MAX - (shard << 8 | size_of::<P>() as u64);
        Self { list: Vec::new(), vacant: Vec::new(), origin, made: 0 }
    }

    /// Returns the seeds of the two tables of the next large swarm.
    pub(crate) fn next_table_seeds(&mut self, key: &HashKey) -> [Seed; 2] {
        self.made += 2;
        [key.seed(self.origin, self.made), key.seed(self.origin, self.made + 1)]
    }

    pub(crate) fn add(&mut self, large: Large<P>) -> u32 {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.list.push(None);
            u32::try_from(self.list.len() - 1).expect("a large swarm takes far more than 64 bytes")
        });
        self.list[index as usize] = Some(Box::new(large));
        index
    }

    pub(crate) fn remove(&mut self, index: u32) -> Box<Large<P>> {
        self.vacant.push(index);
        self.list[index as usize].take().expect("a swarm keeps its tables")
    }

    #[inline]
    pub(crate) fn large(&self, index: u32) -> &Large<P> {
        self.list[index as usize].as_deref().expect("a swarm keeps its tables")
    }

    #[inline]
    pub(crate) fn large_mut(&mut self, index: u32) -> &mut Large<P> {
        self.list[index as usize].as_deref_mut().expect("a swarm keeps its tables")
    }
}

impl<P: Family> Shard<P> {
    pub(crate) fn new(arena: Arc<Arena>, rules: &Rules, order: Order) -> Self {
        let Rules { key, timeout_s, source_limit, ref pressure } = *rules;
        Self {
            key: source_limit.map_or(key, |limit| key.with_slots(limit.slots)),
            ticks: Ticks::new(timeout_s),
            source_limit,
            pressure: Arc::clone(pressure),
            completions: Recent::new(timeout_s),
            memory: Memory::new(arena),
            swarms: Table::new(seed_of_swarms(&key, order.shard, order.generation)),
            larges: Larges::new(order.shard),
            order,
            sweep: Sweep::default(),
            tally: Tally::default(),
        }
    }

    /// Returns the location of a swarm.
    #[inline]
    fn find(&self, place: &Place) -> Option<At> {
        self.swarms.find(&self.memory, place.hash, |line| line.slot(&place.info_hash))
    }

    /// Prefetches the line in which the swarm is or would be.
    #[inline]
    pub(crate) fn prefetch_swarm(&self, place: &Place) {
        self.swarms.prefetch(&self.memory, place.hash);
    }

    /// Prefetches the header of a large swarm.
    #[inline]
    pub(crate) fn prefetch_large(&self, place: &Place) {
        if let Some(Form::Large { index }) = self.find(place).and_then(|at| self.form(at)) {
            prefetch(self.larges.large(index));
        }
    }

    /// Prefetches the line in which the peer is or would be, and the lines that an announce with an equal `rng` will
    /// sample.
    #[inline]
    pub(crate) fn prefetch_peers(&self, place: &Place, announce: &Announce<P>, rng: &mut fastrand::Rng) {
        match self.find(place).and_then(|at| self.form(at)) {
            None | Some(Form::Single { .. }) => {}
            Some(Form::Small { block, .. }) => self.memory.prefetch_block(block),
            Some(Form::Large { index }) => {
                let (large, memory) = (self.larges.large(index), &self.memory);
                large.prefetch(memory, &self.key, &announce.peer);
                let wanted = announce.peers_wanted;
                match announce.action {
                    Action::Stop => {}
                    Action::Seed | Action::Complete => {
                        sample::prefetch_table(&large.leechers, memory, wanted, rng);
                    }
                    Action::Leech => {
                        let (seeders, leechers) = (large.seeders.len(), large.leechers.len());
                        let share =
                            sample::share_of_seeders(wanted, seeders as usize, leechers as usize, rng);
                        sample::prefetch_table(&large.seeders, memory, share, rng);
                        sample::prefetch_table(&large.leechers, memory, wanted - share, rng);
                    }
                }
            }
        }
    }

    /// Applies an announce, and writes a sample of peers to `out`.
    pub(crate) fn announce(
        &mut self,
        place: &Place,
        announce: &Announce<P>,
        now_s: u32,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> Result<Announced, Rejection> {
        let now = self.ticks.at(now_s);
        let Some(at) = self.find(place) else {
            return if announce.action == Action::Stop {
                Ok(Announced::default())
            } else {
                self.create(place, announce, now_s)
            };
        };
        let form = self.form(at).expect("the swarm was just found there");
        let outcome = self.apply(&form, announce, now)?;
        self.count(&outcome, &announce.peer);
        let completes = outcome.completes && self.counts_download(place, &announce.peer, now_s);
        let line = self.swarms.line_mut(&mut self.memory, at);
        if completes {
            line.count_completed(at.slot);
        }
        let counts = outcome.counts(line.completed(at.slot));
        match outcome.form {
            Some(new) if new != form => line.set_form(at.slot, &new),
            Some(_) => {}
            None => {
                self.take_out_swarm(at);
                self.settle_swarms();
            }
        }
        let peers = match outcome.form {
            Some(form) if announce.action != Action::Stop => {
                let wanted = announce.peers_wanted.min(out.len() / size_of::<P>());
                let seeds = announce.action != Action::Leech;
                self.sample(&form, &outcome.location, seeds, wanted, rng, out)
            }
            _ => 0,
        };
        if let Some(Form::Large { index }) = outcome.form {
            self.larges.large_mut(index).settle(&mut self.memory, &self.key);
        }
        Ok(Announced { counts, peers })
    }

    /// Returns the leechers of a large swarm in the order of their table, see [`Swarms::learned_order`](crate::Swarms).
    pub(crate) fn learned_order(&self, place: &Place) -> Vec<P> {
        let Some(Form::Large { index }) = self.find(place).and_then(|at| self.form(at)) else {
            return Vec::new();
        };
        let table = &self.larges.large(index).leechers;
        let lines = (0..table.end()).filter_map(|number| table.line(&self.memory, table.place(number)));
        lines.flat_map(|line| line.peers().iter().copied()).collect()
    }

    /// Returns the counts of a swarm.
    pub(crate) fn scrape(&self, place: &Place) -> Counts {
        let Some(at) = self.find(place) else { return Counts::default() };
        let line = self.swarms.line(&self.memory, at).expect("the swarm was just found there");
        self.counts(line, at.slot)
    }

    /// Returns the counts of a swarm, and writes a sample for a peer that is not a member of it.
    pub(crate) fn serve_non_member(
        &self,
        place: &Place,
        seeds: bool,
        peers_wanted: usize,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> Announced {
        let Some(at) = self.find(place) else { return Announced::default() };
        let line = self.swarms.line(&self.memory, at).expect("the swarm was just found there");
        let wanted = peers_wanted.min(out.len() / size_of::<P>());
        let peers = self.sample_for_non_member(&line.form(at.slot), seeds, wanted, rng, out);
        Announced { counts: self.counts(line, at.slot), peers }
    }

    /// Lists the swarms whose position is among `positions`, in no particular order. Returns whether they are in the
    /// order of `generation` and in no other.
    pub(crate) fn list(
        &self,
        generation: u32,
        positions: RangeInclusive<u32>,
        listed: &mut Vec<Listed>,
    ) -> bool {
        let in_order = generation == self.order.generation && self.swarms.former().is_none();
        if in_order {
            self.swarms.visit_between(&self.memory, &self.key, positions, |line, slot| {
                listed.push(Listed { info_hash: line.info_hash(slot), counts: self.counts(line, slot) });
            });
        }
        in_order
    }

    /// Returns the counts of the swarm in a slot.
    fn counts(&self, line: &SwarmLine<P>, slot: usize) -> Counts {
        let (seeders, leechers) = self.roles(&line.form(slot));
        Counts { seeders, leechers, completed: line.completed(slot) }
    }

    /// Returns the numbers of seeders and leechers of a swarm.
    #[inline]
    pub(crate) fn roles(&self, form: &Form<P>) -> (u32, u32) {
        match form {
            Form::Single { seeds, .. } => (u32::from(*seeds), u32::from(!*seeds)),
            Form::Small { block, .. } => {
                let header = self.memory.block(*block);
                (u32::from(header[0]), u32::from(header[1]))
            }
            Form::Large { index } => {
                let large = self.larges.large(*index);
                (large.seeders.len(), large.leechers.len())
            }
        }
    }

    /// Returns the form of the swarm at `at`.
    #[inline]
    pub(crate) fn form(&self, at: At) -> Option<Form<P>> {
        let line = self.swarms.line(&self.memory, at)?;
        (at.slot < line.len()).then(|| line.form(at.slot))
    }

    /// Removes a swarm without peers from the table. The caller lets the table settle some time afterwards.
    pub(crate) fn take_out_swarm(&mut self, at: At) {
        self.swarms.remove(&mut self.memory, &self.key, at);
        self.tally.swarms -= 1;
    }

    /// Creates a swarm with its first peer, which receives no peers.
    fn create(&mut self, place: &Place, announce: &Announce<P>, now_s: u32) -> Result<Announced, Rejection> {
        if !self.pressure.admits(&announce.peer) {
            return Err(Rejection::OverShare);
        }
        if !self.memory.has_room_for_swarm() {
            return Err(Rejection::Full);
        }
        let seeds = announce.action != Action::Leech;
        let completes = announce.action == Action::Complete;
        let stamp = Stamp::new(self.ticks.at(now_s), completes);
        let entry = PeerEntry { peer: announce.peer, stamp };
        let completed = u32::from(completes && self.counts_download(place, &announce.peer, now_s));
        let swarm = Swarm::new(&place.info_hash, completed, entry, seeds);
        self.insert_swarm(place, &swarm)?;
        self.pressure.add(&announce.peer);
        self.settle_swarms();
        self.tally.swarms += 1;
        self.tally.seeders += u64::from(seeds);
        self.tally.leechers += u64::from(!seeds);
        let counts = Counts { seeders: u32::from(seeds), leechers: u32::from(!seeds), completed };
        Ok(Announced { counts, peers: 0 })
    }

    /// Inserts a swarm. Refuses it if the table has no free slot near its home and a renewal is already in progress. To
    /// cause that, an attacker must have learned the new order while the table was being renewed, with as many
    /// announces as before.
    fn insert_swarm(&mut self, place: &Place, swarm: &Swarm<P>) -> Result<(), Rejection> {
        if self.swarms.insert(&mut self.memory, place.hash, swarm).is_none() {
            self.renew_swarms();
            self.swarms.insert(&mut self.memory, place.hash, swarm).ok_or(Rejection::Full)?;
        }
        Ok(())
    }

    /// Adapts the table of swarms to its number of entries. Returns whether it changed anything.
    #[inline]
    pub(crate) fn settle_swarms(&mut self) -> bool {
        if self.swarms.is_due() {
            self.renew_swarms();
        }
        self.swarms.settle(&mut self.memory, &self.key)
    }

    /// Begins the renewal of the table of swarms if it is due.
    #[cold]
    fn renew_swarms(&mut self) {
        if self.swarms.is_due() {
            self.order.raise();
            self.follow_order();
        }
    }

    /// Begins a renewal, or lets the current one continue.
    #[cfg(test)]
    pub(crate) fn renew_order(&mut self) {
        self.order.raise();
        self.follow_order();
    }

    /// Begins the renewal of the table of swarms if its order is not the one that both families should have.
    pub(crate) fn follow_order(&mut self) {
        let wanted = self.order.wanted();
        if wanted != self.order.generation && self.swarms.former().is_none() {
            self.order.generation = wanted;
            self.swarms.renew(seed_of_swarms(&self.key, self.order.shard, wanted));
        }
    }

    /// Advances a renewal of the table of swarms by a bounded amount, so that the table can be listed. Once it has a
    /// single order, returns the generation of this order and the number of lines.
    pub(crate) fn order_for_list(&mut self) -> Option<(u32, u32)> {
        self.follow_order();
        for _ in 0..LISTED_MOVES_MAX {
            if self.swarms.former().is_none() || !self.settle_swarms() {
                break;
            }
        }
        self.swarms.former().is_none().then_some((self.order.generation, self.swarms.end()))
    }

    /// Returns whether the download that a peer has completed should be counted.
    #[cold]
    fn counts_download(&mut self, place: &Place, peer: &P, now_s: u32) -> bool {
        let (torrent, whole) = (place.hash, peer.as_bytes());
        let of_peer = whole.chunks(8).fold(torrent, |hash, chunk| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            self.key.hash(hash, u64::from_le_bytes(bytes), 0)
        });
        if self.completions.is_known(of_peer, now_s) {
            return false;
        }
        let of_source = self.key.hash(torrent, peer.source(), 1);
        // The source comes first: one that is refused must not use entries of others.
        let is_counted =
            self.source_limit.is_none() || self.completions.admit(of_source, DOWNLOADS_PER_SOURCE_MAX, now_s);
        is_counted && self.completions.admit(of_peer, 1, now_s)
    }

    /// Updates the totals after one announce by `peer`.
    #[inline]
    fn count(&mut self, outcome: &Outcome<P>, peer: &P) {
        let (before, after) = (outcome.before, outcome.after);
        match (after.0 + after.1).cmp(&(before.0 + before.1)) {
            cmp::Ordering::Greater => self.pressure.add(peer),
            cmp::Ordering::Less => self.pressure.remove(peer),
            cmp::Ordering::Equal => {}
        }
        self.tally.seeders = self.tally.seeders + u64::from(after.0) - u64::from(before.0);
        self.tally.leechers = self.tally.leechers + u64::from(after.1) - u64::from(before.1);
    }

    /// Samples peers of a swarm for one of its members. Returns how many.
    fn sample(
        &self,
        form: &Form<P>,
        location: &Location,
        seeds: bool,
        wanted: usize,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> usize {
        if wanted == 0 {
            return 0;
        }
        let bytes = match (form, location) {
            (Form::Small { block, is_skewed, .. }, Location::Small(index)) => {
                let small = Small::<P>::read(self.memory.block(*block));
                let seeds = *index < small.seeders;
                self.sample_small(&small, *is_skewed, seeds, Some(*index), wanted, rng, out)
            }
            (Form::Large { index }, Location::Large(at)) => {
                self.sample_large(self.larges.large(*index), at.seeds, Some(at.at), wanted, rng, out)
            }
            (form, Location::Unregistered) => {
                return self.sample_for_non_member(form, seeds, wanted, rng, out);
            }
            _ => 0,
        };
        bytes / size_of::<P>()
    }

    /// Samples peers of a swarm for a peer that is not a member. Returns how many.
    fn sample_for_non_member(
        &self,
        form: &Form<P>,
        seeds: bool,
        wanted: usize,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> usize {
        if wanted == 0 {
            return 0;
        }
        let bytes = match form {
            Form::Single { seeds: stored_seeds, .. } if seeds && *stored_seeds => 0,
            Form::Single { entry, .. } => copy_peers(&[entry.peer], out),
            Form::Small { block, is_skewed, .. } => {
                let small = Small::<P>::read(self.memory.block(*block));
                self.sample_small(&small, *is_skewed, seeds, None, wanted, rng, out)
            }
            Form::Large { index } => {
                self.sample_large(self.larges.large(*index), seeds, None, wanted, rng, out)
            }
        };
        bytes / size_of::<P>()
    }

    /// Samples a small swarm, by the rules for skewed swarms if it is one. Returns the number of bytes written.
    #[inline(always)]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of a sample, and whether the swarm is skewed"
    )]
    fn sample_small(
        &self,
        small: &Small<'_, P>,
        is_skewed: bool,
        seeds: bool,
        member: Option<usize>,
        wanted: usize,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> usize {
        if !is_skewed {
            return sample::sample_small_for(small, seeds, member, wanted, rng, out);
        }
        select::<P>(wanted, rng, out, |wanted, rng, out| {
            sample::sample_small_for(small, seeds, member, wanted, rng, out)
        })
    }

    /// As `sample_small`, for a large swarm.
    #[inline(always)]
    fn sample_large(
        &self,
        large: &Large<P>,
        seeds: bool,
        member: Option<At>,
        wanted: usize,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> usize {
        if !large.is_skewed {
            return sample::sample_large_for(large, &self.memory, seeds, member, wanted, rng, out);
        }
        select::<P>(wanted, rng, out, |wanted, rng, out| {
            sample::sample_large_for(large, &self.memory, seeds, member, wanted, rng, out)
        })
    }
}
