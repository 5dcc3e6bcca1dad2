//! The torrents of one shard whose counts have changed since the buffer was last emptied, and the watch over all
//! shards.
//!
//! The lock that a change holds anyway also guards the buffer of its shard. That is one place for all causes: joins,
//! departures, changes of role, downloads, expiry, eviction, removal. The alternative was a queue of each worker, which
//! every call of the stores would have to pass on. A torrent that changes repeatedly takes one place. The buffers have
//! room for 65,536 changes or more of each family. Beyond that, readers start over. Torrents of private networks that
//! are kept apart are not included.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::InfoHash;

/// A bounded set of changed torrents. It belongs to a shard and is used under the shard's lock, so it needs none.
///
/// A torrent that changes repeatedly takes one place, unless another torrent with the same position in the table
/// changes in between. A torrent without a place is lost, which [`take`](Self::take) reports.
#[derive(Debug)]
pub struct ChangeBuffer {
    /// The changed torrents. Its capacity never grows.
    info_hashes: Vec<InfoHash>,
    capacity: usize,
    /// For each remainder of a hash, the index of the last torrent with it. An index may be out of date, so the
    /// torrents are compared.
    last: Box<[u16]>,
    has_lost: bool,
}

impl ChangeBuffer {
    /// The largest capacity.
    pub const CAPACITY_MAX: usize = 1 << 15;

    /// Creates an empty buffer for this many torrents, at most [`CAPACITY_MAX`](Self::CAPACITY_MAX).
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, Self::CAPACITY_MAX);
        Self {
            info_hashes: Vec::with_capacity(capacity),
            capacity,
            last: vec![0; capacity.next_power_of_two()].into(),
            has_lost: false,
        }
    }

    /// Returns the memory in bytes of a buffer with this capacity.
    pub const fn bytes(capacity: usize) -> usize {
        capacity * size_of::<InfoHash>() + capacity.next_power_of_two() * size_of::<u16>()
    }

    /// Records that the counts of a torrent have changed. `hash` is a keyed hash of it, so that no client can choose
    /// torrents that displace each other in the table.
    pub fn note(&mut self, hash: u64, info_hash: &InfoHash) {
        // The hashes of a shard may share some bits, so all bits decide.
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let slot = usize::try_from(mixed).unwrap_or(0) & (self.last.len() - 1);
        let last = &mut self.last[slot];
        if self.info_hashes.get(usize::from(*last)) == Some(info_hash) {
            return;
        }
        if self.info_hashes.len() == self.capacity {
            self.has_lost = true;
            return;
        }
        // The capacity fits.
        *last = u16::try_from(self.info_hashes.len()).unwrap_or(0);
        self.info_hashes.push(*info_hash);
    }

    /// Returns how many torrents are in the buffer. A buffer that has lost torrents is never empty.
    pub fn len(&self) -> usize {
        self.info_hashes.len()
    }

    /// Returns whether no torrent has changed.
    pub fn is_empty(&self) -> bool {
        self.info_hashes.is_empty()
    }

    /// Exchanges the content for `empty`, an empty list with at least the capacity of the buffer. The time does not
    /// depend on the content. Returns whether torrents were lost since the last call.
    pub fn take(&mut self, empty: &mut Vec<InfoHash>) -> bool {
        debug_assert!(empty.is_empty() && empty.capacity() >= self.capacity);
        core::mem::swap(&mut self.info_hashes, empty);
        core::mem::take(&mut self.has_lost)
    }
}

/// A shard whose lock also guards a buffer of changes while there is a reader.
pub trait WatchedShard {
    /// Returns the number of torrents in the buffer, which is readable without the lock.
    fn changed(&self) -> &AtomicU64;
    /// Calls `access` with the buffer, under the lock.
    fn with_changes<T>(&self, access: impl FnOnce(&mut Option<ChangeBuffer>) -> T) -> T;
    /// Calls `access` like [`with_changes`](Self::with_changes), unless another thread holds the lock.
    fn try_with_changes<T>(&self, access: impl FnOnce(&mut Option<ChangeBuffer>) -> T) -> Option<T>;
}

/// Begins to watch which torrents of these shards change: up to `capacity` in each shard between two calls of
/// [`take_changes`]. Earlier changes are lost.
pub fn watch_changes(shards: &[impl WatchedShard], capacity: usize) {
    for shard in shards {
        // The new buffer is allocated, and the old one freed, without the lock.
        let mut buffer = Some(ChangeBuffer::new(capacity));
        shard.with_changes(|changes| core::mem::swap(changes, &mut buffer));
    }
}

/// Ends the watch.
pub fn ignore_changes(shards: &[impl WatchedShard]) {
    for shard in shards {
        drop(shard.with_changes(Option::take));
    }
}

/// Calls `visit` with the torrents that have changed since the last call, shard by shard. A shard is locked only if
/// torrents in it have changed and no other thread has locked it, and only to exchange two lists. `spare` is an empty
/// list with the capacity of the watch. Returns whether changes were lost.
pub fn take_changes(
    shards: &[impl WatchedShard],
    spare: &mut Vec<InfoHash>,
    visit: &mut impl FnMut(&[InfoHash]),
) -> bool {
    let mut has_lost = false;
    for shard in shards.iter().filter(|shard| shard.changed().load(Ordering::Relaxed) > 0) {
        let taken = shard.try_with_changes(|changes| {
            let lost = changes.as_mut()?.take(spare);
            shard.changed().store(0, Ordering::Relaxed);
            Some(lost)
        });
        let Some(lost) = taken.flatten() else { continue };
        has_lost |= lost;
        visit(spare);
        spare.clear();
    }
    has_lost
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info_hash(number: u16) -> InfoHash {
        let mut bytes = [0; 20];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        InfoHash(bytes)
    }

    fn hash(number: u16) -> u64 {
        u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn a_torrent_that_changes_often_takes_one_place() {
        let mut buffer = ChangeBuffer::new(4);
        for _ in 0..1000 {
            buffer.note(hash(1), &info_hash(1));
        }
        let mut taken = Vec::with_capacity(4);
        assert!(!buffer.take(&mut taken));
        assert_eq!(taken, [info_hash(1)]);
        // Torrents that were taken are new again.
        buffer.note(hash(1), &info_hash(1));
        taken.clear();
        assert!(!buffer.take(&mut taken));
        assert_eq!(taken, [info_hash(1)]);
    }

    #[test]
    fn a_full_buffer_tells_that_it_has_lost_torrents() {
        let mut buffer = ChangeBuffer::new(100);
        (0..100).for_each(|number| buffer.note(hash(number), &info_hash(number)));
        let mut taken = Vec::with_capacity(100);
        assert!(!buffer.take(&mut taken));
        assert_eq!(taken.len(), 100);
        taken.clear();
        (0..101).for_each(|number| buffer.note(hash(number), &info_hash(number)));
        assert!(buffer.take(&mut taken));
        assert_eq!(taken.len(), 100);
        taken.clear();
        assert!(!buffer.take(&mut taken), "it is told once");
    }

    #[test]
    fn no_change_is_missed_whatever_the_hashes() {
        // All torrents share a position of the table.
        let mut buffer = ChangeBuffer::new(64);
        for round in 0..10 {
            buffer.note(0, &info_hash(round % 3));
        }
        let mut taken = Vec::with_capacity(64);
        assert!(!buffer.take(&mut taken));
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken, [0, 1, 2].map(info_hash));
    }
}
