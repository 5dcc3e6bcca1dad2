//! One thread of the generator: its sockets, its peers, and the loop that keeps requests on their way.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::io::Errno;
use shoal_net::{AnyIo, BUNDLE_MAX, Bundler, Counters, DatagramIo};

use super::Shared;
use super::check::{Judge, Line, Rules};
use super::flight::{Asked, Flight, IN_FLIGHT_MAX, Landed};
use super::pace::{Arrivals, Nap, Timing};
use super::press::{Press, Sheet};
use crate::clock::{nanoseconds, thread_cpu};
use crate::population::{Peers, Say};
use crate::tally::{Kind, Tally};
use crate::{Mix, Plan};

/// One thread of the generator.
pub(super) struct Worker {
    pub(super) io: AnyIo,
    pub(super) bundler: Bundler,
    pub(super) counters: Arc<Counters>,
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    pub(super) server: SocketAddr,
    pub(super) rules: Rules,
    pub(super) mix: Mix,
    pub(super) scrape_hashes_max: u8,
    pub(super) timeout: Duration,
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
    /// Peers whose announce did not get through while the tracker is filled; elsewhere `None`.
    pub(super) unheard: Option<Vec<u32>>,
}

/// What a worker is told to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Have every peer announce that it starts.
    Fill,
    /// As much as comes back, with a window of so many requests.
    Closed { window: usize, timing: Timing },
    /// So many requests a second.
    Open { rate: f64, timing: Timing },
}

/// The window while the tracker is filled: the least receive buffer in use holds so many.
const FILL_WINDOW: usize = 192;

/// A fill that lost so many times the number of its peers is given up.
const FILL_LOSSES_MAX: usize = 3;

/// Requests of one bundle in a closed loop. It waits for room for so many, because bundles save most of its time.
const BURST: usize = 32;

/// Longest wait for replies before the loop looks at the time again.
const TURN_NS_MAX: u64 = 10_000_000;

/// A tracker that says nothing at all for so long, while requests are on their way, is taken for dead.
const SILENCE_NS_MAX: u64 = 3_000_000_000;

/// A connection id may be used for a minute (BEP 15, "connect"); it is renewed before that.
const CONNECTION_NS_MAX: u64 = 50_000_000_000;

/// Below this time the loop does not go to sleep before the next arrival, because waking up takes as long.
const SPIN_NS_MAX: u64 = 200_000;

impl Worker {
    /// Carries out an order and returns what it counted.
    pub(super) fn carry_out(&mut self, order: Order) -> Tally {
        self.tally = Tally::new();
        let slots = match order {
            Order::Fill => FILL_WINDOW,
            Order::Closed { window, .. } => window,
            // Room for all that can be unanswered at once, and some more.
            Order::Open { rate, .. } => {
                Arrivals::within(rate, self.timeout).saturating_mul(2).clamp(1024, IN_FLIGHT_MAX)
            }
        };
        self.flight = Flight::new(slots);
        let (began_ns, cpu) = (self.shared.clock.now_ns(), thread_cpu());
        self.heard_ns = began_ns;
        self.unheard = matches!(order, Order::Fill).then(Vec::new);
        let outcome = match order {
            Order::Fill => self.fill(),
            Order::Closed { timing, .. } => self.closed(timing),
            Order::Open { rate, timing } => self.open(rate, timing),
        };
        self.tally.elapsed = Duration::from_nanos(self.shared.clock.now_ns() - began_ns);
        self.tally.cpu = thread_cpu() - cpu;
        self.tally.responses_in_time = self.tally.responses.total();
        if let Err(failure) = outcome.and_then(|()| self.drain()) {
            self.tally.failure = Some(failure);
            self.tally.ended_early = true;
        }
        self.tally.lost += self.flight.in_flight() as u64;
        std::mem::replace(&mut self.tally, Tally::new())
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
        let deaf = self.lines.iter().filter(|line| line.connection_id.is_none()).count();
        if deaf > 0 { Err(self.why_silent(deaf)) } else { Ok(()) }
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
            while self.flight.room() >= burst {
                let count = self.flight.room().min(BUNDLE_MAX).min(timing.left(self.tally.requests.total()));
                if count == 0 {
                    break;
                }
                self.ask_some(count, now_ns, |_| now_ns);
            }
            if self.flight.room() < burst {
                nap.take();
            }
            let before = self.flight.in_flight();
            self.turn(TURN_NS_MAX.min(timing.end_ns.saturating_sub(now_ns)))?;
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
            let due = arrivals.due(now_ns).min(BUNDLE_MAX).min(timing.left(self.tally.requests.total()));
            if due > 0 && self.flight.room() >= due {
                for arrival in 0..due {
                    self.tally.send_delay.saturating_record(now_ns - arrivals.at(arrival));
                }
                self.ask_some(due, now_ns, |arrival| arrivals.at(arrival));
            } else {
                // So many are unanswered that these cannot even be asked; to a client that is the same.
                self.tally.lost += due as u64;
            }
            arrivals.pass(due);
            let wait_ns = arrivals.at(0).saturating_sub(self.shared.clock.now_ns());
            let sleep_ns = if wait_ns > SPIN_NS_MAX { wait_ns - SPIN_NS_MAX / 2 } else { 0 };
            self.turn(sleep_ns.min(TURN_NS_MAX))?;
        }
    }

    /// Waits for the answers to what was asked before the run ended.
    fn drain(&mut self) -> Result<(), String> {
        let end_ns = self.shared.clock.now_ns().saturating_add(nanoseconds(self.timeout));
        while self.flight.in_flight() > 0 && !self.is_cancelled() {
            let now_ns = self.turn(TURN_NS_MAX)?;
            self.sweep(now_ns);
            if now_ns >= end_ns {
                break;
            }
        }
        Ok(())
    }

    fn is_over(&mut self, timing: &Timing, now_ns: u64) -> bool {
        let is_cancelled = self.is_cancelled();
        self.tally.ended_early |= is_cancelled;
        is_cancelled || now_ns >= timing.end_ns || timing.left(self.tally.requests.total()) == 0
    }

    fn is_cancelled(&self) -> bool {
        self.shared.cancel.load(Ordering::Relaxed)
    }

    /// Asks `count` times, by the weights of the mix, through the next socket in turn.
    fn ask_some(&mut self, count: usize, now_ns: u64, due_ns: impl Fn(usize) -> u64) {
        let socket = self.next_socket;
        self.next_socket = (socket + 1) % self.lines.len();
        self.keep_connected(socket, now_ns);
        let hashes = self.random.random_range(1..=self.scrape_hashes_max);
        self.press.size_scrapes(usize::from(hashes));
        let Mix { connect, announce, scrape } = self.mix;
        for index in 0..count.min(self.flight.room()) {
            let due_ns = due_ns(index);
            let drawn = self.random.random_range(0..connect + announce + scrape);
            if drawn < connect {
                self.ask_connect(socket, due_ns);
            } else {
                let peer = self.peers.any(socket);
                if drawn < connect + announce {
                    let say = self.peers.next(peer);
                    self.ask_announce(socket, due_ns, &say);
                } else {
                    self.ask_scrape(socket, due_ns, peer, hashes);
                }
            }
        }
        self.flush(socket);
    }

    /// Renews the connection id of a socket in time.
    fn keep_connected(&mut self, socket: usize, now_ns: u64) {
        let line = &mut self.lines[socket];
        if now_ns.saturating_sub(line.connected_ns) > CONNECTION_NS_MAX && self.flight.room() > 0 {
            // Asked again after a while, should the answer be lost.
            line.connected_ns += CONNECTION_NS_MAX / 8;
            self.ask_connect(socket, now_ns);
        }
    }

    fn ask_connect(&mut self, socket: usize, due_ns: u64) {
        let asked = Asked { due_ns, peer: 0, port: 0, socket: small(socket), hashes: 0, kind: Kind::Connect };
        if let Some(transaction_id) = self.flight.launch(asked) {
            self.press.connect(transaction_id);
        }
    }

    fn ask_announce(&mut self, socket: usize, due_ns: u64, say: &Say) {
        let Some(id) = self.lines[socket].connection_id else { return };
        let (peer, port) = (say.peer, say.port);
        let asked = Asked { due_ns, peer, port, socket: small(socket), hashes: 0, kind: Kind::Announce };
        if let Some(transaction_id) = self.flight.launch(asked) {
            self.press.announce(id, transaction_id, say);
        }
    }

    fn ask_scrape(&mut self, socket: usize, due_ns: u64, peer: u32, hashes: u8) {
        let Some(id) = self.lines[socket].connection_id else { return };
        let asked = Asked { due_ns, peer, port: 0, socket: small(socket), hashes, kind: Kind::Scrape };
        let Some(transaction_id) = self.flight.launch(asked) else { return };
        let Self { press, peers, .. } = self;
        press.scrape(id, transaction_id, || {
            let peer = peers.any(socket);
            peers.torrent(peer)
        });
    }

    /// Sends what is on the sheets.
    fn flush(&mut self, socket: usize) {
        let Self { bundler, press, flight, tally, unheard, .. } = self;
        let requests = &mut tally.requests;
        let sheets = [
            (&mut press.connects, &mut requests.connect),
            (&mut press.announces, &mut requests.announce),
            (&mut press.scrapes, &mut requests.scrape),
        ];
        for (sheet, count) in sheets {
            let sent = send(bundler, socket, sheet);
            *count += sent as u64;
            for transaction_id in sheet.transactions(sent) {
                tally.send_failures += 1;
                if let Landed::Known(asked) = flight.land(transaction_id) {
                    note_unheard(unheard, &asked);
                }
            }
            sheet.clear();
        }
    }

    /// Takes the replies that are there, or that come within `wait_ns`. Returns the time after that.
    fn turn(&mut self, wait_ns: u64) -> Result<u64, String> {
        let Self { io, flight, lines, tally, shared, rules, .. } = self;
        // The time is read when the replies are there: before they are judged, and after the wait.
        let clock = shared.clock;
        let mut judge =
            Judge { rules: *rules, clock, now_ns: 0, flight, lines, tally, live: &shared.lives[self.index] };
        let replies =
            io.turn(Duration::from_nanos(wait_ns), &mut judge).map_err(|error| self.explain(&error))?;
        let now_ns = clock.now_ns();
        if replies > 0 || self.flight.in_flight() == 0 {
            self.heard_ns = now_ns;
        } else if now_ns - self.heard_ns > SILENCE_NS_MAX.max(2 * nanoseconds(self.timeout)) {
            return Err(self.why_silent(self.lines.len()));
        }
        Ok(now_ns)
    }

    fn explain(&self, error: &io::Error) -> String {
        format!("the sockets to {} failed: {error}", self.server)
    }

    fn why_silent(&self, sockets: usize) -> String {
        let server = self.server;
        if self.counters.v4.receive_failed.read() + self.counters.v6.receive_failed.read() > 0 {
            return format!("nobody listens at UDP {server}: its host refuses what is sent there");
        }
        format!(
            "UDP {server} does not answer: {sockets} of {} sockets heard nothing. Is it a UDP tracker, does a firewall \
             drop the datagrams, or does it refuse the source addresses?",
            self.lines.len()
        )
    }

    /// Gives up requests that have been on their way for too long, a part of them at a time.
    fn sweep(&mut self, now_ns: u64) {
        const PARTS: usize = 16;
        if now_ns < self.next_sweep_ns {
            return;
        }
        let timeout_ns = nanoseconds(self.timeout);
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

/// Has an announce repeated that did not get through.
fn note_unheard(unheard: &mut Option<Vec<u32>>, asked: &Asked) {
    if let (Some(unheard), Kind::Announce) = (unheard, asked.kind) {
        unheard.push(asked.peer);
    }
}

/// Sends the datagrams of a sheet, and returns how many the kernel took.
fn send(bundler: &mut Bundler, socket: usize, sheet: &Sheet) -> usize {
    let (bundle, datagram_bytes) = sheet.bundle();
    let (mut sent, mut refusals) = (0, 0);
    while sent < sheet.len() {
        match bundler.send(socket, None, &bundle[sent * datagram_bytes..], datagram_bytes) {
            Ok(count) => sent += count,
            // The error of an earlier datagram, which this one did not cause.
            Err(Errno::CONNREFUSED | Errno::INTR) if refusals < 3 => refusals += 1,
            Err(_) => break,
        }
    }
    sent
}

fn small(socket: usize) -> u8 {
    u8::try_from(socket).expect("a worker has at most SOCKETS_MAX sockets")
}

impl Worker {
    /// Makes the random numbers of worker `index`, other ones than those of its peers.
    pub(super) fn random(plan: &Plan, index: usize) -> SmallRng {
        SmallRng::seed_from_u64(plan.seed ^ 0x6c6f_6164 ^ (index as u64) << 32)
    }
}
