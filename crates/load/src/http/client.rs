//! The HTTP client of one worker: how it uses connections, sends requests, and reads replies.

use std::sync::Arc;

use super::check::Checker;
use super::template::{TemplateParameters, Templates};
use super::{HttpSettings, Reuse, reply};
use crate::connection::{Fault, Pending, SocketOptions, Stage};
use crate::driver::{Batch, Pacing, Protocol, Run, Window};
use crate::population::PeerAnnounce;
use crate::report::Connections;
use crate::session::{Order, Shared};
use crate::stream::{FILL_WINDOW, PACING, Pool, Scheme, StreamProtocol};
use crate::tally::Kind;
use crate::{Mix, OpenError, Plan};

pub(super) struct Client {
    /// The details of a request are the announced port.
    pool: Pool<u16>,
    templates: Templates,
    reuse: Reuse,
    /// Whether the tracker is being filled. Connections are kept open then.
    is_filling: bool,
    depth: usize,
    reset: bool,
    /// The source address of the next connection, if each connection has another.
    next_local: usize,
    request: Vec<u8>,
    chunks: Vec<u8>,
}

/// The size of the receive buffer: a TLS record, and some more.
const BUFFER_BYTES: usize = 20 * 1024;

const SCHEME: Scheme = Scheme { plain: "HTTP", tls: "HTTPS" };

impl Client {
    pub(super) fn open(
        plan: &Plan,
        settings: &HttpSettings,
        shared: Arc<Shared>,
        index: usize,
    ) -> Result<(Self, Run), OpenError> {
        let parameters = TemplateParameters {
            host: &settings.host,
            announce_path: &settings.announce_path,
            scrape_path: &settings.scrape_path,
            numwant: plan.numwant,
            scrape_hashes_max: plan.scrape_hashes_max,
        };
        let (slots, depth) = (settings.connections.get(), settings.pipelining.get());
        let pool = Pool::open_worker(plan, index, SCHEME, settings.tls.as_ref(), slots, depth, BUFFER_BYTES)?;
        let run = Run::new(plan, Mix { connect: 0, ..plan.mix }, pool.locals.len(), shared, index);
        let client = Self {
            pool,
            templates: Templates::new(&parameters, plan.seed, index),
            reuse: settings.reuse,
            is_filling: false,
            depth,
            reset: settings.reset,
            next_local: 0,
            request: Vec::new(),
            chunks: Vec::new(),
        };
        Ok((client, run))
    }

    fn write_announce(
        &mut self,
        run: &mut Run,
        slot: usize,
        announce: &PeerAnnounce,
        due_ns: u64,
        now_ns: u64,
    ) {
        self.request.clear();
        self.templates.announce(announce, self.is_last(), &mut self.request);
        let PeerAnnounce { peer, port, .. } = *announce;
        let kind = Kind::Announce;
        self.write(run, slot, Pending { due_ns, sent_ns: now_ns, kind, peer, hashes: 0, details: port });
    }

    fn write_scrape(&mut self, run: &mut Run, slot: usize, peer: u32, due_ns: u64, now_ns: u64) {
        let hashes = run.draw_scrape_hashes();
        let (local, is_last) = (self.pool.connections[slot].local, self.is_last());
        let torrent = || {
            let peer = run.peers.draw(local);
            run.peers.torrent(peer)
        };
        self.request.clear();
        self.templates.scrape(hashes, torrent, is_last, &mut self.request);
        let kind = Kind::Scrape;
        self.write(run, slot, Pending { due_ns, sent_ns: now_ns, kind, peer, hashes, details: 0 });
    }

    fn write(&mut self, run: &mut Run, slot: usize, request: Pending<u16>) {
        // A TLS session that accepts nothing any more fails when it is flushed.
        let _ = self.pool.connections[slot].write(&self.request);
        self.pool.add_request(run, slot, request);
    }

    fn flush(&mut self, run: &mut Run, slot: usize, now_ns: u64) {
        let connection = &mut self.pool.connections[slot];
        let was_connecting = connection.stage == Stage::Connecting;
        if let Err(fault) = connection.flush() {
            self.fail(run, slot, &fault, now_ns);
        } else if was_connecting && connection.stage == Stage::Open {
            self.pool.note_open(run, slot, run.now_ns());
        }
    }

    /// Returns whether the request that is being written is the last one of its connection.
    fn is_last(&self) -> bool {
        self.reuse == Reuse::PerRequest && !self.is_filling
    }

    /// Opens a connection in a slot unless it has one, from address `local` if given. Returns whether it has one.
    fn connect_slot(&mut self, run: &mut Run, slot: usize, local: Option<usize>, now_ns: u64) -> bool {
        let connection = &mut self.pool.connections[slot];
        if local.is_some_and(|local| connection.local != local) && connection.requests.is_empty() {
            connection.close(self.reset);
        }
        if connection.stage != Stage::Closed {
            return true;
        }
        if let Some(local) = local {
            connection.local = local;
        } else if self.reuse == Reuse::PerRequest {
            connection.local = self.next_local;
            self.next_local = (self.next_local + 1) % self.pool.locals.len();
        }
        self.dial(run, slot, now_ns);
        self.pool.connections[slot].stage != Stage::Closed
    }

    /// Queues a slot once fewer than half of its depth are in flight, so that requests leave together.
    fn queue(&mut self, slot: usize) {
        let connection = &mut self.pool.connections[slot];
        let in_flight = connection.requests.len();
        let has_space = match connection.stage {
            Stage::Closing => false,
            Stage::Closed => true,
            _ => in_flight == 0 || in_flight < self.depth && in_flight <= self.depth / 2,
        };
        let is_used_up = self.reuse == Reuse::Held && !self.is_filling && connection.generation > 0;
        if has_space && !connection.is_queued && !is_used_up {
            connection.is_queued = true;
            self.pool.idle.push_back(slot);
        }
    }

    /// Stops using a connection. If the tracker is about to close it, the client waits for that, as real clients do.
    fn leave(&mut self, run: &mut Run, slot: usize, wait: bool, now_ns: u64) {
        self.pool.give_up(run, slot);
        let connection = &mut self.pool.connections[slot];
        connection.input.clear();
        if wait {
            (connection.stage, connection.since_ns) = (Stage::Closing, now_ns);
        } else {
            connection.close(self.reset);
            self.queue(slot);
        }
    }
}

impl Protocol for Client {
    const PACING: Pacing = PACING;

    fn probe(&mut self, run: &mut Run) -> Result<(), String> {
        run.tally.connections = Some(Connections::default());
        self.probe_tracker(run)
    }

    /// Queues every slot, with the connection that it has or without one.
    fn begin(&mut self, run: &mut Run, order: &Order) -> Result<(), String> {
        run.tally.connections = Some(Connections::default());
        self.is_filling = matches!(order, Order::Fill);
        self.pool.clear_queues();
        // A fill uses as many as its window, and one from each address.
        let needed = if self.is_filling { FILL_WINDOW.max(self.pool.locals.len()) } else { usize::MAX };
        for (slot, connection) in self.pool.connections.iter_mut().enumerate() {
            if self.reuse == Reuse::Held {
                connection.close(self.reset);
            }
            connection.is_queued = slot < needed;
            if slot < needed {
                self.pool.idle.push_back(slot);
            }
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.pool.in_flight
    }

    fn window(&self, requests: usize) -> Window {
        Pool::<u16>::window(requests, self.pool.connections.len() * self.depth)
    }

    fn fill(&mut self, run: &mut Run, now_ns: u64) -> bool {
        while self.pool.in_flight < FILL_WINDOW
            && let Some(slot) = self.pool.take_idle()
        {
            let Some(fill) = &mut run.fill else { break };
            let Some(peer) = fill.take_any(self.pool.connections[slot].local) else {
                self.queue(slot);
                break;
            };
            let announce = run.peers.start(peer);
            let local = peer as usize % self.pool.locals.len();
            if self.connect_slot(run, slot, Some(local), now_ns) {
                self.write_announce(run, slot, &announce, now_ns, now_ns);
                self.flush(run, slot, now_ns);
            } else if let Some(fill) = &mut run.fill {
                fill.add_lost(Kind::Announce, peer);
            }
        }
        run.fill.as_ref().is_none_or(|fill| fill.is_empty()) && self.pool.in_flight == 0
    }

    /// Sends on the next connection that has space, as many requests as fit.
    fn send(&mut self, run: &mut Run, batch: Batch<'_>) -> Option<usize> {
        let (slot, now_ns) = (self.pool.take_idle()?, batch.now_ns);
        let mut count = 0;
        if self.connect_slot(run, slot, None, now_ns) {
            let connection = &self.pool.connections[slot];
            let local = connection.local;
            count = batch.requests.min(self.depth - connection.requests.len());
            for position in 0..count {
                let (due_ns, peer) = (batch.due_ns(position), run.peers.draw(local));
                if run.draw_kind() == Kind::Announce {
                    let announce = run.peers.next(peer);
                    self.write_announce(run, slot, &announce, due_ns, now_ns);
                } else {
                    self.write_scrape(run, slot, peer, due_ns, now_ns);
                }
            }
            self.flush(run, slot, now_ns);
        }
        self.queue(slot);
        Some(count)
    }

    fn connect(&mut self, run: &mut Run) {
        if self.pool.has_resting() {
            let now_ns = run.now_ns();
            while let Some(slot) = self.pool.take_rested(now_ns) {
                self.queue(slot);
            }
        }
    }

    fn receive(&mut self, run: &mut Run, wait_ns: u64) -> Result<usize, String> {
        self.handle_events(run, wait_ns)
    }

    fn expire(&mut self, run: &mut Run, now_ns: u64) {
        self.expire_connections(run, now_ns);
    }

    fn is_held_open(&self) -> bool {
        self.reuse == Reuse::Held
    }

    /// Opens a connection anew. The tracker has died if that fails.
    fn check_alive(&mut self, run: &mut Run) -> Result<(), String> {
        if run.tally.replies() == 0 {
            return Ok(());
        }
        if !self.pool.connections[0].requests.is_empty() {
            // The new connection takes the place of an old one, whose requests are lost anyway.
            self.fail(run, 0, &Fault::Timeout, run.now_ns());
        }
        self.pool.connections[0].close(self.reset);
        run.uncounted(|run| self.probe(run))
    }

    fn end(&mut self, run: &mut Run, _order: &Order) {
        let (is_cancelled, now_ns) = (run.is_cancelled(), run.now_ns());
        let mut open = 0;
        for slot in 0..self.pool.connections.len() {
            let connection = &mut self.pool.connections[slot];
            match (connection.stage, connection.requests.is_empty()) {
                (Stage::Closed, _) => {}
                (Stage::Open, true) => open += 1,
                (_, false) if !is_cancelled => self.fail(run, slot, &Fault::Timeout, now_ns),
                _ => connection.close(self.reset),
            }
        }
        self.pool.in_flight = 0;
        run.tally.connections().open_at_end = open;
    }

    fn why_silent(&self, run: &Run) -> String {
        self.pool.why_silent(run)
    }
}

impl StreamProtocol for Client {
    type Details = u16;

    const SHARES_BUFFERS: bool = false;

    fn pool(&mut self) -> &mut Pool<u16> {
        &mut self.pool
    }

    fn dial(&mut self, run: &mut Run, slot: usize, now_ns: u64) {
        // A single request and a handshake never wait for each other.
        let options = SocketOptions { no_delay: self.reuse == Reuse::KeepAlive, recv_buffer_bytes: None };
        self.dial_with(run, slot, options, now_ns);
    }

    fn on_open(&mut self, run: &mut Run, slot: usize, now_ns: u64) -> Result<(), Fault> {
        self.pool.note_open(run, slot, now_ns);
        Ok(())
    }

    fn on_data(&mut self, run: &mut Run, slot: usize, is_all: bool, now_ns: u64) -> Result<(), Fault> {
        let mut read = 0;
        while read < self.pool.connections[slot].input.len() {
            let connection = &self.pool.connections[slot];
            let Some(request) = connection.requests.front() else {
                run.tally.wrong.transaction_id += 1;
                run.tally.note_fault(|| "a reply without a request".to_owned());
                self.leave(run, slot, false, now_ns);
                return Ok(());
            };
            let own = self.pool.locals[connection.local].ip();
            let mut checker = Checker { run, own, now_ns };
            let keep_alive = match reply::read(&connection.input[read..], is_all, &mut self.chunks) {
                Ok(None) => break,
                Ok(Some(reply)) => {
                    read += reply.bytes;
                    checker.check(request, &reply);
                    Some(reply.keep_alive)
                }
                Err(error) => {
                    checker.note_malformed(&error.to_string());
                    None
                }
            };
            run.note_alive(now_ns);
            self.pool.take_request(slot);
            match keep_alive {
                // Where the next reply would begin is unknown.
                None => {
                    self.leave(run, slot, false, now_ns);
                    return Ok(());
                }
                Some(keep_alive) if !keep_alive || self.is_last() => {
                    // If the stream has ended already, the caller closes the connection.
                    self.leave(run, slot, !keep_alive && !is_all, now_ns);
                    return Ok(());
                }
                Some(_) => {}
            }
        }
        self.pool.connections[slot].consume(read);
        self.queue(slot);
        Ok(())
    }

    fn on_end(&mut self, run: &mut Run, slot: usize, _now_ns: u64) -> Result<(), Fault> {
        let connection = &mut self.pool.connections[slot];
        match connection.stage {
            Stage::Closing => {}
            Stage::Open if connection.requests.is_empty() => run.tally.connections().closed_idle += 1,
            _ => return Err(Fault::Closed),
        }
        connection.close(self.reset);
        self.queue(slot);
        Ok(())
    }

    fn on_failure(&mut self, _run: &mut Run, slot: usize, now_ns: u64) {
        let connection = &mut self.pool.connections[slot];
        let is_proven = connection.is_proven;
        connection.close(self.reset);
        if is_proven {
            self.queue(slot);
        } else {
            self.pool.rest(slot, now_ns);
        }
    }
}
