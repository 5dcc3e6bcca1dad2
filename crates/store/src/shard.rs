//! One shard: a part of the swarms of one family, with the memory they live in. Only one thread uses it at a time.

use core::cmp;
use core::ops::RangeInclusive;
use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_source::Recent;
use shoal_types::{Action, Counts, InfoHash};

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
use crate::swarm_line::{DOWNLOADS_MAX, Form, LINE_START_BYTES, Swarm, SwarmRow};
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
    pub(crate) swarms: Table<P::SwarmLine>,
    /// The downloads of torrents that have [`DOWNLOADS_MAX`] or more.
    many_downloads: BTreeMap<InfoHash, u32>,
    pub(crate) larges: Larges<P>,
    pub(crate) sweep: Sweep,
    pub(crate) tally: Tally,
    /// Declared last, so that it is dropped after everything that holds its pages.
    pub(crate) memory: Memory,
}

/// Returns the seed of the tables of swarms of the shards with this index. It is the same for both families, so that a
/// walk finds both swarms of a torrent together.
pub(crate) fn seed_of_swarms(key: &HashKey, shard: u64) -> Seed {
    key.seed(shard, 0)
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
    /// Creates the shard with this index, which no other shard of the family has.
    pub(crate) fn new(arena: Arc<Arena>, rules: &Rules, index: u64) -> Self {
        let Rules { key, timeout_s, source_limit, ref pressure } = *rules;
        Self {
            key: source_limit.map_or(key, |limit| key.with_slots(limit.slots)),
            ticks: Ticks::new(timeout_s),
            source_limit,
            pressure: Arc::clone(pressure),
            completions: Recent::new(timeout_s),
            memory: Memory::new(arena),
            swarms: Table::new(seed_of_swarms(&key, index)),
            many_downloads: BTreeMap::new(),
            larges: Larges::new(index),
            sweep: Sweep::default(),
            tally: Tally::default(),
        }
    }

    /// Returns the location of a swarm.
    #[inline]
    fn find(&self, place: &Place) -> Option<At> {
        if let Some(at) = place.hint
            && let Some(line) = self.swarms.line(&self.memory, at.line)
            && at.slot < line.len()
            && line.info_hash(at.slot) == place.info_hash
        {
            return Some(at);
        }
        self.swarms.find(&self.memory, place.hash, |line| line.slot(&place.info_hash))
    }

    /// Prefetches the line in which the swarm is or would be.
    #[inline]
    pub(crate) fn prefetch_swarm(&self, place: &Place) {
        self.swarms.prefetch(&self.memory, place.hash, LINE_START_BYTES);
    }

    /// Prefetches the peers of a small swarm, or the header of a large one, and notes in `place` where the swarm was
    /// found. Returns whether it is large.
    #[inline]
    pub(crate) fn prefetch_large(&self, place: &mut Place) -> bool {
        place.hint = self.find(place);
        match place.hint.and_then(|at| self.form(at)) {
            None | Some(Form::Single { .. }) => {}
            Some(Form::Small { block, .. }) => self.memory.prefetch_block(block),
            Some(Form::Large { index }) => {
                prefetch(self.larges.large(index));
                return true;
            }
        }
        false
    }

    /// Prefetches the lines in which the peer is or would be in a large swarm, and those that an announce with an equal
    /// `rng` will sample.
    #[inline]
    pub(crate) fn prefetch_peers(&self, place: &Place, announce: &Announce<P>, rng: &mut fastrand::Rng) {
        let Some(Form::Large { index }) = self.find(place).and_then(|at| self.form(at)) else { return };
        let (large, memory) = (self.larges.large(index), &self.memory);
        large.prefetch(memory, &self.key, &announce.peer);
        let wanted = announce.peers_wanted;
        match announce.action {
            Action::Stop => {}
            Action::Seed | Action::Complete => sample::prefetch_table(&large.leechers, memory, wanted, rng),
            Action::Leech => {
                let (seeders, leechers) = (large.seeders.len(), large.leechers.len());
                let share = sample::share_of_seeders(wanted, seeders as usize, leechers as usize, rng);
                sample::prefetch_table(&large.seeders, memory, share, rng);
                sample::prefetch_table(&large.leechers, memory, wanted - share, rng);
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
        let form = self.swarm_line(at).form(at.slot);
        let outcome = self.apply(&form, announce, now)?;
        self.count(&outcome, &announce.peer);
        if outcome.completes && self.counts_download(place, &announce.peer, now_s) {
            self.count_download(at, &place.info_hash);
        }
        let line = self.swarms.line_mut(&mut self.memory, at);
        if let Some(new) = outcome.form.filter(|new| *new != form) {
            line.set_form(at.slot, &new);
        }
        let downloads = line.downloads(at.slot);
        let counts = outcome.counts(self.completed(downloads, &place.info_hash));
        if outcome.form.is_none() {
            self.take_out_swarm(at);
            self.swarms.settle(&mut self.memory, &self.key, at.line);
        }
        let peers = match outcome.form {
            Some(form) if announce.action != Action::Stop => {
                let wanted = announce.peers_wanted.min(out.len() / size_of::<P>());
                let seeds = announce.action != Action::Leech;
                self.sample(&form, &outcome.location, seeds, wanted, rng, out)
            }
            _ => 0,
        };
        Ok(Announced { counts, peers })
    }

    /// Returns the leechers of a large swarm in the order of their table, see [`Swarms::learned_order`](crate::Swarms).
    pub(crate) fn learned_order(&self, place: &Place) -> Vec<P> {
        let Some(Form::Large { index }) = self.find(place).and_then(|at| self.form(at)) else {
            return Vec::new();
        };
        let table = &self.larges.large(index).leechers;
        let lines = (0..table.end()).filter_map(|number| table.line(&self.memory, number));
        lines.flat_map(|line| line.peers().iter().copied()).collect()
    }

    /// Returns the counts of a swarm.
    pub(crate) fn scrape(&self, place: &Place) -> Counts {
        self.find(place).map_or_else(Counts::default, |at| self.counts(at, &place.info_hash))
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
        let wanted = peers_wanted.min(out.len() / size_of::<P>());
        let form = self.swarm_line(at).form(at.slot);
        let peers = self.sample_for_non_member(&form, seeds, wanted, rng, out);
        Announced { counts: self.counts(at, &place.info_hash), peers }
    }

    /// Returns the last selector of the segment of swarms in which `selector` is.
    pub(crate) fn last_selector(&self, selector: u32) -> u32 {
        self.swarms.last_selector(selector)
    }

    /// Lists the swarms whose selectors are among `selectors`, which must belong to one segment, in no particular order.
    pub(crate) fn list(&self, selectors: RangeInclusive<u32>, listed: &mut Vec<Listed>) {
        self.swarms.visit_segment(&self.memory, &self.key, selectors, |line, slot| {
            let info_hash = line.info_hash(slot);
            listed.push(Listed { info_hash, counts: self.counts_of(line, slot, &info_hash) });
        });
    }

    fn swarm_line(&self, at: At) -> &P::SwarmLine {
        self.swarms.line(&self.memory, at.line).expect("the swarm was just found there")
    }

    /// Returns the counts of a swarm that was just found.
    fn counts(&self, at: At, info_hash: &InfoHash) -> Counts {
        self.counts_of(self.swarm_line(at), at.slot, info_hash)
    }

    fn counts_of(&self, line: &P::SwarmLine, slot: usize, info_hash: &InfoHash) -> Counts {
        let (seeders, leechers) = self.roles(&line.form(slot));
        Counts { seeders, leechers, completed: self.completed(line.downloads(slot), info_hash) }
    }

    /// Returns the completed downloads of a torrent whose line has this number, which may be the maximum.
    #[inline]
    fn completed(&self, downloads: u8, info_hash: &InfoHash) -> u32 {
        match downloads {
            DOWNLOADS_MAX => self.many_downloads.get(info_hash).copied().unwrap_or(DOWNLOADS_MAX.into()),
            downloads => downloads.into(),
        }
    }

    /// Counts a completed download of a swarm that was just found.
    #[cold]
    fn count_download(&mut self, at: At, info_hash: &InfoHash) {
        let line = self.swarms.line_mut(&mut self.memory, at);
        if line.downloads(at.slot) < DOWNLOADS_MAX {
            line.count_download(at.slot);
        } else {
            let downloads = self.many_downloads.entry(*info_hash).or_insert(DOWNLOADS_MAX.into());
            *downloads = downloads.saturating_add(1);
        }
    }

    /// Returns the numbers of seeders and leechers of a swarm.
    #[inline]
    pub(crate) fn roles(&self, form: &Form<P>) -> (u32, u32) {
        match form {
            Form::Single { seeds, .. } => (u32::from(*seeds), u32::from(!*seeds)),
            Form::Small { block, .. } => {
                let header = self.memory.block_start(*block, 2);
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
        let line = self.swarms.line(&self.memory, at.line)?;
        (at.slot < line.len()).then(|| line.form(at.slot))
    }

    /// Removes a swarm without peers from the table. The caller lets the table settle some time afterwards.
    pub(crate) fn take_out_swarm(&mut self, at: At) {
        let line = self.swarm_line(at);
        if line.downloads(at.slot) == DOWNLOADS_MAX {
            let info_hash = line.info_hash(at.slot);
            self.many_downloads.remove(&info_hash);
        }
        self.swarms.remove(&mut self.memory, at);
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
        let downloads = u8::from(completes && self.counts_download(place, &announce.peer, now_s));
        let swarm = Swarm::new(&place.info_hash, downloads, entry, seeds);
        let inserted = self.swarms.insert(&mut self.memory, &self.key, place.hash, &swarm);
        inserted.ok_or(Rejection::Full)?;
        self.pressure.add(&announce.peer);
        self.tally.swarms += 1;
        self.tally.seeders += u64::from(seeds);
        self.tally.leechers += u64::from(!seeds);
        let counts =
            Counts { seeders: u32::from(seeds), leechers: u32::from(!seeds), completed: downloads.into() };
        Ok(Announced { counts, peers: 0 })
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
            (Form::Small { block, class, is_skewed }, Location::Small(index)) => {
                let small = Small::<P>::read(self.memory.block(*block, *class));
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
            Form::Small { block, class, is_skewed } => {
                let small = Small::<P>::read(self.memory.block(*block, *class));
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
