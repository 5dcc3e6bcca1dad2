//! The lane over UDP (BEP 15): connects, announces and scrapes of a few thousand peers, from a few sockets.
//!
//! The transaction id of a request is its number, so every reply finds its record, however often it comes. Sockets are
//! not connected: the kernel would report a closed port instead of sending the next request.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use shoal_base::{Event, PeerId};
use shoal_load::{Arrivals, info_hash};
use shoal_wire::udp::{Announce, ConnectionId, Options, Reply, Request, TransactionId};

use crate::chaos::load::{LoadPlan, Shared, take, torrent_of_peer};
use crate::chaos::record::{Ledger, Outcome, Record};

/// The number of sockets, each with an address of its own, so that a tracker with several sockets uses all of them.
pub(crate) const SOCKETS: usize = 8;

/// The address of the first socket. The fill and the tracker have others.
const FIRST: [u8; 4] = [127, 0, 2, 1];

/// Of this many requests of a socket, one is a connect and one is a scrape. A new connection id comes often, so a tracker
/// that has forgotten its key loses few requests for that reason alone.
const CYCLE: usize = 16;

/// Requests that are sent, and packets that are received from a socket, before the other direction has its turn.
const BATCH: usize = 64;

const PACKET_BYTES_MAX: usize = 2048;

/// Bytes of replies that a socket can hold, as far as the host allows.
const RECEIVE_BYTES: usize = 8 << 20;

/// The longest time to wait for a reply before the end of the load is checked.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// The sockets of the lane.
pub(crate) struct UdpLane {
    target: SocketAddr,
    sockets: Vec<UdpSocket>,
    connection_ids: Vec<Option<ConnectionId>>,
    plan: LoadPlan,
    ledger: Ledger,
    /// Requests without an answer.
    unanswered: usize,
}

impl UdpLane {
    /// Opens the sockets.
    ///
    /// # Errors
    /// Returns an error if the host refuses one.
    pub(crate) fn open(plan: &LoadPlan) -> io::Result<Self> {
        let open = |index: usize| {
            let [a, b, c, d] = FIRST;
            let address = match plan.target {
                SocketAddr::V4(_) => Ipv4Addr::new(a, b, c, d.wrapping_add(u8::try_from(index).unwrap_or(0))),
                SocketAddr::V6(_) => return Err(io::Error::from(io::ErrorKind::Unsupported)),
            };
            let socket = UdpSocket::bind((address, 0))?;
            set_socket_recv_buffer_size(&socket, RECEIVE_BYTES)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let sockets = (0..SOCKETS).map(open).collect::<io::Result<_>>()?;
        let (connection_ids, plan) = (vec![None; SOCKETS], plan.clone());
        Ok(Self {
            target: plan.target,
            sockets,
            connection_ids,
            plan,
            ledger: Ledger::default(),
            unanswered: 0,
        })
    }

    /// Returns the ports of the sockets.
    ///
    /// # Errors
    /// Never returns one: the sockets are bound.
    pub(crate) fn ports(&self) -> io::Result<Vec<u16>> {
        self.sockets.iter().map(|socket| Ok(socket.local_addr()?.port())).collect()
    }

    /// Sends `rate` requests a second until the load ends, and returns their records.
    pub(crate) fn run(mut self, rate: f64, shared: &Arc<Shared>) -> Ledger {
        let mut arrivals = Arrivals::new(shared.clock.now_ns(), rate);
        let mut packet = [0; PACKET_BYTES_MAX];
        loop {
            let now_ns = shared.clock.now_ns();
            if shared.is_over(now_ns, self.plan.timeout, self.unanswered > 0) {
                return self.ledger;
            }
            for _ in 0..BATCH {
                let Some(due_ns) = take(&mut arrivals, shared.clock.now_ns(), shared.ended_ns()) else {
                    break;
                };
                self.send(due_ns, shared, &mut packet);
            }
            for socket in 0..SOCKETS {
                self.receive(socket, shared, &mut packet);
            }
            self.wait(arrivals.at(0).saturating_sub(shared.clock.now_ns()));
        }
    }

    /// Waits for a reply, but not beyond the time of the next request.
    fn wait(&self, until_due_ns: u64) {
        let wait = Duration::from_nanos(until_due_ns).min(WAIT_MAX);
        if wait.is_zero() {
            return;
        }
        let mut sockets: Vec<PollFd<'_>> = self
            .sockets
            .iter()
            .map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
            .collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        // A signal ends the wait early.
        let _ = poll(&mut sockets, Some(&timeout));
    }

    fn send(&mut self, due_ns: u64, shared: &Shared, packet: &mut [u8]) {
        let Some(number) = self.ledger.push(due_ns) else { return };
        self.unanswered += 1;
        let index = number as usize;
        let (socket, round) = (index % SOCKETS, index / SOCKETS);
        let transaction_id = TransactionId(number);
        let torrent = torrent_of_peer(index, &self.plan);
        let hashes = [info_hash(self.plan.seed, torrent)];
        let announce = announce(self.plan.seed, torrent, index % self.plan.load_peers);
        let request = match (self.connection_ids[socket], round % CYCLE) {
            (None, _) | (_, 0) => Request::Connect { transaction_id },
            (Some(connection_id), 1) => {
                Request::Scrape { connection_id, transaction_id, info_hashes: &hashes }
            }
            (Some(connection_id), _) => {
                let options = Options::new(&[]);
                Request::Announce { connection_id, transaction_id, announce: &announce, options }
            }
        };
        let length = request.encode(packet).expect("every request fits into the packet");
        // A full queue of this host loses the request, as any network may.
        let _ = self.sockets[socket].send_to(&packet[..length], self.target);
        self.ledger.sent(due_ns, shared.clock.now_ns());
    }

    fn receive(&mut self, socket: usize, shared: &Shared, packet: &mut [u8]) {
        for _ in 0..BATCH {
            // An error means that there is none, or concerns an earlier request, which then has no answer.
            let Ok((length, from)) = self.sockets[socket].recv_from(packet) else { return };
            let now_ns = shared.clock.now_ns();
            let answered =
                if from == self.target { self.on_reply(socket, &packet[..length], now_ns) } else { None };
            match answered {
                Some(record) => shared.answered(record.due_ns),
                None => self.ledger.malformed += 1,
            }
        }
    }

    /// Records a reply, and returns its request, if it has one.
    fn on_reply(&mut self, socket: usize, packet: &[u8], now_ns: u64) -> Option<Record> {
        let (TransactionId(number), outcome) = match Reply::decode(packet).ok()? {
            Reply::Connect { transaction_id, connection_id } => {
                self.connection_ids[socket] = Some(connection_id);
                (transaction_id, Outcome::Answered)
            }
            Reply::Announce { transaction_id, .. } | Reply::Scrape { transaction_id, .. } => {
                (transaction_id, Outcome::Answered)
            }
            Reply::Error { transaction_id, .. } => (transaction_id, Outcome::Refused),
        };
        let record = self.ledger.answer(number, now_ns, outcome)?;
        self.unanswered -= usize::from(record.answers == 1);
        Some(record)
    }
}

/// Returns the announce of a peer of the load. Its address is that of its socket.
fn announce(seed: u64, torrent: u32, peer: usize) -> Announce {
    Announce {
        info_hash: info_hash(seed, torrent),
        peer_id: PeerId(*b"-SL0100-chaoschaosch"),
        downloaded_bytes: 0.into(),
        left_bytes: 1.into(),
        uploaded_bytes: 0.into(),
        event: Announce::event_number(Event::Update),
        ip: [0; 4],
        key: 0.into(),
        num_want: 30.into(),
        port: u16::try_from(10_000 + peer % 50_000).unwrap_or(u16::MAX).into(),
    }
}
