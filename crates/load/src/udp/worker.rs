//! One thread of the generator: its sockets, its peers, and the loop that keeps requests on their way.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;
use shoal_net::{AnyIo, BUNDLE_MAX, Bundler, Counters, DatagramIo, SocketProbe};

use super::ask::{CONNECTION_NS_MAX, note_unheard};
use super::check::{Judge, Line};
use super::flight::{Flight, IN_FLIGHT_MAX};
use super::press::Press;
use crate::Mix;
use crate::clock::Effort;
use crate::crew::{Hand, OpenError, Order, Shared};
use crate::pace::{Arrivals, Nap, Timing};
use crate::population::Peers;
use crate::rules::Rules;
use crate::tally::Tally;

/// One thread of the generator.
pub(super) struct Worker {
    pub(super) io: AnyIo,
    pub(super) bundler: Bundler,
    pub(super) counters: Arc<Counters>,
    pub(super) probes: Vec<SocketProbe>,
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    pub(super) server: SocketAddr,
    pub(super) rules: Rules,
    pub(super) mix: Mix,
    pub(super) scrape_hashes_max: u8,
    pub(super) peers: Peers,
    pub(super) press: Press,
    pub(super) lines: Vec<Line>,
    pub(super) flight: Flight,
    pub(super) tally: Tally,
    pub(super) random: SmallRng,
    pub(super) next_socket: usize,
    pub(super) next_sweep_ns: u64,
    /// When the last reply came, of any kind.
    pub(super) heard_ns: u64,
    /// How often, before this run, the server's host had said that nobody listens.
    pub(super) refusals_before: u64,
    /// Peers whose announce did not get through while the tracker is filled; elsewhere `None`.
    pub(super) unheard: Option<Vec<u32>>,
}

/// The window while the tracker is filled: the least receive buffer in use holds so many.
const FILL_WINDOW: usize = 192;

/// A fill that lost so many times the number of its peers is given up.
const FILL_LOSSES_MAX: usize = 3;

/// Requests of one bundle in a closed loop. It waits for room for so many, because bundles save most of its time.
const BURST: usize = 32;

/// Most bundles of a closed loop between two looks for replies, whatever the window.
const BUNDLES_PER_TURN: usize = 16;

/// Longest wait for replies before the loop looks at the time again.
const TURN_NS_MAX: u64 = 10_000_000;

/// A tracker that says nothing at all for so long, while requests are on their way, is taken for dead.
const SILENCE_NS_MAX: u64 = 3_000_000_000;

/// Longest wait for the last replies once the user has asked for an end.
const PARTING_NS_MAX: u64 = 1_000_000_000;

/// Below this time the loop does not go to sleep before the next arrival, because waking up takes as long.
const SPIN_NS_MAX: u64 = 200_000;

impl Hand for Worker {
    fn get_ready(&mut self) -> Result<(), OpenError> {
        self.connect().map_err(OpenError::Unreachable)
    }

    fn carry_out(&mut self, order: Order) -> Tally {
        let slots = match order {
            Order::Stand | Order::Fill => FILL_WINDOW,
            Order::Closed { window, .. } => window,
            // Room for all that can be unanswered at once, and some more.
            Order::Open { rate, .. } => {
                Arrivals::within(rate, self.timeout()).saturating_mul(2).clamp(1024, IN_FLIGHT_MAX)
            }
        };
        let connected = self.renew_old_connections();
        self.tally = Tally::new();
        self.renew_flight(slots);
        let (began_ns, effort, drops) = (self.shared.clock.now_ns(), Effort::of_thread(), self.drops());
        self.heard_ns = began_ns;
        self.refusals_before = self.refusals();
        self.unheard = matches!(order, Order::Fill).then(Vec::new);
        let outcome = connected.and_then(|()| match order {
            // There is nothing to open.
            Order::Stand => Ok(()),
            Order::Fill => self.fill(),
            Order::Closed { timing, .. } => self.closed(timing),
            Order::Open { rate, timing } => self.open(rate, timing),
        });
        self.tally.take_stock(began_ns, self.shared.clock.now_ns(), effort);
        let outcome = outcome.and_then(|()| self.drain());
        if outcome.is_err() || order.has_asked_all(&self.tally) {
            // A tracker that died is measured up to its last reply; and so is one that had to answer a number of
            // requests, which may be on their way all at once.
            self.tally.take_stock(began_ns, self.heard_ns, effort);
        }
        if let Err(failure) = outcome {
            self.tally.failure = Some(failure);
            self.tally.ended_early = true;
        }
        if !self.is_cancelled() {
            self.tally.lost += self.flight.in_flight() as u64;
        }
        self.tally.receive_drops = u64::from(self.drops().wrapping_sub(drops));
        std::mem::replace(&mut self.tally, Tally::new())
    }
}

impl Worker {
    fn renew_flight(&mut self, slots: usize) {
        let mask = self.random.random();
        self.flight.renew(slots, mask);
    }

    /// Replies that the kernel dropped because the sockets of this worker were full; wraps around.
    fn drops(&self) -> u32 {
        let memory = |probe: &SocketProbe| probe.read().ok().flatten();
        self.probes.iter().filter_map(memory).fold(0, |sum, memory| sum.wrapping_add(memory.receive_drops))
    }

    /// How often the server's host has said that nobody listens.
    fn refusals(&self) -> u64 {
        self.counters.v4.receive_failed.read() + self.counters.v6.receive_failed.read()
    }

    /// Connects anew where nothing was asked for so long that the connection id is no longer good.
    fn renew_old_connections(&mut self) -> Result<(), String> {
        let now_ns = self.shared.clock.now_ns();
        for line in &mut self.lines {
            if now_ns.saturating_sub(line.connected_ns) > CONNECTION_NS_MAX {
                line.connection_id = None;
            }
        }
        if self.lines.iter().all(|line| line.connection_id.is_some()) {
            return Ok(());
        }
        self.renew_flight(self.lines.len());
        self.connect()
    }

    /// Gets a connection id for every socket.
    pub(super) fn connect(&mut self) -> Result<(), String> {
        const TRIES: u32 = 3;
        self.heard_ns = self.shared.clock.now_ns();
        for _ in 0..TRIES {
            let now_ns = self.shared.clock.now_ns();
            for socket in 0..self.lines.len() {
                if self.lines[socket].connection_id.is_none() {
                    self.ask_connect(socket, now_ns);
                    self.flush(socket);
                }
            }
            while self.flight.in_flight() > 0 && !self.is_cancelled() {
                let now_ns = self.turn(TURN_NS_MAX)?;
                self.sweep(now_ns);
            }
        }
        if self.lines.iter().any(|line| line.connection_id.is_none()) {
            Err(self.why_silent())
        } else {
            Ok(())
        }
    }

    fn fill(&mut self) -> Result<(), String> {
        let sockets = self.lines.len();
        let mut next: Vec<usize> = (0..sockets).collect();
        let losses_max = FILL_LOSSES_MAX * self.peers.len() + 1000;
        loop {
            let now_ns = self.shared.clock.now_ns();
            self.sweep(now_ns);
            if self.is_cancelled() {
                self.tally.ended_early = true;
                return Ok(());
            }
            if usize::try_from(self.tally.lost).is_ok_and(|lost| lost > losses_max) {
                return Err(format!("{} of {} announces got no answer", self.tally.lost, self.peers.len()));
            }
            let mut all_asked = true;
            for (socket, next) in next.iter_mut().enumerate() {
                if self.flight.room() >= BURST {
                    self.fill_some(socket, next, now_ns);
                }
                all_asked &= *next >= self.peers.len();
            }
            let all_heard = self.unheard.as_ref().is_none_or(Vec::is_empty);
            if all_asked && all_heard && self.flight.in_flight() == 0 {
                return Ok(());
            }
            self.turn(TURN_NS_MAX)?;
        }
    }

    /// Announces of the next peers of a socket, and of those of its peers that were not heard the first time.
    fn fill_some(&mut self, socket: usize, next: &mut usize, now_ns: u64) {
        let sockets = self.lines.len();
        self.keep_connected(socket, now_ns);
        for _ in 0..BURST.min(self.flight.room()) {
            let of_this_socket = |peer: &mut u32| *peer as usize % sockets == socket;
            let unheard = self.unheard.as_mut().and_then(|unheard| unheard.pop_if(of_this_socket));
            let peer = match unheard {
                Some(peer) => Some(peer),
                _ if *next < self.peers.len() => {
                    let peer = u32::try_from(*next).ok();
                    *next += sockets;
                    peer
                }
                _ => None,
            };
            let Some(peer) = peer else { break };
            let say = self.peers.start(peer);
            self.ask_announce(socket, now_ns, &say);
        }
        self.flush(socket);
    }

    fn closed(&mut self, timing: Timing) -> Result<(), String> {
        let window = self.flight.room();
        let burst = BURST.min(window.div_ceil(4));
        let mut nap = Nap::new(window);
        loop {
            let now_ns = self.shared.clock.now_ns();
            self.sweep(now_ns);
            if self.is_over(&timing, now_ns) {
                return Ok(());
            }
            let mut bundles = 0;
            while bundles < BUNDLES_PER_TURN && self.flight.room() >= burst {
                let count = self.flight.room().min(BUNDLE_MAX).min(timing.left(self.tally.asked()));
                if count == 0 {
                    break;
                }
                self.ask_some(count, now_ns, |_| now_ns);
                bundles += 1;
            }
            if self.flight.room() < burst {
                nap.take();
            }
            let before = self.flight.in_flight();
            let wait_ns = if bundles == BUNDLES_PER_TURN { 0 } else { TURN_NS_MAX };
            self.turn(wait_ns.min(timing.end_ns.saturating_sub(now_ns)))?;
            nap.learn(before - self.flight.in_flight());
        }
    }

    fn open(&mut self, rate: f64, timing: Timing) -> Result<(), String> {
        let mut arrivals = Arrivals::new(self.shared.clock.now_ns(), rate);
        loop {
            let now_ns = self.shared.clock.now_ns();
            self.sweep(now_ns);
            if self.is_over(&timing, now_ns) {
                return Ok(());
            }
            let due = arrivals.due(now_ns).min(BUNDLE_MAX).min(timing.left(self.tally.asked()));
            if due > 0 && self.flight.room() >= due {
                for arrival in 0..due {
                    self.tally.send_delay.saturating_record(now_ns.saturating_sub(arrivals.at(arrival)));
                }
                self.ask_some(due, now_ns, |arrival| arrivals.at(arrival));
            } else {
                // So many are unanswered that these cannot even be asked; to a client that is the same.
                self.tally.lost += due as u64;
                self.tally.unsent += due as u64;
            }
            arrivals.pass(due);
            let wait_ns = arrivals.at(0).saturating_sub(self.shared.clock.now_ns());
            let sleep_ns = if wait_ns > SPIN_NS_MAX { wait_ns - SPIN_NS_MAX / 2 } else { 0 };
            self.turn(sleep_ns.min(TURN_NS_MAX))?;
        }
    }

    /// Waits for the answers to what was asked before the run ended.
    fn drain(&mut self) -> Result<(), String> {
        let (began_ns, waiting) = (self.shared.clock.now_ns(), self.flight.in_flight());
        while self.flight.in_flight() > 0 {
            let now_ns = self.turn(TURN_NS_MAX)?;
            self.sweep(now_ns);
            let timeout_ns = self.rules.timeout_ns;
            let patience_ns = if self.is_cancelled() { timeout_ns.min(PARTING_NS_MAX) } else { timeout_ns };
            if now_ns - began_ns >= patience_ns {
                break;
            }
        }
        let is_silent = self.heard_ns < began_ns && waiting > 0;
        if is_silent && !self.is_cancelled() { self.ask_again() } else { Ok(()) }
    }

    /// Whether a tracker that left the last requests of a run unanswered is still there, or has died. Counts nothing.
    fn ask_again(&mut self) -> Result<(), String> {
        let mut tally = std::mem::replace(&mut self.tally, Tally::new());
        tally.lost += self.flight.in_flight() as u64;
        let (lines, heard_ns) = (self.lines.clone(), self.heard_ns);
        self.lines.iter_mut().for_each(|line| line.connection_id = None);
        self.renew_flight(lines.len());
        let some_deaf = self.connect().is_err();
        let all_deaf = some_deaf && self.lines.iter().all(|line| line.connection_id.is_none());
        (self.lines, self.tally, self.heard_ns) = (lines, tally, heard_ns);
        if all_deaf { Err(self.why_silent()) } else { Ok(()) }
    }

    fn is_over(&mut self, timing: &Timing, now_ns: u64) -> bool {
        let is_cancelled = self.is_cancelled();
        self.tally.ended_early |= is_cancelled;
        is_cancelled || now_ns >= timing.end_ns || timing.left(self.tally.asked()) == 0
    }

    fn is_cancelled(&self) -> bool {
        self.shared.cancel.load(Ordering::Relaxed)
    }

    /// Takes the replies that are there, or that come within `wait_ns`. Returns the time after that.
    fn turn(&mut self, wait_ns: u64) -> Result<u64, String> {
        let Self { io, flight, lines, tally, shared, rules, unheard, .. } = self;
        // The time is read when the replies are there: before they are judged, and after the wait.
        let clock = shared.clock;
        let live = &shared.lives[self.index];
        let mut judge = Judge { rules: *rules, clock, now_ns: 0, flight, lines, tally, unheard, live };
        let replies =
            io.turn(Duration::from_nanos(wait_ns), &mut judge).map_err(|error| self.explain(&error))?;
        let now_ns = clock.now_ns();
        if replies > 0 || self.flight.in_flight() == 0 {
            self.heard_ns = now_ns;
        } else if now_ns - self.heard_ns > SILENCE_NS_MAX.max(2 * self.rules.timeout_ns) {
            return Err(self.why_silent());
        }
        Ok(now_ns)
    }

    fn timeout(&self) -> Duration {
        Duration::from_nanos(self.rules.timeout_ns)
    }

    fn explain(&self, error: &io::Error) -> String {
        format!("the sockets to {} failed: {error}", self.server)
    }

    fn why_silent(&self) -> String {
        let (server, timeout) = (self.server, self.timeout());
        if self.refusals() > self.refusals_before {
            return format!("nobody listens at UDP {server}, or no way leads there: what is sent is refused");
        }
        let sockets = self.lines.len();
        let deaf = self.lines.iter().filter(|line| line.connection_id.is_none()).count();
        if deaf == 0 {
            let silence = Duration::from_nanos(self.shared.clock.now_ns() - self.heard_ns);
            return format!("UDP {server} fell silent: no reply for {:.1} s", silence.as_secs_f64());
        }
        if self.tally.late > 0 {
            return format!(
                "UDP {server} answers later than within {timeout:?}: give it more time (--timeout)"
            );
        }
        let Tally { errors, wrong, first_error, .. } = &self.tally;
        if *errors + wrong.total() > 0 {
            let first =
                first_error.as_ref().map(|words| format!(", the first: \"{words}\"")).unwrap_or_default();
            return format!(
                "UDP {server} does not answer connects as a tracker does: {deaf} of {sockets} sockets got no connection \
                 id, but {} wrong replies and {errors} errors{first}",
                wrong.total()
            );
        }
        format!(
            "UDP {server} does not answer within {timeout:?}: {deaf} of {sockets} sockets heard nothing. Is it a UDP \
             tracker, does a firewall drop the datagrams, or does it refuse the source addresses?",
        )
    }

    /// Gives up requests that have been on their way for too long, a part of them at a time.
    fn sweep(&mut self, now_ns: u64) {
        const PARTS: usize = 16;
        if now_ns < self.next_sweep_ns {
            return;
        }
        let timeout_ns = self.rules.timeout_ns;
        self.next_sweep_ns = now_ns + timeout_ns / (4 * PARTS as u64);
        let looks = (self.flight.in_flight() + self.flight.room()).div_ceil(PARTS);
        let Self { flight, tally, unheard, .. } = self;
        flight.give_up(now_ns.saturating_sub(timeout_ns), looks, |asked| {
            tally.lost += 1;
            note_unheard(unheard, &asked);
        });
        let done = self.tally.replies();
        self.shared.lives[self.index].show(
            self.tally.lost,
            self.tally.errors,
            self.tally.wrong.total(),
            done,
        );
    }
}
