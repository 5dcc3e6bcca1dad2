//! The portable stream back end: `epoll`, `accept4`, `recv` and `send`.
//!
//! A connection that has just been accepted is read at once, since the kernel hands it over with its first bytes
//! (TCP_DEFER_ACCEPT); so one that asks once and goes never enters the epoll set. Events are level-triggered: what
//! a turn leaves undone comes up again by itself.

use std::fmt;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, acceptfrom_with, recv, send, shutdown};
use shoal_wire::stream::{Next, Origin};

use super::roster::{Phase, Refused, Roster};
use super::slab::Key;
use super::{
    INPUT_BYTES_MAX, OUTPUT_BYTES_MAX, StreamCounters, StreamIo, StreamLimits, StreamListeners,
    StreamService, TURN_EVENTS_MAX,
};

/// Most connections that one listener is accepted from in a turn.
const ACCEPTS_MAX: usize = 64;

/// How often a service that has more to say is asked to go on before others get their turn.
const MORE_MAX: usize = 4;

/// For how long no connections are accepted after the descriptors ran out and nobody idled.
const PAUSE_MS: u64 = 100;

/// The back end over epoll.
pub struct EpollIo<S: StreamService> {
    epoll: OwnedFd,
    listeners: StreamListeners,
    accepting: Accepting,
    roster: Roster<Connection<S::Session>>,
    counters: Arc<StreamCounters>,
    events: Vec<Event>,
    input: Box<[u8; INPUT_BYTES_MAX]>,
    /// What the service says, before it is sent.
    output: Vec<u8>,
}

/// Whether the listeners are in the epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    Yes,
    /// Not before this time.
    Paused {
        until_ms: u64,
    },
    /// Not any more.
    Retired,
}

struct Connection<T> {
    socket: OwnedFd,
    session: T,
    /// What the socket has not taken yet. Empty, and without memory, in most connections.
    unsent: Vec<u8>,
    /// How much of that has been sent since.
    sent: usize,
    /// What the service said last.
    next: Next,
    /// What the epoll set watches it for; nothing before it is in the set.
    watched: Option<EventFlags>,
}

/// What became of an attempt to go on with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Closed,
}

impl<T> Connection<T> {
    /// Whether it is its turn when the socket has room, and not when bytes arrive: while it does not take what is
    /// sent, it is not heard either.
    const fn wants_to_send(&self) -> bool {
        !self.unsent.is_empty() || matches!(self.next, Next::More)
    }
}

impl<S: StreamService> fmt::Debug for EpollIo<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpollIo").field("connections", &self.roster.len()).finish_non_exhaustive()
    }
}

impl<S: StreamService> EpollIo<S> {
    /// Takes over the listeners of a worker.
    ///
    /// # Errors
    /// Where the kernel has no more descriptors.
    pub fn open(listeners: StreamListeners, limits: StreamLimits) -> io::Result<Self> {
        let counters = listeners.counters();
        let roster = Roster::new(limits, Arc::clone(&listeners.sources), Arc::clone(&counters));
        let mut io = Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            listeners,
            accepting: Accepting::Paused { until_ms: 0 },
            roster,
            counters,
            events: Vec::with_capacity(TURN_EVENTS_MAX),
            input: Box::new([0; INPUT_BYTES_MAX]),
            output: Vec::with_capacity(OUTPUT_BYTES_MAX + INPUT_BYTES_MAX),
        };
        io.resume(0)?;
        Ok(io)
    }

    /// Watches the listeners, if it is time for that.
    fn resume(&mut self, now_ms: u64) -> io::Result<()> {
        let Accepting::Paused { until_ms } = self.accepting else { return Ok(()) };
        if now_ms < until_ms {
            return Ok(());
        }
        for (index, listener) in (0..).zip(&self.listeners.listeners) {
            // All workers watch the same Unix socket, and one of them is enough for a connection.
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            epoll::add(&self.epoll, &listener.socket, Token::Listener(index).encode(), flags)?;
        }
        self.accepting = Accepting::Yes;
        Ok(())
    }

    fn pause(&mut self, accepting: Accepting) {
        if self.accepting == Accepting::Yes {
            for listener in &self.listeners.listeners {
                // It is in the set, so this cannot fail.
                let _ = epoll::delete(&self.epoll, &listener.socket);
            }
        }
        self.accepting = accepting;
    }

    /// Accepts from one listener, and serves what comes along. Returns how many connections came.
    fn accept(&mut self, listener: usize, now_ms: u64, service: &mut S) -> io::Result<usize> {
        let Some(socket) =
            self.listeners.listeners.get(listener).map(|listener| Arc::clone(&listener.socket))
        else {
            return Ok(0);
        };
        let mut accepted = 0;
        while accepted < ACCEPTS_MAX {
            match acceptfrom_with(&socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((connection, peer)) => {
                    accepted += 1;
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    self.welcome(connection, Origin { listener, peer }, now_ms, service);
                }
                Err(Errno::AGAIN) => break,
                Err(errno) => match Trouble::of(errno) {
                    Trouble::Peer => self.counters.accept_failed.add(1),
                    Trouble::Host => return Err(errno.into()),
                    Trouble::Scarcity => {
                        self.counters.accept_failed.add(1);
                        if !self.evict(service) {
                            self.pause(Accepting::Paused { until_ms: now_ms + PAUSE_MS });
                            break;
                        }
                    }
                },
            }
        }
        Ok(accepted)
    }

    /// Takes a new connection in, or refuses it, and reads its first bytes.
    fn welcome(&mut self, socket: OwnedFd, origin: Origin, now_ms: u64, service: &mut S) {
        self.counters.accepted.add(1);
        let limited = service.is_limited(&origin);
        let mut admitted = self.roster.admit(&origin, limited);
        if matches!(admitted, Err(Refused::Full)) && self.evict(service) {
            admitted = self.roster.admit(&origin, limited);
        }
        let admission = match admitted {
            Ok(admission) => admission,
            Err(refused) => {
                self.counters.closed.add(1);
                let reason = match refused {
                    Refused::Full => &self.counters.refused_full,
                    Refused::Source => &self.counters.refused_source,
                };
                reason.add(1);
                self.output.clear();
                service.refuse(&origin, &mut self.output);
                // As far as it fits at once; the request is read, or closing would reset what is sent.
                let _ = recv(&socket, self.input.as_mut_slice(), RecvFlags::DONTWAIT);
                let _ = send(&socket, &self.output, SendFlags::NOSIGNAL);
                return;
            }
        };
        let session = service.open(&origin);
        let connection =
            Connection { socket, session, unsent: Vec::new(), sent: 0, next: Next::Busy, watched: None };
        let key = self.roster.insert(admission, connection, now_ms);
        if self.read(key, now_ms, service) == Fate::Open {
            self.watch(key, service);
        }
    }

    /// Closes the connection that has idled longest. Returns whether there was one.
    fn evict(&mut self, service: &mut S) -> bool {
        let Some(oldest) = self.roster.oldest_idle() else { return false };
        self.counters.evicted.add(1);
        self.dismiss(oldest, service);
        true
    }

    /// Reads once, and serves what has come.
    fn read(&mut self, key: Key, now_ms: u64, service: &mut S) -> Fate {
        let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
        let received = match recv(&connection.socket, self.input.as_mut_slice(), RecvFlags::empty()) {
            Ok((0, _)) => return self.close(key, service),
            Ok((received, _)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Fate::Open,
            Err(_) => {
                self.counters.failed.add(1);
                return self.close(key, service);
            }
        };
        self.counters.received_bytes.add(received);
        if connection.next == Next::Linger {
            return Fate::Open;
        }
        self.output.clear();
        connection.next =
            service.receive(&mut connection.session, &mut self.input[..received], &mut self.output);
        self.go_on(key, now_ms, service)
    }

    /// Sends what the service has said, and does what it said is next.
    fn go_on(&mut self, key: Key, now_ms: u64, service: &mut S) -> Fate {
        for _ in 0..MORE_MAX {
            let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
            let has_output = !self.output.is_empty();
            if has_output {
                match send(&connection.socket, &self.output, SendFlags::NOSIGNAL) {
                    Ok(sent) => {
                        self.counters.sent_bytes.add(sent);
                        connection.unsent.extend_from_slice(&self.output[sent..]);
                    }
                    Err(Errno::AGAIN | Errno::INTR) => connection.unsent.extend_from_slice(&self.output),
                    Err(_) => {
                        self.counters.failed.add(1);
                        return self.close(key, service);
                    }
                }
                if !connection.unsent.is_empty() {
                    self.roster.enter(key, Phase::Send, now_ms);
                    return Fate::Open;
                }
            }
            if connection.next != Next::More {
                return self.settle(key, has_output, now_ms, service);
            }
            self.output.clear();
            connection.next = service.receive(&mut connection.session, &mut [], &mut self.output);
        }
        // Others are served first. What the service has said since goes first when it is this one's turn again.
        if let Some(connection) = self.roster.get_mut(key) {
            connection.unsent.extend_from_slice(&self.output);
            self.roster.enter(key, Phase::Send, now_ms);
        }
        Fate::Open
    }

    /// All is sent: waits for what the service wants to wait for.
    fn settle(&mut self, key: Key, has_answered: bool, now_ms: u64, service: &mut S) -> Fate {
        let phase = self.roster.phase(key);
        let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
        match connection.next {
            Next::Close => return self.close(key, service),
            Next::Idle => self.roster.enter(key, Phase::Idle, now_ms),
            Next::Linger => {
                // It fails where the peer has gone already, which the next read tells.
                let _ = shutdown(&connection.socket, Shutdown::Write);
                self.roster.enter(key, Phase::Linger, now_ms);
            }
            // The time of a request begins with its first bytes; more of it does not prolong it.
            Next::Busy if has_answered || phase != Some(Phase::Request) => {
                self.roster.enter(key, Phase::Request, now_ms);
            }
            Next::Busy | Next::More => {}
        }
        Fate::Open
    }

    /// Sends more of what the socket had no room for.
    fn write(&mut self, key: Key, now_ms: u64, service: &mut S) -> Fate {
        let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
        if !connection.unsent.is_empty() {
            match send(&connection.socket, &connection.unsent[connection.sent..], SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.counters.sent_bytes.add(sent);
                    connection.sent += sent;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => {
                    self.counters.failed.add(1);
                    return self.close(key, service);
                }
            }
            if connection.sent < connection.unsent.len() {
                return Fate::Open;
            }
        }
        (connection.unsent, connection.sent) = (Vec::new(), 0);
        if connection.next != Next::More {
            return self.settle(key, true, now_ms, service);
        }
        self.output.clear();
        connection.next = service.receive(&mut connection.session, &mut [], &mut self.output);
        self.go_on(key, now_ms, service)
    }

    /// Has the epoll set watch a connection for what it waits for.
    fn watch(&mut self, key: Key, service: &mut S) {
        let Some(connection) = self.roster.get_mut(key) else { return };
        let wanted = if connection.wants_to_send() { EventFlags::OUT } else { EventFlags::IN };
        let token = Token::Connection(key).encode();
        let outcome = match connection.watched {
            Some(watched) if watched == wanted => return,
            Some(_) => epoll::modify(&self.epoll, &connection.socket, token, wanted),
            None => epoll::add(&self.epoll, &connection.socket, token, wanted),
        };
        connection.watched = Some(wanted);
        if outcome.is_err() {
            // No memory for it, or too many watches: without events it would stay for ever.
            self.counters.failed.add(1);
            self.close(key, service);
        }
    }

    /// Closes a connection that is healthy, with last words as far as the socket has room for them.
    fn dismiss(&mut self, key: Key, service: &mut S) {
        let Some(connection) = self.roster.get_mut(key) else { return };
        if connection.unsent.is_empty() {
            // The output may be in use by the connection for which this one makes room.
            let mut last_words = Vec::new();
            service.expire(&mut connection.session, &mut last_words);
            if !last_words.is_empty() {
                let _ = send(&connection.socket, &last_words, SendFlags::NOSIGNAL);
            }
        }
        self.close(key, service);
    }

    fn close(&mut self, key: Key, service: &mut S) -> Fate {
        if let Some(connection) = self.roster.remove(key) {
            service.close(connection.session);
        }
        Fate::Closed
    }

    fn close_overdue(&mut self, now_ms: u64, service: &mut S) {
        for _ in 0..TURN_EVENTS_MAX {
            match self.roster.overdue(now_ms) {
                Some((key, Phase::Idle | Phase::Request)) => self.dismiss(key, service),
                Some((key, Phase::Send | Phase::Linger)) => drop(self.close(key, service)),
                None => break,
            }
        }
    }
}

impl<S: StreamService> StreamIo<S> for EpollIo<S> {
    fn turn(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
        self.resume(now_ms)?;
        self.close_overdue(now_ms, service);
        self.events.clear();
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&no_wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let events = mem::take(&mut self.events);
        let mut seen = events.len();
        for event in &events {
            match Token::decode(event.data) {
                Token::Listener(index) => seen += self.accept(index as usize, now_ms, service)?,
                Token::Connection(key) => {
                    let fate = match self.roster.get_mut(key) {
                        None => Fate::Closed,
                        Some(connection) if connection.wants_to_send() => self.write(key, now_ms, service),
                        Some(_) => self.read(key, now_ms, service),
                    };
                    if fate == Fate::Open {
                        self.watch(key, service);
                    }
                }
            }
        }
        self.events = events;
        Ok(seen)
    }

    fn retire(&mut self, now_ms: u64, service: &mut S) -> io::Result<()> {
        // Who waits to be accepted would be reset when the listeners close.
        for listener in 0..self.listeners.listeners.len() {
            self.accept(listener, now_ms, service)?;
        }
        self.pause(Accepting::Retired);
        self.listeners.listeners.clear();
        while let Some(idle) = self.roster.oldest_idle() {
            self.dismiss(idle, service);
        }
        Ok(())
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

/// What a failed accept tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection was gone before it was accepted, or the network failed it (`accept(2)`, "Error handling").
    Peer,
    /// There are no descriptors or no memory for more.
    Scarcity,
    /// A fault in this program or host that would only repeat itself.
    Host,
}

impl Trouble {
    pub(super) fn of(errno: Errno) -> Self {
        match errno {
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => Self::Scarcity,
            Errno::BADF | Errno::FAULT | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP => Self::Host,
            _ => Self::Peer,
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
