//! Changes of the bucket by this node. When a function returns, its change is stored and applies here.
//!
//! The thread of a request writes its change. It waits until the watch has brought the change back and the change
//! applies here, so a reply means the same as without a cluster.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use ipnet::IpNet;
use shoal_base::InfoHash;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::contents::{Contents, ban_bytes, json, torrent_bytes, value_bytes};
use super::entry::{Banned, Key};
use super::jetstream::{Availability, Fault};
use super::{ENTRIES_BYTES_MAX, SharedState, TORRENTS_MAX, VALUES_MAX};
use shoal_control::cluster::{SharedValue, SharedValues};
use shoal_runtime::lists::bans::{BANS_MAX, Ban};
use shoal_runtime::lists::{SharedEntries, SharedError, SharedTorrent, Which};

/// Maximum number of writes that wait for their replies.
pub(super) const WRITES_AT_ONCE: usize = 64;

/// Memory of entries that tools leave free.
const SPARE_BYTES: usize = 1 << 20;

/// Maximum time until a stored change applies at this node.
const APPLY_TIME_MAX: Duration = Duration::from_secs(3);

impl SharedEntries for SharedState {
    fn is_used(&self) -> bool {
        !matches!(self.lock().phase, Availability::Refused(_))
    }

    fn add(
        &self,
        which: Which,
        torrents: &[(InfoHash, SharedTorrent)],
    ) -> Result<Vec<InfoHash>, SharedError> {
        let new: Vec<_> = {
            let contents = &self.lock().contents;
            let is_new = |info_hash: &InfoHash| !contents.torrents(which).contains_key(info_hash);
            let new: Vec<_> = torrents.iter().filter(|(info_hash, _)| is_new(info_hash)).collect();
            if contents.torrents_len() + new.len() > TORRENTS_MAX {
                return Err(SharedError::TooMany(format!(
                    "the lists of the cluster may have {TORRENTS_MAX} torrents; remove some, or use a file or a URL for long \
                     lists"
                )));
            }
            check_room(contents, new.iter().map(|(_, torrent)| torrent_bytes(torrent)).sum())?;
            new
        };
        let writes =
            new.iter().map(|(info_hash, torrent)| (Key::Torrent(which, *info_hash), Some(json(torrent))));
        self.write(writes.collect())?;
        Ok(new.into_iter().map(|(info_hash, _)| *info_hash).collect())
    }

    fn remove(&self, which: Which, torrents: &[InfoHash]) -> Result<Vec<InfoHash>, SharedError> {
        let known: Vec<InfoHash> = {
            let contents = &self.lock().contents;
            torrents.iter().copied().filter(|hash| contents.torrents(which).contains_key(hash)).collect()
        };
        self.write(known.iter().map(|info_hash| (Key::Torrent(which, *info_hash), None)).collect())?;
        Ok(known)
    }

    fn ban(&self, ban: &Ban) -> Result<(), SharedError> {
        {
            let contents = &self.lock().contents;
            check_room(contents, ban_bytes(ban))?;
            let bans = &contents.bans;
            let present = bans.get(&ban.network).map(|(present, _)| present);
            if ban.is_earned() && present.is_some_and(|present| !present.is_earned()) {
                // The operator's ban stays.
                return Ok(());
            }
            // Bans that sources have earned leave room for those of operators.
            let bans_max = if ban.is_earned() { BANS_MAX / 2 } else { BANS_MAX };
            if bans.len() >= bans_max && present.is_none() {
                return Err(SharedError::TooMany(format!(
                    "there are {} bans, the maximum; lift some, or use access.networks_deny",
                    bans.len()
                )));
            }
        }
        self.write(vec![(Key::Ban(ban.network), Some(json(&Banned::of(ban))))])
    }

    fn lift(&self, network: &IpNet) -> Result<Option<Ban>, SharedError> {
        let Some((ban, _)) = self.lock().contents.bans.get(network).cloned() else { return Ok(None) };
        self.write(vec![(Key::Ban(*network), None)])?;
        Ok(Some(ban))
    }
}

impl SharedValues for SharedState {
    fn values(&self) -> Vec<(String, SharedValue)> {
        let inner = self.lock();
        inner.contents.config.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn set(&self, key: &str, value: &SharedValue) -> Result<(), SharedError> {
        {
            let contents = &self.lock().contents;
            check_room(contents, value_bytes(value))?;
            let config = &contents.config;
            if config.len() >= VALUES_MAX && !config.contains_key(key) {
                return Err(SharedError::TooMany(format!(
                    "the cluster may have {VALUES_MAX} values; unset some"
                )));
            }
        }
        self.write(vec![(Key::Config(key.to_owned()), Some(json(value)))])
    }

    fn unset(&self, key: &str) -> Result<bool, SharedError> {
        if !self.lock().contents.config.contains_key(key) {
            return Ok(false);
        }
        self.write(vec![(Key::Config(key.to_owned()), None)]).map(|()| true)
    }
}

impl SharedState {
    /// Writes values or removes keys, and waits until the changes apply here.
    fn write(&self, changes: Vec<(Key, Option<String>)>) -> Result<(), SharedError> {
        if changes.is_empty() {
            return Ok(());
        }
        self.check()?;
        let Some(bucket) = self.bucket() else { return Err(unavailable("NATS is away")) };
        let count = changes.len();
        let writes = stream::iter(changes).map(|(key, value)| {
            let bucket = bucket.clone();
            async move {
                match value {
                    Some(value) => bucket.put(&key, &value).await,
                    None => bucket.delete(&key, None).await,
                }
            }
        });
        let results = async {
            let written: Vec<Result<u64, Fault>> = writes.buffer_unordered(WRITES_AT_ONCE).collect().await;
            let stored = written.iter().flatten().count();
            if let Some(fault) = written.iter().find_map(|result| result.as_ref().err()) {
                return Err(partly(stored, count, fault));
            }
            let last = written.into_iter().flatten().max().unwrap_or(0);
            let mut applied = self.applied.subscribe();
            let waiting = timeout(APPLY_TIME_MAX, applied.wait_for(|revision| *revision >= last));
            waiting.await.map(drop).map_err(|_| {
                let text = "the change is stored, and this node has not applied it yet; look at the list before you try again";
                SharedError::Unavailable(text.to_owned())
            })
        };
        // The caller is a thread that may block.
        Handle::current().block_on(results)
    }

    /// Returns why nothing can be stored now.
    fn check(&self) -> Result<(), SharedError> {
        if !self.link.is_connected() {
            let reason = self.link.fault().unwrap_or_else(|| "it was not found yet".to_owned());
            return Err(unavailable(&format!("NATS is away: {reason}")));
        }
        match &self.lock().phase {
            Availability::Used => Ok(()),
            Availability::Away(None) => Err(unavailable("the node has not read the bucket yet")),
            Availability::Away(Some(reason)) | Availability::Refused(reason) => Err(unavailable(reason)),
        }
    }
}

/// Refuses entries for which nodes have no room. A part is kept free, since other nodes may add entries at the same
/// time.
fn check_room(contents: &Contents, new_bytes: usize) -> Result<(), SharedError> {
    if new_bytes + SPARE_BYTES <= contents.bytes_left() {
        return Ok(());
    }
    Err(SharedError::TooMany(format!(
        "the entries of the cluster would take more than {} MiB of memory at each node; remove some, shorten their texts, or use a \
         file or a URL for long lists",
        (ENTRIES_BYTES_MAX - SPARE_BYTES) >> 20
    )))
}

fn unavailable(reason: &str) -> SharedError {
    SharedError::Unavailable(format!(
        "the shared state of the cluster cannot be changed now ({reason}), so nothing was changed; try again, or change a \
         file of the list at each node"
    ))
}

fn partly(stored: usize, count: usize, fault: &Fault) -> SharedError {
    let text = match fault {
        Fault::Full => format!("the bucket of the cluster is full; {stored} of {count} changes were stored"),
        fault => format!(
            "{stored} of {count} changes were stored ({fault}), and those without a reply perhaps as well; try again, which \
             repeats none"
        ),
    };
    SharedError::Unavailable(text)
}
