//! Logs the entries that a change of a list has added and removed.
//!
//! The old and the new table of a source are compared after the change applies. Both are in the order of the same hash,
//! so even ten million look-ups go through memory in sequence. The author of an entry stands in the comment of its
//! line, which no table holds. For a small change, the file is searched for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use shoal_access::HashKey;
use shoal_access::torrents::{Details, Entry, TorrentTable, comment};
use shoal_base::InfoHash;
use shoal_config::ListSource;

use super::edit;

/// Maximum number of entries of a change that are logged one by one.
const ENTRIES_LOGGED_MAX: usize = 100;

/// Maximum size of a file that is searched for the comments of new entries.
const SEARCHED_BYTES_MAX: u64 = 64 << 20;

/// A source that was read again, with its earlier tables.
#[derive(Debug)]
pub struct SourceChange {
    list: &'static str,
    location: ListSource,
    old: Vec<Arc<TorrentTable>>,
    new: Vec<Arc<TorrentTable>>,
}

/// The entries of a table that another one lacks, or has with other details.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences<'t> {
    count: usize,
    /// The first of them.
    entries: Vec<(InfoHash, Details<'t>)>,
}

impl SourceChange {
    pub(super) fn new(
        list: &'static str,
        location: &ListSource,
        old: Vec<Arc<TorrentTable>>,
        new: Vec<Arc<TorrentTable>>,
    ) -> Self {
        Self { list, location: location.clone(), old, new }
    }

    /// Writes a line for each entry, or a single line if they are many.
    pub(super) fn log(&self, key: &HashKey) {
        let (came, went) = (differences(&self.new, &self.old, key), differences(&self.old, &self.new, key));
        let list = format!("access.{}", self.list);
        let source = &self.location;
        if came.count + went.count > ENTRIES_LOGGED_MAX {
            return tracing::info!(list, %source, added = came.count, removed = went.count, "a list has changed");
        }
        let comments = self.comments(&came.entries);
        for (change, differences) in [("removed", &went), ("added", &came)] {
            for (info_hash, details) in &differences.entries {
                // An entry whose details have changed was not removed.
                if change == "removed" && self.new.iter().any(|table| table.contains(key, info_hash)) {
                    continue;
                }
                let comment = comments.get(info_hash).filter(|_| change == "added");
                tracing::info!(
                    change,
                    list,
                    info_hash = format!("{info_hash:?}"),
                    %source,
                    date = details.date.unwrap_or_default(),
                    reference = details.reference.unwrap_or_default(),
                    reason = details.reason.unwrap_or_default(),
                    comment = comment.map_or("", |comment| comment),
                    "an entry of a list has changed"
                );
            }
        }
    }

    /// Returns the comments after these entries, in which `shoal access add` names its user. The tables lack comments,
    /// so this searches the file, unless it is large.
    fn comments(&self, entries: &[(InfoHash, Details<'_>)]) -> BTreeMap<InfoHash, String> {
        let mut comments = BTreeMap::new();
        let path: PathBuf = self.location.to_string().into();
        let is_searched =
            fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() <= SEARCHED_BYTES_MAX);
        if entries.is_empty() || !is_searched {
            return comments;
        }
        let Ok(file) = shoal_base::file::open(&path) else { return comments };
        // A file that cannot be read to its end has fewer comments.
        let _ = edit::for_each_line(&file, |line| {
            let text = line.text().unwrap_or_default();
            let (Some(comment), Ok(Some(entry))) = (comment(&text), Entry::parse(&text)) else {
                return Ok(());
            };
            for (info_hash, _) in entries.iter().filter(|(hash, _)| entry.info_hashes.contains(hash)) {
                comments.insert(*info_hash, comment.to_owned());
            }
            Ok(())
        });
        comments
    }
}

/// Returns the entries of tables that `others` lack, or have with other details.
fn differences<'t>(
    tables: &'t [Arc<TorrentTable>],
    others: &[Arc<TorrentTable>],
    key: &HashKey,
) -> Differences<'t> {
    let mut differences = Differences::default();
    // Both tables are in the same order, so the look-ups touch the memory of the other one in sequence.
    let is_new = |(hash, details): &(&InfoHash, Details<'_>)| {
        others.iter().find_map(|other| other.get(key, hash)) != Some(*details)
    };
    for (info_hash, details) in tables.iter().flat_map(|table| table.iter()).filter(is_new) {
        differences.count += 1;
        if differences.count <= ENTRIES_LOGGED_MAX {
            differences.entries.push((*info_hash, details));
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use shoal_access::torrents::TableBuilder;

    use super::*;

    const KEY: HashKey = HashKey::new([1, 2, 3, 4]);

    fn table(entries: &[(u8, Option<&str>)]) -> TorrentTable {
        let mut builder = TableBuilder::default();
        entries.iter().for_each(|(byte, reason)| builder.add(InfoHash([*byte; 20]), *reason).unwrap());
        builder.build(&KEY)
    }

    #[test]
    fn entries_that_are_new_or_have_other_details_differ() {
        let old = table(&[(1, Some("a")), (2, Some("a")), (3, None)]);
        let new = table(&[(1, Some("a")), (2, Some("b")), (4, None)]);
        let entry = |byte: u8, reason: Option<&'static str>| (InfoHash([byte; 20]), Details::from(reason));
        let sorted = |mut differences: Differences<'static>| {
            differences.entries.sort_unstable();
            (differences.count, differences.entries)
        };
        let [old, new]: [&'static [Arc<TorrentTable>]; 2] =
            [old, new].map(|table| &*Box::leak(vec![Arc::new(table)].into_boxed_slice()));
        assert_eq!(sorted(differences(new, old, &KEY)), (2, vec![entry(2, Some("b")), entry(4, None)]));
        assert_eq!(sorted(differences(old, new, &KEY)), (2, vec![entry(2, Some("a")), entry(3, None)]));
        assert_eq!(differences(new, new, &KEY), Differences::default());
    }

    #[test]
    fn comments_are_found_in_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deny");
        let [one, two] = [1, 2].map(|byte| InfoHash([byte; 20]));
        fs::write(&path, format!("{one:?} a reason # by us\r\n{two:?}\n# {two:?} no\n")).unwrap();
        let new = Arc::new(table(&[]));
        let change =
            SourceChange::new("torrents_deny", &ListSource::Path(path), vec![Arc::clone(&new)], vec![new]);
        let found = change.comments(&[one, two].map(|hash| (hash, Details::NONE)));
        assert_eq!(found, BTreeMap::from([(one, "by us".to_owned())]));
    }
}
