//! Sockets that have given their descriptors up for a place in the ring's table of files ("direct descriptors",
//! `io_uring_register(2)`, IORING_REGISTER_FILES2).
//!
//! Owns which slot is taken. The limit of descriptors holds for a process, and the size of a table is bounded by the same
//! number for each ring: so a worker can hold as many connections again as the process may have descriptors.

use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Resource, getrlimit};

/// Most slots of a table (linux: io_uring/rsrc.h, IORING_MAX_FIXED_FILES).
pub(in super::super) const SLOTS_MAX: u32 = 1 << 20;

/// A place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u32);

/// The table of a ring.
#[derive(Debug)]
pub(super) struct Slots {
    /// For each slot the descriptor that was put there last, where the kernel reads it when it is told to.
    descriptors: Box<[AtomicI32]>,
    /// Those from here on have never been taken.
    fresh: u32,
    free: Vec<Slot>,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        let descriptors = (0..count).map(|_| AtomicI32::new(-1)).collect();
        Self { descriptors, fresh: 0, free: Vec::with_capacity(count as usize) }
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.descriptors.len()).expect("made from 32 bits")
    }

    /// The next free slot.
    pub(super) fn take(&mut self) -> Option<Slot> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = Slot(self.fresh);
        if self.fresh == self.count() {
            return None;
        }
        self.fresh += 1;
        Some(slot)
    }

    /// What was in the slot is closed.
    pub(super) fn give_back(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// Notes the descriptor that is to be put into a slot that was taken. Returns it, and where the kernel will read it.
    /// That is not written to before the slot is taken again.
    pub(super) fn note(&self, slot: Slot, socket: OwnedFd) -> (RawFd, *const RawFd) {
        let note = &self.descriptors[slot.0 as usize];
        let descriptor = socket.into_raw_fd();
        note.store(descriptor, Ordering::Relaxed);
        (descriptor, note.as_ptr().cast_const())
    }

    /// Keeps the notes for ever, because the kernel may still read them.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.descriptors));
    }
}

/// How many slots the kernel lets a ring have now, up to `count_max`.
pub(super) fn possible(count_max: u32) -> u32 {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u32::try_from(descriptors).unwrap_or(u32::MAX).min(count_max).min(SLOTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_taken_once_until_it_is_given_back() {
        let mut slots = Slots::new(3);
        let taken: Vec<_> = std::iter::from_fn(|| slots.take()).collect();
        assert_eq!(taken, [Slot(0), Slot(1), Slot(2)]);
        slots.give_back(Slot(1));
        assert_eq!((slots.take(), slots.take()), (Some(Slot(1)), None));
        assert_eq!(Slots::new(0).take(), None);
    }
}
