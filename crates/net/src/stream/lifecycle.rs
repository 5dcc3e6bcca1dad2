//! The life of a connection: admission, eviction, the phase after each write, and timeouts. [`super::io`] receives and
//! sends bytes.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use shoal_base::transport::stream::{ConnectionKind, Handle, Next, Quota, Remote, StreamService};

use super::accept::AcceptFailure;
use super::connection::{Connection, Trigger};
use super::io::StreamIo;
use super::table::{Admission, MemoryVictim, Phase, Victim};
use super::{CLOSES_MAX, EndReason, StreamCounters};

/// Bytes of a refused connection's request that are read, so that the close does not reset the reply.
const REFUSED_BYTES_MAX: usize = 2048;

/// Maximum number of bytes that are discarded after the last reply. They allow for input that was already under way. A
/// client that sends more does not read its reply.
const DISCARDED_BYTES_MAX: u32 = 256 * 1024;

/// How many send timeouts of an upgraded connection may pass for the output of one write. This output also contains
/// messages from other clients, and the peer first has to read the kernel's buffer. With a write of 128 KiB and ten
/// seconds for a reply, a peer that reads 35 kbit/s stays connected.
const SEND_TIMEOUTS_MAX: u8 = 6;

/// Flags of the send before a shutdown: as much as there is room for, in one segment with the FIN, and no signal if the
/// peer is gone.
const SEND_LAST: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL).union(SendFlags::MORE);

/// The state of a connection after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Open,
    Closed,
}

/// Which write has just completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteCause {
    /// None: the peer's input was processed without output.
    NoReply,
    /// A reply, or other output that the peer has not read at once.
    Reply,
    /// Output that no input has caused.
    Unprompted,
}

impl<S: StreamService> StreamIo<S> {
    /// Registers a new connection, or refuses it.
    pub(super) fn register(
        &mut self,
        socket: OwnedFd,
        remote: &Remote,
        now_ms: u64,
        service: &mut S,
    ) -> Option<Handle> {
        let ip = remote.peer.map(|peer| peer.ip()).filter(|_| service.is_limited(remote));
        let quota = Quota { ip, kind: ConnectionKind::Http };
        let may_connect = service.may_connect(remote);
        let admitted = if may_connect { self.admit(quota, service) } else { Err(EndReason::RefusedRate) };
        self.table.counters().accepted.increment();
        match admitted {
            Ok(admission) => {
                let handle = self.table.next_handle();
                let connection = Connection::new(service.open(remote, handle), socket);
                Some(self.table.insert(admission, connection, now_ms))
            }
            Err(refused) => {
                self.count_refusal(refused);
                refuse(&socket, remote, service, self.table.counters());
                None
            }
        }
    }

    /// Counts a connection that is refused and closed.
    pub(super) fn count_refusal(&self, refused: EndReason) {
        let counters = self.table.counters();
        counters.closed.increment();
        counters.ended.of(refused).increment();
    }

    pub(super) fn admit(&mut self, quota: Quota, service: &mut S) -> Result<Admission, EndReason> {
        let mut admitted = self.table.admit(quota);
        if matches!(admitted, Err(EndReason::RefusedShare))
            && let Some(victim) = self.table.victim_for(quota.ip)
        {
            self.evict(victim, service);
            admitted = self.table.admit(quota);
        }
        // This check comes last, so that no connection is closed in favour of one that is refused anyway.
        if let Ok(admission) = &admitted
            && self.table.is_out_of_memory()
            && !self.make_memory(service)
        {
            self.table.cancel(admission);
            return Err(EndReason::RefusedMemory);
        }
        admitted
    }

    /// Handles a failed accept. Returns whether the next one may succeed. Fails with errors that would repeat forever.
    pub(super) fn recover(&mut self, errno: Errno, service: &mut S) -> io::Result<bool> {
        let failure = AcceptFailure::of(errno);
        if failure == AcceptFailure::Host {
            return Err(errno.into());
        }
        self.table.counters().accept_failed.increment();
        if failure != AcceptFailure::NoResources {
            return Ok(failure == AcceptFailure::Peer);
        }
        let victim = self.table.victim();
        Ok(victim.map(|victim| self.evict(victim, service)).is_some())
    }

    /// Closes a connection to make room.
    fn evict(&mut self, Victim { handle, phase, is_over_share, .. }: Victim, service: &mut S) {
        let counters = self.table.counters();
        counters.ended.of(EndReason::Evicted).increment();
        counters.evicted.of(phase).increment();
        counters.evicted_greedy.add(is_over_share.into());
        self.end_in(handle, phase, service);
    }

    /// Closes a connection in the way that its phase requires.
    fn end_in(&mut self, handle: Handle, phase: Phase, service: &mut S) {
        match phase {
            Phase::Idle | Phase::Request | Phase::Upgraded => {
                self.close_with_message(handle, service, S::expire)
            }
            // If the peer does not read it now, it would not read it from the kernel later either. A truncated reply
            // must not look complete.
            Phase::Send => self.reset(handle, service),
            Phase::Linger => self.close(handle, service),
        };
    }

    /// Records a connection's memory after an event. While all connections together hold too much, closes connections
    /// of the sources that hold most.
    pub(super) fn update_held(&mut self, handle: Handle, service: &mut S) {
        let Some(connection) = self.table.get_mut(handle) else { return };
        let mut held = service.held(&connection.session);
        held.variable += connection.unsent.capacity();
        self.table.update_held(handle, held);
        while self.table.is_over_budget() && self.make_memory(service) {}
    }

    /// Closes a connection of the source that holds most memory, see [`ConnectionTable::memory_victim`]. Returns
    /// whether it found one.
    ///
    /// [`ConnectionTable::memory_victim`]: super::table::ConnectionTable::memory_victim
    fn make_memory(&mut self, service: &mut S) -> bool {
        match self.table.memory_victim() {
            Some(MemoryVictim::Account(handle)) => {
                self.table.counters().ended.of(EndReason::EvictedMemory).increment();
                self.close_with_message(handle, service, S::shed);
            }
            Some(MemoryVictim::Connection(victim)) => self.evict(victim, service),
            None => return false,
        }
        true
    }

    /// Writes the queued output of all connections that have any and can take it. Returns their number.
    pub(super) fn write_queued(&mut self, now_ms: u64, service: &mut S) -> usize {
        let mut count = 0;
        while let Some(handle) = service.next_to_write() {
            count += 1;
            let is_at_ease = matches!(self.table.phase(handle), Some(Phase::Idle | Phase::Linger));
            let Some(connection) = self.table.get_mut(handle) else { continue };
            if is_at_ease || !connection.accepts_writes() {
                continue;
            }
            if connection.waits || connection.unsent_bytes() > 0 {
                self.report_backlog(handle, service);
            } else {
                self.write_unprompted(handle, Trigger::QueuedOutput, now_ms, service);
            }
        }
        count
    }

    /// Tells the service of a connection that cannot take output now: its socket has not accepted all of it, or it waits
    /// for its turn.
    pub(super) fn report_backlog(&mut self, handle: Handle, service: &mut S) {
        let Some(connection) = self.table.get_mut(handle) else { return };
        match connection.unsent_bytes() {
            0 if !connection.waits => return,
            0 => service.put_off(handle),
            unsent_bytes => service.set_backlog(handle, unsent_bytes),
        }
        connection.has_backlog = true;
    }

    /// Enters the phase that the service asks for, after all output has been sent.
    pub(super) fn finish_write(
        &mut self,
        handle: Handle,
        cause: WriteCause,
        now_ms: u64,
        service: &mut S,
    ) -> Outcome {
        let table = &mut self.table;
        let (phase, is_shutting_down) = (table.phase(handle), table.is_shutting_down());
        let Some(connection) = table.get_mut(handle) else { return Outcome::Closed };
        connection.send_timeouts = 0;
        if cause != WriteCause::NoReply {
            connection.has_unsent_reply = false;
        }
        connection.end_backlog(handle, service);
        match connection.next {
            Next::Close => {
                // With unread input, the close is a reset, and the kernel would discard the output that it keeps.
                let _ = shutdown(&connection.socket, Shutdown::Write);
                return self.close(handle, service);
            }
            Next::Idle | Next::Upgraded | Next::Pinged if is_shutting_down => {
                return self.close_with_message(handle, service, S::expire);
            }
            Next::Idle => table.enter(handle, Phase::Idle, now_ms),
            // Output does not end the silence of a peer.
            Next::Upgraded if cause == WriteCause::Unprompted && phase == Some(Phase::Upgraded) => {}
            Next::Upgraded => table.enter(handle, Phase::Upgraded, now_ms),
            Next::Pinged => {
                // The peer gets the whole time for its answer, once.
                connection.next = Next::Upgraded;
                table.enter(handle, Phase::Upgraded, now_ms);
            }
            Next::Linger => {
                // It fails if the peer is already gone, which the next read shows.
                let _ = shutdown(&connection.socket, Shutdown::Write);
                table.enter(handle, Phase::Linger, now_ms);
            }
            Next::BusyNew => {
                // The time restarts only once.
                connection.next = Next::Busy;
                table.enter(handle, Phase::Request, now_ms);
            }
            // The time of a request begins with its first bytes. More bytes of it do not extend it.
            Next::Busy if cause == WriteCause::Reply || phase != Some(Phase::Request) => {
                table.enter(handle, Phase::Request, now_ms);
            }
            Next::Busy | Next::More => {}
        }
        Outcome::Open
    }

    /// Discards input after the last reply.
    pub(super) fn discard_input(&mut self, handle: Handle, received: usize, service: &mut S) -> Outcome {
        let Some(connection) = self.table.get_mut(handle) else { return Outcome::Closed };
        connection.discarded_bytes =
            connection.discarded_bytes.saturating_add(u32::try_from(received).unwrap_or(u32::MAX));
        let is_too_much = connection.discarded_bytes > DISCARDED_BYTES_MAX;
        self.table.counters().add_received(received);
        if is_too_much { self.close(handle, service) } else { Outcome::Open }
    }

    /// Closes a connection with a last message from `append`, up to the room in the socket. With unsent earlier output,
    /// the message is left out, because it would come in the middle of that.
    pub(super) fn close_with_message(
        &mut self,
        handle: Handle,
        service: &mut S,
        append: impl FnOnce(&mut S, &mut S::Session, &mut Vec<u8>),
    ) -> Outcome {
        if let Some(connection) = self.table.get_mut(handle)
            && connection.unsent_bytes() == 0
        {
            let mut message = Vec::new();
            append(service, &mut connection.session, &mut message);
            let sent = try_send(&connection.socket, &message);
            self.table.counters().add_write(sent);
        }
        self.close(handle, service)
    }

    /// Closes a connection. The kernel still delivers the output that it has accepted.
    pub(super) fn close(&mut self, handle: Handle, service: &mut S) -> Outcome {
        if let Some(Connection { session, socket, .. }) = self.table.remove(handle) {
            service.close(session);
            // Closing the last descriptor removes it from the epoll set as well (`epoll(7)`).
            drop(socket);
        }
        Outcome::Closed
    }

    /// Closes a connection, and lets the kernel discard the output that the peer has not read (`socket(7)`, SO_LINGER).
    fn reset(&mut self, handle: Handle, service: &mut S) -> Outcome {
        if let Some(connection) = self.table.get_mut(handle) {
            // If this fails, the kernel gives up by itself later.
            let _ = sockopt::set_socket_linger(&connection.socket, Some(Duration::ZERO));
        }
        self.close(handle, service)
    }

    pub(super) fn fail(&mut self, handle: Handle, service: &mut S) -> Outcome {
        self.table.counters().ended.of(EndReason::Failed).increment();
        self.close(handle, service)
    }

    /// Handles overdue connections, and closes idle or upgraded ones during the shutdown; a bounded number. Returns how
    /// many.
    pub(super) fn handle_overdue(&mut self, now_ms: u64, service: &mut S) -> usize {
        for seen in 0..CLOSES_MAX {
            let first_at_rest = if self.table.is_shutting_down() { self.table.first_at_rest() } else { None };
            let due =
                first_at_rest.map(|handle| (handle, Phase::Idle)).or_else(|| self.table.overdue(now_ms));
            match due {
                None => return seen,
                Some((handle, Phase::Upgraded)) => {
                    // If the connection stays, its silence is measured again.
                    self.table.enter(handle, Phase::Upgraded, now_ms);
                    self.write_unprompted(handle, Trigger::Silence, now_ms, service);
                }
                Some((handle, Phase::Send)) => {
                    let Some(connection) = self.table.get_mut(handle) else { continue };
                    connection.send_timeouts += 1;
                    // A connection with unprompted output gets more time. Nothing else extends its time, so a peer that
                    // reads nothing, or too slowly, is disconnected.
                    if connection.has_backlog && connection.send_timeouts < SEND_TIMEOUTS_MAX {
                        self.table.enter(handle, Phase::Send, now_ms);
                    } else {
                        self.table.counters().ended.of(EndReason::SlowReader).increment();
                        self.reset(handle, service);
                    }
                }
                Some((handle, phase @ (Phase::Idle | Phase::Request | Phase::Linger))) => {
                    self.end_in(handle, phase, service);
                }
            }
        }
        CLOSES_MAX
    }

    /// Closes remaining connections during the shutdown, in any phase, a bounded number for each call. A client in the
    /// middle of a request gets an error. Returns the number of closed ones: after zero, none is left.
    pub fn close_remaining(&mut self, service: &mut S) -> usize {
        for closed in 0..CLOSES_MAX {
            let Some((handle, phase)) = self.table.first_to_close() else { return closed };
            self.end_in(handle, phase, service);
        }
        CLOSES_MAX
    }
}

/// Sends a refusal to a client without room.
fn refuse<S: StreamService>(socket: &OwnedFd, remote: &Remote, service: &mut S, counters: &StreamCounters) {
    let mut message = Vec::new();
    service.refuse(remote, &mut message);
    let received = recv(socket, &mut [0; REFUSED_BYTES_MAX], RecvFlags::DONTWAIT);
    counters.add_received(received.map_or(0, |(received, _)| received));
    counters.add_write(try_send(socket, &message));
}

/// Sends as much of `message` as the socket has room for, before the socket is closed. Returns the number of bytes; zero if the peer is gone.
pub(super) fn try_send(socket: &OwnedFd, message: &[u8]) -> usize {
    if message.is_empty() {
        return 0;
    }
    let sent = send(socket, message, SEND_LAST).unwrap_or(0);
    // With unread input, the close is a reset, and the kernel would discard the message that it keeps.
    let _ = shutdown(socket, Shutdown::Write);
    sent
}
