//! The walk over all torrents of a shard in the order of their selectors, which never change.

use core::ops::RangeInclusive;

use shoal_base::Counts;

use super::Shard;
use crate::api::Listed;
use crate::family::Family;
use crate::retained::RetainedEntry;
use crate::swarm::line::SwarmRow;
use crate::table::Bucket;

impl<P: Family> Shard<P> {
    /// Returns the last selector in the segment of `selector`, for both swarms and torrents without peers.
    pub(crate) fn last_selector(&self, selector: u32) -> u32 {
        self.swarms.last_selector(selector).min(self.retained.table.last_selector(selector))
    }

    /// Returns the last selector of the window that begins with `first`, if a segment has this many windows.
    pub(crate) fn last_of_window(&self, first: u32, windows: u32) -> u32 {
        let last = self.swarms.last_of_window(first, windows);
        last.min(self.retained.table.last_of_window(first, windows))
    }

    /// Visits the swarms with these selectors, which must belong to one segment, in no particular order.
    pub(crate) fn visit_swarms(
        &self,
        selectors: RangeInclusive<u32>,
        visit: impl FnMut(&P::SwarmLine, usize),
    ) {
        self.swarms.visit_segment(&self.memory, &self.key, selectors, visit);
    }

    /// Like [`visit_swarms`](Self::visit_swarms), for torrents without peers whose downloads are retained.
    pub(crate) fn visit_retained(
        &self,
        selectors: RangeInclusive<u32>,
        mut visit: impl FnMut(&RetainedEntry),
    ) {
        let table = &self.retained.table;
        table.visit_segment(&self.memory, &self.key, selectors, |line, slot| visit(&line.entry(slot)));
    }
}

impl<P: Family> Shard<P> {
    /// Lists the torrents with these selectors, which must belong to one segment, in no particular order: those with a
    /// swarm, and those with retained downloads.
    pub(crate) fn list(&self, selectors: RangeInclusive<u32>, listed: &mut Vec<Listed>) {
        self.visit_swarms(selectors.clone(), |line, slot| {
            let info_hash = line.id(slot);
            listed.push(Listed { info_hash, counts: self.counts(line, slot, &info_hash) });
        });
        self.visit_retained(selectors, |entry| {
            let counts = Counts { completed: entry.completed, ..Counts::default() };
            listed.push(Listed { info_hash: entry.id, counts });
        });
    }
}
