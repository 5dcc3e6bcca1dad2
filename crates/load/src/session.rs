//! A session: the threads of a generator, and the runs that they carry out together.
//!
//! Owns how the threads start, take orders, are watched, and end. A [`Driver`](crate::driver) on each carries the
//! orders out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::clock::{Clock, nanoseconds};
use crate::driver::{Driver, Protocol};
use crate::pace::Timing;
use crate::plan::PlanError;
use crate::progress::{Live, Snapshot};
use crate::tally::{Tally, report};
use crate::{Pace, Plan, Report, Stop, Watch};

/// Why a session could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The plan cannot be carried out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// This process is not allowed to run where the plan wants it.
    #[error("cannot run on processor {processor}: {errno}; give processors that this process may use")]
    Processor {
        /// The number of the processor.
        processor: usize,
        /// The error of the kernel.
        errno: Errno,
    },
    /// This host lacks something.
    #[error("{0}")]
    Host(String),
    /// No tracker answers at the address.
    #[error("{0}")]
    Unreachable(String),
}

/// A load generator that holds its peers at a tracker, for one fill and then any number of measurements.
#[derive(Debug)]
pub struct Session {
    peers: u32,
    /// Connections that all workers open before anything else.
    connections: usize,
    is_connected: bool,
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    tallies: Receiver<Tally>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// Opens all connections, if the protocol has them open before anything else.
    Connect,
    /// Announces every peer as started.
    Fill,
    /// Keeps `window` requests in flight.
    Closed { window: usize, timing: Timing },
    /// Sends `rate` requests per second.
    Open { rate: f64, timing: Timing },
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) cancel: AtomicBool,
    pub(crate) lives: Vec<Live>,
}

#[derive(Debug)]
struct Worker {
    /// Dropping it ends the thread.
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

impl Session {
    /// Starts a thread for each worker of `plan`, which has been checked. `open` opens worker `index` on its own
    /// thread. All workers open `connections` before anything else.
    pub(crate) fn start<P: Protocol>(
        plan: &Plan,
        connections: usize,
        open: impl Fn(usize, Arc<Shared>) -> Result<Driver<P>, OpenError> + Clone + Send + 'static,
    ) -> Result<Self, OpenError> {
        let lives = plan.workers.iter().map(|_| Live::new()).collect();
        let shared = Arc::new(Shared { clock: Clock::start(), cancel: AtomicBool::new(false), lives });
        let (tally_sender, tallies) = channel();
        let (ready_sender, ready) = channel();
        let (peers, is_connected) = (plan.population.peers, connections == 0);
        let mut session = Self { peers, connections, is_connected, shared, workers: Vec::new(), tallies };
        for (index, processor) in plan.workers.iter().enumerate() {
            let (open, shared, processor) = (open.clone(), Arc::clone(&session.shared), *processor);
            let open = move || {
                if let Some(processor) = processor {
                    pin(processor)?;
                }
                // Sleeps end on time, and not up to 50 µs later. If the kernel refuses, they end a little later.
                let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
                open(index, shared)
            };
            let worker = spawn(index, open, ready_sender.clone(), tally_sender.clone());
            session.workers.push(worker?);
        }
        drop(ready_sender);
        let outcomes: Vec<Result<(), OpenError>> = ready.iter().collect();
        let opened = outcomes.len();
        outcomes.into_iter().collect::<Result<(), _>>()?;
        assert_eq!(opened, plan.workers.len(), "every worker reports how it opened, unless it panics");
        Ok(session)
    }

    /// Announces every peer as started, without offers. Lost announces are sent again.
    pub fn fill(&mut self, watch: &mut Watch<'_>) -> Report {
        if let Some(failed) = self.connect(watch) {
            return failed;
        }
        let peers = f64::from(self.peers);
        #[expect(clippy::cast_precision_loss, reason = "there are at most 2^32 peers")]
        let done = move |now: &Snapshot, _elapsed: Duration| Some(now.done as f64 / peers);
        self.carry_out(|_| Order::Fill, done, watch, false)
    }

    /// Puts load on the tracker. A closed loop has no more requests in flight than its connections can carry.
    pub fn run(&mut self, pace: Pace, stop: Stop, watch: &mut Watch<'_>) -> Report {
        if let Some(failed) = self.connect(watch) {
            return failed;
        }
        let workers = self.workers.len();
        let end_ns = self.shared.clock.now_ns().saturating_add(stop.after.map_or(u64::MAX, nanoseconds));
        let order = |index| {
            let share = |all: u64| all / workers as u64 + u64::from((index as u64) < all % workers as u64);
            let timing = Timing { end_ns, requests_max: stop.requests.map_or(u64::MAX, share) };
            match pace {
                Pace::Closed { window } => Order::Closed { window, timing },
                #[expect(clippy::cast_precision_loss, reason = "there are a few workers")]
                Pace::Open { rate } => Order::Open { rate: rate / workers as f64, timing },
            }
        };
        let done = move |now: &Snapshot, elapsed: Duration| {
            let ended = now.responses + now.lost + now.errors + now.wrong;
            #[expect(clippy::cast_precision_loss, reason = "a display needs no more than 2^53")]
            let by_requests = stop.requests.map(|all| ended as f64 / all as f64);
            let by_time = stop.after.map(|after| elapsed.as_secs_f64() / after.as_secs_f64().max(1e-9));
            by_requests.into_iter().chain(by_time).reduce(f64::max)
        };
        self.carry_out(order, done, watch, matches!(pace, Pace::Open { .. }))
    }

    /// Opens all connections the first time. Returns the report if that fails or is cancelled.
    fn connect(&mut self, watch: &mut Watch<'_>) -> Option<Report> {
        if self.is_connected {
            return None;
        }
        self.is_connected = true;
        let connections = self.connections;
        #[expect(clippy::cast_precision_loss, reason = "a display needs no more than 2^53")]
        let done = move |now: &Snapshot, _elapsed: Duration| Some(now.done as f64 / connections as f64);
        let report = self.carry_out(|_| Order::Connect, done, watch, false);
        (report.failure.is_some() || report.ended_early).then_some(report)
    }

    fn carry_out(
        &mut self,
        order: impl Fn(usize) -> Order,
        done: impl Fn(&Snapshot, Duration) -> Option<f64>,
        watch: &mut Watch<'_>,
        is_open_loop: bool,
    ) -> Report {
        let shared = Arc::clone(&self.shared);
        shared.cancel.store(false, Ordering::Relaxed);
        shared.lives.iter().for_each(Live::reset);
        for (index, worker) in self.workers.iter().enumerate() {
            let orders = worker.orders.as_ref().expect("workers have orders until the session ends");
            orders.send(order(index)).expect("a worker ends only with its session");
        }
        let snapshot = || Snapshot::of(shared.lives.iter());
        let (began_ns, mut seen, mut seen_ns) = (shared.clock.now_ns(), snapshot(), shared.clock.now_ns());
        let mut tallies = Vec::new();
        while tallies.len() < self.workers.len() {
            match self.tallies.recv_timeout(PROGRESS_INTERVAL) {
                Ok(tally) => tallies.push(tally),
                Err(RecvTimeoutError::Timeout) => {
                    let is_finished =
                        |worker: &Worker| worker.thread.as_ref().is_some_and(JoinHandle::is_finished);
                    assert!(!self.workers.iter().any(is_finished), "a worker has panicked");
                }
                Err(RecvTimeoutError::Disconnected) => unreachable!("the session holds its workers"),
            }
            if watch.cancel.load(Ordering::Relaxed) {
                shared.cancel.store(true, Ordering::Relaxed);
            }
            let now_ns = shared.clock.now_ns();
            if now_ns - seen_ns >= nanoseconds(PROGRESS_INTERVAL) {
                let (now, elapsed) = (snapshot(), Duration::from_nanos(now_ns - began_ns));
                let mut progress = now.since(&seen, Duration::from_nanos(now_ns - seen_ns), elapsed);
                progress.done_share = done(&now, elapsed).map(|share| share.min(1.0));
                (watch.progress)(&progress);
                (seen, seen_ns) = (now, now_ns);
            }
        }
        report(tallies, is_open_loop)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.cancel.store(true, Ordering::Relaxed);
        for worker in &mut self.workers {
            worker.orders = None;
        }
        for worker in &mut self.workers {
            // The message of a worker that has panicked is on standard error.
            worker.thread.take().map(JoinHandle::join);
        }
    }
}

impl Order {
    /// Returns whether the order was for a number of requests, all of which have been sent.
    pub(crate) fn has_requested_all(&self, tally: &Tally) -> bool {
        match self {
            Order::Connect | Order::Fill => false,
            Order::Closed { timing, .. } | Order::Open { timing, .. } => timing.left(tally.requested()) == 0,
        }
    }
}

fn spawn<P: Protocol>(
    index: usize,
    open: impl FnOnce() -> Result<Driver<P>, OpenError> + Send + 'static,
    ready: Sender<Result<(), OpenError>>,
    tallies: Sender<Tally>,
) -> Result<Worker, OpenError> {
    let (order_sender, orders) = channel();
    let body = move || {
        let opened = open().and_then(|mut driver| {
            driver.probe().map_err(OpenError::Unreachable)?;
            Ok(driver)
        });
        // The receiver is gone only if the session was given up.
        let mut driver = match opened {
            Ok(driver) => {
                let _ = ready.send(Ok(()));
                driver
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        drop(ready);
        while let Ok(order) = orders.recv() {
            if tallies.send(driver.carry_out(&order)).is_err() {
                break;
            }
        }
    };
    let thread = thread::Builder::new().name(format!("load-{index}")).spawn(body);
    let thread = thread.map_err(|error| OpenError::Host(format!("cannot start a thread: {error}")))?;
    Ok(Worker { orders: Some(order_sender), thread: Some(thread) })
}

pub(crate) fn pin(processor: usize) -> Result<(), OpenError> {
    let refused = |errno| OpenError::Processor { processor, errno };
    if processor >= CpuSet::MAX_CPU {
        return Err(refused(Errno::INVAL));
    }
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).map_err(refused)
}
