//! The connections of one worker over `epoll`, `accept4`, `recv` and `send`: how bytes get in and out.
//!
//! A connection that has just been accepted is read at once, since the kernel hands it over with its first bytes
//! (TCP_DEFER_ACCEPT); so one that asks once and goes never enters the epoll set. Events are level-triggered: what
//! a turn leaves undone comes up again by itself.

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use shoal_transport::stream::{Next, OUTPUT_BYTES_MAX, StreamService};

use super::accept::{Accepting, accept};
use super::connection::{Connection, Connections, MORE_MAX, Unasked};
use super::lifecycle::{Fate, Occasion};
use super::listen::BACKLOG;
use super::roster::{Phase, Roster};
use super::slab::Key;
use super::{INPUT_BYTES_MAX, SourceLimiter, SourceLimits, StreamLimits, StreamListeners, TURN_EVENTS_MAX};

/// Most connections that one listener is accepted from at a time.
const ACCEPTS_MAX: usize = 64;

/// How often that is done at the end: enough for all who may wait.
const RETIRE_ROUNDS_MAX: usize = BACKLOG.unsigned_abs() as usize / ACCEPTS_MAX;

/// The stream I/O of one worker: its listeners, its connections, and what it needs to serve them.
///
/// Its duties:
/// - [`StreamIo::turn`] never waits: it does what can be done now. [`StreamIo::readiness`] is a descriptor that is readable
///   when a turn has something to do;
/// - it hands all bytes of a connection to `service` in their order, and sends what the service appends to the output
///   in that order; while output waits for the peer to take it, nothing more is read from that connection;
/// - what the service says unasked is sent in the same order, at the end of each turn, and in one write as far as the
///   socket has room. What it has no room for waits; the service is told how much that is ([`StreamService::set_backlog`]),
///   and is not asked for more before all is sent. Meanwhile one input is heard at most, or two where replies to the
///   first are not among what waits: so a peer that takes nothing cannot have much held for it, and one for which others
///   have much to say is heard all the same, at the latest each time when it has taken it;
/// - an idle connection holds no buffer, nor does a standing one; a connection that waits holds what it waits with and no
///   more;
/// - it keeps the limits of [`StreamLimits`]: a connection that idles too long, takes too long over a request, or
///   does not take its answers is closed; a standing one has more time for what is said unasked; one whose peer is silent
///   is tended; when there are too many, one of the source that has most of them goes, and what its source has least need
///   of goes first ([`StreamLimits::connections_max`]);
/// - after each event of a connection it notes what that holds, with output that was not taken; when all together hold
///   more than the [`super::Budget`] of the worker, those of the sources that hold most are closed;
/// - what arrives after the last answer is read and thrown away for a moment before the socket is closed, so that no
///   reset overtakes the answer;
/// - a turn is bounded, and no listener or connection starves another;
/// - it counts, and never fails on what a peer can cause; out of descriptors, it closes a connection in the
///   same order and tries again, and never spins;
/// - in the settled state it allocates nothing for a request.
pub struct StreamIo<S: StreamService> {
    epoll: OwnedFd,
    listeners: StreamListeners,
    /// While it is `Yes`, the listeners are in the epoll set.
    accepting: Accepting,
    pub(super) roster: Connections<S>,
    events: Vec<Event>,
    input: Box<[u8; INPUT_BYTES_MAX]>,
    /// What the service says, before it is sent.
    output: Vec<u8>,
}

impl<S: StreamService> fmt::Debug for StreamIo<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamIo").field("connections", &self.roster.len()).finish_non_exhaustive()
    }
}

impl<S: StreamService> StreamIo<S> {
    /// Takes over the listeners of a worker.
    ///
    /// # Errors
    /// Where the kernel has no more descriptors.
    pub fn open(listeners: StreamListeners, limits: StreamLimits) -> io::Result<Self> {
        let roster =
            Roster::new(limits, Arc::clone(&listeners.sources), listeners.counters(), listeners.budget());
        let mut io = Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            listeners,
            accepting: Accepting::Paused { until_ms: 0 },
            roster,
            events: Vec::with_capacity(TURN_EVENTS_MAX),
            input: Box::new([0; INPUT_BYTES_MAX]),
            output: Vec::with_capacity(OUTPUT_BYTES_MAX + INPUT_BYTES_MAX),
        };
        io.watch_listeners()?;
        io.accepting = Accepting::Yes;
        Ok(io)
    }

    /// Replaces the limits, also for the connections that exist. None is closed because there are too many.
    pub const fn set_limits(&mut self, limits: StreamLimits) {
        self.roster.set_limits(limits);
    }

    /// Returns the limiter with which the service checks whether a source may have one more connection.
    #[must_use]
    pub fn source_limiter(&self, limits: SourceLimits) -> SourceLimiter {
        self.listeners.source_limiter(limits)
    }

    /// Takes one turn at `now_ms` (of any clock that never goes back). Returns how many accepts, inputs, outputs, speakers
    /// and ends it saw to: after none, the worker may wait.
    ///
    /// # Errors
    /// Only for faults of this host; the worker cannot go on.
    pub fn turn(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
        self.resume(now_ms);
        let mut seen = self.see_to_due(now_ms, service);
        self.events.clear();
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&no_wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let events = mem::take(&mut self.events);
        seen += events.len();
        for event in &events {
            match Token::decode(event.data) {
                Token::Listener(index) => seen += self.accept(index as usize, now_ms, service)?,
                Token::Connection(key) => self.serve(key, event.flags, now_ms, service),
            }
        }
        self.events = events;
        seen += self.check_suspects(service);
        Ok(seen + self.have_all_speak(now_ms, service))
    }

    /// Accepts those who wait, and then no more. What is under way goes on with further turns, which also close what
    /// idles, so many at a time.
    ///
    /// # Errors
    /// As [`StreamIo::turn`].
    pub fn retire(&mut self, now_ms: u64, service: &mut S) -> io::Result<()> {
        // Who waits to be accepted would be reset when the listeners close.
        for index in 0..self.listeners.listeners.len() {
            for _ in 0..RETIRE_ROUNDS_MAX {
                if self.accept(index, now_ms, service)? < ACCEPTS_MAX {
                    break;
                }
            }
        }
        self.pause(Accepting::Retired);
        self.listeners.listeners.clear();
        self.roster.retire();
        Ok(())
    }

    /// Gives back memory that is kept for later and has not been used for a while. To be called every few seconds.
    pub fn trim(&mut self) {
        self.roster.trim();
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES_MAX + INPUT_BYTES_MAX);
    }

    /// Returns how many connections are open.
    pub fn connections(&self) -> usize {
        self.roster.len()
    }

    /// Returns a descriptor of its own that becomes readable when a turn has something to do.
    ///
    /// # Errors
    /// Where the kernel has no more descriptors.
    pub fn readiness(&self) -> io::Result<OwnedFd> {
        self.epoll.as_fd().try_clone_to_owned()
    }

    /// Accepts again, if it is time for that.
    fn resume(&mut self, now_ms: u64) {
        if !self.accepting.is_due(now_ms) {
            return;
        }
        self.accepting = Accepting::Yes;
        if self.watch_listeners().is_err() {
            // The kernel has no memory for it, or there are too many watches: what was too little before still is.
            self.roster.counters().accept_failed.add(1);
            self.pause(Accepting::pause(now_ms));
        }
    }

    fn watch_listeners(&self) -> io::Result<()> {
        for (index, listener) in (0..).zip(&self.listeners.listeners) {
            // All workers watch the same Unix socket, and one of them is enough for a connection.
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            epoll::add(&self.epoll, &listener.socket, Token::Listener(index).encode(), flags)?;
        }
        Ok(())
    }

    fn pause(&mut self, accepting: Accepting) {
        if self.accepting == Accepting::Yes {
            for listener in &self.listeners.listeners {
                // It fails for what is not in the set, which is as good.
                let _ = epoll::delete(&self.epoll, &listener.socket);
            }
        }
        self.accepting = accepting;
    }

    /// Accepts from one listener, and serves what comes along. Returns how many connections came; fewer than
    /// [`ACCEPTS_MAX`] mean that nobody waits any more, or that no more can be taken now.
    fn accept(&mut self, index: usize, now_ms: u64, service: &mut S) -> io::Result<usize> {
        let mut accepted = 0;
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = self.listeners.listeners.get(index) else { break };
            match accept(listener, index) {
                Ok((socket, remote)) => {
                    accepted += 1;
                    if let Some(key) = self.welcome(socket, &remote, now_ms, service)
                        && self.read(key, now_ms, service) == Fate::Open
                    {
                        self.watch(key, service);
                        self.note_held(key, service);
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    if !self.recover(errno, service)? {
                        self.pause(Accepting::pause(now_ms));
                        break;
                    }
                }
            }
        }
        Ok(accepted)
    }

    /// Reads once, and serves what has come.
    fn read(&mut self, key: Key, now_ms: u64, service: &mut S) -> Fate {
        let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
        let received = match recv(&connection.socket, self.input.as_mut_slice(), RecvFlags::empty()) {
            Ok((0, _)) => return self.close(key, service),
            Ok((received, _)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Fate::Open,
            Err(_) => return self.fail(key, service),
        };
        let is_over = connection.next == Next::Linger;
        let sends = connection.unsent_bytes() > 0;
        if !is_over {
            self.output.clear();
            self.roster.hear(key, service, &mut self.input[..received], &mut self.output);
            if sends && let Some(connection) = self.roster.get_mut(key) {
                connection.unsent.extend_from_slice(&self.output);
            }
        }
        self.roster.counters().received_bytes.add(received);
        if is_over {
            self.overhear(key, received, service)
        } else if sends {
            // What is next is done when all is sent.
            Fate::Open
        } else {
            self.go_on(key, Occasion::Heard, now_ms, service)
        }
    }

    /// Sends what the service has said on an occasion, and does what it said is next.
    fn go_on(&mut self, key: Key, mut occasion: Occasion, now_ms: u64, service: &mut S) -> Fate {
        for _ in 0..MORE_MAX {
            let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
            if !self.output.is_empty() {
                if occasion == Occasion::Heard {
                    occasion = Occasion::Answered;
                }
                let sent = match send(&connection.socket, &self.output, SendFlags::NOSIGNAL) {
                    Ok(sent) => sent,
                    Err(Errno::AGAIN | Errno::INTR) => 0,
                    Err(_) => return self.fail(key, service),
                };
                let is_whole = sent == self.output.len();
                if !is_whole {
                    connection.unsent.extend_from_slice(&self.output[sent..]);
                }
                self.roster.counters().add_write(sent);
                if !is_whole {
                    self.roster.enter(key, Phase::Send, now_ms);
                    return Fate::Open;
                }
            }
            let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
            if connection.next != Next::More {
                return self.settle(key, occasion, now_ms, service);
            }
            self.output.clear();
            self.roster.hear(key, service, &mut [], &mut self.output);
        }
        // Others are served first. It goes on here when the epoll set says that the socket has room.
        if let Some(connection) = self.roster.get_mut(key) {
            connection.unsent.extend_from_slice(&self.output);
            self.roster.enter(key, Phase::Send, now_ms);
        }
        Fate::Open
    }

    /// Sends more of what the socket had no room for, or goes on where others were served first.
    fn write(&mut self, key: Key, now_ms: u64, service: &mut S) -> Fate {
        let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
        let Connection { socket, unsent, sent, has_backlog, .. } = connection;
        if !unsent.is_empty() {
            let newly_sent = match send(socket, &unsent[*sent..], SendFlags::NOSIGNAL) {
                Ok(newly_sent) => newly_sent,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(_) => return self.fail(key, service),
            };
            *sent += newly_sent;
            let (is_whole, has_backlog) = (*sent == unsent.len(), *has_backlog);
            if is_whole {
                (*unsent, *sent) = (Vec::new(), 0);
            }
            self.roster.counters().add_write(newly_sent);
            if !is_whole {
                if has_backlog {
                    self.note_backlog(key, service);
                }
                return Fate::Open;
            }
        }
        let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
        if connection.next != Next::More {
            return self.settle(key, Occasion::Answered, now_ms, service);
        }
        self.output.clear();
        self.roster.hear(key, service, &mut [], &mut self.output);
        self.go_on(key, Occasion::Heard, now_ms, service)
    }

    /// Has the epoll set watch a connection for what it waits for: while it does not take its answers, it is not heard.
    fn watch(&mut self, key: Key, service: &mut S) {
        let sends = self.roster.phase(key) == Some(Phase::Send);
        let Some(connection) = self.roster.get_mut(key) else { return };
        let wanted = match (sends, connection.is_heard_meanwhile()) {
            (false, _) => EventFlags::IN,
            (true, false) => EventFlags::OUT,
            (true, true) => EventFlags::OUT | EventFlags::IN,
        };
        let token = Token::Connection(key).encode();
        let outcome = match connection.watched {
            Some(watched) if watched == wanted => return,
            Some(_) => epoll::modify(&self.epoll, &connection.socket, token, wanted),
            None => epoll::add(&self.epoll, &connection.socket, token, wanted),
        };
        connection.watched = Some(wanted);
        if outcome.is_err() {
            // No memory for it, or too many watches: without events it would stay for ever.
            self.fail(key, service);
        }
    }

    /// Sees to a connection for which there was an event. One that has not taken all may be heard first, so that what is
    /// left is sent behind.
    fn serve(&mut self, key: Key, events: EventFlags, now_ms: u64, service: &mut S) {
        let sends = self.roster.phase(key) == Some(Phase::Send);
        let Some(connection) = self.roster.get_mut(key) else { return };
        let is_heard = !sends || connection.is_heard_meanwhile() && events.contains(EventFlags::IN);
        let mut fate = if is_heard { self.read(key, now_ms, service) } else { Fate::Open };
        if sends && fate == Fate::Open {
            fate = self.write(key, now_ms, service);
        }
        if fate == Fate::Open {
            self.watch(key, service);
            self.note_held(key, service);
        }
    }

    /// Lets the service speak unasked on a connection that may be spoken to, and sends that behind what is being sent.
    pub(super) fn tell(&mut self, key: Key, why: Unasked, now_ms: u64, service: &mut S) {
        let sends = self.roster.phase(key) == Some(Phase::Send);
        let Some(connection) = self.roster.get_mut(key) else { return };
        let given_up = if sends {
            connection.tell_behind(service, why)
        } else {
            self.output.clear();
            connection.tell(service, why, &mut self.output)
        };
        if given_up {
            self.roster.counters().timed_out_silent.add(1);
        }
        if sends || self.go_on(key, Occasion::Told, now_ms, service) == Fate::Open {
            self.note_backlog(key, service);
            self.watch(key, service);
            self.note_held(key, service);
        }
    }
}

/// What an event is about, in the 64 bits that the kernel keeps for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Listener(u32),
    Connection(Key),
}

/// Generations of keys end below this.
const LISTENER: u32 = Key::GENERATION_MAX + 1;

impl Token {
    fn encode(self) -> EventData {
        let (high, low) = match self {
            Self::Listener(index) => (LISTENER, index),
            Self::Connection(Key { index, generation }) => (generation, index),
        };
        EventData::new_u64(u64::from(high) << 32 | u64::from(low))
    }

    fn decode(data: EventData) -> Self {
        let bits = data.u64();
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits are left");
        let (high, low) = (half(bits >> 32), half(bits));
        if high == LISTENER {
            Self::Listener(low)
        } else {
            Self::Connection(Key { index: low, generation: high })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_back() {
        let key = |index, generation| Token::Connection(Key { index, generation });
        for token in
            [Token::Listener(0), Token::Listener(u32::MAX), key(0, 0), key(u32::MAX, Key::GENERATION_MAX)]
        {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }
}
