//! The WebTorrent client of one worker: how it opens connections and sends requests.

use std::collections::VecDeque;
use std::sync::Arc;

use rand::RngExt;
use shoal_wire::websocket::frame::Opcode;
use shoal_wire::websocket::{Reader, handshake};

use super::WsSettings;
use super::encoder::Encoder;
use super::request::Details;
use crate::connection::{Fault, SocketOptions, Stage};
use crate::driver::{Batch, Pacing, Protocol, Run, WAIT_NS_MAX, Window};
use crate::pace::Arrivals;
use crate::report::{Connections, Relays};
use crate::session::{Order, Shared};
use crate::stream::{FILL_WINDOW, PACING, Pool, Scheme, StreamProtocol};
use crate::tally::Durations;
use crate::{Mix, OpenError, Plan};

/// The WebTorrent client of one worker, with one request in flight on a connection. Slots to be opened are in
/// `waiting`; the queues of the pool are for open and failed connections.
pub(super) struct Client {
    pub(super) pool: Pool<Details>,
    /// First the announcers, then the held connections, then the slow readers.
    pub(super) slots: Vec<Slot>,
    pub(super) announcers: usize,
    pub(super) encoder: Encoder,
    upgrade: Vec<u8>,
    pub(super) key: String,
    pub(super) offers: usize,
    pub(super) answer_share: f64,
    held_announce: bool,
    /// The chance that an announce is the last one on its connection.
    reconnect_chance: f64,
    /// Whether connections are closed and opened again: not while they are opened first, or the tracker is filled.
    reconnects: bool,
    waiting: VecDeque<usize>,
    /// The number of connections that have been dialled and are not open yet.
    handshakes: usize,
    /// The rate at which connections are opened, if they are not all opened at once.
    ramp_rate: Option<f64>,
    ramp: Option<Arrivals>,
    /// The counts of the connections that were opened first and their setup times, until they have been reported.
    connected: Option<(Connections, Durations)>,
    /// Whether the tracker was seen to reply to answers.
    pub(super) replies_to_answers: bool,
    pub(super) last_message_ns: u64,
}

pub(super) struct Slot {
    pub(super) role: Role,
    pub(super) reader: Reader,
    is_connecting: bool,
    pub(super) has_ponged: bool,
    /// Announces and answers sent so far, and replies to announces. The numbers tell which replies are to answers.
    pub(super) sent: u64,
    pub(super) replied: u64,
    /// The number of its peers that the tracker knows, while the tracker is filled.
    pub(super) filled: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Its peers announce themselves again and again.
    Announcer,
    /// It is idle, or announces itself once.
    Held,
    /// It announces itself once and is never read again.
    SlowReader,
}

/// The size of the receive buffer: many messages at once, and several TLS records.
const BUFFER_BYTES: usize = 64 * 1024;

const SCHEME: Scheme = Scheme { plain: "WS", tls: "WSS" };

/// Most handshakes at once: enough to keep a tracker busy, and far below the length of its accept queue.
const HANDSHAKES_MAX: usize = 64;

/// Opening the connections is given up once so many times their number have failed, and some more.
const FAILURES_PER_CONNECTION_MAX: usize = 3;
const FAILURES_MIN: usize = 1000;

/// Once no message has come for this time, no more messages will be relayed.
const QUIET_NS: u64 = 300_000_000;

/// The receive buffer of a slow reader, small so that it is full soon. The kernel has a minimum of its own.
const SLOW_READER_BUFFER_BYTES: usize = 4096;

impl Client {
    pub(super) fn open(
        plan: &Plan,
        settings: &WsSettings,
        shared: Arc<Shared>,
        index: usize,
    ) -> Result<(Self, Run), OpenError> {
        let workers = plan.workers.len();
        let share = |all: usize| all / workers + usize::from(index < all % workers);
        let announcers = share(settings.connections.get());
        let roles = [
            (Role::Announcer, announcers),
            (Role::Held, share(settings.held)),
            (Role::SlowReader, share(settings.slow_readers)),
        ];
        let roles = roles.into_iter().flat_map(|(role, count)| std::iter::repeat_n(role, count));
        let slots: Vec<Slot> = roles.map(Slot::new).collect();
        let pool =
            Pool::open_worker(plan, index, SCHEME, settings.tls.as_ref(), slots.len(), 1, BUFFER_BYTES)?;
        let mut run = Run::new(plan, Mix { connect: 0, ..plan.mix }, announcers, shared, index);
        let key = handshake::key(run.random.random());
        let mut upgrade = Vec::new();
        handshake::ask(&settings.path, &settings.host, &key, settings.origin.as_deref(), &mut upgrade);
        #[expect(clippy::cast_precision_loss, reason = "there are a few workers")]
        let ramp_rate = settings.ramp.map(|rate| rate / workers as f64);
        let client = Self {
            pool,
            waiting: VecDeque::with_capacity(slots.len()),
            slots,
            announcers,
            encoder: Encoder::new(settings, plan.seed, index, plan.numwant),
            upgrade,
            key,
            offers: settings.offers,
            answer_share: settings.answer_share,
            held_announce: settings.held_announce,
            reconnect_chance: match settings.announces_per_connection {
                0 => 0.0,
                announces => 1.0 / f64::from(announces),
            },
            reconnects: false,
            handshakes: 0,
            ramp_rate,
            ramp: None,
            connected: None,
            replies_to_answers: false,
            last_message_ns: 0,
        };
        Ok((client, run))
    }

    /// Begins to use a connection that has become a WebSocket.
    pub(super) fn note_upgrade(&mut self, run: &mut Run, slot: usize, now_ns: u64) {
        self.pool.connections[slot].stage = Stage::Open;
        self.end_handshake(slot);
        if run.is_connecting {
            // In a run only messages count: a tracker that accepts connections and sends nothing is silent.
            run.note_alive(now_ns);
        }
        self.pool.note_open(run, slot, now_ns);
        match self.slots[slot].role {
            Role::Announcer => self.queue(slot),
            Role::Held if self.held_announce => self.announce_once(run, slot, now_ns),
            Role::Held => {}
            Role::SlowReader => {
                self.announce_once(run, slot, now_ns);
                if let Some(socket) = self.pool.connections[slot].socket() {
                    // Otherwise every message would cause an event.
                    let _ = self.pool.poll.remove(socket);
                }
            }
        }
    }

    /// Closes a connection that the tracker closes while no request is in flight.
    pub(super) fn close_idle(&mut self, run: &mut Run, slot: usize, now_ns: u64) {
        run.tally.connections().closed_idle += 1;
        run.tally.note_fault(|| "the tracker closed a connection on which nothing was under way".to_owned());
        let close = self.encoder.control(Opcode::Close, &[]);
        // A tracker that does not accept it has already closed.
        let _ = self.pool.connections[slot].send(close);
        self.on_failure(run, slot, now_ns);
    }

    /// Closes the connection of an announcer after its last announce, or queues it for another one.
    pub(super) fn reconnect_or_queue(&mut self, run: &mut Run, slot: usize) {
        let is_announcer = self.slots[slot].role == Role::Announcer;
        if !self.reconnects || !is_announcer || run.random.random::<f64>() >= self.reconnect_chance {
            return self.queue(slot);
        }
        let close = self.encoder.control(Opcode::Close, &[]);
        // A tracker that does not accept it has already closed.
        let _ = self.pool.connections[slot].send(close);
        self.close(slot);
        self.queue_dial(slot);
    }

    fn close(&mut self, slot: usize) {
        self.end_handshake(slot);
        let Pool { connections, spares, .. } = &mut self.pool;
        connections[slot].close(false);
        connections[slot].return_buffers(spares);
    }

    fn end_handshake(&mut self, slot: usize) {
        if std::mem::take(&mut self.slots[slot].is_connecting) {
            self.handshakes -= 1;
        }
    }

    /// Queues the slot of an announcer if its connection can take a request.
    pub(super) fn queue(&mut self, slot: usize) {
        let connection = &mut self.pool.connections[slot];
        let can_send = connection.stage == Stage::Open && connection.requests.is_empty();
        if self.slots[slot].role == Role::Announcer && can_send && !connection.is_queued {
            connection.is_queued = true;
            self.pool.idle.push_back(slot);
        }
    }

    fn queue_dial(&mut self, slot: usize) {
        self.pool.connections[slot].is_queued = true;
        self.waiting.push_back(slot);
    }

    pub(super) fn open_slots(&self, role: Role) -> impl Iterator<Item = usize> {
        let is_open = move |slot: &usize| self.pool.connections[*slot].stage == Stage::Open;
        (0..self.slots.len()).filter(move |slot| self.slots[*slot].role == role).filter(is_open)
    }

    fn held_alive(&self) -> usize {
        self.open_slots(Role::Held).filter(|slot| self.slots[*slot].has_ponged).count()
    }
}

impl Slot {
    fn new(role: Role) -> Self {
        Self {
            role,
            reader: Reader::new(),
            is_connecting: false,
            has_ponged: false,
            sent: 0,
            replied: 0,
            filled: 0,
        }
    }
}

impl Protocol for Client {
    const PACING: Pacing = PACING;

    fn probe(&mut self, run: &mut Run) -> Result<(), String> {
        run.tally.connections = Some(Connections::default());
        self.probe_tracker(run)
    }

    /// Queues every open connection, and dials the others that are needed.
    fn begin(&mut self, run: &mut Run, order: &Order) -> Result<(), String> {
        let (connections, setup) = self.connected.take().unwrap_or_default();
        (run.tally.connections, run.tally.setup) = (Some(connections), setup);
        run.tally.relays = Some(Relays::default());
        // Each connection knows which of its peers are filled.
        run.fill = None;
        let now_ns = run.now_ns();
        let is_ramp = matches!(order, Order::Connect);
        let is_run = matches!(order, Order::Closed { .. } | Order::Open { .. });
        self.reconnects = is_run && self.reconnect_chance > 0.0;
        self.ramp = self.ramp_rate.filter(|_| is_ramp).map(|rate| Arrivals::new(now_ns, rate));
        self.pool.clear_queues();
        self.waiting.clear();
        for slot in 0..self.slots.len() {
            self.slots[slot].filled = 0;
            let is_needed = self.slots[slot].role == Role::Announcer || run.is_connecting;
            if is_needed && self.pool.connections[slot].stage == Stage::Closed {
                self.queue_dial(slot);
            } else {
                self.queue(slot);
            }
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.pool.in_flight
    }

    fn window(&self, requests: usize) -> Window {
        Pool::<Details>::window(requests, self.announcers)
    }

    fn connect_all(&mut self, run: &mut Run, now_ns: u64) -> Result<Option<u64>, String> {
        let (count, failures) = (self.slots.len(), run.tally.connections().failures.total());
        if failures > (FAILURES_PER_CONNECTION_MAX * count + FAILURES_MIN) as u64 {
            return Err(format!("{failures} attempts to open {count} connections failed"));
        }
        let is_busy = self.pool.has_resting() || self.handshakes + self.pool.in_flight > 0;
        if self.waiting.is_empty() {
            return Ok(is_busy.then_some(WAIT_NS_MAX));
        }
        if self.handshakes >= HANDSHAKES_MAX {
            return Ok(Some(WAIT_NS_MAX));
        }
        let due_ns = self.ramp.as_ref().map_or(now_ns, |ramp| ramp.at(0));
        Ok(Some(due_ns.saturating_sub(now_ns).min(WAIT_NS_MAX)))
    }

    fn fill(&mut self, run: &mut Run, now_ns: u64) -> bool {
        while self.pool.in_flight < FILL_WINDOW
            && let Some(slot) = self.pool.take_idle()
        {
            // If the tracker knows all of its peers, the connection has nothing to do.
            let peer = slot + self.slots[slot].filled * self.announcers;
            if peer < run.peers.len() {
                let announce = run.peers.start(u32::try_from(peer).expect("there are at most 2^32 peers"));
                self.with_buffers(slot, |client| client.announce(run, slot, &announce, 0, now_ns, now_ns));
            }
        }
        let filled: usize = self.slots[..self.announcers].iter().map(|slot| slot.filled).sum();
        filled == run.peers.len()
    }

    /// Sends one request on the next connection that can take one.
    fn send(&mut self, run: &mut Run, batch: Batch<'_>) -> Option<usize> {
        let slot = self.pool.take_idle()?;
        self.with_buffers(slot, |client| client.request(run, slot, batch.due_ns(0), batch.now_ns));
        Some(1)
    }

    fn connect(&mut self, run: &mut Run) {
        if !self.pool.has_resting() && self.waiting.is_empty() {
            return;
        }
        let now_ns = run.now_ns();
        while let Some(slot) = self.pool.take_rested(now_ns) {
            self.queue_dial(slot);
        }
        while self.handshakes < HANDSHAKES_MAX
            && self.ramp.as_ref().is_none_or(|ramp| ramp.due(now_ns) > 0)
            && let Some(slot) = self.waiting.pop_front()
        {
            if let Some(ramp) = &mut self.ramp {
                ramp.pass(1);
            }
            self.pool.connections[slot].is_queued = false;
            // Opening a connection takes so long that the next one needs a new time.
            self.dial(run, slot, run.now_ns());
        }
    }

    fn receive(&mut self, run: &mut Run, wait_ns: u64) -> Result<usize, String> {
        self.handle_events(run, wait_ns)
    }

    fn expire(&mut self, run: &mut Run, now_ns: u64) {
        self.expire_connections(run, now_ns);
    }

    /// Returns whether all replies have come, and relayed messages have ceased to come.
    fn is_drained(&self, began_ns: u64, now_ns: u64) -> bool {
        let is_quiet = now_ns - self.last_message_ns.max(began_ns) >= QUIET_NS;
        self.pool.in_flight + self.handshakes == 0 && (self.offers == 0 || is_quiet)
    }

    fn check_alive(&mut self, run: &mut Run) -> Result<(), String> {
        let is_silent = self.pool.in_flight > 0 && run.tally.replies() > 0;
        if is_silent { Err(self.why_silent(run)) } else { Ok(()) }
    }

    /// Pings the held connections, and finds out which slow readers the tracker has closed.
    fn finish(&mut self, run: &mut Run) -> Result<(), String> {
        let (began_ns, alive_ns) = (run.now_ns(), run.alive_ns);
        for slot in 0..self.slots.len() {
            self.slots[slot].has_ponged = false;
            if self.slots[slot].role == Role::Held && self.pool.connections[slot].stage == Stage::Open {
                let ping = self.encoder.control(Opcode::Ping, b"shoal-lab");
                if let Err(fault) = self.pool.connections[slot].send(ping) {
                    self.fail(run, slot, &fault, began_ns);
                }
            }
        }
        let (mut outcome, mut now_ns) = (Ok(()), began_ns);
        while outcome.is_ok()
            && self.held_alive() < self.open_slots(Role::Held).count()
            && now_ns - began_ns < run.drain_ns_max()
        {
            outcome = self.receive(run, WAIT_NS_MAX).map(drop);
            now_ns = run.now_ns();
            run.expire(self, now_ns);
        }
        // A ping is no request, and a pong is no message.
        run.alive_ns = alive_ns;
        let closed = self.count_closed_slow_readers(run);
        run.tally.relays().slow_readers_closed = closed;
        outcome
    }

    fn end(&mut self, run: &mut Run, order: &Order) {
        let (is_cancelled, now_ns) = (run.is_cancelled(), run.now_ns());
        for slot in 0..self.slots.len() {
            let connection = &self.pool.connections[slot];
            let is_incomplete = !matches!(connection.stage, Stage::Closed | Stage::Open);
            if connection.requests.is_empty() && !is_incomplete {
                continue;
            }
            if is_cancelled {
                self.pool.in_flight -= connection.requests.len();
                self.close(slot);
            } else {
                self.fail(run, slot, &Fault::Timeout, now_ns);
            }
        }
        let count = |role| self.slots.iter().filter(|slot| slot.role == role).count() as u64;
        let relays = run.tally.relays();
        (relays.held, relays.slow_readers) = (count(Role::Held), count(Role::SlowReader));
        relays.held_alive = self.held_alive() as u64;
        let is_open = |stage| stage == Stage::Open;
        let open = self.pool.connections.iter().filter(|connection| is_open(connection.stage)).count();
        run.tally.connections().open_at_end = open as u64;
        if matches!(order, Order::Connect) {
            self.connected = Some((run.tally.connections().clone(), run.tally.setup.clone()));
        }
    }

    fn why_silent(&self, run: &Run) -> String {
        self.pool.why_silent(run)
    }
}

impl StreamProtocol for Client {
    type Details = Details;

    const SHARES_BUFFERS: bool = true;

    fn pool(&mut self) -> &mut Pool<Details> {
        &mut self.pool
    }

    fn dial(&mut self, run: &mut Run, slot: usize, now_ns: u64) {
        let state = &mut self.slots[slot];
        let is_slow_reader = state.role == Role::SlowReader;
        let recv_buffer_bytes = is_slow_reader.then_some(SLOW_READER_BUFFER_BYTES);
        (state.reader, state.is_connecting, state.has_ponged) = (Reader::new(), true, false);
        (state.sent, state.replied) = (0, 0);
        self.handshakes += 1;
        let Pool { connections, spares, .. } = &mut self.pool;
        connections[slot].borrow_buffers(spares);
        self.dial_with(run, slot, SocketOptions { no_delay: true, recv_buffer_bytes }, now_ns);
    }

    fn on_open(&mut self, _run: &mut Run, slot: usize, _now_ns: u64) -> Result<(), Fault> {
        let connection = &mut self.pool.connections[slot];
        connection.send(&self.upgrade)?;
        connection.stage = Stage::Upgrading;
        Ok(())
    }

    fn on_data(&mut self, run: &mut Run, slot: usize, _is_all: bool, now_ns: u64) -> Result<(), Fault> {
        self.read_messages(run, slot, now_ns)
    }

    fn on_end(&mut self, run: &mut Run, slot: usize, now_ns: u64) -> Result<(), Fault> {
        let connection = &self.pool.connections[slot];
        if connection.stage != Stage::Open || !connection.requests.is_empty() {
            return Err(Fault::Closed);
        }
        self.close_idle(run, slot, now_ns);
        Ok(())
    }

    /// Closes a connection. Held connections and slow readers are opened only once, so that it shows how many are left.
    fn on_failure(&mut self, run: &mut Run, slot: usize, now_ns: u64) {
        self.close(slot);
        if self.slots[slot].role == Role::Announcer || run.is_connecting {
            self.pool.rest(slot, now_ns);
        }
    }
}
