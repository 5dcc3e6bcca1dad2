//! How connections come and go: dialled, upgraded, lost, and dialled again where somebody still needs them.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
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

/// How long a deaf socket that is read at last is waited for.
const DEAF_LOOK_NS: u64 = 20_000_000;

/// Once nothing has come to any of them for so long, nothing will.
const DEAF_QUIET_NS: u64 = 300_000_000;

/// Longest time for all of them.
const DEAF_NS_MAX: u64 = 3_000_000_000;

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
        (seat.said, seat.replied) = (0, 0);
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
        if self.is_standing {
            // Elsewhere only messages count: a tracker that lets everybody in and says nothing is silent.
            (self.heard_ns, self.is_troubled) = (now_ns, false);
        }
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

    /// Reads at last what those were sent that are deaf, and so finds how many of them the tracker has closed: the end
    /// comes behind all that they did not take. One that is still open is deaf again.
    pub(super) fn hear_out_deaf(&mut self) -> u64 {
        let Self { seats, room, shared, .. } = self;
        let deaf = seats.iter().filter(|seat| seat.role == Role::Deaf);
        let mut open: Vec<_> = deaf.filter(|seat| seat.is_upgraded).collect();
        let (upgraded, began_ns) = (open.len(), shared.clock.now_ns());
        let mut quiet_ns = began_ns;
        while !open.is_empty() {
            let sockets = open.iter().filter_map(|seat| seat.connection.socket());
            let mut asked: Vec<_> =
                sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
            let wait = Timespec::try_from(Duration::from_nanos(DEAF_LOOK_NS)).unwrap_or_default();
            if poll(&mut asked, Some(&wait)).is_ok_and(|said| said > 0) {
                quiet_ns = shared.clock.now_ns();
            }
            let mut asked = asked.iter();
            open.retain(|_| {
                let asked = asked.next().expect("each has a socket");
                asked.revents().is_empty() || !is_at_end(asked, room)
            });
            let now_ns = shared.clock.now_ns();
            if now_ns - quiet_ns >= DEAF_QUIET_NS || now_ns - began_ns >= DEAF_NS_MAX {
                break;
            }
        }
        (upgraded - open.len()) as u64
    }
}

/// Reads from a socket until nothing more is there. Returns whether nothing more will come.
fn is_at_end(socket: &impl AsFd, room: &mut [u8]) -> bool {
    loop {
        match rustix::io::read(socket, &mut *room) {
            Ok(0) => return true,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
}
