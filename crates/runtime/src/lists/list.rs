//! A list: the sources of one key of the configuration, for any kind of entries.
//!
//! In a source with some faulty lines, the others count. A source that cannot be read, or that is refused because too
//! much of it is faulty, keeps its entries. Before it has been read as a whole for the first time, its readable entries
//! are better than none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shoal_access::faults::Faults;
use shoal_config::{ListSource, SourceUrl};

use super::changes::SourceChange;
use super::control::SourceState;
use super::counters::SourceCounter;
use super::entries::{Build, Entries, Reading};
use super::file::Seen;
use super::large::{LargeFile, ReadingId};
use super::watch::add_parents;
use crate::panics::caught;

/// Maximum number of faults of a source that are logged at once.
const FAULTS_LOGGED_MAX: usize = 10;

#[derive(Debug)]
pub(super) struct List<E> {
    /// The name of the key in the section `access`.
    name: &'static str,
    sources: Vec<Source<E>>,
    /// The sources that have changed since the log last reported changes.
    changes: Vec<SourceChange>,
}

#[derive(Debug)]
struct Source<E> {
    location: ListSource,
    /// The entries that were last read from it.
    entries: E,
    /// Whether it has been read as a whole since it was configured.
    is_known: bool,
    /// Why it, or a part of it, was last refused, if it was.
    fault: Option<String>,
    /// The faulty lines of the last version.
    lines: Faults,
    /// The state at the last reading, with or without a fault. A URL has none.
    seen: Option<Seen>,
    /// The reading in progress of a large file.
    reading: Option<ReadingId>,
    counter: Arc<SourceCounter>,
}

/// A source that was read without the lock of the lists.
#[derive(Clone, Copy)]
pub(super) enum Place<'p> {
    Url(&'p SourceUrl),
    /// The file of this reading.
    File(&'p ReadingId),
}

impl<E: Entries> List<E> {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, sources: Vec::new(), changes: Vec::new() }
    }

    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &E> {
        self.sources.iter().map(|source| &source.entries)
    }

    /// Returns the state of each source.
    pub(super) fn states(&self) -> impl Iterator<Item = SourceState> {
        self.sources.iter().map(|source| SourceState {
            list: format!("access.{}", self.name),
            source: source.location.to_string(),
            entries: source.entries.len() as u64,
            fault: source.fault.clone(),
            faulty_lines: source.lines.faulty,
            first_faulty_lines: source.lines.named.iter().map(ToString::to_string).collect(),
        })
    }

    /// Returns what has changed since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<SourceChange> {
        std::mem::take(&mut self.changes)
    }

    /// Makes the next look read every file, even one that looks unchanged.
    pub(super) fn forget_times(&mut self) {
        for source in &mut self.sources {
            source.seen = None;
            source.entries.forget();
        }
    }

    /// Returns the number of sources whose last reading had a fault.
    pub(super) fn faulty(&self) -> u64 {
        self.sources.iter().filter(|source| source.fault.is_some()).count() as u64
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = Arc<SourceCounter>> {
        self.sources.iter().map(|source| Arc::clone(&source.counter))
    }

    /// Adopts the sources of a configuration, which may differ from the last one. Known sources keep their entries.
    pub(super) fn configure(&mut self, configured: &[ListSource]) {
        let mut old = std::mem::take(&mut self.sources);
        for location in configured {
            // A source that is listed twice is the same source.
            if self.sources.iter().any(|source| source.location == *location) {
                continue;
            }
            let known = old.iter().position(|source| source.location == *location);
            self.sources.push(known.map_or_else(
                || Source {
                    location: location.clone(),
                    entries: E::default(),
                    is_known: false,
                    fault: None,
                    lines: Faults::default(),
                    seen: None,
                    reading: None,
                    counter: Arc::new(SourceCounter::new(self.name, location.to_string())),
                },
                |index| old.swap_remove(index),
            ));
        }
    }

    /// Reads the files that have changed since they were last read, and with `retry` also those that had a fault.
    /// Appends large ones to `large`, for the caller to read. Returns whether any entries were replaced.
    pub(super) fn read_files(&mut self, retry: bool, build: &Build, large: &mut Vec<LargeFile>) -> bool {
        let mut has_changed = false;
        for source in &mut self.sources {
            let ListSource::Path(path) = source.location.clone() else { continue };
            if source.reading.is_some() && !retry {
                continue;
            }
            if (retry && source.fault.is_some()) || source.has_changed(&path) {
                // A change while the file is read shows at the next look.
                source.seen = Some(Seen::of(&path));
                source.reading = None;
                let read = caught(|| source.entries.read(&path, build).map_err(|error| error.to_string()));
                match read.transpose() {
                    Some(reading) => has_changed |= source.take(self.name, reading, &mut self.changes),
                    None => {
                        let reading = ReadingId::default();
                        source.reading = Some(Arc::clone(&reading));
                        large.push(LargeFile::new::<E>(self.name, path, reading));
                    }
                }
            } else if source.fault.is_none() {
                source.counter.set_good();
            }
        }
        has_changed
    }

    pub(super) fn urls(&self) -> Vec<SourceUrl> {
        let url = |source: &Source<E>| match &source.location {
            ListSource::Url(url) => Some(url.clone()),
            ListSource::Path(_) => None,
        };
        self.sources.iter().filter_map(url).collect()
    }

    /// Adopts the last good copy of a URL, if it exists.
    pub(super) fn take_copy(&mut self, url: &SourceUrl, reading: Result<Option<Reading<E>>, String>) {
        let (name, changes) = (self.name, &mut self.changes);
        let Some(source) = find(&mut self.sources, Place::Url(url)) else { return };
        match reading.transpose() {
            Some(reading) => {
                source.take(name, reading, changes);
            }
            None if source.is_known => {}
            None => tracing::warn!(
                list = format!("access.{name}"),
                source = %url,
                "there is no copy of this list; it is empty until it has been fetched"
            ),
        }
    }

    /// Adopts a reading that was made without the lock: entries, or nothing if they have not changed. Returns whether
    /// the entries were replaced.
    pub(super) fn take_read(
        &mut self,
        place: Place<'_>,
        reading: Result<Option<Reading<E>>, String>,
    ) -> bool {
        let (name, changes) = (self.name, &mut self.changes);
        // It may no longer be configured.
        let Some(source) = find(&mut self.sources, place) else { return false };
        source.reading = None;
        match reading.transpose() {
            Some(reading) => source.take(name, reading, changes),
            None => {
                source.fault = None;
                source.counter.set_good();
                source.counter.is_refused.set(0);
                source.tell();
                false
            }
        }
    }

    /// Returns the directories that show changes of the files.
    pub(super) fn directories(&self) -> BTreeSet<PathBuf> {
        let mut directories = BTreeSet::new();
        for source in &self.sources {
            let ListSource::Path(path) = &source.location else { continue };
            add_parents(path, &mut directories);
            if path.is_dir() {
                directories.append(&mut E::directories(path));
            }
        }
        directories
    }
}

fn find<'s, E>(sources: &'s mut [Source<E>], place: Place<'_>) -> Option<&'s mut Source<E>> {
    sources.iter_mut().find(|source| match (place, &source.location) {
        (Place::Url(url), ListSource::Url(own)) => own == url,
        (Place::File(id), _) => source.reading.as_ref().is_some_and(|own| Arc::ptr_eq(own, id)),
        (Place::Url(_), ListSource::Path(_)) => false,
    })
}

impl<E: Entries> Source<E> {
    /// Adopts a reading, and notes its changes. Returns whether the entries were replaced.
    fn take(
        &mut self,
        list: &'static str,
        reading: Result<Reading<E>, String>,
        changes: &mut Vec<SourceChange>,
    ) -> bool {
        let was_known = self.is_known;
        let (entries, faults, refusal) = match reading {
            Ok(reading) => {
                let before = if was_known { self.entries.len_before(&reading.entries) } else { 0 };
                let refusal = reading.refusal(before);
                self.lines = reading.lines;
                (Some(reading.entries), reading.faults, refusal)
            }
            Err(fault) => (None, Vec::new(), Some(fault)),
        };
        let entries = entries.filter(|_| refusal.is_none() || !was_known);
        let meaning = match (&refusal, &entries) {
            (None, _) => "a part of a list cannot be read and keeps its entries",
            (Some(_), None) if was_known => "a list cannot be read and keeps its entries",
            (Some(_), _) => "a list cannot be read as a whole",
        };
        let faults = refusal.clone().map_or(faults, |refusal| vec![refusal]);
        let key = format!("access.{list}");
        for error in faults.iter().take(FAULTS_LOGGED_MAX) {
            tracing::error!(list = key, source = %self.location, error, "{meaning}");
        }
        if refusal.is_none() && self.lines.faulty > 0 {
            let (faulty, lines) = (self.lines.faulty, self.lines.lines);
            let first = self.lines.named.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            let meaning = "a list has faulty lines, which are left out; the others apply";
            tracing::warn!(list = key, source = %self.location, faulty, lines, first, "{meaning}");
        }
        self.is_known |= refusal.is_none();
        if faults.is_empty() {
            self.counter.set_good();
        } else {
            self.counter.failures.add(1);
        }
        let more = faults.len().saturating_sub(1);
        let and_more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        self.fault = faults.into_iter().next().map(|fault| fault + &and_more);
        self.counter.is_refused.set(refusal.is_some().into());
        self.tell();
        let Some(entries) = entries else { return false };
        let old = std::mem::replace(&mut self.entries, entries);
        if was_known {
            changes.extend(E::change(list, &self.location, &old, &self.entries));
        }
        true
    }

    /// Reports the fault of the source to its counters.
    fn tell(&self) {
        let lines = (self.lines.faulty > 0).then(|| self.lines.to_string());
        self.counter.set_faults(self.lines.faulty, self.fault.clone().or(lines));
    }

    /// Returns whether the file has changed since it was last read.
    fn has_changed(&self, path: &Path) -> bool {
        self.seen != Some(Seen::of(path)) || (path.is_dir() && self.entries.has_changed(path))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use shoal_access::HashKey;
    use shoal_access::budget::Budget;
    use shoal_access::torrents::Links;

    use super::super::entries::Body;
    use super::super::fetches::{Fetched, UrlReading};
    use super::*;

    /// Entries whose parser has a bug.
    #[derive(Default)]
    struct Faulty;

    impl Entries for Faulty {
        fn read(&mut self, path: &Path, build: &Build) -> io::Result<Option<Reading<Self>>> {
            Self::read_whole(path, build).map(Some)
        }

        fn read_whole(_: &Path, _: &Build) -> io::Result<Reading<Self>> {
            panic!("out of bounds")
        }

        fn len(&self) -> usize {
            0
        }

        fn wrap(_: UrlReading<Self>) -> Fetched {
            Fetched::Networks(Err("unused".to_owned()))
        }

        fn parse(_: Body<'_>, _: &Build, _: &mut Links) -> io::Result<Reading<Self>> {
            panic!("out of bounds")
        }
    }

    #[test]
    fn a_panic_of_a_parser_is_a_fault_of_its_file() {
        let mut list = List::<Faulty>::new("torrents_deny");
        let build = Build::new(HashKey::new([0; 4]), Budget::default());
        list.configure(&[ListSource::Path("/dev/null".into())]);
        assert!(!list.read_files(true, &build, &mut Vec::new()));
        let fault = list.states().next().and_then(|state| state.fault);
        assert_eq!(fault.as_deref(), Some("a bug of this program, please report it: out of bounds"));
    }
}
