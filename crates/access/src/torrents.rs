//! Which torrents are served: an allow list, a deny list, or both. The deny list takes precedence.
//!
//! A list consists of a few tables, so that a change of a small source does not rebuild the table of a large one.

mod details;
mod feed;
mod format;
mod json;
mod line;
mod list;
mod metainfo;
mod publication;
mod table;

use std::sync::Arc;

use shoal_base::InfoHash;

use crate::hash::HashKey;
use crate::{Reason, ReasonPlace};

pub use details::Details;
pub use feed::{LINK_BYTES_MAX, Links, READING_BYTES as FEED_READING_BYTES, read_feed};
pub use format::{DocumentError, Format};
pub use json::read_json;
pub use line::{
    Entry, HASHES_MAX, LINE_BYTES_MAX, LineError, REASON_BYTES_MAX, REFERENCE_BYTES_MAX, comment, parse_hash,
};
pub use list::ListReader;
pub use metainfo::{MetainfoError, info_hashes};
pub use publication::{DenyWalk, Outdated, Publication, PublishedFields};
pub use table::{TEXTS_BYTES_MAX, TORRENTS_MAX, TableBuilder, TableError, TableFull, TorrentTable};

/// Maximum number of torrents of a changed table that are compared one by one.
const CHANGED_TORRENTS_MAX: usize = 1 << 17;

/// The lists of torrents. All tables were built with the same key.
#[derive(Debug)]
pub struct TorrentLists {
    key: HashKey,
    /// The torrents that are served, or `None` if all are that are not denied.
    allow: Option<Vec<Arc<TorrentTable>>>,
    deny: Vec<Arc<TorrentTable>>,
    /// How the deny list is published, if it is.
    publication: Option<Publication>,
}

/// Why a torrent is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// The torrent is on the deny list, with these words if the entry has any.
    Denied(Option<Reason>),
    /// The torrent is not on the allow list.
    NotAllowed,
}

/// The hash of a torrent, which determines its position in each table.
#[derive(Clone, Copy, Debug)]
pub struct Hashed(u64);

impl TorrentLists {
    /// Creates the rules from tables that were built with `key`.
    pub const fn new(
        key: HashKey,
        allow: Option<Vec<Arc<TorrentTable>>>,
        deny: Vec<Arc<TorrentTable>>,
    ) -> Self {
        Self { key, allow, deny, publication: None }
    }

    /// Returns the lists with another publication of the deny list.
    #[must_use]
    pub fn with_publication(self, publication: Option<Publication>) -> Self {
        Self { publication, ..self }
    }

    /// Returns how the deny list is published, if it is.
    pub const fn publication(&self) -> Option<&Publication> {
        self.publication.as_ref()
    }

    /// Decides whether a torrent is served. The error says why it is not.
    #[inline]
    pub fn check(&self, info_hash: &InfoHash) -> Result<(), Forbidden> {
        let hash = self.hash(info_hash).0;
        for (number, table) in self.deny.iter().enumerate() {
            if let Some(position) = table.find(hash, info_hash) {
                return Err(denied(number, table, position));
            }
        }
        match &self.allow {
            Some(allow) if !allow.iter().any(|table| table.find(hash, info_hash).is_some()) => {
                Err(Forbidden::NotAllowed)
            }
            _ => Ok(()),
        }
    }

    /// Hashes a torrent, for [`bounds`](Self::bounds) and [`entries`](Self::entries).
    #[inline]
    pub fn hash(&self, info_hash: &InfoHash) -> Hashed {
        Hashed(self.key.hash(&info_hash.0))
    }

    /// Returns the memory that a [`check`](Self::check) reads first: a part of each table. A caller that prefetches it
    /// for a whole batch, and then [`entries`](Self::entries), lets the cache misses of the batch overlap.
    #[inline]
    pub fn bounds(&self, hash: Hashed) -> impl Iterator<Item = &[u32]> {
        self.tables().map(move |table| table.bounds(hash.0))
    }

    /// Returns the memory that a [`check`](Self::check) reads next: the torrents that share a bucket.
    #[inline]
    pub fn entries(&self, hash: Hashed) -> impl Iterator<Item = &[InfoHash]> {
        self.tables().map(move |table| table.bucket(hash.0))
    }

    /// Returns the torrents that these lists forbid and `old` did not, or `None` if they may be many: then the torrents
    /// in use must be checked instead. Without `old`, nothing was forbidden.
    pub fn newly_forbidden(&self, old: Option<&Self>) -> Option<Vec<InfoHash>> {
        let no_tables = Vec::new();
        let old_deny = old.map_or(&no_tables, |old| &old.deny);
        let gone = match (&self.allow, old.and_then(|old| old.allow.as_ref())) {
            // All torrents were allowed.
            (Some(_), None) => return None,
            (Some(new), Some(old)) => without(old, new),
            (None, _) => Vec::new(),
        };
        let changed = without(&self.deny, old_deny).into_iter().chain(gone);
        let mut forbidden = Vec::new();
        for table in changed {
            if table.len() > CHANGED_TORRENTS_MAX {
                return None;
            }
            let is_new = |info_hash: &InfoHash| {
                self.check(info_hash).is_err() && old.is_none_or(|old| old.check(info_hash).is_ok())
            };
            forbidden.extend(table.iter().map(|(info_hash, _)| *info_hash).filter(is_new));
        }
        Some(forbidden)
    }

    /// Returns the tables of the deny list.
    pub fn deny(&self) -> &[Arc<TorrentTable>] {
        &self.deny
    }

    /// Returns the tables of the allow list, if there is one.
    pub fn allow(&self) -> Option<&[Arc<TorrentTable>]> {
        self.allow.as_deref()
    }

    pub(crate) fn reason(&self, table: u16, text: u32) -> Option<&str> {
        self.deny.get(usize::from(table))?.details(text).reason
    }

    fn tables(&self) -> impl Iterator<Item = &Arc<TorrentTable>> {
        self.deny.iter().chain(self.allow.iter().flatten())
    }
}

/// Returns the tables that are not among `others`.
fn without<'t>(tables: &'t [Arc<TorrentTable>], others: &[Arc<TorrentTable>]) -> Vec<&'t TorrentTable> {
    let is_among = |table: &Arc<TorrentTable>| others.iter().any(|other| Arc::ptr_eq(other, table));
    tables.iter().filter(|table| !is_among(table)).map(|table| &**table).collect()
}

#[cold]
fn denied(number: usize, table: &TorrentTable, position: u32) -> Forbidden {
    let table_number = u16::try_from(number).unwrap_or(u16::MAX);
    let text = table.text_of(position);
    Forbidden::Denied(text.map(|text| Reason(ReasonPlace::Torrent { table: table_number, text })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    const KEY: HashKey = HashKey::new([1, 2, 3, 4]);

    fn table(entries: &[(u8, Option<&str>)]) -> Arc<TorrentTable> {
        let mut builder = TableBuilder::default();
        for &(byte, reason) in entries {
            builder.add(InfoHash([byte; 20]), reason).unwrap();
        }
        Arc::new(builder.build(&KEY))
    }

    #[test]
    fn the_deny_list_takes_precedence_and_the_allow_list_is_exhaustive() {
        let deny = vec![table(&[(1, None)]), table(&[(2, Some("a notice")), (3, Some("another"))])];
        let lists = |allow| TorrentLists::new(KEY, allow, deny.clone());
        let check = |torrents: &TorrentLists, byte| torrents.check(&InfoHash([byte; 20]));
        let only_deny = lists(None);
        assert_eq!(check(&only_deny, 1), Err(Forbidden::Denied(None)));
        assert_eq!(check(&only_deny, 9), Ok(()));
        let both = lists(Some(vec![table(&[(1, None), (5, None)]), table(&[(6, None)])]));
        assert_eq!(check(&both, 1), Err(Forbidden::Denied(None)));
        for (byte, expected) in [(5, Ok(())), (6, Ok(())), (9, Err(Forbidden::NotAllowed))] {
            assert_eq!(check(&both, byte), expected);
        }
        assert_eq!(check(&lists(Some(Vec::new())), 5), Err(Forbidden::NotAllowed));
    }

    #[test]
    fn a_change_of_lists_names_the_torrents_that_it_forbids() {
        let hashes = |bytes: &[u8]| Some(bytes.iter().map(|byte| InfoHash([*byte; 20])).collect::<Vec<_>>());
        let list = |bytes: &[u8]| table(&bytes.iter().map(|byte| (*byte, None)).collect::<Vec<_>>());
        let (one_two, same) = (list(&[1, 2]), list(&[3]));
        let old = TorrentLists::new(KEY, None, vec![Arc::clone(&one_two), Arc::clone(&same)]);
        let sorted = |forbidden: Option<Vec<InfoHash>>| {
            forbidden.map(|mut forbidden| {
                forbidden.sort_unstable();
                forbidden
            })
        };
        let new = TorrentLists::new(KEY, None, vec![list(&[2, 4, 5]), same]);
        assert_eq!(sorted(new.newly_forbidden(Some(&old))), hashes(&[4, 5]));
        assert_eq!(sorted(new.newly_forbidden(None)), hashes(&[2, 3, 4, 5]));
        assert_eq!(sorted(new.newly_forbidden(Some(&new))), hashes(&[]));
        let allows =
            |bytes: &[u8]| TorrentLists::new(KEY, Some(vec![list(bytes)]), vec![Arc::clone(&one_two)]);
        assert_eq!(sorted(allows(&[1, 7]).newly_forbidden(Some(&allows(&[1, 7, 8])))), hashes(&[8]));
        assert_eq!(allows(&[7]).newly_forbidden(Some(&old)), None, "any torrent may be forbidden now");
        let large: Vec<_> = (0..=CHANGED_TORRENTS_MAX).collect();
        let mut builder = TableBuilder::default();
        for number in large {
            let mut bytes = [0; 20];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            builder.add(InfoHash(bytes), None).unwrap();
        }
        let large = TorrentLists::new(KEY, None, vec![Arc::new(builder.build(&KEY))]);
        assert_eq!(large.newly_forbidden(Some(&old)), None, "these are many");
    }

    #[test]
    fn a_reason_is_found_in_the_table_that_denies() {
        let deny = vec![table(&[(1, Some("first"))]), table(&[(1, Some("never")), (2, Some("second"))])];
        let torrents = Arc::new(TorrentLists::new(KEY, None, deny));
        let access = Access { torrents: Some(Arc::clone(&torrents)), ..Access::default() };
        for (byte, words) in [(1, "first"), (2, "second")] {
            let Err(Forbidden::Denied(Some(reason))) = torrents.check(&InfoHash([byte; 20])) else {
                panic!("it has a reason")
            };
            assert_eq!(access.reason(reason), Some(words));
            assert_eq!(Access::default().reason(reason), None);
        }
    }
}
