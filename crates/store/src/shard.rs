//! One shard: a share of the swarms of one family, with the memory they live in. Used by one thread at a time.

use core::cmp;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use shoal_source::Recent;

use crate::api::{Action, Announce, Announced, Counts, Listed, Rejection};
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
use crate::swarm::{Landed, Outcome};
use crate::swarm_line::{Form, Swarm, SwarmLine};
use crate::table::{At, Bucket, Table};
use crate::{Place, sample};

/// Sums over a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) swarms: u64,
    pub(crate) seeders: u64,
    pub(crate) leechers: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    pub(crate) unregistered: u64,
}

/// Moves of a few lines each by which a walk over all torrents carries a renewal on at a time.
const LISTED_MOVES_MAX: usize = 32;

impl Tally {
    /// Peers that the sweep has forgotten, for whatever cause.
    pub(crate) fn forgotten(&self) -> u64 {
        self.expired + self.evicted
    }
}

/// What all shards of a store have in common.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) key: HashKey,
    pub(crate) timeout_s: u32,
    pub(crate) source_limit: Option<SourceLimit>,
    pub(crate) pressure: Arc<Pressure>,
}

/// Completed downloads of a torrent that one source is counted in the time of one timeout, unless the number of its
/// peers is not limited either. Behind one address there may be several that download the same.
const DOWNLOADS_PER_SOURCE_MAX: u32 = 8;

/// The shard.
#[derive(Debug)]
pub(crate) struct Shard<P: Family> {
    pub(crate) key: HashKey,
    pub(crate) ticks: Ticks,
    pub(crate) source_limit: Option<SourceLimit>,
    pub(crate) pressure: Arc<Pressure>,
    /// Who completed which download lately: a peer that leaves is not counted again when it comes back.
    completions: Recent,
    pub(crate) swarms: Table<SwarmLine<P>>,
    pub(crate) order: Order,
    pub(crate) larges: Larges<P>,
    pub(crate) sweep: Sweep,
    pub(crate) tally: Tally,
    /// Last, so that it goes after everything that holds pages of it.
    pub(crate) memory: Memory,
}

/// The order of a shard's table of swarms, which is that of the other family's shard with the same index, so that
/// a walk finds a torrent of both in the same window of both. Whichever of the two has to be renewed raises the generation
/// that both share, and the other one follows.
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

    /// The generation that both families are to have.
    #[inline]
    fn wanted(&self) -> u32 {
        self.shared.load(Ordering::Relaxed)
    }

    /// Asks for the generation after that of this table.
    fn raise(&self) {
        let next = self.generation.wrapping_add(1);
        // If the other family was first, that one will do.
        let _other_was_first =
            self.shared.compare_exchange(self.generation, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The seed of the tables of swarms of both families with this index, in one of their generations.
pub(crate) fn seed_of_swarms(key: &HashKey, shard: u64, generation: u32) -> Seed {
    key.seed(shard, u64::from(generation))
}

/// The large swarms of a shard, by index.
#[derive(Debug)]
pub(crate) struct Larges<P: Family> {
    list: Vec<Option<Box<Large<P>>>>,
    vacant: Vec<u32>,
    /// What the seeds of their tables are made of: a number that no other shard has, and how many there were.
    origin: u64,
    made: u64,
}

impl<P: Family> Larges<P> {
    fn new(shard: u64) -> Self {
        // Shards are few, and a peer has less than 256 bytes: no two shards of a store have the same origin.
        let origin = u64::MAX - (shard << 8 | size_of::<P>() as u64);
        Self { list: Vec::new(), vacant: Vec::new(), origin, made: 0 }
    }

    /// The seeds of the two tables of the next large swarm.
    pub(crate) fn next_seeds(&mut self, key: &HashKey) -> [Seed; 2] {
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

    /// Where a swarm is.
    #[inline]
    fn find(&self, place: &Place) -> Option<At> {
        self.swarms.find(&self.memory, place.hash, |line| line.slot(&place.info_hash))
    }

    /// Starts loading the line in which the swarm is or would be.
    #[inline]
    pub(crate) fn prefetch_swarm(&self, place: &Place) {
        self.swarms.prefetch(&self.memory, place.hash);
    }

    /// Starts loading what a large swarm is made of.
    #[inline]
    pub(crate) fn prefetch_large(&self, place: &Place) {
        if let Some(Form::Large { index }) = self.find(place).and_then(|at| self.form(at)) {
            prefetch(self.larges.large(index));
        }
    }

    /// Starts loading where the peer is or would be, and what an announce with an equal `rng` will sample.
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

    /// Applies an announce and samples.
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
                self.sample(&form, &outcome.landed, seeds, wanted, rng, out)
            }
            _ => 0,
        };
        if let Some(Form::Large { index }) = outcome.form {
            self.larges.large_mut(index).settle(&mut self.memory, &self.key);
        }
        Ok(Announced { counts, peers })
    }

    /// The leechers of a large swarm in the order of their table, see [`Swarms::learned_order`](crate::Swarms).
    pub(crate) fn learned_order(&self, place: &Place) -> Vec<P> {
        let Some(Form::Large { index }) = self.find(place).and_then(|at| self.form(at)) else {
            return Vec::new();
        };
        let table = &self.larges.large(index).leechers;
        let lines = (0..table.end()).filter_map(|number| table.line(&self.memory, table.place(number)));
        lines.flat_map(|line| line.peers().iter().copied()).collect()
    }

    /// The counts of a swarm.
    pub(crate) fn scrape(&self, place: &Place) -> Counts {
        let Some(at) = self.find(place) else { return Counts::default() };
        let line = self.swarms.line(&self.memory, at).expect("the swarm was just found there");
        self.counts(line, at.slot)
    }

    /// The counts of a swarm, and a sample for somebody who is not in it.
    pub(crate) fn serve_guest(
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
        let peers = self.sample_for_guest(&line.form(at.slot), seeds, wanted, rng, out);
        Announced { counts: self.counts(line, at.slot), peers }
    }

    /// Lists the swarms whose position is among `positions`, in no particular order. Returns whether they are in the order
    /// of `generation`, and that only.
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

    /// The counts of the swarm in a slot.
    fn counts(&self, line: &SwarmLine<P>, slot: usize) -> Counts {
        let (seeders, leechers) = self.roles(&line.form(slot));
        Counts { seeders, leechers, completed: line.completed(slot) }
    }

    /// Seeders and leechers of a swarm.
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

    /// The form of the swarm at `at`.
    #[inline]
    pub(crate) fn form(&self, at: At) -> Option<Form<P>> {
        let line = self.swarms.line(&self.memory, at)?;
        (at.slot < line.len()).then(|| line.form(at.slot))
    }

    /// Takes a swarm without peers out of the table, which is to settle some time afterwards.
    pub(crate) fn take_out_swarm(&mut self, at: At) {
        self.swarms.remove(&mut self.memory, &self.key, at);
        self.tally.swarms -= 1;
    }

    /// A new swarm with its first peer, who is handed nobody.
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

    /// Adds a swarm. Refused where the table has no place for it near its home and a renewal is under way already: whoever
    /// brings that about has learned an order anew while the table was being renewed, with as many announces.
    fn insert_swarm(&mut self, place: &Place, swarm: &Swarm<P>) -> Result<(), Rejection> {
        if self.swarms.insert(&mut self.memory, place.hash, swarm).is_none() {
            self.renew_swarms();
            self.swarms.insert(&mut self.memory, place.hash, swarm).ok_or(Rejection::Full)?;
        }
        Ok(())
    }

    /// Lets the table of swarms adapt to what is in it. Returns whether it did.
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

    /// Begins a renewal, or lets the present one go on.
    #[cfg(test)]
    pub(crate) fn renew_order(&mut self) {
        self.order.raise();
        self.follow_order();
    }

    /// Begins the renewal of the table of swarms if its order is no longer that which both families are to have.
    pub(crate) fn follow_order(&mut self) {
        let wanted = self.order.wanted();
        if wanted != self.order.generation && self.swarms.former().is_none() {
            self.order.generation = wanted;
            self.swarms.renew(seed_of_swarms(&self.key, self.order.shard, wanted));
        }
    }

    /// Carries a renewal of the table of swarms on, a bounded piece, so that it can be listed. Returns the generation of
    /// its order once it has one only, and how many lines there are.
    pub(crate) fn order_for_list(&mut self) -> Option<(u32, u32)> {
        self.follow_order();
        for _ in 0..LISTED_MOVES_MAX {
            if self.swarms.former().is_none() || !self.settle_swarms() {
                break;
            }
        }
        self.swarms.former().is_none().then_some((self.order.generation, self.swarms.end()))
    }

    /// Whether the download that a peer has completed is to be counted.
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
        // First the source: one that is turned away takes no more room of others.
        let is_counted =
            self.source_limit.is_none() || self.completions.admit(of_source, DOWNLOADS_PER_SOURCE_MAX, now_s);
        is_counted && self.completions.admit(of_peer, 1, now_s)
    }

    /// Keeps the sums in step with one announce by `peer`.
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

    /// Hands out peers of a swarm to one of them. Returns how many.
    fn sample(
        &self,
        form: &Form<P>,
        landed: &Landed,
        seeds: bool,
        wanted: usize,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> usize {
        if wanted == 0 {
            return 0;
        }
        let bytes = match (form, landed) {
            (Form::Small { block, is_skewed, .. }, Landed::Small(index)) => {
                let small = Small::<P>::read(self.memory.block(*block));
                let seeds = *index < small.seeders;
                self.sample_small(&small, *is_skewed, seeds, Some(*index), wanted, rng, out)
            }
            (Form::Large { index }, Landed::Large(at)) => {
                self.sample_large(self.larges.large(*index), at.seeds, Some(at.at), wanted, rng, out)
            }
            (form, Landed::Unregistered) => return self.sample_for_guest(form, seeds, wanted, rng, out),
            _ => 0,
        };
        bytes / size_of::<P>()
    }

    /// Hands out peers of a swarm to somebody who is not in it. Returns how many.
    fn sample_for_guest(
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
            Form::Single { seeds: resident_seeds, .. } if seeds && *resident_seeds => 0,
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

    /// Samples a small swarm, by the rules for skewed ones if it is one. Returns the bytes written.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "those of a sample, and whether the swarm is skewed")]
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

    /// As `sample_small`, of a large swarm.
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
