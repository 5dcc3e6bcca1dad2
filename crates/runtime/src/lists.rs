//! The operator's lists: reads their sources and builds the tables that workers look up.
//!
//! This module owns the sources and what was last read from each of them. A source that cannot be read keeps its
//! entries, so a mistake in one file or on one server changes nothing else, and never stops the tracker. All of this
//! happens off the data path; the caller publishes the result together with the policy.

pub mod audit;
pub mod bans;
mod changes;
mod control;
mod counters;
pub mod directory;
pub mod edit;
pub mod entries;
pub mod fetches;
mod file;
pub mod large;
mod linked;
mod list;
pub mod networks;
pub mod operations;
pub mod owners;
mod publish;
mod shared;
pub mod torrents;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shoal_access::budget::Budget;
use shoal_access::clients::ClientLists;
use shoal_access::ports::PortSet;
use shoal_access::rules::{NamedNetworks, RuleSet};
use shoal_access::torrents::{Publication, PublishedFields, TorrentLists, TorrentTable};
use shoal_access::{Access, HashKey};
use shoal_config::{AccessConfig, BlocklistField, Config, HostName};

pub use self::audit::Author;
use self::bans::automatic::is_automatic;
use self::bans::{Ban, Bans};
use self::changes::SourceChange;
pub use self::control::{ListControl, ListEntry, ListSources, SourceState};
pub use self::counters::{BanCounters, ListCounter, ListCounters, SourceCounter};
use self::entries::{Build, Entries, Reading};
use self::fetches::{Fetched, Fetches, UrlContent};
pub(crate) use self::file::Seen;
use self::large::LargeFile;
use self::list::{List, Place};
use self::networks::Networks;
pub use self::operations::Which;
use self::owners::Owners;
pub use self::publish::Publisher;
use self::shared::SharedLists;
pub use self::shared::{BY_BYTES_MAX, SharedEntries, SharedError, SharedTables, SharedTorrent, is_line};
use self::torrents::Torrents;
use self::watch::Bell;
pub use self::watch::watch;
use crate::clock;

/// The lists, with all their sources.
#[derive(Debug)]
pub struct Lists {
    build: Build,
    torrents_allow: List<Torrents>,
    torrents_deny: List<Torrents>,
    networks_allow: List<Networks>,
    networks_deny: List<Networks>,
    geoip: List<Owners>,
    bans: Bans,
    /// The entries that all nodes of a cluster share.
    shared: SharedLists,
    /// When the next ban ends, in seconds since 1970.
    next_ban_end: Arc<AtomicU64>,
    fetches: Arc<Fetches>,
    /// The published parts of the deny list, and its last published version.
    publication: (Option<PublishedFields>, Option<Publication>),
    counters: Arc<ListCounters>,
    /// Wakes the thread that watches the files.
    bell: Option<Bell>,
    /// The last configuration.
    access: AccessConfig,
}

/// The key of the tables of the owners of networks.
const GEOIP: &str = "geoip";

/// The kinds of lists that have changed.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    torrents: bool,
    networks: bool,
    /// Only bans that sources have earned. Their table is small and changes often.
    earned: bool,
}

impl Lists {
    /// Creates empty lists. Their tables will depend on a secret, and take their memory from `budget`.
    pub fn new(key: HashKey, budget: Budget) -> Self {
        let counters = ListCounters::new(&budget);
        Self {
            build: Build::new(key, budget),
            torrents_allow: List::new("torrents_allow"),
            torrents_deny: List::new("torrents_deny"),
            networks_allow: List::new("networks_allow"),
            networks_deny: List::new("networks_deny"),
            geoip: List::new(GEOIP),
            bans: Bans::default(),
            shared: SharedLists::default(),
            next_ban_end: Arc::new(AtomicU64::new(u64::MAX)),
            fetches: Arc::default(),
            publication: (None, None),
            counters: Arc::new(counters),
            bell: None,
            access: AccessConfig::default(),
        }
    }

    /// Replaces the shared entries before [`read_all`](Self::read_all). They count from now on.
    pub fn share(&mut self, tables: impl FnOnce(&HashKey) -> SharedTables, bans: Vec<Ban>) {
        self.shared.is_configured = true;
        self.shared.set_tables(tables(&self.build.key));
        self.shared.bans.replace_all(bans, clock::unix_s());
    }

    /// Limits the memory of the bans that sources earn, before [`read_all`](Self::read_all).
    pub fn limit_bans(&mut self, bytes_max: u64) {
        self.bans.automatic.limit(bytes_max);
    }

    /// Returns the counters, for the metrics.
    pub fn counters(&self) -> Arc<ListCounters> {
        Arc::clone(&self.counters)
    }

    /// Reads the sources of a configuration, which may differ from the last one, and returns their rules. Skips an
    /// unchanged file, and a file that a thread is already reading, unless it has changed meanwhile. Waits for large
    /// files. Reads the last good copies of new URLs; all URLs are fetched at the next opportunity.
    pub fn read_all(&mut self, config: &Config) -> Access {
        let (access, build) = (&config.access, self.build.clone());
        self.torrents_allow.configure(&access.torrents_allow);
        self.torrents_deny.configure(&access.torrents_deny);
        self.networks_allow.configure(&access.networks_allow);
        self.networks_deny.configure(&access.networks_deny);
        if self.build.named.replace(NamedNetworks::of(&access.rules)) {
            self.geoip.forget_times();
            self.fetches.forget(GEOIP);
        }
        self.geoip.configure(&access.geoip);
        self.bans.automatic.configure(config, clock::unix_s());
        self.bans.configure(config.bans_file().as_deref(), clock::unix_s());
        let mut large = Vec::new();
        self.read_files(true, &mut large);
        for file in large {
            let read = file.read(&build);
            self.take_large(&file, read);
        }
        self.fetches.configure(&config.fetch);
        read_copies(&mut self.torrents_allow, &self.fetches, &build);
        read_copies(&mut self.torrents_deny, &self.fetches, &build);
        read_copies(&mut self.networks_allow, &self.fetches, &build);
        read_copies(&mut self.networks_deny, &self.fetches, &build);
        read_copies(&mut self.geoip, &self.fetches, &build);
        self.fetches.end_configuration();
        self.count_faulty();
        let mut sources: Vec<_> =
            self.torrents_allow.counters().chain(self.torrents_deny.counters()).collect();
        sources.extend(self.networks_allow.counters().chain(self.networks_deny.counters()));
        sources.extend(self.geoip.counters());
        self.counters.set_sources(sources);
        self.publication.0 = published_fields(access);
        let hosts = access.hosts_allow.iter().map(HostName::as_str);
        let set = RuleSet::new(&access.rules, hosts, self.counters.rule_counters());
        let mut rules = Access {
            rules: (!set.is_empty()).then(|| Arc::new(set)),
            clients: Some(ClientLists::new(&access.clients_allow, &access.clients_deny))
                .filter(|clients| !clients.serve_all())
                .map(Arc::new),
            ports_deny: (!access.ports_deny.is_empty()).then(|| Arc::new(PortSet::new(&access.ports_deny))),
            ..Access::default()
        };
        owners::warn_of_exempt(config);
        self.access = access.clone();
        self.apply(Changes { torrents: true, networks: true, earned: true }, &mut rules);
        rules
    }

    /// Reads the files that have changed since they were last read, and with `retry` also those that had a fault. Large
    /// files are only appended to `large`: the caller reads them and calls [`take_large`](Self::take_large). Deny lists
    /// come first.
    fn read_files(&mut self, retry: bool, large: &mut Vec<LargeFile>) -> Changes {
        let build = self.build.clone();
        let torrents = self.torrents_deny.read_files(retry, &build, large)
            | self.torrents_allow.read_files(retry, &build, large);
        let networks = self.networks_deny.read_files(retry, &build, large)
            | self.networks_allow.read_files(retry, &build, large)
            | self.geoip.read_files(retry, &build, large);
        self.count_faulty();
        Changes { torrents, networks, ..Changes::default() }
    }

    /// Adopts the reading of a large file, unless the file was read again since.
    fn take_large(&mut self, file: &LargeFile, read: Fetched) -> Changes {
        self.take_read(file.list, Place::File(&file.reading), read)
    }

    /// Adopts content that was read for the list with this name.
    fn take_read(&mut self, list: &str, place: Place<'_>, read: Fetched) -> Changes {
        let is_allow = list.ends_with("_allow");
        let mut changes = Changes::default();
        match read {
            Fetched::Torrents(reading) => {
                let list = if is_allow { &mut self.torrents_allow } else { &mut self.torrents_deny };
                changes.torrents = list.take_read(place, reading);
            }
            Fetched::Networks(reading) => {
                let list = if is_allow { &mut self.networks_allow } else { &mut self.networks_deny };
                changes.networks = list.take_read(place, reading);
            }
            Fetched::Owners(reading) => {
                // The rules may name other networks since the reading has begun. Then the table is read again anyway.
                let named = self.build.named.get();
                let is_stale = |reading: &Option<Reading<Owners>>| {
                    reading.as_ref().is_some_and(|reading| !reading.entries.is_of(&named))
                };
                if !reading.as_ref().is_ok_and(is_stale) {
                    changes.networks = self.geoip.take_read(place, reading);
                }
            }
        }
        self.count_faulty();
        changes
    }

    /// Replaces the rules of changed lists.
    fn apply(&mut self, changes: Changes, rules: &mut Access) {
        if changes.torrents {
            let is_published = self.publication.0.is_some();
            let (allow, deny) = (&self.torrents_allow, &self.torrents_deny);
            let lists = torrents::lists(allow, deny, &self.shared, is_published, &self.build);
            rules.torrents = lists.map(|lists| {
                let publication = self.publication(&lists);
                Arc::new(lists.with_publication(publication))
            });
            self.count_torrents(rules);
        }
        if changes.networks {
            let bans = self.bans.networks().chain(self.shared.bans.networks());
            let lists = (&self.networks_allow, &self.networks_deny, &self.geoip);
            rules.networks = owners::table(lists, bans, &self.access, &self.build.named.get()).map(Arc::new);
        }
        if changes.networks || changes.earned {
            let next_end = self.bans.next_end().min(self.shared.bans.next_end());
            self.next_ban_end.store(next_end, Ordering::Relaxed);
            let shared = self.shared.bans.all().iter().filter(|ban| is_automatic(ban));
            rules.bans = self.bans.automatic.table(shared, clock::unix_s()).map(Arc::new);
            self.counters.bans.active.set(self.bans.automatic.active_count() as u64);
        }
    }

    /// Returns the tables of a list of torrents, with the names of their sources.
    fn torrent_tables(&self, which: Which) -> Vec<(String, Arc<TorrentTable>)> {
        let list = match which {
            Which::Deny => &self.torrents_deny,
            Which::Allow => &self.torrents_allow,
        };
        let named = list.states().zip(list.entries());
        let local = named.flat_map(|(state, torrents)| {
            torrents.tables().map(move |table| (state.source.clone(), Arc::clone(table)))
        });
        let shared = self.shared.table(which).map(|table| (shared::SOURCE.to_owned(), Arc::clone(table)));
        shared.into_iter().chain(local).collect()
    }

    /// Returns how the deny list is published. The digest of a new table takes a moment, so an unpublished list has
    /// none.
    fn publication(&mut self, torrents: &TorrentLists) -> Option<Publication> {
        let (fields, last) = &mut self.publication;
        let fields = (*fields)?;
        let digest = torrents.deny().iter().fold(0_u64, |sum, table| sum.wrapping_add(table.digest()));
        let since_unix_s = match last {
            Some(last) if (last.digest, last.fields) == (digest, fields) => last.since_unix_s,
            // Two versions never have the same time, because clients ask for a newer version than theirs.
            Some(last) => clock::unix_s().max(last.since_unix_s + 1),
            None => clock::unix_s(),
        };
        *last = Some(Publication { fields, digest, since_unix_s });
        *last
    }

    /// Makes the next [`read_all`](Self::read_all) read every file, even one that looks unchanged.
    fn forget_times(&mut self) {
        self.torrents_allow.forget_times();
        self.torrents_deny.forget_times();
        self.networks_allow.forget_times();
        self.networks_deny.forget_times();
        self.geoip.forget_times();
    }

    /// Returns the state of every source.
    fn sources(&self) -> impl Iterator<Item = SourceState> {
        let torrents = self.torrents_allow.states().chain(self.torrents_deny.states());
        let networks = self.networks_allow.states().chain(self.networks_deny.states());
        torrents.chain(networks).chain(self.geoip.states()).chain(self.shared.states())
    }

    /// Logs what has changed since the last call.
    pub fn log_changes(&mut self) {
        let key = self.build.key;
        self.take_changes().iter().for_each(|change| change.log(&key));
    }

    /// Returns all changes since the last call that are to be logged.
    fn take_changes(&mut self) -> Vec<SourceChange> {
        let mut changes = self.torrents_allow.take_changes();
        changes.append(&mut self.torrents_deny.take_changes());
        changes
    }

    /// Makes the threads look at the currently configured files, and fetch the URLs.
    pub fn watch(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Returns the directories that show changes of the files.
    fn directories(&self) -> BTreeSet<PathBuf> {
        let mut directories = self.torrents_allow.directories();
        directories.append(&mut self.torrents_deny.directories());
        directories.append(&mut self.networks_allow.directories());
        directories.append(&mut self.networks_deny.directories());
        directories.append(&mut self.geoip.directories());
        directories
    }

    fn count_faulty(&self) {
        let [networks_allow, networks_deny, geoip] = &self.counters.faulty_networks;
        self.counters.allow.faulty_sources.set(self.torrents_allow.faulty());
        self.counters.deny.faulty_sources.set(self.torrents_deny.faulty());
        networks_allow.set(self.networks_allow.faulty());
        networks_deny.set(self.networks_deny.faulty());
        geoip.set(self.geoip.faulty());
    }

    fn count_torrents(&self, rules: &Access) {
        let tables = |tables: Option<&[Arc<TorrentTable>]>| tables.unwrap_or_default().to_vec();
        let allow = tables(rules.torrents.as_ref().and_then(|torrents| torrents.allow()));
        let deny = tables(rules.torrents.as_ref().map(|torrents| torrents.deny()));
        self.counters.allow.set_tables(&allow);
        self.counters.deny.set_tables(&deny);
        let sum = |tables: &[Arc<TorrentTable>]| tables.iter().map(|table| table.len()).sum::<usize>();
        if let Some(torrents) = &rules.torrents {
            let allowed = torrents.allow().map_or("all".to_owned(), |allow| sum(allow).to_string());
            tracing::info!(allowed, denied = sum(&deny), "lists of torrents");
        }
    }
}

/// Reads the last good copies of new URLs, and lets the URLs be fetched from now on.
fn read_copies<E: Entries>(list: &mut List<E>, fetches: &Fetches, build: &Build) {
    for url in list.urls() {
        fetches.add::<E>(list.name(), &url, |content: &mut UrlContent, bytes_max| {
            let reading = content.read_copy::<E>(bytes_max, build);
            list.take_copy(&url, reading);
        });
    }
}

/// Returns the published parts of the deny list, if it is published.
fn published_fields(config: &AccessConfig) -> Option<PublishedFields> {
    let has = |field| config.blocklist_fields.contains(&field);
    config.blocklist_publish.then(|| PublishedFields {
        date: has(BlocklistField::Date),
        reference: has(BlocklistField::Reference),
        reason: has(BlocklistField::Reason),
    })
}

/// Appends the record of a change other than of list entries to the audit file.
pub fn append_audit(
    audit_file: &Path,
    by: &Author,
    change: &str,
    details: &serde_json::Value,
) -> io::Result<()> {
    audit::append(audit_file, by, change, details)
}

fn lock(lists: &Mutex<Lists>) -> MutexGuard<'_, Lists> {
    lists.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use shoal_access::torrents::Forbidden;
    use shoal_base::InfoHash;
    use shoal_config::{AccessConfig, ListSource};

    use super::*;

    fn lists() -> Lists {
        Lists::new(HashKey::new([1, 2, 3, 4]), Budget::default())
    }

    fn config(allow: &[&Path], deny: &[&Path]) -> Config {
        let sources =
            |paths: &[&Path]| paths.iter().map(|path| ListSource::Path(path.to_path_buf())).collect();
        let (torrents_allow, torrents_deny) = (sources(allow), sources(deny));
        let access = AccessConfig { torrents_allow, torrents_deny, ..AccessConfig::default() };
        Config { access, ..Config::default() }
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
    fn an_addition_to_a_file_is_read_without_the_rest() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("list");
        let lines = |bytes: &[u8]| bytes.iter().map(|byte| line(*byte)).collect::<String>();
        // The middle of the file lies outside of the parts that are compared.
        let text = format!("# begin\n{}{}{}", "# x\n".repeat(2000), lines(&[1]), "# x\n".repeat(2000));
        fs::write(&file, &text).unwrap();
        let (mut lists, config) = (lists(), config(&[], &[&file]));
        let mut access = lists.read_all(&config);
        let mut read = |bytes: &[u8]| {
            let changes = lists.read_files(false, &mut Vec::new());
            lists.apply(changes, &mut access);
            let served: Vec<_> = bytes.iter().copied().filter(|byte| check(&access, *byte).is_ok()).collect();
            (served, lists.torrents_deny.faulty())
        };
        // A line in the middle that cannot be read is not noticed: only the addition is read.
        let at = text.find(&line(1)).unwrap() as u64;
        let open = || fs::OpenOptions::new().write(true).open(&file).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&open(), b"garbage", at).unwrap();
        let append = |text: &str| {
            let mut file = fs::OpenOptions::new().append(true).open(&file).unwrap();
            io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        };
        append(&lines(&[2]));
        assert_eq!(read(&[1, 2, 3]), (vec![3], 0));
        append(&lines(&[3, 4]));
        assert_eq!(read(&[1, 2, 3, 4]), (vec![], 0));
        // A faulty addition makes the file be read as a whole, and names the right line.
        append("nonsense\n");
        assert_eq!(read(&[1, 2, 3, 4]), (vec![], 1));
        // So does a change of another kind.
        fs::write(&file, text.replace("# begin", "# other") + &lines(&[5, 6])).unwrap();
        assert_eq!(read(&[1, 2, 5, 6]), (vec![2], 0));
        // An unfinished line is read once it has ended, or with the next addition.
        append(&line(7)[..39]);
        assert_eq!(read(&[1, 5, 7]), (vec![7], 1));
        append(&line(7)[39..]);
        assert_eq!(read(&[1, 5, 7]), (vec![], 0));
        append(&lines(&[8]));
        assert_eq!(read(&[1, 5, 7, 8]), (vec![], 0));
    }

    #[test]
    fn a_large_file_counts_unless_its_source_was_removed_or_read_again_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let [file, small] = ["file", "small"].map(|name| directory.path().join(name));
        let filler: String = (0..250_000).map(|number| format!("{number:040x}\n")).collect();
        let write = |byte: u8| {
            let new = directory.path().join("new");
            fs::write(&new, filler.clone() + &line(byte)).unwrap();
            fs::rename(new, &file).unwrap();
        };
        fs::write(&file, line(1)).unwrap();
        fs::write(&small, line(9)).unwrap();
        let (mut lists, both, one) = (lists(), config(&[], &[&file, &small]), config(&[], &[&small]));
        let mut access = lists.read_all(&both);
        let begin = |lists: &mut Lists| {
            let mut large = Vec::new();
            let changes = lists.read_files(false, &mut large);
            (changes, large)
        };
        let mut apply = |lists: &mut Lists, changes: Changes| {
            lists.apply(changes, &mut access);
            (1..=9).filter(|byte| check(&access, *byte).is_err()).collect::<Vec<u8>>()
        };
        write(2);
        let (_, large) = begin(&mut lists);
        let read = large[0].read(&lists.build);
        // Meanwhile, other files are read, and this one is not read a second time.
        fs::write(&small, line(8)).unwrap();
        write(3);
        let (changes, second) = begin(&mut lists);
        assert_eq!((apply(&mut lists, changes), second.len()), (vec![1, 8], 0));
        let changes = lists.take_large(&large[0], read);
        assert_eq!(apply(&mut lists, changes), [2, 8]);
        assert!(!lists.take_large(&large[0], large[0].read(&lists.build)).torrents, "it counts once");
        let (_, large) = begin(&mut lists);
        assert_eq!(large.len(), 1, "the change during the reading");
        // A reload reads it as it is then, so the reading that has begun does not count.
        lists.forget_times();
        write(4);
        let changes = Changes { torrents: true, ..Changes::default() };
        lists.read_all(&both);
        assert_eq!(apply(&mut lists, changes), [4, 8]);
        assert!(!lists.take_large(&large[0], large[0].read(&lists.build)).torrents);
        write(5);
        let (_, large) = begin(&mut lists);
        let read = large[0].read(&lists.build);
        lists.read_all(&one);
        assert!(!lists.take_large(&large[0], read).torrents, "the source is not configured any more");
        assert_eq!(apply(&mut lists, changes), [8]);
        lists.read_all(&both);
        assert_eq!(apply(&mut lists, changes), [5, 8]);
    }

    #[test]
    fn a_large_source_has_a_table_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["large", "small", "smaller"].map(|name| directory.path().join(name));
        let hash = |number: usize| format!("{number:040x}\n");
        let large: String = (0..=torrents::SHARED_TORRENTS_MAX).map(hash).collect();
        fs::write(&files[0], large).unwrap();
        fs::write(&files[1], line(1)).unwrap();
        fs::write(&files[2], line(2)).unwrap();
        let access = lists().read_all(&config(&[], &[&files[0], &files[1], &files[2]]));
        let lengths: Vec<_> =
            access.torrents.iter().flat_map(|torrents| torrents.deny()).map(|table| table.len()).collect();
        assert_eq!(lengths, [torrents::SHARED_TORRENTS_MAX + 1, 2]);
    }
}
