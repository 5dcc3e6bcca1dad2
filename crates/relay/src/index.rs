//! An index by hash. In a large swarm, it maps the hash of a peer id to the position of the peer.
//!
//! The index consists of segments, which are small hash tables. It grows and shrinks by one segment at a time, as in
//! Litwin's "Linear hashing: a new tool for file and table addressing" (1980). So a call moves at most the entries of
//! two segments, whatever the size of the swarm. A single table would be rehashed as a whole, under the lock of its
//! shard.
//!
//! With a million peers in one swarm, the longest call takes 0.2 ms of CPU (`cargo xtask bench relay`). A single table
//! took 47 to 73 ms, but 0.5 µs less per join on average. The list of peers grows and shrinks by 8,192 at a time.

use core::cell::Cell;

use hashbrown::HashTable;

/// Average number of entries per segment above which a segment is split. Hashes are random, so a segment before its
/// split has about twice as many, and rarely 350.
const SEGMENT_ENTRIES_MAX: usize = 128;

/// Average number of entries per segment below which two segments are merged.
const SEGMENT_ENTRIES_MIN: usize = 48;

/// Entries by hash. The caller knows the hash of each entry. An entry may be a position.
#[derive(Debug)]
pub(crate) struct Index<T> {
    segments: Vec<HashTable<T>>,
    len: usize,
}

impl<T: Copy + PartialEq> Index<T> {
    pub(crate) fn new() -> Self {
        Self { segments: vec![HashTable::with_capacity(SEGMENT_ENTRIES_MAX / 2)], len: 0 }
    }

    pub(crate) fn find(&self, hash: u64, is_match: impl Fn(T) -> bool) -> Option<T> {
        self.segments[self.segment(hash)].find(hash, |&entry| is_match(entry)).copied()
    }

    /// Adds an entry. `hash_of` returns the hash of any entry in the index.
    pub(crate) fn insert(&mut self, hash: u64, entry: T, hash_of: impl Fn(T) -> u64) {
        self.insert_unique(hash, entry, &hash_of);
        self.len += 1;
        if self.len > self.segments.len() * SEGMENT_ENTRIES_MAX {
            self.split(&hash_of);
        }
    }

    /// Adds a segment and moves its entries to it, about half of its parent's.
    fn split(&mut self, hash_of: &impl Fn(T) -> u64) {
        let new = self.segments.len();
        let old = parent(new);
        // The highest of the bits that select a segment distinguishes the new one from its parent.
        let is_new = |hash: u64| segment_bits(hash) & (1 << new.ilog2()) != 0;
        let mut segment = HashTable::with_capacity(self.segments[old].len() / 2);
        let hash = Cell::new(0);
        let moves = |entry: &mut T| {
            hash.set(hash_of(*entry));
            is_new(hash.get())
        };
        for entry in self.segments[old].extract_if(moves) {
            segment.insert_unique(hash.get(), entry, |&entry| hash_of(entry));
        }
        self.segments.push(segment);
    }

    /// Removes an entry, if it is in the index. `hash_of` returns the hash of any other entry in the index.
    pub(crate) fn remove(&mut self, hash: u64, removed: T, hash_of: impl Fn(T) -> u64) {
        let segment = self.segment(hash);
        let segment = &mut self.segments[segment];
        let Ok(entry) = segment.find_entry(hash, |&other| other == removed) else { return };
        entry.remove();
        self.len -= 1;
        if segment.len() < segment.capacity() / 4 {
            segment.shrink_to(segment.len() * 2, |&entry| hash_of(entry));
        }
        if self.segments.len() > 1
            && self.len < self.segments.len() * SEGMENT_ENTRIES_MIN
            && let Some(merged) = self.segments.pop()
        {
            merged.into_iter().for_each(|entry| self.insert_unique(hash_of(entry), entry, &hash_of));
            if self.segments.len() < self.segments.capacity() / 4 {
                self.segments.shrink_to(self.segments.len() * 2);
            }
        }
    }

    /// Exchanges two entries, each given with its hash. If one is not in the index, it stays outside.
    pub(crate) fn swap(&mut self, (one, one_hash): (T, u64), (other, other_hash): (T, u64)) {
        // Both are looked up before either changes, since a changed entry could be confused with the other.
        let (one_at, other_at) = (self.bucket(one_hash, one), self.bucket(other_hash, other));
        for (at, entry) in [(one_at, other), (other_at, one)] {
            if let Some((segment, bucket)) = at
                && let Some(changed) = self.segments[segment].get_bucket_mut(bucket)
            {
                *changed = entry;
            }
        }
    }

    fn bucket(&self, hash: u64, entry: T) -> Option<(usize, usize)> {
        let segment = self.segment(hash);
        Some((segment, self.segments[segment].find_bucket_index(hash, |&other| other == entry)?))
    }

    /// Returns the segment of a hash. The segments of the current level have as many bits as the last one. Those beyond
    /// the last one have not been split off their parents yet.
    fn segment(&self, hash: u64) -> usize {
        let segment = segment_bits(hash) & (self.segments.len().next_power_of_two() - 1);
        if segment < self.segments.len() { segment } else { parent(segment) }
    }

    fn insert_unique(&mut self, hash: u64, entry: T, hash_of: &impl Fn(T) -> u64) {
        let segment = self.segment(hash);
        self.segments[segment].insert_unique(hash, entry, |&entry| hash_of(entry));
    }
}

/// Returns the bits of a hash that select a segment, lowest first. The tables use the low bits of the hash to find a
/// bucket, and the highest seven to tell entries apart.
fn segment_bits(hash: u64) -> usize {
    usize::try_from(hash >> 32).unwrap_or(usize::MAX)
}

/// Returns the parent of a segment, which it is split off: its number without the highest bit.
fn parent(segment: usize) -> usize {
    segment - (1 << segment.ilog2())
}

#[cfg(test)]
impl<T> Index<T> {
    pub(crate) fn len(&self) -> usize {
        assert_eq!(self.len, self.segments.iter().map(HashTable::len).sum::<usize>());
        self.len
    }

    pub(crate) fn capacity(&self) -> usize {
        self.segments.iter().map(HashTable::capacity).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds positions up to `count` and removes them again, in a different order. Returns the maximum number of hashes
    /// that one call asked for.
    fn hashes_per_call(count: u32) -> usize {
        let mut rng = fastrand::Rng::with_seed(count.into());
        let hashes: Vec<u64> = (0..count).map(|_| rng.u64(..)).collect();
        let (asked, mut asked_max) = (Cell::new(0), 0);
        let hash_of = |position: u32| {
            asked.set(asked.get() + 1);
            hashes[position as usize]
        };
        let mut index = Index::new();
        let is_found = |index: &Index<u32>, position: u32| {
            index.find(hashes[position as usize], |other| other == position).is_some()
        };
        for position in 0..count {
            index.insert(hashes[position as usize], position, hash_of);
            asked_max = asked_max.max(asked.take());
            assert!(is_found(&index, rng.u32(..=position)));
        }
        assert!((0..count).all(|position| is_found(&index, position)));
        assert!(index.len() == count as usize && index.capacity() < 4 * index.len() + 100);
        let mut order: Vec<u32> = (0..count).collect();
        rng.shuffle(&mut order);
        while let Some(position) = order.pop() {
            index.remove(hashes[position as usize], position, hash_of);
            asked_max = asked_max.max(asked.take());
            assert!(!is_found(&index, position));
            assert!(order.is_empty() || is_found(&index, order[rng.usize(..order.len())]));
        }
        assert_eq!((index.len(), index.segments.len()), (0, 1));
        asked_max
    }

    #[test]
    fn no_call_moves_more_than_two_segments() {
        for count in [100, 1000, 30_000, 200_000] {
            let asked = hashes_per_call(count);
            assert!(asked < 900, "{asked} hashes for one call with {count} entries");
        }
    }

    #[test]
    fn swapped_positions_are_found() {
        let mut index = Index::new();
        let hashes = [7 << 57, 8 << 57];
        (0..2_u32).for_each(|position| index.insert(hashes[position as usize], position, |_| unreachable!()));
        index.swap((0, hashes[0]), (1, hashes[1]));
        assert_eq!(index.find(hashes[0], |_| true), Some(1));
        assert_eq!(index.find(hashes[1], |_| true), Some(0));
    }
}
