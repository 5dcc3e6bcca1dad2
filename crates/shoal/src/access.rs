//! The operator's lists: reads their sources and builds the tables that workers look up.
//!
//! This module owns the sources and what was last read from each of them. A source that cannot be read keeps its
//! entries, so a mistake in one file changes nothing else, and never stops the tracker. All of this happens off the
//! data path; the caller publishes the result together with the policy.

mod audit;
mod changes;
pub(crate) mod command;
mod control;
mod counters;
mod directory;
mod edit;
mod file;
mod networks;
mod publish;
mod remote;
mod watch;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use self::networks::NetworkLists;
use shoal_access::clients::ClientLists;
use shoal_access::ports::PortSet;
use shoal_access::torrents::{Publication, PublishedFields, TableBuilder, TorrentLists, TorrentTable};
use shoal_access::{Access, HashKey};
use shoal_config::{AccessConfig, BlocklistField, ListSource};

use self::changes::Change;
pub(crate) use self::control::ListControl;
use self::control::SourceState;
pub(crate) use self::counters::{ListCounter, ListCounters};
use self::directory::{Directory, with_subdirectories};
pub(crate) use self::file::Seen;
pub(crate) use self::publish::Publisher;
pub(crate) use self::watch::watch;
use self::watch::{Bell, add_parents};
use crate::clock;

/// Sources with at most so many torrents share a table, which is rebuilt if one of them changes. A larger source has a
/// table of its own, and each table costs every announce a look-up.
const SHARED_TORRENTS_MAX: usize = 1 << 16;

/// Maximum number of faulty files of a directory that are logged at once.
const FAULTS_LOGGED_MAX: usize = 10;

/// The lists, with all their sources.
#[derive(Debug)]
pub(crate) struct Lists {
    key: HashKey,
    allow: Vec<Source>,
    deny: Vec<Source>,
    networks: NetworkLists,
    /// The parts of the deny list that are published, and the version that was last published.
    publication: (Option<PublishedFields>, Option<Publication>),
    counters: Arc<ListCounters>,
    /// The sources that have changed since the log told of changes.
    changes: Vec<Change>,
    /// Wakes the thread that watches the sources.
    bell: Option<Bell>,
}

/// A source of a list.
#[derive(Debug)]
struct Source {
    location: ListSource,
    /// The torrents that were last read from it.
    table: Arc<TorrentTable>,
    /// Whether it has been read without a fault since it was configured.
    is_known: bool,
    /// Why it could not be read as a whole last time, if it could not.
    fault: Option<String>,
    /// The state in which it was read last, with or without a fault.
    seen: Option<Seen>,
    /// Its files, if it is a directory.
    directory: Directory,
}

impl Lists {
    /// Creates empty lists, whose tables will depend on a secret.
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            key,
            allow: Vec::new(),
            deny: Vec::new(),
            counters: Arc::default(),
            networks: NetworkLists::new(),
            publication: (None, None),
            changes: Vec::new(),
            bell: None,
        }
    }

    /// Returns the counters, for the metrics.
    pub(crate) fn counters(&self) -> Arc<ListCounters> {
        Arc::clone(&self.counters)
    }

    /// Reads the sources of a configuration, which may differ from those of the last call, and returns their rules. A
    /// source that is exactly as it was read before is not read again.
    pub(crate) fn read_all(&mut self, config: &AccessConfig) -> Access {
        Access {
            torrents: self.read_torrents(config),
            networks: self.networks.read_all(config),
            clients: Some(ClientLists::new(&config.clients_allow, &config.clients_deny))
                .filter(|clients| !clients.serve_all())
                .map(Arc::new),
            ports_deny: (!config.ports_deny.is_empty()).then(|| Arc::new(PortSet::new(&config.ports_deny))),
        }
    }

    fn read_torrents(&mut self, config: &AccessConfig) -> Option<Arc<TorrentLists>> {
        let key = self.key;
        let changes = &mut self.changes;
        read_list("torrents_allow", &mut self.allow, &config.torrents_allow, &key, changes);
        read_list("torrents_deny", &mut self.deny, &config.torrents_deny, &key, changes);
        self.publication.0 = published_fields(config);
        self.torrents()
    }

    /// Reads the sources of torrents that have changed since they were read last. Returns the new lists if any has.
    fn read_changed(&mut self) -> Option<Option<Arc<TorrentLists>>> {
        let key = self.key;
        let mut has_changed = false;
        for (key_name, sources) in [("torrents_allow", &mut self.allow), ("torrents_deny", &mut self.deny)] {
            for source in sources.iter_mut().filter(|source| source.has_changed()) {
                has_changed |= source.read_noting(key_name, &key, &mut self.changes);
            }
        }
        self.count_faulty();
        has_changed.then(|| self.torrents())
    }

    /// Makes the next [`read_all`](Self::read_all) read every source, even one that looks as it did.
    fn forget_times(&mut self) {
        self.allow.iter_mut().chain(&mut self.deny).for_each(|source| source.seen = None);
    }

    /// Returns the state of every source.
    fn sources(&self) -> impl Iterator<Item = SourceState<'_>> {
        let lists = [("access.torrents_allow", &self.allow), ("access.torrents_deny", &self.deny)];
        let torrents = lists.into_iter().flat_map(|(list, sources)| {
            sources.iter().map(move |source| SourceState {
                list,
                name: source.location.to_string(),
                entries: source.table.len(),
                fault: source.fault.as_deref(),
            })
        });
        torrents.chain(self.networks.sources())
    }

    /// Writes to the log what has changed since the last call.
    pub(crate) fn log_changes(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            change.log(&self.key);
        }
    }

    /// Lets the thread watch the sources that are configured now.
    pub(crate) fn watch(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Returns the directories in which changes of the sources show.
    fn directories(&self) -> BTreeSet<PathBuf> {
        let mut directories = BTreeSet::new();
        for ListSource::Path(path) in self.allow.iter().chain(&self.deny).map(|source| &source.location) {
            add_parents(path, &mut directories);
            if path.is_dir() {
                directories.append(&mut with_subdirectories(path));
            }
        }
        directories
    }

    fn count_faulty(&self) {
        let faulty = |sources: &[Source]| sources.iter().filter(|source| source.fault.is_some()).count();
        self.counters.allow.set_faulty(faulty(&self.allow));
        self.counters.deny.set_faulty(faulty(&self.deny));
    }

    /// Returns the lists that follow from the entries of all sources of torrents.
    fn torrents(&mut self) -> Option<Arc<TorrentLists>> {
        let key = self.key;
        self.count_faulty();
        self.counters.allow.set_tables(&[]);
        self.counters.deny.set_tables(&[]);
        if self.allow.is_empty() && self.deny.is_empty() && self.publication.0.is_none() {
            return None;
        }
        let allow = (!self.allow.is_empty()).then(|| tables(&self.allow, &key));
        let torrents = TorrentLists::new(key, allow, tables(&self.deny, &key));
        let sum = |tables: &[Arc<TorrentTable>]| tables.iter().map(|table| table.len()).sum::<usize>();
        let allowed = torrents.allow().map_or("all".to_owned(), |allow| sum(allow).to_string());
        self.counters.allow.set_tables(torrents.allow().unwrap_or_default());
        self.counters.deny.set_tables(torrents.deny());
        tracing::info!(allowed, denied = sum(torrents.deny()), "lists of torrents");
        let publication = self.publish(&torrents);
        Some(Arc::new(torrents.with_publication(publication)))
    }

    /// Returns how the deny list is published. Its digest takes a moment, so a list that is not published has none.
    fn publish(&mut self, torrents: &TorrentLists) -> Option<Publication> {
        let (fields, last) = &mut self.publication;
        let fields = (*fields)?;
        let digest = torrents.deny().iter().fold(0_u64, |sum, table| sum.wrapping_add(table.digest()));
        let since_unix_s = match last {
            Some(last) if (last.digest, last.fields) == (digest, fields) => last.since_unix_s,
            // Two versions never have the same time, because clients ask for what is newer than theirs.
            Some(last) => clock::unix_s().max(last.since_unix_s + 1),
            None => clock::unix_s(),
        };
        *last = Some(Publication { fields, digest, since_unix_s });
        *last
    }
}

/// Returns what is published of the deny list, if it is published.
fn published_fields(config: &AccessConfig) -> Option<PublishedFields> {
    let has = |field| config.blocklist_fields.contains(&field);
    config.blocklist_publish.then(|| PublishedFields {
        date: has(BlocklistField::Date),
        reference: has(BlocklistField::Reference),
        reason: has(BlocklistField::Reason),
    })
}

/// Reads the sources of one list. Those that were configured before keep what was read from them until now.
fn read_list(
    key_name: &'static str,
    sources: &mut Vec<Source>,
    configured: &[ListSource],
    key: &HashKey,
    changes: &mut Vec<Change>,
) {
    let mut old = std::mem::take(sources);
    for location in configured {
        let known = old.iter().position(|source| source.location == *location);
        let mut source = match known {
            Some(index) => old.swap_remove(index),
            None => {
                let table = Arc::new(TableBuilder::default().build(key));
                Source {
                    location: location.clone(),
                    table,
                    is_known: false,
                    fault: None,
                    seen: None,
                    directory: Directory::default(),
                }
            }
        };
        if source.fault.is_some() || source.has_changed() {
            source.read_noting(key_name, key, changes);
        }
        sources.push(source);
    }
}

impl Source {
    /// Reads the source again, and notes what it had before. Returns whether the entries were replaced.
    fn read_noting(&mut self, key_name: &'static str, key: &HashKey, changes: &mut Vec<Change>) -> bool {
        let (old, was_known) = (Arc::clone(&self.table), self.is_known);
        let has_changed = self.read(key_name, key);
        if has_changed && was_known {
            changes.push(Change::new(key_name, &self.location, old, Arc::clone(&self.table)));
        }
        has_changed
    }

    /// Reads the source again. Without a fault, its content replaces the old one. Before that has happened for the first
    /// time, the lines that can be read are better than none. Returns whether the entries were replaced.
    fn read(&mut self, key_name: &str, key: &HashKey) -> bool {
        let ListSource::Path(path) = &self.location;
        // A change while the file is read shows at the next look.
        self.seen = Some(Seen::of(path));
        if path.is_dir() {
            return self.read_directory(key_name, key);
        }
        let (table, fault) = match file::read(path, key) {
            Ok((table, fault)) => (Some(table), fault.map(|fault| fault.to_string())),
            Err(error) => (None, Some(error.to_string())),
        };
        self.fault.clone_from(&fault);
        match &fault {
            None => self.is_known = true,
            Some(error) => tracing::error!(
                list = format!("access.{key_name}"),
                source = %self.location,
                error,
                "{}",
                if self.is_known {
                    "a list cannot be read and keeps its entries"
                } else {
                    "a list cannot be read as a whole"
                }
            ),
        }
        match table.filter(|_| fault.is_none() || !self.is_known) {
            Some(table) => {
                self.table = Arc::new(table);
                true
            }
            None => false,
        }
    }

    /// Reads the source again, which is a directory. Each file is a source of its own.
    fn read_directory(&mut self, key_name: &str, key: &HashKey) -> bool {
        let ListSource::Path(path) = &self.location;
        let list = format!("access.{key_name}");
        match self.directory.read(path, key) {
            Ok((table, faults)) => {
                for error in faults.iter().take(FAULTS_LOGGED_MAX) {
                    tracing::error!(list, error, "a torrent file cannot be read and keeps its entry");
                }
                let more = faults.len().saturating_sub(1);
                let and_more = if more > 0 { format!(" (and {more} more files)") } else { String::new() };
                self.fault = faults.first().map(|fault| fault.clone() + &and_more);
                (self.table, self.is_known) = (Arc::new(table), true);
                true
            }
            Err(error) => {
                self.fault = Some(error.to_string());
                tracing::error!(list, source = %self.location, %error, "a list cannot be read and keeps its entries");
                false
            }
        }
    }

    /// Returns whether the source is another one than when it was read last.
    fn has_changed(&self) -> bool {
        let ListSource::Path(path) = &self.location;
        self.seen != Some(Seen::of(path)) || (path.is_dir() && self.directory.has_changed(path))
    }
}

/// Returns the tables of a list: one for each large source, and one for all others.
fn tables(sources: &[Source], key: &HashKey) -> Vec<Arc<TorrentTable>> {
    let filled = || sources.iter().map(|source| &source.table).filter(|table| !table.is_empty());
    let is_large = |table: &&Arc<TorrentTable>| table.len() > SHARED_TORRENTS_MAX;
    let mut tables: Vec<_> = filled().filter(is_large).cloned().collect();
    let small: Vec<_> = filled().filter(|table| !is_large(table)).collect();
    match &small[..] {
        [] => {}
        [one] => tables.push(Arc::clone(one)),
        several => {
            let mut shared = TableBuilder::default();
            for table in several {
                shared.add_all(table).expect("the sources of a list together are not that many");
            }
            tables.push(Arc::new(shared.build(key)));
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use shoal_access::torrents::Forbidden;
    use shoal_types::InfoHash;

    use super::*;

    fn lists() -> Lists {
        Lists::new(HashKey::new([1, 2, 3, 4]))
    }

    fn config(allow: &[&Path], deny: &[&Path]) -> AccessConfig {
        let sources =
            |paths: &[&Path]| paths.iter().map(|path| ListSource::Path(path.to_path_buf())).collect();
        let (torrents_allow, torrents_deny) = (sources(allow), sources(deny));
        AccessConfig { torrents_allow, torrents_deny, ..AccessConfig::default() }
    }

    fn line(byte: u8) -> String {
        format!("{:?}\n", InfoHash([byte; 20]))
    }

    fn check(access: &Access, byte: u8) -> Result<(), Forbidden> {
        access.torrents.as_ref().map_or(Ok(()), |torrents| torrents.check(&InfoHash([byte; 20])))
    }

    #[test]
    fn lists_follow_their_files() {
        let directory = tempfile::tempdir().unwrap();
        let [allow, deny, more] = ["allow", "deny", "more"].map(|name| directory.path().join(name));
        fs::write(&deny, line(1)).unwrap();
        fs::write(&more, line(2)).unwrap();
        fs::write(&allow, line(1) + &line(3)).unwrap();
        let mut lists = lists();
        assert!(lists.read_all(&config(&[], &[])).is_empty());
        let access = lists.read_all(&config(&[], &[&deny, &more]));
        let denied = Err(Forbidden::Denied(None));
        assert_eq!([1, 2, 3].map(|byte| check(&access, byte)), [denied, denied, Ok(())]);
        let access = lists.read_all(&config(&[&allow], &[&deny]));
        let expected = [denied, Err(Forbidden::NotAllowed), Ok(())];
        assert_eq!([1, 2, 3].map(|byte| check(&access, byte)), expected);
        assert!(lists.read_all(&config(&[], &[])).is_empty());
    }

    #[test]
    fn a_broken_source_keeps_what_it_had_and_the_others_change() {
        let directory = tempfile::tempdir().unwrap();
        let [broken, good] = ["broken", "good"].map(|name| directory.path().join(name));
        fs::write(&broken, line(1)).unwrap();
        fs::write(&good, line(2)).unwrap();
        let (mut lists, config) = (lists(), config(&[], &[&broken, &good]));
        lists.read_all(&config);
        fs::write(&good, line(3)).unwrap();
        for content in [Some(format!("{}garbage\n", line(4))), None] {
            match content {
                Some(content) => fs::write(&broken, content).unwrap(),
                None => fs::remove_file(&broken).unwrap(),
            }
            let access = lists.read_all(&config);
            let denied = Err(Forbidden::Denied(None));
            assert_eq!([1, 2, 3, 4].map(|byte| check(&access, byte)), [denied, Ok(()), denied, Ok(())]);
        }
    }

    #[test]
    fn the_good_lines_of_a_source_that_was_never_whole_count() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("list");
        fs::write(&file, format!("garbage\n{}", line(1))).unwrap();
        let (mut lists, config) = (lists(), config(&[], &[&file]));
        assert_eq!(check(&lists.read_all(&config), 1), Err(Forbidden::Denied(None)));
        fs::write(&file, line(2)).unwrap();
        let access = lists.read_all(&config);
        assert_eq!([1, 2].map(|byte| check(&access, byte)), [Ok(()), Err(Forbidden::Denied(None))]);
    }

    #[test]
    fn an_allow_list_that_cannot_be_read_allows_nothing() {
        let access = lists().read_all(&config(&[Path::new("/nonexistent/list")], &[]));
        assert_eq!(check(&access, 1), Err(Forbidden::NotAllowed));
    }

    #[test]
    fn a_large_source_has_a_table_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["large", "small", "smaller"].map(|name| directory.path().join(name));
        let hash = |number: usize| format!("{number:040x}\n");
        let large: String = (0..=SHARED_TORRENTS_MAX).map(hash).collect();
        fs::write(&files[0], large).unwrap();
        fs::write(&files[1], line(1)).unwrap();
        fs::write(&files[2], line(2)).unwrap();
        let access = lists().read_all(&config(&[], &[&files[0], &files[1], &files[2]]));
        let lengths: Vec<_> =
            access.torrents.iter().flat_map(|torrents| torrents.deny()).map(|table| table.len()).collect();
        assert_eq!(lengths, [SHARED_TORRENTS_MAX + 1, 2]);
    }
}
