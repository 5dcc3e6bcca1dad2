//! Entries that the bucket may lack, because it was replaced or has lost its last changes.
//!
//! Such a bucket takes nothing away from this node: entries that it lacks stay in force until it has had their keys.
//! Each node that knows entries writes them, in any order, by writes that require that the key was never written. So
//! removed entries do not come back, and an interrupted fill continues in the next session, at another node, or after a
//! restart. A mark, written last, tells later nodes that they need not write what they still know.
//!
//! A bucket counts as replaced if its time of creation differs, or if its last revision is before one that was seen.
//! The copy records which keys are unwritten, so a takedown outlives the bucket. A later node with the same or an older
//! revision of the former bucket writes nothing, since entries that are lacking by then were removed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::contents::{Contents, Parts};
use super::jetstream::StreamInfo;

/// The mark of a bucket that has had all entries that another one had at a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Filled {
    /// When the other bucket was created.
    pub(super) created: String,
    pub(super) revision: u64,
}

/// The bucket that this node knew before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Former {
    created: String,
    /// The revision that this node knew, unless that bucket lacked entries itself.
    revision: Option<u64>,
}

/// Identifies the bucket of the contents, and names the entries that it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fill {
    /// When the bucket was created.
    pub(super) created: Option<String>,
    /// The bucket before, until this one has had its entries.
    pub(super) former: Option<Former>,
    /// Keys of the contents that the bucket never had, to this node's knowledge.
    pub(super) unwritten: BTreeSet<String>,
}

impl Fill {
    /// Returns the known keys that an unread bucket may lack.
    pub(super) fn candidates(&self, known: &Contents, info: &StreamInfo) -> BTreeSet<String> {
        if self.is_other(known, info) {
            known.names().map(|name| name.to_string()).collect()
        } else {
            self.unwritten.clone()
        }
    }

    /// Adds lacking entries to the contents of a bucket that was just read. `lacking` are the candidates that the
    /// bucket never had. Returns whether the bucket is another one than before.
    pub(super) fn begin(
        &mut self,
        known: &Contents,
        contents: &mut Contents,
        lacking: BTreeSet<String>,
        info: &StreamInfo,
    ) -> bool {
        let is_other = self.is_other(known, info);
        if is_other {
            let revision = self.unwritten.is_empty().then_some(known.revision);
            self.former = self.created.take().map(|created| Former { created, revision });
        }
        self.created = Some(info.created.clone());
        self.unwritten = BTreeSet::new();
        if self.is_filled(contents) {
            self.former = None;
        } else {
            self.unwritten = contents.adopt(known, lacking);
        }
        is_other
    }

    /// Records that the bucket has had a key. Returns the parts that change, if this completes the fill by other nodes.
    pub(super) fn note(&mut self, key: &str, contents: &mut Contents) -> Parts {
        self.unwritten.remove(key);
        if !self.is_filled(contents) {
            return Parts::default();
        }
        self.former = None;
        let (removed, revision) = (core::mem::take(&mut self.unwritten), contents.revision);
        let parts = removed.iter().map(|key| contents.apply(key, None, revision).unwrap_or_default());
        parts.fold(Parts { fill: true, ..Parts::default() }, Parts::or)
    }

    /// Returns whether the bucket still has to be filled, or marked as filled.
    pub(super) fn is_open(&self) -> bool {
        self.former.is_some() || !self.unwritten.is_empty()
    }

    /// Returns the mark to write, once nothing is lacking.
    pub(super) fn mark(&self) -> Option<Filled> {
        let Former { created, revision } = self.former.clone()?;
        revision.filter(|_| self.unwritten.is_empty()).map(|revision| Filled { created, revision })
    }

    /// Returns whether a bucket is not the known one, or has lost changes, as after a power failure of its server.
    fn is_other(&self, known: &Contents, info: &StreamInfo) -> bool {
        let is_other = |created: &String| *created != info.created || info.revision < known.revision;
        self.created.as_ref().is_some_and(is_other)
    }

    /// Returns whether the bucket has had all entries of the former one, by its mark. A lacking key was then removed.
    fn is_filled(&self, contents: &Contents) -> bool {
        let (Some(former), Some(filled)) = (&self.former, &contents.filled) else { return false };
        former.created == filled.created
            && former.revision.is_some_and(|revision| revision <= filled.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 3] = [
        "deny.0000000000000000000000000000000000000000",
        "deny.0000000000000000000000000000000000000001",
        "config.announce.interval_s",
    ];
    const VALUES: [&str; 3] = ["{}", "{}", r#"{"value":"900"}"#];
    const MARK: &str = "bucket.filled";

    fn info(created: &str, revision: u64) -> StreamInfo {
        StreamInfo { created: created.to_owned(), replicas: 1, revision }
    }

    /// A node that follows a bucket with all keys.
    fn followed() -> (Contents, Fill) {
        let mut contents = Contents::default();
        for (revision, (key, value)) in (1..).zip(KEYS.into_iter().zip(VALUES)) {
            contents.apply(key, Some(value.as_bytes()), revision).expect("it is an entry");
        }
        (contents, Fill { created: Some("first".to_owned()), ..Fill::default() })
    }

    /// Reads a bucket as a session does.
    fn read(node: &mut (Contents, Fill), info: &StreamInfo, changes: &[(&str, Option<&str>)]) -> bool {
        let (known, fill) = node;
        let mut lacking = fill.candidates(known, info);
        let mut contents = Contents::default();
        for (revision, (key, value)) in (1..).zip(changes) {
            contents.apply(key, value.map(str::as_bytes), revision).expect("it is an entry");
            lacking.remove(*key);
        }
        let is_other = fill.begin(known, &mut contents, lacking, info);
        *known = contents;
        is_other
    }

    fn unwritten(node: &(Contents, Fill)) -> Vec<&str> {
        node.1.unwritten.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_new_bucket_takes_nothing_away_and_each_session_knows_what_it_lacks() {
        let mut node = followed();
        assert!(read(&mut node, &info("second", 0), &[]));
        assert_eq!((node.0.len(), node.1.unwritten.len(), node.1.mark()), (3, 3, None));
        // The session ends before more than one was written.
        assert!(!read(&mut node, &info("second", 1), &[(KEYS[0], Some("{}"))]));
        assert_eq!((node.0.len(), unwritten(&node)), (3, vec![KEYS[2], KEYS[1]]));
        // One is removed by an operator, and one arrives from another node.
        node.0.apply(KEYS[1], None, 2).unwrap();
        assert_eq!(node.1.note(KEYS[1], &mut node.0), Parts::default());
        node.0.apply(KEYS[2], Some(VALUES[2].as_bytes()), 3).unwrap();
        node.1.note(KEYS[2], &mut node.0);
        assert_eq!((node.0.len(), unwritten(&node).len()), (2, 0));
        assert_eq!(node.1.mark(), Some(Filled { created: "first".to_owned(), revision: 3 }));
    }

    #[test]
    fn what_a_filled_bucket_lacks_was_removed() {
        let mark = |revision: u64| format!(r#"{{"created":"first","revision":{revision}}}"#);
        for (known_there, left) in [(2, 3), (3, 1), (9, 1)] {
            let mut node = followed();
            read(&mut node, &info("second", 9), &[(KEYS[0], Some("{}")), (MARK, Some(&mark(known_there)))]);
            assert_eq!((node.0.len(), node.1.unwritten.len()), (left, left - 1), "{known_there}");
            // It arrives while the node fills the bucket, too.
            let mut node = followed();
            read(&mut node, &info("second", 9), &[(KEYS[0], Some("{}"))]);
            node.0.apply(MARK, Some(mark(known_there).as_bytes()), 2).unwrap();
            assert_eq!(node.1.note(MARK, &mut node.0).torrents, left == 1);
            assert_eq!((node.0.len(), node.1.unwritten.len()), (left, left - 1), "{known_there}");
        }
    }

    #[test]
    fn a_bucket_that_has_lost_its_last_changes_is_filled() {
        let mut node = followed();
        assert!(!read(&mut node, &info("first", 3), &[(KEYS[0], Some("{}"))]), "two were removed");
        assert_eq!((node.0.len(), node.1.unwritten.len()), (1, 0));
        let mut node = followed();
        assert!(read(&mut node, &info("first", 1), &[(KEYS[0], Some("{}"))]));
        assert_eq!((node.0.len(), node.1.unwritten.len()), (3, 2));
        // The third bucket has no mark of the first, since this node does not know what the second one had.
        assert!(read(&mut node, &info("third", 0), &[]));
        assert_eq!(node.1.unwritten.len(), 3);
        node.1.unwritten.clear();
        assert_eq!(node.1.mark(), None);
    }
}
