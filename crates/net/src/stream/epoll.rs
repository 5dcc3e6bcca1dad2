//! The portable stream back end: `epoll`, `accept4`, `recv` and `send`.
//!
//! A connection that has just been accepted is read at once, since the kernel hands it over with its first bytes
//! (TCP_DEFER_ACCEPT); so one that asks once and goes never enters the epoll set. Events are level-triggered: what
//! a turn leaves undone comes up again by itself.

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, recv, send};
use shoal_wire::stream::{Next, OUTPUT_BYTES_MAX};

use super::accept::{Accepting, accept};
use super::conduct::{
    Conduct, Connections, Fate, Leave, MORE_MAX, Occasion, Recovery, Unasked, end_sending, hear, say,
};
use super::listen::BACKLOG;
use super::phase::Phase;
use super::roster::Roster;
use super::slab::Key;
use super::{INPUT_BYTES_MAX, StreamIo, StreamLimits, StreamListeners, StreamService, TURN_EVENTS_MAX};

/// Most connections that one listener is accepted from at a time.
const ACCEPTS_MAX: usize = 64;

/// How often that is done at the end: enough for all who may wait.
const RETIRE_ROUNDS_MAX: usize = BACKLOG.unsigned_abs() as usize / ACCEPTS_MAX;

/// The back end over epoll.
pub struct EpollIo<S: StreamService> {
    epoll: OwnedFd,
    listeners: StreamListeners,
    /// While it is `Yes`, the listeners are in the epoll set.
    accepting: Accepting,
    roster: Connections<S, Link>,
    events: Vec<Event>,
    input: Box<[u8; INPUT_BYTES_MAX]>,
    /// What the service says, before it is sent.
    output: Vec<u8>,
}

/// What this back end keeps of a connection.
#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    /// What the socket has not taken yet. Empty, and without memory, in most connections.
    unsent: Vec<u8>,
    /// How much of that has been sent since.
    sent: usize,
    /// What the epoll set watches it for; nothing before it is in the set.
    watched: Option<EventFlags>,
}

impl From<OwnedFd> for Link {
    fn from(socket: OwnedFd) -> Self {
        Self { socket, unsent: Vec::new(), sent: 0, watched: None }
    }
}

impl Link {
    const fn has_unsent(&self) -> bool {
        self.unsent.len() > self.sent
    }

    /// What is unsent, without what has been sent of it since as soon as that is the larger part: so what is appended
    /// behind takes room in proportion to what waits.
    fn take_unsent(&mut self) -> Vec<u8> {
        if self.sent > self.unsent.len() / 2 {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
        mem::take(&mut self.unsent)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<S: StreamService> fmt::Debug for EpollIo<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpollIo").field("connections", &self.roster.len()).finish_non_exhaustive()
    }
}

impl<S: StreamService> Conduct<S> for EpollIo<S> {
    type Link = Link;

    fn roster(&mut self) -> &mut Connections<S, Link> {
        &mut self.roster
    }

    fn is_sending(&mut self, key: Key) -> bool {
        self.unsent_bytes(key) > 0
    }

    fn unsent_bytes(&mut self, key: Key) -> usize {
        self.roster.get_mut(key).map_or(0, |connection| connection.link.unsent.len() - connection.link.sent)
    }

    fn link_bytes(&mut self, key: Key) -> usize {
        self.roster.get_mut(key).map_or(0, |connection| connection.link.unsent.capacity())
    }

    fn tell(&mut self, key: Key, why: Unasked, now_ms: u64, service: &mut S) {
        let sends = self.roster.phase(key) == Some(Phase::Send);
        let Some(connection) = self.roster.get_mut(key) else { return };
        let given_up = if sends {
            let mut unsent = connection.link.take_unsent();
            let given_up = connection.tell(service, why, &mut unsent);
            connection.link.unsent = unsent;
            given_up
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

    fn say_last(&mut self, key: Key, words: Vec<u8>) {
        let sent = self.roster.get_mut(key).map_or(0, |connection| say(&connection.link, &words));
        self.roster.counters().add_write(sent);
    }

    fn end_sending(&mut self, key: Key) {
        if let Some(connection) = self.roster.get_mut(key) {
            end_sending(&connection.link);
        }
    }

    fn release(&mut self, _: Key, link: Link, leave: Leave) {
        leave.prepare(&link);
        // Closing the last descriptor takes it out of the epoll set as well (`epoll(7)`).
        drop(link);
    }
}

impl<S: StreamService> EpollIo<S> {
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
            match accept(listener, index, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((socket, origin)) => {
                    accepted += 1;
                    if let Some(key) = self.welcome(socket, &origin, now_ms, service)
                        && self.read(key, now_ms, service) == Fate::Open
                    {
                        self.watch(key, service);
                        self.note_held(key, service);
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(errno) => match self.recover(errno, service)? {
                    Recovery::Retry | Recovery::Evicted => {}
                    Recovery::Pause => {
                        self.pause(Accepting::pause(now_ms));
                        break;
                    }
                },
            }
        }
        Ok(accepted)
    }

    /// Reads once, and serves what has come.
    fn read(&mut self, key: Key, now_ms: u64, service: &mut S) -> Fate {
        let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
        let received = match recv(&connection.link, self.input.as_mut_slice(), RecvFlags::empty()) {
            Ok((0, _)) => return self.close(key, service),
            Ok((received, _)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Fate::Open,
            Err(_) => return self.fail(key, service),
        };
        let is_over = connection.next == Next::Linger;
        let sends = connection.link.has_unsent();
        if !is_over {
            self.output.clear();
            hear(&mut self.roster, key, service, &mut self.input[..received], &mut self.output);
            if sends && let Some(connection) = self.roster.get_mut(key) {
                connection.link.unsent.extend_from_slice(&self.output);
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
                let sent = match send(&connection.link, &self.output, SendFlags::NOSIGNAL) {
                    Ok(sent) => sent,
                    Err(Errno::AGAIN | Errno::INTR) => 0,
                    Err(_) => return self.fail(key, service),
                };
                let is_whole = sent == self.output.len();
                if !is_whole {
                    connection.link.unsent.extend_from_slice(&self.output[sent..]);
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
            hear(&mut self.roster, key, service, &mut [], &mut self.output);
        }
        // Others are served first. It goes on here when the epoll set says that the socket has room.
        if let Some(connection) = self.roster.get_mut(key) {
            connection.link.unsent.extend_from_slice(&self.output);
            self.roster.enter(key, Phase::Send, now_ms);
        }
        Fate::Open
    }

    /// Sends more of what the socket had no room for, or goes on where others were served first.
    fn write(&mut self, key: Key, now_ms: u64, service: &mut S) -> Fate {
        let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
        let Link { socket, unsent, sent, .. } = &mut connection.link;
        if !unsent.is_empty() {
            let newly_sent = match send(socket, &unsent[*sent..], SendFlags::NOSIGNAL) {
                Ok(newly_sent) => newly_sent,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(_) => return self.fail(key, service),
            };
            *sent += newly_sent;
            let is_whole = *sent == unsent.len();
            if is_whole {
                (*unsent, *sent) = (Vec::new(), 0);
            }
            self.roster.counters().add_write(newly_sent);
            if !is_whole {
                self.update_backlog(key, service);
                return Fate::Open;
            }
        }
        let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
        if connection.next != Next::More {
            return self.settle(key, Occasion::Answered, now_ms, service);
        }
        self.output.clear();
        hear(&mut self.roster, key, service, &mut [], &mut self.output);
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
        let outcome = match connection.link.watched {
            Some(watched) if watched == wanted => return,
            Some(_) => epoll::modify(&self.epoll, &connection.link, token, wanted),
            None => epoll::add(&self.epoll, &connection.link, token, wanted),
        };
        connection.link.watched = Some(wanted);
        if outcome.is_err() {
            // No memory for it, or too many watches: without events it would stay for ever.
            self.fail(key, service);
        }
    }

    /// Sees to a connection for which there was an event.
    fn serve(&mut self, key: Key, events: EventFlags, now_ms: u64, service: &mut S) {
        let fate = match self.roster.phase(key) {
            None => Fate::Closed,
            Some(Phase::Send) => self.serve_sending(key, events, now_ms, service),
            Some(_) => self.read(key, now_ms, service),
        };
        if fate == Fate::Open {
            self.watch(key, service);
            self.note_held(key, service);
        }
    }
}

impl<S: StreamService> EpollIo<S> {
    /// The same for one that has not taken all: it may be heard first, so that what is left is sent behind.
    fn serve_sending(&mut self, key: Key, events: EventFlags, now_ms: u64, service: &mut S) -> Fate {
        let is_heard = self.roster.get_mut(key).is_some_and(|connection| connection.is_heard_meanwhile());
        if is_heard && events.contains(EventFlags::IN) && self.read(key, now_ms, service) == Fate::Closed {
            return Fate::Closed;
        }
        self.write(key, now_ms, service)
    }
}

impl<S: StreamService> StreamIo<S> for EpollIo<S> {
    fn turn(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
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
        Ok(seen + self.have_speak(usize::MAX, now_ms, service))
    }

    fn retire(&mut self, now_ms: u64, service: &mut S) -> io::Result<()> {
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

    fn finish(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
        Ok(self.close_rest(now_ms, service))
    }

    fn trim(&mut self) {
        self.roster.trim();
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES_MAX + INPUT_BYTES_MAX);
    }

    fn connections(&self) -> usize {
        self.roster.len()
    }

    fn readiness(&self) -> io::Result<OwnedFd> {
        self.epoll.as_fd().try_clone_to_owned()
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
