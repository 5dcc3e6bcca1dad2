//! The lists and bans in the control listener's view.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;
use serde_json::json;
use shoal_access::networks::Network;
use shoal_access::torrents::Details;
use shoal_access::{Access, HashKey};
use shoal_base::InfoHash;
use shoal_engine::policy::Policy;
use tokio::task::JoinHandle;

use super::bans::automatic::{AutomaticBans, is_automatic, lifted_between};
use super::bans::{Ban, BanError, Bans, CarriedBans};
use super::operations::Which;
use super::shared::{SharedEntries, SharedError, SharedTables};
use super::watch::{apply_changes, follow_files};
use super::{Author, Changes, Lists, Publisher, append_audit};
use crate::clock;

/// How often ended bans, and sources that have earned one, are looked for.
const BANS_LOOK_EVERY: Duration = Duration::from_millis(500);

/// Number of looks after which the bans that sources have earned are written, five seconds.
const LOOKS_PER_WRITE: u64 = 10;

/// Maximum number of new bans in each look that are recorded one by one, and shared with other nodes.
const RECORDS_MAX: usize = 32;

/// The lists of a running tracker. All functions may block for as long as the lists are being read.
#[derive(Clone)]
pub struct ListControl {
    /// The lists.
    pub lists: Arc<Mutex<Lists>>,
    /// Publishes the lists' rules.
    pub publisher: Arc<Publisher>,
    /// The place where entries are changed that all nodes of a cluster share, if this tracker is a node.
    pub shared: Option<Arc<dyn SharedEntries>>,
}

impl core::fmt::Debug for ListControl {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ListControl").finish_non_exhaustive()
    }
}

impl ListControl {
    /// Returns each source with the number of its entries and its fault, if it has one.
    pub fn status(&self) -> ListSources {
        status(&self.lock())
    }

    /// Reads all sources again, applies them, and returns the same as [`status`](Self::status).
    pub fn reload(&self) -> ListSources {
        let mut lists = self.lock();
        let config = self.publisher.live.latest();
        lists.forget_times();
        let access = lists.read_all(config.policy.config());
        apply(&self.publisher, access);
        lists.log_changes();
        lists.watch();
        status(&lists)
    }

    /// Reads the files that have changed, and applies them. Large ones are read in the background.
    pub fn follow_files(&self) {
        follow_files(&self.lists, &self.publisher);
    }

    /// Returns up to `max` entries of a list, and whether there are more. With a `text`, only those whose reason or
    /// reference contains it.
    pub fn search(&self, which: Which, text: Option<&str>, max: usize) -> (Vec<ListEntry>, bool) {
        // The tables never change, so the lists are not locked during the search.
        let tables = self.lock().torrent_tables(which);
        let text = text.map(str::to_lowercase);
        let is_wanted = |details: &Details<'_>| {
            let contains =
                |part: Option<&str>, text: &str| part.unwrap_or_default().to_lowercase().contains(text);
            let found = |text: &String| contains(details.reason, text) || contains(details.reference, text);
            text.as_ref().is_none_or(found)
        };
        let entries =
            tables.iter().flat_map(|(source, table)| table.iter().map(move |entry| (source, entry)));
        let mut found: Vec<ListEntry> = entries
            .filter(|(_, (_, details))| is_wanted(details))
            .take(max + 1)
            .map(|(source, (info_hash, details))| ListEntry::new(source, info_hash, details))
            .collect();
        let has_more = found.len() > max;
        found.truncate(max);
        (found, has_more)
    }

    /// Returns the first entry of a torrent in a list.
    pub fn entry(&self, which: Which, info_hash: &InfoHash) -> Option<ListEntry> {
        let (tables, key) = {
            let lists = self.lock();
            (lists.torrent_tables(which), lists.build.key)
        };
        tables.iter().find_map(|(source, table)| {
            table.get(&key, info_hash).map(|details| ListEntry::new(source, info_hash, details))
        })
    }

    /// Replaces the policy of all workers by the result of `change`. Rules of lists are replaced under the same lock,
    /// so that neither overwrites the other.
    pub fn change_policy(&self, change: impl FnOnce(Policy) -> Policy) {
        let _lists = self.lock();
        self.publisher.publish(|live| live.with_policy(change((*live.policy).clone())));
    }

    /// Does the same, unless the present policy was [handed](Self::hand_bans) to a new process. Returns whether it did.
    pub fn change_policy_unless_handed(&self, change: impl FnOnce(Policy) -> Policy) -> bool {
        let lists = self.lock();
        let keeps = lists.bans.check_kept().is_ok();
        if keeps {
            self.publisher.publish(|live| live.with_policy(change((*live.policy).clone())));
        }
        keeps
    }

    /// Returns whether what it has belongs to a new process.
    pub fn is_handed(&self) -> bool {
        self.lock().bans.check_kept().is_err()
    }

    /// Returns the secret that determines the order of tables.
    pub fn key(&self) -> HashKey {
        self.lock().build.key
    }

    /// Replaces the changed kinds of shared entries, and applies them.
    pub fn share(&self, tables: Option<SharedTables>, bans: Option<Vec<Ban>>) {
        let mut lifted: Vec<Ban> = Vec::new();
        let changes = apply_changes(&self.lists, &self.publisher, |lists| {
            let mut changes = Changes { torrents: tables.is_some(), ..Changes::default() };
            tables.into_iter().for_each(|tables| lists.shared.set_tables(tables));
            if let Some(bans) = bans {
                let now_s = clock::unix_s();
                // Another node has lifted a ban that goes before its end. The source may have earned it here as well.
                let gone = lifted_between(lists.shared.bans.all(), &bans, now_s);
                lifted = lists.bans.automatic.lift(&gone, now_s);
                let before: Vec<Network> = lists.shared.bans.networks().collect();
                lists.shared.bans.replace_all(bans, now_s);
                // Bans that sources have earned at other nodes are often the only change.
                changes.networks = !lists.shared.bans.networks().eq(before);
                changes.earned = true;
            }
            changes
        });
        debug_assert!(changes.is_empty(), "sources of files and URLs have not changed");
        lifted.iter().for_each(|ban| self.forgive(ban));
    }

    /// Returns the place where shared entries are changed, if it is used.
    pub fn shared(&self) -> Option<&dyn SharedEntries> {
        self.shared.as_deref().filter(|shared| shared.is_used())
    }

    /// Returns all bans of this tracker, those that sources have earned as the last, and the bans that all nodes of a
    /// cluster share.
    pub fn bans(&self) -> (Vec<Ban>, Vec<Ban>) {
        let lists = self.lock();
        let automatic = lists.bans.automatic.active(clock::unix_s());
        (lists.bans.all().iter().chain(automatic).cloned().collect(), lists.shared.bans.all().to_vec())
    }

    /// Returns the ban of an address that ends last.
    pub fn ban_of(&self, ip: IpAddr) -> Option<Ban> {
        let lists = self.lock();
        let now_unix_s = clock::unix_s();
        let bans = lists.bans.of(ip, now_unix_s).into_iter().chain(lists.shared.bans.of(ip, now_unix_s));
        bans.max_by_key(|ban| ban.until_unix_s.unwrap_or(u64::MAX)).cloned()
    }

    /// Sets a ban, and applies it at all nodes of a cluster, or here.
    pub fn ban(&self, ban: Ban) -> Result<(), BanError> {
        if let Some(shared) = self.shared() {
            return Ok(shared.ban(&ban)?);
        }
        self.change_bans(|bans| bans.with(ban))
    }

    /// Lifts the ban of a network everywhere, and for an address all bans that sources at it have earned. Returns the one
    /// that would have ended last, if there was any.
    pub fn lift_ban(&self, network: &IpNet) -> Result<Option<Ban>, BanError> {
        let networks = self.lifted_with(network);
        let mut lifted: Vec<Ban> = Vec::new();
        if let Some(shared) = self.shared() {
            for network in &networks {
                lifted.extend(shared.lift(network)?);
            }
        }
        lifted.extend(self.lift_earned(|bans| bans.lift(&networks, clock::unix_s()))?);
        let is_local = self.lock().bans.all().iter().any(|ban| ban.network == *network);
        if is_local {
            let mut local = Vec::new();
            self.change_bans(|bans| {
                let (of_network, others) = bans.without(network);
                local = of_network;
                Ok(others)
            })?;
            lifted.append(&mut local);
        }
        Ok(lifted.into_iter().max_by_key(|ban| ban.until_unix_s.unwrap_or(u64::MAX)))
    }

    /// Returns the network, and for an address the networks of all bans that sources at it have earned.
    fn lifted_with(&self, network: &IpNet) -> BTreeSet<IpNet> {
        let mut networks = BTreeSet::from([*network]);
        if network.prefix_len() == network.max_prefix_len() {
            let ip = network.addr();
            let lists = self.lock();
            let shared = lists.shared.bans.all().iter().filter(|ban| is_automatic(ban));
            let shared = shared.filter(|ban| ban.network.contains(&ip));
            networks.extend(lists.bans.automatic.around(ip).chain(shared).map(|ban| ban.network));
        }
        networks
    }

    /// Lifts all bans that sources have earned, everywhere. Returns the number of those that applied.
    pub fn lift_automatic_bans(&self) -> Result<usize, BanError> {
        let mut lifted: BTreeSet<IpNet> = BTreeSet::new();
        if let Some(shared) = self.shared() {
            let bans = self.lock().shared.bans.all().to_vec();
            for ban in bans.iter().filter(|ban| is_automatic(ban)) {
                lifted.extend(shared.lift(&ban.network)?.map(|ban| ban.network));
            }
        }
        let now_s = clock::unix_s();
        let local = self.lift_earned(AutomaticBans::lift_all)?;
        let present = local.iter().filter(|ban| ban.until_unix_s.is_none_or(|until| until > now_s));
        lifted.extend(present.map(|ban| ban.network));
        Ok(lifted.len())
    }

    /// Bans the sources that have earned it since the last look, and writes all bans. The tracker does so when it stops.
    pub fn settle_bans(&self) {
        self.change_by_time();
        self.write_earned();
    }

    /// Writes all bans, if sources have earned some since the last time.
    fn write_earned(&self) {
        let writer = self.lock().bans.writer();
        let _writing = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let writing = self.lock().bans.writing_earned();
        if let Some(writing) = writing {
            let written = writing.write();
            self.lock().bans.end_writing(&writing, &written);
        }
    }

    /// Gives all bans and their file to a new process, once no thread writes it. Until they are [kept](Self::keep_bans),
    /// operators can change none here.
    pub fn hand_bans(&self) -> CarriedBans {
        let writer = self.lock().bans.writer();
        let _none_writes = writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.lock().bans.hand()
    }

    /// Keeps all bans and their file: the new process does not replace this one.
    pub fn keep_bans(&self) {
        self.lock().bans.keep();
    }

    /// Adopts the bans of the process that this one replaces.
    pub fn adopt_bans(&self, carried: &CarriedBans) {
        apply_changes(&self.lists, &self.publisher, |lists| {
            // The tables of networks can be large, and the bans of operators are usually those that were read.
            let before: Vec<Network> = lists.bans.networks().collect();
            lists.bans.take_over(carried, clock::unix_s());
            let networks = !lists.bans.networks().eq(before);
            Changes { networks, earned: true, ..Changes::default() }
        });
    }

    /// Returns whether sources have earned a ban since the last look.
    fn has_suspects(&self) -> bool {
        self.publisher.live.latest().policy.sources().is_some_and(|sources| sources.has_suspects())
    }

    /// Makes the source of a lifted ban begin anew.
    fn forgive(&self, ban: &Ban) {
        if let Some(sources) = self.publisher.live.latest().policy.sources() {
            sources.forgive(ban.network.addr(), ban.network.prefix_len());
        }
    }

    /// Sets the bans that sources have earned, and ends bans whose time is over, forever.
    pub async fn follow_bans(self) {
        // A thread that reads files may hold the locks for some time.
        let lists = self.clone();
        let next_end = tokio::task::spawn_blocking(move || Arc::clone(&lists.lock().next_ban_end)).await;
        let Ok(next_end) = next_end else { return };
        let (mut writing, mut sharing) = (None, None);
        for look in 1_u64.. {
            tokio::time::sleep(BANS_LOOK_EVERY).await;
            // A slow disk or a slow NATS server delays no ban here. Bans that are set meanwhile are written later, and not
            // shared.
            if look.is_multiple_of(LOOKS_PER_WRITE) {
                self.start(&mut writing, Self::write_earned);
            }
            if next_end.load(Ordering::Relaxed) > clock::unix_s() && !self.has_suspects() {
                continue;
            }
            let lists = self.clone();
            let bans = tokio::task::spawn_blocking(move || lists.change_by_time()).await;
            let bans = bans.unwrap_or_default();
            if !bans.is_empty() {
                self.start(&mut sharing, move |lists| lists.share_automatic(&bans));
            }
        }
    }

    /// Starts a task that may block, unless the one before still runs.
    fn start(&self, task: &mut Option<JoinHandle<()>>, body: impl FnOnce(&Self) + Send + 'static) {
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let lists = self.clone();
            *task = Some(tokio::task::spawn_blocking(move || body(&lists)));
        }
    }

    /// Bans the sources that have earned it since the last look, and ends bans whose time is over. Returns the new bans.
    fn change_by_time(&self) -> Vec<Ban> {
        let mut bans = Vec::new();
        apply_changes(&self.lists, &self.publisher, |lists| {
            let now_s = clock::unix_s();
            let [own, shared] = [lists.bans.expire(now_s), lists.shared.bans.expire(now_s)];
            // They are taken under the lock of the lists, so that a stop finds each suspect or its ban.
            let live = self.publisher.live.latest();
            for suspect in live.policy.sources().iter().flat_map(|sources| sources.take_suspects()) {
                if let Some(ban) = lists.bans.automatic.ban(&suspect, now_s) {
                    lists.counters.bans.earned[suspect.cause as usize].add(1);
                    bans.push(ban);
                }
            }
            if !bans.is_empty() {
                lists.bans.automatic.count_active(now_s);
            }
            let networks = own.networks || shared.networks;
            let earned = own.earned || shared.earned || !bans.is_empty();
            Changes { networks, earned, ..Changes::default() }
        });
        self.record_automatic(&bans);
        bans
    }

    /// Records bans that sources have earned in the log and in the audit file. The records of a flood are bounded.
    fn record_automatic(&self, bans: &[Ban]) {
        let live = self.publisher.live.latest();
        let config = live.policy.config();
        // After a failure, the other records of a flood would fail as well, each with a warning.
        let mut can_write = true;
        let mut record = |details: &serde_json::Value| {
            tracing::info!(change = "ban", %details, "a source has earned a ban");
            if can_write
                && let Some(file) = &config.access.audit_file
                && let Err(error) = append_audit(file, &Author::Tracker, "ban", details)
            {
                can_write = false;
                tracing::warn!(file = %file.display(), %error, "access.audit_file cannot be written");
            }
        };
        for ban in bans.iter().take(RECORDS_MAX) {
            let (network, reason) = (ban.network, &ban.reason);
            record(&json!({ "network": network, "reason": reason, "until_unix_s": ban.until_unix_s }));
        }
        if bans.len() > RECORDS_MAX {
            record(&json!({ "further_networks": bans.len() - RECORDS_MAX }));
        }
    }

    /// Tells all nodes of a cluster some of the new bans. Each node finds the sources that it is not told itself.
    fn share_automatic(&self, bans: &[Ban]) {
        let Some(shared) = self.shared() else { return };
        let failure = bans.iter().take(RECORDS_MAX).find_map(|ban| shared.ban(ban).err());
        if let Some(SharedError::TooMany(error) | SharedError::Unavailable(error)) = failure {
            tracing::debug!(error, "other nodes are not told of a ban");
        }
    }

    /// Lets `lift` lift bans that sources have earned here, and makes their sources begin anew. Returns these bans.
    fn lift_earned(&self, lift: impl FnOnce(&mut AutomaticBans) -> Vec<Ban>) -> Result<Vec<Ban>, BanError> {
        let mut outcome = Ok(Vec::new());
        apply_changes(&self.lists, &self.publisher, |lists| {
            outcome = lists.bans.check_kept().map(|()| lift(&mut lists.bans.automatic));
            let earned = outcome.as_ref().is_ok_and(|lifted| !lifted.is_empty());
            Changes { earned, ..Changes::default() }
        });
        let lifted = outcome?;
        // They are served already, and a disk can be slow.
        lifted.iter().for_each(|ban| self.forgive(ban));
        if !lifted.is_empty() {
            self.write_earned();
        }
        Ok(lifted)
    }

    /// Replaces the bans of operators by the result of `change`, first in the file, and applies them.
    fn change_bans(&self, change: impl FnOnce(&Bans) -> Result<Vec<Ban>, BanError>) -> Result<(), BanError> {
        let writer = self.lock().bans.writer();
        let _writing = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (writing, bans) = {
            let mut lists = self.lock();
            let bans = change(&lists.bans)?;
            (lists.bans.replacing(Some(&bans))?, bans)
        };
        let written = writing.write();
        let mut outcome = Ok(());
        let changes = apply_changes(&self.lists, &self.publisher, |lists| {
            lists.bans.end_writing(&writing, &written);
            outcome = written.and_then(|()| lists.bans.adopt(&writing, bans));
            Changes { networks: outcome.is_ok(), ..Changes::default() }
        });
        let key = self.lock().build.key;
        changes.iter().for_each(|change| change.log(&key));
        outcome
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry of a list of torrents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct ListEntry {
    /// The info hash in hexadecimal.
    info_hash: String,
    /// The date, as YYYY-MM-DD.
    date: Option<String>,
    /// A reference, such as the number of a case.
    reference: Option<String>,
    /// The reason, which clients show to their users.
    reason: Option<String>,
    /// The file or URL of the entry.
    source: String,
}

impl ListEntry {
    /// Returns the source of the entry.
    pub fn source(&self) -> &String {
        &self.source
    }

    fn new(source: &str, info_hash: &InfoHash, details: Details<'_>) -> Self {
        let Details { date, reference, reason } = details;
        let [date, reference, reason] = [date, reference, reason].map(|text| text.map(str::to_owned));
        Self { info_hash: format!("{info_hash:?}"), date, reference, reason, source: source.to_owned() }
    }
}

/// Replaces the rules of all workers. The caller holds the lock of the lists, so that no older rules replace them.
pub(super) fn apply(publisher: &Publisher, access: Access) {
    publisher.publish(|live| live.with_policy((*live.policy).clone().with_access(access)));
}

fn status(lists: &Lists) -> ListSources {
    ListSources { sources: lists.sources().collect() }
}

/// The sources of all lists.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ListSources {
    sources: Vec<SourceState>,
}

/// A source of a list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ListSource)]
pub struct SourceState {
    /// The key that names it, such as access.torrents_deny.
    pub(super) list: String,
    /// The file or URL.
    pub(super) source: String,
    /// The number of its entries.
    pub(super) entries: u64,
    /// Why it, or a part of it, was not taken over, if so. It keeps its entries then.
    pub(super) fault: Option<String>,
    /// The number of faulty lines of the version that was read last. The others apply, unless there is a fault.
    pub(super) faulty_lines: u64,
    /// The first of them, with their numbers and what is wrong.
    pub(super) first_faulty_lines: Vec<String>,
}
