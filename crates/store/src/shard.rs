//! One shard: a part of the swarms of one family, with the memory they live in. Only one thread uses it at a time.
//!
//! Most announces only renew the stamp of their peer, so these have a short path (`renew`). The general path would have
//! the same effect at twice the cost: inlined into one function, it is 17 KB of code, mostly moves between the stack
//! and registers.

mod downloads;
mod larges;
mod listing;
mod prefetch;
mod sampling;
mod walk;

use core::cmp;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shoal_base::change_buffer::ChangeBuffer;
use shoal_base::source::{Networks, Recent};
use shoal_base::{Action, Counts, InfoHash, PeerChange};

pub(crate) use self::larges::Larges;
use crate::Place;
use crate::age::{AgeClock, AgeStamp};
use crate::api::{Announce, Announced, Rejection};
use crate::expiry::Sweep;
use crate::family::{Family, PeerRow};
use crate::hash::{HashKey, Seed};
use crate::memory::Memory;
use crate::memory::arena::Arena;
use crate::pressure::Pressure;
use crate::retained::{Retained, Retention};
use crate::source_limit::SourceLimit;
use crate::stamp::{Stamp, Ticks};
use crate::swarm::line::{DOWNLOADS_MAX, Form, Swarm, SwarmRow};
use crate::swarm::peer_line::PeerEntry;
use crate::swarm::small::SmallMut;
use crate::swarm::{Change, Outcome};
use crate::table::info_hash;
use crate::table::{At, Bucket, Table};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) swarms: u64,
    pub(crate) seeders: u64,
    pub(crate) leechers: u64,
    pub(crate) completed: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
}

impl Tally {
    /// Returns the number of peers that the sweep has removed, for either cause.
    pub(crate) fn forgotten(&self) -> u64 {
        self.expired + self.evicted
    }

    pub(crate) fn peers(&self) -> u64 {
        self.seeders + self.leechers
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) key: HashKey,
    pub(crate) timeout_s: u32,
    pub(crate) source_limit: Option<SourceLimit>,
    pub(crate) pressure: Arc<Pressure>,
}

#[derive(Debug)]
pub(crate) struct Shard<P: Family> {
    pub(crate) key: HashKey,
    pub(crate) ticks: Ticks,
    pub(crate) ages: AgeClock,
    pub(crate) source_limit: Option<SourceLimit>,
    pub(crate) pressure: Arc<Pressure>,
    /// Whether the current announce is exempt from the limits of sources.
    pub(crate) is_exempt: bool,
    /// Recently completed downloads, so that a peer that leaves and returns is not counted again.
    pub(crate) completions: Recent,
    pub(crate) swarms: Table<P::SwarmLine>,
    /// The downloads of torrents that have at least [`DOWNLOADS_MAX`].
    pub(crate) many_downloads: BTreeMap<InfoHash, u32>,
    /// The downloads of torrents without peers.
    pub(crate) retained: Retained,
    pub(crate) larges: Larges<P>,
    pub(crate) sweep: Sweep,
    pub(crate) tally: Tally,
    /// Whether the totals may differ from those that were published.
    pub(crate) is_changed: bool,
    /// The torrents whose counts have changed, while they are watched.
    pub(crate) changes: Option<ChangeBuffer>,
    /// Declared last, so that it is dropped after everything that holds its pages.
    pub(crate) memory: Memory,
}

/// Returns the seed of the tables of swarms of the shards with this index. Both families share it, so that a walk finds
/// both swarms of a torrent together.
pub(crate) fn seed_of_swarms(key: &HashKey, shard: u64) -> Seed {
    key.seed(shard, 0)
}

impl<P: Family> Shard<P> {
    /// Creates the shard with this index, which no other shard of the family has.
    pub(crate) fn new(arena: Arc<Arena>, rules: &Rules, retention: Arc<Retention>, index: u64) -> Self {
        let Rules { key, timeout_s, source_limit, ref pressure } = *rules;
        Self {
            key: source_limit.map_or(key, |limit| key.with_slots(limit.slots)),
            ticks: Ticks::new(timeout_s),
            ages: AgeClock::new(timeout_s),
            source_limit,
            pressure: Arc::clone(pressure),
            is_exempt: false,
            completions: Recent::new(timeout_s),
            memory: Memory::new(arena),
            swarms: Table::new(seed_of_swarms(&key, index)),
            many_downloads: BTreeMap::new(),
            retained: Retained::new(seed_of_swarms(&key, index), retention),
            larges: Larges::new(index),
            sweep: Sweep::default(),
            tally: Tally::default(),
            is_changed: false,
            changes: None,
        }
    }

    #[inline(always)]
    fn find(&self, place: &Place) -> Option<(At, &P::SwarmLine)> {
        if let Some(at) = place.hint
            && let Some(line) = self.swarms.line(&self.memory, at.line)
            && line.holds(at.slot(), &place.id)
        {
            return Some((at, line));
        }
        self.search_again(place)
    }

    /// Like `search`. Not inlined, because announces of a batch skip it if a prefetch has found their swarm.
    #[inline(never)]
    fn search_again(&self, place: &Place) -> Option<(At, &P::SwarmLine)> {
        self.search(place)
    }

    /// Like `find`, without the hint of an earlier search.
    #[inline(always)]
    pub(crate) fn search(&self, place: &Place) -> Option<(At, &P::SwarmLine)> {
        self.swarms.find(&self.memory, place.hash, |line| line.slot(&place.id))
    }

    /// Applies an announce, and writes a sample of peers to `out`.
    #[inline]
    pub(crate) fn announce(
        &mut self,
        place: &Place,
        announce: &Announce<P>,
        now_s: u32,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> Result<Announced, Rejection> {
        let found = self.find(place).map(|(at, line)| (at, line.form(at.slot()), line.downloads(at.slot())));
        if let Some((at, form, downloads)) = &found
            && let Some(((seeders, leechers), peers, change)) =
                self.renew(*at, form, announce, now_s, rng, out)
        {
            let completed = self.completed(*downloads, &place.id);
            return Ok(Announced { counts: Counts { seeders, leechers, completed }, peers, change });
        }
        self.announce_change(place, found.map(|(at, ..)| at), announce, now_s, rng, out)
    }

    /// Renews the stamp of a peer that keeps its role, and writes its sample. Returns the seeders and leechers, the
    /// number of peers written, and whether the announce is the first of its period. Returns `None`, without a change,
    /// for any other announce. Most announces are renewals, which would cost twice as much in `announce_change`.
    #[inline(always)]
    fn renew(
        &mut self,
        at: At,
        form: &Form<P>,
        announce: &Announce<P>,
        now_s: u32,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> Option<((u32, u32), usize, PeerChange)> {
        let seeds = match announce.action {
            Action::Leech => false,
            Action::Seed => true,
            Action::Complete | Action::Stop => return None,
        };
        let wanted = announce.peers_wanted.min(out.len() / size_of::<P>());
        let now = self.ticks.at(now_s);
        let (roles, bytes, old) = match form {
            Form::Single { entry, seeds: stored_seeds } => {
                if entry.peer != announce.peer || *stored_seeds != seeds {
                    return None;
                }
                let old = entry.stamp;
                let entry = PeerEntry { peer: entry.peer, stamp: old.renewed(now) };
                let line = self.swarms.line_mut(&mut self.memory, at);
                line.set_form(at.slot(), &Form::Single { entry, seeds });
                (self.roles(form), 0, old)
            }
            Form::Small { block, class, is_skewed } => {
                let mut small = SmallMut::<P>::edit(self.memory.block_mut(*block, *class));
                let (index, old) = small.renew(&announce.peer, seeds, now)?;
                let small = small.into_small();
                let bytes = sampling::sample_small(&small, *is_skewed, seeds, Some(index), wanted, rng, out);
                (small.roles(), bytes, old)
            }
            Form::Large { index } => {
                let large = self.larges.large(*index);
                let (at, old) = large.renew(&mut self.memory, &self.key, &announce.peer, seeds, now)?;
                (large.roles(), self.sample_large(large, seeds, Some(at), wanted, rng, out), old)
            }
        };
        let change = self.ticks.change_since(old, now, announce.peer.period_offset());
        Some((roles, bytes / size_of::<P>(), change))
    }

    /// Like `announce`, for any announce, with the location of the swarm if it exists. Reads the swarm again: otherwise each
    /// renewal would put what it has read on the stack.
    #[inline(never)]
    fn announce_change(
        &mut self,
        place: &Place,
        found: Option<At>,
        announce: &Announce<P>,
        now_s: u32,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> Result<Announced, Rejection> {
        self.is_changed = true;
        let now = self.ticks.at(now_s);
        let found = found.and_then(|at| Some((at, self.swarms.line(&self.memory, at.line)?)));
        let Some((at, mut form, mut downloads)) =
            found.map(|(at, line)| (at, line.form(at.slot()), line.downloads(at.slot())))
        else {
            return if announce.action == Action::Stop {
                let change = PeerChange::Nothing;
                Ok(Announced { counts: self.counts_without_peers(place), peers: 0, change })
            } else {
                self.create(place, announce, now_s)
            };
        };
        let before = self.roles(&form);
        let mut roles = before;
        let Outcome { change, location, known, completes } = self.apply(&form, announce, now)?;
        let is_download = completes && {
            let completed = self.completed(downloads, &place.id);
            self.counts_download(place, &announce.peer, completed, now_s)
        };
        if is_download {
            downloads = self.count_download(at, &place.id);
            self.tally.completed += 1;
        }
        let of_peer = match (announce.action, &change, known) {
            (Action::Stop, None, _) => PeerChange::Nothing,
            (Action::Stop, Some(_), _) => PeerChange::Left,
            _ if is_download => PeerChange::Completed,
            (_, _, Some(old)) => self.ticks.change_since(old, now, announce.peer.period_offset()),
            (_, _, None) => PeerChange::Joined,
        };
        let completed = self.completed(downloads, &place.id);
        if let Some(change) = change {
            if let Change::To(new) = change {
                form = new;
            }
            roles = self.take_note(at, &change, roles, &announce.peer, now_s);
        }
        if is_download || roles != before {
            self.note_change(place.hash, &place.id);
        }
        let peers = if announce.action == Action::Stop {
            0
        } else {
            let wanted = announce.peers_wanted.min(out.len() / size_of::<P>());
            self.sample(&form, &location, wanted, rng, out)
        };
        let (seeders, leechers) = roles;
        Ok(Announced { counts: Counts { seeders, leechers, completed }, peers, change: of_peer })
    }

    /// Returns whether a peer has announced at least a tick later than `at_s`.
    pub(crate) fn has_announced_since(&self, place: &Place, peer: &P, at_s: u32) -> bool {
        let form = self.find(place).map(|(at, line)| line.form(at.slot()));
        let stamp = form.and_then(|form| self.stamp(&form, peer));
        stamp.is_some_and(|(stamp, _)| stamp.is_after(self.ticks.at(at_s)))
    }

    /// Returns the leechers of a large swarm in the order of their table, see [`Swarms::learned_order`](crate::Swarms).
    pub(crate) fn learned_order(&self, place: &Place) -> Vec<P> {
        let Some(Form::Large { index }) = self.find(place).map(|(at, line)| line.form(at.slot())) else {
            return Vec::new();
        };
        let table = &self.larges.large(index).leechers;
        let lines = (0..table.end()).filter_map(|number| table.line(&self.memory, number));
        lines.flat_map(|line| line.peers().iter().copied()).collect()
    }

    pub(crate) fn contains(&self, place: &Place) -> bool {
        self.find(place).is_some()
    }

    pub(crate) fn scrape(&self, place: &Place) -> Counts {
        match self.find(place) {
            Some((at, line)) => self.counts(line, at.slot(), &place.id),
            None => self.counts_without_peers(place),
        }
    }

    /// Returns the counts of a torrent that has no swarm.
    fn counts_without_peers(&self, place: &Place) -> Counts {
        let completed = self.retained.completed(&self.memory, place.hash, &place.id);
        Counts { completed, ..Counts::default() }
    }

    /// Returns the counts of a swarm, and writes a sample for a peer that is no member.
    pub(crate) fn serve_non_member(
        &self,
        place: &Place,
        seeds: bool,
        peers_wanted: usize,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> Announced {
        let Some((at, line)) = self.find(place) else {
            return Announced { counts: self.counts_without_peers(place), ..Announced::default() };
        };
        let wanted = peers_wanted.min(out.len() / size_of::<P>());
        let peers = self.sample_for_non_member(&line.form(at.slot()), seeds, wanted, rng, out);
        let change = PeerChange::Nothing;
        Announced { counts: self.counts(line, at.slot(), &place.id), peers, change }
    }

    /// Makes room for this many swarms, if there are none.
    pub(crate) fn reserve(&mut self, swarms: usize) {
        self.swarms.reserve(&mut self.memory, &self.key, swarms);
    }

    fn counts(&self, line: &P::SwarmLine, slot: usize, id: &InfoHash) -> Counts {
        let (seeders, leechers) = self.roles(&line.form(slot));
        Counts { seeders, leechers, completed: self.completed(line.downloads(slot), id) }
    }

    #[inline]
    pub(crate) fn roles(&self, form: &Form<P>) -> (u32, u32) {
        match form {
            Form::Single { seeds, .. } => (u32::from(*seeds), u32::from(!*seeds)),
            Form::Small { block, .. } => {
                let header = self.memory.block_start(*block, 2);
                (u32::from(header[0]), u32::from(header[1]))
            }
            Form::Large { index } => self.larges.large(*index).roles(),
        }
    }

    #[inline]
    pub(crate) fn form(&self, at: At) -> Option<Form<P>> {
        let line = self.swarms.line(&self.memory, at.line)?;
        (at.slot() < line.len()).then(|| line.form(at.slot()))
    }

    /// Removes a swarm without peers from the table. The caller lets the table settle later.
    pub(crate) fn take_out_swarm(&mut self, at: At) {
        let line = self.swarms.line_mut(&mut self.memory, at);
        if line.downloads(at.slot()) == DOWNLOADS_MAX {
            let id = line.id(at.slot());
            self.many_downloads.remove(&id);
        }
        self.swarms.remove(&mut self.memory, at);
        self.tally.swarms -= 1;
    }

    /// Creates a swarm with its first peer, which gets no peers.
    #[inline(never)]
    fn create(&mut self, place: &Place, announce: &Announce<P>, now_s: u32) -> Result<Announced, Rejection> {
        let new = self.admit(&announce.peer, Networks::default)?;
        if !self.memory.has_room_for_swarm() {
            return Err(Rejection::Full);
        }
        let seeds = announce.action != Action::Leech;
        let completes = announce.action == Action::Complete;
        // A peer that joins as a seeder has downloaded nothing, or its download is counted now.
        let stamp = Stamp::new(self.ticks.at(now_s), seeds);
        let entry = PeerEntry { peer: announce.peer, stamp };
        let is_download = completes && {
            let retained = self.counts_without_peers(place).completed;
            self.counts_download(place, &announce.peer, retained, now_s)
        };
        let downloads = u8::from(is_download);
        let age = self.ages.stamp(now_s);
        let at = self.insert_single(place, downloads, (&entry, seeds), new, age).ok_or(Rejection::Full)?;
        self.tally.completed += u64::from(downloads);
        let completed = self.return_retained(at, place).saturating_add(downloads.into());
        let counts = Counts { seeders: u32::from(seeds), leechers: u32::from(!seeds), completed };
        let change = if downloads > 0 { PeerChange::Completed } else { PeerChange::Joined };
        Ok(Announced { counts, peers: 0, change })
    }

    /// Inserts a swarm with its first peer. The torrent is new to the peer's networks `new`. Returns the location, or
    /// `None` if memory is short.
    #[inline]
    pub(crate) fn insert_single(
        &mut self,
        place: &Place,
        downloads: u8,
        (entry, seeds): (&PeerEntry<P>, bool),
        new: Networks,
        age: AgeStamp,
    ) -> Option<At> {
        let swarm = Swarm::new(&place.id, downloads, *entry, seeds, age);
        let at = self.swarms.insert(&mut self.memory, &self.key, place.hash, &swarm)?;
        self.pressure.add(&entry.peer);
        self.pressure.add_torrent(&entry.peer, new);
        self.tally.swarms += 1;
        self.tally.seeders += u64::from(seeds);
        self.tally.leechers += u64::from(!seeds);
        self.note_change(place.hash, &place.id);
        Some(at)
    }

    /// Notes a change of a torrent's counts, if changes are watched.
    #[inline]
    pub(crate) fn note_change(&mut self, hash: u64, id: &InfoHash) {
        if let Some(changes) = &mut self.changes {
            changes.note(hash, id);
        }
    }

    /// Notes a change of the counts of the swarm at `at`, if changes are watched.
    pub(crate) fn note_change_at(&mut self, at: At) {
        if self.changes.is_some()
            && let Some(line) = self.swarms.line(&self.memory, at.line)
        {
            let id = line.id(at.slot());
            self.note_change(info_hash::hash(&id, &self.key), &id);
        }
    }

    /// Applies the change of a swarm after an announce by `peer`. Returns its seeders and leechers; `before` are those
    /// before the announce.
    #[inline(never)]
    pub(crate) fn take_note(
        &mut self,
        at: At,
        change: &Change<P>,
        before: (u32, u32),
        peer: &P,
        now_s: u32,
    ) -> (u32, u32) {
        let after = match change {
            Change::To(form) => {
                self.swarms.line_mut(&mut self.memory, at).set_form(at.slot(), form);
                self.roles(form)
            }
            Change::Emptied => {
                self.take_out_empty_swarm(at, now_s);
                self.swarms.settle_sometimes(&mut self.memory, &self.key, at.line);
                (0, 0)
            }
        };
        match (after.0 + after.1).cmp(&(before.0 + before.1)) {
            cmp::Ordering::Greater => self.pressure.add(peer),
            cmp::Ordering::Less => self.pressure.remove(peer),
            cmp::Ordering::Equal => {}
        }
        self.tally.seeders = self.tally.seeders + u64::from(after.0) - u64::from(before.0);
        self.tally.leechers = self.tally.leechers + u64::from(after.1) - u64::from(before.1);
        after
    }
}

impl<P: Family> Shard<P> {
    /// Returns the age of a swarm in seconds, if it exists.
    pub(crate) fn age_s(&self, place: &Place, now_s: u32) -> Option<u32> {
        let (at, line) = self.search(place)?;
        Some(self.ages.age_s(line.age(at.slot()), now_s))
    }
}
