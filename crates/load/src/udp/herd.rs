//! A herd: many clients, each of which connects and announces once at a random moment, and retransmits as BEP 15 says.
//!
//! Owns the threads and the sockets. The clients themselves are in `clients`.

mod clients;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shoal_base::Event;
use shoal_base::transport::datagram::{DatagramService, Exchange};
use shoal_net::{ClientSettings, DatagramIo, SEGMENTS_MAX, SegmentedSender, Sockets};
use shoal_wire::udp::TransactionId;

use super::client::{SOCKET_BUFFER_BYTES, send};
use super::template::Templates;
use crate::clock::{Clock, nanoseconds};
use crate::population::{PeerAnnounce, mix};
use crate::session::pin;
use crate::{OpenError, Plan};
pub use clients::HERD_RETRIES_MAX;
use clients::{ClientRequest, Clients};

/// Many clients that announce once, as after a restart of the tracker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Herd {
    /// The number of clients.
    pub clients: u32,
    /// The time within which the clients start.
    pub within: Duration,
    /// The number of retransmissions of a request after which a client gives up, at most [`HERD_RETRIES_MAX`].
    pub retries_max: u8,
}

/// The clients of a herd, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HerdReport {
    /// The number of clients.
    pub clients: u64,
    /// Clients whose announce was answered, by the number of their retransmissions.
    pub answered: Vec<u64>,
    /// Clients whose request was refused.
    pub refused: u64,
    /// The first reason that the tracker gave for a refusal.
    pub first_refusal: Option<String>,
    /// Clients that gave up.
    pub never: u64,
    /// When the last client was answered, in seconds after the first moment at which one may start.
    pub last_answer_s: f64,
    /// Connects that were sent, including retransmissions.
    pub connects: u64,
    /// Announces that were sent, including retransmissions.
    pub announces: u64,
    /// Datagrams that this host did not accept. Their clients retransmit.
    pub send_failures: u64,
    /// Replies that this host dropped because the sockets of the clients were full.
    pub receive_drops: u64,
    /// Replies to requests that had an answer already.
    pub repeated: u64,
    /// Datagrams that are not replies to any client.
    pub malformed: u64,
    /// How many clients come back in each second, by the intervals that they were told.
    #[serde(skip)]
    pub returns: Vec<u32>,
}

impl HerdReport {
    /// Returns whether every client got what it asked for.
    pub fn is_good(&self) -> bool {
        self.answered.iter().sum::<u64>() == self.clients
    }

    fn note_answer(&mut self, retries: u8, now_ns: u64, interval_s: u32) {
        count_at(&mut self.answered, usize::from(retries));
        #[expect(clippy::cast_precision_loss, reason = "a run takes hours at most")]
        let now_s = now_ns as f64 / 1e9;
        self.last_answer_s = self.last_answer_s.max(now_s);
        let returns_s = (now_ns / 1_000_000_000).saturating_add(u64::from(interval_s.min(RETURN_S_MAX)));
        count_at(&mut self.returns, usize::try_from(returns_s).unwrap_or(0));
    }

    fn add(&mut self, other: Self) {
        add_each(&mut self.answered, &other.answered);
        add_each(&mut self.returns, &other.returns);
        self.refused += other.refused;
        self.first_refusal = self.first_refusal.take().or(other.first_refusal);
        self.never += other.never;
        self.last_answer_s = self.last_answer_s.max(other.last_answer_s);
        self.connects += other.connects;
        self.announces += other.announces;
        self.send_failures += other.send_failures;
        self.receive_drops += other.receive_drops;
        self.repeated += other.repeated;
        self.malformed += other.malformed;
        self.clients += other.clients;
    }
}

/// Longest interval that is distinguished: a day.
const RETURN_S_MAX: u32 = 86_400;

fn count_at<N: Copy + Default + From<u8> + core::ops::AddAssign>(counts: &mut Vec<N>, index: usize) {
    if counts.len() <= index {
        counts.resize(index + 1, N::default());
    }
    counts[index] += N::from(1);
}

fn add_each<N: Copy + Default + core::ops::AddAssign>(sums: &mut Vec<N>, counts: &[N]) {
    sums.resize(sums.len().max(counts.len()), N::default());
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += *count;
    }
}

/// Clients that start one after another share a socket in groups of this size, so that their requests make bundles.
const GROUP: u32 = 32;

/// Requests of one round. Then replies are received.
const ROUND_MAX: usize = 2048;

/// Maximum time to wait for replies when nothing is due.
const WAIT: Duration = Duration::from_millis(1);

/// Sends a herd to the tracker of the plan, of which only addresses, threads, torrents and seed matter. Ends when every
/// client has an answer or has given up, or when `cancel` is set.
pub fn run_herd(plan: &Plan, herd: &Herd, cancel: &AtomicBool) -> Result<HerdReport, OpenError> {
    plan.check()?;
    let workers = plan.workers.len();
    let share = |index: usize| {
        let (all, workers) = (u64::from(herd.clients), workers as u64);
        let share = all / workers + u64::from((index as u64) < all % workers);
        u32::try_from(share).unwrap_or(u32::MAX)
    };
    let opened = |index| Worker::open(plan, herd, share(index), index);
    let clock = Clock::start();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|index| {
                scope.spawn(move || {
                    if let Some(processor) = plan.workers[index] {
                        pin(processor)?;
                    }
                    let mut worker = opened(index)?;
                    worker.run(clock, cancel).map_err(OpenError::Host)?;
                    Ok::<_, OpenError>(worker.into_report())
                })
            })
            .collect();
        let mut sum = HerdReport::default();
        for thread in threads {
            sum.add(thread.join().expect("a worker of a herd does not panic")?);
        }
        Ok(sum)
    })
}

struct Worker {
    io: shoal_net::AnyIo,
    bundler: SegmentedSender,
    probes: Vec<shoal_net::SocketProbe>,
    /// The requests that wait to be sent, by socket.
    templates: Vec<Templates>,
    clients: Clients,
    torrents: u32,
    seed: u64,
}

impl Worker {
    fn open(plan: &Plan, herd: &Herd, clients: u32, index: usize) -> Result<Self, OpenError> {
        let locals: Vec<SocketAddr> = plan.local_addrs(index);
        let clients_max = locals.len() * usize::from(u16::MAX);
        if clients as usize > clients_max {
            return Err(OpenError::Host(format!(
                "{clients} clients of a thread have no ports of their own: give more --sockets, or at most {clients_max} clients"
            )));
        }
        let settings = ClientSettings {
            locals: &locals,
            server: plan.target,
            recv_buffer_bytes: SOCKET_BUFFER_BYTES,
            send_buffer_bytes: SOCKET_BUFFER_BYTES,
        };
        let sockets = Sockets::connect(&settings).map_err(|error| OpenError::Host(error.to_string()))?;
        let (bundler, probes) = (sockets.segmented_sender(), sockets.probes().collect());
        let io = plan.io.open(sockets);
        let io =
            io.map_err(|error| OpenError::Host(format!("cannot open the back end {}: {error}", plan.io)))?;
        let templates = locals.iter().map(|_| Templates::new(plan.seed, index, plan.numwant, 1)).collect();
        let seed = mix(plan.seed ^ mix(index as u64));
        let clients = Clients::new(clients, nanoseconds(herd.within), herd.retries_max, seed);
        Ok(Self { io, bundler, probes, templates, clients, torrents: plan.population.torrents, seed })
    }

    fn run(&mut self, clock: Clock, cancel: &AtomicBool) -> Result<(), String> {
        let begin_ns = clock.now_ns();
        while !self.clients.are_finished() && !cancel.load(Ordering::Relaxed) {
            let now_ns = clock.now_ns() - begin_ns;
            let mut sent = 0;
            while sent < ROUND_MAX
                && let Some(request) = self.clients.next(now_ns)
            {
                self.add(request);
                sent += 1;
            }
            (0..self.templates.len()).for_each(|socket| self.flush(socket));
            let wait = if sent > 0 { Duration::ZERO } else { WAIT };
            let Self { io, clients, .. } = self;
            let polled = io.poll(wait, &mut Receiver { clients, clock, begin_ns });
            polled.map_err(|error| format!("the sockets of the herd failed: {error}"))?;
        }
        Ok(())
    }

    fn add(&mut self, request: ClientRequest) {
        let ClientRequest { client, connection_id } = request;
        let sockets = u32::try_from(self.templates.len()).expect("a worker has at most SOCKETS_MAX sockets");
        let (group, member) = (client / GROUP, client % GROUP);
        let socket = (group % sockets) as usize;
        let templates = &mut self.templates[socket];
        match connection_id {
            None => templates.connect(TransactionId(client)),
            Some(connection_id) => {
                let port = (group / sockets * GROUP + member) % u32::from(u16::MAX) + 1;
                let announce = PeerAnnounce {
                    peer: client,
                    generation: 0,
                    torrent: u32::try_from(mix(self.seed ^ u64::from(client)) % u64::from(self.torrents))
                        .unwrap_or(0),
                    port: u16::try_from(port).unwrap_or(1),
                    event: Event::Started,
                    left_bytes: i64::from(client % 2),
                };
                templates.announce(connection_id, TransactionId(client), &announce);
            }
        }
        if templates.connects.len().max(templates.announces.len()) == SEGMENTS_MAX {
            self.flush(socket);
        }
    }

    fn flush(&mut self, socket: usize) {
        let Self { bundler, templates, clients, .. } = self;
        let Templates { connects, announces, .. } = &mut templates[socket];
        for batch in [connects, announces] {
            if batch.len() > 0 {
                clients.report.send_failures += (batch.len() - send(bundler, socket, batch)) as u64;
                batch.clear();
            }
        }
    }

    fn into_report(self) -> HerdReport {
        let drops = self.probes.iter().filter_map(|probe| probe.read().ok().flatten());
        let receive_drops = drops.map(|memory| u64::from(memory.receive_drops)).sum();
        HerdReport { receive_drops, ..self.clients.report }
    }
}

struct Receiver<'r> {
    clients: &'r mut Clients,
    clock: Clock,
    begin_ns: u64,
}

impl DatagramService for Receiver<'_> {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        let now_ns = self.clock.now_ns() - self.begin_ns;
        for exchange in batch {
            self.clients.take(exchange.request, now_ns);
        }
    }
}
