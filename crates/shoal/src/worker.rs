//! A worker: one thread that serves requests, from received bytes to sent bytes, and does its share of the store's
//! maintenance.

pub(crate) mod overload;
pub(crate) mod phase;
pub(crate) mod pool;
pub(crate) mod processors;
pub(crate) mod service;

use std::convert::Infallible;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use shoal_base::transport::datagram::BATCH_MAX;
use shoal_engine::Now;
use shoal_engine::pace::{Load, Pace};
use shoal_net::stream::{POLL_EVENTS_MAX, StreamIo, StreamLimits, StreamListeners, Tunnels};
use shoal_net::{AnyIo, DatagramIo, POLL_BATCHES_MAX, Waker};
use shoal_relay::Swarms;
use shoal_session::Service as Connections;
use shoal_store::Store;

use crate::worker::phase::{Departure, Phase, WorkerPhase};
use crate::worker::service::WorkerService;
use shoal_runtime::clock;
use shoal_runtime::heartbeat::Heartbeat;
use shoal_runtime::live::WorkerEndpoints;

/// Maximum time to wait for traffic. An idle worker maintains the store and answers heartbeats this often.
const IDLE_TIME_MAX: Duration = Duration::from_millis(100);

/// How often a busy worker maintains the store, unless the last run did not finish. Each run touches several parts of
/// the store, and a single request should not bear that cost.
const HOUSEKEEPING_MS: u64 = 10;

/// Cache lines that one run spends on each family: about 50 µs if all of them miss the cache. Fifty thousand
/// lines a second and worker keep up with hundreds of millions of peers.
const EXPIRY_LINES: usize = 512;

/// WebTorrent peers that one run checks. They take about as long as the lines above.
const EXPIRY_PEERS: usize = 1024;

/// How often the worker frees retained memory that it did not need.
const TRIM_MS: u64 = 2_000;

/// How often the worker measures how busy it is.
const LOAD_MS: u64 = 1000;

/// The wait in which datagrams collect, so that several share the system calls of a poll round, as network cards
/// coalesce interrupts. Below the limit of a core, where a round would take one or two, it takes about a quarter off the
/// CPU time of a reply (`bench-runs/ways-tried.md`).
const COALESCE_TIME: Duration = Duration::from_micros(50);

/// Datagrams a second from which on a worker waits for several. Of fewer, seldom two arrive in that time.
const COALESCE_RATE: u64 = 20_000;

/// Number of datagrams in a poll round after which a worker does not wait. They share its system calls well enough, and
/// a wait near the limit of the core would only add to the queue.
const COALESCE_BELOW: usize = 16;

/// The schedule of a stopping worker, within the second that an operator is promised. Until `DRAIN_MS_MAX` it answers
/// queued datagrams, then until `ANSWER_MS_MAX` requests on connections. Without limits, a flood of either would
/// never end.
const DRAIN_MS_MAX: u64 = 150;
const ANSWER_MS_MAX: u64 = 300;

/// Until this time, requests and replies in progress may complete.
const RETIRE_MS_MAX: u64 = 500;

/// Until this time, the worker tells the remaining clients that the tracker stops.
const FINISH_MS_MAX: u64 = 600;

/// Maximum time for which a worker answers requests in its sockets before it closes some of them.
const CHANGE_MS_MAX: u64 = 20;

/// Longest single wait for events of a stopping worker.
const STOP_WAIT: Duration = Duration::from_millis(10);

/// Longest single wait for events of a leaving worker.
const LEAVE_WAIT_MS: u32 = 10;

/// Maximum time for the last connections of a leaving worker to end.
const LEAVE_MS_MAX: u64 = 700;

/// The parts of a worker other than its I/O.
pub(crate) struct Worker {
    pub(crate) service: WorkerService,
    pub(crate) store: Arc<Store>,
    pub(crate) swarms: Option<Arc<Swarms>>,
    /// Wakes the workers for which this one has queued messages.
    pub(crate) wakers: Wakers,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) phase: Arc<WorkerPhase>,
}

/// The wakers of the threads that exchange messages of clients.
#[derive(Clone, Debug)]
pub(crate) struct Wakers {
    pub(crate) workers: Arc<[Waker]>,
    /// The waker of the thread that exchanges messages with other nodes, if there may be some.
    pub(crate) node: Option<Waker>,
}

impl Wakers {
    /// Wakes a worker, or the node's thread, whose number follows the last worker's.
    fn wake(&self, thread: u16) {
        let waker = self.workers.get(usize::from(thread)).or(self.node.as_ref());
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The I/O of a worker. The datagram back end waits for the events of the connections as well.
pub(crate) struct WorkerIo {
    pub(crate) datagrams: AnyIo,
    /// The connections, from the first listener on.
    pub(crate) streams: Option<StreamIo<Connections>>,
}

impl WorkerIo {
    /// Replaces the listeners. The first call opens the connections.
    pub(crate) fn set_listeners(
        &mut self,
        listeners: StreamListeners,
        limits: StreamLimits,
        service: &mut WorkerService,
    ) -> io::Result<()> {
        match &mut self.streams {
            None if listeners.local_addresses().next().is_none() => return Ok(()),
            None => self.streams = Some(StreamIo::open(listeners, limits)?),
            Some(streams) => {
                streams.set_listeners(listeners, clock::monotonic_ms(), &mut service.connections)?
            }
        }
        self.datagrams.watch(self.streams.as_ref().map(StreamIo::readiness))
    }

    /// Replaces the sockets and listeners. Serves the requests that wait in the old ones first.
    fn change(&mut self, endpoints: WorkerEndpoints, service: &mut WorkerService) -> io::Result<()> {
        let WorkerEndpoints { datagrams, listeners, limits } = endpoints;
        let end_ms = clock::monotonic_ms() + CHANGE_MS_MAX;
        self.datagrams.drain(service, || clock::monotonic_ms() < end_ms)?;
        self.datagrams.pause(service)?;
        self.datagrams.watch(None)?;
        let queues = self.datagrams.take_xdp();
        self.datagrams = datagrams.with_xdp(queues).open()?;
        self.set_listeners(listeners, limits, service)?;
        service.connections.adopt_listeners();
        Ok(())
    }
}

impl Worker {
    /// Serves until it is told to stop, then answers everything that has arrived. Fails with errors of this host that
    /// make it impossible to continue.
    pub(crate) fn serve(self, mut io: WorkerIo) -> io::Result<()> {
        let (mut service, wakers) = (self.service, self.wakers);
        let mut housekeeping = Housekeeping {
            // The workers take turns at the shards. Together they visit each shard about once in a round.
            shards: self.store.shards().div_ceil(wakers.workers.len().max(1)),
            store: self.store,
            swarms: self.swarms,
            last_ms: 0,
            behind: true,
        };
        let mut load = LoadMeter::new(
            housekeeping.store.totals().iter().all(|totals| totals.seeders + totals.leechers == 0),
        );
        service.set_pace(load.pace);
        let (mut streams_busy, mut taken) = (true, 0);
        let mut trimmed_ms = 0;
        loop {
            match self.phase.phase() {
                Phase::Serving => {}
                Phase::Paused => {
                    pause(&mut io, &mut service, &self.phase, &self.heartbeat)?;
                    continue;
                }
                Phase::Stopping => break,
                Phase::Leaving => {
                    // The new process may not use every socket, and an unused one must stop receiving.
                    drop(io.datagrams);
                    match leave(io.streams, service, &wakers, &self.phase, &self.heartbeat)? {}
                }
            }
            let busy = housekeeping.behind || streams_busy;
            if load.coalesces(taken, busy) {
                io.datagrams.coalesce(COALESCE_TIME)?;
            }
            taken = io.datagrams.poll(if busy { Duration::ZERO } else { IDLE_TIME_MAX }, &mut service)?;
            let mut is_behind = taken >= POLL_BATCHES_MAX * BATCH_MAX;
            let now = clock::now();
            let now_ms = now.monotonic_ms;
            service.connections.set_time(now);
            // Without traffic, no batch does this.
            service.follow_reload();
            // The next reload may arrive during a change, and its settings must not find the listeners of this one.
            while let Some(endpoints) = service.new_endpoints.take() {
                io.change(endpoints, &mut service)?;
            }
            if let Some(streams) = &mut io.streams {
                let arrivals = self.phase.arrivals(service.number);
                // More connections may wait.
                streams_busy = !arrivals.is_empty();
                let arrived = arrivals.len();
                for connection in arrivals {
                    streams.attach(connection, now_ms, &mut service.connections);
                }
                if arrived > 0 {
                    self.phase.add_attached(arrived);
                }
                if streams.has_attached() && !self.phase.awaits_arrivals(now_ms) {
                    streams.read_attached(now_ms, &mut service.connections);
                }
                let seen = poll_streams(streams, now, &mut service, &wakers)?;
                (streams_busy, is_behind) = (streams_busy || seen > 0, is_behind || seen >= POLL_EVENTS_MAX);
                if now_ms >= trimmed_ms + TRIM_MS {
                    streams.trim();
                    service.connections.trim();
                    trimmed_ms = now_ms;
                }
            } else {
                // Connections of another process have no service here.
                let dropped = self.phase.arrivals(service.number).len();
                if dropped > 0 {
                    self.phase.add_attached(dropped);
                }
                streams_busy = false;
            }
            self.heartbeat.beat(now_ms);
            load.keeps_up |= !is_behind;
            load.datagrams += taken as u64;
            if let Some(busy) = load.measure_if_due(now_ms) {
                self.heartbeat.busy.set(busy.into());
                self.heartbeat.set_pace(load.pace);
                service.set_pace(load.pace);
            }
            // Poll rounds are bounded, so that housekeeping gets its share even under saturation.
            housekeeping.run_if_due(now_ms);
        }
        stop(io, &mut service, &wakers)
    }
}

/// Answers what the worker has received, and waits until the phase changes.
fn pause(
    io: &mut WorkerIo,
    service: &mut WorkerService,
    phase: &WorkerPhase,
    heartbeat: &Heartbeat,
) -> io::Result<()> {
    io.datagrams.pause(service)?;
    let wait = || phase.wait_while_paused(|| heartbeat.beat(clock::monotonic_ms()));
    match &mut io.streams {
        None => wait(),
        Some(streams) => {
            streams.pause();
            wait();
            streams.resume();
        }
    }
    Ok(())
}

/// Leaves the work to another process: passes on the connections that can be passed on, and closes the remaining
/// WebSockets and tunnels one after another. Never returns.
fn leave(
    streams: Option<StreamIo<Connections>>,
    mut service: WorkerService,
    wakers: &Wakers,
    phase: &WorkerPhase,
    heartbeat: &Heartbeat,
) -> io::Result<Infallible> {
    let Some((mut streams, departures)) = streams.zip(phase.departures()) else { phase.left() };
    service.connections.set_replaced();
    let mut tunnels = Tunnels::new()?;
    let (begin_ms, leave_ms, mut totals) = (clock::monotonic_ms(), phase.leave_ms(), None);
    // The receiver of departures ends with the process.
    let depart = |departure| drop(departures.send(departure));
    loop {
        let now = clock::now();
        let now_ms = now.monotonic_ms;
        heartbeat.beat(now_ms);
        service.follow_reload();
        // Messages of other workers for connections of this one go with them.
        service.connections.begin_round(now);
        streams.leave(&mut service.connections, &mut tunnels, |connection| {
            depart(Departure::Connection(connection))
        });
        if totals.is_none() {
            depart(Departure::EndOfFirst);
        }
        let left_ms = (begin_ms + leave_ms).saturating_sub(now_ms);
        let left_of = |total: usize| {
            let left = (total as u64 * left_ms).div_ceil(leave_ms.max(1));
            usize::try_from(left).unwrap_or(usize::MAX)
        };
        let (websockets, tunnelled) = *totals.get_or_insert((streams.connections(), tunnels.len()));
        streams.close_upgraded(&mut service.connections, left_of(websockets));
        tunnels.end(left_of(tunnelled), now_ms);
        let is_late = now_ms > begin_ms + leave_ms + LEAVE_MS_MAX;
        if streams.connections() + tunnels.len() == 0 || is_late {
            mem::forget((streams, tunnels));
            phase.left();
        }
        let seen = poll_streams(&mut streams, now, &mut service, wakers)?;
        tunnels.poll(if seen == 0 { LEAVE_WAIT_MS } else { 0 }, now_ms)?;
    }
}

/// Runs a poll round of the connections. Collects messages from other workers before it, and dispatches messages to
/// them after it.
fn poll_streams(
    streams: &mut StreamIo<Connections>,
    now: Now,
    service: &mut WorkerService,
    wakers: &Wakers,
) -> io::Result<usize> {
    if let Some(limits) = service.new_limits.take() {
        streams.set_limits(limits);
        service.connections.set_source_capacity(Box::new(streams.source_limiter(limits.per_source)));
    }
    service.connections.begin_round(now);
    let seen = streams.poll(now.monotonic_ms, &mut service.connections)?;
    service.connections.end_round().for_each(|worker| wakers.wake(worker));
    Ok(seen)
}

/// Answers everything that has arrived and closes connections in an orderly way, as time permits.
fn stop(io: WorkerIo, service: &mut WorkerService, wakers: &Wakers) -> io::Result<()> {
    let WorkerIo { mut datagrams, streams } = io;
    let begin_ms = clock::monotonic_ms();
    let is_within = |limit_ms: u64| clock::monotonic_ms() < begin_ms + limit_ms;
    datagrams.drain(service, || is_within(DRAIN_MS_MAX))?;
    let Some(mut streams) = streams else { return Ok(()) };
    while poll_streams(&mut streams, clock::now(), service, wakers)? > 0 && is_within(ANSWER_MS_MAX) {}
    streams.begin_shutdown(clock::monotonic_ms(), &mut service.connections)?;
    while streams.connections() > 0 && is_within(RETIRE_MS_MAX) {
        let is_busy = poll_streams(&mut streams, clock::now(), service, wakers)? > 0;
        datagrams.poll(if is_busy { Duration::ZERO } else { STOP_WAIT }, service)?;
    }
    while streams.close_remaining(&mut service.connections) > 0 && is_within(FINISH_MS_MAX) {}
    if streams.connections() > 0 {
        // Closing a hundred thousand connections would take too long. The kernel closes them when the process ends.
        mem::forget(streams);
    }
    Ok(())
}

struct LoadMeter {
    pace: Pace,
    /// Whether a poll round since the last measurement has emptied its queues.
    keeps_up: bool,
    measured_ms: u64,
    cpu_ms: u64,
    /// Number of datagrams since the last measurement.
    datagrams: u64,
    /// Whether at least `COALESCE_RATE` a second arrived before it.
    has_many: bool,
}

impl LoadMeter {
    fn new(is_cold: bool) -> Self {
        let pace = if is_cold { Pace::cold() } else { Pace::default() };
        Self { pace, keeps_up: false, measured_ms: 0, cpu_ms: 0, datagrams: 0, has_many: false }
    }

    /// Returns whether to wait for several datagrams, after a poll round that took `taken`. A worker that is `busy` has
    /// something else to do.
    fn coalesces(&self, taken: usize, busy: bool) -> bool {
        !busy && self.has_many && (1..COALESCE_BELOW).contains(&taken)
    }

    /// Measures the load since the last time, if due, and sets the pace. Returns the load in thousandths.
    fn measure_if_due(&mut self, now_ms: u64) -> Option<u32> {
        let elapsed_ms = now_ms.saturating_sub(self.measured_ms);
        if elapsed_ms < LOAD_MS {
            return None;
        }
        let cpu_ms = clock::thread_cpu_ms();
        let busy = (cpu_ms - self.cpu_ms).saturating_mul(1000) / elapsed_ms;
        let is_first = self.measured_ms == 0;
        (self.measured_ms, self.cpu_ms) = (now_ms, cpu_ms);
        self.has_many = mem::take(&mut self.datagrams) * 1000 / elapsed_ms >= COALESCE_RATE;
        // A worker that did not run for a while finds full queues, but is not overloaded yet.
        let is_behind = !mem::take(&mut self.keeps_up) && elapsed_ms < 2 * LOAD_MS;
        // The first measurement has nothing to compare with.
        if is_first {
            return None;
        }
        let busy = u32::try_from(busy).unwrap_or(u32::MAX);
        self.pace = self.pace.after(elapsed_ms, Load { busy, is_behind });
        Some(busy)
    }
}

struct Housekeeping {
    store: Arc<Store>,
    /// The number of shards of a family that one run maintains.
    shards: usize,
    swarms: Option<Arc<Swarms>>,
    last_ms: u64,
    /// Whether the last run did not finish.
    behind: bool,
}

impl Housekeeping {
    fn run_if_due(&mut self, now_ms: u64) {
        if !self.behind && now_ms < self.last_ms + HOUSEKEEPING_MS {
            return;
        }
        let now_s = clock::whole_seconds(now_ms);
        let [v4, v6] = self.store.expire_in(self.shards, now_s, EXPIRY_LINES);
        let webtorrent = self.swarms.as_ref().map(|swarms| swarms.expire(now_s, EXPIRY_PEERS));
        self.behind = v4.behind || v6.behind || webtorrent.is_some_and(|expired| expired.behind);
        self.last_ms = now_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_waits_for_several_datagrams_only_while_many_arrive() {
        let mut load = LoadMeter::new(false);
        for (now_ms, datagrams, coalesces) in [
            (1_000, 0, false),
            (2_000, COALESCE_RATE - 1, false),
            (3_000, COALESCE_RATE, true),
            // Nothing is measured yet.
            (3_500, 0, true),
            (5_000, COALESCE_RATE, false),
            (6_000, COALESCE_RATE, true),
        ] {
            load.datagrams += datagrams;
            load.measure_if_due(now_ms);
            assert_eq!(load.coalesces(1, false), coalesces, "after {now_ms} ms");
        }
        assert!(!load.coalesces(1, true));
        // A round without datagrams waits in the poll, and a long one leaves no time to wait.
        for (taken, coalesces) in [(0, false), (COALESCE_BELOW - 1, true), (COALESCE_BELOW, false)] {
            assert_eq!(load.coalesces(taken, false), coalesces, "after a round that took {taken}");
        }
    }
}
