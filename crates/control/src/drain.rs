//! Drain: how a tracker leaves the trackers behind a load balancer without failing a client.
//!
//! While a tracker drains, `/health/ready` says 503, so that the load balancer sends no new clients. Announces are
//! refused with a reason that tells clients to try again in a minute; leaving peers and scrapes are still served. A
//! WebSocket is closed after its refused announce, so that its client connects to another tracker. `/health` stays
//! unchanged, so that nothing restarts the tracker. After a time, the tracker has drained: it ends, or stays as it is
//! until further orders, as the operator has chosen.
//!
//! No sweep closes the WebSockets. Announces are spread over the interval, and so are the new connections of their
//! clients, and no worker has to walk over its connections.

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
    /// Whether the tracker ends at that time.
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

    /// Returns the current drain, in progress or over, if any.
    pub fn current(&self) -> Option<Draining> {
        *self.state.borrow()
    }

    /// Begins to drain, or changes the end of the drain. May block until the workers have adopted the rules.
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

    /// Waits until the tracker has drained and should end.
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
                // `self` owns the sender.
                _ = state.changed() => {}
            }
        }
    }

    fn refuse_announces(&self, refuse: bool) {
        self.lists.change_policy(|policy| policy.with_draining(refuse));
    }
}
