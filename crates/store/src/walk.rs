//! A walk over all torrents that remains correct while the store changes.
//!
//! The walk goes from shard to shard, and within a shard from one window of *selectors* to the next. The selector of a
//! swarm follows from its info hash and a secret of the shard, and never changes. A window is at most one segment of
//! swarms of each family, and both families share the selectors, so a torrent is listed once, with both swarms.
//!
//! This module owns the progress of a walk. Between two calls it holds no lock and no location in a table.

use shoal_base::{PeerV4, PeerV6};

use crate::api::Listed;
use crate::family::Stored;
use crate::retained::RetainedLine;
use crate::store::Store;
use crate::table::segment::segment_len_max;

/// The progress of a walk over all torrents.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    shard: usize,
    /// The first remaining selector of the shard.
    selector: u32,
}

impl Walk {
    /// Maximum number of torrents that one call lists: a segment of each family, with and without peers.
    pub const LISTED_MAX: usize = segment_len_max::<<PeerV4 as Stored>::SwarmLine>()
        + segment_len_max::<<PeerV6 as Stored>::SwarmLine>()
        + 2 * segment_len_max::<RetainedLine>();

    pub(crate) fn list_next(&mut self, store: &Store, listed: &mut Vec<Listed>) -> bool {
        listed.clear();
        if self.shard == store.v4.shards() {
            return false;
        }
        let last = store.v4.list(self.shard, self.selector, u32::MAX, listed);
        let last_v6 = store.v6.list(self.shard, self.selector, last, listed);
        if last_v6 < last {
            // Torrents after the end of the IPv6 segment belong to later windows.
            listed.retain(|torrent| store.v4.selector(self.shard, &torrent.info_hash) <= last_v6);
        }
        add_up(listed);
        match last.min(last_v6).checked_add(1) {
            Some(next) => self.selector = next,
            None => *self = Self { shard: self.shard + 1, selector: 0 },
        }
        self.shard < store.v4.shards()
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

    use shoal_base::{Action, InfoHash};

    use super::*;
    use crate::api::{Announce, Settings};

    fn info_hash(number: u32) -> InfoHash {
        let mut bytes = [0x5a; 20];
        bytes[8..12].copy_from_slice(&number.to_be_bytes());
        InfoHash(bytes)
    }

    fn store(torrents: u32) -> Store {
        let settings = Settings::new(1 << 28, 1800, [1, 2, 3, 4]);
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

    /// Walks over all torrents while some come and go, so that segments are split and merged.
    fn check(torrents: u32) {
        let store = store(torrents);
        let mut rng = fastrand::Rng::with_seed(2);
        let (mut walk, mut listed, mut all) = (Walk::default(), Vec::new(), BTreeMap::new());
        let (mut calls, mut has_more) = (0_u32, true);
        while has_more {
            calls += 1;
            assert!(calls < 1_000_000, "the walk ends");
            let action = if calls % 16 < 8 { Action::Leech } else { Action::Stop };
            for number in torrents..torrents + 2000 {
                let place = store.v6.locate(&info_hash(number));
                let announce = Announce { peer: PeerV6([1; 18]), action, peers_wanted: 0 };
                store.v6.announce(&place, &announce, 1000, &mut rng, &mut []).unwrap();
            }
            has_more = store.list(&mut walk, &mut listed);
            assert!(listed.len() <= Walk::LISTED_MAX, "a piece is bounded");
            for torrent in &listed {
                let leechers = torrent.counts.leechers;
                assert!(all.insert(torrent.info_hash, leechers).is_none(), "listed twice");
            }
        }
        for number in 0..torrents {
            let families = u32::from(!number.is_multiple_of(3)) + u32::from(!number.is_multiple_of(5));
            let listed = all.get(&info_hash(number)).copied().unwrap_or(0);
            assert_eq!(listed, families, "both families are listed together");
        }
    }

    #[test]
    fn a_walk_amid_changes_lists_every_torrent_once() {
        [0, 3000, 60_000].into_iter().for_each(check);
    }
}
