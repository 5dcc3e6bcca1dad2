//! The send slots of a worker: a fixed number of places, each for one reply and all that `sendmsg` needs to send it.
//!
//! Owns the slots and who holds each: nobody (it is free), this process (it has the [`Slot`]), or the kernel (it is
//! in flight).
#![allow(unsafe_code, reason = "the kernel reads replies at addresses it was given")]

use std::ffi::c_void;
use std::io;
use std::mem::offset_of;

use io_uring::{opcode, types};
use shoal_transport::datagram::REPLY_BYTES_MAX;

use super::message::Message;
use super::token::Token;
use crate::ring::Submission;
use crate::shared::Shared;
use crate::socket::{Control, Name, turn_around};

/// The slots of one worker.
#[derive(Debug)]
pub(super) struct SlotPool {
    letters: Shared<Letter>,
    free: Vec<Slot>,
    /// For each slot whether the kernel holds it.
    in_flight: Box<[bool]>,
}

/// The permission to use one slot.
#[derive(Debug)]
pub(super) struct Slot {
    index: u16,
}

/// A reply in its envelope.
#[repr(C, align(64))]
#[derive(Debug)]
struct Letter {
    header: libc::msghdr,
    vector: libc::iovec,
    name: Name,
    control: Control,
    reply: [u8; REPLY_BYTES_MAX],
}

// An odd number of cache lines spreads the starts of neighbours over the sets of the cache.
const _: () = assert!(size_of::<Letter>() / 64 % 2 == 1);

/// The address of a part of a letter.
fn part(letter: *mut Letter, offset: usize) -> *mut c_void {
    letter.wrapping_byte_add(offset).cast()
}

impl SlotPool {
    pub(super) fn new(count: u16) -> io::Result<Self> {
        let size = usize::from(count);
        // SAFETY: `Letter` is bytes, integers, and pointers that may be null.
        let letters = unsafe { Shared::zeroed(size)? };
        let free = (0..count).rev().map(|index| Slot { index }).collect();
        let pool = Self { letters, free, in_flight: vec![false; size].into() };
        (0..size).for_each(|index| pool.connect(index));
        Ok(pool)
    }

    /// Points the header of a letter at its parts, for life.
    fn connect(&self, index: usize) {
        let place = self.letters.pointer(index);
        // SAFETY: only `new` calls this, before anybody, or the kernel, has a slot.
        let letter = unsafe { self.letters.element_mut(index) };
        letter.header.msg_name = part(place, offset_of!(Letter, name));
        letter.header.msg_control = part(place, offset_of!(Letter, control));
        letter.header.msg_iov = part(place, offset_of!(Letter, vector)).cast();
        letter.header.msg_iovlen = 1;
        letter.vector.iov_base = part(place, offset_of!(Letter, reply));
    }

    /// A free slot, if there is one.
    pub(super) fn take(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    /// Whether `take` would find one.
    pub(super) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The place for the reply.
    pub(super) fn reply<'s>(&'s self, slot: &'s mut Slot) -> &'s mut [u8; REPLY_BYTES_MAX] {
        // SAFETY: there is one `Slot` of each index and it is borrowed mutably, so nobody else in this process reaches
        // the letter; and it is not in flight, since `send` and `land` make one of the other.
        &mut unsafe { self.letters.element_mut(usize::from(slot.index)) }.reply
    }

    /// Frees a slot that was not used.
    pub(super) fn give_back(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// Directs the first `reply_bytes` of the reply to whoever sent `request`, and hands the slot to the kernel,
    /// which sends it on `socket`.
    pub(super) fn send(
        &mut self,
        slot: Slot,
        reply_bytes: usize,
        request: &Message,
        socket: u8,
    ) -> Submission {
        assert!(reply_bytes <= REPLY_BYTES_MAX, "a reply of {reply_bytes} bytes is a fault of the service");
        let index = usize::from(slot.index);
        // SAFETY: as in `reply`, with the `Slot` owned here.
        let letter = unsafe { self.letters.element_mut(index) };
        letter.name = request.name;
        letter.header.msg_namelen = request.name_len();
        letter.control = request.control;
        letter.header.msg_controllen = turn_around(&mut letter.control, request.control_bytes());
        letter.vector.iov_len = reply_bytes;
        self.in_flight[index] = true;

        let header = part(self.letters.pointer(index), offset_of!(Letter, header)).cast_const().cast();
        // DONTWAIT: where the socket has no room the reply is dropped, instead of waiting for some in the kernel.
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).cast_unsigned();
        let entry = opcode::SendMsg::new(types::Fixed(socket.into()), header).flags(flags).build();
        // SAFETY: the letter's `Slot` is gone until `land`, so nothing touches the letter before its completion; and
        // it stays mapped until the ring is idle (`UringIo::drop`).
        unsafe { Submission::new(entry, Token::Send { socket, slot: slot.index }.encode()) }
    }

    /// Frees slot `index`, whose completion has come.
    pub(super) fn land(&mut self, index: u16) {
        let in_flight = &mut self.in_flight[usize::from(index)];
        assert!(*in_flight, "the kernel completed slot {index}, which it did not have");
        *in_flight = false;
        self.free.push(Slot { index });
    }

    /// Whether the kernel holds any slot.
    pub(super) fn any_in_flight(&self) -> bool {
        self.in_flight.contains(&true)
    }

    /// Keeps the memory for ever, because the kernel may still read it.
    pub(super) fn leak(&mut self) {
        self.letters.leak();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_goes_to_the_kernel_and_back() {
        let mut pool = SlotPool::new(2).unwrap();
        let (mut first, second) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none() && !pool.any_free());
        pool.reply(&mut first)[..5].copy_from_slice(b"reply");
        let index = first.index;
        let _submission = pool.send(first, 5, &Message::sample(98, 0), 1);
        assert!(pool.any_in_flight());
        pool.give_back(second);

        // SAFETY: there is no kernel in this test.
        let letter = unsafe { pool.letters.element(usize::from(index)) };
        assert_eq!(letter.header.msg_namelen, 16);
        assert_eq!(letter.header.msg_controllen, 0);
        assert_eq!(letter.header.msg_name.addr(), letter.name.as_ptr().addr());
        assert_eq!(letter.header.msg_control.addr(), letter.control.as_ptr().addr());
        assert_eq!(letter.header.msg_iov.addr(), (&raw const letter.vector).addr());
        assert_eq!(letter.vector.iov_base.addr(), letter.reply.as_ptr().addr());
        assert_eq!((letter.vector.iov_len, &letter.reply[..5]), (5, &b"reply"[..]));

        pool.land(index);
        assert!(!pool.any_in_flight());
        assert!(pool.take().is_some() && pool.take().is_some() && pool.take().is_none());
    }

    #[test]
    #[should_panic(expected = "which it did not have")]
    fn a_slot_does_not_land_twice() {
        let mut pool = SlotPool::new(1).unwrap();
        let slot = pool.take().unwrap();
        let index = slot.index;
        let _submission = pool.send(slot, 1, &Message::sample(98, 0), 0);
        pool.land(index);
        pool.land(index);
    }

    #[test]
    #[should_panic(expected = "a fault of the service")]
    fn a_reply_that_is_too_long_is_not_sent() {
        let mut pool = SlotPool::new(1).unwrap();
        let slot = pool.take().unwrap();
        let _submission = pool.send(slot, REPLY_BYTES_MAX + 1, &Message::sample(98, 0), 0);
    }
}
