//! The completed downloads of torrents that have no peers.
//!
//! A swarm without peers is removed, because any client could fill the store with empty swarms. On the operator's
//! request, the number of its completed downloads stays if it is above zero: 26 bytes in a table beside the table of
//! swarms. The number returns to the torrent with its next peer. An entry is forgotten after a time that the operator
//! sets.
//!
//! In a full table, each new entry displaces one. The candidates are the new entry and those in its two lines, which
//! secrets select. The entry with the fewest downloads goes, to within a power of two, and the oldest among equals. To
//! displace a torrent with many downloads, an attacker has to complete as many of other torrents; to displace all, as
//! many torrents as the table holds. Few downloads of a source count for each torrent.
//!
//! Entries lie in a `Table` as swarms do, so their memory is in the arena and grows a segment at a time. With the same
//! seed, a window of a walk or of an export covers both tables. An announce to an existing swarm never touches the
//! table. An announce that creates a swarm looks there, and so does a scrape that finds no swarm.
//!
//! A list by age would cost eight more bytes and a miss for each change, and a flood of cheap entries would push all
//! others out. The number of downloads costs an attacker something. Ages are hours of the clock of ages, so they do not
//! jump. The relay has no such table: its swarms are on the heap, and few WebTorrent trackers publish counts.

use core::cmp::Reverse;
use core::fmt::Debug;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shoal_base::InfoHash;
use zerocopy::native_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::age::AgeTime;
use crate::hash::{HashKey, Seed};
use crate::memory::Memory;
use crate::table::info_hash::{self, Rest, slot_of};
use crate::table::{At, Bucket, Table};

/// Length of a sweep over a table in seconds. Entries are forgotten to the hour.
const SWEEP_S: u32 = 3600;

/// The hour of a stamp from a thread whose clock is slightly ahead.
const HOURS_FUTURE: u16 = u16::MAX - 1;

/// Maximum time in hours until an entry is forgotten: five years. An age could be misread two years later.
pub const RETAINED_HOURS_MAX: u16 = 5 * 365 * 24;

/// The limits on retained counts, for the shards of a family.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    /// Maximum number of entries of a shard.
    max: AtomicU32,
    /// The age in hours at which an entry is forgotten.
    hours: AtomicU32,
    len: AtomicU64,
}

impl Retention {
    /// Changes the limits. Entries that are too old go within an hour, surplus ones within a day. A maximum of zero
    /// makes all too old.
    pub(crate) fn set(&self, of_shard_max: u32, hours: u16) {
        self.max.store(of_shard_max, Ordering::Relaxed);
        self.hours.store(hours.min(RETAINED_HOURS_MAX).into(), Ordering::Relaxed);
    }

    /// Returns the number of entries in all shards.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed)
    }

    /// Returns whether an entry of this age in hours is due.
    fn is_overdue(&self, age: u16) -> bool {
        self.max() == 0 || u32::from(age) >= self.hours.load(Ordering::Relaxed) && age < HOURS_FUTURE
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetainedEntry {
    pub(crate) id: InfoHash,
    pub(crate) completed: u32,
    /// When the last peer left, see [`AgeTime::hour`].
    pub(crate) hour: u16,
}

impl RetainedEntry {
    /// Returns the hours since the last peer left.
    fn age(&self, now: AgeTime) -> u16 {
        now.hour().wrapping_sub(self.hour)
    }

    /// Returns the seconds since the last peer left.
    pub(crate) fn age_s(&self, now: AgeTime) -> u32 {
        let age = self.age(now);
        if age < HOURS_FUTURE { u32::from(age) * 3600 } else { 0 }
    }

    /// Returns a number that is lowest for the first entry to forget.
    fn worth(&self, now: AgeTime) -> (u32, Reverse<u32>) {
        (self.completed.max(1).ilog2(), Reverse(self.age_s(now)))
    }
}

/// Number of entries of a line, which fill 512 bytes together with [`PAD`] unused ones.
const SLOTS: usize = 19;
const PAD: usize = 17;

/// Up to [`SLOTS`] entries, packed at the front. A search reads the tags first.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RetainedLine {
    tags: [U16; SLOTS],
    len: u8,
    rests: [Rest; SLOTS],
    completed: [U32; SLOTS],
    hours: [U16; SLOTS],
    pad: [u8; PAD],
}

const _: () = assert!(size_of::<RetainedLine>() == 512);

impl RetainedLine {
    #[inline]
    fn slot(&self, id: &InfoHash) -> Option<usize> {
        slot_of(&self.tags, &self.rests, self.len(), id)
    }
}

impl Bucket for RetainedLine {
    const SLOTS: usize = SLOTS;
    const CHUNK_LINES: usize = 4;
    const STEP_SHARE: usize = 14;
    const START_BYTES: usize = 64;

    type Entry = RetainedEntry;

    #[inline]
    fn len(&self) -> usize {
        usize::from(self.len).min(SLOTS)
    }

    #[inline]
    fn hash(&self, slot: usize, key: &HashKey) -> u64 {
        info_hash::hash(&info_hash::join(self.tags[slot], &self.rests[slot]), key)
    }

    #[inline]
    fn entry(&self, slot: usize) -> RetainedEntry {
        let id = info_hash::join(self.tags[slot], &self.rests[slot]);
        RetainedEntry { id, completed: self.completed[slot].get(), hour: self.hours[slot].get() }
    }

    #[inline]
    fn push(&mut self, entry: &RetainedEntry) {
        let slot = self.len();
        (self.tags[slot], self.rests[slot]) = (info_hash::tag(&entry.id), *info_hash::rest(&entry.id));
        self.completed[slot] = entry.completed.into();
        self.hours[slot] = entry.hour.into();
        self.len += 1;
    }

    #[inline]
    fn take(&mut self, slot: usize) -> RetainedEntry {
        let entry = self.entry(slot);
        let last = self.len() - 1;
        self.tags[slot] = self.tags[last];
        self.rests[slot] = self.rests[last];
        self.completed[slot] = self.completed[last];
        self.hours[slot] = self.hours[last];
        self.len -= 1;
        entry
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sweep {
    started_s: u32,
    /// The number of the next line.
    line: u32,
    /// The number of segments that still have to settle after the last line.
    unsettled: u32,
}

/// The parts of a [`Retained`] outside its pages, except for values that follow from the settings.
pub(crate) type RetainedImage = (Table<RetainedLine>, Sweep);

/// The completed downloads of the torrents of a shard that have no peers.
#[derive(Debug)]
pub(crate) struct Retained {
    pub(crate) table: Table<RetainedLine>,
    sweep: Sweep,
    retention: Arc<Retention>,
}

impl Retained {
    /// Creates an empty table. With the seed of the table of swarms, a walk finds both tables' torrents together.
    pub(crate) fn new(seed: Seed, retention: Arc<Retention>) -> Self {
        Self { table: Table::new(seed), sweep: Sweep::default(), retention }
    }

    /// Returns what another process needs to continue with its pages.
    pub(crate) const fn image(&self) -> (&Table<RetainedLine>, &Sweep) {
        (&self.table, &self.sweep)
    }

    /// Continues with the pages of another process. The table must be empty.
    pub(crate) fn resume(&mut self, (table, sweep): RetainedImage) {
        self.retention.len.fetch_add(table.len().into(), Ordering::Relaxed);
        (self.table, self.sweep) = (table, sweep);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    #[inline]
    pub(crate) fn completed(&self, memory: &Memory, hash: u64, id: &InfoHash) -> u32 {
        if self.is_empty() { 0 } else { self.find(memory, hash, id).map_or(0, |(_, entry)| entry.completed) }
    }

    #[inline(never)]
    fn find(&self, memory: &Memory, hash: u64, id: &InfoHash) -> Option<(At, RetainedEntry)> {
        let (at, line) = self.table.find(memory, hash, |line| line.slot(id))?;
        Some((at, line.entry(at.slot())))
    }

    /// Removes the entry of a torrent. Returns its completed downloads.
    #[inline]
    pub(crate) fn take(&mut self, memory: &mut Memory, key: &HashKey, hash: u64, id: &InfoHash) -> u32 {
        if self.is_empty() {
            return 0;
        }
        let Some((at, entry)) = self.find(memory, hash, id) else { return 0 };
        self.remove(memory, at);
        self.table.settle_sometimes(memory, key, at.line);
        entry.completed
    }

    /// Adds the completed downloads of a torrent without an entry, if there is room.
    pub(crate) fn insert(&mut self, memory: &mut Memory, key: &HashKey, entry: &RetainedEntry, now: AgeTime) {
        let is_useless = entry.completed == 0 || self.retention.is_overdue(entry.age(now));
        if is_useless || !memory.has_room_for_swarm() {
            return;
        }
        let hash = info_hash::hash(&entry.id, key);
        if self.table.len() >= self.retention.max() && !self.displace(memory, key, hash, entry, now) {
            return;
        }
        if self.table.insert(memory, key, hash, entry).is_some() {
            self.retention.len.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes the least of the entries that share a line with a new one. Returns false if the new one is less.
    fn displace(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        hash: u64,
        new: &RetainedEntry,
        now: AgeTime,
    ) -> bool {
        let mut least: Option<RetainedEntry> = None;
        self.table.visit_lines(memory, hash, |line| least = least_of(line, now, least));
        let Some(least) = least.filter(|least| least.worth(now) <= new.worth(now)) else { return false };
        let Some((at, _)) = self.find(memory, info_hash::hash(&least.id, key), &least.id) else {
            return false;
        };
        self.remove(memory, at);
        true
    }

    fn remove(&mut self, memory: &mut Memory, at: At) {
        self.table.remove(memory, at);
        self.retention.len.fetch_sub(1, Ordering::Relaxed);
    }

    /// Forgets due entries, up to the sweep's due position at `now_s`. Returns whether the budget ended before.
    pub(crate) fn expire(
        &mut self,
        memory: &mut Memory,
        key: &HashKey,
        (now_s, now): (u32, AgeTime),
        budget: &mut usize,
    ) -> bool {
        let end = self.table.end();
        if self.sweep.line >= end && now_s.saturating_sub(self.sweep.started_s) >= SWEEP_S {
            self.sweep = Sweep { started_s: now_s, line: 0, unsettled: u32::MAX };
        }
        let elapsed_s = now_s.saturating_sub(self.sweep.started_s).min(SWEEP_S);
        let due = u64::from(end) * u64::from(elapsed_s) / u64::from(SWEEP_S);
        while u64::from(self.sweep.line) < due {
            if *budget == 0 {
                return true;
            }
            *budget -= 1;
            self.expire_line(memory, key, now);
        }
        self.sweep.line >= self.table.end() && self.settle(memory, key, budget)
    }

    /// Visits the next line. If there are too many entries, each line loses one.
    fn expire_line(&mut self, memory: &mut Memory, key: &HashKey, now: AgeTime) {
        let number = self.sweep.line;
        while let Some(at) = self.overdue_in(memory, number, now) {
            self.remove(memory, at);
        }
        if self.table.len() > self.retention.max()
            && let Some(at) = self.least_in(memory, number, now)
        {
            self.remove(memory, at);
        }
        self.sweep.line = self.table.number_after(number);
        if self.table.is_last_of_segment(number) {
            self.table.shrink_segment(memory, key, number);
        }
    }

    fn overdue_in(&self, memory: &Memory, number: u32, now: AgeTime) -> Option<At> {
        let line = self.table.line(memory, number)?;
        let slot = (0..line.len()).find(|&slot| self.retention.is_overdue(line.entry(slot).age(now)))?;
        Some(At::new(number, slot))
    }

    fn least_in(&self, memory: &Memory, number: u32, now: AgeTime) -> Option<At> {
        let line = self.table.line(memory, number)?;
        let slot = (0..line.len()).min_by_key(|&slot| line.entry(slot).worth(now))?;
        Some(At::new(number, slot))
    }

    /// Lets segments settle. Returns whether the budget ended before all have.
    fn settle(&mut self, memory: &mut Memory, key: &HashKey, budget: &mut usize) -> bool {
        while self.sweep.unsettled > 0 {
            if *budget == 0 {
                return true;
            }
            self.table.settle_next(memory, key, &mut self.sweep.unsettled, budget);
        }
        false
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        self.retention.len.fetch_sub(self.table.len().into(), Ordering::Relaxed);
    }
}

/// Returns the entry to forget first, among a line's entries and another one.
fn least_of(line: &RetainedLine, now: AgeTime, other: Option<RetainedEntry>) -> Option<RetainedEntry> {
    (0..line.len()).map(|slot| line.entry(slot)).chain(other).min_by_key(|entry| entry.worth(now))
}
