//! The connections of one worker, for the protocols over TCP.
//!
//! A [`Pool`] owns the connections and the queues of their slots. [`StreamProtocol`] carries a connection through TCP
//! and TLS, and calls the protocol when it opens, has bytes, or ends. The protocol decides which requests are sent, and
//! when.
//!
//! A slot is in `idle` if it can take a request, in `resting` if its connection has just failed, and otherwise in
//! neither.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rustix::event::epoll::EventFlags;
use rustix::process::{Resource, getrlimit};
use rustls::HandshakeKind;

use crate::connection::{Connection, Fault, Pending, Received, SocketOptions, Stage, check_local};
use crate::driver::{Batches, Pacing, Run, WAIT_NS_MAX, Window};
use crate::plan::{PlanError, require};
use crate::poll::{ConnectionEvent, Poll};
use crate::tally::Tally;
use crate::tls::TlsClient;
use crate::{OpenError, Plan, TlsSettings};

pub(crate) trait StreamProtocol: Sized {
    type Details;

    /// Whether connections share buffers, so that only those with a partial message have some.
    const SHARES_BUFFERS: bool;

    fn pool(&mut self) -> &mut Pool<Self::Details>;

    /// Begins to use a connection, once TCP and TLS are established.
    fn on_open(&mut self, run: &mut Run, slot: usize, now_ns: u64) -> Result<(), Fault>;

    /// Reads the input of a connection. After the end of the stream (`is_all`), no more will come.
    fn on_data(&mut self, run: &mut Run, slot: usize, is_all: bool, now_ns: u64) -> Result<(), Fault>;

    /// Closes a connection that the tracker has closed.
    fn on_end(&mut self, run: &mut Run, slot: usize, now_ns: u64) -> Result<(), Fault>;

    /// Closes a connection that has failed, and queues its slot if it is needed. The fault has been counted.
    fn on_failure(&mut self, run: &mut Run, slot: usize, now_ns: u64);

    /// Opens one connection and waits until it can carry requests. Returns why it cannot.
    fn probe_tracker(&mut self, run: &mut Run) -> Result<(), String> {
        let began_ns = run.now_ns();
        self.dial(run, 0, began_ns);
        while self.pool().connections[0].stage != Stage::Open && !run.is_cancelled() {
            if self.pool().connections[0].stage == Stage::Closed {
                return Err(self.pool().why_silent(run));
            }
            let now_ns = run.now_ns();
            if now_ns - began_ns > run.rules.timeout_ns {
                self.fail(run, 0, &Fault::Timeout, now_ns);
            }
            self.handle_events(run, WAIT_NS_MAX)?;
        }
        Ok(())
    }

    /// Begins the connection of a slot. Implementations prepare the slot, and call [`StreamProtocol::dial_with`].
    fn dial(&mut self, run: &mut Run, slot: usize, now_ns: u64);

    fn dial_with(&mut self, run: &mut Run, slot: usize, options: SocketOptions, now_ns: u64) {
        let mut outcome = self.pool().open(slot, options, now_ns);
        // A connection to the own host may be established at once.
        if outcome.is_ok() && self.pool().connections[slot].stage == Stage::Open {
            outcome = self.on_open(run, slot, now_ns);
        }
        if let Err(fault) = outcome {
            self.fail(run, slot, &fault, now_ns);
        }
    }

    /// Handles the events that are there, or that come within `wait_ns`. Returns how many there were.
    fn handle_events(&mut self, run: &mut Run, wait_ns: u64) -> Result<usize, String> {
        let count = self.pool().poll.wait(wait_ns);
        let count = count.map_err(|errno| format!("cannot wait for {}: {errno}", run.server))?;
        // The time is read after the wait and before the replies are checked.
        let now_ns = run.now_ns();
        for index in 0..count {
            let pool = self.pool();
            if let Some(ConnectionEvent { slot, generation, flags }) = pool.poll.event(index)
                && pool.connections.get(slot).is_some_and(|connection| connection.generation == generation)
            {
                self.with_buffers(slot, |protocol| {
                    if let Err(fault) = protocol.advance(run, slot, flags, now_ns) {
                        protocol.fail(run, slot, &fault, now_ns);
                    }
                });
            }
        }
        Ok(count)
    }

    fn advance(&mut self, run: &mut Run, slot: usize, flags: EventFlags, now_ns: u64) -> Result<(), Fault> {
        let is_ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        let connection = &mut self.pool().connections[slot];
        if connection.stage == Stage::Connecting {
            if !is_ending && !flags.contains(EventFlags::OUT) {
                return Ok(());
            }
            connection.complete_connect()?;
            if connection.stage == Stage::Open {
                self.on_open(run, slot, now_ns)?;
            }
        } else if flags == EventFlags::OUT {
            return connection.flush();
        }
        loop {
            let Pool { connections, buffer, .. } = self.pool();
            let received = connections[slot].receive(buffer, is_ending)?;
            if let Some(kind) = connections[slot].complete_handshake() {
                let tally = run.tally.connections();
                match kind {
                    HandshakeKind::Resumed => tally.handshakes_resumed += 1,
                    HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest => {
                        tally.handshakes_full += 1;
                    }
                }
                self.on_open(run, slot, now_ns)?;
            }
            if received != Received::Nothing {
                self.on_data(run, slot, received == Received::End, now_ns)?;
            }
            if self.pool().connections[slot].stage == Stage::Closed {
                return Ok(());
            }
            match received {
                Received::End => return self.on_end(run, slot, now_ns),
                Received::Bytes { more: true } => {}
                Received::Bytes { more: false } | Received::Nothing => break,
            }
        }
        self.pool().connections[slot].flush()
    }

    /// Counts a fault of a connection, and all requests in flight on it as lost.
    fn fail(&mut self, run: &mut Run, slot: usize, fault: &Fault, now_ns: u64) {
        run.is_troubled = true;
        if self.pool().connections[slot].stage != Stage::Closing {
            fault.count(&mut run.tally.connections().failures);
            run.tally.note_fault(|| fault.to_string());
        }
        self.pool().give_up(run, slot);
        self.on_failure(run, slot, now_ns);
    }

    /// Fails the connections that have waited for a reply or for their next stage for longer than the timeout.
    fn expire_connections(&mut self, run: &mut Run, now_ns: u64) {
        for slot in 0..self.pool().connections.len() {
            let connection = &self.pool().connections[slot];
            let since_ns = match (connection.stage, connection.requests.front()) {
                (Stage::Closed, _) | (Stage::Open, None) => continue,
                (Stage::Open, Some(request)) => request.sent_ns,
                _ => connection.since_ns,
            };
            if now_ns.saturating_sub(since_ns) > run.rules.timeout_ns {
                self.fail(run, slot, &Fault::Timeout, now_ns);
            }
        }
    }

    /// Runs `act`, for which a connection may need buffers.
    fn with_buffers<T>(&mut self, slot: usize, act: impl FnOnce(&mut Self) -> T) -> T {
        if !Self::SHARES_BUFFERS {
            return act(self);
        }
        let Pool { connections, spares, .. } = self.pool();
        connections[slot].borrow_buffers(spares);
        let result = act(self);
        let Pool { connections, spares, .. } = self.pool();
        connections[slot].return_buffers(spares);
        result
    }
}

pub(crate) struct Pool<D> {
    pub(crate) poll: Poll,
    scheme: Scheme,
    tls: Option<TlsClient>,
    server: SocketAddr,
    pub(crate) locals: Vec<SocketAddr>,
    pub(crate) connections: Vec<Connection<D>>,
    pub(crate) idle: VecDeque<usize>,
    /// With the time until which each rests, in order.
    resting: VecDeque<(u64, usize)>,
    pub(crate) in_flight: usize,
    pub(crate) buffer: Box<[u8]>,
    pub(crate) spares: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheme {
    pub(crate) plain: &'static str,
    pub(crate) tls: &'static str,
}

pub(crate) const PACING: Pacing = Pacing {
    closed: Batches { requests_max: usize::MAX, per_round_max: usize::MAX },
    open: Batches { requests_max: 1, per_round_max: usize::MAX },
    slow_batches: true,
    waits_for_slot: true,
    // The kernel rounds a wait up to whole milliseconds.
    spin_ns: 1_200_000,
    expiries_per_timeout: 16,
};

/// Requests in flight of one worker while the tracker is filled.
pub(crate) const FILL_WINDOW: usize = 64;

/// A closed loop with a smaller window does not pause.
const PAUSE_WINDOW_MIN: usize = 16;

/// How long a slot rests after its connection could not be opened.
const REST_NS: u64 = 10_000_000;

/// File descriptors for everything but connections.
const OTHER_DESCRIPTORS: u64 = 64;

impl<D> Pool<D> {
    /// Returns `slots` for up to `depth` requests each, spread over the source addresses of worker `index`.
    pub(crate) fn open_worker(
        plan: &Plan,
        index: usize,
        scheme: Scheme,
        tls: Option<&TlsSettings>,
        slots: usize,
        depth: usize,
        buffer_bytes: usize,
    ) -> Result<Self, OpenError> {
        let locals = plan.local_addrs(index);
        locals.iter().try_for_each(|local| check_local(*local))?;
        Ok(Self {
            poll: Poll::open()?,
            scheme,
            tls: tls.map(TlsClient::new).transpose()?,
            server: plan.target,
            connections: (0..slots).map(|slot| Connection::vacant(slot % locals.len(), depth)).collect(),
            locals,
            idle: VecDeque::with_capacity(slots),
            resting: VecDeque::with_capacity(slots),
            in_flight: 0,
            buffer: vec![0; buffer_bytes].into(),
            spares: Vec::new(),
        })
    }

    fn open(&mut self, slot: usize, options: SocketOptions, now_ns: u64) -> Result<(), Fault> {
        let connection = &mut self.connections[slot];
        let from = self.locals[connection.local];
        let generation = connection.generation.wrapping_add(1);
        let socket = connection.open(from, self.server, self.tls.as_ref(), options, now_ns)?;
        self.poll.add(socket, slot, generation).map_err(Fault::Other)
    }

    /// Returns how a closed loop uses a window of `requests`, of which connections can carry `requests_max`.
    pub(crate) fn window(requests: usize, requests_max: usize) -> Window {
        let requests = requests.min(requests_max);
        let pause_from = (requests >= PAUSE_WINDOW_MIN).then_some(requests / 2);
        Window { requests, batch_min: 1, pause_from }
    }

    pub(crate) fn add_request(&mut self, run: &mut Run, slot: usize, request: Pending<D>) {
        run.tally.requests.count(request.kind);
        self.connections[slot].requests.push_back(request);
        self.in_flight += 1;
    }

    /// Removes the oldest request in flight of a connection, which has been answered.
    pub(crate) fn take_request(&mut self, slot: usize) -> Option<Pending<D>> {
        let connection = &mut self.connections[slot];
        let request = connection.requests.pop_front()?;
        connection.is_proven = true;
        self.in_flight -= 1;
        Some(request)
    }

    /// Counts the requests in flight on a connection as lost.
    pub(crate) fn give_up(&mut self, run: &mut Run, slot: usize) {
        while let Some(request) = self.connections[slot].requests.pop_front() {
            self.in_flight -= 1;
            run.note_lost(request.kind, request.peer);
        }
    }

    pub(crate) fn note_open(&self, run: &mut Run, slot: usize, now_ns: u64) {
        let setup_ns = now_ns.saturating_sub(self.connections[slot].since_ns);
        run.tally.connections().opened += 1;
        run.tally.setup.record(setup_ns);
    }

    pub(crate) fn take_idle(&mut self) -> Option<usize> {
        let slot = self.idle.pop_front()?;
        self.connections[slot].is_queued = false;
        Some(slot)
    }

    /// Lets a slot rest, so that a connection that always fails is not retried as fast as possible.
    pub(crate) fn rest(&mut self, slot: usize, now_ns: u64) {
        if !self.connections[slot].is_queued {
            self.connections[slot].is_queued = true;
            self.resting.push_back((now_ns + REST_NS, slot));
        }
    }

    pub(crate) fn take_rested(&mut self, now_ns: u64) -> Option<usize> {
        let (until_ns, slot) = *self.resting.front()?;
        if until_ns > now_ns {
            return None;
        }
        self.resting.pop_front();
        self.connections[slot].is_queued = false;
        Some(slot)
    }

    pub(crate) fn has_resting(&self) -> bool {
        !self.resting.is_empty()
    }

    pub(crate) fn clear_queues(&mut self) {
        self.idle.clear();
        self.resting.clear();
        self.connections.iter_mut().for_each(|connection| connection.is_queued = false);
    }

    /// Returns the most likely reason why no reply comes, by the counts of connections.
    pub(crate) fn why_silent(&self, run: &Run) -> String {
        let (server, timeout, tally) = (run.server, run.timeout(), &run.tally);
        let scheme = if self.tls.is_some() { self.scheme.tls } else { self.scheme.plain };
        let Tally { connections, .. } = tally;
        let failures = connections.as_ref().map(|connections| connections.failures).unwrap_or_default();
        let first = connections
            .as_ref()
            .and_then(|connections| connections.first_fault.as_deref())
            .unwrap_or_default();
        if tally.replies() > 0 {
            let fault = if first.is_empty() { String::new() } else { format!(" ({first})") };
            let silence = run.silence().as_secs_f64();
            return format!("{scheme} {server} fell silent: no reply for {silence:.1} s{fault}");
        }
        if failures.refused > 0 {
            return format!("nothing listens at TCP {server}: connection refused");
        }
        if failures.tls > 0 {
            return format!("no TLS can be agreed on with {server}: {first}");
        }
        if failures.total() > failures.timeout {
            return format!("{scheme} {server} cannot be spoken to: {first}");
        }
        format!(
            "{scheme} {server} does not answer within {timeout:?}: does a tracker speak {scheme} there, does a firewall drop the \
             packets, or does no way lead back to the source addresses?"
        )
    }
}

pub(crate) fn check_descriptors(connections: usize) -> Result<(), OpenError> {
    let needed = connections as u64 + OTHER_DESCRIPTORS;
    let granted = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if needed > granted {
        return Err(OpenError::Host(format!(
            "so many connections need {needed} file descriptors, but this process may have {granted}: raise the \
             limit (ulimit -n), or take fewer"
        )));
    }
    Ok(())
}

pub(crate) fn require_path(path: &str) -> Result<(), PlanError> {
    let holds = path.starts_with('/') && is_printable(path) && !path.contains('#');
    require(holds, "path", path, "one that begins with a slash, in printable ASCII without spaces")
}

/// Checks that the mix has more than connects, which `protocol` does not have.
pub(crate) fn require_requests(plan: &Plan, protocol: &str) -> Result<(), PlanError> {
    let accepted = format!("one with announces or scrapes, since {protocol} has no connects");
    require(plan.mix.announce > 0 || plan.mix.scrape > 0, "mix", "only connects", &accepted)
}

/// Checks that the value of a header can be part of a request.
pub(crate) fn require_printable(what: &'static str, value: &str) -> Result<(), PlanError> {
    require(is_printable(value), what, value, "printable ASCII without spaces")
}

fn is_printable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}
