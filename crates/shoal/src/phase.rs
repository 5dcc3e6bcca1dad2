//! The phase of all workers of a process: whether they serve, pause, stop, or leave their work to another process.
//!
//! One thread sets the phase, and each worker follows it between two poll rounds. A worker that leaves passes its
//! connections on through here, and one that serves takes connections of another process from here. WebSockets among them
//! wait until all have arrived: before that, a message for another client may find it in neither process.
//!
//! A worker of the new process begins paused, with its back end open, so that the pause of the old one is as short as
//! its image is small.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use shoal_net::Waker;
use shoal_net::stream::DetachedConnection;

use shoal_runtime::clock;

/// How often a thread that waits for another one looks again.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// Maximum time for which WebSockets of another process wait until all have arrived.
const ARRIVAL_MS_MAX: u64 = 5_000;

/// Connections that a worker takes over in one poll round.
const ARRIVALS_MAX: usize = 16;

/// The phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// They serve.
    Serving,
    /// They have answered all that they have received, and receive nothing.
    Paused,
    /// They answer queued requests, and end.
    Stopping,
    /// Another process serves in their place. They pass connections on, and end the others.
    Leaving,
}

/// The phase, shared by the workers and the thread that sets it.
#[derive(Debug)]
pub(crate) struct WorkerPhase {
    phase: AtomicU8,
    has_arrivals: AtomicBool,
    /// The time within which workers leave, in milliseconds.
    leave_ms: AtomicU64,
    /// The number of workers that are paused.
    paused: AtomicUsize,
    /// The number of workers that have left.
    left: AtomicUsize,
    /// Connections of another process that wait for each worker.
    arrivals: Mutex<Vec<VecDeque<DetachedConnection>>>,
    /// The number of those so far.
    arrived: AtomicUsize,
    /// The number of those that workers have taken over.
    attached: AtomicUsize,
    /// The end of the time in which more are expected, or 0.
    expected_until_ms: AtomicU64,
    /// Where connections go when the workers leave.
    departures: Mutex<Option<Sender<Departure>>>,
}

/// A part of what a worker that leaves passes on.
#[derive(Debug)]
pub(crate) enum Departure {
    Connection(DetachedConnection),
    /// The worker has passed on all connections that can be passed on at once.
    EndOfFirst,
}

impl WorkerPhase {
    /// Creates the phase of workers that are about to start.
    pub(crate) fn new(phase: Phase) -> Self {
        Self {
            phase: AtomicU8::new(phase as u8),
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

    /// Sets the phase, unless the workers are stopping: a hand-over in progress does not take that back.
    pub(crate) fn set(&self, phase: Phase, workers: &[Waker]) {
        let unless_stopping = |now| (now != Phase::Stopping as u8).then_some(phase as u8);
        let _ = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, unless_stopping);
        workers.iter().for_each(Waker::wake);
    }

    /// Returns the phase.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Serving,
            1 => Phase::Paused,
            2 => Phase::Stopping,
            _ => Phase::Leaving,
        }
    }

    /// Pauses all workers and waits until they are. Returns whether they are within `time_max`.
    pub(crate) fn pause(&self, workers: &[Waker], time_max: Duration) -> bool {
        self.set(Phase::Paused, workers);
        wait_until(time_max, || self.paused.load(Ordering::Acquire) == workers.len())
    }

    /// Makes all workers leave within this time. Their connections go to `departures`.
    pub(crate) fn leave(&self, workers: &[Waker], time: Duration, departures: Sender<Departure>) {
        self.leave_ms.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        *self.departures.lock().unwrap_or_else(PoisonError::into_inner) = Some(departures);
        self.set(Phase::Leaving, workers);
    }

    /// Returns whether this many workers have left.
    pub(crate) fn have_left(&self, workers: usize) -> bool {
        self.left.load(Ordering::Acquire) == workers
    }

    /// Waits in a worker until the phase is another one. Calls `beat` now and then.
    pub(crate) fn wait_while_paused(&self, mut beat: impl FnMut()) {
        self.paused.fetch_add(1, Ordering::AcqRel);
        while self.phase() == Phase::Paused {
            beat();
            thread::sleep(LOOK_INTERVAL);
        }
        self.paused.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the time within which a worker leaves, in milliseconds.
    pub(crate) fn leave_ms(&self) -> u64 {
        self.leave_ms.load(Ordering::Relaxed)
    }

    /// Returns where a worker that leaves sends its connections.
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

    /// Makes the WebSockets that arrive wait until [`expect_no_more`](Self::expect_no_more), or for some seconds.
    pub(crate) fn expect_arrivals(&self) {
        self.expected_until_ms.store(clock::monotonic_ms() + ARRIVAL_MS_MAX, Ordering::Relaxed);
    }

    /// Lets the WebSockets go on as soon as the workers have taken over all that have arrived.
    pub(crate) fn expect_no_more(&self) {
        self.expected_until_ms.store(0, Ordering::Release);
    }

    /// Returns whether WebSockets that have arrived wait for others.
    pub(crate) fn awaits_arrivals(&self, now_ms: u64) -> bool {
        now_ms < self.expected_until_ms.load(Ordering::Acquire)
            || self.attached.load(Ordering::Acquire) < self.arrived.load(Ordering::Relaxed)
    }

    /// Counts connections that a worker has taken over.
    pub(crate) fn add_attached(&self, count: usize) {
        self.attached.fetch_add(count, Ordering::Release);
    }

    /// Lets a worker take over a connection. They take turns, so that all have room for about as many.
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

/// Looks again and again whether a condition holds, for this time. Returns whether it does.
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
