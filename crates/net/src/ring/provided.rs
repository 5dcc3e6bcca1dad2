//! Receive buffers in a ring that is shared with the kernel ("ring-mapped provided buffers",
//! `io_uring_register_buf_ring(3)`).
//!
//! This module owns the buffers and knows each one's holder: the kernel, or this process, which then has a [`Filled`]
//! for it.
#![allow(unsafe_code, reason = "the kernel fills buffers at addresses it was given")]

use std::io;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::Ring;
use crate::shared::Shared;

/// Maximum number of buffers of one group (linux/io_uring.h: the tail has 16 bits, one of which distinguishes full from
/// empty).
pub(crate) const BUFFERS_MAX: u16 = 1 << 15;

/// A group of buffers, each a `B`.
#[derive(Debug)]
pub(crate) struct BufferGroup<B> {
    id: u8,
    entries: Shared<Entry>,
    buffers: Shared<B>,
    /// The number of bytes of each buffer that the kernel may use.
    length: u32,
    /// For each buffer whether the kernel may write to it.
    lent: Box<[bool]>,
    count: u16,
    /// The position of the next entry. It continues past the end of the ring and wraps at 2^16.
    tail: u16,
}

/// A buffer that the kernel has filled and released. It permits access until it is given back.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) group: u8,
    index: u16,
}

/// `struct io_uring_buf` (linux/io_uring.h). The tail of the whole ring is in the first entry, in a field that the
/// others do not use. The fields are atomic, because the kernel may read the tail while the first entry's other fields
/// are written.
#[repr(C)]
#[derive(Debug)]
struct Entry {
    address: AtomicU64,
    length: AtomicU32,
    index: AtomicU16,
    tail: AtomicU16,
}

const _: () = assert!(size_of::<Entry>() == 16);

impl<B> BufferGroup<B> {
    /// Creates group `id` of `count` buffers (a power of two). All are lent to the kernel, which may use the first
    /// `length` bytes of each.
    ///
    /// # Safety
    /// A `B` must be valid for any bytes.
    pub(crate) unsafe fn new(id: u8, count: u16, length: u32) -> io::Result<Self> {
        assert!(count.is_power_of_two() && count <= BUFFERS_MAX, "{count} buffers");
        assert!(length as usize <= size_of::<B>(), "{length} bytes");
        let size = usize::from(count);
        // SAFETY: `Entry` consists of integers only.
        let entries = unsafe { Shared::zeroed(size)? };
        // SAFETY: the caller guarantees that any bytes make a valid `B`.
        let buffers = unsafe { Shared::zeroed(size)? };
        let lent = vec![false; size].into();
        let mut group = Self { id, entries, buffers, length, lent, count, tail: 0 };
        (0..count).for_each(|index| group.give_back(Filled { group: id, index }));
        group.publish();
        Ok(group)
    }

    /// Registers the group with the kernel. From then on its memory stays, even if the group is dropped, until
    /// [`reclaim`](Self::reclaim).
    pub(crate) fn register(&mut self, ring: &Ring) -> io::Result<()> {
        self.entries.leak();
        self.buffers.leak();
        let address = self.entries.pointer(0).addr() as u64;
        // SAFETY: the entries begin a mapping, hence a page; there are `count`; and they stay mapped, as do the buffers
        // that they name.
        unsafe { ring.register_buffer_group(address, self.count, self.id.into()) }
    }

    /// Takes buffer `index`, which a completion of a receive into this group has just named.
    pub(crate) fn take(&mut self, index: u16) -> Filled {
        let lent = &mut self.lent[usize::from(index)];
        assert!(*lent, "the kernel returned buffer {index}, which it did not have");
        *lent = false;
        Filled { group: self.id, index }
    }

    pub(crate) fn buffer<'b>(&'b self, filled: &'b Filled) -> &'b B {
        assert_eq!(filled.group, self.id);
        // SAFETY: `filled` came from `take`, so the kernel has released this buffer. It is lent again only by
        // `give_back`, which consumes `filled` and so ends this borrow.
        unsafe { self.buffers.element(usize::from(filled.index)) }
    }

    /// Lends the buffer to the kernel again, from the next `publish` on.
    pub(crate) fn give_back(&mut self, filled: Filled) {
        let Filled { group, index } = filled;
        assert_eq!(group, self.id);
        let entry = self.entry(self.tail);
        // There are as many entries as buffers, and this buffer is not in the ring. So the kernel has consumed the
        // entry at the tail, and does not read it before `publish`.
        let address = self.buffers.pointer(usize::from(index)).addr() as u64;
        entry.address.store(address, Ordering::Relaxed);
        entry.length.store(self.length, Ordering::Relaxed);
        entry.index.store(index, Ordering::Relaxed);
        self.lent[usize::from(index)] = true;
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes the buffers that were given back visible to the kernel.
    pub(crate) fn publish(&self) {
        self.entry(0).tail.store(self.tail, Ordering::Release);
    }

    /// Returns the entry at a position, which continues past the end of the ring.
    fn entry(&self, position: u16) -> &Entry {
        // SAFETY: there is never a `&mut` of an entry; the kernel only reads them, and they are atomic.
        unsafe { self.entries.element(usize::from(position & (self.count - 1))) }
    }

    /// Lets the memory be freed with the group.
    ///
    /// # Safety
    /// No receive into this group may be in progress, or begin later.
    pub(crate) unsafe fn reclaim(&mut self) {
        // SAFETY: without receives the kernel reads no entries.
        unsafe { self.entries.reclaim() };
        // SAFETY: without receives the kernel writes to no buffer.
        unsafe { self.buffers.reclaim() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u32 = 100;

    fn new_group(id: u8, count: u16) -> BufferGroup<[u8; 128]> {
        // SAFETY: a `u8` may have any value.
        unsafe { BufferGroup::new(id, count, LENGTH) }.unwrap()
    }

    /// Returns the buffers that the kernel would find between its head and the tail.
    fn offered(group: &BufferGroup<[u8; 128]>, head: u16) -> Vec<u16> {
        let offered = group.entry(0).tail.load(Ordering::Acquire).wrapping_sub(head);
        (0..offered)
            .map(|distance| {
                let entry = group.entry(head.wrapping_add(distance));
                let index = entry.index.load(Ordering::Relaxed);
                let address = group.buffers.pointer(usize::from(index)).addr() as u64;
                assert_eq!(entry.address.load(Ordering::Relaxed), address);
                assert_eq!(entry.length.load(Ordering::Relaxed), LENGTH);
                index
            })
            .collect()
    }

    #[test]
    fn all_buffers_are_lent_at_first() {
        assert_eq!(offered(&new_group(3, 8), 0), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn buffers_go_round_in_any_order_and_past_the_wrap_of_the_tail() {
        let mut group = new_group(0, 4);
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
        let mut group = new_group(0, 4);
        let _first = group.take(1);
        let _second = group.take(1);
    }
}
