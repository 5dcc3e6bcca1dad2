//! The run of one worker, whatever the protocol.
//!
//! A [`Driver`] carries out the orders of a session: fill, closed loop, open loop. It owns the timeouts, the detection
//! of a silent tracker, and the end of a run. A [`Protocol`] owns the sockets and the requests in flight: it chooses
//! each request and checks each reply. Both share a [`Run`]: the peers, the tally, and the last sign of life. The
//! driver is generic, so that no call is dynamic.
//!
//! Between [`Protocol::begin`] and [`Protocol::end`] the driver repeats one round:
//!
//! 1. [`Protocol::expire`] gives up requests that have timed out, several times per timeout.
//! 2. The loop ends if the user has cancelled the run, or if its time or its requests are used up.
//! 3. [`Protocol::connect_all`], [`Protocol::fill`] or [`Protocol::send`] sends requests.
//! 4. [`Protocol::connect`] opens connections that are due, and [`Protocol::receive`] checks replies.
//! 5. If replies are due and none has come for too long, the run fails with [`Protocol::why_silent`].
//!
//! Then it drains: it repeats steps 1, 4 and 5 without new connections until [`Protocol::is_drained`]. If the last
//! requests get no reply, [`Protocol::check_alive`] tells whether the tracker has died. [`Protocol::finish`] measures
//! the rest.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;

use crate::clock::CpuTime;
use crate::pace::{Arrivals, Pause, Timing};
use crate::plan::Rules;
use crate::population::{Fill, Peers};
use crate::progress::Live;
use crate::session::{Order, Shared};
use crate::tally::{Kind, Tally};
use crate::{Mix, Plan};

/// A protocol of trackers, as a client uses it.
pub(crate) trait Protocol {
    const PACING: Pacing;

    /// Checks that the tracker can be reached, before the first run. Returns why it cannot.
    fn probe(&mut self, run: &mut Run) -> Result<(), String>;

    /// Prepares a run. Returns why it cannot begin.
    fn begin(&mut self, run: &mut Run, order: &Order) -> Result<(), String>;

    fn in_flight(&self) -> usize;

    fn window(&self, requests: usize) -> Window;

    /// Opens connections ahead of all else. Returns how long to wait before the next call, or `None` once all are open.
    fn connect_all(&mut self, _run: &mut Run, _now_ns: u64) -> Result<Option<u64>, String> {
        Ok(None)
    }

    /// Sends the started announces of the next peers. Returns whether the tracker knows all peers.
    fn fill(&mut self, run: &mut Run, now_ns: u64) -> bool;

    /// Sends up to `batch.requests` requests. Returns how many, or `None` if nothing can be sent until a reply comes.
    fn send(&mut self, run: &mut Run, batch: Batch<'_>) -> Option<usize>;

    fn connect(&mut self, _run: &mut Run) {}

    /// Checks replies that come within `wait_ns`. Returns how many came, or how many events if events announce replies.
    fn receive(&mut self, run: &mut Run, wait_ns: u64) -> Result<usize, String>;

    fn expire(&mut self, run: &mut Run, now_ns: u64);

    /// Returns whether a run goes on until its time is up, even if all of its requests have been sent.
    fn is_held_open(&self) -> bool {
        false
    }

    /// Returns whether everything has arrived that was due when the drain began.
    fn is_drained(&self, _began_ns: u64, _now_ns: u64) -> bool {
        self.in_flight() == 0
    }

    /// Sends no more requests by itself: the run is over. A protocol that sends only when it is told to has nothing to do.
    fn stop(&mut self) {}

    /// Finds out whether a tracker is still there that has not replied to the last requests of a run. Counts nothing.
    fn check_alive(&mut self, run: &mut Run) -> Result<(), String>;

    /// Measures what can only be measured once a run is drained.
    fn finish(&mut self, _run: &mut Run) -> Result<(), String> {
        Ok(())
    }

    /// Ends a run: gives up what is still in flight, so that a late reply is not taken for one of the next run.
    fn end(&mut self, run: &mut Run, order: &Order);

    fn cpu_time(&self) -> CpuTime {
        CpuTime::of_thread()
    }

    fn why_silent(&self, run: &Run) -> String;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacing {
    pub(crate) closed: Batches,
    pub(crate) open: Batches,
    /// Whether a batch can take so long that the next one needs a new time: opening a connection does.
    pub(crate) slow_batches: bool,
    /// Whether a request of an open loop waits for a free slot, up to its timeout, instead of counting as lost.
    pub(crate) waits_for_slot: bool,
    /// How long before the next arrival an open loop stops sleeping, because a sleep ends late.
    pub(crate) spin_ns: u64,
    pub(crate) expiries_per_timeout: u64,
}

/// How many requests are sent between two looks for replies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batches {
    pub(crate) requests_max: usize,
    pub(crate) per_round_max: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) requests: usize,
    /// The loop sends as soon as there is space for so many requests.
    pub(crate) batch_min: usize,
    /// With so many requests in flight or more, the loop pauses before it looks for replies. `None`: it never does.
    pub(crate) pause_from: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) requests: usize,
    pub(crate) now_ns: u64,
    /// When they are due, if that is not now.
    pub(crate) arrivals: Option<&'a Arrivals>,
}

pub(crate) struct Driver<P> {
    protocol: P,
    run: Run,
}

/// The state of a worker that does not depend on the protocol.
pub(crate) struct Run {
    shared: Arc<Shared>,
    index: usize,
    pub(crate) server: SocketAddr,
    pub(crate) rules: Rules,
    mix: Mix,
    scrape_hashes_max: u8,
    pub(crate) peers: Peers,
    pub(crate) random: SmallRng,
    pub(crate) tally: Tally,
    /// When the tracker last gave a sign of life. Time during which it owed none counts as one.
    pub(crate) alive_ns: u64,
    /// Whether a connection has failed since then.
    pub(crate) is_troubled: bool,
    pub(crate) is_connecting: bool,
    /// Which peers have to be announced while the tracker is filled; otherwise `None`.
    pub(crate) fill: Option<Fill>,
    next_expiry_ns: u64,
}

/// Longest wait for replies before a loop reads the clock again.
pub(crate) const WAIT_NS_MAX: u64 = 10_000_000;

/// A tracker that sends nothing for so long while requests are in flight is taken for dead.
const SILENCE_NS_MAX: u64 = 3_000_000_000;

/// The same for a tracker that refuses all connections.
const REFUSALS_NS_MAX: u64 = 1_000_000_000;

/// Longest wait for the last replies once the user has cancelled the run.
const CANCELLED_DRAIN_NS_MAX: u64 = 1_000_000_000;

/// A fill is given up once it has lost this many times the number of its peers, and some more.
const LOSSES_PER_PEER_MAX: usize = 3;
const LOSSES_MIN: usize = 1000;

impl<P: Protocol> Driver<P> {
    pub(crate) fn new(protocol: P, run: Run) -> Self {
        Self { protocol, run }
    }

    pub(crate) fn probe(&mut self) -> Result<(), String> {
        self.protocol.probe(&mut self.run)
    }

    pub(crate) fn carry_out(&mut self, order: &Order) -> Tally {
        let Self { protocol, run } = self;
        run.tally = Tally::default();
        run.is_connecting = matches!(order, Order::Connect);
        if matches!(order, Order::Fill) {
            run.fill = Some(Fill::new(&run.peers));
            run.tally.swarms = run.peers.swarms();
        } else {
            run.fill = None;
        }
        let begun = protocol.begin(run, order);
        let (began_ns, cpu_before) = (run.now_ns(), protocol.cpu_time());
        (run.alive_ns, run.is_troubled) = (began_ns, false);
        let outcome = begun.and_then(|()| match *order {
            Order::Connect => self.connect_all(),
            Order::Fill => self.fill(),
            Order::Closed { window, timing } => self.closed(window, timing),
            Order::Open { rate, timing } => self.open(rate, timing),
        });
        let cpu = self.protocol.cpu_time() - cpu_before;
        self.run.tally.take_stock(began_ns, self.run.now_ns(), cpu);
        let is_run = matches!(order, Order::Closed { .. } | Order::Open { .. });
        let outcome = outcome.and_then(|()| if is_run { self.drain() } else { Ok(()) });
        let Self { protocol, run } = self;
        if outcome.is_err() || order.has_requested_all(&run.tally) {
            // A tracker that has died is measured up to its last reply. So is one that had to answer a number of
            // requests, all of which may have been in flight when the loop ended.
            run.tally.take_stock(began_ns, run.alive_ns, protocol.cpu_time() - cpu_before);
        }
        if let Err(failure) = outcome {
            run.tally.failure = Some(failure);
            run.tally.ended_early = true;
        }
        protocol.end(run, order);
        run.is_connecting = false;
        std::mem::take(&mut run.tally)
    }

    fn connect_all(&mut self) -> Result<(), String> {
        let Self { protocol, run } = self;
        while let Some(now_ns) = run.next_round(protocol, None) {
            let Some(wait_ns) = protocol.connect_all(run, now_ns)? else { break };
            run.round(protocol, wait_ns)?;
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), String> {
        let Self { protocol, run } = self;
        let peers = run.peers.len();
        while let Some(now_ns) = run.next_round(protocol, None) {
            if run.tally.lost > (LOSSES_PER_PEER_MAX * peers + LOSSES_MIN) as u64 {
                return Err(format!("{} of {peers} announces got no answer", run.tally.lost));
            }
            if protocol.fill(run, now_ns) {
                break;
            }
            run.round(protocol, WAIT_NS_MAX)?;
        }
        Ok(())
    }

    fn closed(&mut self, requests: usize, timing: Timing) -> Result<(), String> {
        let Self { protocol, run } = self;
        let (window, batches_max) = (protocol.window(requests), P::PACING.closed.per_round_max);
        let mut pause = Pause::new(window.requests);
        while let Some(mut now_ns) = run.next_round(protocol, Some(&timing)) {
            let mut batches = 0;
            while batches < batches_max && protocol.in_flight() + window.batch_min <= window.requests {
                let space = window.requests - protocol.in_flight();
                let requests =
                    space.min(P::PACING.closed.requests_max).min(timing.left(run.tally.requested()));
                if requests == 0 {
                    break;
                }
                if P::PACING.slow_batches {
                    now_ns = run.now_ns();
                }
                if protocol.send(run, Batch { requests, now_ns, arrivals: None }).is_none() {
                    break;
                }
                batches += 1;
            }
            let is_full = window.pause_from.is_some_and(|from| protocol.in_flight() >= from);
            if is_full {
                pause.take();
            }
            let wait_ns = if batches == batches_max { 0 } else { WAIT_NS_MAX };
            let replies = run.round(protocol, wait_ns.min(timing.end_ns.saturating_sub(now_ns)))?;
            pause.learn(replies);
        }
        Ok(())
    }

    fn open(&mut self, rate: f64, timing: Timing) -> Result<(), String> {
        let Self { protocol, run } = self;
        let Pacing { open: batches, slow_batches, waits_for_slot, spin_ns, .. } = P::PACING;
        let due_max = batches.requests_max.saturating_mul(batches.per_round_max);
        let patience_ns = if waits_for_slot { run.rules.timeout_ns } else { 0 };
        let mut arrivals = Arrivals::new(run.now_ns(), rate);
        // When requests last had to wait for a slot. The tracker is late then, not the generator.
        let mut short_ns = 0;
        while let Some(now_ns) = run.next_round(protocol, Some(&timing)) {
            let mut due = arrivals.due(now_ns).min(due_max).min(timing.left(run.tally.requested()));
            while due > 0 {
                let now_ns = if slow_batches { run.now_ns() } else { now_ns };
                let requests = due.min(batches.requests_max);
                let batch = Batch { requests, now_ns, arrivals: Some(&arrivals) };
                let Some(sent) = protocol.send(run, batch) else { break };
                for due_ns in (0..sent).map(|ahead| arrivals.at(ahead)).filter(|due_ns| *due_ns >= short_ns) {
                    run.tally.send_delay.record(now_ns.saturating_sub(due_ns));
                }
                arrivals.pass(sent);
                due -= sent;
            }
            if due > 0 && waits_for_slot {
                short_ns = now_ns;
            }
            // A request that has waited for too long is not even sent; to a client that is the same.
            while due > 0 && now_ns.saturating_sub(arrivals.at(0)) >= patience_ns {
                run.tally.lost += 1;
                run.tally.unsent += 1;
                arrivals.pass(1);
                due -= 1;
            }
            let until_next_ns = arrivals.at(0).saturating_sub(run.now_ns());
            let wait_ns = if due > 0 { WAIT_NS_MAX } else { until_next_ns };
            run.round(protocol, wait_ns.saturating_sub(spin_ns).min(WAIT_NS_MAX))?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), String> {
        let Self { protocol, run } = self;
        protocol.stop();
        let (began_ns, was_waiting) = (run.now_ns(), protocol.in_flight() > 0);
        let mut now_ns = began_ns;
        while !protocol.is_drained(began_ns, now_ns) && now_ns - began_ns < run.drain_ns_max() {
            protocol.receive(run, WAIT_NS_MAX)?;
            if protocol.in_flight() > 0 {
                run.check_silence(protocol)?;
            }
            now_ns = run.now_ns();
            run.expire(protocol, now_ns);
        }
        if was_waiting && run.alive_ns < began_ns && !run.is_cancelled() {
            protocol.check_alive(run)?;
        }
        protocol.finish(run)
    }
}

impl Run {
    pub(crate) fn new(plan: &Plan, mix: Mix, sockets: usize, shared: Arc<Shared>, index: usize) -> Self {
        let peers_seed = plan.seed.wrapping_add(index as u64);
        Self {
            shared,
            index,
            server: plan.target,
            rules: Rules::of(plan),
            mix,
            scrape_hashes_max: u8::try_from(plan.scrape_hashes_max).expect("the plan was checked"),
            peers: Peers::new(&plan.population, plan.peers_of(index), sockets, peers_seed),
            random: plan.random(index),
            tally: Tally::default(),
            alive_ns: 0,
            is_troubled: false,
            is_connecting: false,
            fill: None,
            next_expiry_ns: 0,
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.shared.clock.now_ns()
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.rules.timeout_ns)
    }

    pub(crate) fn silence(&self) -> Duration {
        Duration::from_nanos(self.now_ns() - self.alive_ns)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.shared.cancel.load(Ordering::Relaxed)
    }

    pub(crate) fn drain_ns_max(&self) -> u64 {
        let timeout_ns = self.rules.timeout_ns;
        if self.is_cancelled() { timeout_ns.min(CANCELLED_DRAIN_NS_MAX) } else { timeout_ns }
    }

    pub(crate) fn draw_kind(&mut self) -> Kind {
        let Mix { connect, announce, scrape } = self.mix;
        let drawn = self.random.random_range(0..connect + announce + scrape);
        if drawn < connect {
            Kind::Connect
        } else if drawn < connect + announce {
            Kind::Announce
        } else {
            Kind::Scrape
        }
    }

    /// Draws whether the next request that is no connect is an announce or a scrape.
    pub(crate) fn draw_kind_of_peer(&mut self) -> Kind {
        let Mix { announce, scrape, .. } = self.mix;
        if self.random.random_range(0..(announce + scrape).max(1)) < announce {
            Kind::Announce
        } else {
            Kind::Scrape
        }
    }

    pub(crate) fn has_only_connects(&self) -> bool {
        self.mix.announce + self.mix.scrape == 0
    }

    pub(crate) fn draw_scrape_hashes(&mut self) -> u8 {
        self.random.random_range(1..=self.scrape_hashes_max)
    }

    pub(crate) fn note_alive(&mut self, now_ns: u64) {
        (self.alive_ns, self.is_troubled) = (now_ns, false);
    }

    /// Returns whether a reply comes after the timeout of its request. The request then counts as lost.
    pub(crate) fn is_late(&mut self, kind: Kind, peer: u32, due_ns: u64, now_ns: u64) -> bool {
        let is_late = now_ns.saturating_sub(due_ns) > self.rules.timeout_ns;
        if is_late {
            self.tally.late += 1;
            self.note_lost(kind, peer);
        }
        is_late
    }

    pub(crate) fn note_good(&mut self, kind: Kind, due_ns: u64, now_ns: u64) {
        let latency_ns = now_ns.saturating_sub(due_ns);
        self.tally.responses.count(kind);
        self.tally.latency.record(latency_ns);
        self.live().record(latency_ns);
    }

    /// Counts good replies whose kinds and latencies are counted elsewhere.
    pub(crate) fn note_uncounted(&mut self, replies: u64) {
        self.live().add(replies);
    }

    pub(crate) fn note_latency(&mut self, latency_ns: u64) {
        self.tally.latency.record(latency_ns);
        self.live().record_latency(latency_ns);
    }

    pub(crate) fn note_swarm(&mut self, peer: u32, counted: u64) {
        if let Some(swarm) = self.tally.swarms.get_mut(self.peers.torrent(peer) as usize) {
            swarm.note(counted);
        }
    }

    /// Counts a lost request. A fill announces its peer again.
    pub(crate) fn note_lost(&mut self, kind: Kind, peer: u32) {
        self.tally.lost += 1;
        if let Some(fill) = &mut self.fill {
            fill.add_lost(kind, peer);
        }
    }

    pub(crate) fn uncounted<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let (tally, alive_ns) = (std::mem::take(&mut self.tally), self.alive_ns);
        let result = act(self);
        (self.tally, self.alive_ns) = (tally, alive_ns);
        result
    }

    pub(crate) fn expire<P: Protocol>(&mut self, protocol: &mut P, now_ns: u64) {
        if now_ns < self.next_expiry_ns {
            return;
        }
        self.next_expiry_ns = now_ns + self.rules.timeout_ns / P::PACING.expiries_per_timeout;
        protocol.expire(self, now_ns);
        let Tally { lost, errors, wrong, connections, .. } = &self.tally;
        let opened = connections.as_ref().map_or(0, |connections| connections.opened);
        let done = if self.is_connecting { opened } else { self.tally.replies() };
        self.live().show(*lost, *errors, wrong.total(), done);
    }

    /// Opens connections that are due, and takes the replies that come within `wait_ns`. Returns how many.
    pub(crate) fn round<P: Protocol>(&mut self, protocol: &mut P, wait_ns: u64) -> Result<usize, String> {
        protocol.connect(self);
        let replies = protocol.receive(self, wait_ns)?;
        self.check_silence(protocol)?;
        Ok(replies)
    }

    fn check_silence<P: Protocol>(&mut self, protocol: &P) -> Result<(), String> {
        let (now_ns, is_idle) = (self.now_ns(), protocol.in_flight() == 0);
        if is_idle && !self.is_troubled {
            self.alive_ns = now_ns;
        }
        let silence_ns_max = if is_idle && !self.is_connecting {
            REFUSALS_NS_MAX
        } else {
            SILENCE_NS_MAX.max(2 * self.rules.timeout_ns)
        };
        if now_ns - self.alive_ns > silence_ns_max { Err(protocol.why_silent(self)) } else { Ok(()) }
    }

    /// Begins a round. Returns the time, or `None` if the run is over or the user has cancelled it.
    fn next_round<P: Protocol>(&mut self, protocol: &mut P, timing: Option<&Timing>) -> Option<u64> {
        let now_ns = self.now_ns();
        self.expire(protocol, now_ns);
        let is_cancelled = self.is_cancelled();
        self.tally.ended_early |= is_cancelled;
        let is_over = timing.is_some_and(|timing| {
            let has_requested_all = timing.left(self.tally.requested()) == 0;
            now_ns >= timing.end_ns || has_requested_all && !protocol.is_held_open()
        });
        (!is_cancelled && !is_over).then_some(now_ns)
    }

    fn live(&self) -> &Live {
        &self.shared.lives[self.index]
    }
}

impl Batch<'_> {
    pub(crate) fn due_ns(&self, position: usize) -> u64 {
        self.arrivals.map_or(self.now_ns, |arrivals| arrivals.at(position))
    }
}
