//! Publishes new rules, and ends the swarms of torrents that they forbid.
//!
//! A worker decides by the old rules until it has adopted the new ones. So the swarms are removed only when every
//! worker has done that, and no announce can bring one back. Then every torrent with a swarm is served, and workers
//! need not look it up in the lists any more ([`Policy::with_permitted_swarms`]).
//!
//! A hanging worker delays the removal by at most two seconds. It may then bring a swarm back by the old rules. While
//! swarms are not permitted, every worker with the new rules looks up each torrent in the lists, so no announce gets
//! the peers of that swarm, and they expire.
//!
//! The exemption of torrents with a swarm saves look-ups: only an announce without a swarm is looked up in the lists.
//! With ten million hashes, that saves a quarter of the user part of a reply. Scrapes need no look-up at all, since a
//! torrent that is not served has no swarm. Before the exemption applies, every announce is looked up, after a pass
//! that prefetches the entries of the whole batch.
//!
//! Some hundred peers are removed at a time under the lock of a shard. After a change of a small table, its entries
//! name the swarms to remove. After other changes, a walk over all torrents finds them. If a worker did not acknowledge
//! the new rules, the exemption is not published, and a walk follows the next change.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use shoal_access::torrents::TorrentLists;
use shoal_base::InfoHash;
use shoal_engine::policy::Policy;
use shoal_net::Waker;
use shoal_relay::Swarms;
use shoal_store::{Store, Walk};

use crate::live::Live;
use crate::published::Published;

/// Pause between two checks whether the workers have adopted the rules.
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// Number of checks after which the removal waits no longer, about two seconds. A worker takes milliseconds.
const LOOKS_MAX: u32 = 4000;

/// Number of checks after which the workers are woken again, five milliseconds.
const LOOKS_PER_WAKE: u32 = 10;

/// Everything that a change of rules affects.
pub struct Publisher {
    /// The values that workers follow.
    pub live: Arc<Published<Live>>,
    /// The wakers of all workers, so that idle ones see the change as well.
    pub wakers: Vec<Waker>,
    /// The swarms of UDP and HTTP.
    pub store: Arc<Store>,
    /// The swarms of WebTorrent, if it is served.
    pub swarms: Option<Arc<Swarms>>,
}

impl Publisher {
    /// Replaces the rules of all workers by the result of `change`, and removes the swarms of newly forbidden torrents.
    /// There must be one caller at a time.
    pub fn publish(&self, change: impl FnOnce(&Live) -> Live) {
        let old = self.live.latest();
        let version = self.live.replace(change);
        self.wakers.iter().for_each(Waker::wake);
        let new = self.live.latest();
        let (old_lists, Some(new_lists)) = (lists(&old.policy), lists(&new.policy)) else { return };
        if old_lists.is_some_and(|old| core::ptr::eq(old, new_lists)) {
            // No torrent is newly forbidden.
            if old.policy.permits_swarms() {
                self.permit_swarms();
            }
            return;
        }
        let is_adopted = self.wait_for_workers(version);
        // A removal may have missed some torrents. After it, all of them must be checked.
        let is_complete = old_lists.is_none() || old.policy.permits_swarms();
        let removed = match new_lists.newly_forbidden(old_lists).filter(|_| is_complete) {
            Some(forbidden) => forbidden.iter().filter(|info_hash| self.remove(info_hash)).count(),
            None => self.remove_all_forbidden(&new.policy),
        };
        if is_adopted {
            self.permit_swarms();
        }
        if removed > 0 {
            tracing::info!(removed, "swarms of torrents that are no longer served were removed");
        }
    }

    /// Tells the workers that every torrent with a swarm is served. Changes of other rules cannot make this wrong.
    fn permit_swarms(&self) {
        if !self.live.latest().policy.permits_swarms() {
            self.live.replace(|live| live.with_policy(live.policy.as_ref().clone().with_permitted_swarms()));
        }
    }

    /// Waits until every worker has adopted the rules of this version. Returns whether all have.
    fn wait_for_workers(&self, version: u64) -> bool {
        for look in 0..LOOKS_MAX {
            if self.live.is_adopted(version) {
                return true;
            }
            // A worker that finds the value locked goes to sleep again.
            if look % LOOKS_PER_WAKE == LOOKS_PER_WAKE - 1 {
                self.wakers.iter().for_each(Waker::wake);
            }
            thread::sleep(LOOK_EVERY);
        }
        tracing::warn!("a worker does not take over the lists; it may serve torrents that are forbidden now");
        false
    }

    /// Removes the swarms of one torrent. Returns whether there were any.
    fn remove(&self, info_hash: &InfoHash) -> bool {
        let is_stored = self.store.remove(info_hash);
        let is_shared_by_browsers =
            self.swarms.as_ref().is_some_and(|swarms| swarms.remove(&swarms.swarm_key(info_hash)));
        is_stored || is_shared_by_browsers
    }

    /// Removes the swarms of all torrents that are not served. Returns the number of these torrents.
    fn remove_all_forbidden(&self, policy: &Policy) -> usize {
        let is_forbidden = |info_hash: &InfoHash| policy.check_torrent(info_hash).is_err();
        let mut removed = 0;
        let (mut walk, mut listed, mut has_more) = (Walk::default(), Vec::new(), true);
        while has_more {
            has_more = self.store.list(&mut walk, &mut listed);
            let forbidden = listed.iter().filter(|torrent| is_forbidden(&torrent.info_hash));
            removed += forbidden.filter(|torrent| self.remove(&torrent.info_hash)).count();
        }
        // The walk has missed the torrents that only browsers share.
        let torrents = self.swarms.iter().flat_map(|swarms| swarms.torrents());
        removed + torrents.filter(|info_hash| is_forbidden(info_hash) && self.remove(info_hash)).count()
    }
}

fn lists(policy: &Policy) -> Option<&TorrentLists> {
    policy.access()?.torrents.as_deref()
}
