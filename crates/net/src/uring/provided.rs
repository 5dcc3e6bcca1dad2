//! The receive buffers of one socket, in a ring that is shared with the kernel ("ring-mapped provided buffers",
//! `io_uring_register_buf_ring(3)`).
//!
//! Owns the buffers and who holds each: the kernel, or this process, which has a [`Filled`] to show for it.
//! Each socket has a group of its own, so that a flood on one cannot take the buffers of another.
#![allow(unsafe_code, reason = "the kernel fills buffers at addresses it was given")]

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use super::message::{MESSAGE_BYTES, Message};
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
    /// Makes `count` buffers (a power of two) and registers them with the ring as the group of number `socket`.
    pub(super) fn register(ring: &Ring, socket: u8, count: u16) -> io::Result<Self> {
        assert!(count.is_power_of_two() && count <= BUFFERS_MAX);
        let size = usize::from(count);
        // SAFETY: `Entry` is integers only.
        let entries = unsafe { Shared::<Entry>::zeroed(size)? };
        // SAFETY: `Message` is integers and bytes only.
        let messages = unsafe { Shared::zeroed(size)? };
        // SAFETY: the entries start a mapping, hence a page, and live until the ring is idle (`UringIo::drop`), with
        // one entry for each of `count`.
        unsafe { ring.register_buffer_group(entries.pointer(0).addr() as u64, count, socket.into())? };
        let mut group = Self { socket, entries, messages, lent: vec![false; size].into(), tail: 0 };
        (0..count).for_each(|index| group.give_back(Filled { socket, index }));
        group.publish();
        Ok(group)
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
        let position = usize::from(self.tail) % self.lent.len();
        // SAFETY: there are as many entries as buffers, and this buffer is not in the ring, so the entry at the tail
        // is one that the kernel has consumed and does not look at before `publish`.
        let entry = unsafe { self.entries.element_mut(position) };
        entry.address = self.messages.pointer(usize::from(index)).addr() as u64;
        entry.length = MESSAGE_BYTES;
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
