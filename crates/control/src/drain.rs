//! Drain: how a tracker leaves the ones behind a load balancer without failing a client.
//!
//! While a tracker drains, `/health/ready` says 503, so that the load balancer sends no new clients. Announces are refused
//! with a reason that tells clients to try again in a minute; those that leave are still taken, and so are scrapes. A
//! WebSocket is closed after its refused announce, so that its client connects anew, to another tracker. `/health`
//! stays as it is, so that nothing restarts it. After a time, it has drained: it ends, or it stays so
//! until it is told otherwise, as the operator has chosen.
//!
//! No sweep closes the WebSockets. Announces are spread over the interval, so the new connections of their clients are,
//! too, and no worker has to walk over its connections.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use shoal_runtime::clock;
use shoal_runtime::lists::ListControl;

/// Maximum time from the begin of a drain to its end.
pub(crate) const WAIT_MAX: Duration = Duration::from_hours(24);

/// Whether the tracker drains. Clones share it.
#[derive(Clone)]
pub struct Drain {
    state: watch::Sender<Option<Draining>>,
    lists: ListControl,
}

/// A drain that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draining {
    pub(crate) since_unix_s: u64,
    /// When the tracker has drained.
    pub(crate) end: Instant,
    /// Whether the tracker ends then.
    pub(crate) exits: bool,
}

impl core::fmt::Debug for Drain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Drain").field(&*self.state.borrow()).finish()
    }
}

impl Drain {
    /// Creates the state of a tracker that does not drain.
    pub fn new(lists: ListControl) -> Self {
        Self { state: watch::Sender::new(None), lists }
    }

    /// Returns the drain that is in progress or has ended, if any.
    pub fn current(&self) -> Option<Draining> {
        *self.state.borrow()
    }

    /// Begins to drain, or changes when that ends. May block for as long as it takes the workers to take over the rules.
    pub(crate) fn begin(&self, wait: Duration, exits: bool) -> Draining {
        let since_unix_s = self.current().map_or_else(clock::unix_s, |draining| draining.since_unix_s);
        let draining = Draining { since_unix_s, end: Instant::now() + wait.min(WAIT_MAX), exits };
        self.refuse_announces(true);
        self.state.send_replace(Some(draining));
        draining
    }

    /// Serves announces again. Returns whether the tracker was draining.
    pub(crate) fn cancel(&self) -> bool {
        self.refuse_announces(false);
        self.state.send_replace(None).is_some()
    }

    /// Waits until the tracker has drained and is to end.
    pub async fn exit(&self) {
        let mut state = self.state.subscribe();
        loop {
            let draining = *state.borrow_and_update();
            let end = draining.filter(|draining| draining.exits).map(|draining| draining.end);
            let ended = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ended => return,
                // The sender is `self`.
                _ = state.changed() => {}
            }
        }
    }

    fn refuse_announces(&self, refuse: bool) {
        self.lists.change_policy(|policy| policy.with_draining(refuse));
    }
}
