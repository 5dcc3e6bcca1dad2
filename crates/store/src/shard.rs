//! One shard: a share of the swarms of one family, with the memory they live in. Used by one thread at a time.

use core::cmp::Ordering;
use core::ops::RangeInclusive;
use std::sync::Arc;

use shoal_source::Recent;

use crate::api::{Action, Announce, Announced, Counts, Listed, Rejection};
use crate::arena::Arena;
use crate::expiry::Sweep;
use crate::family::Family;
use crate::hash::HashKey;
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
    pub(crate) larges: Larges<P>,
    pub(crate) sweep: Sweep,
    pub(crate) tally: Tally,
    /// Last, so that it goes after everything that holds pages of it.
    pub(crate) memory: Memory,
}

/// The large swarms of a shard, by index.
#[derive(Debug)]
pub(crate) struct Larges<P: Family> {
    list: Vec<Option<Box<Large<P>>>>,
    vacant: Vec<u32>,
}

impl<P: Family> Larges<P> {
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
    pub(crate) fn new(arena: Arc<Arena>, rules: &Rules) -> Self {
        let Rules { key, timeout_s, source_limit, ref pressure } = *rules;
        Self {
            key: source_limit.map_or(key, |limit| key.with_slots(limit.slots)),
            ticks: Ticks::new(timeout_s),
            source_limit,
            pressure: Arc::clone(pressure),
            completions: Recent::new(timeout_s),
            memory: Memory::new(arena),
            swarms: Table::new(),
            larges: Larges { list: Vec::new(), vacant: Vec::new() },
            sweep: Sweep::default(),
            tally: Tally::default(),
        }
    }

    /// Where a swarm is.
    #[inline]
    fn find(&self, place: &Place) -> Option<At> {
        self.swarms.find(&self.memory, place.position(), |line| line.slot(&place.info_hash))
    }

    /// Starts loading the line in which the swarm is or would be.
    #[inline]
    pub(crate) fn prefetch_swarm(&self, place: &Place) {
        self.swarms.prefetch(&self.memory, place.position());
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
                self.swarms.settle(&mut self.memory, &self.key);
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

    /// The counts of a swarm.
    pub(crate) fn scrape(&self, place: &Place) -> Counts {
        let Some(at) = self.find(place) else { return Counts::default() };
        let line = self.swarms.line(&self.memory, at.line).expect("the swarm was just found there");
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
        let line = self.swarms.line(&self.memory, at.line).expect("the swarm was just found there");
        let wanted = peers_wanted.min(out.len() / size_of::<P>());
        let peers = self.sample_for_guest(&line.form(at.slot), seeds, wanted, rng, out);
        Announced { counts: self.counts(line, at.slot), peers }
    }

    /// Lists the swarms whose position is among `positions`, in no particular order.
    pub(crate) fn list(&self, positions: RangeInclusive<u32>, listed: &mut Vec<Listed>) {
        self.swarms.visit_between(&self.memory, &self.key, positions, |line, slot| {
            listed.push(Listed { info_hash: line.info_hash(slot), counts: self.counts(line, slot) });
        });
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
        let line = self.swarms.line(&self.memory, at.line)?;
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
        self.pressure.add(&announce.peer);
        let swarm = Swarm::new(&place.info_hash, completed, entry, seeds);
        self.swarms.insert(&mut self.memory, place.position(), &swarm);
        self.swarms.settle(&mut self.memory, &self.key);
        self.tally.swarms += 1;
        self.tally.seeders += u64::from(seeds);
        self.tally.leechers += u64::from(!seeds);
        let counts = Counts { seeders: u32::from(seeds), leechers: u32::from(!seeds), completed };
        Ok(Announced { counts, peers: 0 })
    }

    /// Whether the download that a peer has completed is to be counted.
    #[cold]
    fn counts_download(&mut self, place: &Place, peer: &P, now_s: u32) -> bool {
        let (torrent, whole) = (place.hash(), peer.as_bytes());
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
            Ordering::Greater => self.pressure.add(peer),
            Ordering::Less => self.pressure.remove(peer),
            Ordering::Equal => {}
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
        let sample = |wanted, rng: &mut fastrand::Rng, out: &mut [u8]| {
            sample::sample_small_for(small, seeds, member, wanted, rng, out)
        };
        if is_skewed { select::<P>(wanted, rng, out, sample) } else { sample(wanted, rng, out) }
    }

    /// As `sample_small`, of a large swarm.
    fn sample_large(
        &self,
        large: &Large<P>,
        seeds: bool,
        member: Option<At>,
        wanted: usize,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> usize {
        let sample = |wanted, rng: &mut fastrand::Rng, out: &mut [u8]| {
            sample::sample_large_for(large, &self.memory, seeds, member, wanted, rng, out)
        };
        if large.is_skewed { select::<P>(wanted, rng, out, sample) } else { sample(wanted, rng, out) }
    }
}
