//! Load over UDP (BEP 15).
//!
//! A [`Session`] owns the threads of the generator and the peers that it plays. Its runs follow each other on the same
//! peers: fill, then measure as often as one likes.

mod ask;
mod check;
mod echo;
mod flight;
mod pace;
mod press;
mod worker;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use shoal_net::{ClientSettings, Sockets};

use crate::clock::{Clock, nanoseconds};
use crate::plan::PlanError;
use crate::population::Peers;
use crate::progress::{Live, Sight};
use crate::tally::{Tally, report};
use crate::{Pace, Plan, Report, Stop, Watch};
use check::{Line, Rules};
pub use echo::Echo;
use flight::Flight;
pub use flight::IN_FLIGHT_MAX as WINDOW_MAX;
use pace::Timing;
use press::Press;
use worker::{Order, Worker};

/// The generator, with its sockets open and its peers at hand.
#[derive(Debug)]
pub struct Session {
    plan: Plan,
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    tallies: Receiver<Tally>,
}

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
    /// The tracker does not answer a connect.
    #[error("{0}")]
    Unreachable(String),
}

/// What all threads see.
#[derive(Debug)]
struct Shared {
    clock: Clock,
    cancel: AtomicBool,
    lives: Vec<Live>,
}

#[derive(Debug)]
struct Thread {
    /// Dropping it ends the thread.
    orders: Option<Sender<Order>>,
    handle: Option<JoinHandle<()>>,
}

/// Between two looks at a run that goes on.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// For replies that wait; as with trackers, the kernel may grant less.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

impl Session {
    /// Opens the sockets, makes the peers, and gets a connection id for each socket.
    ///
    /// # Errors
    /// Where the plan is impossible, this host lacks something, or the tracker does not answer.
    pub fn open(plan: &Plan) -> Result<Self, OpenError> {
        plan.check()?;
        let lives = plan.workers.iter().map(|_| Live::new()).collect();
        let shared = Arc::new(Shared { clock: Clock::start(), cancel: AtomicBool::new(false), lives });
        let (tally_sender, tallies) = channel();
        let (ready_sender, ready) = channel();
        let mut session = Self { plan: plan.clone(), shared, threads: Vec::new(), tallies };
        for index in 0..plan.workers.len() {
            let thread = session.spawn(index, ready_sender.clone(), tally_sender.clone());
            session.threads.push(thread?);
        }
        drop(ready_sender);
        let outcomes: Vec<Result<(), OpenError>> = ready.iter().collect();
        let opened = outcomes.len();
        outcomes.into_iter().collect::<Result<(), _>>()?;
        assert_eq!(opened, plan.workers.len(), "every worker tells how it opened, unless it panics");
        Ok(session)
    }

    /// Has every peer announce that it starts, so that the tracker knows all of them. What is lost is said again.
    pub fn fill(&mut self, watch: &mut Watch<'_>) -> Report {
        let peers = f64::from(self.plan.population.peers);
        #[expect(clippy::cast_precision_loss, reason = "there are at most 2^32 peers")]
        let done = move |sight: &Sight, _elapsed: Duration| Some(sight.done as f64 / peers);
        self.carry_out(|_| Order::Fill, done, watch, false)
    }

    /// Puts load on the tracker.
    pub fn run(&mut self, pace: Pace, stop: Stop, watch: &mut Watch<'_>) -> Report {
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

    fn spawn(
        &self,
        index: usize,
        ready: Sender<Result<(), OpenError>>,
        tallies: Sender<Tally>,
    ) -> Result<Thread, OpenError> {
        let (plan, shared) = (self.plan.clone(), Arc::clone(&self.shared));
        let (order_sender, orders) = channel();
        let body = move || {
            let opened = open_worker(&plan, shared, index);
            let mut worker = match opened {
                Ok(worker) => worker,
                Err(error) => {
                    // Nobody listens only if the session was given up.
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            let connected = worker.connect().map_err(OpenError::Unreachable);
            let is_connected = connected.is_ok();
            let _ = ready.send(connected);
            drop(ready);
            while is_connected && let Ok(order) = orders.recv() {
                if tallies.send(worker.carry_out(order)).is_err() {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name(format!("load-{index}")).spawn(body);
        let handle = thread.map_err(|error| OpenError::Host(format!("cannot start a thread: {error}")))?;
        Ok(Thread { orders: Some(order_sender), handle: Some(handle) })
    }
}

impl Drop for Session {
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

/// Opens worker `index`, on its own thread.
fn open_worker(plan: &Plan, shared: Arc<Shared>, index: usize) -> Result<Worker, OpenError> {
    if let Some(processor) = plan.workers[index] {
        pin(processor)?;
    }
    // Sleeps end when they should, and not up to 50 µs later. Where that is not to be had, they end a little later.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let locals: Vec<SocketAddr> =
        (0..plan.sources.sockets_per_worker.get()).map(|socket| plan.local(index, socket)).collect();
    let settings = ClientSettings {
        locals: &locals,
        server: plan.target,
        recv_buffer_bytes: SOCKET_BUFFER_BYTES,
        send_buffer_bytes: SOCKET_BUFFER_BYTES,
    };
    let sockets = Sockets::connect(&settings).map_err(|error| OpenError::Host(error.to_string()))?;
    let (bundler, counters, probes) = (sockets.bundler(), sockets.counters(), sockets.probes().collect());
    let line = |local: SocketAddr| Line { ip: local.ip(), connection_id: None, connected_ns: 0 };
    let lines: Vec<Line> = sockets.local_addrs().map(line).collect();
    let open = plan.io.open(sockets);
    let io =
        open.map_err(|error| OpenError::Host(format!("cannot open the back end {}: {error}", plan.io)))?;
    let workers = plan.workers.len();
    let all_peers = plan.population.peers as usize;
    let count = all_peers / workers + usize::from(index < all_peers % workers);
    let rules = Rules {
        numwant: plan.numwant,
        own_address_is_wrong: plan.own_address_is_wrong,
        timeout_ns: nanoseconds(plan.timeout),
    };
    Ok(Worker {
        io,
        bundler,
        counters,
        probes,
        shared,
        index,
        server: plan.target,
        rules,
        mix: plan.mix,
        scrape_hashes_max: u8::try_from(plan.scrape_hashes_max).expect("the plan was checked"),
        peers: Peers::new(&plan.population, count, lines.len(), plan.seed.wrapping_add(index as u64)),
        press: Press::new(plan.seed, index, plan.numwant, plan.scrape_hashes_max),
        flight: Flight::new(lines.len(), 0),
        lines,
        tally: Tally::new(),
        random: Worker::random(plan, index),
        next_socket: 0,
        next_sweep_ns: 0,
        heard_ns: 0,
        refusals_before: 0,
        unheard: None,
    })
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

impl Plan {
    /// Where a socket of a worker is bound.
    fn local(&self, worker: usize, socket: usize) -> SocketAddr {
        let number = worker * self.sources.sockets_per_worker.get() + socket;
        let step = number % self.sources.addresses.get();
        let ip = match self.sources.first {
            IpAddr::V4(first) => {
                let step = u32::try_from(step).expect("the plan was checked");
                IpAddr::V4(Ipv4Addr::from(u32::from(first).wrapping_add(step)))
            }
            v6 => v6,
        };
        SocketAddr::new(ip, 0)
    }
}
