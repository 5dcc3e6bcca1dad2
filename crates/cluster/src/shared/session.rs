//! A session with the bucket: from its opening to the first fault. Another one follows after a pause.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{BoxFuture, pending};
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::contents::{Contents, json as to_json};
use super::entry::{Key, VALUE_BYTES_MAX};
use super::jetstream::{Copies, Fault, JetStream, StreamInfo, Update, Watch};
use super::keys::FollowedKeys;
use super::write::WRITES_AT_ONCE;
use super::{BUCKET_BYTES_MAX, NodeKeys, SharedState};
use shoal_runtime::clock;

/// Pauses between two sessions: the first, and the longest. A server may lack JetStream for a long time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(4);
const PAUSE_WITHOUT_JETSTREAM_MAX: Duration = Duration::from_mins(1);

/// How often a node checks for NATS, and for changed keys.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const TICK_EVERY: Duration = Duration::from_secs(1);

/// Number of ticks between two cleanings.
const TICKS_PER_CLEANING: u32 = 30;

/// Minimum number of ticks between two readings of the whole bucket for ignored entries that have room now.
const TICKS_PER_READING: u32 = 5;

/// Number of ticks between two attempts to fill the bucket.
const TICKS_PER_FILL: u32 = 5;

/// How long the bucket keeps a ban that has ended. The clocks of nodes may differ by minutes, and each node ends the
/// ban by its own.
const ENDED_BAN_S: u64 = 600;

/// How long the bucket remembers removed entries. A node that fills a bucket leaves these out.
const REMOVED_S: u64 = 24 * 60 * 60;

/// Maximum number of remembered removals, of their subjects in bytes, and of those that one cleaning takes.
const REMOVED_MAX: usize = 1 << 14;
const SUBJECT_BYTES_MAX: usize = 256;
const CLEANED_MAX: usize = 64;

/// Memory of the remembered removals, with their tree and the allocator.
pub(super) const REMOVED_BYTES_MAX: usize = REMOVED_MAX * (SUBJECT_BYTES_MAX + 128);

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    jetstream: JetStream,
    stream: String,
    prefix: String,
}

/// The removed entries: for each subject, the revision and when it was stored, in seconds since 1970.
type Removed = BTreeMap<String, (u64, u64)>;

pub(crate) async fn follow(state: Arc<SharedState>, keys: NodeKeys) {
    let mut keys = FollowedKeys::new(keys);
    let (mut pause, mut copies) = (PAUSE_MIN, Copies::default());
    loop {
        let Some(bucket) = state.bucket().filter(|_| state.link.is_connected()) else {
            sleep(LOOK_EVERY).await;
            continue;
        };
        let session = Session { state: &state, bucket, keys: &mut keys, removed: Removed::new() };
        let (fault, has_begun) = session.run(&mut copies).await;
        state.note_fault(fault.clone());
        let longest = if fault.is_lasting() { PAUSE_WITHOUT_JETSTREAM_MAX } else { PAUSE_MAX };
        pause = if has_begun { PAUSE_MIN } else { (2 * pause).min(longest) };
        sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }
}

type Filling<'s> = BoxFuture<'s, Result<(), Fault>>;

struct Session<'s> {
    state: &'s SharedState,
    bucket: Bucket,
    keys: &'s mut FollowedKeys,
    removed: Removed,
}

impl<'s> Session<'s> {
    /// Returns the fault that has ended the session, and whether everything in the bucket was known before.
    async fn run(mut self, copies: &mut Copies) -> (Fault, bool) {
        let mut has_begun = false;
        loop {
            match self.begin(copies).await {
                Ok(watch) => {
                    has_begun = true;
                    if let Err(fault) = self.go_on(watch).await {
                        return (fault, has_begun);
                    }
                }
                Err(fault) => return (fault, has_begun),
            }
        }
    }

    /// Opens the bucket, reads all of it, and takes it over.
    async fn begin(&mut self, copies: &mut Copies) -> Result<Watch, Fault> {
        let info = self.bucket.open(copies).await?;
        let mut watch = self.bucket.jetstream.watch(&self.bucket.stream).await?;
        let mut contents = Contents::default();
        self.removed.clear();
        self.state.has_ignored_some.store(false, Ordering::Relaxed);
        let mut lacking: BTreeSet<String> = self.state.candidates(&info);
        loop {
            match watch.next().await? {
                Update::Change { subject, value, revision, unix_s } => {
                    self.note_removal(&subject, value.is_none(), (revision, unix_s));
                    let key = self.bucket.key(&subject);
                    lacking.remove(key);
                    if let Err(ignored) = contents.apply(key, value.as_deref(), revision) {
                        self.state.note_ignored(key, ignored);
                    }
                }
                Update::Current => {
                    self.state.begin(contents, lacking, &info);
                    return Ok(watch);
                }
            }
        }
    }

    /// Follows the bucket until a fault, or until it has to be read again because ignored entries have room now.
    async fn go_on(&mut self, mut watch: Watch) -> Result<(), Fault> {
        let mut filling = self.fill();
        let (mut tick, mut ticks) = (interval(TICK_EVERY), 0_u32);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut may_clean = true;
        loop {
            self.keys.adopt(&self.state.secrets());
            let update = tokio::select! {
                update = watch.next() => update,
                filled = end_of(&mut filling) => {
                    filling = None;
                    self.state.note_filled(filled);
                    continue;
                }
                _ = tick.tick() => {
                    match self.keys.offer(&self.bucket, &self.state.secrets()).await {
                        Ok(()) => {}
                        // Changes still arrive.
                        Err(fault @ (Fault::Full | Fault::Refused(_))) => self.state.note_keys_refused(&fault),
                        Err(fault) => return Err(fault),
                    }
                    ticks = ticks.wrapping_add(1);
                    if ticks.is_multiple_of(TICKS_PER_READING) && self.state.has_room_for_ignored() {
                        return Ok(());
                    }
                    if filling.is_none() && ticks.is_multiple_of(TICKS_PER_FILL) {
                        filling = self.fill();
                    }
                    if ticks.is_multiple_of(TICKS_PER_CLEANING) && may_clean {
                        // A user without this permission can do everything else.
                        may_clean = self.clean().await.is_ok();
                    }
                    continue;
                }
            };
            match update? {
                Update::Change { subject, value, revision, unix_s } => {
                    self.note_removal(&subject, value.is_none(), (revision, unix_s));
                    self.state.change(self.bucket.key(&subject), value.as_deref(), revision);
                }
                Update::Current => {}
            }
        }
    }

    /// Remembers that a key was removed, or that it has a value again.
    fn note_removal(&mut self, subject: &str, is_removal: bool, stored: (u64, u64)) {
        if !is_removal {
            self.removed.remove(subject);
        } else if self.removed.len() < REMOVED_MAX && subject.len() <= SUBJECT_BYTES_MAX {
            self.removed.insert(subject.to_owned(), stored);
        }
    }

    /// Returns an attempt to fill the bucket, if it lacks entries.
    fn fill(&self) -> Option<Filling<'s>> {
        let filling = fill(self.state, self.bucket.clone());
        self.state.is_filling().then(|| Box::pin(filling) as Filling<'_>)
    }

    /// Removes bans that ended some time ago, and forgets entries that were removed long ago.
    async fn clean(&mut self) -> Result<(), Fault> {
        let now_s = clock::unix_s();
        for (network, revision) in self.state.bans_before(now_s.saturating_sub(ENDED_BAN_S), CLEANED_MAX) {
            // Another node may be faster.
            match self.bucket.delete(&Key::Ban(network), Some(revision)).await {
                Ok(_) | Err(Fault::WrongRevision) => {}
                Err(fault) => return Err(fault),
            }
        }
        let is_old = |stored_s: u64| stored_s.saturating_add(REMOVED_S) < now_s;
        let old = self.removed.iter().filter(|(_, (_, stored_s))| is_old(*stored_s));
        let old: Vec<_> =
            old.take(CLEANED_MAX).map(|(subject, (revision, _))| (subject.clone(), *revision)).collect();
        for (subject, revision) in old {
            self.bucket.jetstream.purge(&self.bucket.stream, &subject, revision).await?;
            self.removed.remove(&subject);
        }
        Ok(())
    }
}

/// Waits until an attempt to fill the bucket ends. Waits forever without an attempt.
async fn end_of(filling: &mut Option<Filling<'_>>) -> Result<(), Fault> {
    match filling {
        Some(filling) => filling.await,
        None => pending().await,
    }
}

/// Writes the entries that the bucket still lacks, and then the mark that it has had all of them.
async fn fill(state: &SharedState, bucket: Bucket) -> Result<(), Fault> {
    let mut keys = state.unwritten();
    // Other nodes do the same: each write that one of them has made is saved.
    fastrand::shuffle(&mut keys);
    let write = |key: String| {
        let bucket = &bucket;
        async move {
            let Some((name, value)) = state.unwritten_entry(&key) else { return Ok(()) };
            bucket.compare_and_set(&name, &value, 0).await?;
            state.note_written(&key);
            Ok(())
        }
    };
    let mut writes = std::pin::pin!(stream::iter(keys).map(write).buffer_unordered(WRITES_AT_ONCE));
    let mut refused = Ok(());
    while let Some(written) = writes.next().await {
        match written {
            // The bucket may take the others.
            Err(fault @ Fault::Refused(_)) => refused = Err(fault),
            written => written?,
        }
    }
    refused?;
    if let Some(filled) = state.filled() {
        bucket.put(&Key::Filled, &to_json(&filled)).await?;
    }
    Ok(())
}

impl Bucket {
    pub(super) fn new(jetstream: JetStream, name: &str) -> Self {
        Self { jetstream, stream: format!("KV_{name}"), prefix: format!("$KV.{name}.") }
    }

    fn key<'s>(&self, subject: &'s str) -> &'s str {
        subject.strip_prefix(&self.prefix).unwrap_or_default()
    }

    fn subject(&self, key: &Key) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Writes a value. Returns its revision.
    pub(super) async fn put(&self, key: &Key, value: &str) -> Result<u64, Fault> {
        self.jetstream.put(&self.subject(key), value.to_owned().into(), None).await
    }

    /// Removes a key, if it has the expected revision. Returns the revision of the removal.
    pub(super) async fn delete(&self, key: &Key, expected: Option<u64>) -> Result<u64, Fault> {
        self.jetstream.delete(&self.subject(key), expected).await
    }

    /// Writes a value if the key has a revision, 0 for none. Returns whether it did.
    pub(super) async fn compare_and_set(&self, key: &Key, value: &str, revision: u64) -> Result<bool, Fault> {
        match self.jetstream.put(&self.subject(key), value.to_owned().into(), Some(revision)).await {
            Ok(_) => Ok(true),
            Err(Fault::WrongRevision) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// Finds the stream of the bucket, or creates it.
    async fn open(&self, copies: &mut Copies) -> Result<StreamInfo, Fault> {
        // The form in which NATS tools create buckets, so that they can show it.
        let config = json!({
            "name": self.stream, "subjects": [format!("{}>", self.prefix)], "description": "The shared state of Shoal",
            "storage": "file", "max_bytes": BUCKET_BYTES_MAX, "max_msg_size": VALUE_BYTES_MAX,
            "max_msgs_per_subject": 1, "max_msgs": -1, "max_consumers": -1, "retention": "limits", "discard": "new",
            "duplicate_window": 120_000_000_000_u64, "deny_delete": true, "allow_rollup_hdrs": true, "allow_direct": true,
        });
        self.jetstream.open_stream(&self.stream, vec![config], copies).await
    }
}
