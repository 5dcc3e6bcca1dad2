//! The lists as the control listener shows them, and how it makes the tracker read them again.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use shoal_access::Access;

use super::{Lists, Publisher};

/// The lists of a running tracker. All functions may block, for as long as it takes to read the lists.
#[derive(Clone)]
pub(crate) struct ListControl {
    pub(crate) lists: Arc<Mutex<Lists>>,
    pub(crate) publisher: Arc<Publisher>,
}

impl core::fmt::Debug for ListControl {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ListControl").finish_non_exhaustive()
    }
}

impl ListControl {
    /// Returns each source with the number of its entries and its fault, if it has one.
    pub(crate) fn status(&self) -> Value {
        status(&self.lock())
    }

    /// Reads all sources again, applies them, and returns the same as [`status`](Self::status).
    pub(crate) fn reload(&self) -> Value {
        let mut lists = self.lock();
        let config = self.publisher.live.latest();
        lists.forget_times();
        let access = lists.read_all(config.policy.config());
        apply(&self.publisher, access);
        lists.log_changes();
        lists.watch();
        status(&lists)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces the rules of all workers. The caller holds the lock of the lists, so that no older ones replace them.
pub(super) fn apply(publisher: &Publisher, access: Access) {
    publisher.publish(|live| live.with_policy((*live.policy).clone().with_access(access)));
}

fn status(lists: &Lists) -> Value {
    let sources = lists.sources().map(|source| {
        json!({ "list": source.list, "source": source.name, "entries": source.entries, "fault": source.fault })
    });
    json!({ "sources": sources.collect::<Vec<_>>() })
}

/// The state of a source.
pub(super) struct SourceState<'l> {
    /// The key that names the source, such as `access.torrents_deny`.
    pub(super) list: String,
    pub(super) name: String,
    pub(super) entries: usize,
    pub(super) fault: Option<&'l str>,
}
