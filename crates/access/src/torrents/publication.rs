//! The deny list in its public form, read in steps.
//!
//! A reader may be slow, and the list may change meanwhile. So a walk keeps no table alive: a change ends it, unless it
//! only concerns tables that the walk has passed.
//!
//! The `ETag` is a sum over the entries that depends on neither their order nor the secret key. So it stays the same
//! across restarts and nodes.

use std::sync::{Arc, Weak};

use shoal_base::InfoHash;

use super::{Details, TorrentLists, TorrentTable};
use crate::HashKey;

/// How the operator publishes the deny list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The published details beside the info hashes.
    pub fields: PublishedFields,
    /// A number for the content of the list, as of [`TorrentTable::digest`].
    pub digest: u64,
    /// Since when the list has this content, in seconds since 1970.
    pub since_unix_s: u64,
}

/// Which details of an entry are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PublishedFields {
    /// The date.
    pub date: bool,
    /// The reference.
    pub reference: bool,
    /// The reason.
    pub reason: bool,
}

/// A walk over the deny list, each torrent once.
#[derive(Debug)]
pub struct DenyWalk {
    key: HashKey,
    /// The remaining tables. The last one comes next, because small sources come last and change most often.
    tables: Vec<Weak<TorrentTable>>,
    /// The position in that table.
    position: usize,
    fields: PublishedFields,
}

/// The error that the list has changed during the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outdated;

impl DenyWalk {
    /// Begins a walk over the deny list of `lists`.
    pub fn new(lists: &TorrentLists, fields: PublishedFields) -> Self {
        let tables = lists.deny().iter().map(Arc::downgrade).collect();
        Self { key: lists.key, tables, position: 0, fields }
    }

    /// Returns its heap memory.
    pub const fn held_bytes(&self) -> usize {
        self.tables.capacity() * size_of::<Weak<TorrentTable>>()
    }

    /// Examines the next entries, at most `count_max`. Calls `each` with those that no earlier table has, perhaps none,
    /// and with their published details. Returns whether there may be more. Fails if the list has changed, so that the
    /// rest cannot be read.
    pub fn next(
        &mut self,
        count_max: usize,
        mut each: impl FnMut(&InfoHash, Details<'_>),
    ) -> Result<bool, Outdated> {
        let tables: Option<Vec<_>> = self.tables.iter().map(Weak::upgrade).collect();
        let Some((table, others)) = tables.as_ref().ok_or(Outdated)?.split_last() else { return Ok(false) };
        for (info_hash, details) in table.iter_from(self.position).take(count_max) {
            self.position += 1;
            // The first table that has a torrent decides about its reason, for clients as well.
            if !others.iter().any(|other| other.contains(&self.key, info_hash)) {
                each(info_hash, self.fields.of(details));
            }
        }
        if self.position >= table.len() {
            self.tables.pop();
            self.position = 0;
        }
        Ok(!self.tables.is_empty())
    }
}

impl PublishedFields {
    /// Returns the details that are published.
    pub fn of<'d>(&self, details: Details<'d>) -> Details<'d> {
        Details {
            date: details.date.filter(|_| self.date),
            reference: details.reference.filter(|_| self.reference),
            reason: details.reason.filter(|_| self.reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::torrents::TableBuilder;

    const KEY: HashKey = HashKey::new([1, 2, 3, 4]);
    const ALL: PublishedFields = PublishedFields { date: true, reference: true, reason: true };

    fn table(entries: &[(u8, &'static str)]) -> Arc<TorrentTable> {
        let mut builder = TableBuilder::default();
        for &(byte, reason) in entries {
            builder.add(InfoHash([byte; 20]), Some(reason)).unwrap();
        }
        Arc::new(builder.build(&KEY))
    }

    fn walk(walk: &mut DenyWalk, step: usize) -> Result<BTreeMap<u8, String>, Outdated> {
        let mut found = BTreeMap::new();
        while walk.next(step, |info_hash, details| {
            let before = found.insert(info_hash.0[0], details.reason.unwrap_or_default().to_owned());
            assert_eq!(before, None, "each torrent comes once");
        })? {}
        Ok(found)
    }

    #[test]
    fn each_torrent_comes_once_with_the_details_that_clients_see() {
        let tables = vec![table(&[(1, "a"), (2, "b")]), table(&[]), table(&[(2, "never"), (3, "c")])];
        let lists = TorrentLists::new(KEY, None, tables);
        let expected: BTreeMap<_, _> =
            [(1, "a"), (2, "b"), (3, "c")].map(|(byte, reason)| (byte, reason.to_owned())).into();
        for step in [1, 2, 100] {
            assert_eq!(walk(&mut DenyWalk::new(&lists, ALL), step).as_ref(), Ok(&expected));
        }
        let empty = TorrentLists::new(KEY, None, Vec::new());
        assert_eq!(walk(&mut DenyWalk::new(&empty, ALL), 1), Ok(BTreeMap::new()));
        let none = walk(&mut DenyWalk::new(&lists, PublishedFields::default()), 1).unwrap();
        assert!(none.values().all(String::is_empty));
    }

    #[test]
    fn a_step_examines_no_more_entries_than_it_may() {
        let entries: Vec<_> = (0..100).map(|byte| (byte, "a")).collect();
        let lists = TorrentLists::new(KEY, None, vec![table(&entries), table(&entries)]);
        let (mut begun, mut found) = (DenyWalk::new(&lists, ALL), Vec::new());
        let mut has_more = true;
        while has_more {
            let mut count = 0;
            has_more = begun.next(10, |_, _| count += 1).unwrap();
            found.push(count);
        }
        assert_eq!(found, [[0; 10], [10; 10]].concat(), "the last table has nothing of its own");
    }

    #[test]
    fn a_walk_ends_when_a_table_ahead_is_gone_and_keeps_none_alive() {
        let (first, last) = (table(&[(1, "a"), (2, "b")]), table(&[(3, "c")]));
        let mut lists = TorrentLists::new(KEY, None, vec![Arc::clone(&first), last]);
        let mut begun = DenyWalk::new(&lists, ALL);
        let mut late = DenyWalk::new(&lists, ALL);
        assert_eq!(begun.next(9, |_, _| {}), Ok(true));
        lists = TorrentLists::new(KEY, None, vec![first]);
        assert_eq!(walk(&mut late, 1), Err(Outdated));
        assert_eq!(walk(&mut begun, 1).unwrap().len(), 2, "it had passed the table");
        drop(lists);
        assert_eq!(begun.next(1, |_, _| {}), Ok(false));
    }
}
