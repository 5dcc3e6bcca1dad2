//! A walk over all torrents that remains correct while the store changes.
//!
//! The walk goes from shard to shard, and within a shard from one window of *positions* to the next. The position of a
//! swarm follows from its hash and the seed of the shard's table. It stays the same when the table grows or shrinks,
//! while the swarm's line does not. Both families have the same seeds, so both swarms of a torrent fall into the same
//! window, and the torrent is listed once.
//!
//! A shard's order may be renewed during a walk. The walk then starts the shard again in the new order, and leaves out
//! the torrents that it has already listed: those whose position in the earlier order is below the point reached in it.
//!
//! This module owns the progress of a walk. Between two calls it holds no lock and no location in a table.

use arrayvec::ArrayVec;

use crate::api::{Listed, Store};
use crate::hash::Seed;
use crate::swarms::SHARDS;

/// Number of lines in a window, of both families together: few enough that no request waits long for the lock.
const LINES_PER_WINDOW: u64 = 16;

/// Number of positions.
const POSITIONS: u64 = 1 << 32;

/// Maximum number of orders of one shard that a walk can leave behind. After one more it continues with the next shard.
/// Each renewal costs an attacker as many announces as the shard has swarms, so this does not happen by chance.
const ORDERS_LEFT_MAX: usize = 8;

/// Number of consecutive calls that find a shard out of order and move nothing, because memory is full, before the walk
/// continues with the next shard.
const WAITS_MAX: u32 = 10_000;

/// The progress of a walk over all torrents.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    shard: usize,
    /// The generation of the shard's order, from the first window on.
    generation: Option<u32>,
    /// The first position of the shard that is still to be examined.
    position: u32,
    /// Earlier orders of the shard, and the first position that was not examined in each.
    left: ArrayVec<(Seed, u32), ORDERS_LEFT_MAX>,
    waits: u32,
}

impl Walk {
    pub(crate) fn list_next(&mut self, store: &Store, listed: &mut Vec<Listed>) -> bool {
        listed.clear();
        if self.shard == SHARDS {
            return false;
        }
        match self.enter(store) {
            Some((generation, lines)) => self.list_window(store, generation, lines, listed),
            None if self.waits == WAITS_MAX => self.leave_shard(),
            None => self.waits += 1,
        }
        self.shard < SHARDS
    }

    /// Returns the generation of both families if it is the same, and their number of lines.
    fn enter(&mut self, store: &Store) -> Option<(u32, u64)> {
        let orders = (store.v4.order_for_list(self.shard), store.v6.order_for_list(self.shard));
        let (Some((generation, v4_lines)), Some((v6_generation, v6_lines))) = orders else { return None };
        if generation != v6_generation {
            return None;
        }
        if self.generation.is_some_and(|earlier| earlier != generation) && !self.begin_anew(store) {
            self.leave_shard();
            return None;
        }
        self.generation = Some(generation);
        Some((generation, u64::from(v4_lines) + u64::from(v6_lines)))
    }

    /// Returns to the first position, since the shard has another order. Returns whether that is possible.
    fn begin_anew(&mut self, store: &Store) -> bool {
        let Some(earlier) = self.generation else { return true };
        let left = (store.v4.seed(self.shard, earlier), core::mem::take(&mut self.position));
        self.left.try_push(left).is_ok()
    }

    fn list_window(&mut self, store: &Store, generation: u32, lines: u64, listed: &mut Vec<Listed>) {
        let width = (POSITIONS * LINES_PER_WINDOW / lines.max(1)).max(1);
        let last = u32::try_from(u64::from(self.position) + width - 1).unwrap_or(u32::MAX);
        let window = || self.position..=last;
        let in_order = store.v4.list(self.shard, generation, window(), listed)
            && store.v6.list(self.shard, generation, window(), listed);
        if !in_order {
            // The order was renewed after `enter`. The next call handles that.
            listed.clear();
            return;
        }
        self.waits = 0;
        listed.retain(|torrent| !self.was_listed(store, torrent));
        add_up(listed);
        match last.checked_add(1) {
            Some(next) => self.position = next,
            None => self.leave_shard(),
        }
    }

    /// Returns whether a torrent was before the point that was reached in an earlier order.
    fn was_listed(&self, store: &Store, torrent: &Listed) -> bool {
        if self.left.is_empty() {
            return false;
        }
        let hash = store.v4.locate(&torrent.info_hash).hash;
        self.left.iter().any(|&(seed, reached)| seed.position(hash) < reached)
    }

    fn leave_shard(&mut self) {
        *self = Self { shard: self.shard + 1, ..Self::default() };
    }
}

/// Merges the two swarms of a torrent into one entry.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shoal_types::{Action, InfoHash, PeerV4, PeerV6};

    use super::*;
    use crate::api::{Announce, Settings};

    fn info_hash(number: u32) -> InfoHash {
        let mut bytes = [0x5a; 20];
        bytes[8..12].copy_from_slice(&number.to_be_bytes());
        InfoHash(bytes)
    }

    fn store(torrents: u32) -> Store {
        let settings = Settings {
            memory_bytes_max: 1 << 28,
            peer_timeout_s: 1800,
            peers_per_source_max: 0,
            hash_key: [1, 2, 3, 4],
        };
        let (store, mut rng) = (Store::new(&settings).unwrap(), fastrand::Rng::with_seed(1));
        for number in 0..torrents {
            let place = store.v4.locate(&info_hash(number));
            if !number.is_multiple_of(3) {
                let announce = Announce { peer: PeerV4([1; 6]), action: Action::Leech, peers_wanted: 0 };
                store.v4.announce(&place, &announce, 1000, &mut rng, &mut []).unwrap();
            }
            if !number.is_multiple_of(5) {
                let announce = Announce { peer: PeerV6([1; 18]), action: Action::Leech, peers_wanted: 0 };
                store.v6.announce(&place, &announce, 1000, &mut rng, &mut []).unwrap();
            }
        }
        store
    }

    /// Walks over all torrents while the orders of all shards are renewed at intervals, in alternating families.
    fn check(torrents: u32, calls_between_renewals: u32) -> usize {
        let store = store(torrents);
        let (mut walk, mut listed, mut all) = (Walk::default(), Vec::new(), BTreeMap::new());
        let (mut calls, mut has_more) = (0_u32, true);
        while has_more {
            calls += 1;
            assert!(calls < 1_000_000, "the walk ends");
            if calls.is_multiple_of(calls_between_renewals) {
                (0..SHARDS).for_each(|shard| match calls / calls_between_renewals % 2 {
                    0 => store.v4.renew_order(shard),
                    _ => store.v6.renew_order(shard),
                });
            }
            has_more = store.list(&mut walk, &mut listed);
            assert!(listed.len() < 400, "a piece is bounded");
            for torrent in &listed {
                assert!(all.insert(torrent.info_hash, torrent.counts.leechers).is_none(), "listed twice");
            }
        }
        for (hash, leechers) in &all {
            let number = u32::from_be_bytes(hash.0[8..12].try_into().unwrap());
            let families = u32::from(!number.is_multiple_of(3)) + u32::from(!number.is_multiple_of(5));
            assert_eq!(*leechers, families, "both families are listed together");
        }
        all.len()
    }

    #[test]
    fn a_walk_amid_renewals_lists_every_torrent_once() {
        let there = |torrents: u32| (0..torrents).filter(|number| !number.is_multiple_of(15)).count();
        for (torrents, calls) in [(3000, 7), (60_000, 40), (60_000, 1000)] {
            assert_eq!(check(torrents, calls), there(torrents));
        }
    }

    #[test]
    fn a_walk_ends_however_often_an_order_is_renewed() {
        assert!(check(60_000, 1) <= 56_000);
    }
}
