//! The state of a connection, and its calls to the service.

use std::mem;
use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;
use rustix::net::SendFlags;
use shoal_base::transport::stream::{Handle, Next, StreamService};

use super::table::ConnectionTable;
use super::turn::Traffic;

/// Maximum number of times that a service with more output continues before other connections are served.
pub(super) const CONTINUES_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct Connection<T> {
    pub(super) session: T,
    /// The latest result of the service.
    pub(super) next: Next,
    /// Whether input has arrived since all output was last sent. The unsent output may then contain replies to it.
    pub(super) has_unsent_reply: bool,
    /// Whether the service knows of a backlog.
    pub(super) has_backlog: bool,
    /// Whether it waits for its [turn](super::turn).
    pub(super) waits: bool,
    /// Number of send timeouts since the last write of unprompted output.
    pub(super) send_timeouts: u8,
    /// Number of bytes discarded after the last reply.
    pub(super) discarded_bytes: u32,
    pub(super) traffic: Traffic,
    pub(super) socket: OwnedFd,
    /// Output that the socket has not accepted yet. Empty, and without memory, in most connections.
    pub(super) unsent: Vec<u8>,
    /// The number of its first bytes that have been sent since.
    pub(super) sent: usize,
    /// The events in the epoll set. `None` while the socket is not in the set.
    pub(super) interest: Option<EventFlags>,
}

pub(super) type Connections<S> = ConnectionTable<Connection<<S as StreamService>::Session>>;

/// Why the service is asked for output without input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The service has queued output.
    QueuedOutput,
    /// The peer has been silent for long.
    Silence,
}

impl<T> Connection<T> {
    pub(super) fn new(session: T, socket: OwnedFd) -> Self {
        Self {
            session,
            next: Next::Busy,
            has_unsent_reply: false,
            has_backlog: false,
            waits: false,
            send_timeouts: 0,
            discarded_bytes: 0,
            traffic: Traffic::default(),
            socket,
            unsent: Vec::new(),
            sent: 0,
            interest: None,
        }
    }

    /// Returns the flags of a send. The kernel keeps the rest of the last output until the shutdown that follows, and then
    /// sends it in one segment with the FIN, which saves a sixth of the time of a connection with one request.
    pub(super) const fn send_flags(&self) -> SendFlags {
        match self.next {
            Next::Close | Next::Linger => SendFlags::NOSIGNAL.union(SendFlags::MORE),
            _ => SendFlags::NOSIGNAL,
        }
    }

    pub(super) const fn unsent_bytes(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Tells the service that the connection can take output again, if so.
    pub(super) fn end_backlog<S: StreamService>(&mut self, handle: Handle, service: &mut S) {
        if self.has_backlog && self.unsent_bytes() == 0 {
            self.has_backlog = false;
            service.set_backlog(handle, 0);
        }
    }

    /// Returns whether the service may be asked for output: the connection is neither idle nor at its end.
    pub(super) const fn accepts_writes(&self) -> bool {
        matches!(self.next, Next::Upgraded | Next::Pinged | Next::Busy | Next::BusyNew | Next::More)
    }

    /// Returns whether input is read although output is unsent. That output may come from other clients, and must not
    /// block the client's own messages.
    pub(super) const fn reads_while_sending(&self) -> bool {
        self.has_backlog && !self.has_unsent_reply && self.accepts_writes()
    }

    /// Asks the service for output without input. Returns whether the service has given the connection up because of
    /// its silence.
    pub(super) fn write<S>(&mut self, service: &mut S, trigger: Trigger, output: &mut Vec<u8>) -> bool
    where
        S: StreamService<Session = T>,
    {
        let next = match trigger {
            Trigger::QueuedOutput => service.write(&mut self.session, output),
            Trigger::Silence => service.keep_alive(&mut self.session, output),
        };
        let is_end = matches!(next, Next::Close | Next::Linger);
        // A connection with more to process must remain in that state.
        if is_end || self.next != Next::More {
            self.next = next;
        }
        is_end && trigger == Trigger::Silence
    }

    /// Like `write`, but appends to the unsent output.
    pub(super) fn write_behind_unsent<S>(&mut self, service: &mut S, trigger: Trigger) -> bool
    where
        S: StreamService<Session = T>,
    {
        // The sent beginning is removed if it is the larger part, so that the buffer grows in proportion to the unsent
        // bytes.
        if self.sent > self.unsent.len() / 2 {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
        let mut unsent = mem::take(&mut self.unsent);
        let given_up = self.write(service, trigger, &mut unsent);
        self.unsent = unsent;
        given_up
    }
}
