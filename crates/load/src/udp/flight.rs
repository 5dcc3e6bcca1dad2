//! Requests that are on their way: which transaction id stands for what.
//!
//! Owns a fixed number of slots. A transaction id is the index of a slot and the number of times that it was used, so
//! that a reply that comes late, or twice, is not taken for that of another request.

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
    /// Requests that were given up, and whose replies may still come.
    given_up: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    asked: Option<Asked>,
    uses: u16,
}

/// Bits of a transaction id that are the index of a slot; the others count uses.
const INDEX_BITS: u32 = 20;

/// Most requests on their way.
pub(crate) const IN_FLIGHT_MAX: usize = 1 << INDEX_BITS;

impl Flight {
    /// Room for `slots` requests, at least 1 and at most [`IN_FLIGHT_MAX`].
    pub(super) fn new(slots: usize) -> Self {
        let slots = slots.clamp(1, IN_FLIGHT_MAX);
        let free = (0..u32::try_from(slots).expect("there are at most 2^20")).rev().collect();
        Self { slots: vec![Slot { asked: None, uses: 0 }; slots].into(), free, hand: 0, given_up: 0 }
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
        Some(TransactionId(slot.transaction(index)))
    }

    /// Frees the slot of a reply.
    pub(super) fn land(&mut self, TransactionId(id): TransactionId) -> Landed {
        let index = id & ((1 << INDEX_BITS) - 1);
        let Some(slot) = self.slots.get_mut(index as usize) else { return Landed::Unknown };
        if slot.transaction(index) == id
            && let Some(asked) = slot.asked.take()
        {
            self.free.push(index);
            return Landed::Known(asked);
        }
        if self.given_up > 0 {
            self.given_up -= 1;
            return Landed::GivenUp;
        }
        Landed::Unknown
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

impl Slot {
    fn transaction(&self, index: u32) -> u32 {
        u32::from(self.uses) << INDEX_BITS | index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked { due_ns: 50, peer: 1, port: 2, socket: 3, hashes: 0, kind: Kind::Announce };

    #[test]
    fn a_reply_finds_its_request_once() {
        let mut flight = Flight::new(4);
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
        let mut flight = Flight::new(2);
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
}
