//! What is being sent: each letter stays where it is until the kernel has completed it.
//!
//! Owns the letters and who holds each: this process, or the kernel (it is in flight). Texts that are done with are
//! used again, so that answers are written without allocating.
#![allow(unsafe_code, reason = "the kernel reads texts at addresses it was given")]

use std::mem;
use std::os::fd::AsRawFd;

use io_uring::{opcode, types};

use super::super::slab::Key;
use super::link::Socket;
use super::slots::Slot;
use super::token::Token;
use crate::ring::Submission;

/// Most empty texts that are kept for later, and the memory that they may hold together.
const SPARES_MAX: usize = 256;
const SPARES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Longest text that is kept for later. Longer ones are few and would only hold memory.
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// The letters of a worker.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    letters: Vec<Letter>,
    free: Vec<u32>,
    spares: Vec<Vec<u8>>,
    /// What the spares can hold.
    spares_bytes: usize,
}

/// What a connection says in one go.
#[derive(Debug)]
struct Letter {
    text: Vec<u8>,
    /// How much of it has been sent.
    sent: usize,
    key: Key,
    then: Then,
    in_flight: bool,
}

/// What the kernel does on its own once a letter is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// It receives from the same connection.
    Receive,
    /// It closes the connection.
    Close,
}

/// What the kernel does about what the socket has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// It gives it back, at once.
    Try,
    /// It waits for room, and goes on until all is sent.
    Persist,
}

/// A letter whose completion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Landed {
    /// Whose it is.
    pub(super) key: Key,
    pub(super) then: Then,
    /// Whether all of it is sent.
    pub(super) is_whole: bool,
}

impl Effort {
    /// The flags of a send, which never raises a signal where the peer has gone.
    const fn flags(self) -> i32 {
        let effort = match self {
            Self::Try => libc::MSG_DONTWAIT,
            Self::Persist => libc::MSG_WAITALL,
        };
        effort | libc::MSG_NOSIGNAL
    }
}

impl Outbox {
    /// An empty text to write on.
    pub(super) fn blank(&mut self) -> Vec<u8> {
        let text = self.spares.pop().unwrap_or_default();
        self.spares_bytes -= text.capacity();
        text
    }

    /// Takes back a text that is not needed any more.
    pub(super) fn reclaim(&mut self, mut text: Vec<u8>) {
        let bytes = self.spares_bytes + text.capacity();
        if self.spares.len() < SPARES_MAX && text.capacity() <= SPARE_BYTES_MAX && bytes <= SPARES_BYTES_MAX {
            text.clear();
            self.spares_bytes = bytes;
            self.spares.push(text);
        }
    }

    /// Takes a text that the connection `key` is to send.
    pub(super) fn write(&mut self, key: Key, text: Vec<u8>, then: Then) -> u32 {
        let letter = Letter { text, sent: 0, key, then, in_flight: false };
        if let Some(index) = self.free.pop() {
            self.letters[index as usize] = letter;
            return index;
        }
        self.letters.push(letter);
        u32::try_from(self.letters.len() - 1).expect("no more letters than connections")
    }

    /// The text of a letter that is not sent yet, to write more of it.
    pub(super) fn text(&mut self, index: u32) -> &mut Vec<u8> {
        let letter = &mut self.letters[index as usize];
        assert!(!letter.in_flight, "letter {index} is with the kernel");
        &mut letter.text
    }

    /// How much of letter `index` is not sent, as far as completions have told.
    pub(super) fn unsent_bytes(&self, index: u32) -> usize {
        let letter = &self.letters[index as usize];
        letter.text.len() - letter.sent
    }

    /// How much memory letter `index` holds.
    pub(super) fn capacity_bytes(&self, index: u32) -> usize {
        self.letters[index as usize].text.capacity()
    }

    /// Gives back the texts that are kept for later. They are made anew when they are needed.
    pub(super) fn trim(&mut self) {
        self.spares = Vec::new();
        self.spares_bytes = 0;
    }

    /// Hands what is left of letter `index` to the kernel, which sends it on `socket`.
    pub(super) fn send(&mut self, index: u32, socket: &Socket, effort: Effort) -> Submission {
        let letter = &mut self.letters[index as usize];
        assert!(!mem::replace(&mut letter.in_flight, true), "letter {index} is with the kernel already");
        let left = &letter.text[letter.sent..];
        // Of what is longer the kernel sends a part, and the rest follows.
        let length = u32::try_from(left.len()).unwrap_or(u32::MAX);
        let entry = match socket {
            Socket::Descriptor(fd) => opcode::Send::new(types::Fd(fd.as_raw_fd()), left.as_ptr(), length),
            Socket::Slot(Slot(slot)) => opcode::Send::new(types::Fixed(*slot), left.as_ptr(), length),
        };
        let entry = entry.flags(effort.flags());
        // SAFETY: while a letter is in flight nobody writes, moves or frees its text: `text`, `discard` and `leak` are all
        // that could, the first two assert that it is not, and the last is what keeps it for ever.
        unsafe { Submission::new(entry.build(), Token::Send(index).encode()) }
    }

    /// Takes note that the kernel is done with letter `index`, of which it has sent `sent` bytes more.
    pub(super) fn land(&mut self, index: u32, sent: usize) -> Landed {
        let letter = &mut self.letters[index as usize];
        assert!(
            mem::take(&mut letter.in_flight),
            "the kernel completed letter {index}, which it did not have"
        );
        letter.sent += sent;
        Landed { key: letter.key, then: letter.then, is_whole: letter.sent == letter.text.len() }
    }

    /// From now on nothing follows letter `index`, of which a part is sent.
    pub(super) fn follow_by_nothing(&mut self, index: u32) {
        self.letters[index as usize].then = Then::Nothing;
    }

    /// What the kernel does after letter `index`.
    pub(super) fn then(&self, index: u32) -> Then {
        self.letters[index as usize].then
    }

    /// Frees the place of a letter that has landed.
    pub(super) fn discard(&mut self, index: u32) {
        let letter = &mut self.letters[index as usize];
        assert!(!letter.in_flight, "letter {index} is with the kernel");
        let text = mem::take(&mut letter.text);
        self.reclaim(text);
        self.free.push(index);
    }

    /// Keeps the letters for ever, because the kernel may still read them.
    pub(super) fn leak(&mut self) {
        mem::forget(mem::take(&mut self.letters));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { index: 7, generation: 1 };
    const SOCKET: Socket = Socket::Slot(Slot(3));

    #[test]
    fn a_letter_is_sent_in_parts_and_its_text_used_again() {
        let mut outbox = Outbox::default();
        let mut text = outbox.blank();
        text.extend_from_slice(b"hello");
        let address = text.as_ptr();
        let letter = outbox.write(KEY, text, Then::Close);
        for (sent, is_whole) in [(2, false), (0, false), (3, true)] {
            let _submission = outbox.send(letter, &SOCKET, Effort::Persist);
            assert_eq!(outbox.land(letter, sent), Landed { key: KEY, then: Then::Close, is_whole });
        }
        outbox.discard(letter);
        let text = outbox.blank();
        assert_eq!((text.as_ptr(), text.len()), (address, 0));
        assert_eq!(outbox.write(KEY, text, Then::Nothing), letter);
    }

    #[test]
    #[should_panic(expected = "which it did not have")]
    fn a_letter_does_not_land_twice() {
        let mut outbox = Outbox::default();
        let letter = outbox.write(KEY, vec![1], Then::Nothing);
        let _submission = outbox.send(letter, &SOCKET, Effort::Try);
        outbox.land(letter, 1);
        outbox.land(letter, 1);
    }

    #[test]
    #[should_panic(expected = "is with the kernel")]
    fn a_letter_in_flight_is_not_discarded() {
        let mut outbox = Outbox::default();
        let letter = outbox.write(KEY, vec![1], Then::Nothing);
        let _submission = outbox.send(letter, &SOCKET, Effort::Try);
        outbox.discard(letter);
    }
}
