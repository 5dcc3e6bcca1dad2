//! Requests that are on their way: which transaction id stands for what.
//!
//! Owns a fixed number of slots. A transaction id is the index of a slot and the number of times that it was used, so
//! that a reply that comes late, or twice, is not taken for that of another request. Each run hides both under a number
//! of its own, so that what comes late from the run before is not taken for a reply to this one either.

use shoal_wire::udp::TransactionId;

use crate::tally::Kind;

/// What was asked, as far as the reply is checked against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// When the request left, or should have left.
    pub(super) due_ns: u64,
    /// The peer that announces, or the number of a peer of the torrent first scraped.
    pub(super) peer: u32,
    /// The port that was announced.
    pub(super) port: u16,
    pub(super) socket: u8,
    /// Info hashes of a scrape.
    pub(super) hashes: u8,
    pub(super) kind: Kind,
}

/// What a transaction id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    /// This request, which is now answered.
    Known(Asked),
    /// A request that was given up before.
    GivenUp,
    /// None.
    Unknown,
}

/// The slots.
#[derive(Debug)]
pub(super) struct Flight {
    slots: Box<[Slot]>,
    /// Used last, used first: so a small window touches little memory.
    free: Vec<u32>,
    /// Where the next look for lost requests begins.
    hand: usize,
    /// Requests that were given up in this run, and whose replies may still come.
    given_up: u64,
    /// The same of the runs before it.
    given_up_before: u64,
    /// Bits of a transaction id that are the index of a slot; the others count uses.
    index_bits: u32,
    /// What the ids of this run are hidden under.
    mask: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    asked: Option<Asked>,
    uses: u32,
}

/// Most requests of a worker that are on their way at once.
pub const IN_FLIGHT_MAX: usize = 1 << 20;

impl Flight {
    /// Room for `slots` requests, at least 1 and at most [`IN_FLIGHT_MAX`]. The ids of each run have another `mask`.
    pub(super) fn new(slots: usize, mask: u32) -> Self {
        let slots = slots.clamp(1, IN_FLIGHT_MAX);
        let free = (0..u32::try_from(slots).expect("there are at most 2^20")).rev().collect();
        let index_bits = slots.next_power_of_two().ilog2();
        let slots = vec![Slot { asked: None, uses: 0 }; slots].into();
        Self { slots, free, hand: 0, given_up: 0, given_up_before: 0, index_bits, mask }
    }

    /// Begins a new run. Replies to requests of the one before may still come.
    pub(super) fn renew(&mut self, slots: usize, mask: u32) {
        let given_up_before = self.given_up_before + self.given_up + self.in_flight() as u64;
        *self = Self { given_up_before, ..Self::new(slots, mask) };
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// Takes a slot. `None` if all are taken.
    pub(super) fn launch(&mut self, asked: Asked) -> Option<TransactionId> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[index as usize];
        slot.asked = Some(asked);
        slot.uses = slot.uses.wrapping_add(1);
        Some(TransactionId(transaction(slot.uses, index, self.index_bits) ^ self.mask))
    }

    /// Frees the slot of a reply.
    pub(super) fn land(&mut self, TransactionId(id): TransactionId) -> Landed {
        let id = id ^ self.mask;
        let index = id & ((1 << self.index_bits) - 1);
        let uses = self.slots.get(index as usize).map_or(0, |slot| slot.uses);
        if let Some(slot) = self.slots.get_mut(index as usize)
            && transaction(slot.uses, index, self.index_bits) == id
            && let Some(asked) = slot.asked.take()
        {
            self.free.push(index);
            return Landed::Known(asked);
        }
        // An id that this run has not given out may be one of the runs before it.
        let was_given_out = (1..=uses).contains(&(id >> self.index_bits));
        let given_up = if was_given_out { &mut self.given_up } else { &mut self.given_up_before };
        if *given_up == 0 {
            return Landed::Unknown;
        }
        *given_up -= 1;
        Landed::GivenUp
    }

    /// Looks at some slots, the next ones each time, and gives up requests that left before `before_ns`.
    pub(super) fn give_up(&mut self, before_ns: u64, looks: usize, mut lost: impl FnMut(Asked)) {
        for _ in 0..looks.min(self.slots.len()) {
            let slot = &mut self.slots[self.hand];
            if slot.asked.is_some_and(|asked| asked.due_ns < before_ns)
                && let Some(asked) = slot.asked.take()
            {
                self.free.push(u32::try_from(self.hand).expect("there are at most 2^20 slots"));
                self.given_up += 1;
                lost(asked);
            }
            self.hand = (self.hand + 1) % self.slots.len();
        }
    }
}

/// A transaction id before it is hidden. Uses beyond its bits begin anew.
fn transaction(uses: u32, index: u32, index_bits: u32) -> u32 {
    uses << index_bits | index
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked { due_ns: 50, peer: 1, port: 2, socket: 3, hashes: 0, kind: Kind::Announce };

    #[test]
    fn a_reply_finds_its_request_once() {
        let mut flight = Flight::new(4, 0x1234_5678);
        let (first, second) = (flight.launch(ASKED).unwrap(), flight.launch(ASKED).unwrap());
        assert_eq!(flight.in_flight(), 2);
        assert_eq!(flight.land(first), Landed::Known(ASKED));
        assert_eq!(flight.land(first), Landed::Unknown);
        let third = flight.launch(ASKED).unwrap();
        assert_ne!(third, first);
        assert_eq!(flight.land(first), Landed::Unknown);
        assert_eq!(flight.land(third), Landed::Known(ASKED));
        assert_eq!(flight.land(second), Landed::Known(ASKED));
        assert_eq!(flight.land(TransactionId(u32::MAX)), Landed::Unknown);
        assert_eq!(flight.room(), 4);
    }

    #[test]
    fn what_is_given_up_may_come_late() {
        let mut flight = Flight::new(2, 0);
        let id = flight.launch(ASKED).unwrap();
        flight.launch(Asked { due_ns: 100, ..ASKED }).unwrap();
        assert_eq!(flight.launch(ASKED), None);
        let mut lost = Vec::new();
        flight.give_up(60, usize::MAX, |asked| lost.push(asked));
        assert_eq!(lost, [ASKED]);
        assert_eq!(flight.in_flight(), 1);
        assert_eq!(flight.land(id), Landed::GivenUp);
        assert_eq!(flight.land(id), Landed::Unknown);
    }

    #[test]
    fn what_comes_late_from_the_run_before_answers_nothing() {
        let mut flight = Flight::new(2, 7);
        let stale = flight.launch(ASKED).unwrap();
        flight.renew(1000, 0xdead_beef);
        for _ in 0..1000 {
            flight.launch(ASKED).unwrap();
        }
        assert_eq!(flight.land(stale), Landed::GivenUp);
        assert_eq!(flight.in_flight(), 1000);
    }
}
