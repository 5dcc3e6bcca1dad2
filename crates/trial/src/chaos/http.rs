//! The lanes over HTTP (BEP 3): announces on connections that stay open, or each on a connection of its own.
//!
//! A connection has one request in flight. A request that is due while all connections are busy waits for one, and its
//! latency counts from when it was due. A request ends with the tracker's answer, with the connection, or by timeout;
//! it is never sent again.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use shoal_load::{Arrivals, info_hash, nanoseconds};
use shoal_testkit::client::http::Response;

use crate::chaos::load::{LoadPlan, Shared, take, torrent_of_peer};
use crate::chaos::record::{Ledger, Outcome};

/// Most connections of the lane with a connection for each request. Further requests wait.
const IN_FLIGHT_MAX: usize = 4096;

/// The network of the connections' addresses. A port of an address cannot be used again for a minute after its connection
/// has ended, so many addresses are needed.
const SOURCES: [u8; 2] = [127, 3];
const ADDRESSES: usize = 200 * 200;

/// Requests that are started before replies have their turn.
const BATCH: usize = 32;

/// Most bytes of a response.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// The longest time to wait for an event before timeouts are checked.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// A connection, or the place for one.
#[derive(Debug, Default)]
struct Slot {
    stream: Option<TcpStream>,
    /// The request in flight, and when it was due.
    request: Option<(u32, u64)>,
    /// The rest of it, which is still to be sent.
    unsent: Vec<u8>,
    received: Vec<u8>,
}

/// The connections of a lane.
pub(crate) struct HttpLane {
    plan: LoadPlan,
    target: SocketAddrV4,
    keeps_alive: bool,
    epoll: std::os::fd::OwnedFd,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Requests that wait for a connection, and when they were due.
    waiting: VecDeque<(u32, u64)>,
    ledger: Ledger,
    /// The number of connections so far.
    opened: usize,
}

impl HttpLane {
    /// Prepares the connections, which are opened by the first requests.
    ///
    /// # Errors
    /// Returns an error if the host refuses the descriptor for events, or the tracker has an IPv6 address.
    pub(crate) fn open(plan: &LoadPlan, keeps_alive: bool) -> io::Result<Self> {
        let SocketAddr::V4(target) = plan.target else { return Err(io::ErrorKind::Unsupported.into()) };
        let slots = if keeps_alive { plan.connections } else { IN_FLIGHT_MAX };
        Ok(Self {
            plan: plan.clone(),
            target,
            keeps_alive,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            slots: std::iter::repeat_with(Slot::default).take(slots).collect(),
            free: (0..slots).rev().collect(),
            waiting: VecDeque::new(),
            ledger: Ledger::default(),
            opened: 0,
        })
    }

    /// Sends `rate` requests a second until the load ends, and returns their records.
    pub(crate) fn run(mut self, rate: f64, shared: &Arc<Shared>) -> Ledger {
        let mut arrivals = Arrivals::new(shared.clock.now_ns(), rate);
        let mut events = Vec::with_capacity(BATCH);
        loop {
            let now_ns = shared.clock.now_ns();
            let in_flight = self.free.len() < self.slots.len() || !self.waiting.is_empty();
            if shared.is_over(now_ns, self.plan.timeout, in_flight) {
                return self.ledger;
            }
            for _ in 0..BATCH {
                let now_ns = shared.clock.now_ns();
                let Some(due_ns) = take(&mut arrivals, now_ns, shared.ended_ns()) else { break };
                self.ledger.sent(due_ns, now_ns);
                self.waiting.extend(self.ledger.push(due_ns).map(|number| (number, due_ns)));
            }
            self.start_waiting(shared);
            let wait = Duration::from_nanos(arrivals.at(0).saturating_sub(shared.clock.now_ns()));
            let timeout = Timespec { tv_sec: 0, tv_nsec: wait.min(WAIT_MAX).subsec_nanos().into() };
            events.clear();
            // A signal ends the wait early.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout));
            for event in &events {
                let slot = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
                self.on_event(slot, shared);
            }
            self.end_late(shared.clock.now_ns());
        }
    }

    /// Starts the requests that wait, as far as there are connections.
    fn start_waiting(&mut self, shared: &Shared) {
        while let Some(slot) = self.free.pop() {
            let Some((number, due_ns)) = self.waiting.pop_front() else {
                self.free.push(slot);
                return;
            };
            self.slots[slot].request = Some((number, due_ns));
            self.slots[slot].unsent = self.request(number);
            if self.slots[slot].stream.is_none()
                && let Err(error) = self.connect(slot)
            {
                self.end(slot, outcome_of(&error));
                continue;
            }
            self.on_event(slot, shared);
        }
    }

    /// Begins to open a connection.
    fn connect(&mut self, slot: usize) -> io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        let host = self.opened % ADDRESSES;
        self.opened += 1;
        let [a, b] = SOURCES;
        let byte = |number: usize| u8::try_from(1 + number % 200).unwrap_or(1);
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::new(a, b, byte(host / 200), byte(host)), 0))?;
        match connect(&socket, &self.target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(slot as u64), interest)?;
        self.slots[slot].stream = Some(stream);
        Ok(())
    }

    /// Goes on with the request of a connection as far as its socket allows.
    fn on_event(&mut self, slot: usize, shared: &Shared) {
        let Some(Slot { stream: Some(stream), request, unsent, received }) = self.slots.get_mut(slot) else {
            return;
        };
        let end = exchange(stream, unsent, received);
        let Some((number, _)) = *request else {
            // Between two requests the tracker may close the connection. Anything else is an answer too many.
            self.ledger.malformed += u64::from(!received.is_empty());
            if end.is_some() || !received.is_empty() {
                self.close(slot);
            }
            return;
        };
        match Response::decode(received, end.is_some()) {
            Ok(Some((response, length))) => {
                let outcome = if response.refusal().is_some() { Outcome::Refused } else { Outcome::Answered };
                received.drain(..length);
                let now_ns = shared.clock.now_ns();
                if let Some(record) = self.ledger.answer(number, now_ns, outcome) {
                    shared.answered(record.due_ns);
                }
                if !received.is_empty() {
                    self.ledger.answer(number, now_ns, outcome);
                }
                let is_reusable = response.keep_alive && end.is_none() && self.keeps_alive;
                if !is_reusable || !self.slots[slot].received.is_empty() {
                    self.close(slot);
                }
                self.slots[slot].request = None;
                self.free.push(slot);
            }
            Err(_) => {
                self.ledger.malformed += 1;
                self.end(slot, Outcome::Closed);
            }
            Ok(None) if received.len() > RESPONSE_BYTES_MAX => self.end(slot, Outcome::Closed),
            Ok(None) => {
                if let Some(outcome) = end {
                    self.end(slot, outcome);
                }
            }
        }
    }

    /// Ends the request of a connection without an answer, and the connection.
    fn end(&mut self, slot: usize, outcome: Outcome) {
        if let Some((number, _)) = self.slots[slot].request.take() {
            self.ledger.fail(number, outcome);
            self.free.push(slot);
        }
        self.close(slot);
    }

    fn close(&mut self, slot: usize) {
        let slot = &mut self.slots[slot];
        slot.stream = None;
        slot.unsent.clear();
        slot.received.clear();
    }

    /// Ends the requests whose time is over.
    fn end_late(&mut self, now_ns: u64) {
        let timeout_ns = nanoseconds(self.plan.timeout);
        let is_late = |due_ns: u64| now_ns.saturating_sub(due_ns) > timeout_ns;
        while self.waiting.front().is_some_and(|(_, due_ns)| is_late(*due_ns)) {
            self.waiting.pop_front();
        }
        if self.free.len() == self.slots.len() {
            return;
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].request.is_some_and(|(_, due_ns)| is_late(due_ns)) {
                self.end(slot, Outcome::Unanswered);
            }
        }
    }

    /// Returns the announce of a peer of the load.
    fn request(&self, number: u32) -> Vec<u8> {
        let torrent = torrent_of_peer(number as usize, &self.plan);
        let hash = info_hash(self.plan.seed, torrent).0;
        let hash: String = hash.iter().map(|byte| format!("%{byte:02x}")).collect();
        let connection = if self.keeps_alive { "keep-alive" } else { "close" };
        format!(
            "GET /announce?info_hash={hash}&peer_id=-SL0100-chaoschaosch&port={}&uploaded=0&downloaded=0&left=1&\
             compact=1&numwant=30 HTTP/1.1\r\nHost: {}\r\nConnection: {connection}\r\n\r\n",
            10_000 + number as usize % self.plan.load_peers % 50_000,
            self.target,
        )
        .into_bytes()
    }
}

/// Sends and receives as far as the socket allows. Returns how the connection ended, if it did.
fn exchange(stream: &mut TcpStream, unsent: &mut Vec<u8>, received: &mut Vec<u8>) -> Option<Outcome> {
    while !unsent.is_empty() {
        match stream.write(unsent) {
            Ok(sent) => drop(unsent.drain(..sent)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The connection is not open yet.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return None,
            Err(error) => return Some(outcome_of(&error)),
        }
    }
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Some(Outcome::Closed),
            Ok(length) => received.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Some(outcome_of(&error)),
        }
        if received.len() > RESPONSE_BYTES_MAX {
            return None;
        }
    }
}

fn outcome_of(error: &io::Error) -> Outcome {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Outcome::ConnectRefused,
        _ => Outcome::Reset,
    }
}
