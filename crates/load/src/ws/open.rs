//! How connections come and go: dialled, upgraded, lost, and dialled again where somebody still needs them.

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use rustls::HandshakeKind;
use shoal_wire::websocket::Reader;
use shoal_wire::websocket::frame::Opcode;

use super::seat::Role;
use super::worker::Worker;
use crate::connection::{Fault, Fetched, Stage};

/// How long a slot rests whose connection could not be opened.
const REST_NS: u64 = 10_000_000;

/// What a socket that is never read has room for, so that it is full soon. The kernel has a minimum of its own.
const DEAF_BUFFER_BYTES: usize = 4096;

/// Sockets that are asked at once whether they were closed.
const POLL_MAX: usize = 1024;

impl Worker {
    /// Dials what waits for a connection, as far as the ramp lets it.
    pub(super) fn dial_waiting(&mut self, now_ns: u64) {
        while self.shaking < self.shaking_max
            && self.ramp.as_ref().is_none_or(|ramp| ramp.due(now_ns) > 0)
            && let Some(slot) = self.waiting.pop_front()
        {
            if let Some(ramp) = &mut self.ramp {
                ramp.pass(1);
            }
            self.seats[slot].connection.is_queued = false;
            // To open a connection takes long enough for the next one to be late.
            let now_ns = self.shared.clock.now_ns();
            self.dial(slot, now_ns);
        }
    }

    /// Begins a connection.
    pub(super) fn dial(&mut self, slot: usize, now_ns: u64) {
        let seat = &mut self.seats[slot];
        let from = self.locals[seat.connection.line];
        let generation = seat.connection.generation.wrapping_add(1);
        (seat.reader, seat.is_upgraded, seat.has_ponged) = (Reader::new(), false, false);
        self.shaking += 1;
        seat.connection.borrow_buffers(&mut self.spares);
        let opened = seat.connection.open(from, self.server, self.tls.as_ref(), true, now_ns);
        let opened = opened.and_then(|socket| {
            if seat.role == Role::Deaf {
                sockopt::set_socket_recv_buffer_size(socket, DEAF_BUFFER_BYTES).map_err(Fault::Other)?;
            }
            self.poll.watch(socket, slot, generation).map_err(Fault::Other)
        });
        let outcome = opened.and_then(|()| {
            // On the way to the own host it may be there at once.
            if self.seats[slot].connection.stage == Stage::Open { self.ask_for_upgrade(slot) } else { Ok(()) }
        });
        if let Err(fault) = outcome {
            self.fail(slot, &fault, now_ns);
        }
    }

    fn ask_for_upgrade(&mut self, slot: usize) -> Result<(), Fault> {
        self.seats[slot].connection.pass(&self.upgrade)
    }

    /// Goes on with a connection as far as it goes.
    pub(super) fn go_on(&mut self, slot: usize, flags: EventFlags, now_ns: u64) -> Result<(), Fault> {
        let is_ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        let connection = &mut self.seats[slot].connection;
        if flags == EventFlags::OUT && connection.stage != Stage::Connecting {
            return connection.flush();
        }
        if connection.stage == Stage::Connecting {
            if !is_ending && !flags.contains(EventFlags::OUT) {
                return Ok(());
            }
            connection.arrive()?;
            if connection.stage == Stage::Open {
                self.ask_for_upgrade(slot)?;
            }
        }
        loop {
            let connection = &mut self.seats[slot].connection;
            let fetched = connection.fetch(&mut self.room, is_ending)?;
            if let Some(kind) = connection.has_shaken_hands() {
                let counts = self.counts();
                match kind {
                    HandshakeKind::Resumed => counts.handshakes_resumed += 1,
                    HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest => {
                        counts.handshakes_full += 1;
                    }
                }
                self.ask_for_upgrade(slot)?;
            }
            if fetched != Fetched::Nothing {
                self.take_messages(slot, now_ns)?;
            }
            if self.seats[slot].connection.stage == Stage::Closed {
                return Ok(());
            }
            match fetched {
                Fetched::End => return self.end_of(slot, now_ns),
                Fetched::Bytes { more: true } => {}
                Fetched::Bytes { more: false } | Fetched::Nothing => break,
            }
        }
        self.seats[slot].connection.flush()
    }

    /// A connection has become a WebSocket.
    pub(super) fn note_upgrade(&mut self, slot: usize, now_ns: u64) {
        let seat = &mut self.seats[slot];
        seat.is_upgraded = true;
        let (role, setup_ns) = (seat.role, now_ns.saturating_sub(seat.connection.since_ns));
        self.shaking -= 1;
        (self.heard_ns, self.is_troubled) = (now_ns, false);
        let counts = self.counts();
        counts.opened += 1;
        counts.setup.saturating_record(setup_ns);
        match role {
            Role::Trader => self.offer(slot),
            Role::Held if self.held_announce => self.say_once(slot, now_ns, true),
            Role::Held => {}
            Role::Deaf => {
                self.say_once(slot, now_ns, false);
                if let Some(socket) = self.seats[slot].connection.socket() {
                    // Were it still watched, every message would be told of.
                    let _ = self.poll.forget(socket);
                }
            }
        }
    }

    /// The tracker has closed.
    fn end_of(&mut self, slot: usize, now_ns: u64) -> Result<(), Fault> {
        let seat = &self.seats[slot];
        if !seat.is_upgraded || !seat.connection.asked.is_empty() {
            return Err(Fault::Closed);
        }
        self.part(slot, now_ns);
        Ok(())
    }

    /// Lets go of a connection that the tracker closes while nothing is under way.
    pub(super) fn part(&mut self, slot: usize, now_ns: u64) {
        self.counts().closed_idle += 1;
        self.tally.note_fault(|| "the tracker closed a connection on which nothing was under way".to_owned());
        let goodbye = self.pen.control(Opcode::Close, &[]);
        // Whoever does not take it has gone before.
        let _ = self.seats[slot].connection.pass(goodbye);
        self.close(slot, now_ns);
    }

    /// A connection has failed, and with it what was asked on it.
    pub(super) fn fail(&mut self, slot: usize, fault: &Fault, now_ns: u64) {
        self.is_troubled = true;
        fault.count(&mut self.counts().failures);
        self.tally.note_fault(|| fault.to_string());
        while self.seats[slot].connection.asked.pop_front().is_some() {
            self.in_flight -= 1;
            self.tally.lost += 1;
        }
        self.close(slot, now_ns);
    }

    /// Closes a connection and leaves it so.
    pub(super) fn close_for_good(&mut self, slot: usize) {
        let seat = &mut self.seats[slot];
        if !seat.is_upgraded {
            self.shaking -= 1;
        }
        seat.is_upgraded = false;
        seat.connection.close(false);
        seat.connection.return_buffers(&mut self.spares);
    }

    fn close(&mut self, slot: usize, now_ns: u64) {
        self.close_for_good(slot);
        let seat = &mut self.seats[slot];
        // What is held or deaf is opened once: whether it is still there is what is to be seen.
        if (seat.role == Role::Trader || self.is_standing) && !seat.connection.is_queued {
            seat.connection.is_queued = true;
            // Whoever gets nowhere must not try again as fast as he can.
            self.resting.push_back((now_ns + REST_NS, slot));
        }
    }

    /// Queues slots that have rested: to be dialled.
    pub(super) fn wake_rested(&mut self, now_ns: u64) {
        while let Some(&(until_ns, slot)) = self.resting.front()
            && until_ns <= now_ns
        {
            self.resting.pop_front();
            self.waiting.push_back(slot);
        }
    }

    /// Queues a connection that may ask.
    pub(super) fn offer(&mut self, slot: usize) {
        let seat = &mut self.seats[slot];
        let can_ask = seat.is_upgraded && seat.connection.asked.is_empty();
        if seat.role == Role::Trader && can_ask && !seat.connection.is_queued {
            seat.connection.is_queued = true;
            self.idle.push_back(slot);
        }
    }

    /// Pings everybody who is held.
    pub(super) fn ping_held(&mut self, now_ns: u64) {
        for slot in 0..self.seats.len() {
            let seat = &mut self.seats[slot];
            seat.has_ponged = false;
            if seat.role != Role::Held || !seat.is_upgraded {
                continue;
            }
            let ping = self.pen.control(Opcode::Ping, b"shoal-lab");
            if let Err(fault) = seat.connection.pass(ping) {
                self.fail(slot, &fault, now_ns);
            }
        }
    }

    /// How many of those that are held are there, and how many of these have answered a ping.
    pub(super) fn held(&self) -> (u64, u64) {
        let held = self.seats.iter().filter(|seat| seat.role == Role::Held && seat.is_upgraded);
        held.fold((0, 0), |(there, alive), seat| (there + 1, alive + u64::from(seat.has_ponged)))
    }

    /// How many of those that are deaf the tracker can be seen to have closed.
    pub(super) fn deaf_closed(&self) -> u64 {
        let deaf = || self.seats.iter().filter(|seat| seat.role == Role::Deaf);
        let sockets: Vec<_> = deaf().filter_map(|seat| seat.connection.socket()).collect();
        let gone = (deaf().count() - sockets.len()) as u64;
        let closed = sockets.chunks(POLL_MAX).map(|sockets| {
            let mut asked: Vec<_> =
                sockets.iter().map(|socket| PollFd::new(socket, PollFlags::RDHUP)).collect();
            let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
            match poll(&mut asked, Some(&Timespec::default())) {
                Ok(_) => asked.iter().filter(|asked| asked.revents().intersects(ends)).count() as u64,
                Err(_) => 0,
            }
        });
        gone + closed.sum::<u64>()
    }
}
