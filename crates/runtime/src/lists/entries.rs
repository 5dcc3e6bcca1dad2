//! The entries of one source: how they are read from files and from fetched contents.

use std::collections::BTreeSet;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use shoal_access::HashKey;
use shoal_access::budget::Budget;
use shoal_access::faults::Faults;
use shoal_access::rules::{NamedNetworks, Rule};
use shoal_access::torrents::{Links, TableBuilder};
use shoal_base::InfoHash;
use shoal_config::ListSource;

use super::changes::SourceChange;
use super::fetches::{Fetched, UrlReading};
use super::file;
use super::owners::Named;

/// The key and the budget that tables are built with.
#[derive(Clone, Debug)]
pub struct Build {
    /// The secret that determines the order of tables.
    pub key: HashKey,
    /// The memory of all lists.
    pub budget: Budget,
    /// The names in the rules about networks.
    pub(super) named: Named,
}

impl Build {
    /// Creates tables that take their memory from `budget`.
    pub fn new(key: HashKey, budget: Budget) -> Self {
        Self { key, budget, named: Named::default() }
    }

    /// Returns the same for tables of the owners of networks, of which these rules name some.
    #[must_use]
    pub fn for_rules(self, rules: &[Rule]) -> Self {
        self.named.replace(NamedNetworks::of(rules));
        self
    }

    pub(super) fn table(&self) -> TableBuilder {
        TableBuilder::within(&self.budget)
    }
}

/// Maximum size of a file, and of its content if it is compressed.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// Entries that were read.
#[derive(Debug)]
pub struct Reading<E> {
    /// The entries.
    pub entries: E,
    /// The lines that were read, and the faulty ones among them. The others count.
    pub lines: Faults,
    /// Whether the entries are complete. Otherwise a known source keeps its old ones.
    pub is_whole: bool,
    /// Everything that could not be read, and why.
    pub faults: Vec<String>,
}

/// A fetched content, or a file.
pub struct Body<'b> {
    pub(super) text: &'b mut dyn BufRead,
    /// The media type that a server declared.
    pub(super) media_type: Option<&'b str>,
    /// Maximum size after decompression, if it is compressed itself.
    pub(super) bytes_max: u64,
}

/// The entries of a source.
#[expect(clippy::len_without_is_empty, reason = "no caller asks for it")]
pub trait Entries: Default {
    /// Reads a file, or a directory if the source may be one. It may use the earlier entries to read less, and must not
    /// change them if it fails. Returns `None` at once if the file is large and [`read_whole`](Self::read_whole) should
    /// read it.
    fn read(&mut self, path: &Path, build: &Build) -> io::Result<Option<Reading<Self>>> {
        let is_large = file::is_large(&shoal_base::file::open(path)?)?;
        if is_large { Ok(None) } else { Self::read_whole(path, build).map(Some) }
    }

    /// Reads a file as a whole.
    fn read_whole(path: &Path, build: &Build) -> io::Result<Reading<Self>> {
        let file = shoal_base::file::open(path)?;
        let mut reader = file::reader(&file, FILE_BYTES_MAX);
        let body = Body { text: &mut reader, media_type: None, bytes_max: FILE_BYTES_MAX };
        Self::parse(body, build, &mut Links::default())
    }

    /// Returns the number of entries.
    fn len(&self) -> usize;

    /// Returns the number of entries to compare with those of a new version.
    fn len_before(&self, _new: &Self) -> usize {
        self.len()
    }

    /// Returns what the log should report of a change.
    fn change(_list: &'static str, _location: &ListSource, _old: &Self, _new: &Self) -> Option<SourceChange> {
        None
    }

    /// Makes the next [`read`](Self::read) read the whole file.
    fn forget(&mut self) {}

    /// Wraps a fetched reading.
    fn wrap(reading: UrlReading<Self>) -> Fetched;

    /// Reads a content. Appends links to further torrents to `links`.
    fn parse(body: Body<'_>, build: &Build, links: &mut Links) -> io::Result<Reading<Self>>;

    /// Adds the torrents behind the links.
    fn add_linked(&mut self, _info_hashes: &[InfoHash], _build: &Build) -> io::Result<()> {
        Ok(())
    }

    /// Returns whether something under a directory has changed since it was read.
    fn has_changed(&self, _directory: &Path) -> bool {
        false
    }

    /// Returns the directories to watch for changes under a directory.
    fn directories(_directory: &Path) -> BTreeSet<PathBuf> {
        BTreeSet::new()
    }
}

impl<E: Entries> Reading<E> {
    /// Returns a reading with at most one fault, which makes it incomplete.
    pub(super) fn new(entries: E, lines: Faults, fault: Option<String>) -> Self {
        Self { entries, lines, is_whole: fault.is_none(), faults: fault.into_iter().collect() }
    }

    /// Returns why these entries do not replace the last version, which had `before` entries, if they do not.
    pub(super) fn refusal(&self, before: usize) -> Option<String> {
        if !self.is_whole {
            return Some(self.faults.join("; "));
        }
        let refusal = self.lines.refusal(self.entries.len() as u64, before as u64)?;
        Some(format!("{refusal}; {}", self.lines))
    }
}
