//! The threads of a generator: how they start, take orders, and are watched.
//!
//! Owns what every protocol has in common of a session. What a thread does about an order is the business of a
//! [`Hand`], of which each protocol has its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::clock::{Clock, nanoseconds};
use crate::pace::Timing;
use crate::plan::PlanError;
use crate::progress::{Live, Sight};
use crate::tally::{Tally, report};
use crate::{Pace, Plan, Report, Stop, Watch};

/// Why there can be no session.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The plan contradicts itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// This process may not run where the plan wants it.
    #[error("cannot run on processor {processor}: {errno}; give processors that this process may use")]
    Processor {
        /// Where it was to run.
        processor: usize,
        /// What the kernel says.
        errno: Errno,
    },
    /// This host lacks something.
    #[error("{0}")]
    Host(String),
    /// The tracker does not answer.
    #[error("{0}")]
    Unreachable(String),
}

/// What the thread of a worker does.
pub(crate) trait Hand {
    /// Finds out whether the tracker can be spoken to.
    fn get_ready(&mut self) -> Result<(), OpenError>;

    /// Carries out an order and returns what it counted.
    fn carry_out(&mut self, order: Order) -> Tally;
}

/// What a worker is told to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// Open all connections, where they are to stand before anything else.
    Stand,
    /// Have every peer announce that it starts.
    Fill,
    /// As much as comes back, with a window of so many requests.
    Closed { window: usize, timing: Timing },
    /// So many requests a second.
    Open { rate: f64, timing: Timing },
}

/// All threads of a session.
#[derive(Debug)]
pub(crate) struct Crew {
    /// How many peers all workers play.
    peers: u32,
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    tallies: Receiver<Tally>,
}

/// What all threads see.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) cancel: AtomicBool,
    pub(crate) lives: Vec<Live>,
}

#[derive(Debug)]
struct Thread {
    /// Dropping it ends the thread.
    orders: Option<Sender<Order>>,
    handle: Option<JoinHandle<()>>,
}

/// Between two looks at a run that goes on.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Crew {
    /// Starts a thread for each worker of `plan`, which has been checked. Worker `index` is what `open` makes of it, on
    /// its own thread.
    pub(crate) fn start<H: Hand>(
        plan: &Plan,
        open: impl Fn(usize, Arc<Shared>) -> Result<H, OpenError> + Clone + Send + 'static,
    ) -> Result<Self, OpenError> {
        let lives = plan.workers.iter().map(|_| Live::new()).collect();
        let shared = Arc::new(Shared { clock: Clock::start(), cancel: AtomicBool::new(false), lives });
        let (tally_sender, tallies) = channel();
        let (ready_sender, ready) = channel();
        let mut crew = Self { peers: plan.population.peers, shared, threads: Vec::new(), tallies };
        for (index, processor) in plan.workers.iter().enumerate() {
            let (open, shared, processor) = (open.clone(), Arc::clone(&crew.shared), *processor);
            let open = move || {
                settle(processor)?;
                open(index, shared)
            };
            let thread = spawn(index, open, ready_sender.clone(), tally_sender.clone());
            crew.threads.push(thread?);
        }
        drop(ready_sender);
        let outcomes: Vec<Result<(), OpenError>> = ready.iter().collect();
        let opened = outcomes.len();
        outcomes.into_iter().collect::<Result<(), _>>()?;
        assert_eq!(opened, plan.workers.len(), "every worker tells how it opened, unless it panics");
        Ok(crew)
    }

    /// Has all connections opened, of which there are `count`.
    pub(crate) fn stand(&mut self, count: usize, watch: &mut Watch<'_>) -> Report {
        #[expect(clippy::cast_precision_loss, reason = "a display needs no more than 2^53")]
        let done = move |sight: &Sight, _elapsed: Duration| Some(sight.done as f64 / count as f64);
        self.carry_out(|_| Order::Stand, done, watch, false)
    }

    /// Has every peer announce that it starts, so that the tracker knows all of them. What is lost is said again.
    pub(crate) fn fill(&mut self, watch: &mut Watch<'_>) -> Report {
        let peers = f64::from(self.peers);
        #[expect(clippy::cast_precision_loss, reason = "there are at most 2^32 peers")]
        let done = move |sight: &Sight, _elapsed: Duration| Some(sight.done as f64 / peers);
        self.carry_out(|_| Order::Fill, done, watch, false)
    }

    /// Puts load on the tracker.
    pub(crate) fn run(&mut self, pace: Pace, stop: Stop, watch: &mut Watch<'_>) -> Report {
        let workers = self.threads.len();
        let end_ns = self.shared.clock.now_ns().saturating_add(stop.after.map_or(u64::MAX, nanoseconds));
        let requests = |index: usize| {
            let share = |all: u64| all / workers as u64 + u64::from((index as u64) < all % workers as u64);
            stop.requests.map_or(u64::MAX, share)
        };
        let order = |index| {
            let timing = Timing { end_ns, requests_max: requests(index) };
            match pace {
                Pace::Closed { window } => Order::Closed { window, timing },
                #[expect(clippy::cast_precision_loss, reason = "there are a few workers")]
                Pace::Open { rate } => Order::Open { rate: rate / workers as f64, timing },
            }
        };
        let done = move |sight: &Sight, elapsed: Duration| {
            let ended = sight.responses + sight.lost + sight.errors + sight.wrong;
            #[expect(clippy::cast_precision_loss, reason = "a display needs no more than 2^53")]
            let by_requests = stop.requests.map(|all| ended as f64 / all as f64);
            let by_time = stop.after.map(|after| elapsed.as_secs_f64() / after.as_secs_f64().max(1e-9));
            by_requests.into_iter().chain(by_time).reduce(f64::max)
        };
        self.carry_out(order, done, watch, matches!(pace, Pace::Open { .. }))
    }

    fn carry_out(
        &mut self,
        order: impl Fn(usize) -> Order,
        done: impl Fn(&Sight, Duration) -> Option<f64>,
        watch: &mut Watch<'_>,
        is_open_loop: bool,
    ) -> Report {
        let shared = Arc::clone(&self.shared);
        shared.cancel.store(false, Ordering::Relaxed);
        shared.lives.iter().for_each(Live::reset);
        for (index, thread) in self.threads.iter().enumerate() {
            let orders = thread.orders.as_ref().expect("threads have orders until the session ends");
            orders.send(order(index)).expect("a worker ends only with its session");
        }
        let look = || Sight::of(shared.lives.iter());
        let (began_ns, mut seen, mut seen_ns) = (shared.clock.now_ns(), look(), shared.clock.now_ns());
        let mut tallies = Vec::new();
        while tallies.len() < self.threads.len() {
            match self.tallies.recv_timeout(LOOK_EVERY) {
                Ok(tally) => tallies.push(tally),
                Err(RecvTimeoutError::Timeout) => assert!(!self.has_lost_a_worker(), "a worker has panicked"),
                Err(RecvTimeoutError::Disconnected) => unreachable!("the session holds its workers"),
            }
            if watch.cancel.load(Ordering::Relaxed) {
                shared.cancel.store(true, Ordering::Relaxed);
            }
            let now_ns = shared.clock.now_ns();
            if now_ns - seen_ns >= nanoseconds(LOOK_EVERY) {
                let (sight, elapsed) = (look(), Duration::from_nanos(now_ns - began_ns));
                let mut progress = sight.since(&seen, Duration::from_nanos(now_ns - seen_ns), elapsed);
                progress.done_share = done(&sight, elapsed).map(|share| share.min(1.0));
                (watch.progress)(&progress);
                (seen, seen_ns) = (sight, now_ns);
            }
        }
        report(tallies, is_open_loop)
    }

    /// Whether a worker has ended by itself, which none does.
    fn has_lost_a_worker(&self) -> bool {
        self.threads.iter().any(|thread| thread.handle.as_ref().is_some_and(JoinHandle::is_finished))
    }
}

fn spawn<H: Hand>(
    index: usize,
    open: impl FnOnce() -> Result<H, OpenError> + Send + 'static,
    ready: Sender<Result<(), OpenError>>,
    tallies: Sender<Tally>,
) -> Result<Thread, OpenError> {
    let (order_sender, orders) = channel();
    let body = move || {
        let mut hand = match open() {
            Ok(hand) => hand,
            Err(error) => {
                // Nobody listens only if the session was given up.
                let _ = ready.send(Err(error));
                return;
            }
        };
        let outcome = hand.get_ready();
        let is_ready = outcome.is_ok();
        let _ = ready.send(outcome);
        drop(ready);
        while is_ready && let Ok(order) = orders.recv() {
            if tallies.send(hand.carry_out(order)).is_err() {
                break;
            }
        }
    };
    let thread = thread::Builder::new().name(format!("load-{index}")).spawn(body);
    let handle = thread.map_err(|error| OpenError::Host(format!("cannot start a thread: {error}")))?;
    Ok(Thread { orders: Some(order_sender), handle: Some(handle) })
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.cancel.store(true, Ordering::Relaxed);
        for thread in &mut self.threads {
            thread.orders = None;
        }
        for thread in &mut self.threads {
            // A worker that panicked has said so.
            thread.handle.take().map(JoinHandle::join);
        }
    }
}

impl Order {
    /// Whether a number of requests was to be made, and all of them were.
    pub(crate) fn has_asked_all(&self, tally: &Tally) -> bool {
        match self {
            Order::Stand | Order::Fill => false,
            Order::Closed { timing, .. } | Order::Open { timing, .. } => timing.left(tally.asked()) == 0,
        }
    }
}

/// Has this thread run where and as a worker should.
fn settle(processor: Option<usize>) -> Result<(), OpenError> {
    if let Some(processor) = processor {
        pin(processor)?;
    }
    // Sleeps end when they should, and not up to 50 µs later. Where that is not to be had, they end a little later.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    Ok(())
}

/// Keeps this thread on a processor.
fn pin(processor: usize) -> Result<(), OpenError> {
    let refused = |errno| OpenError::Processor { processor, errno };
    if processor >= CpuSet::MAX_CPU {
        return Err(refused(Errno::INVAL));
    }
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).map_err(refused)
}
