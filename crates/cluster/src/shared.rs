//! The state that all nodes of a cluster share: entries of lists, bans, values of the configuration, and secret keys.
//!
//! It lies in a bucket of JetStream (`super::jetstream`), whose keys and values `entry` declares. A task on the thread
//! of the connection follows the bucket (`session`) and adopts the keys (`keys`). It passes everything else to the
//! thread `shared` (`apply`), which may wait for the lists and the disk. Each request's thread writes its own changes.
//!
//! Nothing here delays a request to the tracker. Without the bucket, a node continues with what it knows: from the
//! bucket, or after a restart from the copy in the directory of the state (`copy`).
//!
//! The lists know a trait (`SharedEntries`) and a further source, and nothing of NATS. Values of the configuration are
//! a layer above the environment, read and checked by the same code and applied by a reload.

mod apply;
mod contents;
mod copy;
mod entry;
mod fill;
mod keys;
mod session;
mod write;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use ipnet::IpNet;
use parking_lot::{Mutex, MutexGuard};
use shoal_base::metrics::Gauge;
use shoal_config::Config;
use shoal_control::stats::SharedStateStats;
use tokio::sync::watch;
use tokio::time::Instant;

pub use self::apply::{ApplyValues, SharedThread, Targets};
use self::contents::{Contents, Ignored, Parts, Secrets};
pub use self::copy::Copy;
use self::entry::Key;
use self::fill::{Fill, Filled};
pub use self::keys::{ConnectionKeys, NodeKeys};
use self::session::Bucket;
pub(crate) use self::session::follow;
use super::connection::Link;
use super::jetstream::{self, Availability, Fault, JetStream, StreamInfo};
use shoal_runtime::repeated::Repeated;

/// Maximum number of torrents that nodes add to both lists together. A longer list belongs in a file or behind a URL.
pub(crate) const TORRENTS_MAX: usize = 50_000;

/// Maximum number of values of the configuration.
pub(crate) const VALUES_MAX: usize = 200;

const BUCKET_BYTES_MAX: u64 = 32 << 20;

/// Maximum memory of all entries, in all places that may have them at once. It suffices for as many torrents and bans
/// as tools add, with texts of 50 bytes each.
const ENTRIES_BYTES_MAX: usize = 64 << 20;

/// The memory of the shared state: its entries, removed keys, and keys that a bucket lacks.
pub const BYTES_MAX: usize = ENTRIES_BYTES_MAX + session::REMOVED_BYTES_MAX + contents::KEYS_BYTES_MAX;

/// The shared state in this node's view.
#[derive(Debug)]
pub struct SharedState {
    link: Arc<Link>,
    name: String,
    domain: Option<String>,
    inner: Mutex<Inner>,
    /// The last revision that applies here.
    applied: watch::Sender<u64>,
    applier: OnceLock<Thread>,
    /// Keys and values that were ignored because they could not be read, and because there was no room.
    unreadable: Gauge,
    full: Gauge,
    /// Whether the last is so since the bucket was read as a whole.
    has_ignored_some: AtomicBool,
    /// How often everything was read.
    syncs: Gauge,
}

#[derive(Debug)]
struct Inner {
    phase: Availability,
    /// Everything in the bucket, and what it lacks.
    contents: Contents,
    /// The parts that the thread has not applied yet.
    waiting: Parts,
    fill: Fill,
    /// Why the bucket cannot be filled, if it cannot.
    fill_fault: Option<String>,
    unreadable_log: Repeated,
    full_log: Repeated,
    keys_log: Repeated,
    /// Why the values of the configuration do not apply here, if they do not.
    values_fault: Option<String>,
}

impl SharedState {
    /// Returns the state of a node that has not found the bucket yet, with its knowledge from the last run. Returns
    /// `None` if the nodes share nothing.
    pub(crate) fn new(config: &Config, link: Arc<Link>, copy: Copy) -> Option<Arc<Self>> {
        if !config.shares_state() {
            return None;
        }
        let (contents, fill) = copy.into_parts();
        let waiting = Contents::default().differences(&contents);
        let inner = Inner {
            phase: Availability::Away(None),
            contents,
            waiting,
            fill,
            fill_fault: None,
            unreadable_log: Repeated::default(),
            full_log: Repeated::default(),
            keys_log: Repeated::default(),
            values_fault: None,
        };
        Some(Arc::new(Self {
            link,
            name: format!("shoal_{}", config.cluster.name.as_str()),
            domain: config.cluster.jetstream_domain.as_ref().map(ToString::to_string),
            inner: Mutex::new(inner),
            applied: watch::Sender::new(0),
            applier: OnceLock::new(),
            unreadable: Gauge::default(),
            full: Gauge::default(),
            has_ignored_some: AtomicBool::new(false),
            syncs: Gauge::default(),
        }))
    }

    /// Returns the prefix of the subjects for replies: one of those that a node may subscribe to.
    pub(super) fn inbox_prefix(cluster: &str) -> String {
        format!("shoal.{cluster}.inbox")
    }

    /// Returns the state at this moment.
    pub(crate) fn stats(&self) -> SharedStateStats {
        let inner = self.lock();
        let (state, reason) = inner.phase.clone().told(["followed", "away", "unavailable"]);
        let fill_fault = inner.fill_fault.clone().filter(|_| inner.fill.is_open());
        let entries = [
            ("torrents", inner.contents.torrents_len()),
            ("bans", inner.contents.bans.len()),
            ("values", inner.contents.config.len()),
        ];
        let ignored = [("unreadable", &self.unreadable), ("full", &self.full)];
        SharedStateStats {
            bucket: self.name.clone(),
            fault: if inner.phase == Availability::Used { fill_fault } else { reason },
            state,
            unwritten: inner.fill.unwritten.len() as u64,
            values_fault: inner.values_fault.clone(),
            entries: entries.map(|(kind, count)| (kind.to_owned(), count as u64)).into(),
            ignored: ignored.map(|(reason, count)| (reason.to_owned(), count.read())).into(),
            syncs: self.syncs.read(),
        }
    }

    fn bucket(&self) -> Option<Bucket> {
        let jetstream = JetStream::new(self.link.client()?, self.domain.as_deref());
        Some(Bucket::new(jetstream, &self.name))
    }

    /// Returns the keys that this node knows and that an unread bucket may lack.
    fn candidates(&self, info: &StreamInfo) -> BTreeSet<String> {
        let inner = self.lock();
        inner.fill.candidates(&inner.contents, info)
    }

    /// Takes over the contents of a completely read bucket. `lacking` are the candidates that it never had.
    fn begin(&self, mut contents: Contents, lacking: BTreeSet<String>, info: &StreamInfo) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let is_other = inner.fill.begin(&inner.contents, &mut contents, lacking, info);
        let fill = Parts { fill: is_other, ..Parts::default() };
        inner.waiting = inner.waiting.or(inner.contents.differences(&contents)).or(fill);
        inner.contents = contents;
        inner.fill_fault = inner.fill_fault.take().filter(|_| !is_other);
        let was_followed = core::mem::replace(&mut inner.phase, Availability::Used) == Availability::Used;
        let (entries, unwritten) = (inner.contents.len(), inner.fill.unwritten.len());
        drop(guard);
        self.syncs.add(1);
        let bucket = &self.name;
        if is_other || unwritten > 0 {
            tracing::warn!(
                bucket,
                entries,
                unwritten,
                "the bucket of the cluster is a new one or has lost entries; they still apply here, and this node writes them"
            );
        } else if !was_followed {
            let replicas = info.replicas;
            tracing::info!(bucket, entries, replicas, "this node has the shared state of the cluster");
        }
        self.wake_applier();
    }

    /// Takes over a change of a key: a new value, or its removal.
    fn change(&self, key: &str, value: Option<&[u8]>, revision: u64) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let applied = inner.contents.apply(key, value, revision);
        let parts = inner.fill.note(key, &mut inner.contents).or(applied.unwrap_or_default());
        inner.waiting = inner.waiting.or(parts);
        drop(guard);
        self.wake_applier();
        if let Err(ignored) = applied {
            self.note_ignored(key, ignored);
        }
    }

    /// Returns whether the bucket still has to be filled, or marked as filled.
    fn is_filling(&self) -> bool {
        self.lock().fill.is_open()
    }

    fn unwritten(&self) -> Vec<String> {
        self.lock().fill.unwritten.iter().cloned().collect()
    }

    /// Returns a key and its value, if the bucket still lacks them.
    fn unwritten_entry(&self, key: &str) -> Option<(Key, String)> {
        let inner = self.lock();
        let key = inner.fill.unwritten.contains(key).then(|| Key::parse(key))??;
        inner.contents.value(&key).map(|value| (key, value))
    }

    /// Records that the bucket has had a key. The watch reports whether it was removed there.
    fn note_written(&self, key: &str) {
        self.lock().fill.unwritten.remove(key);
    }

    /// Returns the mark of a bucket that has had everything, if it must be written.
    fn filled(&self) -> Option<Filled> {
        self.lock().fill.mark()
    }

    /// Records the end of an attempt to fill the bucket.
    fn note_filled(&self, result: Result<(), Fault>) {
        let reason = result.err().map(|fault| fault.to_string());
        let mut inner = self.lock();
        let is_known = reason.is_some() && inner.fill_fault == reason;
        inner.fill_fault.clone_from(&reason);
        let unwritten = inner.fill.unwritten.len();
        let bucket = &self.name;
        match reason {
            Some(reason) if !is_known => {
                tracing::warn!(
                    bucket,
                    unwritten,
                    reason,
                    "the bucket lacks entries that cannot be written yet"
                );
            }
            Some(_) => {}
            None => {
                inner.fill.former = None;
                inner.waiting.fill = true;
                tracing::info!(bucket, "the bucket of the cluster has all entries again");
            }
        }
        drop(inner);
        self.wake_applier();
    }

    fn secrets(&self) -> Secrets {
        self.lock().contents.secrets.clone()
    }

    /// Returns up to `max` networks whose bans have ended before a time, with the revisions of the bans.
    fn bans_before(&self, unix_s: u64, max: usize) -> Vec<(IpNet, u64)> {
        let inner = self.lock();
        let bans = inner.contents.bans.iter();
        let ended = bans.filter(|(_, (ban, _))| ban.until_unix_s.is_some_and(|until_s| until_s < unix_s));
        ended.map(|(network, (_, revision))| (*network, *revision)).take(max).collect()
    }

    /// Records why the bucket is no longer followed, and logs the reason once.
    fn note_fault(&self, fault: Fault) {
        let fault = fault.explained(&self.link);
        let phase = Availability::after(fault.is_lasting(), fault.to_string());
        let before = core::mem::replace(&mut self.lock().phase, phase.clone());
        if before != phase && self.link.is_connected() {
            let reason = fault.to_string();
            tracing::warn!(
                bucket = self.name,
                reason,
                "the shared state of the cluster is away: this node goes on with what it has, and tries again and again"
            );
        }
    }

    /// Logs that the bucket takes no secret keys of this node, at most once a minute.
    fn note_keys_refused(&self, fault: &Fault) {
        let noted = self.lock().keys_log.note(Instant::now());
        if let Some(unlogged) = noted {
            tracing::warn!(bucket = self.name, reason = %fault, unlogged, "the bucket takes no keys of this node");
        }
    }

    /// Records an ignored key or value, and logs each reason at most once a minute.
    fn note_ignored(&self, key: &str, ignored: Ignored) {
        let (key, now) = (shoal_runtime::printable::line(key), Instant::now());
        match ignored {
            Ignored::Unreadable => {
                self.unreadable.add(1);
                let noted = self.lock().unreadable_log.note(now);
                if let Some(unlogged) = noted {
                    tracing::warn!(key, unlogged, "a value in the bucket of the cluster was ignored");
                }
            }
            Ignored::Full => {
                self.has_ignored_some.store(true, Ordering::Relaxed);
                self.full.add(1);
                let noted = self.lock().full_log.note(now);
                if let Some(unlogged) = noted {
                    tracing::error!(
                        key,
                        unlogged,
                        "the bucket of the cluster has more entries than a node keeps, so one was ignored and does not apply here; \
                         remove some, and see who may write to the bucket"
                    );
                }
            }
        }
    }

    /// Returns whether there may now be room for ignored entries.
    fn has_room_for_ignored(&self) -> bool {
        self.has_ignored_some.load(Ordering::Relaxed) && self.lock().contents.has_room()
    }

    fn wake_applier(&self) {
        if let Some(applier) = self.applier.get() {
            applier.unpark();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// Returns the file of the copy, if it has a place.
pub fn copy_file(config: &Config) -> Option<PathBuf> {
    config.state.path.as_ref().filter(|_| config.shares_state()).map(|path| path.join("cluster"))
}
