//! The send slots of a worker: each holds one reply, and everything that `sendmsg` needs to send it.
//!
//! This module owns the slots and knows each one's holder: it is free, this process has its [`Slot`], or the kernel has
//! it in flight.
#![allow(unsafe_code, reason = "the kernel reads replies at addresses it was given")]

use std::ffi::c_void;
use std::io;
use std::mem::offset_of;

use io_uring::{opcode, types};
use shoal_base::transport::datagram::REPLY_BYTES_MAX;

use super::message::Message;
use super::token::Token;
use crate::ring::Submission;
use crate::shared::Shared;
use crate::socket::{Control, Name, turn_around};

#[derive(Debug)]
pub(super) struct SlotPool {
    replies: Shared<Outgoing>,
    free: Vec<Slot>,
    /// For each slot whether the kernel holds it.
    in_flight: Box<[bool]>,
}

/// The permission to use one slot.
#[derive(Debug)]
pub(super) struct Slot {
    index: u16,
}

#[repr(C, align(64))]
#[derive(Debug)]
struct Outgoing {
    header: libc::msghdr,
    vector: libc::iovec,
    name: Name,
    control: Control,
    reply: [u8; REPLY_BYTES_MAX],
}

// An odd number of cache lines spreads the starts of neighbours over the sets of the cache.
const _: () = assert!(size_of::<Outgoing>() / 64 % 2 == 1);

/// Returns the address of a part of an outgoing reply.
fn part(outgoing: *mut Outgoing, offset: usize) -> *mut c_void {
    outgoing.wrapping_byte_add(offset).cast()
}

impl SlotPool {
    pub(super) fn new(count: u16) -> io::Result<Self> {
        let size = usize::from(count);
        // SAFETY: `Outgoing` consists of bytes, integers, and pointers that may be null.
        let replies = unsafe { Shared::zeroed(size)? };
        let free = (0..count).rev().map(|index| Slot { index }).collect();
        let pool = Self { replies, free, in_flight: vec![false; size].into() };
        for index in 0..size {
            let place = pool.replies.pointer(index);
            // SAFETY: no slot was handed out yet.
            let outgoing = unsafe { pool.replies.element_mut(index) };
            // The header points at the other parts. This never changes.
            outgoing.header.msg_name = part(place, offset_of!(Outgoing, name));
            outgoing.header.msg_control = part(place, offset_of!(Outgoing, control));
            outgoing.header.msg_iov = part(place, offset_of!(Outgoing, vector)).cast();
            outgoing.header.msg_iovlen = 1;
            outgoing.vector.iov_base = part(place, offset_of!(Outgoing, reply));
        }
        Ok(pool)
    }

    pub(super) fn take(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    pub(super) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the buffer for the reply.
    pub(super) fn reply<'s>(&'s self, slot: &'s mut Slot) -> &'s mut [u8; REPLY_BYTES_MAX] {
        // SAFETY: there is one `Slot` of each index and it is borrowed mutably, so no other code of this process
        // accesses the reply. It is not in flight, because `send` consumes the `Slot` and only `complete` creates it
        // again.
        &mut unsafe { self.replies.element_mut(usize::from(slot.index)) }.reply
    }

    pub(super) fn give_back(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// Addresses the first `reply_bytes` of the reply to the source of `request`, and passes the slot to the kernel,
    /// which sends the reply on `socket`.
    pub(super) fn send(
        &mut self,
        slot: Slot,
        reply_bytes: usize,
        request: &Message,
        socket: u8,
    ) -> Submission {
        assert!(reply_bytes <= REPLY_BYTES_MAX, "a reply of {reply_bytes} bytes is a fault of the service");
        let index = usize::from(slot.index);
        // SAFETY: the same as in `reply`, with the `Slot` owned here.
        let outgoing = unsafe { self.replies.element_mut(index) };
        outgoing.name = request.name;
        outgoing.header.msg_namelen = request.name_len();
        outgoing.control = request.control;
        outgoing.header.msg_controllen = turn_around(&mut outgoing.control, request.control_bytes());
        outgoing.vector.iov_len = reply_bytes;
        self.in_flight[index] = true;

        let header = part(self.replies.pointer(index), offset_of!(Outgoing, header)).cast_const().cast();
        // DONTWAIT: if the socket has no room, the reply is dropped instead of waiting in the kernel.
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).cast_unsigned();
        let entry = opcode::SendMsg::new(types::Fixed(socket.into()), header).flags(flags).build();
        // SAFETY: there is no `Slot` for the reply until `complete`, so nothing accesses the reply before its
        // completion. It stays mapped while any slot is in flight (`Drop`).
        unsafe { Submission::new(entry, Token::Send { socket, slot: slot.index }.encode()) }
    }

    /// Frees slot `index`, whose completion has arrived.
    pub(super) fn complete(&mut self, index: u16) {
        let in_flight = &mut self.in_flight[usize::from(index)];
        assert!(*in_flight, "the kernel completed slot {index}, which it did not have");
        *in_flight = false;
        self.free.push(Slot { index });
    }

    pub(super) fn any_in_flight(&self) -> bool {
        self.in_flight.contains(&true)
    }
}

impl Drop for SlotPool {
    fn drop(&mut self) {
        // Leaked memory is harmless. A kernel that reads reused memory is not.
        if self.any_in_flight() {
            self.replies.leak();
        }
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
        let outgoing = unsafe { pool.replies.element(usize::from(index)) };
        assert_eq!(outgoing.header.msg_namelen, 16);
        assert_eq!(outgoing.header.msg_controllen, 0);
        assert_eq!(outgoing.header.msg_name.addr(), outgoing.name.as_ptr().addr());
        assert_eq!(outgoing.header.msg_control.addr(), outgoing.control.as_ptr().addr());
        assert_eq!(outgoing.header.msg_iov.addr(), (&raw const outgoing.vector).addr());
        assert_eq!(outgoing.vector.iov_base.addr(), outgoing.reply.as_ptr().addr());
        assert_eq!((outgoing.vector.iov_len, &outgoing.reply[..5]), (5, &b"reply"[..]));

        pool.complete(index);
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
        pool.complete(index);
        pool.complete(index);
    }

    #[test]
    #[should_panic(expected = "a fault of the service")]
    fn a_reply_that_is_too_long_is_not_sent() {
        let mut pool = SlotPool::new(1).unwrap();
        let slot = pool.take().unwrap();
        let _submission = pool.send(slot, REPLY_BYTES_MAX + 1, &Message::sample(98, 0), 0);
    }
}
