//! The surroundings of an attack: the tracker that it may attack, its budget, and a place for its findings.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::attack::Form;
use crate::clock;
use crate::tls::TlsClient;
use crate::tracker::Tracker;
use crate::udp::{Flow, UdpClient};

/// Longest wait of an attacker for one reply.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A tracker under attack.
pub(crate) struct Context<'t> {
    /// The tracker.
    pub(crate) tracker: &'t Tracker,
    /// How much is spent.
    pub(crate) form: Form,
    /// TLS of attackers.
    pub(crate) tls: &'t TlsClient,
    window_end: Instant,
    deadline: Instant,
    hostile_bytes: AtomicU64,
    hostile_messages: AtomicU64,
    claims: Mutex<Vec<Claim>>,
}

/// Something that an attack found out by itself, and whether it is as promised.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Claim {
    /// The thing that was looked at.
    pub what: String,
    /// The finding.
    pub found: String,
    /// Whether it is as promised.
    pub held: bool,
}

impl Form {
    /// Seconds for which every attack goes on at least.
    fn window(self) -> Duration {
        match self {
            Self::Short => Duration::from_millis(1300),
            Self::Full => Duration::from_secs(6),
        }
    }

    /// Longest time of one attack.
    fn limit(self) -> Duration {
        match self {
            Self::Short => Duration::from_secs(10),
            Self::Full => Duration::from_secs(90),
        }
    }

    /// Returns the value for this form.
    pub(crate) fn pick<T>(self, short: T, full: T) -> T {
        match self {
            Self::Short => short,
            Self::Full => full,
        }
    }
}

impl<'t> Context<'t> {
    pub(crate) fn new(tracker: &'t Tracker, tls: &'t TlsClient, form: Form) -> Self {
        let now = clock::now();
        Self {
            tracker,
            form,
            tls,
            window_end: now + form.window(),
            deadline: now + form.limit(),
            hostile_bytes: AtomicU64::new(0),
            hostile_messages: AtomicU64::new(0),
            claims: Mutex::default(),
        }
    }

    /// Returns one of two budgets.
    pub(crate) fn pick<T>(&self, short: T, full: T) -> T {
        self.form.pick(short, full)
    }

    /// Tells whether an attack without an end of its own has gone on for long enough.
    pub(crate) fn is_window_over(&self) -> bool {
        clock::now() >= self.window_end
    }

    /// Tells whether an attack has to end, whatever it has achieved.
    pub(crate) fn is_over(&self) -> bool {
        clock::now() >= self.deadline
    }

    /// Sleeps until the window is over.
    pub(crate) fn wait_for_window(&self) {
        clock::sleep_until(self.window_end);
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

    /// Counts a flow of datagrams.
    pub(crate) fn spend_flow(&self, flow: Flow) {
        self.spend(flow.sent, flow.sent_bytes);
    }

    /// Returns messages and bytes so far.
    pub(crate) fn spent(&self) -> (u64, u64) {
        (self.hostile_messages.load(Ordering::Relaxed), self.hostile_bytes.load(Ordering::Relaxed))
    }

    /// Writes down what was found.
    pub(crate) fn claim(&self, what: impl Into<String>, held: bool, found: impl Into<String>) {
        let claim = Claim { what: what.into(), found: found.into(), held };
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
    }

    /// Returns what was found.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens a UDP client of an attacker.
    pub(crate) fn udp(&self, source: IpAddr) -> Result<UdpClient> {
        UdpClient::open(source, self.tracker.udp(source), PATIENCE)
    }

    /// Returns where a source reaches plain HTTP.
    pub(crate) fn http(&self, source: IpAddr) -> SocketAddr {
        self.tracker.http(source)
    }
}
