//! What becomes of connections: the decisions that all back ends share.
//!
//! Who is taken in, who goes to make room, what a connection waits for after an answer, and whose time is up. A back end
//! moves the bytes, and tells here what its part of a connection is and how it lets go of one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use shoal_wire::stream::{Next, Origin};

use super::accept::Trouble;
use super::phase::Phase;
use super::roster::{Admission, GiveBack, Refused, Roster, Spare};
use super::slab::Key;
use super::{StreamCounters, StreamService, TURN_EVENTS_MAX};

/// How often a service that has more to say is asked to go on before others get their turn.
pub(super) const MORE_MAX: usize = 4;

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

/// A connection, with the part that is the back end's.
#[derive(Debug)]
pub(super) struct Connection<T, L> {
    pub(super) session: T,
    /// What the service said last.
    pub(super) next: Next,
    /// Whether input came since all was sent last: replies to it may be among what waits.
    pub(super) is_owed: bool,
    /// Whether the service was told that it has a backlog.
    has_backlog: bool,
    /// How often the time for an answer has passed since the speech that it has not taken.
    delays: u8,
    /// Bytes that came after the last answer and that nobody reads.
    overheard_bytes: u32,
    pub(super) link: L,
}

/// The connections of a worker that serves with `S`.
pub(super) type Connections<S, L> = Roster<Connection<<S as StreamService>::Session, L>>;

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

/// Why the service speaks without the peer having been heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// It wants to.
    Speak,
    /// The peer has been silent for long.
    Tend,
}

/// What is done about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// It is closed, as its phase demands.
    End(Phase),
    /// The service has to say whether it stays.
    Tend,
    /// It has more time, or is cut off.
    Delay,
}

/// How a connection is let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// The kernel delivers what it was given.
    Gently,
    /// The kernel throws away what the peer has not taken.
    Abruptly,
}

impl Leave {
    /// Has the kernel do so when it closes `socket`.
    pub(super) fn prepare(self, socket: impl AsFd) {
        if self == Self::Abruptly {
            // If it fails, the kernel gives up by itself after a while.
            let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
        }
    }
}

/// What follows a failed accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// The next one may succeed.
    Retry,
    /// The next one may succeed once the connection that was closed has given its descriptor back.
    Evicted,
    /// It would only fail again for now.
    Pause,
}

/// Has the service of a connection take `input`, and go on until it says something or waits for something. Notes what the
/// connection counts towards from then on.
pub(super) fn hear<S: StreamService, L>(
    roster: &mut Connections<S, L>,
    key: Key,
    service: &mut S,
    input: &mut [u8],
    output: &mut Vec<u8>,
) {
    let Some(connection) = roster.get_mut(key) else { return };
    connection.hear(service, input, output);
    if let Some(claim) = service.claim(&mut connection.session) {
        roster.claim(key, claim);
    }
}

impl<T, L> Connection<T, L> {
    fn hear<S>(&mut self, service: &mut S, input: &mut [u8], output: &mut Vec<u8>)
    where
        S: StreamService<Session = T>,
    {
        self.is_owed |= !input.is_empty();
        self.next = service.receive(&mut self.session, input, output);
        for _ in 1..MORE_MAX {
            if self.next != Next::More || !output.is_empty() {
                break;
            }
            self.next = service.receive(&mut self.session, &mut [], output);
        }
    }

    /// Whether it may be spoken to: it is not idle, nor at its end.
    const fn may_be_told(&self) -> bool {
        matches!(self.next, Next::Standing | Next::Busy | Next::BusyAnew | Next::More)
    }

    /// Whether it is heard although not all is sent: others may have had something to say to it, for which its own
    /// messages do not wait.
    pub(super) const fn is_heard_meanwhile(&self) -> bool {
        self.has_backlog && !self.is_owed && self.may_be_told()
    }

    /// Has the service speak unasked. Returns whether it has given the connection up for its silence.
    pub(super) fn tell<S>(&mut self, service: &mut S, why: Unasked, output: &mut Vec<u8>) -> bool
    where
        S: StreamService<Session = T>,
    {
        let next = match why {
            Unasked::Speak => service.speak(&mut self.session, output),
            Unasked::Tend => service.tend(&mut self.session, output),
        };
        let is_end = matches!(next, Next::Close | Next::Linger);
        // Who has more to look at must not be forgotten for what was said in between.
        if is_end || self.next != Next::More {
            self.next = next;
        }
        is_end && why == Unasked::Tend
    }
}

/// A back end, as far as the decisions need it.
pub(super) trait Conduct<S: StreamService> {
    /// Its part of a connection.
    type Link: From<OwnedFd>;

    /// Its connections.
    fn roster(&mut self) -> &mut Connections<S, Self::Link>;

    /// Whether something is being sent to a connection.
    fn is_sending(&mut self, key: Key) -> bool;

    /// How much of what was sent to a connection waits for the peer to take it, as far as that is known.
    fn unsent_bytes(&mut self, key: Key) -> usize;

    /// How much memory the back end holds for a connection.
    fn link_bytes(&mut self, key: Key) -> usize;

    /// Has the service speak unasked on a connection that may be spoken to, and sends that behind what is being sent.
    fn tell(&mut self, key: Key, why: Unasked, now_ms: u64, service: &mut S);

    /// Sends last words on a connection to which nothing is being sent and which is closed next, as far as the socket has
    /// room for them.
    fn say_last(&mut self, key: Key, words: Vec<u8>);

    /// Closes the sending direction of a connection.
    fn end_sending(&mut self, key: Key);

    /// Closes what a connection that was removed has left.
    fn release(&mut self, key: Key, link: Self::Link, leave: Leave);

    /// Takes a new connection in, or refuses it.
    fn welcome(&mut self, socket: OwnedFd, origin: &Origin, now_ms: u64, service: &mut S) -> Option<Key> {
        self.roster().counters().accepted.add(1);
        match self.admit(origin, service) {
            Ok(admission) => {
                let handle = self.roster().next_key();
                let session = service.open(origin, handle);
                let connection = Connection {
                    session,
                    next: Next::Busy,
                    is_owed: false,
                    has_backlog: false,
                    delays: 0,
                    overheard_bytes: 0,
                    link: socket.into(),
                };
                Some(self.roster().insert(admission, connection, now_ms))
            }
            Err(refused) => {
                let counters = self.roster().counters();
                counters.closed.add(1);
                match refused {
                    Refused::Full => counters.refused_share.add(1),
                    Refused::Source => counters.refused_source.add(1),
                    Refused::Memory => counters.refused_memory.add(1),
                }
                refuse(&socket, origin, service, counters);
                None
            }
        }
    }

    fn admit(&mut self, origin: &Origin, service: &mut S) -> Result<Admission, Refused> {
        let limited = service.is_limited(origin);
        let mut admitted = self.roster().admit(origin, limited);
        if matches!(admitted, Err(Refused::Full))
            && let Some(spare) = self.roster().spare_for(origin, limited)
        {
            self.evict(spare, service);
            admitted = self.roster().admit(origin, limited);
        }
        // Last, so that no other connection makes room for one that does not enter anyway.
        if let Ok(admission) = &admitted
            && self.roster().is_out_of_memory()
            && !self.make_memory(service)
        {
            self.roster().withdraw(admission);
            return Err(Refused::Memory);
        }
        admitted
    }

    /// What to do after an accept has failed.
    ///
    /// # Errors
    /// Where it would fail for ever.
    fn recover(&mut self, errno: Errno, service: &mut S) -> io::Result<Recovery> {
        let trouble = Trouble::of(errno);
        if trouble == Trouble::Host {
            return Err(errno.into());
        }
        self.roster().counters().accept_failed.add(1);
        Ok(match trouble {
            Trouble::Scarcity => match self.roster().first_to_go() {
                Some(spare) => {
                    self.evict(spare, service);
                    Recovery::Evicted
                }
                None => Recovery::Pause,
            },
            Trouble::Obstacle => Recovery::Pause,
            Trouble::Peer | Trouble::Host => Recovery::Retry,
        })
    }

    /// Closes a connection to make room.
    fn evict(&mut self, Spare { key, phase, greed }: Spare, service: &mut S) {
        self.roster().counters().evicted.add(phase, greed > 1);
        self.end(key, phase, service);
    }

    /// Closes a connection as its phase demands.
    fn end(&mut self, key: Key, phase: Phase, service: &mut S) -> Fate {
        match phase {
            Phase::Idle | Phase::Request | Phase::Standing => self.dismiss(key, service),
            // What it does not take now, it would not take from the kernel later; and an answer that is cut off must not
            // look as if this was its end.
            Phase::Send => self.part(key, Leave::Abruptly, service),
            Phase::Linger => self.close(key, service),
        }
    }

    /// Notes what a connection holds after something has happened on it, and closes connections of the sources that hold
    /// most while that is too much for all.
    fn note_held(&mut self, key: Key, service: &mut S) {
        let link_bytes = self.link_bytes(key);
        let Some(connection) = self.roster().get_mut(key) else { return };
        let mut held = service.held(&connection.session);
        held.variable += link_bytes;
        self.roster().note_held(key, held);
        while self.roster().is_over_budget() && self.make_memory(service) {}
    }

    /// Closes a connection of the source that holds most, see [`Roster::first_to_give_back`]. Returns whether there was one.
    fn make_memory(&mut self, service: &mut S) -> bool {
        match self.roster().first_to_give_back() {
            Some(GiveBack::Holder(key)) => {
                self.roster().counters().evicted_memory.add(1);
                self.close_with_words(key, service, S::shed);
            }
            Some(GiveBack::Spare(spare)) => self.evict(spare, service),
            None => return false,
        }
        true
    }

    /// Has those speak who are to, up to `count_max` of them. Returns how many there were.
    fn have_speak(&mut self, count_max: usize, now_ms: u64, service: &mut S) -> usize {
        for count in 0..count_max {
            let Some(key) = service.speaker() else { return count };
            let roster = self.roster();
            let is_at_ease = matches!(roster.phase(key), Some(Phase::Idle | Phase::Linger));
            if is_at_ease || !roster.get_mut(key).is_some_and(|connection| connection.may_be_told()) {
                continue;
            }
            if self.unsent_bytes(key) > 0 {
                self.note_backlog(key, service);
            } else {
                self.tell(key, Unasked::Speak, now_ms, service);
            }
        }
        count_max
    }

    /// Tells the service if something waits for the peer of a connection on which it speaks unasked.
    fn note_backlog(&mut self, key: Key, service: &mut S) {
        let unsent_bytes = self.unsent_bytes(key);
        if let Some(connection) = self.roster().get_mut(key)
            && unsent_bytes > 0
        {
            connection.has_backlog = true;
            service.backlog(key, unsent_bytes);
        }
    }

    /// A part was sent of what waits: tells the service, if it knows of it.
    fn update_backlog(&mut self, key: Key, service: &mut S) {
        if self.roster().get_mut(key).is_some_and(|connection| connection.has_backlog) {
            self.note_backlog(key, service);
        }
    }

    /// The time for an answer has passed: a connection that was told something unasked has some more. Nothing else gives
    /// it time, so a peer that takes nothing, or too slowly, does not stay.
    fn delay(&mut self, key: Key, now_ms: u64, service: &mut S) {
        let Some(connection) = self.roster().get_mut(key) else { return };
        connection.delays += 1;
        if connection.has_backlog && connection.delays < SPEECH_TIMES_MAX {
            self.roster().enter(key, Phase::Send, now_ms);
        } else {
            self.roster().counters().timed_out_send.add(1);
            self.part(key, Leave::Abruptly, service);
        }
    }

    /// All is sent: waits for what the service wants to wait for.
    fn settle(&mut self, key: Key, occasion: Occasion, now_ms: u64, service: &mut S) -> Fate {
        let roster = self.roster();
        let (phase, is_retired) = (roster.phase(key), roster.is_retired());
        let Some(connection) = roster.get_mut(key) else { return Fate::Closed };
        connection.delays = 0;
        if occasion != Occasion::Heard {
            connection.is_owed = false;
        }
        if connection.has_backlog {
            connection.has_backlog = false;
            service.backlog(key, 0);
        }
        match connection.next {
            Next::Close => return self.close(key, service),
            Next::Idle | Next::Standing if is_retired => return self.dismiss(key, service),
            Next::Idle => roster.enter(key, Phase::Idle, now_ms),
            // What a peer is told does not end its silence.
            Next::Standing if occasion == Occasion::Told && phase == Some(Phase::Standing) => {}
            Next::Standing => roster.enter(key, Phase::Standing, now_ms),
            Next::Linger => {
                roster.enter(key, Phase::Linger, now_ms);
                self.end_sending(key);
            }
            Next::BusyAnew => {
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
    fn overhear(&mut self, key: Key, received: usize, service: &mut S) -> Fate {
        let Some(connection) = self.roster().get_mut(key) else { return Fate::Closed };
        let received = u32::try_from(received).unwrap_or(u32::MAX);
        connection.overheard_bytes = connection.overheard_bytes.saturating_add(received);
        if connection.overheard_bytes > OVERHEARD_BYTES_MAX { self.close(key, service) } else { Fate::Open }
    }

    /// Closes a connection, with last words as far as the socket has room for them and unless they would come in between
    /// what is being sent.
    fn dismiss(&mut self, key: Key, service: &mut S) -> Fate {
        self.close_with_words(key, service, S::expire)
    }

    /// The same, with the last words that `say` has.
    fn close_with_words(
        &mut self,
        key: Key,
        service: &mut S,
        say: impl FnOnce(&mut S, &mut S::Session, &mut Vec<u8>),
    ) -> Fate {
        if !self.is_sending(key)
            && let Some(connection) = self.roster().get_mut(key)
        {
            let mut last_words = Vec::new();
            say(service, &mut connection.session, &mut last_words);
            if !last_words.is_empty() {
                self.say_last(key, last_words);
            }
        }
        self.close(key, service)
    }

    fn close(&mut self, key: Key, service: &mut S) -> Fate {
        self.part(key, Leave::Gently, service)
    }

    fn part(&mut self, key: Key, leave: Leave, service: &mut S) -> Fate {
        if let Some(Connection { session, link, .. }) = self.roster().remove(key) {
            service.close(session);
            self.release(key, link, leave);
        }
        Fate::Closed
    }

    /// Closes a connection that an error has ended.
    fn fail(&mut self, key: Key, service: &mut S) -> Fate {
        self.roster().counters().failed.add(1);
        self.close(key, service)
    }

    /// Sees to those whose time is up, and after the retirement closes those who idle or stand; a bounded number of them.
    /// Returns how many.
    fn see_to_due(&mut self, now_ms: u64, service: &mut S) -> usize {
        self.take_measures(now_ms, service, |roster| {
            let at_rest = if roster.is_retired() { roster.at_rest() } else { None };
            at_rest.map(|key| (key, Measure::End(Phase::Idle))).or_else(|| {
                let (key, phase) = roster.overdue(now_ms)?;
                let measure = match phase {
                    Phase::Standing => Measure::Tend,
                    Phase::Send => Measure::Delay,
                    Phase::Idle | Phase::Request | Phase::Linger => Measure::End(phase),
                };
                Some((key, measure))
            })
        })
    }

    /// Closes a bounded number of those that are still open, whatever they wait for. Returns how many.
    fn close_rest(&mut self, now_ms: u64, service: &mut S) -> usize {
        self.take_measures(now_ms, service, |roster| {
            let (key, phase) = roster.any()?;
            Some((key, Measure::End(phase)))
        })
    }

    /// Does about those that `find` finds what it says.
    fn take_measures(
        &mut self,
        now_ms: u64,
        service: &mut S,
        mut find: impl FnMut(&mut Connections<S, Self::Link>) -> Option<(Key, Measure)>,
    ) -> usize {
        for seen in 0..TURN_EVENTS_MAX {
            let Some((key, measure)) = find(self.roster()) else { return seen };
            match measure {
                Measure::End(phase) => drop(self.end(key, phase, service)),
                Measure::Tend => {
                    // If it stays, its silence is measured anew.
                    self.roster().enter(key, Phase::Standing, now_ms);
                    self.tell(key, Unasked::Tend, now_ms, service);
                }
                Measure::Delay => self.delay(key, now_ms, service),
            }
        }
        TURN_EVENTS_MAX
    }
}

/// Tells someone for whom there is no room.
fn refuse<S: StreamService>(socket: &OwnedFd, origin: &Origin, service: &mut S, counters: &StreamCounters) {
    let mut words = Vec::new();
    service.refuse(origin, &mut words);
    let received = recv(socket, &mut [0; REFUSED_BYTES_MAX], RecvFlags::DONTWAIT);
    counters.received_bytes.add(received.map_or(0, |(received, _)| received));
    counters.add_write(say(socket, &words));
}

/// Closes the sending direction of a socket.
pub(super) fn end_sending(socket: impl AsFd) {
    // It fails where the peer has gone already, which the next read tells.
    let _ = shutdown(socket, Shutdown::Write);
}

/// Sends as much of `words` as the socket has room for. Returns how much that was; whoever has gone hears nothing.
pub(super) fn say(socket: impl AsFd, words: &[u8]) -> usize {
    if words.is_empty() { 0 } else { send(socket, words, SEND_NOW).unwrap_or(0) }
}
