//! By what connections are held, from their accept to their close: by a slot, or where none is free by a descriptor.
//!
//! A slot is free again only when the kernel has confirmed its close, so that no submission ever reaches a connection
//! that came later. It then goes to one that is still held by a descriptor: so descriptors are used by connections only
//! beyond the slots, and whoever goes makes room for an accept, which takes a descriptor for a moment.

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use super::super::StreamService;
use super::super::conduct::{Connection, Leave};
use super::super::slab::Key;
use super::link::{Link, Parting, Socket};
use super::outbox::Then;
use super::slots::Slot;
use super::token::Token;
use super::{UringIo, submit};
use crate::ring::Completion;

/// How many of those who wait for a slot are looked at for one that can take it now.
const PROMOTIONS_MAX: usize = 8;

impl<S: StreamService> UringIo<S> {
    /// Puts a connection that has just been taken in into a slot, if one is free.
    pub(super) fn enlist(&mut self, key: Key) {
        match self.slots.take() {
            Some(slot) => self.put_into(slot, key),
            None if self.slots.count() > 0 => self.wait_for_slot(key),
            None => {}
        }
    }

    fn put_into(&mut self, slot: Slot, key: Key) {
        let Some(Connection { link, .. }) = self.roster.get_mut(key) else { return };
        match std::mem::replace(&mut link.socket, Socket::Slot(slot)) {
            Socket::Descriptor(descriptor) => {
                self.gave_back = true;
                for submission in submit::enlist(&self.slots, slot, descriptor) {
                    self.ring.push(submission);
                }
            }
            Socket::Slot(_) => unreachable!("the callers have one with a descriptor"),
        }
    }

    fn wait_for_slot(&mut self, key: Key) {
        if self.unlisted.len() > 2 * self.roster.len() {
            // Most of them are gone.
            let Self { unlisted, roster, .. } = self;
            unlisted.retain(|key| roster.get_mut(*key).is_some());
        }
        self.unlisted.push_back(key);
    }

    /// A slot has become free: gives it to a connection that is held by a descriptor.
    fn promote(&mut self, slot: Slot) {
        for _ in 0..PROMOTIONS_MAX {
            let Some(key) = self.unlisted.pop_front() else { break };
            let Some(Connection { link, .. }) = self.roster.get_mut(key) else { continue };
            // What may be linked to a letter under way knows the descriptor.
            if link.sending.is_some() {
                self.unlisted.push_back(key);
            } else {
                self.put_into(slot, key);
                return;
            }
        }
        self.slots.give_back(slot);
    }

    /// Whether what an accept did not find is being given back already: connections are on their way out, or into slots.
    pub(super) fn is_vacating(&self) -> bool {
        self.gave_back || self.closing > 0 || !self.parting.is_empty()
    }

    pub(super) fn finish_close(&mut self, slot: Slot, completion: &Completion) {
        self.closing -= 1;
        // Where the send that it was to follow fell short, the connection still needs it.
        if completion.outcome() != Err(Errno::CANCELED) {
            self.promote(slot);
        }
    }

    pub(super) fn finish_end(&mut self, key: Key) {
        match self.roster.get_mut(key) {
            Some(Connection { link, .. }) => link.ending = false,
            None => self.part_from(key, |link| link.ending = false),
        }
    }

    /// Closes the sending direction of what is in a slot, which the kernel does when it has time.
    pub(super) fn end_slot(&mut self, slot: Slot, key: Key) {
        let Some(Connection { link, .. }) = self.roster.get_mut(key) else { return };
        link.ending = true;
        self.ring.push(submit::end_sending(slot, key));
        self.under_way += 1;
    }

    /// Ends what is under way on a connection that was removed, and closes it then.
    pub(super) fn part_with(&mut self, key: Key, mut link: Link, leave: Leave) {
        if let Some(letter) = link.waiting.take() {
            self.outbox.discard(letter);
        }
        if !link.is_under_way() {
            self.hang_up(link, leave);
            return;
        }
        match (link.sending, &link.socket) {
            // The kernel may have closed the socket already, and given its number to the next.
            (Some(letter), _) if self.outbox.then(letter) == Then::Close => {
                self.ring.push(submit::cancel(Token::Send(letter)));
            }
            // It fails where the peer has gone, and then all that is under way ends by itself.
            (_, Socket::Descriptor(descriptor)) => drop(shutdown(descriptor, Shutdown::Both)),
            // The end of the sending direction looks for the slot when it comes to pass, and must find it.
            (_, Socket::Slot(_)) if link.ending => self.cancel(key, &link),
            (_, &Socket::Slot(slot)) => {
                self.cancel(key, &link);
                self.close_slot(slot, leave);
                self.parting.insert(key, Parting { link, leave: None });
                return;
            }
        }
        self.parting.insert(key, Parting { link, leave: Some(leave) });
    }

    /// Cancels what is under way on a connection, each by its token: to look for all of a file, the kernel would go through
    /// whatever is under way on any.
    fn cancel(&mut self, key: Key, link: &Link) {
        let receive = link.receiving.then_some(Token::Receive(key));
        for token in [receive, link.sending.map(Token::Send)].into_iter().flatten() {
            self.ring.push(submit::cancel(token));
        }
    }

    /// Takes note of what is over for a connection that is gone, and closes it when nothing is left.
    pub(super) fn part_from(&mut self, key: Key, note: impl FnOnce(&mut Link)) {
        let Some(Parting { link, .. }) = self.parting.get_mut(&key) else { return };
        note(link);
        if !link.is_under_way()
            && let Some(Parting { link, leave: Some(leave) }) = self.parting.remove(&key)
        {
            self.hang_up(link, leave);
        }
    }

    /// Queues the close of a connection on which nothing is under way.
    pub(super) fn hang_up(&mut self, link: Link, leave: Leave) {
        match link.socket {
            Socket::Descriptor(descriptor) => {
                leave.prepare(&descriptor);
                self.ring.push(submit::close(descriptor));
            }
            Socket::Slot(slot) => self.close_slot(slot, leave),
        }
    }

    /// Queues the close of a slot. What is under way in it keeps the socket open until it is cancelled.
    fn close_slot(&mut self, slot: Slot, leave: Leave) {
        let close = submit::close_slot(slot);
        match leave {
            Leave::Gently => self.ring.push(close),
            // If the option cannot be set, the kernel gives up by itself after a while.
            Leave::Abruptly => self.ring.push_hard_linked(submit::reset_on_close(slot), close),
        }
        self.note_closing();
    }

    /// Takes note that the close of a slot is queued.
    pub(super) fn note_closing(&mut self) {
        self.under_way += 1;
        self.closing += 1;
    }
}
