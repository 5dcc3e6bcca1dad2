//! The io_uring back end for streams: multishot accepts, receives into provided buffers, and answers that are submitted
//! together with what follows them.
//!
//! Owns the order of events in a turn. One `io_uring_enter` carries the answers of all connections that were heard, each
//! linked to the next receive, or to the close, of its connection. While an answer is under way no receive is, so a peer
//! that does not take its answers is not heard either. What is said unasked leaves the receive where it is (`speech`).
//! The kernel runs with [`TaskRun::Cooperative`]: what has come is completed by the time the worker comes back from
//! waiting, and the descriptor of the ring is readable then, which with deferred work it would not be.
//!
//! Connections are held by slots of the ring rather than by descriptors, as far as there are any (`holding`).
//!
//! A descriptor is closed only when nothing is under way on it any more, so that neither the kernel nor this process
//! ever uses its number for a connection that came later. A connection that goes earlier is shut down, and parts
//! when its completions have come.

mod end;
mod holding;
mod link;
mod outbox;
pub(super) mod slots;
mod speech;
mod submit;
mod token;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use shoal_wire::stream::{Next, Origin};

use super::accept::Trouble;
use super::accept::{Accepting, identify};
use super::conduct::{
    Conduct, Connection, Connections, Fate, Leave, Occasion, Recovery, Unasked, end_sending, hear, say,
};
use super::phase::Phase;
use super::roster::Roster;
use super::slab::Key;
use super::{StreamIo, StreamLimits, StreamListeners, StreamService, TURN_EVENTS_MAX};
use crate::ring::provided::{BufferGroup, Filled};
use crate::ring::{Completion, Ring, TaskRun};
use link::{Link, Parting, Socket};
use outbox::{Outbox, Then};
use slots::Slots;
use submit::Input;
use token::{PLACES_MAX, Token};

/// How the ring is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringSettings {
    /// Receive buffers, a power of two. Each is in use only while its content is looked at, so this is how many
    /// connections can be heard between two calls of the kernel.
    pub receive_buffers: u16,
    /// Most connections that are held by a slot in the ring's table of files instead of a descriptor. There are never more
    /// slots than connections, nor than the process may have descriptors.
    pub slots_max: u32,
}

impl Default for UringSettings {
    fn default() -> Self {
        Self { receive_buffers: 128, slots_max: u32::MAX }
    }
}

/// Entries of the queues. What is more waits for the next call.
const SUBMISSIONS_MAX: usize = 512;
const COMPLETIONS_MAX: usize = 4096;

/// Texts of up to so many bytes are not noted as held: nearly every answer is one, for a moment.
const SMALL_BYTES_MAX: usize = 2048;

/// Most completions that are seen to between two calls of the kernel.
const ROUND_EVENTS_MAX: usize = 128;

/// Most calls of the kernel in a turn: accept, receive, answer, and once more for who was quick.
const ROUNDS_MAX: usize = 4;

/// The back end over io_uring. Belongs to the thread that opens it (`IORING_SETUP_SINGLE_ISSUER`).
pub struct UringIo<S: StreamService> {
    ring: Ring,
    listeners: StreamListeners,
    accepting: Accepting,
    /// For each listener whether its accept is under way, or queued.
    armed: Vec<bool>,
    roster: Connections<S, Link>,
    /// Connections that are gone but for what is still under way.
    parting: HashMap<Key, Parting>,
    slots: Slots,
    /// Connections that found no slot, and some that are gone.
    unlisted: VecDeque<Key>,
    /// How many slots are being closed.
    closing: usize,
    /// Whether a descriptor was given back for a slot in this turn.
    gave_back: bool,
    /// Completions that had to wait until everybody has spoken.
    put_off: VecDeque<Completion>,
    /// Connections that found no buffer for what has arrived.
    starved: VecDeque<Key>,
    buffers: BufferGroup<Input>,
    outbox: Outbox,
    /// How many submissions will yield completions.
    under_way: usize,
    own_thread: PhantomData<*const ()>,
}

/// What is to be received next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// What is there already.
    Now,
    /// What will come.
    Later,
}

impl<S: StreamService> fmt::Debug for UringIo<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringIo").field("connections", &self.roster.len()).finish_non_exhaustive()
    }
}

impl<S: StreamService> Conduct<S> for UringIo<S> {
    type Link = Link;

    fn roster(&mut self) -> &mut Connections<S, Link> {
        &mut self.roster
    }

    fn is_sending(&mut self, key: Key) -> bool {
        self.roster.get_mut(key).is_some_and(|connection| connection.link.sending.is_some())
    }

    fn unsent_bytes(&mut self, key: Key) -> usize {
        // What the kernel has not said that it could not send, it may have sent.
        if self.roster.phase(key) != Some(Phase::Send) {
            return 0;
        }
        let Self { roster, outbox, .. } = self;
        let Some(Connection { link, .. }) = roster.get_mut(key) else { return 0 };
        [link.sending, link.waiting].into_iter().flatten().map(|letter| outbox.unsent_bytes(letter)).sum()
    }

    fn link_bytes(&mut self, key: Key) -> usize {
        let Self { roster, outbox, .. } = self;
        let Some(Connection { link, .. }) = roster.get_mut(key) else { return 0 };
        let letters = [link.sending, link.waiting].into_iter().flatten();
        letters.map(|letter| outbox.capacity_bytes(letter)).filter(|bytes| *bytes > SMALL_BYTES_MAX).sum()
    }

    fn tell(&mut self, key: Key, why: Unasked, now_ms: u64, service: &mut S) {
        self.speak(key, why, now_ms, service);
    }

    fn say_last(&mut self, key: Key, words: Vec<u8>) {
        let Some(Connection { link, .. }) = self.roster.get_mut(key) else { return };
        if let Socket::Descriptor(descriptor) = &link.socket {
            let sent = say(descriptor, &words);
            self.roster.counters().add_write(sent);
        } else {
            self.speak_last(key, words);
        }
    }

    fn end_sending(&mut self, key: Key) {
        let Some(Connection { link, .. }) = self.roster.get_mut(key) else { return };
        match link.socket {
            Socket::Descriptor(ref descriptor) => end_sending(descriptor),
            Socket::Slot(slot) => self.end_slot(slot, key),
        }
    }

    fn release(&mut self, key: Key, link: Link, leave: Leave) {
        self.part_with(key, link, leave);
    }
}

impl<S: StreamService> UringIo<S> {
    /// Takes over the listeners of a worker, on its thread.
    ///
    /// # Errors
    /// Where the kernel lacks or forbids something, see [`super::StreamBackend::probe`].
    pub fn open(
        listeners: StreamListeners,
        limits: StreamLimits,
        settings: &UringSettings,
    ) -> io::Result<Self> {
        let connections_max = limits.connections_max.min(PLACES_MAX / 2);
        let limits = StreamLimits { connections_max, ..limits };
        let ring = Ring::new(TaskRun::Cooperative, SUBMISSIONS_MAX, COMPLETIONS_MAX, &[])?;
        let slots_max = u32::try_from(connections_max).unwrap_or(u32::MAX).min(settings.slots_max);
        let slots = Slots::new(slots::possible(slots_max));
        if slots.count() > 0 {
            ring.register_slots(slots.count())?;
        }
        let mut io = Self {
            armed: vec![false; listeners.listeners.len()],
            accepting: Accepting::Yes,
            roster: Roster::new(
                limits,
                Arc::clone(&listeners.sources),
                listeners.counters(),
                listeners.budget(),
            ),
            parting: HashMap::new(),
            slots,
            unlisted: VecDeque::new(),
            closing: 0,
            gave_back: false,
            put_off: VecDeque::new(),
            starved: VecDeque::new(),
            buffers: submit::open_buffers(&ring, settings.receive_buffers)?,
            outbox: Outbox::default(),
            under_way: 0,
            own_thread: PhantomData,
            listeners,
            ring,
        };
        io.arm();
        io.ring.enter(Duration::ZERO)?;
        Ok(io)
    }

    /// Queues the accepts that are not under way.
    fn arm(&mut self) {
        if self.accepting != Accepting::Yes {
            return;
        }
        for ((index, listener), armed) in (0..).zip(&self.listeners.listeners).zip(&mut self.armed) {
            if !mem::replace(armed, true) {
                self.ring.push(submit::accept(listener.socket.as_fd(), index));
                self.under_way += 1;
            }
        }
    }

    /// Queues the receive of a connection that has none.
    fn expect(&mut self, key: Key, what: Expect) {
        let Some(Connection { link, .. }) = self.roster.get_mut(key) else { return };
        if !link.receiving {
            link.receiving = true;
            self.ring.push(submit::receive(&link.socket, key, what == Expect::Later));
            self.under_way += 1;
        }
    }

    /// Gives those who found no buffer another chance, as many as there are buffers.
    fn feed(&mut self) {
        let under_way_max = self.under_way + self.buffers.count();
        while self.under_way < under_way_max
            && let Some(key) = self.starved.pop_front()
        {
            self.expect(key, Expect::Now);
        }
    }

    /// One round: sees to what is completed, and queues what follows. Returns how much it saw to.
    fn round(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
        let mut seen = 0;
        while seen < ROUND_EVENTS_MAX {
            let Some(completion) = self.complete() else { break };
            seen += 1;
            let token = self.account(&completion);
            match token {
                Token::None => {}
                Token::Accept(index) => self.finish_accept(index, &completion, now_ms, service)?,
                Token::Receive(key) => self.finish_receive(key, &completion, now_ms, service),
                Token::Send(letter) => self.finish_send(letter, &completion, now_ms, service),
                Token::Resume(key) => self.go_on(key, now_ms, service),
                Token::End(key) => self.finish_end(key),
                Token::Close(slot) => self.finish_close(slot, &completion),
            }
        }
        self.feed();
        self.arm();
        self.buffers.publish();
        Ok(seen)
    }

    /// The next completion, if there is one. Those that were put off come first.
    fn complete(&mut self) -> Option<Completion> {
        self.put_off.pop_front().or_else(|| self.ring.complete())
    }

    /// Takes note that something is over.
    fn account(&mut self, completion: &Completion) -> Token {
        let token = Token::decode(completion.token);
        if token != Token::None && !completion.has_more() {
            self.under_way -= 1;
            if let Token::Accept(index) = token {
                self.armed[index as usize] = false;
            }
        }
        token
    }

    fn finish_accept(
        &mut self,
        index: u32,
        completion: &Completion,
        now_ms: u64,
        service: &mut S,
    ) -> io::Result<()> {
        let index = index as usize;
        match completion.outcome() {
            Ok(descriptor) => {
                let socket = submit::accepted(descriptor);
                let Some(listener) = self.listeners.listeners.get(index) else { return Ok(()) };
                match identify(listener, index, &socket) {
                    Ok(origin) => self.take_in(socket, &origin, now_ms, service),
                    // It is gone already.
                    Err(_) => self.roster.counters().accept_failed.add(1),
                }
                Ok(())
            }
            Err(Errno::CANCELED | Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => self.mend(errno, now_ms, service),
        }
    }

    fn take_in(&mut self, socket: OwnedFd, origin: &Origin, now_ms: u64, service: &mut S) {
        if let Some(key) = self.welcome(socket, origin, now_ms, service) {
            self.enlist(key);
            self.expect(key, Expect::Now);
        }
    }

    /// Sees to a failed accept.
    fn mend(&mut self, errno: Errno, now_ms: u64, service: &mut S) -> io::Result<()> {
        if Trouble::of(errno) == Trouble::Scarcity && self.is_vacating() {
            // Somebody is making room already.
            self.roster.counters().accept_failed.add(1);
            self.pause(Accepting::Paused { until_ms: now_ms });
            return Ok(());
        }
        let pause = match self.recover(errno, service)? {
            Recovery::Retry => return Ok(()),
            // The descriptor is free by the next turn.
            Recovery::Evicted => Accepting::Paused { until_ms: now_ms },
            Recovery::Pause => Accepting::pause(now_ms),
        };
        self.pause(pause);
        Ok(())
    }

    fn pause(&mut self, pause: Accepting) {
        if self.accepting == Accepting::Yes {
            self.accepting = pause;
        }
    }

    fn finish_receive(&mut self, key: Key, completion: &Completion, now_ms: u64, service: &mut S) {
        let filled = completion.buffer().map(|buffer| self.buffers.take(buffer));
        let Some(connection) = self.roster.get_mut(key) else {
            self.return_buffer(filled);
            self.part_from(key, |link| link.receiving = false);
            return;
        };
        connection.link.receiving = false;
        let is_over = matches!(connection.next, Next::Linger | Next::Close);
        match (completion.outcome(), filled) {
            (Ok(received @ 1..), Some(filled)) => {
                self.roster.counters().received_bytes.add(received);
                if is_over {
                    self.buffers.give_back(filled);
                    if self.overhear(key, received, service) == Fate::Open {
                        self.expect(key, Expect::Later);
                    }
                } else {
                    self.hear(key, Some((filled, received)), now_ms, service);
                }
            }
            (outcome, unused) => {
                self.return_buffer(unused);
                match outcome {
                    Ok(_) => drop(self.close(key, service)),
                    Err(Errno::NOBUFS) => self.starved.push_back(key),
                    // The send that it was to follow fell short, and will tell when it is its turn.
                    Err(Errno::CANCELED) if self.is_sending(key) => {}
                    Err(Errno::CANCELED | Errno::AGAIN | Errno::INTR) => self.expect(key, Expect::Later),
                    Err(_) => drop(self.fail(key, service)),
                }
            }
        }
    }

    fn return_buffer(&mut self, unused: Option<Filled>) {
        if let Some(unused) = unused {
            self.buffers.give_back(unused);
        }
    }

    /// Goes on with a connection that has more to say, if it is still there and nothing is under way that will do so.
    fn go_on(&mut self, key: Key, now_ms: u64, service: &mut S) {
        let phase = self.roster.phase(key);
        let Some(Connection { link, next, .. }) = self.roster.get_mut(key) else { return };
        if link.sending.is_some() {
            return;
        }
        if *next == Next::More {
            self.hear(key, None, now_ms, service);
        } else if phase == Some(Phase::Send) {
            // What was said unasked in between has changed what is next.
            self.go_silent(key, Occasion::Answered, now_ms, service);
        }
    }

    /// Has the service take what was received, if anything, and queues what it says.
    fn hear(&mut self, key: Key, input: Option<(Filled, usize)>, now_ms: u64, service: &mut S) {
        let Self { roster, buffers, outbox, .. } = self;
        let mut output = outbox.blank();
        match input {
            Some((mut filled, received)) => {
                let input = &mut buffers.buffer_mut(&mut filled)[..received];
                hear(roster, key, service, input, &mut output);
                buffers.give_back(filled);
            }
            None => hear(roster, key, service, &mut [], &mut output),
        }
        let connection = roster.get_mut(key).expect("the callers have just seen it");
        let next = connection.next;
        if connection.link.sending.is_some() {
            self.answer_later(key, output, now_ms, service);
        } else if !output.is_empty() {
            let then = match next {
                Next::Close => Then::Close,
                Next::Idle | Next::Standing if roster.is_retired() => Then::Nothing,
                Next::Idle | Next::Standing | Next::Busy | Next::BusyAnew => Then::Receive,
                Next::More | Next::Linger => Then::Nothing,
            };
            self.answer(key, output, then, now_ms);
        } else {
            outbox.reclaim(output);
            self.go_silent(key, Occasion::Heard, now_ms, service);
        }
        self.note_held(key, service);
    }
}

impl<S: StreamService> StreamIo<S> for UringIo<S> {
    fn turn(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
        if self.accepting.is_due(now_ms) {
            self.accepting = Accepting::Yes;
        }
        self.gave_back = false;
        let mut seen = self.see_to_due(now_ms, service);
        for round in 1..=ROUNDS_MAX {
            let seen_now = self.round(now_ms, service)?;
            seen += seen_now;
            let is_last = seen >= TURN_EVENTS_MAX || round == ROUNDS_MAX;
            // Before the last one, what others are to be told may become more.
            if seen_now < ROUND_EVENTS_MAX || is_last {
                seen += self.have_all_speak(now_ms, service)?;
            }
            if !self.ring.has_queued() && !self.ring.is_overflowing() {
                break;
            }
            self.ring.enter(Duration::ZERO)?;
            if is_last {
                break;
            }
        }
        // Those who wait for a buffer would wake nobody.
        Ok(seen + self.starved.len())
    }

    fn retire(&mut self, now_ms: u64, service: &mut S) -> io::Result<()> {
        self.disarm(now_ms, service)?;
        // Who waits to be accepted would be reset when the listeners close.
        for index in 0..self.listeners.listeners.len() {
            self.accept_rest(index, now_ms, service)?;
        }
        self.listeners.listeners.clear();
        self.roster.retire();
        self.ring.enter(Duration::ZERO)
    }

    fn finish(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
        let closed = self.close_rest(now_ms, service);
        // What was under way on them has ended by now, and their descriptors can go.
        self.ring.enter(Duration::ZERO)?;
        self.turn(now_ms, service)?;
        Ok(closed)
    }

    fn trim(&mut self) {
        self.roster.trim();
        self.outbox.trim();
        self.parting.shrink_to(2 * self.parting.len());
        self.unlisted.shrink_to(2 * self.unlisted.len());
        self.starved.shrink_to(2 * self.starved.len());
        self.put_off.shrink_to(2 * self.put_off.len());
    }

    fn connections(&self) -> usize {
        self.roster.len()
    }

    fn readiness(&self) -> io::Result<OwnedFd> {
        self.ring.readiness()
    }
}
