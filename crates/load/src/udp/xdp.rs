//! A generator at the driver hook. It outruns trackers that bypass the kernel's socket path.
//!
//! An eBPF program runs the closed loop: it turns each reply into the next request, in the same frame. User space
//! writes announces and scrapes into a ring ahead of time, reads the counters, and replaces lost frames. A [`Client`]
//! does the rest over sockets, above all the fill and the open loop. It uses the same addresses, so that the tracker
//! knows the peers.

mod flood;
mod inject;
mod program;
mod shared;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shoal_wire::udp::{ConnectionId, TransactionId};

use super::client::Client;
use super::template::Templates;
use crate::clock::CpuTime;
use crate::driver::{Batch, Pacing, Protocol, Run, Window};
use crate::plan::{PlanError, require};
use crate::session::{OpenError, Order, Shared as SessionShared};
use crate::tally::Kind;
use crate::{Kinds, Plan, WrongReplies};
pub use flood::{Discard, Flood, FloodReport};
use program::{Counts, Program};
use shared::{RING, Request, SAMPLES, SCRAPE_HASHES_MAX, SLOTS};

/// The program at the driver hook of an interface, attached until this is dropped. One session uses it at a time, and
/// it passes all frames on between runs.
#[derive(Clone)]
pub struct DriverHook(Arc<Program>);

impl DriverHook {
    /// Attaches the program to an interface of the network namespace of this thread, which needs root.
    pub fn attach(interface: &str) -> Result<Self, OpenError> {
        Program::attach(interface).map(|program| Self(Arc::new(program))).map_err(OpenError::Host)
    }
}

impl fmt::Debug for DriverHook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DriverHook")
    }
}

pub(super) struct XdpClient {
    sockets: Client,
    program: Arc<Program>,
    templates: Templates,
    /// Whether the current run is a closed loop, which is that of the program.
    is_looping: bool,
    processor: Option<usize>,
    window: usize,
    /// The last request of each slot that was seen, and when it was seen first.
    seen: [(u32, u64); SLOTS],
    counted: Counts,
    sampled: u64,
    /// Requests that were given up, and have not been answered since.
    given_up: u64,
    /// When all sources were told to connect anew.
    connected_ns: u64,
    next_source: usize,
}

/// How often the ring is refilled: long before it is empty at the highest rates.
const ROUND: Duration = Duration::from_micros(500);

/// A connection id is valid for a minute (BEP 15, "connect"). It is renewed before that.
const CONNECTION_NS_MAX: u64 = 50_000_000_000;

/// Requests that the program may be sending are not overwritten.
const RING_MARGIN: u64 = 512;

impl XdpClient {
    /// Checks what only this generator cannot do.
    pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
        require(plan.workers.len() == 1, "workers", plan.workers.len(), "1 at the driver hook")?;
        let hashes = plan.scrape_hashes_max;
        require(hashes <= SCRAPE_HASHES_MAX, "scrape hashes", hashes, "1 to 10 at the driver hook")
    }

    pub(super) fn open(
        plan: &Plan,
        hook: &DriverHook,
        shared: Arc<SessionShared>,
    ) -> Result<(Self, Run), OpenError> {
        let sources = plan.local_addrs(0);
        // The program learns the way to the tracker from the replies to the sockets, so it has to be there first.
        let program = Arc::clone(&hook.0);
        program.configure(plan.target, &sources).map_err(OpenError::Host)?;
        let (sockets, run) = Client::open(plan, shared, 0)?;
        let control = program.control();
        control.peers_max.store(u32::try_from(plan.numwant).unwrap_or(u32::MAX), Ordering::Relaxed);
        let weights = plan.mix.connect + plan.mix.announce + plan.mix.scrape;
        let connect_chance = (u64::from(plan.mix.connect) << 32) / u64::from(weights);
        control.connect_chance.store(connect_chance, Ordering::Relaxed);
        let client = Self {
            sockets,
            program,
            templates: Templates::new(plan.seed, 0, plan.numwant, plan.scrape_hashes_max),
            is_looping: false,
            processor: plan.workers[0],
            window: SLOTS,
            seen: [(0, 0); SLOTS],
            counted: Counts::default(),
            sampled: 0,
            given_up: 0,
            connected_ns: 0,
            next_source: 0,
        };
        Ok((client, run))
    }

    fn begin_loop(&mut self, run: &mut Run, window: usize, requests_max: u64) -> Result<(), String> {
        let control = self.program.control();
        if control.has_ethernet.load(Ordering::Relaxed) == 0 {
            return Err(format!("no reply of {} came in through the interface of the generator", run.server));
        }
        self.window = window.min(SLOTS);
        self.counted = self.program.counts()?;
        self.sampled = control.sampled.load(Ordering::Relaxed);
        let now_ns = run.now_ns();
        if now_ns.saturating_sub(self.connected_ns) > CONNECTION_NS_MAX {
            self.renew_connection_ids(now_ns);
        }
        self.write_requests(run);
        let control = self.program.control();
        control.sent.store(0, Ordering::Relaxed);
        control.requests_max.store(requests_max, Ordering::Relaxed);
        control.error_bytes.store(0, Ordering::Relaxed);
        control.is_stopped.store(0, Ordering::Release);
        Ok(())
    }

    fn renew_connection_ids(&mut self, now_ns: u64) {
        self.connected_ns = now_ns;
        self.program.sources.iter().for_each(|source| source.must_connect.store(1, Ordering::Relaxed));
    }

    fn write_requests(&mut self, run: &mut Run) {
        let control = self.program.control();
        let consumed = control.consumed.load(Ordering::Relaxed);
        let mut produced = control.produced.load(Ordering::Relaxed).max(consumed);
        if run.has_only_connects() {
            return;
        }
        let sources = run.peers.sockets();
        while produced < consumed + RING as u64 - RING_MARGIN {
            let source = self.next_source;
            self.next_source = (source + 1) % sources;
            let peer = run.peers.draw(source);
            let index = usize::try_from(produced % RING as u64).unwrap_or(0);
            let request = &self.program.requests[index];
            match run.draw_kind_of_peer() {
                Kind::Scrape => {
                    let hashes = run.draw_scrape_hashes();
                    self.templates.size_scrapes(usize::from(hashes));
                    self.templates.scrape(ConnectionId(0), TransactionId(0), || {
                        let peer = run.peers.draw(source);
                        run.peers.torrent(peer)
                    });
                    request.write(self.templates.scrapes.bundle().0, Kind::Scrape, hashes, source);
                    self.templates.scrapes.clear();
                }
                Kind::Announce | Kind::Connect => {
                    let announce = run.peers.next(peer);
                    self.templates.announce(ConnectionId(0), TransactionId(0), &announce);
                    request.write(self.templates.announces.bundle().0, Kind::Announce, 0, source);
                    self.templates.announces.clear();
                }
            }
            produced += 1;
        }
        self.program.control().produced.store(produced, Ordering::Release);
    }

    /// Takes over what the program has counted. Returns the number of replies.
    fn count(&mut self, run: &mut Run) -> Result<usize, String> {
        let counts = self.program.counts()?;
        let new = counts.since(&self.counted);
        self.counted = counts;
        let [connect, announce, scrape, good_connect, good_announce, good_scrape, rest @ ..] = new.0;
        let [peers, announce_reply_bytes, errors, malformed, action, unknown, count, repeated, failed, ..] =
            rest;
        let responses = Kinds { connect: good_connect, announce: good_announce, scrape: good_scrape };
        // The program knows only the last request of each slot.
        let late = unknown.min(self.given_up);
        self.given_up -= late;
        let transaction_id = unknown - late;
        let wrong = WrongReplies { malformed, action, transaction_id, count, ..WrongReplies::default() };
        let tally = &mut run.tally;
        tally.requests += &Kinds { connect, announce, scrape };
        tally.responses += &responses;
        tally.peers += peers;
        tally.announce_reply_bytes += announce_reply_bytes;
        tally.repeated += repeated;
        tally.send_failures += failed;
        tally.late += late;
        tally.wrong += &wrong;
        if errors > 0 {
            self.note_error(run);
            run.tally.errors += errors - 1;
        }
        run.note_uncounted(responses.total());
        let sampled = self.program.control().sampled.load(Ordering::Relaxed);
        let first = self.sampled.max(sampled.saturating_sub(SAMPLES as u64));
        for sample in first..sampled {
            let index = usize::try_from(sample % SAMPLES as u64).unwrap_or(0);
            run.note_latency(self.program.samples[index].load(Ordering::Relaxed));
        }
        self.sampled = sampled;
        let replies = responses.total() + errors + wrong.total() + late;
        Ok(usize::try_from(replies).unwrap_or(usize::MAX))
    }

    fn note_error(&self, run: &mut Run) {
        let control = self.program.control();
        let bytes = usize::try_from(control.error_bytes.load(Ordering::Acquire)).unwrap_or(0);
        let message: Vec<u8> =
            control.error.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        run.tally.note_error(&message[..bytes.min(message.len())]);
    }
}

impl Protocol for XdpClient {
    const PACING: Pacing = Client::PACING;

    fn probe(&mut self, run: &mut Run) -> Result<(), String> {
        self.sockets.probe(run)
    }

    fn begin(&mut self, run: &mut Run, order: &Order) -> Result<(), String> {
        self.is_looping = matches!(order, Order::Closed { .. });
        match *order {
            Order::Closed { window, timing } => self.begin_loop(run, window, timing.requests_max),
            Order::Connect | Order::Fill | Order::Open { .. } => self.sockets.begin(run, order),
        }
    }

    fn in_flight(&self) -> usize {
        if !self.is_looping {
            return self.sockets.in_flight();
        }
        self.program.slots.iter().filter(|slot| slot.transaction.load(Ordering::Relaxed) != 0).count()
    }

    fn window(&self, _requests: usize) -> Window {
        Window { requests: self.window, batch_min: 1, pause_from: None }
    }

    fn fill(&mut self, run: &mut Run, now_ns: u64) -> bool {
        self.sockets.fill(run, now_ns)
    }

    fn send(&mut self, run: &mut Run, batch: Batch<'_>) -> Option<usize> {
        if !self.is_looping {
            return self.sockets.send(run, batch);
        }
        let mut started = 0;
        for slot in 0..self.window {
            if started == batch.requests {
                break;
            }
            if self.program.slots[slot].transaction.load(Ordering::Relaxed) == 0 {
                let number = u16::try_from(slot).ok()?;
                if let Err(reason) = self.program.start_slot(number) {
                    run.tally.send_failures += 1;
                    run.tally.failure.get_or_insert(reason);
                    return None;
                }
                started += 1;
            }
        }
        (started > 0).then_some(started)
    }

    fn receive(&mut self, run: &mut Run, wait_ns: u64) -> Result<usize, String> {
        if !self.is_looping {
            return self.sockets.receive(run, wait_ns);
        }
        if wait_ns > 0 {
            std::thread::sleep(ROUND.min(Duration::from_nanos(wait_ns)));
        }
        let now_ns = run.now_ns();
        if now_ns.saturating_sub(self.connected_ns) > CONNECTION_NS_MAX {
            self.renew_connection_ids(now_ns);
        }
        self.write_requests(run);
        let replies = self.count(run)?;
        if replies > 0 {
            run.note_alive(now_ns);
        }
        Ok(replies)
    }

    /// Gives up the slots whose request has not changed for the timeout.
    fn expire(&mut self, run: &mut Run, now_ns: u64) {
        if !self.is_looping {
            return self.sockets.expire(run, now_ns);
        }
        for (slot, seen) in self.program.slots.iter().zip(&mut self.seen) {
            let transaction = slot.transaction.load(Ordering::Relaxed);
            if transaction == 0 || transaction != seen.0 {
                *seen = (transaction, now_ns);
            } else if now_ns.saturating_sub(seen.1) > run.rules.timeout_ns {
                let ended =
                    slot.transaction.compare_exchange(transaction, 0, Ordering::Relaxed, Ordering::Relaxed);
                if ended.is_ok() {
                    self.given_up += 1;
                    run.note_lost(Kind::Connect, 0);
                }
            }
        }
    }

    fn stop(&mut self) {
        self.program.control().is_stopped.store(1, Ordering::Release);
    }

    fn check_alive(&mut self, run: &mut Run) -> Result<(), String> {
        self.sockets.check_alive(run)
    }

    /// Counts the replies that came after the last round had counted, and ended their slots before the round looked at them.
    fn finish(&mut self, run: &mut Run) -> Result<(), String> {
        if self.is_looping {
            self.count(run)?;
        }
        Ok(())
    }

    fn end(&mut self, run: &mut Run, order: &Order) {
        self.stop();
        if !self.is_looping {
            return self.sockets.end(run, order);
        }
        if !run.is_cancelled() {
            run.tally.lost += self.in_flight() as u64;
        }
        self.program.slots.iter().for_each(|slot| slot.transaction.store(0, Ordering::Relaxed));
        self.is_looping = false;
    }

    fn why_silent(&self, run: &Run) -> String {
        self.sockets.why_silent(run)
    }

    fn cpu_time(&self) -> CpuTime {
        match self.processor {
            Some(processor) if self.is_looping => CpuTime::of_processor(processor),
            _ => CpuTime::of_thread(),
        }
    }
}

impl Drop for XdpClient {
    fn drop(&mut self) {
        self.program.rest();
    }
}

impl Request {
    /// Writes a request, whose ids the program fills in.
    fn write(&self, payload: &[u8], kind: Kind, hashes: u8, source: usize) {
        let kind = match kind {
            Kind::Connect => 1,
            Kind::Announce => 2,
            Kind::Scrape => 3,
        };
        let mut sum = 0;
        for (index, (to, word)) in self.payload.iter().zip(payload.chunks(8)).enumerate() {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            // Connection id and transaction id are no part of the sum, the action between them is.
            if index == 1 {
                bytes[4..].fill(0);
            }
            if index > 0 {
                sum +=
                    bytes.as_chunks().0.iter().map(|word| u32::from(u16::from_ne_bytes(*word))).sum::<u32>();
            }
            to.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        self.sum.store(sum, Ordering::Relaxed);
        self.bytes.store(u16::try_from(payload.len()).unwrap_or(u16::MAX), Ordering::Relaxed);
        self.kind.store(kind, Ordering::Relaxed);
        self.hashes.store(hashes, Ordering::Relaxed);
        self.source.store(u32::try_from(source).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
}
