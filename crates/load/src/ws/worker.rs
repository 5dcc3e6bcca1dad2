//! One thread of the generator: its connections, its peers, and the loops that keep requests on their way.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;
use shoal_wire::websocket::handshake;

use super::Settings;
use super::pen::Pen;
use super::seat::{Role, Seat};
use crate::clock::Effort;
use crate::connection::{Fault, Stage};
use crate::crew::{Hand, OpenError, Order, Shared};
use crate::pace::{Arrivals, Timing};
use crate::poll::{Happening, Poll};
use crate::population::Peers;
use crate::rules::Rules;
use crate::silence::why_silent;
use crate::tally::{ConnectionTally, RelayTally, Tally};
use crate::tls::Client;
use crate::{Mix, Plan};

/// One thread of the generator.
///
/// A slot, that is a place in `seats`, stands in `idle` where its connection can ask, in `waiting` where it is to be
/// dialled, in `resting` where it has failed just now, and in none where it waits for a reply or has nothing to do.
pub(super) struct Worker {
    pub(super) poll: Poll,
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    pub(super) server: SocketAddr,
    pub(super) tls: Option<Client>,
    pub(super) rules: Rules,
    pub(super) mix: Mix,
    pub(super) scrape_hashes_max: u8,
    pub(super) offers: usize,
    pub(super) answer_share: f64,
    pub(super) held_announce: bool,
    pub(super) peers: Peers,
    pub(super) pen: Pen,
    /// The request for a WebSocket, and the key in it.
    pub(super) upgrade: Vec<u8>,
    pub(super) key: String,
    /// First the traders, then who is held, then who is deaf.
    pub(super) seats: Vec<Seat>,
    /// How many traders there are.
    pub(super) traders: usize,
    pub(super) idle: VecDeque<usize>,
    pub(super) waiting: VecDeque<usize>,
    /// Until when, in order.
    pub(super) resting: VecDeque<(u64, usize)>,
    /// Connections that were dialled and are no WebSockets yet.
    pub(super) shaking: usize,
    pub(super) shaking_max: usize,
    /// How fast connections are opened, where they are not all at once.
    ramp_rate: Option<f64>,
    pub(super) ramp: Option<Arrivals>,
    /// Whether connections are opened, and nothing else yet.
    pub(super) is_standing: bool,
    /// What became of the connections then, if nobody has asked for it yet.
    stood: Option<ConnectionTally>,
    /// Whether the tracker was seen to reply to answers.
    pub(super) replies_to_answers: bool,
    /// Requests under way on all connections.
    pub(super) in_flight: usize,
    /// The addresses to ask from.
    pub(super) locals: Vec<SocketAddr>,
    /// Where bytes arrive.
    pub(super) room: Box<[u8]>,
    /// Buffers that no connection needs just now.
    pub(super) spares: Vec<Vec<u8>>,
    pub(super) tally: Tally,
    pub(super) random: SmallRng,
    next_sweep_ns: u64,
    /// When the last message came.
    pub(super) heard_ns: u64,
    /// Whether a connection has failed since then.
    pub(super) is_troubled: bool,
}

/// Many messages at once, and several TLS records.
const ROOM_BYTES: usize = 64 * 1024;

/// Handshakes under way at once: enough to keep a tracker busy, and far from what its queue of new connections holds.
const SHAKING_MAX: usize = 64;

/// Longest wait for messages before the loop looks at the time again.
pub(super) const TURN_NS_MAX: u64 = 10_000_000;

/// A tracker that says nothing at all for so long, while requests are on their way, is taken for dead.
const SILENCE_NS_MAX: u64 = 3_000_000_000;

/// The same where it refuses all connections.
const REFUSALS_NS_MAX: u64 = 1_000_000_000;

impl Hand for Worker {
    fn get_ready(&mut self) -> Result<(), OpenError> {
        self.tally.connections = Some(ConnectionTally::new());
        let began_ns = self.shared.clock.now_ns();
        self.dial(0, began_ns);
        while !self.seats[0].is_upgraded && !self.is_cancelled() {
            if self.seats[0].connection.stage == Stage::Closed {
                return Err(OpenError::Unreachable(self.why_silent()));
            }
            let now_ns = self.shared.clock.now_ns();
            if now_ns - began_ns > self.rules.timeout_ns {
                self.fail(0, &Fault::Timeout, now_ns);
            }
            self.look(TURN_NS_MAX).map_err(OpenError::Unreachable)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, order: Order) -> Tally {
        self.begin(order);
        let (began_ns, effort) = (self.shared.clock.now_ns(), Effort::of_thread());
        (self.heard_ns, self.is_troubled) = (began_ns, false);
        let outcome = match order {
            Order::Stand => self.stand(),
            Order::Fill => self.fill(),
            Order::Closed { window, timing } => self.closed(window, timing),
            Order::Open { rate, timing } => self.open(rate, timing),
        };
        self.tally.take_stock(began_ns, self.shared.clock.now_ns(), effort);
        let outcome = outcome.and_then(|()| self.drain(order));
        if outcome.is_err() || order.has_asked_all(&self.tally) {
            // A tracker that died is measured up to its last message; and so is one that had to answer a number of
            // requests, which may be on their way all at once.
            self.tally.take_stock(began_ns, self.heard_ns, effort);
        }
        if let Err(failure) = outcome {
            self.tally.failure = Some(failure);
            self.tally.ended_early = true;
        }
        self.end(order);
        std::mem::replace(&mut self.tally, Tally::new())
    }
}

impl Worker {
    pub(super) fn new(
        plan: &Plan,
        settings: &Settings,
        shared: Arc<Shared>,
        index: usize,
        locals: Vec<SocketAddr>,
        tls: Option<Client>,
    ) -> Result<Self, OpenError> {
        let workers = plan.workers.len();
        let share = |all: usize| all / workers + usize::from(index < all % workers);
        let traders = share(settings.connections.get());
        let roles =
            [(Role::Trader, traders), (Role::Held, share(settings.held)), (Role::Deaf, share(settings.deaf))];
        let roles = roles.into_iter().flat_map(|(role, count)| std::iter::repeat_n(role, count));
        let seats: Vec<_> =
            roles.enumerate().map(|(slot, role)| Seat::vacant(role, slot % locals.len())).collect();
        let mut random = plan.random(index);
        let key = handshake::key(random.random());
        let mut upgrade = Vec::new();
        handshake::ask(&settings.path, &settings.host, &key, settings.origin.as_deref(), &mut upgrade);
        #[expect(clippy::cast_precision_loss, reason = "there are a few workers")]
        let ramp_rate = settings.ramp.map(|rate| rate / workers as f64);
        let peers_seed = plan.seed.wrapping_add(index as u64);
        Ok(Self {
            poll: Poll::open()?,
            shared,
            index,
            server: plan.target,
            tls,
            rules: Rules::of(plan),
            mix: plan.mix,
            scrape_hashes_max: u8::try_from(plan.scrape_hashes_max).expect("the plan was checked"),
            offers: settings.offers,
            answer_share: settings.answer_share,
            held_announce: settings.held_announce,
            peers: Peers::new(&plan.population, plan.peers_of(index), traders, peers_seed),
            pen: Pen::new(settings, plan.seed, index, plan.numwant),
            upgrade,
            key,
            idle: VecDeque::with_capacity(seats.len()),
            waiting: VecDeque::with_capacity(seats.len()),
            resting: VecDeque::with_capacity(seats.len()),
            seats,
            traders,
            shaking: 0,
            shaking_max: SHAKING_MAX,
            ramp_rate,
            ramp: None,
            is_standing: false,
            stood: None,
            replies_to_answers: false,
            in_flight: 0,
            locals,
            room: vec![0; ROOM_BYTES].into(),
            spares: Vec::new(),
            tally: Tally::new(),
            random,
            next_sweep_ns: 0,
            heard_ns: 0,
            is_troubled: false,
        })
    }

    /// Begins a run: every connection that is there may ask, and what is not is dialled.
    fn begin(&mut self, order: Order) {
        self.tally = Tally::new();
        self.tally.connections = Some(self.stood.take().unwrap_or_else(ConnectionTally::new));
        self.tally.relays = Some(RelayTally::new());
        self.is_standing = matches!(order, Order::Stand);
        let now_ns = self.shared.clock.now_ns();
        self.ramp = self.ramp_rate.filter(|_| self.is_standing).map(|rate| Arrivals::new(now_ns, rate));
        self.idle.clear();
        self.waiting.clear();
        self.resting.clear();
        for slot in 0..self.seats.len() {
            let seat = &mut self.seats[slot];
            seat.filled = 0;
            seat.connection.is_queued = false;
            let is_needed = seat.role == Role::Trader || self.is_standing;
            if is_needed && seat.connection.stage == Stage::Closed {
                seat.connection.is_queued = true;
                self.waiting.push_back(slot);
            } else {
                self.offer(slot);
            }
        }
    }

    /// Ends a run: what is still on its way is given up, and nobody shall take its reply for another's.
    fn end(&mut self, order: Order) {
        let (is_cancelled, now_ns) = (self.is_cancelled(), self.shared.clock.now_ns());
        for slot in 0..self.seats.len() {
            let seat = &mut self.seats[slot];
            let is_half_done = seat.connection.stage != Stage::Closed && !seat.is_upgraded;
            if !seat.connection.asked.is_empty() || is_half_done {
                if is_cancelled {
                    self.in_flight -= seat.connection.asked.len();
                    seat.connection.asked.clear();
                    self.close_for_good(slot);
                } else {
                    self.fail(slot, &Fault::Timeout, now_ns);
                }
            }
        }
        let open = self.seats.iter().filter(|seat| seat.is_upgraded).count() as u64;
        let deaf = self.seats.iter().filter(|seat| seat.role == Role::Deaf).count() as u64;
        let held = self.seats.iter().filter(|seat| seat.role == Role::Held).count() as u64;
        let (_, held_alive) = self.held();
        let relays = self.relays();
        (relays.held, relays.held_alive, relays.deaf) = (held, held_alive, deaf);
        self.counts().open_at_end = open;
        if matches!(order, Order::Stand) {
            self.stood.clone_from(&self.tally.connections);
            self.is_standing = false;
        }
    }

    pub(super) fn counts(&mut self) -> &mut ConnectionTally {
        self.tally.connections.get_or_insert_with(ConnectionTally::new)
    }

    pub(super) fn relays(&mut self) -> &mut RelayTally {
        self.tally.relays.get_or_insert_with(RelayTally::new)
    }

    pub(super) fn is_over(&mut self, timing: &Timing, now_ns: u64) -> bool {
        self.has_to_stop() || now_ns >= timing.end_ns || timing.left(self.tally.asked()) == 0
    }

    /// Whether the user has asked for an end.
    pub(super) fn has_to_stop(&mut self) -> bool {
        let is_cancelled = self.is_cancelled();
        self.tally.ended_early |= is_cancelled;
        is_cancelled
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.shared.cancel.load(Ordering::Relaxed)
    }

    /// Sees to what has happened, or what happens within `wait_ns`. Returns how many connections it was about.
    pub(super) fn turn(&mut self, wait_ns: u64) -> Result<usize, String> {
        let now_ns = self.shared.clock.now_ns();
        self.wake_rested(now_ns);
        self.dial_waiting(now_ns);
        let seen = self.look(wait_ns)?;
        let now_ns = self.shared.clock.now_ns();
        let waits = self.in_flight > 0;
        if !waits && !self.is_troubled {
            self.heard_ns = now_ns;
        }
        let silence_ns = now_ns - self.heard_ns;
        let patience_ns = if waits || self.is_standing {
            SILENCE_NS_MAX.max(2 * self.rules.timeout_ns)
        } else {
            REFUSALS_NS_MAX
        };
        if silence_ns > patience_ns { Err(self.why_silent()) } else { Ok(seen) }
    }

    /// Takes the events that are there, or that come within `wait_ns`.
    pub(super) fn look(&mut self, wait_ns: u64) -> Result<usize, String> {
        let seen = self.poll.wait(wait_ns);
        let seen = seen.map_err(|errno| format!("cannot wait for {}: {errno}", self.server))?;
        // The time is read when the messages are there: before they are judged, and after the wait.
        let now_ns = self.shared.clock.now_ns();
        for index in 0..seen {
            if let Some(Happening { slot, generation, flags }) = self.poll.happening(index)
                && self.seats.get(slot).is_some_and(|seat| seat.connection.generation == generation)
            {
                self.with_buffers(slot, |worker| {
                    if let Err(fault) = worker.go_on(slot, flags, now_ns) {
                        worker.fail(slot, &fault, now_ns);
                    }
                });
            }
        }
        Ok(seen)
    }

    /// Does something with a connection that may need buffers for it.
    pub(super) fn with_buffers(&mut self, slot: usize, act: impl FnOnce(&mut Self)) {
        self.seats[slot].connection.borrow_buffers(&mut self.spares);
        act(self);
        self.seats[slot].connection.return_buffers(&mut self.spares);
    }

    pub(super) fn why_silent(&self) -> String {
        let scheme = if self.tls.is_some() { "WSS" } else { "WS" };
        let silence = Duration::from_nanos(self.shared.clock.now_ns() - self.heard_ns);
        why_silent(scheme, self.server, &self.tally, silence, Duration::from_nanos(self.rules.timeout_ns))
    }

    /// Gives up what has been on its way for too long.
    pub(super) fn sweep(&mut self, now_ns: u64) {
        const PARTS: u64 = 16;
        if now_ns < self.next_sweep_ns {
            return;
        }
        let timeout_ns = self.rules.timeout_ns;
        self.next_sweep_ns = now_ns + timeout_ns / PARTS;
        for slot in 0..self.seats.len() {
            let seat = &self.seats[slot];
            let since_ns = match (seat.connection.stage, seat.connection.asked.front()) {
                (Stage::Closed, _) => continue,
                (_, Some(asked)) => asked.asked_ns,
                _ if seat.is_upgraded => continue,
                _ => seat.connection.since_ns,
            };
            if now_ns.saturating_sub(since_ns) > timeout_ns {
                self.fail(slot, &Fault::Timeout, now_ns);
            }
        }
        let done = if self.is_standing { self.counts().opened } else { self.tally.replies() };
        self.shared.lives[self.index].show(
            self.tally.lost,
            self.tally.errors,
            self.tally.wrong.total(),
            done,
        );
    }
}
