//! What is being sent: each letter stays where it is until the kernel has completed it.
//!
//! Owns the letters and who holds each: this process, or the kernel (it is in flight). Texts that are done with are
//! used again, so that answers are written without allocating.
#![allow(unsafe_code, reason = "the kernel reads texts at addresses it was given")]

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{opcode, types};

use super::super::slab::Key;
use super::token::Token;
use crate::ring::Submission;

/// Most empty texts that are kept for later.
const SPARES_MAX: usize = 256;

/// Longest text that is kept for later. Longer ones are few and would only hold memory.
const SPARE_BYTES_MAX: usize = 16 * 1024;

/// The letters of a worker.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    letters: Vec<Letter>,
    free: Vec<u32>,
    spares: Vec<Vec<u8>>,
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

/// A letter whose completion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Landed {
    /// Whose it is.
    pub(super) key: Key,
    pub(super) then: Then,
    /// Whether all of it is sent.
    pub(super) is_whole: bool,
}

/// Flags of all sends: the kernel goes on until all is sent, and raises no signal where the peer has gone.
const FLAGS: i32 = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;

impl Outbox {
    /// An empty text to write on.
    pub(super) fn blank(&mut self) -> Vec<u8> {
        self.spares.pop().unwrap_or_default()
    }

    /// Takes back a text that is not needed any more.
    pub(super) fn reclaim(&mut self, mut text: Vec<u8>) {
        if self.spares.len() < SPARES_MAX && text.capacity() <= SPARE_BYTES_MAX {
            text.clear();
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

    /// Hands what is left of letter `index` to the kernel, which sends it on `socket`.
    pub(super) fn send(&mut self, index: u32, socket: BorrowedFd<'_>) -> Submission {
        let letter = &mut self.letters[index as usize];
        assert!(!mem::replace(&mut letter.in_flight, true), "letter {index} is with the kernel already");
        let left = &letter.text[letter.sent..];
        // Of what is longer the kernel sends a part, and the rest follows.
        let length = u32::try_from(left.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(types::Fd(socket.as_raw_fd()), left.as_ptr(), length).flags(FLAGS);
        // SAFETY: while a letter is in flight nobody writes, moves or frees its text: `discard` and `leak` are all that
        // could, the first asserts that it is not, and the second is what keeps it for ever.
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
    use std::io;
    use std::os::fd::AsFd;

    use super::*;

    const KEY: Key = Key { index: 7, generation: 1 };

    #[test]
    fn a_letter_is_sent_in_parts_and_its_text_used_again() {
        let mut outbox = Outbox::default();
        let mut text = outbox.blank();
        text.extend_from_slice(b"hello");
        let address = text.as_ptr();
        let letter = outbox.write(KEY, text, Then::Close);
        let socket = io::stdin();
        for (sent, is_whole) in [(2, false), (0, false), (3, true)] {
            let _submission = outbox.send(letter, socket.as_fd());
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
        let _submission = outbox.send(letter, io::stdin().as_fd());
        outbox.land(letter, 1);
        outbox.land(letter, 1);
    }

    #[test]
    #[should_panic(expected = "is with the kernel")]
    fn a_letter_in_flight_is_not_discarded() {
        let mut outbox = Outbox::default();
        let letter = outbox.write(KEY, vec![1], Then::Nothing);
        let _submission = outbox.send(letter, io::stdin().as_fd());
        outbox.discard(letter);
    }
}
