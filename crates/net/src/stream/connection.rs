//! What is kept of a connection, and its conversation with the service.

use std::mem;
use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;
use shoal_transport::stream::{Next, StreamService};

use super::roster::Roster;
use super::slab::Key;

/// How often a service that has more to say is asked to go on before others get their turn.
pub(super) const MORE_MAX: usize = 4;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection<T> {
    pub(super) session: T,
    /// What the service said last.
    pub(super) next: Next,
    /// Whether input came since all was sent last: replies to it may be among what waits.
    pub(super) is_owed: bool,
    /// Whether the service was told that it has a backlog.
    pub(super) has_backlog: bool,
    /// How often the time for an answer has passed since the speech that it has not taken.
    pub(super) delays: u8,
    /// Bytes that came after the last answer and that nobody reads.
    pub(super) overheard_bytes: u32,
    pub(super) socket: OwnedFd,
    /// What the socket has not taken yet. Empty, and without memory, in most connections.
    pub(super) unsent: Vec<u8>,
    /// How much of that has been sent since.
    pub(super) sent: usize,
    /// What the epoll set watches the socket for; nothing before it is in the set.
    pub(super) watched: Option<EventFlags>,
}

/// The connections of a worker that serves with `S`.
pub(super) type Connections<S> = Roster<Connection<<S as StreamService>::Session>>;

/// Why the service speaks without the peer having been heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// It wants to.
    Speak,
    /// The peer has been silent for long.
    Tend,
}

impl<T> Connection<T> {
    /// A connection that has just been accepted.
    pub(super) const fn new(session: T, socket: OwnedFd) -> Self {
        Self {
            session,
            next: Next::Busy,
            is_owed: false,
            has_backlog: false,
            delays: 0,
            overheard_bytes: 0,
            socket,
            unsent: Vec::new(),
            sent: 0,
            watched: None,
        }
    }

    /// Returns how many bytes wait for the peer to take them.
    pub(super) const fn unsent_bytes(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Returns what is unsent, without what has been sent of it since as soon as that is the larger part: so what is
    /// appended behind takes room in proportion to what waits.
    fn take_unsent(&mut self) -> Vec<u8> {
        if self.sent > self.unsent.len() / 2 {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
        mem::take(&mut self.unsent)
    }

    /// Whether it may be spoken to: it is not idle, nor at its end.
    pub(super) const fn may_be_told(&self) -> bool {
        matches!(self.next, Next::Upgraded | Next::Busy | Next::BusyNew | Next::More)
    }

    /// Whether it is heard although not all is sent: others may have had something to say to it, for which its own
    /// messages do not wait.
    pub(super) const fn is_heard_meanwhile(&self) -> bool {
        self.has_backlog && !self.is_owed && self.may_be_told()
    }

    /// Lets the service speak unasked. Returns whether it has given the connection up for its silence.
    pub(super) fn tell<S>(&mut self, service: &mut S, why: Unasked, output: &mut Vec<u8>) -> bool
    where
        S: StreamService<Session = T>,
    {
        let next = match why {
            Unasked::Speak => service.write(&mut self.session, output),
            Unasked::Tend => service.keep_alive(&mut self.session, output),
        };
        let is_end = matches!(next, Next::Close | Next::Linger);
        // Who has more to look at must not be forgotten for what was said in between.
        if is_end || self.next != Next::More {
            self.next = next;
        }
        is_end && why == Unasked::Tend
    }

    /// Does the same behind what is unsent.
    pub(super) fn tell_behind<S>(&mut self, service: &mut S, why: Unasked) -> bool
    where
        S: StreamService<Session = T>,
    {
        let mut unsent = self.take_unsent();
        let given_up = self.tell(service, why, &mut unsent);
        self.unsent = unsent;
        given_up
    }
}

impl<T> Roster<Connection<T>> {
    /// Hands `input` to the service, and lets it go on until it says something or waits for something. Notes what the
    /// connection counts towards from then on.
    pub(super) fn hear<S>(&mut self, key: Key, service: &mut S, input: &mut [u8], output: &mut Vec<u8>)
    where
        S: StreamService<Session = T>,
    {
        let Some(connection) = self.get_mut(key) else { return };
        connection.is_owed |= !input.is_empty();
        connection.next = service.receive(&mut connection.session, input, output);
        for _ in 1..MORE_MAX {
            if connection.next != Next::More || !output.is_empty() {
                break;
            }
            connection.next = service.receive(&mut connection.session, &mut [], output);
        }
        if let Some(quota) = service.changed_quota(&mut connection.session) {
            self.set_quota(key, quota);
        }
    }
}
