//! What becomes of connections: who is taken in, who goes to make room, what a connection waits for after an answer, and
//! whose time is up. How bytes get in and out is in [`super::io`].

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use shoal_transport::stream::{Next, Remote, StreamService};

use super::accept::Trouble;
use super::connection::{Connection, Unasked};
use super::io::StreamIo;
use super::roster::{Admission, GiveBack, Phase, Refused, Spare};
use super::slab::Key;
use super::{StreamCounters, TURN_EVENTS_MAX};
use crate::socket::options::is_receiving;

/// Bytes of the request of a connection that is refused, which are read so that closing does not reset the answer.
const REFUSED_BYTES_MAX: usize = 2048;

/// Most bytes that are thrown away after the last answer. They are there for what was on its way already; whoever sends
/// on and on is not listening.
const OVERHEARD_BYTES_MAX: u32 = 256 * 1024;

/// How many times the time for an answer a standing connection has to take what one speech gave. What others have for its
/// peer, and what the kernel holds for it, comes on top of what it asked for. With a speech of 128 KiB and ten seconds
/// for an answer, a peer that reads 35 kbit/s is kept.
const SPEECH_TIMES_MAX: u8 = 6;

/// Flags of all that is sent here: as far as there is room, and without a signal where the peer has gone.
const SEND_NOW: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// What became of an attempt to go on with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Open,
    Closed,
}

/// What has come to its end when a connection has nothing more to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The peer was heard, and there was nothing to say to it.
    Heard,
    /// The peer was heard, or not in a hurry to take what it was told, and was told all of it.
    Answered,
    /// The peer was told something that it did not ask for.
    Told,
}

impl<S: StreamService> StreamIo<S> {
    /// Takes a new connection in, or refuses it.
    pub(super) fn welcome(
        &mut self,
        socket: OwnedFd,
        remote: &Remote,
        now_ms: u64,
        service: &mut S,
    ) -> Option<Key> {
        self.roster.counters().accepted.add(1);
        match self.admit(remote, service) {
            Ok(admission) => {
                let handle = self.roster.next_key();
                let connection = Connection::new(service.open(remote, handle), socket);
                Some(self.roster.insert(admission, connection, now_ms))
            }
            Err(refused) => {
                let counters = self.roster.counters();
                counters.closed.add(1);
                match refused {
                    Refused::Full => counters.refused_share.add(1),
                    Refused::Source => counters.refused_source.add(1),
                    Refused::Memory => counters.refused_memory.add(1),
                }
                refuse(&socket, remote, service, counters);
                None
            }
        }
    }

    fn admit(&mut self, remote: &Remote, service: &mut S) -> Result<Admission, Refused> {
        let limited = service.is_limited(remote);
        let mut admitted = self.roster.admit(remote, limited);
        if matches!(admitted, Err(Refused::Full))
            && let Some(spare) = self.roster.spare_for(remote, limited)
        {
            self.evict(spare, service);
            admitted = self.roster.admit(remote, limited);
        }
        // Last, so that no other connection makes room for one that does not enter anyway.
        if let Ok(admission) = &admitted
            && self.roster.is_out_of_memory()
            && !self.make_memory(service)
        {
            self.roster.withdraw(admission);
            return Err(Refused::Memory);
        }
        admitted
    }

    /// Sees to a failed accept. Returns whether the next one may succeed.
    ///
    /// # Errors
    /// Where it would fail for ever.
    pub(super) fn recover(&mut self, errno: Errno, service: &mut S) -> io::Result<bool> {
        let trouble = Trouble::of(errno);
        if trouble == Trouble::Host {
            return Err(errno.into());
        }
        self.roster.counters().accept_failed.add(1);
        if trouble != Trouble::Scarcity {
            return Ok(trouble == Trouble::Peer);
        }
        let spare = self.roster.first_to_go();
        Ok(spare.map(|spare| self.evict(spare, service)).is_some())
    }

    /// Closes a connection to make room.
    fn evict(&mut self, Spare { key, phase, greed }: Spare, service: &mut S) {
        self.roster.counters().evicted.add(phase, greed > 1);
        self.end(key, phase, service);
    }

    /// Closes a connection as its phase demands.
    fn end(&mut self, key: Key, phase: Phase, service: &mut S) {
        match phase {
            Phase::Idle | Phase::Request | Phase::Upgraded => self.close_with_words(key, service, S::expire),
            // What it does not take now, it would not take from the kernel later; and an answer that is cut off must not
            // look as if this was its end.
            Phase::Send => self.reset(key, service),
            Phase::Linger => self.close(key, service),
        };
    }

    /// Notes what a connection holds after something has happened on it, and closes connections of the sources that hold
    /// most while that is too much for all.
    pub(super) fn note_held(&mut self, key: Key, service: &mut S) {
        let Some(connection) = self.roster.get_mut(key) else { return };
        let mut held = service.held(&connection.session);
        held.variable += connection.unsent.capacity();
        self.roster.note_held(key, held);
        while self.roster.is_over_budget() && self.make_memory(service) {}
    }

    /// Closes a connection of the source that holds most, see [`Roster::first_to_give_back`]. Returns whether there was one.
    ///
    /// [`Roster::first_to_give_back`]: super::roster::Roster::first_to_give_back
    fn make_memory(&mut self, service: &mut S) -> bool {
        match self.roster.first_to_give_back() {
            Some(GiveBack::Holder(key)) => {
                self.roster.counters().evicted_memory.add(1);
                self.close_with_words(key, service, S::shed);
            }
            Some(GiveBack::Spare(spare)) => self.evict(spare, service),
            None => return false,
        }
        true
    }

    /// Lets the service check connections whose peers may be gone. Returns how many it checked.
    pub(super) fn check_suspects(&mut self, service: &mut S) -> usize {
        service.check_suspects(|key| {
            self.roster.get_mut(key).is_some_and(|connection| is_receiving(&connection.socket))
        })
    }

    /// Lets all those speak who are to. Returns how many there were.
    pub(super) fn have_all_speak(&mut self, now_ms: u64, service: &mut S) -> usize {
        let mut count = 0;
        while let Some(key) = service.next_to_write() {
            count += 1;
            let is_at_ease = matches!(self.roster.phase(key), Some(Phase::Idle | Phase::Linger));
            let Some(connection) = self.roster.get_mut(key) else { continue };
            if is_at_ease || !connection.may_be_told() {
                continue;
            }
            if connection.unsent_bytes() > 0 {
                self.note_backlog(key, service);
            } else {
                self.tell(key, Unasked::Speak, now_ms, service);
            }
        }
        count
    }

    /// Tells the service if something waits for the peer of a connection on which it speaks unasked.
    pub(super) fn note_backlog(&mut self, key: Key, service: &mut S) {
        if let Some(connection) = self.roster.get_mut(key)
            && connection.unsent_bytes() > 0
        {
            connection.has_backlog = true;
            service.set_backlog(key, connection.unsent_bytes());
        }
    }

    /// The time for an answer has passed: a connection that was told something unasked has some more. Nothing else gives
    /// it time, so a peer that takes nothing, or too slowly, does not stay.
    fn delay(&mut self, key: Key, now_ms: u64, service: &mut S) {
        let Some(connection) = self.roster.get_mut(key) else { return };
        connection.delays += 1;
        if connection.has_backlog && connection.delays < SPEECH_TIMES_MAX {
            self.roster.enter(key, Phase::Send, now_ms);
        } else {
            self.roster.counters().timed_out_send.add(1);
            self.reset(key, service);
        }
    }

    /// All is sent: waits for what the service wants to wait for.
    pub(super) fn settle(&mut self, key: Key, occasion: Occasion, now_ms: u64, service: &mut S) -> Fate {
        let roster = &mut self.roster;
        let (phase, is_retired) = (roster.phase(key), roster.is_retired());
        let Some(connection) = roster.get_mut(key) else { return Fate::Closed };
        connection.delays = 0;
        if occasion != Occasion::Heard {
            connection.is_owed = false;
        }
        if connection.has_backlog {
            connection.has_backlog = false;
            service.set_backlog(key, 0);
        }
        match connection.next {
            Next::Close => return self.close(key, service),
            Next::Idle | Next::Upgraded if is_retired => {
                return self.close_with_words(key, service, S::expire);
            }
            Next::Idle => roster.enter(key, Phase::Idle, now_ms),
            // What a peer is told does not end its silence.
            Next::Upgraded if occasion == Occasion::Told && phase == Some(Phase::Upgraded) => {}
            Next::Upgraded => roster.enter(key, Phase::Upgraded, now_ms),
            Next::Linger => {
                // It fails where the peer has gone already, which the next read tells.
                let _ = shutdown(&connection.socket, Shutdown::Write);
                roster.enter(key, Phase::Linger, now_ms);
            }
            Next::BusyNew => {
                // Only once.
                connection.next = Next::Busy;
                roster.enter(key, Phase::Request, now_ms);
            }
            // The time of a request begins with its first bytes; more of it does not prolong it.
            Next::Busy if occasion == Occasion::Answered || phase != Some(Phase::Request) => {
                roster.enter(key, Phase::Request, now_ms);
            }
            Next::Busy | Next::More => {}
        }
        Fate::Open
    }

    /// Throws away what has come after the last answer.
    pub(super) fn overhear(&mut self, key: Key, received: usize, service: &mut S) -> Fate {
        let Some(connection) = self.roster.get_mut(key) else { return Fate::Closed };
        let received = u32::try_from(received).unwrap_or(u32::MAX);
        connection.overheard_bytes = connection.overheard_bytes.saturating_add(received);
        if connection.overheard_bytes > OVERHEARD_BYTES_MAX { self.close(key, service) } else { Fate::Open }
    }

    /// Closes a connection with the last words that `words` gives, as far as the socket has room for them and unless they
    /// would come in between what is being sent.
    fn close_with_words(
        &mut self,
        key: Key,
        service: &mut S,
        words: impl FnOnce(&mut S, &mut S::Session, &mut Vec<u8>),
    ) -> Fate {
        if let Some(connection) = self.roster.get_mut(key)
            && connection.unsent_bytes() == 0
        {
            let mut last_words = Vec::new();
            words(service, &mut connection.session, &mut last_words);
            let sent = say(&connection.socket, &last_words);
            self.roster.counters().add_write(sent);
        }
        self.close(key, service)
    }

    /// Closes a connection. The kernel delivers what it was given.
    pub(super) fn close(&mut self, key: Key, service: &mut S) -> Fate {
        if let Some(Connection { session, socket, .. }) = self.roster.remove(key) {
            service.close(session);
            // Closing the last descriptor takes it out of the epoll set as well (`epoll(7)`).
            drop(socket);
        }
        Fate::Closed
    }

    /// Closes a connection. The kernel throws away what the peer has not taken (`socket(7)`, SO_LINGER).
    fn reset(&mut self, key: Key, service: &mut S) -> Fate {
        if let Some(connection) = self.roster.get_mut(key) {
            // If it fails, the kernel gives up by itself after a while.
            let _ = sockopt::set_socket_linger(&connection.socket, Some(Duration::ZERO));
        }
        self.close(key, service)
    }

    /// Closes a connection that an error has ended.
    pub(super) fn fail(&mut self, key: Key, service: &mut S) -> Fate {
        self.roster.counters().failed.add(1);
        self.close(key, service)
    }

    /// Sees to those whose time is up, and after the retirement closes those who idle or stand; a bounded number of them.
    /// Returns how many.
    pub(super) fn see_to_due(&mut self, now_ms: u64, service: &mut S) -> usize {
        for seen in 0..TURN_EVENTS_MAX {
            let at_rest = if self.roster.is_retired() { self.roster.at_rest() } else { None };
            let due = at_rest.map(|key| (key, Phase::Idle)).or_else(|| self.roster.overdue(now_ms));
            match due {
                None => return seen,
                Some((key, Phase::Upgraded)) => {
                    // If it stays, its silence is measured anew.
                    self.roster.enter(key, Phase::Upgraded, now_ms);
                    self.tell(key, Unasked::Tend, now_ms, service);
                }
                Some((key, Phase::Send)) => self.delay(key, now_ms, service),
                Some((key, phase @ (Phase::Idle | Phase::Request | Phase::Linger))) => {
                    self.end(key, phase, service);
                }
            }
        }
        TURN_EVENTS_MAX
    }

    /// After the retirement: closes what is still open, a bounded number of connections a call, whatever they wait for.
    /// Who is in the middle of a request is told so. Returns how many it closed: after none, none is left.
    pub fn finish(&mut self, service: &mut S) -> usize {
        for closed in 0..TURN_EVENTS_MAX {
            let Some((key, phase)) = self.roster.any() else { return closed };
            self.end(key, phase, service);
        }
        TURN_EVENTS_MAX
    }
}

/// Tells someone for whom there is no room.
fn refuse<S: StreamService>(socket: &OwnedFd, remote: &Remote, service: &mut S, counters: &StreamCounters) {
    let mut words = Vec::new();
    service.refuse(remote, &mut words);
    let received = recv(socket, &mut [0; REFUSED_BYTES_MAX], RecvFlags::DONTWAIT);
    counters.received_bytes.add(received.map_or(0, |(received, _)| received));
    counters.add_write(say(socket, &words));
}

/// Sends as much of `words` as the socket has room for. Returns how much that was; whoever has gone hears nothing.
fn say(socket: &OwnedFd, words: &[u8]) -> usize {
    if words.is_empty() { 0 } else { send(socket, words, SEND_NOW).unwrap_or(0) }
}
