//! The torrents whose counts have changed, in the order of their last change, for readers that follow at their own
//! pace.
//!
//! Each change has a number. A reader keeps the number up to which it has read, its [`Cursor`]. The log knows nothing
//! about its readers, and a stalled reader costs nothing. A torrent that changes again moves to the end of the log.
//! The log holds a fixed number of torrents. A full log forgets the oldest change, and a reader that has not read
//! that change must start over: it reads the counts of all torrents again.
//!
//! A reader of the log looks up the counts itself. A change during the look-up is reported again.

use core::fmt;
use core::hash::Hasher;
use core::str::FromStr;
use std::collections::VecDeque;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as IndexEntry;
use shoal_base::InfoHash;
use siphasher::sip::SipHasher13;

/// The stale changes of a full log are removed if they are at least this part of it, as a divisor. A change is stale
/// if its torrent has changed again.
const STALE_SHARE: usize = 4;

/// The position of a reader: the change up to which it has read. Its text is `EPOCH-NUMBER`, in hexadecimal and
/// decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// A random number of the log, which exposes cursors of other logs.
    epoch: u64,
    number: u64,
}

/// The error of a text that is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorError;

/// The reply to a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// These torrents have changed after the reader's cursor. Each occurs once, in the order of its last change.
    Changed {
        /// The torrents; empty if nothing has changed.
        info_hashes: Vec<InfoHash>,
        /// The cursor after these changes.
        cursor: Cursor,
        /// Whether more changes follow.
        has_more: bool,
    },
    /// The cursor is too old or from another log, or changes were lost. The reader takes the new cursor, then reads
    /// the counts of all torrents, and then follows from the cursor.
    StartOver {
        /// The current end of the log.
        cursor: Cursor,
    },
}

/// A bounded log of changed torrents.
#[derive(Debug)]
pub struct ChangeLog {
    epoch: u64,
    /// The number of the last change.
    last: u64,
    /// The number of the last forgotten change. Readers before it have to start over.
    forgotten: u64,
    capacity: usize,
    /// The changes, in the order of their numbers.
    changes: VecDeque<Change>,
    /// The number of stale changes: their torrents have changed again.
    stale: usize,
    /// The position of each torrent's last change, as the number of changes ever appended before it.
    index: HashTable<u32>,
    /// The position of the first change.
    first_position: u32,
    hasher: SipHasher13,
}

/// A change of a torrent. It is unaligned, since a log holds many.
#[derive(Clone, Copy, Debug)]
struct Change {
    info_hash: InfoHash,
    /// The number in the lower 63 bits, and above it whether the change is stale.
    number: [u8; 8],
}

const _: () = assert!(size_of::<Change>() == 28, "as `ChangeLog::bytes` is documented");

/// The bit of a number that marks a stale change.
const STALE: u64 = 1 << 63;

impl Change {
    fn number(&self) -> u64 {
        u64::from_le_bytes(self.number) & !STALE
    }

    fn is_stale(&self) -> bool {
        u64::from_le_bytes(self.number) & STALE != 0
    }

    fn make_stale(&mut self) {
        self.number = (u64::from_le_bytes(self.number) | STALE).to_le_bytes();
    }
}

impl ChangeLog {
    /// The largest capacity.
    pub const CAPACITY_MAX: usize = 1 << 24;

    /// Creates an empty log for at most `capacity` torrents, with random numbers that no client knows. It allocates
    /// all its memory now, except for the index, see [`bytes`](Self::bytes).
    pub fn new(capacity: usize, [epoch, first_key, second_key]: [u64; 3]) -> Self {
        let capacity = capacity.clamp(1, Self::CAPACITY_MAX);
        Self {
            epoch,
            last: 0,
            forgotten: 0,
            capacity,
            changes: VecDeque::with_capacity(capacity),
            stale: 0,
            index: HashTable::with_capacity(capacity),
            first_position: 0,
            hasher: SipHasher13::new_with_keys(first_key, second_key),
        }
    }

    /// Returns the maximum memory in bytes of a log for `capacity` torrents: 28 for each, and 12 to 23 for the index,
    /// which may double once.
    pub const fn bytes(capacity: usize) -> usize {
        let buckets = 2 * (capacity * 8 / 7 + 1).next_power_of_two();
        capacity * size_of::<Change>() + buckets * (size_of::<u32>() + 1)
    }

    /// Returns the cursor after all changes.
    pub const fn end(&self) -> Cursor {
        Cursor { epoch: self.epoch, number: self.last }
    }

    /// Returns whether a reader at `cursor` has something to read, which may be that it has to start over.
    pub fn is_behind(&self, cursor: Cursor) -> bool {
        cursor != self.end()
    }

    /// Returns how many torrents the log holds.
    pub fn len(&self) -> usize {
        self.changes.len() - self.stale
    }

    /// Returns whether the log holds no torrent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a change of a torrent.
    pub fn append(&mut self, info_hash: &InfoHash) {
        if self.changes.len() == self.capacity {
            self.make_room();
        }
        self.last += 1;
        let appended = u32::try_from(self.changes.len()).unwrap_or(0);
        let position = self.first_position.wrapping_add(appended);
        let Self { changes, index, hasher, first_position, .. } = self;
        let at = |position: u32| position.wrapping_sub(*first_position) as usize;
        let is_it = |position: &u32| changes[at(*position)].info_hash == *info_hash;
        let hash_of = |position: &u32| hash(hasher, &changes[at(*position)].info_hash);
        match index.entry(hash(hasher, info_hash), is_it, hash_of) {
            IndexEntry::Occupied(mut entry) => {
                let earlier = core::mem::replace(entry.get_mut(), position);
                changes[at(earlier)].make_stale();
                self.stale += 1;
            }
            IndexEntry::Vacant(entry) => drop(entry.insert(position)),
        }
        self.changes.push_back(Change { info_hash: *info_hash, number: self.last.to_le_bytes() });
    }

    /// Records that changes were lost. All readers have to start over.
    pub fn lose(&mut self) {
        self.last += 1;
        self.forgotten = self.last;
        self.changes.clear();
        self.index.clear();
        (self.stale, self.first_position) = (0, 0);
    }

    /// Returns at most `max` torrents (at least one) that have changed after `cursor`. A reader without a cursor
    /// starts at the end, and so does one that has to start over.
    pub fn read(&self, cursor: Option<Cursor>, max: usize) -> Changes {
        let is_known = |cursor: &Cursor| {
            cursor.epoch == self.epoch && (self.forgotten..=self.last).contains(&cursor.number)
        };
        let Some(cursor) = cursor.filter(is_known) else { return Changes::StartOver { cursor: self.end() } };
        let first = self.changes.partition_point(|change| change.number() <= cursor.number);
        let mut behind = self.changes.range(first..).filter(|change| !change.is_stale());
        let (mut info_hashes, mut number) = (Vec::new(), cursor.number);
        for change in behind.by_ref().take(max.max(1)) {
            info_hashes.push(change.info_hash);
            number = change.number();
        }
        let has_more = behind.next().is_some();
        let number = if has_more { number } else { self.last };
        Changes::Changed { info_hashes, cursor: Cursor { epoch: self.epoch, number }, has_more }
    }

    /// Removes stale changes if there are many, or else the first change.
    fn make_room(&mut self) {
        if self.stale > self.capacity / STALE_SHARE {
            self.changes.retain(|change| !change.is_stale());
            self.stale = 0;
            self.first_position = 0;
            self.index.clear();
            let (changes, hasher) = (&self.changes, &self.hasher);
            for (position, change) in (0_u32..).zip(changes) {
                let hash_of = |position: &u32| hash(hasher, &changes[*position as usize].info_hash);
                self.index.insert_unique(hash(hasher, &change.info_hash), position, hash_of);
            }
        } else if let Some(change) = self.changes.pop_front() {
            let position = self.first_position;
            self.first_position = position.wrapping_add(1);
            if change.is_stale() {
                self.stale -= 1;
            } else {
                self.forgotten = change.number();
                let entry = self
                    .index
                    .find_entry(hash(&self.hasher, &change.info_hash), |candidate| *candidate == position);
                if let Ok(entry) = entry {
                    entry.remove();
                }
            }
        }
    }
}

fn hash(hasher: &SipHasher13, info_hash: &InfoHash) -> u64 {
    let mut hasher = *hasher;
    hasher.write(&info_hash.0);
    hasher.finish()
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.epoch, self.number)
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let (epoch, number) = text.split_once('-').ok_or(CursorError)?;
        let is_plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if epoch.len() != 16 || !is_plain(epoch) || !is_plain(number) {
            return Err(CursorError);
        }
        let epoch = u64::from_str_radix(epoch, 16).map_err(|_| CursorError)?;
        let number = number.parse().map_err(|_| CursorError)?;
        Ok(Self { epoch, number })
    }
}

impl fmt::Display for CursorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is not a cursor; leave it out to begin, then use the cursor of the last reply")
    }
}

impl core::error::Error for CursorError {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn info_hash(number: u32) -> InfoHash {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        InfoHash(bytes)
    }

    fn changed(changes: Changes) -> (Vec<InfoHash>, Cursor) {
        match changes {
            Changes::Changed { info_hashes, cursor, .. } => (info_hashes, cursor),
            Changes::StartOver { .. } => panic!("the cursor is known"),
        }
    }

    #[test]
    fn a_reader_without_a_cursor_begins_at_the_end() {
        let mut log = ChangeLog::new(10, [7, 1, 2]);
        log.append(&info_hash(1));
        let Changes::StartOver { cursor } = log.read(None, 10) else { panic!("it has read nothing yet") };
        assert_eq!(changed(log.read(Some(cursor), 10)).0, []);
        assert!(!log.is_behind(cursor));
        log.append(&info_hash(2));
        assert!(log.is_behind(cursor));
        assert_eq!(changed(log.read(Some(cursor), 10)).0, [info_hash(2)]);
    }

    #[test]
    fn a_torrent_that_changes_again_is_read_once() {
        let mut log = ChangeLog::new(10, [7, 1, 2]);
        let start = log.end();
        for number in [1, 2, 1, 3, 2] {
            log.append(&info_hash(number));
        }
        let (first, cursor) = changed(log.read(Some(start), 2));
        assert_eq!(first, [1, 3].map(info_hash));
        assert_eq!(changed(log.read(Some(cursor), 2)).0, [info_hash(2)]);
    }

    #[test]
    fn torrents_that_change_often_do_not_push_others_out() {
        let mut log = ChangeLog::new(100, [7, 1, 2]);
        let start = log.end();
        log.append(&info_hash(1));
        (0..10_000).for_each(|number| log.append(&info_hash(2 + number % 70)));
        let (all, _) = changed(log.read(Some(start), 1000));
        assert_eq!((all.len(), all[0]), (71, info_hash(1)));
    }

    #[test]
    fn a_reader_that_is_too_late_starts_over() {
        let mut log = ChangeLog::new(10, [7, 1, 2]);
        let start = log.end();
        (0..10).for_each(|number| log.append(&info_hash(number)));
        assert_eq!(changed(log.read(Some(start), 100)).0.len(), 10);
        log.append(&info_hash(10));
        assert_eq!(log.read(Some(start), 100), Changes::StartOver { cursor: log.end() });
        let cursor = log.end();
        log.lose();
        assert_eq!(log.read(Some(cursor), 100), Changes::StartOver { cursor: log.end() });
        assert_eq!(changed(log.read(Some(log.end()), 100)).0, []);
    }

    #[test]
    fn cursors_of_other_logs_and_of_the_future_start_over() {
        let (log, mut other) = (ChangeLog::new(10, [7, 1, 2]), ChangeLog::new(10, [8, 1, 2]));
        assert_eq!(log.read(Some(other.end()), 1), Changes::StartOver { cursor: log.end() });
        other.append(&info_hash(1));
        let future = Cursor { epoch: 7, number: 1 };
        assert_eq!(log.read(Some(future), 1), Changes::StartOver { cursor: log.end() });
    }

    #[test]
    fn cursors_are_read_back() {
        let cursor = Cursor { epoch: 0xab, number: u64::MAX };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in [
            "",
            "-",
            "00000000000000ab",
            "00000000000000ab-",
            "ab-1",
            "00000000000000ab-+1",
            "+0000000000000ab-1",
            "00000000000000ab-18446744073709551616",
        ] {
            assert_eq!(text.parse::<Cursor>(), Err(CursorError), "{text:?}");
        }
    }

    proptest! {
        /// Readers of any pace see every torrent that has changed after their cursor, or start over.
        #[test]
        fn no_change_is_missed(
            capacity in 1_usize..40,
            steps in prop::collection::vec((0_u32..30, any::<bool>(), 1_usize..20), 1..400),
        ) {
            let mut log = ChangeLog::new(capacity, [1, 2, 3]);
            let mut cursor = log.end();
            // The torrents that have changed since the reader saw them last.
            let mut unread = BTreeMap::new();
            for (number, (torrent, reads, max)) in steps.into_iter().enumerate() {
                log.append(&info_hash(torrent));
                unread.insert(info_hash(torrent), number);
                prop_assert!(log.changes.len() <= capacity);
                prop_assert_eq!(log.index.len(), log.len());
                if !reads {
                    continue;
                }
                match log.read(Some(cursor), max) {
                    Changes::Changed { info_hashes, cursor: next, has_more } => {
                        prop_assert!(info_hashes.len() <= max);
                        for info_hash in &info_hashes {
                            prop_assert!(unread.remove(info_hash).is_some());
                        }
                        prop_assert_eq!(has_more, !unread.is_empty());
                        cursor = next;
                    }
                    Changes::StartOver { cursor: next } => {
                        prop_assert!(unread.len() >= capacity - capacity / STALE_SHARE);
                        unread.clear();
                        cursor = next;
                    }
                }
            }
        }
    }
}
