//! A set of info hashes, some of them with details: a date, a reference, a reason.
//!
//! The hashes lie back to back, ordered by bucket, and a list of bounds says where each bucket begins. So a hash takes
//! 20 bytes and its share of a bound, together about 21, at every size. A lookup reads one bound, then the bucket: two
//! dependent cache misses, and a line or two. A secret hash decides the number of entries in a bucket, so no client can
//! look for a crowded one.
//!
//! Two alternatives were rejected. Buckets of a fixed size, three hashes a line, need cuckoo moves to be nine tenths
//! full, and take 24 bytes for a hash. A filter in front of the table saves nothing if most torrents are listed.

use core::hash::{Hash, Hasher};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::sync::OnceLock;

use shoal_base::InfoHash;

use super::details::Details;
use crate::budget::{Budget, NoMemory, Share};
use crate::hash::HashKey;

/// Maximum number of entries of a table.
pub const TORRENTS_MAX: usize = 100_000_000;

/// Maximum size of a table's details. Equal ones count once. Ten million short ones fit.
pub const TEXTS_BYTES_MAX: usize = 512 << 20;

/// Average number of torrents in a bucket. They fill one line and a quarter.
const BUCKET_TORRENTS: usize = 4;

/// The memory of a torrent while its table is built: in the list (20 bytes), in the table (20), and its share of a
/// bound.
const BUILDING_BYTES: u64 = 42;

/// The memory of a torrent with a text while its table is built: its place in three lists of places of 8 bytes.
const BUILDING_PLACE_BYTES: u64 = 24;

/// The memory of a text while a table is built, without its bytes: the overhead of its allocation, its entry in a map
/// that has just grown (twice 28 bytes, and the map before), and in the table (16).
const BUILDING_TEXT_BYTES: u64 = 128;

const ALLOCATION_BYTES: usize = 24;

/// A set of torrents. It never changes.
#[derive(Debug)]
pub struct TorrentTable {
    /// The beginning of each bucket, and the end of the last one.
    bounds: Box<[u32]>,
    hashes: Box<[InfoHash]>,
    texts: Texts,
    /// Set by the first call of [`digest`](Self::digest).
    digest: OnceLock<u64>,
    /// The memory of all this, which returns to the budget when the table is dropped.
    share: Share,
}

/// The details of some torrents of a table, each as one text.
#[derive(Debug, Default)]
struct Texts {
    /// Positions of torrents with the numbers of their texts, in ascending order.
    places: Box<[(u32, u32)]>,
    /// All texts. Equal ones occur once.
    all: Box<[Box<str>]>,
}

/// The torrents of a table under construction.
#[derive(Debug, Default)]
pub struct TableBuilder {
    hashes: Vec<InfoHash>,
    /// Indices of torrents with the numbers of their texts, in ascending order.
    places: Vec<(u32, u32)>,
    texts: HashMap<Box<str>, u32>,
    pub(super) texts_bytes: usize,
    text: String,
    share: Share,
    /// The average memory of the torrents up to the first that did not fit. Further ones are counted by it.
    unfit_bytes: Option<u64>,
}

/// The error of a table with [`TORRENTS_MAX`] entries, or [`TEXTS_BYTES_MAX`] bytes of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has more than {TORRENTS_MAX} torrents, or more than {} MiB of details", TEXTS_BYTES_MAX >> 20)]
pub struct TableFull;

/// Why a list has no table of all its torrents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The torrents are too many.
    #[error(transparent)]
    Full(#[from] TableFull),
    /// The torrents do not fit in the memory of lists.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

impl TableBuilder {
    /// Creates an empty table, which takes its memory from a budget. If its torrents do not fit, it keeps none of them,
    /// and [`check`](Self::check) returns how much memory they would need.
    pub fn within(budget: &Budget) -> Self {
        Self { share: Share::of(budget), ..Self::default() }
    }

    /// Checks that everything added had memory. Otherwise the error is the needed memory, and the table is empty.
    pub fn check(&self) -> Result<(), NoMemory> {
        self.share.check()
    }

    /// Takes memory. Returns whether there is some.
    fn need(&mut self, bytes: u64) -> bool {
        let has = self.share.need(bytes);
        if let Err(error) = self.share.check() {
            self.unfit_bytes = Some(error.needed / (self.hashes.len() as u64 + 1));
            (self.hashes, self.places, self.texts) = (Vec::new(), Vec::new(), HashMap::new());
        }
        has
    }

    /// Adds a torrent. If it was added before, the first details count. Fails if the table is full.
    pub fn add<'d>(&mut self, info_hash: InfoHash, details: impl Into<Details<'d>>) -> Result<(), TableFull> {
        if self.hashes.len() == TORRENTS_MAX {
            return Err(TableFull);
        }
        if let Some(bytes) = self.unfit_bytes {
            self.share.need(bytes);
            return Ok(());
        }
        if !self.need(BUILDING_BYTES) {
            return Ok(());
        }
        let details = details.into();
        if !details.is_empty() {
            self.text.clear();
            details.write(&mut self.text);
            let next = as_u32(self.texts.len());
            let text = match self.texts.get(&*self.text) {
                Some(&text) => text,
                None => {
                    let texts_bytes = self.texts_bytes + self.text.len();
                    if texts_bytes > TEXTS_BYTES_MAX {
                        return Err(TableFull);
                    }
                    if !self.need(BUILDING_TEXT_BYTES + self.text.len() as u64) {
                        return Ok(());
                    }
                    self.texts_bytes = texts_bytes;
                    *self.texts.entry(self.text.as_str().into()).or_insert(next)
                }
            };
            if !self.need(BUILDING_PLACE_BYTES) {
                return Ok(());
            }
            self.places.push((as_u32(self.hashes.len()), text));
        }
        self.hashes.push(info_hash);
        Ok(())
    }

    /// Adds all torrents of a table, with their details. Fails if the table is full.
    pub fn add_all(&mut self, table: &TorrentTable) -> Result<(), TableFull> {
        table.iter().try_for_each(|(info_hash, details)| self.add(*info_hash, details))
    }

    /// Returns the number of torrents, some of which may be equal.
    pub const fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns whether there are no torrents.
    pub const fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Builds the table, in time proportional to the number of torrents.
    pub fn build(self, key: &HashKey) -> TorrentTable {
        let buckets = self.hashes.len().div_ceil(BUCKET_TORRENTS).max(1);
        let bucket = |info_hash: &InfoHash| scale(key.hash(&info_hash.0), buckets);
        let mut bounds = vec![0_u32; buckets + 1];
        for info_hash in &self.hashes {
            bounds[bucket(info_hash) + 1] += 1;
        }
        // Each count becomes the beginning of its bucket, and then, entry by entry, its end: the beginning of the next.
        let mut begin = 0;
        for count in &mut bounds[1..] {
            (*count, begin) = (begin, begin + *count);
        }
        let mut sorted = vec![InfoHash([0; 20]); self.hashes.len()];
        for info_hash in &self.hashes {
            let next = &mut bounds[bucket(info_hash) + 1];
            sorted[*next as usize] = *info_hash;
            *next += 1;
        }
        remove_duplicates(&mut bounds, &mut sorted);
        let mut table = TorrentTable {
            bounds: bounds.into(),
            hashes: sorted.into(),
            texts: Texts::default(),
            digest: OnceLock::new(),
            share: Share::default(),
        };
        let place = |(index, text): &(u32, u32)| {
            let info_hash = &self.hashes[*index as usize];
            table.find(key.hash(&info_hash.0), info_hash).map(|position| (position, *text))
        };
        let mut places: Vec<_> = self.places.iter().filter_map(place).collect();
        // The order of equal positions stays, so the first text stays.
        places.sort_by_key(|(position, _)| *position);
        places.dedup_by_key(|(position, _)| *position);
        let mut texts = vec![Box::default(); self.texts.len()];
        for (text, number) in self.texts {
            texts[number as usize] = text;
        }
        table.texts = Texts { places: places.into(), all: texts.into() };
        let mut share = self.share;
        share.shrink_to((table.bytes() + table.texts.all.len() * ALLOCATION_BYTES) as u64);
        table.share = share;
        table
    }
}

/// Sorts each bucket and removes repeated torrents without leaving gaps.
fn remove_duplicates(bounds: &mut [u32], hashes: &mut Vec<InfoHash>) {
    let (mut retained, mut begin) = (0, 0);
    for bound in &mut bounds[1..] {
        let end = *bound as usize;
        hashes[begin..end].sort_unstable();
        let first = retained;
        for index in begin..end {
            if retained == first || hashes[retained - 1] != hashes[index] {
                hashes[retained] = hashes[index];
                retained += 1;
            }
        }
        begin = end;
        *bound = as_u32(retained);
    }
    hashes.truncate(retained);
}

impl TorrentTable {
    /// Returns the number of torrents.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns whether there are no torrents.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns the memory of the table, without the allocator's overhead.
    pub fn bytes(&self) -> usize {
        let Texts { places, all } = &self.texts;
        let texts_bytes: usize = all.iter().map(|text| text.len() + size_of::<Box<str>>()).sum();
        size_of_val(&*self.bounds) + size_of_val(&*self.hashes) + size_of_val(&**places) + texts_bytes
    }

    /// Returns whether the table has a torrent. `key` is the key of its construction.
    pub fn contains(&self, key: &HashKey, info_hash: &InfoHash) -> bool {
        self.find(key.hash(&info_hash.0), info_hash).is_some()
    }

    /// Returns the details of a torrent, if the table has it. `key` is the key of its construction.
    pub fn get(&self, key: &HashKey, info_hash: &InfoHash) -> Option<Details<'_>> {
        let position = self.find(key.hash(&info_hash.0), info_hash)?;
        Some(self.text_of(position).map_or(Details::NONE, |text| self.details(text)))
    }

    /// Returns all torrents with their details, in the table's own order.
    pub fn iter(&self) -> impl Iterator<Item = (&InfoHash, Details<'_>)> {
        self.iter_from(0)
    }

    /// Returns the torrents with their details from a position on. There are [`len`](Self::len) positions.
    pub fn iter_from(&self, position: usize) -> impl Iterator<Item = (&InfoHash, Details<'_>)> {
        let position = position.min(self.hashes.len());
        let place = self.texts.places.partition_point(|(with_text, _)| (*with_text as usize) < position);
        let mut places = self.texts.places[place..].iter().peekable();
        (position..).zip(&self.hashes[position..]).map(move |(position, info_hash)| {
            let place = places.next_if(|(with_text, _)| *with_text as usize == position);
            (info_hash, place.map_or(Details::NONE, |(_, text)| self.details(*text)))
        })
    }

    /// Returns a number that differs between tables with different content, unless by chance (1 in 2^64). It depends on
    /// neither the key nor the order. The first call takes some tens of nanoseconds for each torrent.
    pub fn digest(&self) -> u64 {
        let add = |digest: u64, entry: (&InfoHash, Details<'_>)| {
            let mut hasher = DefaultHasher::new();
            entry.hash(&mut hasher);
            digest.wrapping_add(hasher.finish())
        };
        *self.digest.get_or_init(|| self.iter().fold(0, add))
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, info_hash: &InfoHash) -> Option<u32> {
        let index = self.bucket(hash).iter().position(|other| other == info_hash)?;
        Some(self.bounds(hash)[0] + as_u32(index))
    }

    #[inline]
    pub(super) fn bounds(&self, hash: u64) -> &[u32] {
        let bucket = scale(hash, self.bounds.len() - 1);
        &self.bounds[bucket..bucket + 2]
    }

    #[inline]
    pub(super) fn bucket(&self, hash: u64) -> &[InfoHash] {
        let bounds = self.bounds(hash);
        &self.hashes[bounds[0] as usize..bounds[1] as usize]
    }

    pub(super) fn text_of(&self, position: u32) -> Option<u32> {
        let places = &self.texts.places;
        let index = places.binary_search_by_key(&position, |(position, _)| *position).ok()?;
        Some(places[index].1)
    }

    pub(super) fn details(&self, number: u32) -> Details<'_> {
        self.texts.all.get(number as usize).map_or(Details::NONE, |text| Details::read(text))
    }
}

/// Returns a number below `range`, in proportion to the hash.
#[inline]
fn scale(hash: u64, range: usize) -> usize {
    let scaled = (u128::from(hash) * range as u128) >> 64;
    usize::try_from(scaled).unwrap_or(0)
}

/// Converts an index, which [`TORRENTS_MAX`] bounds.
#[inline]
fn as_u32(index: usize) -> u32 {
    const { assert!(TORRENTS_MAX < u32::MAX as usize) };
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const KEY: HashKey = HashKey::new([5, 6, 7, 8]);

    /// Returns one of a few torrents that differ in a single byte, so that duplicates occur.
    fn torrent(number: u8) -> InfoHash {
        let mut bytes = [0; 20];
        bytes[usize::from(number) % 20] = number;
        InfoHash(bytes)
    }

    proptest! {
        #[test]
        fn a_table_agrees_with_a_map(
            entries in prop::collection::vec((any::<u8>(), prop::option::of("[a-c]{1,2}")), 0..600),
        ) {
            let (mut builder, mut map) = (TableBuilder::default(), BTreeMap::new());
            for (number, reason) in &entries {
                builder.add(torrent(*number), reason.as_deref()).unwrap();
                let known = map.entry(torrent(*number)).or_insert(None);
                *known = known.or(reason.as_deref());
            }
            let table = builder.build(&KEY);
            prop_assert_eq!(table.len(), map.len());
            for number in 0..=u8::MAX {
                let info_hash = torrent(number);
                prop_assert_eq!(table.contains(&KEY, &info_hash), map.contains_key(&info_hash));
            }
            let listed: BTreeMap<_, _> = table.iter().map(|(hash, details)| (*hash, details.reason)).collect();
            prop_assert_eq!(&listed, &map);
            let all: Vec<_> = table.iter().collect();
            for position in 0..=all.len() {
                prop_assert_eq!(&table.iter_from(position).collect::<Vec<_>>()[..], &all[position..]);
            }
            for (info_hash, reason) in map {
                let position = table.find(KEY.hash(&info_hash.0), &info_hash).unwrap();
                prop_assert!(table.text_of(position).is_some() == reason.is_some());
                prop_assert_eq!(table.get(&KEY, &info_hash).map(|details| details.reason), Some(reason));
            }
        }
    }

    #[test]
    fn a_torrent_takes_less_than_24_bytes_at_every_size() {
        let mut rng = fastrand::Rng::with_seed(3);
        for torrents in [1000, 10_001, 300_000] {
            let mut builder = TableBuilder::default();
            for _ in 0..torrents {
                builder.add(InfoHash(core::array::from_fn(|_| rng.u8(..))), None).unwrap();
            }
            let table = builder.build(&KEY);
            assert!(table.bytes() <= table.len() * 22, "{} bytes", table.bytes());
            let crowded =
                (0..table.bounds.len() - 1).map(|bucket| table.bounds[bucket + 1] - table.bounds[bucket]);
            assert!(crowded.max() <= Some(24), "the hash spreads them");
        }
    }

    #[test]
    fn a_table_holds_its_memory_until_it_is_dropped() {
        let budget = Budget::new(64 << 20);
        let mut builder = TableBuilder::within(&budget);
        for number in 0..10_000_u32 {
            let mut info_hash = InfoHash([0; 20]);
            info_hash.0[..4].copy_from_slice(&number.to_le_bytes());
            builder.add(info_hash, Some(&*format!("reason {number}"))).unwrap();
        }
        let building = budget.taken();
        assert!((10_000 * 200..10_000 * 220).contains(&building), "{building}");
        let table = builder.build(&KEY);
        let held = budget.taken();
        assert!((table.bytes() as u64..building / 2).contains(&held), "{held}");
        drop(table);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn torrents_that_do_not_fit_are_counted_and_not_kept() {
        let budget = Budget::new(100_000);
        let mut builder = TableBuilder::within(&budget);
        (0..10_000).for_each(|_| builder.add(torrent(1), Some("why")).unwrap());
        let error = builder.check().unwrap_err();
        assert!((660_000..680_000).contains(&error.needed), "{error:?}");
        assert_eq!((budget.taken(), builder.build(&KEY).len()), (0, 0));
    }

    #[test]
    fn the_texts_of_a_table_are_bounded() {
        let mut builder = TableBuilder::default();
        builder.add(torrent(1), Some("known")).unwrap();
        builder.texts_bytes = TEXTS_BYTES_MAX - 5;
        assert_eq!(builder.add(torrent(2), Some("long")), Err(TableFull));
        assert_eq!(builder.add(torrent(3), Some("abc")), Ok(()));
        assert_eq!(builder.add(torrent(4), Some("known")), Ok(()), "an equal text takes no memory");
        assert_eq!(builder.add(torrent(5), Some("x")), Err(TableFull));
        assert_eq!(builder.add(torrent(6), None), Ok(()));
        assert_eq!(builder.build(&KEY).len(), 4);
    }

    #[test]
    fn one_torrent_many_times_is_one_entry() {
        let mut builder = TableBuilder::default();
        for _ in 0..100_000 {
            builder.add(torrent(7), Some("again")).unwrap();
        }
        let table = builder.build(&KEY);
        assert_eq!(table.iter().collect::<Vec<_>>(), [(&torrent(7), Some("again").into())]);
    }

    #[test]
    fn a_digest_depends_on_the_content_alone() {
        let details = |reason, date| Details { reason, date, reference: None };
        let entries = [
            (1, details(Some("a"), None)),
            (1, details(None, Some("a"))),
            (1, details(None, None)),
            (2, details(Some("a"), None)),
        ];
        let digest = |entries: &[(u8, Details<'_>)], key| {
            let mut builder = TableBuilder::default();
            entries.iter().for_each(|(byte, details)| builder.add(InfoHash([*byte; 20]), *details).unwrap());
            builder.build(&key).digest()
        };
        let digests = entries.map(|entry| digest(&[entry], KEY));
        let distinct: std::collections::BTreeSet<_> = digests.into_iter().collect();
        assert_eq!(distinct.len(), entries.len());
        let [first, .., last] = entries;
        assert_eq!(digest(&[first, last], KEY), digest(&[last, first], HashKey::new([9, 8, 7, 6])));
    }
}
