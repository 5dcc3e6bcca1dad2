//! Entries that several trackers share, in addition to the entries of files and URLs. This module knows the place where
//! they are changed, and not how they are shared.

use core::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use shoal_access::HashKey;
use shoal_access::torrents::{Details, REASON_BYTES_MAX, REFERENCE_BYTES_MAX, TableBuilder, TorrentTable};
use shoal_base::InfoHash;

use super::bans::{Ban, Bans};
use super::control::SourceState;
use super::operations::Which;

/// The name of the source. Other sources have paths and URLs as names.
pub(crate) const SOURCE: &str = "cluster";

/// Maximum length of the name of the author of a change.
pub const BY_BYTES_MAX: usize = 256;

/// A torrent of a shared list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedTorrent {
    /// The date, as YYYY-MM-DD.
    #[serde(default)]
    pub date: Option<String>,
    /// A reference, such as the number of a case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The reason, which clients show to their users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The author of the entry.
    #[serde(default)]
    pub by: String,
}

/// A place where shared entries are changed. Its functions may block for a few seconds, and return when a change
/// applies at this tracker.
pub trait SharedEntries: fmt::Debug + Send + Sync {
    /// Returns whether entries are changed there. If not, local files are changed.
    fn is_used(&self) -> bool;

    /// Adds torrents to a list. Returns those that it did not have.
    fn add(&self, which: Which, torrents: &[(InfoHash, SharedTorrent)])
    -> Result<Vec<InfoHash>, SharedError>;

    /// Removes torrents from a list. Returns those that it had.
    fn remove(&self, which: Which, torrents: &[InfoHash]) -> Result<Vec<InfoHash>, SharedError>;

    /// Sets a ban, in place of an earlier one of the same network.
    fn ban(&self, ban: &Ban) -> Result<(), SharedError>;

    /// Lifts the ban of a network. Returns it, if there was one.
    fn lift(&self, network: &IpNet) -> Result<Option<Ban>, SharedError>;
}

/// Why shared entries were not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedError {
    /// There are too many entries. The text names the maximum.
    TooMany(String),
    /// Some or all entries cannot be stored now. The text names them, and the remedy.
    Unavailable(String),
}

/// The present shared entries.
#[derive(Debug, Default)]
pub(super) struct SharedLists {
    /// Whether there may be any.
    pub(super) is_configured: bool,
    deny: Option<Arc<TorrentTable>>,
    allow: Option<Arc<TorrentTable>>,
    pub(super) bans: Bans,
}

/// The new torrents of both lists, for the lists that change.
pub struct SharedTables {
    deny: Arc<TorrentTable>,
    allow: Arc<TorrentTable>,
}

impl SharedTorrent {
    /// Returns the texts, as a list has them.
    pub(crate) fn details(&self) -> Details<'_> {
        Details {
            date: self.date.as_deref(),
            reference: self.reference.as_deref(),
            reason: self.reason.as_deref(),
        }
    }

    /// Returns whether an entry of a file may have these texts.
    pub fn is_valid(&self) -> bool {
        let is_date = self.date.as_ref().is_none_or(|date| {
            date.len() == 10 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        });
        is_date
            && self.reference.as_ref().is_none_or(|text| is_line(text, REFERENCE_BYTES_MAX))
            && self.reason.as_ref().is_none_or(|text| is_line(text, REASON_BYTES_MAX))
            && is_line(&self.by, BY_BYTES_MAX)
    }
}

/// Returns whether a text is a single line of at most this many bytes, so that it can be shown.
pub fn is_line(text: &str, bytes_max: usize) -> bool {
    text.len() <= bytes_max && !text.contains(char::is_control)
}

impl SharedTables {
    /// Builds the tables, whose order depends on a secret.
    pub fn build<'t>(
        deny: impl Iterator<Item = (&'t InfoHash, &'t SharedTorrent)>,
        allow: impl Iterator<Item = (&'t InfoHash, &'t SharedTorrent)>,
        key: &HashKey,
    ) -> Self {
        Self { deny: table(deny, key), allow: table(allow, key) }
    }
}

fn table<'t>(
    torrents: impl Iterator<Item = (&'t InfoHash, &'t SharedTorrent)>,
    key: &HashKey,
) -> Arc<TorrentTable> {
    let mut builder = TableBuilder::default();
    for (info_hash, torrent) in torrents {
        // Their number and the size of their texts are far below a table's maximum. An entry without its words also
        // denies.
        if builder.add(*info_hash, torrent.details()).is_err() {
            let _ = builder.add(*info_hash, Details::NONE);
        }
    }
    Arc::new(builder.build(key))
}

impl SharedLists {
    pub(super) fn set_tables(&mut self, tables: SharedTables) {
        let used = |table: Arc<TorrentTable>| Some(table).filter(|table| !table.is_empty());
        (self.deny, self.allow) = (used(tables.deny), used(tables.allow));
    }

    /// Returns the table of a list, unless it is empty.
    pub(super) const fn table(&self, which: Which) -> Option<&Arc<TorrentTable>> {
        match which {
            Which::Deny => self.deny.as_ref(),
            Which::Allow => self.allow.as_ref(),
        }
    }

    /// Returns the state of the source, if there may be one.
    pub(super) fn states(&self) -> impl Iterator<Item = SourceState> {
        let lists = [Which::Allow, Which::Deny].into_iter().filter(|_| self.is_configured);
        lists.map(|which| SourceState {
            list: format!("access.torrents_{}", which.name()),
            source: SOURCE.to_owned(),
            entries: self.table(which).map_or(0, |table| table.len() as u64),
            fault: None,
            faulty_lines: 0,
            first_faulty_lines: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_texts_of_a_file() {
        let entry = |reason: &str, date: Option<&str>| SharedTorrent {
            reason: Some(reason.to_owned()),
            date: date.map(str::to_owned),
            ..SharedTorrent::default()
        };
        assert!(entry("case 7", Some("2026-01-31")).is_valid() && entry("", None).is_valid());
        assert!(!entry("a\nb", None).is_valid() && !entry("r", Some("yesterday")).is_valid());
        assert!(!entry(&"r".repeat(REASON_BYTES_MAX + 1), None).is_valid());
    }
}
