//! One thread of the generator: its connections, its peers, and the loops that keep requests on their way.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::SmallRng;

use super::Reuse;
use super::check::Asked;
use super::form::Forms;
use crate::Mix;
use crate::clock::Effort;
use crate::connection::{Connection, Fault, Stage};
use crate::crew::{Hand, OpenError, Order, Shared};
use crate::pace::{Arrivals, Nap, Timing};
use crate::poll::{Happening, Poll};
use crate::population::Peers;
use crate::rules::Rules;
use crate::silence::why_silent;
use crate::tally::{ConnectionTally, Tally};
use crate::tls::Client;

/// One thread of the generator.
///
/// A slot, that is a place in `connections`, stands in `idle` where it has room for requests, in `resting` where it
/// has failed just now, and in neither where it waits for a reply or its end.
pub(super) struct Worker {
    pub(super) poll: Poll,
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    pub(super) server: SocketAddr,
    pub(super) tls: Option<Client>,
    pub(super) rules: Rules,
    pub(super) mix: Mix,
    pub(super) scrape_hashes_max: u8,
    pub(super) peers: Peers,
    pub(super) forms: Forms,
    pub(super) connections: Vec<Connection<Asked>>,
    pub(super) reuse: Reuse,
    /// Whether the tracker is being filled, for which connections are kept.
    pub(super) is_filling: bool,
    /// Most requests under way on a connection.
    pub(super) depth: usize,
    pub(super) reset: bool,
    pub(super) idle: VecDeque<usize>,
    /// Until when, in order.
    pub(super) resting: VecDeque<(u64, usize)>,
    /// Requests under way on all connections.
    pub(super) in_flight: usize,
    /// From which address the next connection is, where each is from another.
    pub(super) next_line: usize,
    /// The addresses to ask from.
    pub(super) locals: Vec<SocketAddr>,
    /// Where a request is written.
    pub(super) request: Vec<u8>,
    /// Where bytes arrive.
    pub(super) room: Box<[u8]>,
    /// Where chunks are put together.
    pub(super) chunks: Vec<u8>,
    pub(super) tally: Tally,
    pub(super) random: SmallRng,
    pub(super) next_sweep_ns: u64,
    /// When the last reply came, of any kind.
    pub(super) heard_ns: u64,
    /// Whether a connection has failed since then.
    pub(super) is_troubled: bool,
    /// Peers whose announce did not get through while the tracker is filled; elsewhere `None`.
    pub(super) unheard: Option<Vec<u32>>,
}

/// What a TLS record takes at most, and some more.
pub(super) const ROOM_BYTES: usize = 20 * 1024;

/// A fill that lost so many times the number of its peers is given up.
const FILL_LOSSES_MAX: usize = 3;

/// Requests in flight while the tracker is filled.
const FILL_WINDOW: usize = 64;

/// A window of fewer requests is looked after without naps.
const NAP_WINDOW_MIN: usize = 16;

/// Longest wait for replies before the loop looks at the time again.
const TURN_NS_MAX: u64 = 10_000_000;

/// A tracker that says nothing at all for so long, while requests are on their way, is taken for dead.
const SILENCE_NS_MAX: u64 = 3_000_000_000;

/// The same where it refuses all connections.
const REFUSALS_NS_MAX: u64 = 1_000_000_000;

/// Longest wait for the last replies once the user has asked for an end.
const PARTING_NS_MAX: u64 = 1_000_000_000;

/// How long a slot rests whose connection could not be opened.
const REST_NS: u64 = 10_000_000;

/// Below this time the loop does not go to sleep before the next arrival, because the kernel rounds it up.
const SPIN_NS_MAX: u64 = 1_200_000;

impl Hand for Worker {
    fn get_ready(&mut self) -> Result<(), OpenError> {
        self.tally.connections = Some(ConnectionTally::new());
        let began_ns = self.shared.clock.now_ns();
        // What goes wrong is counted by whoever fails the connection.
        let mut outcome = self.dial(0, began_ns);
        while outcome.is_ok() && self.connections[0].stage != Stage::Open && !self.is_cancelled() {
            let now_ns = self.shared.clock.now_ns();
            if now_ns - began_ns > self.rules.timeout_ns {
                self.fail(0, &Fault::Timeout, now_ns);
            }
            self.look(TURN_NS_MAX).map_err(OpenError::Unreachable)?;
            if self.connections[0].stage == Stage::Closed {
                outcome = Err(Fault::Closed);
            }
        }
        match outcome {
            Ok(()) => Ok(()),
            Err(_) => Err(OpenError::Unreachable(self.why_silent())),
        }
    }

    fn carry_out(&mut self, order: Order) -> Tally {
        self.begin(matches!(order, Order::Fill));
        let (began_ns, effort) = (self.shared.clock.now_ns(), Effort::of_thread());
        (self.heard_ns, self.is_troubled) = (began_ns, false);
        let outcome = match order {
            // Connections are opened when they are needed.
            Order::Stand => Ok(()),
            Order::Fill => self.fill(),
            Order::Closed { window, timing } => self.closed(window, timing),
            Order::Open { rate, timing } => self.open(rate, timing),
        };
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
        self.end();
        std::mem::replace(&mut self.tally, Tally::new())
    }
}

impl Worker {
    /// Begins a run: every slot may be asked, on the connection that it has or on a new one.
    fn begin(&mut self, is_filling: bool) {
        self.tally = Tally::new();
        self.tally.connections = Some(ConnectionTally::new());
        self.is_filling = is_filling;
        self.unheard = is_filling.then(Vec::new);
        self.idle.clear();
        self.resting.clear();
        // A fill needs no more than carry it, and from each address one.
        let needed = if is_filling { FILL_WINDOW.max(self.locals.len()) } else { usize::MAX };
        for (slot, connection) in self.connections.iter_mut().enumerate() {
            if self.reuse == Reuse::Held {
                connection.close(self.reset);
            }
            connection.is_queued = slot < needed;
            if slot < needed {
                self.idle.push_back(slot);
            }
        }
    }

    /// Ends a run: what is still on its way is given up, and nobody shall take its reply for another's.
    fn end(&mut self) {
        let (is_cancelled, now_ns) = (self.is_cancelled(), self.shared.clock.now_ns());
        let mut open = 0;
        for slot in 0..self.connections.len() {
            let connection = &mut self.connections[slot];
            match (connection.stage, connection.asked.is_empty()) {
                (Stage::Closed, _) => {}
                (Stage::Open, true) => open += 1,
                (_, false) if !is_cancelled => self.fail(slot, &Fault::Timeout, now_ns),
                _ => connection.close(self.reset),
            }
        }
        self.in_flight = 0;
        self.counts().open_at_end = open;
    }

    pub(super) fn counts(&mut self) -> &mut ConnectionTally {
        self.tally.connections.get_or_insert_with(ConnectionTally::new)
    }

    fn fill(&mut self) -> Result<(), String> {
        let lines = self.locals.len();
        let mut next: Vec<usize> = (0..lines).collect();
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
            while self.in_flight < FILL_WINDOW
                && let Some(slot) = self.idle.pop_front()
            {
                self.connections[slot].is_queued = false;
                let Some(peer) = self.next_unheard(slot, &mut next) else {
                    self.offer(slot);
                    break;
                };
                let say = self.peers.start(peer);
                if !self.ask_say(slot, &say, now_ns)
                    && let Some(unheard) = &mut self.unheard
                {
                    unheard.push(peer);
                }
            }
            let all_asked = next.iter().all(|next| *next >= self.peers.len());
            let all_heard = self.unheard.as_ref().is_none_or(Vec::is_empty);
            if all_asked && all_heard && self.in_flight == 0 {
                return Ok(());
            }
            self.turn(TURN_NS_MAX)?;
        }
    }

    /// A peer that the tracker has not heard of: one that lives where the connection of this slot is from, if there is
    /// one left.
    fn next_unheard(&mut self, slot: usize, next: &mut [usize]) -> Option<u32> {
        let (lines, count, line) = (next.len(), self.peers.len(), self.connections[slot].line);
        if let Some(peer) = self.unheard.as_mut().and_then(Vec::pop) {
            return Some(peer);
        }
        let line = if next[line] < count { line } else { next.iter().position(|next| *next < count)? };
        let peer = u32::try_from(next[line]).ok();
        next[line] += lines;
        peer
    }

    fn closed(&mut self, window: usize, timing: Timing) -> Result<(), String> {
        let window = window.min(self.connections.len() * self.depth);
        let mut nap = (window >= NAP_WINDOW_MIN).then(|| Nap::new(window));
        loop {
            let now_ns = self.shared.clock.now_ns();
            self.sweep(now_ns);
            if self.is_over(&timing, now_ns) {
                return Ok(());
            }
            while self.in_flight < window && timing.left(self.tally.asked()) > 0 {
                let Some(slot) = self.idle.pop_front() else { break };
                self.connections[slot].is_queued = false;
                let count = (window - self.in_flight).min(timing.left(self.tally.asked()));
                // To open a connection takes long enough for the next one to be late.
                let now_ns = self.shared.clock.now_ns();
                self.ask_some(slot, count, now_ns, |_| now_ns);
                self.offer(slot);
            }
            if let Some(nap) = &nap
                && self.in_flight >= window / 2
            {
                nap.take();
            }
            let seen = self.turn(TURN_NS_MAX.min(timing.end_ns.saturating_sub(now_ns)))?;
            if let Some(nap) = &mut nap {
                nap.learn(seen);
            }
        }
    }

    fn open(&mut self, rate: f64, timing: Timing) -> Result<(), String> {
        let mut arrivals = Arrivals::new(self.shared.clock.now_ns(), rate);
        // When requests last had to wait for a connection, which is the tracker's doing.
        let mut short_ns = 0;
        loop {
            let now_ns = self.shared.clock.now_ns();
            self.sweep(now_ns);
            if self.is_over(&timing, now_ns) {
                return Ok(());
            }
            let mut due = arrivals.due(now_ns).min(timing.left(self.tally.asked()));
            while due > 0
                && let Some(slot) = self.idle.pop_front()
            {
                self.connections[slot].is_queued = false;
                let now_ns = self.shared.clock.now_ns();
                let asked = self.ask_some(slot, 1, now_ns, |arrival| arrivals.at(arrival));
                self.offer(slot);
                if asked > 0 && arrivals.at(0) >= short_ns {
                    self.tally.send_delay.saturating_record(now_ns.saturating_sub(arrivals.at(0)));
                }
                arrivals.pass(asked);
                due -= asked;
            }
            if due > 0 {
                short_ns = now_ns;
            }
            // What had to wait for too long is not even sent; to a client that is the same.
            while due > 0 && now_ns.saturating_sub(arrivals.at(0)) > self.rules.timeout_ns {
                self.tally.lost += 1;
                self.tally.unsent += 1;
                arrivals.pass(1);
                due -= 1;
            }
            let wait_ns =
                if due > 0 { TURN_NS_MAX } else { arrivals.at(0).saturating_sub(self.shared.clock.now_ns()) };
            self.turn(wait_ns.saturating_sub(SPIN_NS_MAX).min(TURN_NS_MAX))?;
        }
    }

    /// Waits for the answers to what was asked before the run ended.
    fn drain(&mut self) -> Result<(), String> {
        let (began_ns, waiting) = (self.shared.clock.now_ns(), self.in_flight);
        while self.in_flight > 0 {
            self.turn(TURN_NS_MAX)?;
            let now_ns = self.shared.clock.now_ns();
            self.sweep(now_ns);
            let timeout_ns = self.rules.timeout_ns;
            let patience_ns = if self.is_cancelled() { timeout_ns.min(PARTING_NS_MAX) } else { timeout_ns };
            if now_ns - began_ns >= patience_ns {
                break;
            }
        }
        let is_silent = self.heard_ns < began_ns && waiting > 0 && self.tally.replies() > 0;
        if is_silent && !self.is_cancelled() { self.ask_again() } else { Ok(()) }
    }

    /// Whether a tracker that left the last requests of a run unanswered can still be spoken to, or has died. Counts
    /// nothing.
    fn ask_again(&mut self) -> Result<(), String> {
        if !self.connections[0].asked.is_empty() {
            // The question takes the place of a connection, whose requests are lost all the same.
            self.fail(0, &Fault::Timeout, self.shared.clock.now_ns());
        }
        let (in_flight, heard_ns) = (self.in_flight, self.heard_ns);
        let tally = std::mem::replace(&mut self.tally, Tally::new());
        self.connections[0].close(self.reset);
        let outcome = self.get_ready();
        (self.tally, self.in_flight, self.heard_ns) = (tally, in_flight, heard_ns);
        outcome.map_err(|error| error.to_string())
    }

    fn is_over(&mut self, timing: &Timing, now_ns: u64) -> bool {
        let is_cancelled = self.is_cancelled();
        self.tally.ended_early |= is_cancelled;
        let has_asked_all = timing.left(self.tally.asked()) == 0;
        // Whoever holds connections asks once on each, and then waits for the time to be up.
        is_cancelled || now_ns >= timing.end_ns || has_asked_all && self.reuse != Reuse::Held
    }

    fn is_cancelled(&self) -> bool {
        self.shared.cancel.load(Ordering::Relaxed)
    }

    /// Sees to what has happened, or what happens within `wait_ns`. Returns how many connections it was about.
    fn turn(&mut self, wait_ns: u64) -> Result<usize, String> {
        let seen = self.look(wait_ns)?;
        let now_ns = self.shared.clock.now_ns();
        while let Some(&(until_ns, slot)) = self.resting.front()
            && until_ns <= now_ns
        {
            self.resting.pop_front();
            self.connections[slot].is_queued = false;
            self.offer(slot);
        }
        if self.in_flight == 0 && !self.is_troubled {
            self.heard_ns = now_ns;
        }
        let silence_ns = now_ns - self.heard_ns;
        let patience_ns =
            if self.in_flight == 0 { REFUSALS_NS_MAX } else { SILENCE_NS_MAX.max(2 * self.rules.timeout_ns) };
        if silence_ns > patience_ns { Err(self.why_silent()) } else { Ok(seen) }
    }

    /// Takes the events that are there, or that come within `wait_ns`.
    fn look(&mut self, wait_ns: u64) -> Result<usize, String> {
        let seen = self.poll.wait(wait_ns);
        let seen = seen.map_err(|errno| format!("cannot wait for {}: {errno}", self.server))?;
        // The time is read when the replies are there: before they are judged, and after the wait.
        let now_ns = self.shared.clock.now_ns();
        for index in 0..seen {
            if let Some(happening) = self.poll.happening(index) {
                self.take_event(happening, now_ns);
            }
        }
        Ok(seen)
    }

    fn take_event(&mut self, happening: Happening, now_ns: u64) {
        let Happening { slot, generation, flags } = happening;
        let is_of = |connection: &Connection<Asked>| connection.generation == generation;
        if self.connections.get(slot).is_some_and(is_of)
            && let Err(fault) = self.go_on(slot, flags, now_ns)
        {
            self.fail(slot, &fault, now_ns);
        }
    }

    fn why_silent(&self) -> String {
        let scheme = if self.tls.is_some() { "HTTPS" } else { "HTTP" };
        let silence = Duration::from_nanos(self.shared.clock.now_ns() - self.heard_ns);
        why_silent(scheme, self.server, &self.tally, silence, Duration::from_nanos(self.rules.timeout_ns))
    }

    /// Gives up what has been on its way for too long.
    fn sweep(&mut self, now_ns: u64) {
        const PARTS: u64 = 16;
        if now_ns < self.next_sweep_ns {
            return;
        }
        let timeout_ns = self.rules.timeout_ns;
        self.next_sweep_ns = now_ns + timeout_ns / PARTS;
        for slot in 0..self.connections.len() {
            let connection = &self.connections[slot];
            let since_ns = match (connection.stage, connection.asked.front()) {
                (Stage::Closed, _) | (Stage::Open, None) => continue,
                (Stage::Parting | Stage::Connecting | Stage::Handshaking, _) => connection.since_ns,
                (Stage::Open, Some(asked)) => asked.asked_ns,
            };
            if now_ns.saturating_sub(since_ns) > timeout_ns {
                self.fail(slot, &Fault::Timeout, now_ns);
            }
        }
        let done = self.tally.replies();
        self.shared.lives[self.index].show(
            self.tally.lost,
            self.tally.errors,
            self.tally.wrong.total(),
            done,
        );
    }

    /// Queues a slot that has room for requests; one on which a few are under way only once these are fewer than half of
    /// what it can carry, so that requests leave together.
    pub(super) fn offer(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        let under_way = connection.asked.len();
        let has_room = match connection.stage {
            Stage::Parting => false,
            Stage::Closed => true,
            _ => under_way == 0 || under_way < self.depth && under_way <= self.depth / 2,
        };
        let is_spent = self.reuse == Reuse::Held && !self.is_filling && connection.generation > 0;
        if has_room && !connection.is_queued && !is_spent {
            connection.is_queued = true;
            self.idle.push_back(slot);
        }
    }

    /// Lets a slot rest before it is asked again.
    pub(super) fn rest(&mut self, slot: usize, now_ns: u64) {
        if !self.connections[slot].is_queued {
            self.connections[slot].is_queued = true;
            self.resting.push_back((now_ns + REST_NS, slot));
        }
    }
}
