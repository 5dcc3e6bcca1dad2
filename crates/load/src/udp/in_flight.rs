//! The requests in flight, by transaction id.
//!
//! Owns a fixed number of slots. A transaction id is the index of a slot and the number of its uses, so that a late or
//! duplicate reply is not taken for another one. Each run masks its ids, so that replies to the previous run do not
//! match.

use shoal_wire::udp::TransactionId;

use crate::tally::Kind;

/// A request in flight, as far as its reply is checked against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// When the request should have left.
    pub(super) due_ns: u64,
    /// The peer that announces, or a peer of the first torrent of a scrape.
    pub(super) peer: u32,
    pub(super) port: u16,
    pub(super) socket: u8,
    pub(super) hashes: u8,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// It belongs to this request, which is no longer in flight.
    Found(Pending),
    /// It belongs to a request that was given up.
    GivenUp,
    Unknown,
}

#[derive(Debug)]
pub(super) struct InFlight {
    slots: Box<[Slot]>,
    /// Last in, first out, so that a small window touches little memory.
    free: Vec<u32>,
    /// The slot at which the next search for expired requests begins.
    cursor: usize,
    /// The number of requests that were given up in this run and may still be answered.
    given_up: u64,
    /// The same for earlier runs.
    given_up_before: u64,
    /// The number of bits of a transaction id that hold the index of a slot. The others count uses.
    index_bits: u32,
    /// The mask of the ids of this run.
    mask: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    request: Option<Pending>,
    uses: u32,
}

/// Most requests of a worker in flight at once.
pub const IN_FLIGHT_MAX: usize = 1 << 20;

impl InFlight {
    /// Returns slots for 1 to [`IN_FLIGHT_MAX`] requests. Each run has a `mask` of its own.
    pub(super) fn new(slots: usize, mask: u32) -> Self {
        let slots = slots.clamp(1, IN_FLIGHT_MAX);
        let free = (0..u32::try_from(slots).expect("there are at most 2^20")).rev().collect();
        let index_bits = slots.next_power_of_two().ilog2();
        let slots = vec![Slot { request: None, uses: 0 }; slots].into();
        Self { slots, free, cursor: 0, given_up: 0, given_up_before: 0, index_bits, mask }
    }

    /// Begins a new run. Replies to requests of earlier runs may still come.
    pub(super) fn reset(&mut self, slots: usize, mask: u32) {
        let given_up_before = self.given_up_before + self.given_up + self.len() as u64;
        *self = Self { given_up_before, ..Self::new(slots, mask) };
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Adds a request. Returns its transaction id, or `None` if no slot is free.
    pub(super) fn add(&mut self, request: Pending) -> Option<TransactionId> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[index as usize];
        slot.request = Some(request);
        slot.uses = slot.uses.wrapping_add(1);
        Some(TransactionId(transaction(slot.uses, index, self.index_bits) ^ self.mask))
    }

    pub(super) fn take(&mut self, TransactionId(id): TransactionId) -> Lookup {
        let id = id ^ self.mask;
        let index = id & ((1 << self.index_bits) - 1);
        let uses = self.slots.get(index as usize).map_or(0, |slot| slot.uses);
        if let Some(slot) = self.slots.get_mut(index as usize)
            && transaction(slot.uses, index, self.index_bits) == id
            && let Some(request) = slot.request.take()
        {
            self.free.push(index);
            return Lookup::Found(request);
        }
        // An id that this run has not used may belong to an earlier run.
        let was_used = (1..=uses).contains(&(id >> self.index_bits));
        let given_up = if was_used { &mut self.given_up } else { &mut self.given_up_before };
        if *given_up == 0 {
            return Lookup::Unknown;
        }
        *given_up -= 1;
        Lookup::GivenUp
    }

    /// Checks the next `count` slots, and gives up requests that were due before `before_ns`.
    pub(super) fn give_up(&mut self, before_ns: u64, count: usize, mut lost: impl FnMut(Pending)) {
        for _ in 0..count.min(self.slots.len()) {
            let slot = &mut self.slots[self.cursor];
            if slot.request.is_some_and(|request| request.due_ns < before_ns)
                && let Some(request) = slot.request.take()
            {
                self.free.push(u32::try_from(self.cursor).expect("there are at most 2^20 slots"));
                self.given_up += 1;
                lost(request);
            }
            self.cursor = (self.cursor + 1) % self.slots.len();
        }
    }
}

/// Returns a transaction id before it is masked. The number of uses wraps around.
fn transaction(uses: u32, index: u32, index_bits: u32) -> u32 {
    uses << index_bits | index
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Pending =
        Pending { due_ns: 50, peer: 1, port: 2, socket: 3, hashes: 0, kind: Kind::Announce };

    #[test]
    fn a_reply_finds_its_request_once() {
        let mut in_flight = InFlight::new(4, 0x1234_5678);
        let (first, second) = (in_flight.add(REQUEST).unwrap(), in_flight.add(REQUEST).unwrap());
        assert_eq!(in_flight.len(), 2);
        assert_eq!(in_flight.take(first), Lookup::Found(REQUEST));
        assert_eq!(in_flight.take(first), Lookup::Unknown);
        let third = in_flight.add(REQUEST).unwrap();
        assert_ne!(third, first);
        assert_eq!(in_flight.take(first), Lookup::Unknown);
        assert_eq!(in_flight.take(third), Lookup::Found(REQUEST));
        assert_eq!(in_flight.take(second), Lookup::Found(REQUEST));
        assert_eq!(in_flight.take(TransactionId(u32::MAX)), Lookup::Unknown);
        assert_eq!(in_flight.free(), 4);
    }

    #[test]
    fn a_request_that_was_given_up_may_be_answered_late() {
        let mut in_flight = InFlight::new(2, 0);
        let id = in_flight.add(REQUEST).unwrap();
        in_flight.add(Pending { due_ns: 100, ..REQUEST }).unwrap();
        assert_eq!(in_flight.add(REQUEST), None);
        let mut lost = Vec::new();
        in_flight.give_up(60, usize::MAX, |request| lost.push(request));
        assert_eq!(lost, [REQUEST]);
        assert_eq!(in_flight.len(), 1);
        assert_eq!(in_flight.take(id), Lookup::GivenUp);
        assert_eq!(in_flight.take(id), Lookup::Unknown);
    }

    #[test]
    fn a_late_reply_to_the_previous_run_answers_nothing() {
        let mut in_flight = InFlight::new(2, 7);
        let stale = in_flight.add(REQUEST).unwrap();
        in_flight.reset(1000, 0xdead_beef);
        for _ in 0..1000 {
            in_flight.add(REQUEST).unwrap();
        }
        assert_eq!(in_flight.take(stale), Lookup::GivenUp);
        assert_eq!(in_flight.len(), 1000);
    }
}
