//! The UDP client of one worker: its sockets, its connection ids, and how it sends requests.
//!
//! All requests of a thread go to one address, so the kernel splits one large send into many (UDP_SEGMENT). A tracker
//! replies to different addresses and cannot do that, so one core of load outruns one core of tracker.
//!
//! While enough requests are in flight, the thread sleeps for a moment, so that replies accumulate. Otherwise the
//! tracker would pay for waking a thread with each reply. The open loop does not sleep.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rustix::io::Errno;
use shoal_net::{
    AnyIo, ClientSettings, Counters, DatagramIo, SEGMENTS_MAX, SegmentedSender, SocketProbe, Sockets, Unread,
};

use super::check::{Checker, ClientSocket};
use super::in_flight::{IN_FLIGHT_MAX, InFlight, Lookup, Pending};
use super::template::{DatagramBatch, Templates};
use crate::Plan;
use crate::driver::{Batch, Batches, Pacing, Protocol, Run, WAIT_NS_MAX, Window};
use crate::pace::Arrivals;
use crate::population::PeerAnnounce;
use crate::session::{OpenError, Order, Shared};
use crate::tally::{Kind, Tally};

pub(super) struct Client {
    io: AnyIo,
    bundler: SegmentedSender,
    counters: Arc<Counters>,
    probes: Vec<SocketProbe>,
    templates: Templates,
    sockets: Vec<ClientSocket>,
    in_flight: InFlight,
    next_socket: usize,
    /// Counts of the kernel when the run began: refused datagrams, and replies that it dropped.
    refusals_before: u64,
    drops_before: u32,
}

/// The buffers of a socket, for replies that wait. The kernel may grant less, as it may to trackers.
pub(super) const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Requests in flight while the tracker is filled. The smallest usual receive buffer holds so many.
const FILL_WINDOW: usize = 192;

/// Requests of one bundle in a closed loop. It waits for space for so many, because bundles save most of its time.
const BURST: usize = 32;

/// A connection id is valid for a minute (BEP 15, "connect"). It is renewed before that.
const CONNECTION_NS_MAX: u64 = 50_000_000_000;

impl Client {
    pub(super) fn open(plan: &Plan, shared: Arc<Shared>, index: usize) -> Result<(Self, Run), OpenError> {
        let locals = plan.local_addrs(index);
        let settings = ClientSettings {
            locals: &locals,
            server: plan.target,
            recv_buffer_bytes: SOCKET_BUFFER_BYTES,
            send_buffer_bytes: SOCKET_BUFFER_BYTES,
        };
        let sockets = Sockets::connect(&settings).map_err(|error| OpenError::Host(error.to_string()))?;
        let (bundler, counters, probes) =
            (sockets.segmented_sender(), sockets.counters(), sockets.probes().collect());
        let client_socket =
            |local: SocketAddr| ClientSocket { ip: local.ip(), connection_id: None, connected_ns: 0 };
        let client_sockets: Vec<ClientSocket> = sockets.local_addrs().map(client_socket).collect();
        let io = plan
            .io
            .open(sockets)
            .map_err(|error| OpenError::Host(format!("cannot open the back end {}: {error}", plan.io)))?;
        let client = Self {
            io,
            bundler,
            counters,
            probes,
            templates: Templates::new(plan.seed, index, plan.numwant, plan.scrape_hashes_max),
            in_flight: InFlight::new(client_sockets.len(), 0),
            sockets: client_sockets,
            next_socket: 0,
            refusals_before: 0,
            drops_before: 0,
        };
        let run = Run::new(plan, plan.mix, locals.len(), shared, index);
        Ok((client, run))
    }

    /// Gets a connection id for every socket that has none.
    fn get_connection_ids(&mut self, run: &mut Run) -> Result<(), String> {
        const TRIES: u32 = 3;
        run.note_alive(run.now_ns());
        for _ in 0..TRIES {
            let now_ns = run.now_ns();
            for socket in 0..self.sockets.len() {
                if self.sockets[socket].connection_id.is_none() {
                    self.add_connect(socket, now_ns);
                    self.flush(run, socket);
                }
            }
            while self.in_flight.len() > 0 && !run.is_cancelled() {
                run.round(self, WAIT_NS_MAX)?;
                run.expire(self, run.now_ns());
            }
        }
        let has_all = self.sockets.iter().all(|socket| socket.connection_id.is_some());
        if has_all { Ok(()) } else { Err(self.why_silent(run)) }
    }

    fn renew_connection_id(&mut self, socket: usize, now_ns: u64) {
        let client_socket = &mut self.sockets[socket];
        if now_ns.saturating_sub(client_socket.connected_ns) > CONNECTION_NS_MAX && self.in_flight.free() > 0
        {
            // If the reply is lost, the client asks again after a while.
            client_socket.connected_ns += CONNECTION_NS_MAX / 8;
            self.add_connect(socket, now_ns);
        }
    }

    fn add_connect(&mut self, socket: usize, due_ns: u64) {
        let request =
            Pending { due_ns, peer: 0, port: 0, socket: small(socket), hashes: 0, kind: Kind::Connect };
        if let Some(transaction_id) = self.in_flight.add(request) {
            self.templates.connect(transaction_id);
        }
    }

    fn add_announce(&mut self, socket: usize, due_ns: u64, announce: &PeerAnnounce) {
        let Some(id) = self.sockets[socket].connection_id else { return };
        let PeerAnnounce { peer, port, .. } = *announce;
        let request = Pending { due_ns, peer, port, socket: small(socket), hashes: 0, kind: Kind::Announce };
        if let Some(transaction_id) = self.in_flight.add(request) {
            self.templates.announce(id, transaction_id, announce);
        }
    }

    fn add_scrape(&mut self, run: &mut Run, socket: usize, due_ns: u64, peer: u32, hashes: u8) {
        let Some(id) = self.sockets[socket].connection_id else { return };
        let request = Pending { due_ns, peer, port: 0, socket: small(socket), hashes, kind: Kind::Scrape };
        let Some(transaction_id) = self.in_flight.add(request) else { return };
        self.templates.scrape(id, transaction_id, || {
            let peer = run.peers.draw(socket);
            run.peers.torrent(peer)
        });
    }

    fn flush(&mut self, run: &mut Run, socket: usize) {
        let Self { bundler, templates, in_flight, .. } = self;
        let Run { tally: Tally { requests, send_failures, .. }, fill, .. } = run;
        let batches = [
            (&mut templates.connects, &mut requests.connect),
            (&mut templates.announces, &mut requests.announce),
            (&mut templates.scrapes, &mut requests.scrape),
        ];
        for (batch, count) in batches {
            let sent = send(bundler, socket, batch);
            *count += sent as u64;
            for transaction_id in batch.transactions(sent) {
                *send_failures += 1;
                if let (Lookup::Found(request), Some(fill)) = (in_flight.take(transaction_id), &mut *fill) {
                    fill.add_lost(request.kind, request.peer);
                }
            }
            batch.clear();
        }
    }

    fn reset_in_flight(&mut self, run: &mut Run, slots: usize) {
        let mask = run.random.random();
        self.in_flight.reset(slots, mask);
    }

    /// Returns how many replies the kernel has dropped because the sockets of this worker were full. Wraps around.
    fn drops(&self) -> u32 {
        let memory = |probe: &SocketProbe| probe.read().ok().flatten();
        self.probes.iter().filter_map(memory).fold(0, |sum, memory| sum.wrapping_add(memory.receive_drops))
    }

    /// Returns how often the tracker's host has refused a datagram.
    fn refusals(&self) -> u64 {
        self.counters.v4.unread.of(Unread::Failed).read() + self.counters.v6.unread.of(Unread::Failed).read()
    }
}

impl Protocol for Client {
    const PACING: Pacing = Pacing {
        // Bundles of a closed loop between two looks for replies, whatever the window.
        closed: Batches { requests_max: SEGMENTS_MAX, per_round_max: 16 },
        open: Batches { requests_max: SEGMENTS_MAX, per_round_max: 1 },
        slow_batches: false,
        waits_for_slot: false,
        // Waking up takes about as long.
        spin_ns: 100_000,
        expiries_per_timeout: 64,
    };

    fn probe(&mut self, run: &mut Run) -> Result<(), String> {
        self.get_connection_ids(run)
    }

    fn begin(&mut self, run: &mut Run, order: &Order) -> Result<(), String> {
        let slots = match *order {
            Order::Connect | Order::Fill => FILL_WINDOW,
            Order::Closed { window, .. } => window,
            // Twice the number of requests that can be unanswered at once.
            Order::Open { rate, .. } => {
                Arrivals::within(rate, run.timeout()).saturating_mul(2).clamp(1024, IN_FLIGHT_MAX)
            }
        };
        let now_ns = run.now_ns();
        for socket in &mut self.sockets {
            if now_ns.saturating_sub(socket.connected_ns) > CONNECTION_NS_MAX {
                socket.connection_id = None;
            }
        }
        let mut outcome = Ok(());
        if self.sockets.iter().any(|socket| socket.connection_id.is_none()) {
            self.reset_in_flight(run, self.sockets.len());
            outcome = run.uncounted(|run| self.get_connection_ids(run));
        }
        self.reset_in_flight(run, slots);
        (self.refusals_before, self.drops_before) = (self.refusals(), self.drops());
        outcome
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn window(&self, _requests: usize) -> Window {
        let requests = self.in_flight.slots();
        let batch_min = BURST.min(requests.div_ceil(4));
        Window { requests, batch_min, pause_from: Some(requests - batch_min + 1) }
    }

    fn fill(&mut self, run: &mut Run, now_ns: u64) -> bool {
        for socket in 0..self.sockets.len() {
            if self.in_flight.free() < BURST {
                continue;
            }
            self.renew_connection_id(socket, now_ns);
            for _ in 0..BURST.min(self.in_flight.free()) {
                let Some(peer) = run.fill.as_mut().and_then(|fill| fill.take_of(socket)) else { break };
                let announce = run.peers.start(peer);
                self.add_announce(socket, now_ns, &announce);
            }
            self.flush(run, socket);
        }
        run.fill.as_ref().is_none_or(|fill| fill.is_empty()) && self.in_flight.len() == 0
    }

    fn send(&mut self, run: &mut Run, batch: Batch<'_>) -> Option<usize> {
        if self.in_flight.free() < batch.requests {
            return None;
        }
        let socket = self.next_socket;
        self.next_socket = (socket + 1) % self.sockets.len();
        self.renew_connection_id(socket, batch.now_ns);
        // The datagrams of a bundle have one size.
        let hashes = run.draw_scrape_hashes();
        self.templates.size_scrapes(usize::from(hashes));
        let count = batch.requests.min(self.in_flight.free());
        for position in 0..count {
            let due_ns = batch.due_ns(position);
            match run.draw_kind() {
                Kind::Connect => self.add_connect(socket, due_ns),
                Kind::Announce => {
                    let peer = run.peers.draw(socket);
                    let announce = run.peers.next(peer);
                    self.add_announce(socket, due_ns, &announce);
                }
                Kind::Scrape => {
                    let peer = run.peers.draw(socket);
                    self.add_scrape(run, socket, due_ns, peer, hashes);
                }
            }
        }
        self.flush(run, socket);
        (count > 0).then_some(count)
    }

    fn receive(&mut self, run: &mut Run, wait_ns: u64) -> Result<usize, String> {
        let Self { io, in_flight, sockets, .. } = self;
        let before = in_flight.len();
        let server = run.server;
        let mut checker = Checker { run, in_flight, sockets, now_ns: 0 };
        let outcome = io.poll(Duration::from_nanos(wait_ns), &mut checker);
        outcome.map_err(|error| format!("the sockets to {server} failed: {error}"))?;
        Ok(before - in_flight.len())
    }

    /// Gives up requests in a part of the slots at a time.
    fn expire(&mut self, run: &mut Run, now_ns: u64) {
        const PARTS: usize = 16;
        let count = self.in_flight.slots().div_ceil(PARTS);
        let before_ns = now_ns.saturating_sub(run.rules.timeout_ns);
        self.in_flight.give_up(before_ns, count, |request| run.note_lost(request.kind, request.peer));
    }

    /// Connects anew. The tracker has died if no socket gets a reply.
    fn check_alive(&mut self, run: &mut Run) -> Result<(), String> {
        run.tally.lost += self.in_flight.len() as u64;
        let sockets = self.sockets.clone();
        self.sockets.iter_mut().for_each(|socket| socket.connection_id = None);
        self.reset_in_flight(run, sockets.len());
        let has_failed = run.uncounted(|run| self.get_connection_ids(run)).is_err();
        let is_dead = has_failed && self.sockets.iter().all(|socket| socket.connection_id.is_none());
        self.sockets = sockets;
        if is_dead { Err(self.why_silent(run)) } else { Ok(()) }
    }

    fn end(&mut self, run: &mut Run, _order: &Order) {
        if !run.is_cancelled() {
            run.tally.lost += self.in_flight.len() as u64;
        }
        run.tally.receive_drops = u64::from(self.drops().wrapping_sub(self.drops_before));
    }

    fn why_silent(&self, run: &Run) -> String {
        let (server, timeout) = (run.server, run.timeout());
        if self.refusals() > self.refusals_before {
            return format!(
                "nothing listens at UDP {server}, or there is no route to it: datagrams are refused"
            );
        }
        let sockets = self.sockets.len();
        let unconnected = self.sockets.iter().filter(|socket| socket.connection_id.is_none()).count();
        if unconnected == 0 {
            let silence = run.silence().as_secs_f64();
            return format!("UDP {server} fell silent: no reply for {silence:.1} s");
        }
        let Tally { late, errors, wrong, first_error, .. } = &run.tally;
        if *late > 0 {
            return format!(
                "UDP {server} answers later than within {timeout:?}: give it more time (--timeout)"
            );
        }
        if *errors + wrong.total() > 0 {
            let first =
                first_error.as_ref().map(|message| format!(", the first: \"{message}\"")).unwrap_or_default();
            return format!(
                "UDP {server} does not answer connects as a tracker does: {unconnected} of {sockets} sockets got no connection \
                 id, but {} wrong replies and {errors} errors{first}",
                wrong.total()
            );
        }
        format!(
            "UDP {server} does not answer within {timeout:?}: {unconnected} of {sockets} sockets got no reply. Is it a UDP \
             tracker, does a firewall drop the datagrams, or does it refuse the source addresses?",
        )
    }
}

/// Sends the datagrams of a batch. Returns how many the kernel has accepted.
pub(super) fn send(bundler: &mut SegmentedSender, socket: usize, batch: &DatagramBatch) -> usize {
    let (bundle, datagram_bytes) = batch.bundle();
    let (mut sent, mut refusals) = (0, 0);
    while sent < batch.len() {
        match bundler.send(socket, None, &bundle[sent * datagram_bytes..], datagram_bytes) {
            Ok(count) => sent += count,
            // An earlier datagram has caused this error.
            Err(Errno::CONNREFUSED | Errno::INTR) if refusals < 3 => refusals += 1,
            Err(_) => break,
        }
    }
    sent
}

fn small(socket: usize) -> u8 {
    u8::try_from(socket).expect("a worker has at most SOCKETS_MAX sockets")
}
