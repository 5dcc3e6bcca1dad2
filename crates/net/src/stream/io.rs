//! The connections of one worker over `epoll`, `accept4`, `recv` and `send`: how bytes are received and sent.
//!
//! A connection is read as soon as it is accepted, because the kernel hands it over with its first bytes
//! (TCP_DEFER_ACCEPT). So a connection with a single request never enters the epoll set. Events are level-triggered, so
//! an unhandled event comes up again.
//!
//! While a peer does not read its reply, nothing more is read from it. So a connection holds at most one reply and one
//! input, and a peer that does not read is disconnected after its time limit. The unsent bytes in the kernel are
//! limited as well (TCP_NOTSENT_LOWAT). Otherwise the kernel would buffer some MiB for each such client, from memory
//! that all connections of the host share.

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, send};
use shoal_base::transport::stream::{Handle, Next, OUTPUT_BYTES_MAX, StreamService};

use super::accept::{Accepting, accept};
use super::connection::{CONTINUES_MAX, Connection, Connections, Trigger};
use super::lifecycle::{Outcome, WriteCause};
use super::listen::BACKLOG;
use super::table::{ConnectionTable, Phase};
use super::turn::{SHARE_BYTES_MAX, Turns};
use super::{
    EndReason, INPUT_BYTES_MAX, POLL_EVENTS_MAX, SourceLimiter, SourceLimits, StreamLimits, StreamListeners,
};

/// Maximum number of connections accepted from one listener at a time.
const ACCEPTS_MAX: usize = 64;

/// Number of repetitions before a listener closes, which covers the whole backlog.
const LAST_ROUNDS_MAX: usize = BACKLOG.unsigned_abs() as usize / ACCEPTS_MAX;

/// The stream I/O of one worker: its listeners, its connections, and the buffers to serve them.
///
/// Its duties:
/// - [`StreamIo::poll`] never waits. The descriptor of [`StreamIo::readiness`] is readable when a poll round has work.
/// - It passes all bytes of a connection to the service in order, and sends the output of the service in order. While a
///   peer has not read its reply, nothing more is read from it.
/// - Unprompted output ([`StreamService::write`]) is sent in the same order, at the end of each poll round, or of the
///   round of its turn if the connection waits for one, in one write up to the room in the socket. The rest waits. The
///   service is told how much waits ([`StreamService::set_backlog`]), and is not asked for more before all of it is
///   sent. Meanwhile at most one input is read, or two if no reply to the first is among the waiting bytes. So the
///   memory for a peer that reads nothing is bounded, and a peer that others send much to is still served, at the latest
///   whenever it has read everything.
/// - Idle and upgraded connections hold no buffer. Other connections hold only the waiting bytes.
/// - It enforces [`StreamLimits`]. It closes a connection that is idle for too long, takes too long over a request, or
///   does not read its replies; unprompted output has more time. It pings a silent peer of an upgraded connection. If
///   there are too many connections, it closes one of the source with the most connections
///   ([`StreamLimits::connections_max`]).
/// - After each event it records how much memory the connection holds, including unread output. If all together exceed
///   the [`super::Budget`] of the worker, it closes connections of the sources that hold most.
/// - Input after the last reply is read and discarded for a moment before the socket closes, so that no reset overtakes
///   the reply.
/// - A poll round is bounded, and no listener or connection starves another. Quiet ones are served first, and
///   busy ones in turns.
/// - It counts errors that a peer can cause, and never fails because of them. Without free descriptors it closes a
///   connection in the same order and tries again, but it never spins.
/// - In the steady state it allocates nothing for a request.
pub struct StreamIo<S: StreamService> {
    pub(super) epoll: Arc<OwnedFd>,
    pub(super) listeners: StreamListeners,
    /// The listeners are in the epoll set while this is `Active`.
    accepting: Accepting,
    pub(super) table: Connections<S>,
    /// Connections of another process from which nothing has been read.
    pub(super) attached: Vec<Handle>,
    events: Vec<Event>,
    pub(super) turns: Turns,
    input: Box<[u8; INPUT_BYTES_MAX]>,
    /// Output of the service that is not sent yet.
    output: Vec<u8>,
}

/// A descriptor that is readable when a poll round of a [`StreamIo`] has work.
///
/// With shared listeners, a worker has to wait in this epoll set itself. If it waits for the set in another call, a
/// connection wakes all workers: an exclusive watch (EPOLLEXCLUSIVE) ends at the first worker that waits in its set,
/// and the kernel cannot see that through another set (`ep_poll_callback` of fs/eventpoll.c).
#[derive(Debug)]
pub struct Readiness {
    epoll: Arc<OwnedFd>,
    has_shared_listeners: bool,
}

impl Readiness {
    /// Adds the descriptors that end a wait to this set, if a worker has to wait here. Returns whether it does.
    pub(crate) fn join<'d>(&self, mut descriptors: impl Iterator<Item = BorrowedFd<'d>>) -> io::Result<bool> {
        if self.has_shared_listeners {
            descriptors.try_for_each(|descriptor| {
                epoll::add(&self.epoll, descriptor, EventData::new_u64(FOREIGN), EventFlags::IN)
            })?;
        }
        Ok(self.has_shared_listeners)
    }

    /// Removes the descriptors that have joined.
    pub(crate) fn part<'d>(&self, descriptors: impl Iterator<Item = BorrowedFd<'d>>) {
        for descriptor in descriptors {
            // It fails if the descriptor has not joined.
            let _ = epoll::delete(&self.epoll, descriptor);
        }
    }

    /// Waits in this set. Consumes no event.
    pub(crate) fn wait(&self, timeout: Option<&Timespec>) -> Result<(), Errno> {
        let mut event = [Event { flags: EventFlags::empty(), data: EventData::new_u64(FOREIGN) }];
        epoll::wait(&self.epoll, &mut event, timeout).map(drop)
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl<S: StreamService> fmt::Debug for StreamIo<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamIo").field("connections", &self.table.len()).finish_non_exhaustive()
    }
}

impl<S: StreamService> StreamIo<S> {
    /// Takes over the listeners of a worker. Fails if the kernel has no more descriptors.
    pub fn open(listeners: StreamListeners, limits: StreamLimits) -> io::Result<Self> {
        let table = ConnectionTable::new(
            limits,
            Arc::clone(&listeners.sources),
            listeners.counters(),
            listeners.budget(),
        );
        let mut io = Self {
            epoll: Arc::new(epoll::create(CreateFlags::CLOEXEC)?),
            listeners,
            accepting: Accepting::Paused { until_ms: 0 },
            table,
            events: Vec::with_capacity(POLL_EVENTS_MAX),
            turns: Turns::default(),
            attached: Vec::new(),
            input: Box::new([0; INPUT_BYTES_MAX]),
            output: Vec::with_capacity(OUTPUT_BYTES_MAX + INPUT_BYTES_MAX),
        };
        io.register_listeners()?;
        io.accepting = Accepting::Active;
        Ok(io)
    }

    /// Replaces the listeners. Accepts the waiting connections of removed ones first. Fails as [`StreamIo::poll`] does.
    pub fn set_listeners(
        &mut self,
        listeners: StreamListeners,
        now_ms: u64,
        service: &mut S,
    ) -> io::Result<()> {
        for index in 0..self.listeners.listeners.len() {
            if !listeners.contains(&self.listeners.listeners[index]) {
                self.accept_waiting(index, now_ms, service)?;
            }
        }
        self.pause_accepting(Accepting::Paused { until_ms: 0 });
        self.listeners = listeners;
        Ok(())
    }

    /// Replaces the limits, also for existing connections. Closes none for being too many.
    pub const fn set_limits(&mut self, limits: StreamLimits) {
        self.table.set_limits(limits);
    }

    /// Returns the limiter with which the service checks whether a source may have one more connection.
    pub fn source_limiter(&self, limits: SourceLimits) -> SourceLimiter {
        self.listeners.source_limiter(limits)
    }

    /// Runs a poll round at `now_ms`, of any monotonic clock. Returns the number of accepts, inputs, outputs and closes
    /// that it handled or left for the next round, at least [`POLL_EVENTS_MAX`] if it was full. If it is zero, the worker
    /// may wait. Fails with errors of this host that make it impossible to continue.
    pub fn poll(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
        self.resume_accepting(now_ms);
        let mut seen = self.handle_overdue(now_ms, service);
        self.events.clear();
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&no_wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        seen += self.turns.begin_round();
        let events = mem::take(&mut self.events);
        for &event in &events {
            seen += usize::from(event.data.u64() != FOREIGN);
            match Token::decode(event.data) {
                Token::Listener(index) => {
                    let accepted = self.accept(index as usize, now_ms, service)?;
                    if accepted > 0 && self.requeue(index as usize).is_err() {
                        self.pause_accepting(Accepting::pause(now_ms));
                    }
                    seen += accepted;
                }
                Token::Connection(handle) => self.serve_or_queue(handle, event.flags, now_ms, service),
                Token::Foreign => {}
            }
        }
        if self.is_full() {
            seen = seen.max(POLL_EVENTS_MAX);
        }
        self.events = events;
        self.serve_waiting(now_ms, service);
        Ok(seen + self.write_queued(now_ms, service))
    }

    /// Accepts the waiting connections, and no others from then on. Requests in progress continue in further poll
    /// rounds, which also close idle connections, a bounded number each. Fails as [`StreamIo::poll`] does.
    pub fn begin_shutdown(&mut self, now_ms: u64, service: &mut S) -> io::Result<()> {
        // Waiting connections would be reset when the listeners close.
        for index in 0..self.listeners.listeners.len() {
            self.accept_waiting(index, now_ms, service)?;
        }
        self.pause_accepting(Accepting::Stopped);
        self.listeners.listeners.clear();
        self.table.begin_shutdown();
        Ok(())
    }

    /// Accepts no more connections until [`resume`](Self::resume), so that another process can accept those that wait.
    pub fn pause(&mut self) {
        self.pause_accepting(Accepting::Paused { until_ms: u64::MAX });
    }

    /// Accepts connections again.
    pub fn resume(&mut self) {
        if self.accepting == (Accepting::Paused { until_ms: u64::MAX }) {
            self.accepting = Accepting::Paused { until_ms: 0 };
        }
    }

    /// Frees memory that was retained for reuse and not needed for some time. To be called every few seconds.
    pub fn trim(&mut self) {
        self.table.trim();
        self.trim_turns();
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES_MAX + INPUT_BYTES_MAX);
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Returns a descriptor that becomes readable when a poll round has work. It is not a new one, so that listeners
    /// can change while descriptors are exhausted.
    pub fn readiness(&self) -> Readiness {
        let has_shared_listeners = self.listeners.listeners.iter().any(|listener| listener.is_shared);
        Readiness { epoll: Arc::clone(&self.epoll), has_shared_listeners }
    }

    /// Accepts connections again if the pause is over.
    fn resume_accepting(&mut self, now_ms: u64) {
        if !self.accepting.is_due(now_ms) {
            return;
        }
        self.accepting = Accepting::Active;
        if self.register_listeners().is_err() {
            // The kernel has no memory for it, or there are too many watches. The shortage continues.
            self.table.counters().accept_failed.increment();
            self.pause_accepting(Accepting::pause(now_ms));
        }
    }

    fn register_listeners(&self) -> io::Result<()> {
        (0..self.listeners.listeners.len()).try_for_each(|index| self.register_listener(index))
    }

    fn register_listener(&self, index: usize) -> io::Result<()> {
        let token = Token::Listener(u32::try_from(index).unwrap_or(u32::MAX)).encode();
        // All workers watch the same Unix socket, and one of them is enough for a connection.
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        Ok(epoll::add(&self.epoll, &self.listeners.listeners[index].socket, token, flags)?)
    }

    /// Moves this worker behind the others that wait for the same listener. Otherwise the first worker would get nearly
    /// all connections, because the kernel wakes the first idle one.
    fn requeue(&self, index: usize) -> io::Result<()> {
        match self.listeners.listeners.get(index) {
            Some(listener) if listener.is_shared && self.accepting == Accepting::Active => {
                epoll::delete(&self.epoll, &listener.socket)?;
                self.register_listener(index)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn pause_accepting(&mut self, accepting: Accepting) {
        if self.accepting == Accepting::Active {
            for listener in &self.listeners.listeners {
                // It fails if the listener is not in the set, which has the same effect.
                let _ = epoll::delete(&self.epoll, &listener.socket);
            }
        }
        self.accepting = accepting;
    }

    fn accept_waiting(&mut self, index: usize, now_ms: u64, service: &mut S) -> io::Result<()> {
        for _ in 0..LAST_ROUNDS_MAX {
            if self.accept(index, now_ms, service)? < ACCEPTS_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Accepts connections from one listener and serves their first input. Returns their number. Fewer than
    /// [`ACCEPTS_MAX`] mean that no more are waiting, or that none can be accepted now.
    fn accept(&mut self, index: usize, now_ms: u64, service: &mut S) -> io::Result<usize> {
        let (mut accepted, full_bytes) = (0, self.turns.round_bytes + SHARE_BYTES_MAX);
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = self.listeners.listeners.get(index) else { break };
            match accept(listener, index) {
                Ok((socket, remote)) => {
                    accepted += 1;
                    if let Some(handle) = self.register(socket, &remote, now_ms, service) {
                        if self.turns.round_bytes < full_bytes {
                            self.take_turn(handle, EventFlags::IN, now_ms, service);
                        } else {
                            // Its first input is an event of the next round.
                            self.update_interest(handle, service);
                        }
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    if !self.recover(errno, service)? {
                        self.pause_accepting(Accepting::pause(now_ms));
                        break;
                    }
                }
            }
        }
        Ok(accepted)
    }

    /// Handles an event of a connection: receives once and serves the input, or sends unsent output. With unsent
    /// output, the input may be read first, so that its reply follows that output.
    pub(super) fn handle_event(&mut self, handle: Handle, events: EventFlags, now_ms: u64, service: &mut S) {
        let sends = self.table.phase(handle) == Some(Phase::Send);
        let Some(connection) = self.table.get_mut(handle) else { return };
        let mut outcome = Outcome::Open;
        if !sends || connection.reads_while_sending() && events.contains(EventFlags::IN) {
            outcome = match recv(&connection.socket, &mut self.input[..], RecvFlags::empty()) {
                Ok((0, _)) => self.close_with_message(handle, service, S::end_input),
                Ok((received, _)) if connection.next == Next::Linger => {
                    self.discard_input(handle, received, service)
                }
                Ok((received, _)) => self.serve_input(handle, received, now_ms, service),
                Err(Errno::AGAIN | Errno::INTR) => Outcome::Open,
                Err(_) => self.fail(handle, service),
            };
        }
        if sends && outcome == Outcome::Open {
            outcome = self.resume_flush(handle, now_ms, service);
        }
        if outcome == Outcome::Open {
            self.update_interest(handle, service);
            self.update_held(handle, service);
        }
    }

    pub(super) fn serve_input(
        &mut self,
        handle: Handle,
        received: usize,
        now_ms: u64,
        service: &mut S,
    ) -> Outcome {
        let Some(connection) = self.table.get_mut(handle) else { return Outcome::Closed };
        connection.has_unsent_reply = true;
        let (session, input) = (&mut connection.session, &mut self.input[..received]);
        self.output.clear();
        connection.next = service.receive(session, input, &mut self.output);
        self.table.counters().add_received(received);
        let outcome = self.send_reply(handle, now_ms, service);
        service.replied();
        outcome
    }

    /// Sends the output for an input, after the unsent output if there is any.
    fn send_reply(&mut self, handle: Handle, now_ms: u64, service: &mut S) -> Outcome {
        self.proceed(handle, service);
        match self.table.get_mut(handle) {
            // The next step follows when everything is sent.
            Some(connection) if connection.unsent_bytes() > 0 => {
                connection.unsent.extend_from_slice(&self.output);
                Outcome::Open
            }
            _ => self.flush(handle, WriteCause::NoReply, now_ms, service),
        }
    }

    /// Lets the service continue until it has output or waits for an event. Then records the connection's quota, and
    /// whether the connection is established.
    fn proceed(&mut self, handle: Handle, service: &mut S) {
        let Some(connection) = self.table.get_mut(handle) else { return };
        for _ in 0..CONTINUES_MAX {
            if connection.next != Next::More || !self.output.is_empty() {
                break;
            }
            connection.next = service.receive(&mut connection.session, &mut [], &mut self.output);
        }
        let quota = service.changed_quota(&mut connection.session);
        let is_established = service.is_established(&connection.session);
        if let Some(quota) = quota {
            self.table.set_quota(handle, quota);
        }
        if is_established {
            self.table.set_established(handle);
        }
    }

    /// Sends the output of the service, and takes the next step that the service has asked for.
    fn flush(&mut self, handle: Handle, mut cause: WriteCause, now_ms: u64, service: &mut S) -> Outcome {
        for _ in 0..CONTINUES_MAX {
            let Some(connection) = self.table.get_mut(handle) else { return Outcome::Closed };
            if !self.output.is_empty() {
                if cause == WriteCause::NoReply {
                    cause = WriteCause::Reply;
                }
                let sent = match send(&connection.socket, &self.output, connection.send_flags()) {
                    Ok(sent) => sent,
                    Err(Errno::AGAIN | Errno::INTR) => 0,
                    Err(_) => return self.fail(handle, service),
                };
                let is_whole = sent == self.output.len();
                if !is_whole {
                    connection.unsent.extend_from_slice(&self.output[sent..]);
                }
                self.table.counters().add_write(sent);
                if !is_whole {
                    self.table.enter(handle, Phase::Send, now_ms);
                    return Outcome::Open;
                }
            }
            let Some(connection) = self.table.get_mut(handle) else { return Outcome::Closed };
            if connection.next != Next::More {
                return self.finish_write(handle, cause, now_ms, service);
            }
            self.output.clear();
            self.proceed(handle, service);
        }
        // Other connections are served first. This one continues when the epoll set reports room in its socket.
        if let Some(connection) = self.table.get_mut(handle) {
            connection.unsent.extend_from_slice(&self.output);
            self.table.enter(handle, Phase::Send, now_ms);
        }
        Outcome::Open
    }

    /// Sends more of the unsent output, or continues after other connections were served.
    fn resume_flush(&mut self, handle: Handle, now_ms: u64, service: &mut S) -> Outcome {
        let Some(connection) = self.table.get_mut(handle) else { return Outcome::Closed };
        let flags = connection.send_flags();
        let Connection { socket, unsent, sent, has_backlog, .. } = connection;
        if !unsent.is_empty() {
            let newly_sent = match send(socket, &unsent[*sent..], flags) {
                Ok(newly_sent) => newly_sent,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(_) => return self.fail(handle, service),
            };
            *sent += newly_sent;
            let (is_whole, has_backlog) = (*sent == unsent.len(), *has_backlog);
            if is_whole {
                (*unsent, *sent) = (Vec::new(), 0);
            }
            self.table.counters().add_write(newly_sent);
            if !is_whole {
                if has_backlog {
                    self.report_backlog(handle, service);
                }
                return Outcome::Open;
            }
        }
        let Some(connection) = self.table.get_mut(handle) else { return Outcome::Closed };
        if connection.next != Next::More {
            return self.finish_write(handle, WriteCause::Reply, now_ms, service);
        }
        self.output.clear();
        self.proceed(handle, service);
        self.flush(handle, WriteCause::NoReply, now_ms, service)
    }

    /// Makes the epoll set watch for the events that the connection waits for. While the peer does not read its
    /// replies, its input is not watched. A connection that waits for its turn is not watched either.
    fn update_interest(&mut self, handle: Handle, service: &mut S) {
        let sends = self.table.phase(handle) == Some(Phase::Send);
        let Some(connection) = self.table.get_mut(handle).filter(|connection| !connection.waits) else {
            return;
        };
        let wanted = match (sends, connection.reads_while_sending()) {
            (false, _) => EventFlags::IN,
            (true, false) => EventFlags::OUT,
            (true, true) => EventFlags::OUT | EventFlags::IN,
        };
        let token = Token::Connection(handle).encode();
        let outcome = match connection.interest {
            Some(watched) if watched == wanted => return,
            Some(_) => epoll::modify(&self.epoll, &connection.socket, token, wanted),
            None => epoll::add(&self.epoll, &connection.socket, token, wanted),
        };
        connection.interest = Some(wanted);
        if outcome.is_err() {
            // There is no memory for the watch, or there are too many. Without events the connection would stay
            // forever.
            self.fail(handle, service);
        }
    }

    /// Asks the service for output without input, if the connection accepts writes, and sends it after the unsent
    /// output.
    pub(super) fn write_unprompted(
        &mut self,
        handle: Handle,
        trigger: Trigger,
        now_ms: u64,
        service: &mut S,
    ) {
        let sends = self.table.phase(handle) == Some(Phase::Send);
        let Some(connection) = self.table.get_mut(handle) else { return };
        let given_up = if sends {
            connection.write_behind_unsent(service, trigger)
        } else {
            self.output.clear();
            connection.write(service, trigger, &mut self.output)
        };
        if given_up {
            self.table.counters().ended.of(EndReason::Silent).increment();
        }
        if sends || self.flush(handle, WriteCause::Unprompted, now_ms, service) == Outcome::Open {
            self.report_backlog(handle, service);
            self.update_interest(handle, service);
            self.update_held(handle, service);
        }
    }
}

/// The subject of an event, in the 64 bits that the kernel stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Listener(u32),
    Connection(Handle),
    /// A descriptor of the datagram back end, which only ends a wait.
    Foreign,
}

/// Generations of handles end below this.
const LISTENER: u32 = Handle::GENERATION_MAX + 1;

/// The bits of [`Token::Foreign`].
const FOREIGN: u64 = u64::MAX;

impl Token {
    fn encode(self) -> EventData {
        let (high, low) = match self {
            Self::Listener(index) => (LISTENER, index),
            Self::Connection(Handle { index, generation }) => (generation, index),
            Self::Foreign => return EventData::new_u64(FOREIGN),
        };
        EventData::new_u64(u64::from(high) << 32 | u64::from(low))
    }

    pub(super) fn decode(data: EventData) -> Self {
        let bits = data.u64();
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits are left");
        let (high, low) = (half(bits >> 32), half(bits));
        match high {
            LISTENER => Self::Listener(low),
            ..LISTENER => Self::Connection(Handle { index: low, generation: high }),
            _ => Self::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_back() {
        let handle = |index, generation| Token::Connection(Handle { index, generation });
        for token in [
            Token::Foreign,
            Token::Listener(0),
            Token::Listener(u32::MAX),
            handle(0, 0),
            handle(u32::MAX, Handle::GENERATION_MAX),
        ] {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }
}
