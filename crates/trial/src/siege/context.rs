//! The context of an attack: the tracker, the budget, and the checks of the attack.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use shoal_testkit::client::tls::Tls;

use crate::measure;
use crate::siege::attack::Mode;
use crate::siege::cluster::Cluster;
use crate::siege::tracker::Tracker;
use crate::siege::udp::{self, Flow, UdpClient};
use crate::siege::wire::Wire;

/// The time that an attacker waits for a reply.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

/// A tracker under attack.
pub(crate) struct Context<'t> {
    /// The tracker.
    pub(crate) tracker: &'t Tracker,
    /// The rest of its cluster, if it is a node of one.
    cluster: Option<&'t Cluster>,
    /// The wire beyond which attackers are, if the attack uses one.
    wire: Option<&'t Wire<'t>>,
    /// The extent of the attack.
    pub(crate) mode: Mode,
    /// The TLS client of attackers.
    pub(crate) tls: &'t Tls,
    window_end: Instant,
    deadline: Instant,
    hostile_bytes: AtomicU64,
    hostile_messages: AtomicU64,
    checks: Mutex<Vec<Check>>,
}

/// A check by an attack, and whether the promise held.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// The subject of the check.
    pub what: String,
    /// The observation.
    pub found: String,
    /// Whether the promise held.
    pub held: bool,
}

impl Mode {
    /// Returns the value for this mode.
    pub(crate) fn pick<T>(self, short: T, full: T) -> T {
        match self {
            Self::Short => short,
            Self::Full => full,
        }
    }
}

impl<'t> Context<'t> {
    /// Starts an attack: every attack lasts for the window at least, and for the limit at most.
    pub(crate) fn new(
        tracker: &'t Tracker,
        (cluster, wire): (Option<&'t Cluster>, Option<&'t Wire<'t>>),
        tls: &'t Tls,
        mode: Mode,
    ) -> Self {
        let now = measure::now();
        let window = mode.pick(Duration::from_millis(1300), Duration::from_secs(6));
        // Few attacks come near it, and only beside builds.
        let limit = mode.pick(Duration::from_secs(30), Duration::from_secs(90));
        Self {
            tracker,
            cluster,
            wire,
            mode,
            tls,
            window_end: now + window,
            deadline: now + limit,
            hostile_bytes: AtomicU64::new(0),
            hostile_messages: AtomicU64::new(0),
            checks: Mutex::default(),
        }
    }

    /// Returns the rest of the cluster.
    ///
    /// # Errors
    /// Returns an error if the attack is not one on a cluster.
    pub(crate) fn cluster(&self) -> Result<&'t Cluster> {
        self.cluster.context("the tracker is not part of a cluster")
    }

    /// Returns the wire.
    ///
    /// # Errors
    /// Returns an error if the attack does not use one.
    pub(crate) fn wire(&self) -> Result<&'t Wire<'t>> {
        self.wire.context("the attack has no wire")
    }

    /// Returns the budget for the mode.
    pub(crate) fn pick<T>(&self, short: T, full: T) -> T {
        self.mode.pick(short, full)
    }

    /// Returns whether an attack without a natural end has lasted long enough.
    pub(crate) fn is_window_over(&self) -> bool {
        measure::now() >= self.window_end
    }

    /// Numbers the rounds of an attack without a natural end.
    pub(crate) fn rounds(&self) -> impl Iterator<Item = u32> {
        (0..).take_while(|_| !self.is_window_over())
    }

    /// Returns whether an attack has to end.
    pub(crate) fn is_over(&self) -> bool {
        measure::now() >= self.deadline
    }

    /// Sleeps until the end of the window.
    pub(crate) fn wait_for_window(&self) {
        measure::sleep_until(self.window_end);
    }

    /// Sleeps for some milliseconds.
    pub(crate) fn sleep_ms(&self, ms: u64) {
        thread::sleep(Duration::from_millis(ms));
    }

    /// Counts hostile messages: datagrams, requests, connections or frames.
    pub(crate) fn spend(&self, messages: u64, bytes: u64) {
        self.hostile_messages.fetch_add(messages, Ordering::Relaxed);
        self.hostile_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts datagrams.
    pub(crate) fn spend_flow(&self, flow: Flow) {
        self.spend(flow.sent, flow.sent_bytes);
    }

    /// Returns the number of messages and bytes so far.
    pub(crate) fn spent(&self) -> (u64, u64) {
        (self.hostile_messages.load(Ordering::Relaxed), self.hostile_bytes.load(Ordering::Relaxed))
    }

    /// Records a check.
    pub(crate) fn check(&self, what: impl Into<String>, held: bool, found: impl Into<String>) {
        let check = Check { what: what.into(), found: found.into(), held };
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// Returns the checks so far.
    pub(crate) fn checks(&self) -> Vec<Check> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens an attacker's UDP client.
    pub(crate) fn udp(&self, source: IpAddr) -> Result<UdpClient> {
        udp::open(source, self.tracker.udp(source), TIMEOUT)
    }

    /// Returns the address for plain HTTP from `source`.
    pub(crate) fn http(&self, source: IpAddr) -> SocketAddr {
        self.tracker.http(source)
    }
}
