//! What is said on connections: answers, and what the service says unasked.
//!
//! An answer is sent with patience, and nothing is received meanwhile. What is said unasked is tried at once, while the
//! receive of the connection stays where it is: mostly the socket has room, and then the kernel is done by the time
//! it has taken the submission. Only what there is no room for is sent with patience as well.
//!
//! A connection has one letter under way. What is said while it is goes into one more, which follows.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use shoal_wire::stream::Next;

use super::super::StreamService;
use super::super::conduct::{Conduct, Connection, Fate, Occasion, Unasked};
use super::super::phase::Phase;
use super::super::slab::Key;
use super::link::{Parting, Socket};
use super::outbox::{Effort, Landed, Then};
use super::token::Token;
use super::{Expect, UringIo, submit};
use crate::ring::Completion;

/// Most connections that are spoken to between two calls of the kernel. As many texts are in use at once.
const SPEAKERS_MAX: usize = 128;

impl<S: StreamService> UringIo<S> {
    /// Has all those speak who are to. Nobody is heard meanwhile, so that there is an end to it. Returns how many.
    pub(super) fn have_all_speak(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
        let mut spoken = 0;
        loop {
            let count = self.have_speak(SPEAKERS_MAX, now_ms, service);
            if count == 0 {
                return Ok(spoken);
            }
            spoken += count;
            self.ring.enter(Duration::ZERO)?;
            while let Some(completion) = self.ring.complete() {
                if let Token::Send(letter) = Token::decode(completion.token) {
                    self.account(&completion);
                    self.finish_send(letter, &completion, now_ms, service);
                } else {
                    self.put_off.push_back(completion);
                }
            }
        }
    }

    /// Has the service speak unasked, on a connection that may be spoken to.
    pub(super) fn speak(&mut self, key: Key, why: Unasked, now_ms: u64, service: &mut S) {
        let Self { roster, outbox, .. } = self;
        let Some(connection) = roster.get_mut(key) else { return };
        let mut text = outbox.blank();
        let given_up = connection.tell(service, why, &mut text);
        let sends = connection.link.sending.is_some();
        if given_up {
            roster.counters().timed_out_silent.add(1);
        }
        if sends {
            self.append(key, text);
            self.note_backlog(key, service);
        } else if text.is_empty() {
            outbox.reclaim(text);
            // While it waits for its turn to go on, it will do so anyway.
            if roster.phase(key) != Some(Phase::Send) {
                self.go_silent(key, Occasion::Told, now_ms, service);
            }
        } else {
            let letter = outbox.write(key, text, Then::Nothing);
            self.send(key, letter, Effort::Try);
        }
        self.note_held(key, service);
    }

    /// Sends an answer.
    pub(super) fn answer(&mut self, key: Key, text: Vec<u8>, then: Then, now_ms: u64) {
        self.roster.enter(key, Phase::Send, now_ms);
        let letter = self.outbox.write(key, text, then);
        self.send(key, letter, Effort::Persist);
    }

    /// Tries to send last words.
    pub(super) fn speak_last(&mut self, key: Key, words: Vec<u8>) {
        let letter = self.outbox.write(key, words, Then::Nothing);
        self.send(key, letter, Effort::Try);
    }

    /// Sees to the answer to what was heard while something was being sent that the peer had not asked for.
    pub(super) fn answer_later(&mut self, key: Key, text: Vec<u8>, now_ms: u64, service: &mut S) {
        let says_nothing = text.is_empty();
        self.append(key, text);
        if self.roster.phase(key) == Some(Phase::Send) {
            return;
        }
        let next = self.roster.get_mut(key).map(|connection| connection.next);
        if says_nothing && matches!(next, Some(Next::Standing | Next::Busy | Next::BusyAnew)) {
            self.go_silent(key, Occasion::Heard, now_ms, service);
        } else {
            // Nothing more is heard until all is sent.
            self.roster.enter(key, Phase::Send, now_ms);
        }
    }

    /// Puts something behind what is being sent.
    fn append(&mut self, key: Key, text: Vec<u8>) {
        let Self { roster, outbox, .. } = self;
        let Some(Connection { link, .. }) = roster.get_mut(key) else { return };
        match link.waiting {
            _ if text.is_empty() => outbox.reclaim(text),
            None => link.waiting = Some(outbox.write(key, text, Then::Nothing)),
            Some(letter) => {
                outbox.text(letter).extend_from_slice(&text);
                outbox.reclaim(text);
            }
        }
    }

    /// Nothing is left to be said for now: does what the service said is next.
    pub(super) fn go_silent(&mut self, key: Key, occasion: Occasion, now_ms: u64, service: &mut S) {
        let next = self.roster.get_mut(key).map(|connection| connection.next);
        if next == Some(Next::More) {
            self.roster.enter(key, Phase::Send, now_ms);
            self.ring.push(submit::resume(key));
            self.under_way += 1;
        } else if self.settle(key, occasion, now_ms, service) == Fate::Open {
            self.expect(key, Expect::Later);
        }
    }

    /// Queues a letter, and what is to follow it.
    fn send(&mut self, key: Key, letter: u32, effort: Effort) {
        let Some(Connection { link, .. }) = self.roster.get_mut(key) else { return };
        link.sending = Some(letter);
        let send = self.outbox.send(letter, &link.socket, effort);
        self.under_way += 1;
        match self.outbox.then(letter) {
            Then::Close if !link.receiving => {
                let is_in_slot = matches!(link.socket, Socket::Slot(_));
                self.ring.push_linked(send, submit::close_later(&link.socket));
                if is_in_slot {
                    self.note_closing();
                }
            }
            Then::Receive if !link.receiving => {
                self.ring.push_linked(send, submit::receive(&link.socket, key, true));
                link.receiving = true;
                self.under_way += 1;
            }
            Then::Nothing | Then::Close | Then::Receive => {
                self.outbox.follow_by_nothing(letter);
                self.ring.push(send);
            }
        }
    }

    pub(super) fn finish_send(&mut self, letter: u32, completion: &Completion, now_ms: u64, service: &mut S) {
        let outcome = completion.outcome();
        let sent = outcome.unwrap_or(0);
        self.roster.counters().add_write(sent);
        let Landed { key, then, is_whole } = self.outbox.land(letter, sent);
        let is_closed = is_whole && then == Then::Close;
        let is_waited_for = self.roster.phase(key) == Some(Phase::Send);
        let Some(Connection { link, next, .. }) = self.roster.get_mut(key) else {
            self.outbox.discard(letter);
            self.finish_parted_send(key, is_closed);
            return;
        };
        let has_more = *next == Next::More;
        if matches!(outcome, Ok(_) | Err(Errno::AGAIN | Errno::INTR)) && !is_whole {
            self.outbox.follow_by_nothing(letter);
            self.persist(key, letter, now_ms, service);
            return;
        }
        link.sending = None;
        let waiting = if outcome.is_ok() { link.waiting.take() } else { None };
        self.outbox.discard(letter);
        if is_closed {
            if let Some(Connection { session, link, .. }) = self.roster.remove(key) {
                link.forget();
                service.close(session);
            }
        } else if outcome.is_err() {
            self.fail(key, service);
        } else if let Some(letter) = waiting {
            self.send(key, letter, if is_waited_for { Effort::Persist } else { Effort::Try });
        } else if has_more {
            self.go_on(key, now_ms, service);
        } else {
            let occasion = if is_waited_for { Occasion::Answered } else { Occasion::Told };
            self.go_silent(key, occasion, now_ms, service);
        }
        self.note_held(key, service);
    }

    /// Sends what the socket has not taken of a letter, and waits for it.
    fn persist(&mut self, key: Key, letter: u32, now_ms: u64, service: &mut S) {
        if self.roster.phase(key) != Some(Phase::Send) {
            self.roster.enter(key, Phase::Send, now_ms);
            // From now on it is known to wait.
            self.note_backlog(key, service);
        } else {
            self.update_backlog(key, service);
        }
        self.send(key, letter, Effort::Persist);
    }

    fn finish_parted_send(&mut self, key: Key, is_closed: bool) {
        if !is_closed {
            self.part_from(key, |link| link.sending = None);
        } else if let Some(Parting { link, .. }) = self.parting.remove(&key) {
            link.forget();
        }
    }
}
