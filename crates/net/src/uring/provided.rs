//! The receive buffers of one socket, in a ring that is shared with the kernel ("ring-mapped provided buffers",
//! `io_uring_register_buf_ring(3)`).
//!
//! Owns the buffers and who holds each: the kernel, or this process, which has a [`Filled`] to show for it.
//! Each socket has a group of its own, so that a flood on one cannot take the buffers of another.
#![allow(unsafe_code, reason = "the kernel fills buffers at addresses it was given")]

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use super::message::{MESSAGE_BYTES_MAX, Message};
use super::ring::Ring;
use crate::shared::Shared;

/// Most buffers of one group (linux/io_uring.h: the tail has 16 bits, of which one tells full from empty).
pub(super) const BUFFERS_MAX: u16 = 1 << 15;

/// Buffers of one socket.
#[derive(Debug)]
pub(super) struct BufferGroup {
    socket: u8,
    entries: Shared<Entry>,
    messages: Shared<Message>,
    /// For each buffer whether the kernel may write to it.
    lent: Box<[bool]>,
    count: u16,
    /// Where the next entry goes. Counts on past the end of the ring and wraps at 2^16.
    tail: u16,
}

/// A buffer that the kernel has filled and given up: a permission to read it, until it is given back.
#[derive(Debug)]
pub(super) struct Filled {
    /// Index of the socket that the datagram came in by.
    pub(super) socket: u8,
    index: u16,
}

/// `struct io_uring_buf` (linux/io_uring.h). The tail of the whole ring lies in the first entry, where the others
/// have nothing.
#[repr(C)]
#[derive(Debug)]
struct Entry {
    address: u64,
    length: u32,
    index: u16,
    tail: AtomicU16,
}

const _: () = assert!(size_of::<Entry>() == 16);

impl BufferGroup {
    /// Makes the group of number `socket`, with `count` buffers (a power of two), all of them lent.
    pub(super) fn new(socket: u8, count: u16) -> io::Result<Self> {
        assert!(count.is_power_of_two() && count <= BUFFERS_MAX, "{count} buffers");
        let size = usize::from(count);
        // SAFETY: `Entry` is integers only.
        let entries = unsafe { Shared::zeroed(size)? };
        // SAFETY: `Message` is integers and bytes only.
        let messages = unsafe { Shared::zeroed(size)? };
        let mut group = Self { socket, entries, messages, lent: vec![false; size].into(), count, tail: 0 };
        (0..count).for_each(|index| group.give_back(Filled { socket, index }));
        group.publish();
        Ok(group)
    }

    /// Makes the group known to the kernel, under the number of its socket.
    pub(super) fn register(&self, ring: &Ring) -> io::Result<()> {
        let address = self.entries.pointer(0).addr() as u64;
        // SAFETY: the entries start a mapping, hence a page; there are `count`; and they stay mapped until the ring
        // is idle (`UringIo::drop`).
        unsafe { ring.register_buffer_group(address, self.count, self.socket.into()) }
    }

    /// Takes buffer `index`, which a completion of this group's receive has just named.
    pub(super) fn take(&mut self, index: u16) -> Filled {
        let lent = &mut self.lent[usize::from(index)];
        assert!(*lent, "the kernel returned buffer {index}, which it did not have");
        *lent = false;
        Filled { socket: self.socket, index }
    }

    /// What the kernel wrote into the buffer.
    pub(super) fn message<'b>(&'b self, filled: &'b Filled) -> &'b Message {
        assert_eq!(filled.socket, self.socket);
        // SAFETY: `filled` came from `take`, so the kernel has given this buffer up, and it is lent again only by
        // `give_back`, which consumes `filled` and so ends this borrow.
        unsafe { self.messages.element(usize::from(filled.index)) }
    }

    /// Lends the buffer to the kernel again, from the next `publish` on.
    pub(super) fn give_back(&mut self, filled: Filled) {
        let Filled { socket, index } = filled;
        assert_eq!(socket, self.socket);
        let position = usize::from(self.tail & (self.count - 1));
        // SAFETY: there are as many entries as buffers, and this buffer is not in the ring, so the entry at the tail
        // is one that the kernel has consumed and does not look at before `publish`.
        let entry = unsafe { self.entries.element_mut(position) };
        entry.address = self.messages.pointer(usize::from(index)).addr() as u64;
        entry.length = MESSAGE_BYTES_MAX;
        entry.index = index;
        self.lent[usize::from(index)] = true;
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel what was given back.
    pub(super) fn publish(&mut self) {
        // SAFETY: no `&mut` to an entry outlives `give_back`, and the kernel only reads the tail.
        let first = unsafe { self.entries.element(0) };
        first.tail.store(self.tail, Ordering::Release);
    }

    /// Keeps the memory for ever, because the kernel may still write to it.
    pub(super) fn leak(&mut self) {
        self.entries.leak();
        self.messages.leak();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would find between its head and the tail.
    fn offered(group: &BufferGroup, head: u16) -> Vec<u16> {
        // SAFETY: there is no kernel in this test.
        let entry =
            |position: u16| unsafe { group.entries.element(usize::from(position & (group.count - 1))) };
        let offered = entry(0).tail.load(Ordering::Acquire).wrapping_sub(head);
        (0..offered)
            .map(|distance| {
                let Entry { address, length, index, .. } = entry(head.wrapping_add(distance));
                assert_eq!(*address, group.messages.pointer(usize::from(*index)).addr() as u64);
                assert_eq!(*length, MESSAGE_BYTES_MAX);
                *index
            })
            .collect()
    }

    #[test]
    fn all_buffers_are_lent_at_first() {
        assert_eq!(offered(&BufferGroup::new(3, 8).unwrap(), 0), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn buffers_go_round_in_any_order_and_past_the_wrap_of_the_tail() {
        let mut group = BufferGroup::new(0, 4).unwrap();
        let mut head = 0_u16;
        for _ in 0..100_000 {
            let lent = offered(&group, head);
            let [first, second, ..] = lent[..] else { panic!("{lent:?}") };
            let (first, second) = (group.take(first), group.take(second));
            head = head.wrapping_add(2);
            group.give_back(second);
            group.give_back(first);
            assert_eq!(offered(&group, head).len(), 2, "nothing is offered before it is published");
            group.publish();
            assert_eq!(offered(&group, head).len(), 4);
        }
    }

    #[test]
    #[should_panic(expected = "which it did not have")]
    fn a_buffer_is_not_taken_twice() {
        let mut group = BufferGroup::new(0, 4).unwrap();
        let _first = group.take(1);
        let _second = group.take(1);
    }
}
