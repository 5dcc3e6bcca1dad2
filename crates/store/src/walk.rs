//! A walk over all torrents that stays right while the store changes under it.
//!
//! Goes from shard to shard, and in a shard from one window of *positions* to the next. The position of a swarm is its
//! keyed hash, which never changes, while its line does whenever the table grows or shrinks. Both families have the
//! same key, so that a torrent of both falls into the same window of both, and is listed once.
//!
//! Owns how far it has come. Holds no lock and no place in a table between two calls.

use crate::api::{Listed, Store};
use crate::swarms::SHARDS;

/// Lines that a window has, of both families together: so few that nobody waits long for the lock.
const LINES_PER_WINDOW: u64 = 16;

/// Number of positions.
const POSITIONS: u64 = 1 << 32;

/// How far a walk has come.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    shard: usize,
    /// The first position of the shard that is still to be looked at.
    position: u32,
}

impl Walk {
    pub(crate) fn list_next(&mut self, store: &Store, listed: &mut Vec<Listed>) -> bool {
        listed.clear();
        if self.shard == SHARDS {
            return false;
        }
        let lines = u64::from(store.v4.lines(self.shard)) + u64::from(store.v6.lines(self.shard));
        let width = (POSITIONS * LINES_PER_WINDOW / lines.max(1)).max(1);
        let last = u32::try_from(u64::from(self.position) + width - 1).unwrap_or(u32::MAX);
        store.v4.list(self.shard, self.position..=last, listed);
        store.v6.list(self.shard, self.position..=last, listed);
        add_up(listed);
        match last.checked_add(1) {
            Some(next) => self.position = next,
            None => *self = Self { shard: self.shard + 1, position: 0 },
        }
        self.shard < SHARDS
    }
}

/// Makes one of the two swarms of a torrent.
fn add_up(listed: &mut Vec<Listed>) {
    listed.sort_unstable_by_key(|torrent| torrent.info_hash);
    listed.dedup_by(|later, earlier| {
        let same = later.info_hash == earlier.info_hash;
        if same {
            earlier.counts = earlier.counts.plus(later.counts);
        }
        same
    });
}
