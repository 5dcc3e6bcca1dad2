//! A ring that one side fills and the other side empties, in shared memory: `struct xdp_ring` of `net/xdp/xsk_queue.h`,
//! described in `Documentation/networking/af_xdp.rst`.
//!
//! The indices count entries from the beginning, modulo 2^32. Each side writes its own index. The other side's index
//! may be anything: if it is out of range, the ring is [`Corrupt`], and no entry is read or written by it.
//!
//! The logic knows no kernel. `tests/ring.rs` compiles this file again, with the types of loom.

use super::sync::{AtomicU32, Ordering};

/// The shared memory of a ring.
pub(crate) trait Memory {
    type Entry: Copy;

    /// The index after the last filled entry.
    fn producer(&self) -> &AtomicU32;

    /// The index of the first entry not yet taken out.
    fn consumer(&self) -> &AtomicU32;

    /// Returns whether the kernel serves the ring only after a system call.
    fn needs_wakeup(&self) -> bool;

    /// The number of entries, a power of two.
    fn entries(&self) -> u32;

    fn read(&self, index: u32) -> Self::Entry;

    fn write(&self, index: u32, entry: Self::Entry);
}

/// The error that the other side has written an index out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel has moved the index of a ring out of range")]
pub(crate) struct Corrupt;

/// The side that fills a ring.
#[derive(Debug)]
pub(crate) struct Producer<M> {
    memory: M,
    /// The index of the next entry. It is ahead of the shared index until `publish`.
    next: u32,
    /// The consumer's index when it was last read.
    consumed: u32,
}

/// The side that empties a ring.
#[derive(Debug)]
pub(crate) struct Consumer<M> {
    memory: M,
    /// The index of the next entry. It is ahead of the shared index until `release`.
    next: u32,
    /// The producer's index when it was last read.
    produced: u32,
}

impl<M: Memory> Producer<M> {
    pub(crate) fn new(memory: M) -> Self {
        let mut ring = Self { memory, next: 0, consumed: 0 };
        ring.resume();
        ring
    }

    /// Continues from the shared indices.
    pub(crate) fn resume(&mut self) {
        self.next = self.memory.producer().load(Ordering::Acquire);
        self.consumed = self.memory.consumer().load(Ordering::Acquire);
    }

    /// Returns the number of free entries, which is at least `wanted` unless the ring is full.
    pub(crate) fn room(&mut self, wanted: u32) -> Result<u32, Corrupt> {
        let room = self.room_by(self.consumed)?;
        if room >= wanted {
            return Ok(room);
        }
        self.consumed = self.memory.consumer().load(Ordering::Acquire);
        self.room_by(self.consumed)
    }

    /// Fills an entry. There must be room.
    pub(crate) fn push(&mut self, entry: M::Entry) {
        self.memory.write(self.next, entry);
        self.next = self.next.wrapping_add(1);
    }

    /// Passes the filled entries to the other side.
    pub(crate) fn publish(&self) {
        self.memory.producer().store(self.next, Ordering::Release);
    }

    /// Returns how many entries the other side has not taken out.
    pub(crate) fn pending(&mut self) -> Result<u32, Corrupt> {
        self.consumed = self.memory.consumer().load(Ordering::Acquire);
        Ok(self.memory.entries() - self.room_by(self.consumed)?)
    }

    /// Returns whether a system call must tell the kernel of new entries.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.memory.needs_wakeup()
    }

    fn room_by(&self, consumed: u32) -> Result<u32, Corrupt> {
        self.memory.entries().checked_sub(self.next.wrapping_sub(consumed)).ok_or(Corrupt)
    }
}

impl<M: Memory> Consumer<M> {
    pub(crate) fn new(memory: M) -> Self {
        let mut ring = Self { memory, next: 0, produced: 0 };
        ring.resume();
        ring
    }

    /// Continues from the shared index.
    pub(crate) fn resume(&mut self) {
        self.next = self.memory.consumer().load(Ordering::Acquire);
        self.produced = self.next;
    }

    /// Returns how many entries can be taken out. Looks for new ones only if fewer than `wanted` are known.
    pub(crate) fn available(&mut self, wanted: u32) -> Result<u32, Corrupt> {
        let known = self.produced.wrapping_sub(self.next);
        if known >= wanted {
            return Ok(known);
        }
        let produced = self.memory.producer().load(Ordering::Acquire);
        let available = produced.wrapping_sub(self.next);
        if available > self.memory.entries() || available < known {
            return Err(Corrupt);
        }
        self.produced = produced;
        Ok(available)
    }

    /// Takes out one of the available entries.
    pub(crate) fn pop(&mut self) -> Option<M::Entry> {
        if self.next == self.produced {
            return None;
        }
        let entry = self.memory.read(self.next);
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Returns the room of the taken entries to the other side.
    pub(crate) fn release(&self) {
        self.memory.consumer().store(self.next, Ordering::Release);
    }
}
