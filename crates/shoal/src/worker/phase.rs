//! The phase of all workers of a process: serving, paused, stopping, or leaving.
//!
//! One thread sets the phase, and each worker follows it between two poll rounds. So does the thread of a cluster's node,
//! which would otherwise wait for the swarms of another process. A leaving worker passes its connections on through this
//! module, and a serving worker takes connections of another process from here. Arrived WebSockets wait until all have
//! arrived: before that, neither process may have the client that a message is for.
//!
//! A worker of the new process begins paused, with its back end open. So the length of the old worker's pause depends
//! only on the size of the image.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use shoal_net::Waker;
use shoal_net::stream::DetachedConnection;

use shoal_runtime::clock;

/// How often a waiting thread checks again.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// Maximum time for which arrived WebSockets wait for the others.
const ARRIVAL_MS_MAX: u64 = 5_000;

/// Connections that a worker takes over in one poll round.
const ARRIVALS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The workers serve.
    Serving,
    /// The workers have answered everything that they received, and receive nothing.
    Paused,
    /// The workers answer queued requests, and end.
    Stopping,
    /// Another process serves. The workers pass connections on, and end the others.
    Leaving,
}

#[derive(Debug)]
pub(crate) struct WorkerPhase {
    phase: AtomicU8,
    /// Whether the thread of a cluster's node pauses as well.
    has_node: bool,
    has_arrivals: AtomicBool,
    /// The time within which workers leave, in milliseconds.
    leave_ms: AtomicU64,
    paused: AtomicUsize,
    left: AtomicUsize,
    /// Connections of another process that wait for each worker.
    arrivals: Mutex<Vec<VecDeque<DetachedConnection>>>,
    /// The number of connections that have arrived so far.
    arrived: AtomicUsize,
    /// The number of arrived connections that workers have taken over.
    attached: AtomicUsize,
    /// The time until which more connections are expected, or 0.
    expected_until_ms: AtomicU64,
    /// Receives the connections of leaving workers.
    departures: Mutex<Option<Sender<Departure>>>,
}

/// A message from a leaving worker.
#[derive(Debug)]
pub(crate) enum Departure {
    Connection(DetachedConnection),
    /// The worker has passed on every connection that can be passed on at once.
    EndOfFirst,
}

impl WorkerPhase {
    pub(crate) fn new(phase: Phase, has_node: bool) -> Self {
        Self {
            phase: AtomicU8::new(phase as u8),
            has_node,
            has_arrivals: AtomicBool::new(false),
            leave_ms: AtomicU64::new(0),
            paused: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            arrivals: Mutex::default(),
            arrived: AtomicUsize::new(0),
            attached: AtomicUsize::new(0),
            expected_until_ms: AtomicU64::new(0),
            departures: Mutex::default(),
        }
    }

    /// Sets the phase, unless the workers are stopping. A hand-over in progress cannot revoke a stop.
    pub(crate) fn set(&self, phase: Phase, workers: &[Waker]) {
        let unless_stopping = |now| (now != Phase::Stopping as u8).then_some(phase as u8);
        let _ = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, unless_stopping);
        workers.iter().for_each(Waker::wake);
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Serving,
            1 => Phase::Paused,
            2 => Phase::Stopping,
            _ => Phase::Leaving,
        }
    }

    /// Pauses all workers and the node. Returns whether all have paused within `time_max`.
    pub(crate) fn pause(&self, workers: &[Waker], time_max: Duration) -> bool {
        let threads = workers.len() + usize::from(self.has_node);
        self.set(Phase::Paused, workers);
        wait_until(time_max, || self.paused.load(Ordering::Acquire) == threads)
    }

    /// Makes all workers leave within this time. Their connections go to `departures`.
    pub(crate) fn leave(&self, workers: &[Waker], time: Duration, departures: Sender<Departure>) {
        self.leave_ms.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        *self.departures.lock().unwrap_or_else(PoisonError::into_inner) = Some(departures);
        self.set(Phase::Leaving, workers);
    }

    pub(crate) fn have_left(&self, workers: usize) -> bool {
        self.left.load(Ordering::Acquire) == workers
    }

    /// Blocks a worker until the phase changes. Calls `beat` now and then.
    pub(crate) fn wait_while_paused(&self, mut beat: impl FnMut()) {
        self.paused.fetch_add(1, Ordering::AcqRel);
        while self.phase() == Phase::Paused {
            beat();
            thread::sleep(LOOK_INTERVAL);
        }
        self.paused.fetch_sub(1, Ordering::AcqRel);
    }

    /// Blocks the node's thread while the workers pause. Returns whether this process still has the swarms.
    pub(crate) fn permits_node(&self) -> bool {
        if self.phase() == Phase::Paused {
            self.wait_while_paused(|| ());
        }
        self.phase() != Phase::Leaving
    }

    pub(crate) fn leave_ms(&self) -> u64 {
        self.leave_ms.load(Ordering::Relaxed)
    }

    /// Returns the channel for the connections of a leaving worker.
    pub(crate) fn departures(&self) -> Option<Sender<Departure>> {
        self.departures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a worker that has left, and never returns: the process is about to end.
    pub(crate) fn left(&self) -> ! {
        self.left.fetch_add(1, Ordering::AcqRel);
        loop {
            thread::park();
        }
    }

    /// Makes arrived WebSockets wait until [`expect_no_more`](Self::expect_no_more), or for some seconds.
    pub(crate) fn expect_arrivals(&self) {
        self.expected_until_ms.store(clock::monotonic_ms() + ARRIVAL_MS_MAX, Ordering::Relaxed);
    }

    /// Lets the WebSockets go on once the workers have taken over all arrived ones.
    pub(crate) fn expect_no_more(&self) {
        self.expected_until_ms.store(0, Ordering::Release);
    }

    /// Returns whether arrived WebSockets still wait for others.
    pub(crate) fn awaits_arrivals(&self, now_ms: u64) -> bool {
        now_ms < self.expected_until_ms.load(Ordering::Acquire)
            || self.attached.load(Ordering::Acquire) < self.arrived.load(Ordering::Relaxed)
    }

    pub(crate) fn add_attached(&self, count: usize) {
        self.attached.fetch_add(count, Ordering::Release);
    }

    /// Gives a connection to a worker. Workers take turns, so that each gets about as many.
    pub(crate) fn arrive(&self, connection: DetachedConnection, workers: &[Waker]) {
        let number = self.arrived.fetch_add(1, Ordering::Relaxed) % workers.len().max(1);
        let mut arrivals = self.lock_arrivals();
        if arrivals.len() <= number {
            arrivals.resize_with(number + 1, VecDeque::new);
        }
        arrivals[number].push_back(connection);
        self.has_arrivals.store(true, Ordering::Release);
        drop(arrivals);
        if let Some(worker) = workers.get(number) {
            worker.wake();
        }
    }

    /// Takes some of the connections that wait for this worker.
    #[inline]
    pub(crate) fn arrivals(&self, worker: usize) -> Vec<DetachedConnection> {
        if self.has_arrivals.load(Ordering::Acquire) { self.take_arrivals(worker) } else { Vec::new() }
    }

    #[cold]
    fn take_arrivals(&self, worker: usize) -> Vec<DetachedConnection> {
        let mut arrivals = self.lock_arrivals();
        let Some(queue) = arrivals.get_mut(worker) else { return Vec::new() };
        let taken = queue.drain(..queue.len().min(ARRIVALS_MAX)).collect();
        self.has_arrivals.store(arrivals.iter().any(|queue| !queue.is_empty()), Ordering::Release);
        taken
    }

    fn lock_arrivals(&self) -> MutexGuard<'_, Vec<VecDeque<DetachedConnection>>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks a condition repeatedly until it holds or the time is over. Returns whether it holds.
fn wait_until(time_max: Duration, holds: impl Fn() -> bool) -> bool {
    let end_ms = clock::monotonic_ms() + u64::try_from(time_max.as_millis()).unwrap_or(u64::MAX);
    while !holds() {
        if clock::monotonic_ms() > end_ms {
            return false;
        }
        thread::sleep(LOOK_INTERVAL);
    }
    true
}
