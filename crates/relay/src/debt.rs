//! Answers that are owed to a peer.
//!
//! An answer is relayed only where an offer went before, so that nobody can write to a peer that did not ask for it.

use shoal_types::PeerId;

use crate::address::Address;
use crate::key::OfferKey;

/// Seconds for which an answer may be waited for. Clients give an offer up after about a minute.
pub(crate) const DEBT_S: u32 = 120;

/// Most answers owed to one peer, unless it makes more offers at once. Beyond it the oldest are given up.
const DEBTS_MAX: usize = 64;

/// Most bytes that are owed to one peer, unless it makes more offers at once.
pub(crate) const DEBTS_BYTES_MAX: u64 = (DEBTS_MAX * size_of::<Debt>()) as u64;

/// One offer that was relayed and not answered yet.
#[derive(Clone, Copy, Debug)]
struct Debt {
    /// Which offer, and to which peer of which connection it went: 64 bits in two halves, so that nothing is lost to
    /// alignment.
    key: [u32; 2],
    /// The last second at which the answer is taken.
    until_s: u32,
}

const _: () = assert!(size_of::<Debt>() == 12, "as `Settings::memory_bytes_max` says");

/// All that is owed to a peer, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Debts(Vec<Debt>);

impl Debts {
    /// Makes room for so many, at the expense of those that are overdue, and then of the oldest. Takes no memory if it
    /// may not grow. Returns for how many there is room.
    pub(crate) fn expect(&mut self, more: usize, may_grow: bool, now_s: u32) -> usize {
        let more = if may_grow { more } else { more.min(self.0.capacity()) };
        let debts_max = if may_grow { DEBTS_MAX } else { DEBTS_MAX.min(self.0.capacity()) };
        let overdue = self.0.iter().take_while(|debt| debt.until_s < now_s).count();
        let excess = (self.0.len() - overdue + more).saturating_sub(debts_max);
        self.0.drain(..(overdue + excess).min(self.0.len()));
        if self.0.capacity() - self.0.len() < more {
            self.0.reserve_exact(more);
        }
        more
    }

    /// The memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<Debt>()) as u64
    }

    /// Notes that an answer is owed by the peer `peer_id` of the connection `debtor`.
    pub(crate) fn record(&mut self, offer: OfferKey, peer_id: &PeerId, debtor: Address, now_s: u32) {
        let until_s = now_s.saturating_add(DEBT_S);
        self.0.push(Debt { key: key(offer, peer_id, debtor), until_s });
    }

    /// Takes note of an answer, once. Returns whether it was owed.
    pub(crate) fn settle(&mut self, offer: OfferKey, peer_id: &PeerId, debtor: Address, now_s: u32) -> bool {
        let key = key(offer, peer_id, debtor);
        let owed = |debt: &Debt| debt.key == key && debt.until_s >= now_s;
        let place = self.0.iter().position(owed);
        if let Some(place) = place {
            self.0.remove(place);
        }
        place.is_some()
    }

    /// Lets go of the memory once nothing is owed any more.
    pub(crate) fn relax(&mut self, now_s: u32) {
        if self.0.iter().all(|debt| debt.until_s < now_s) {
            self.0 = Vec::new();
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The key of an offer to one peer of one connection, so that it is answered under the name and by the connection to
/// which it went. The hash of the offer id is keyed, so a peer id cannot be chosen to go with another offer, nor can a
/// connection be had for that.
fn key(OfferKey(offer): OfferKey, PeerId(peer_id): &PeerId, debtor: Address) -> [u32; 2] {
    let (words, rest) = peer_id.as_chunks::<8>();
    let rest = rest.iter().fold(u64::from(debtor.worker), |sum, &byte| sum << 8 | u64::from(byte));
    let handle = u64::from(debtor.handle.generation) << 32 | u64::from(debtor.handle.index);
    let words = words.iter().map(|word| u64::from_ne_bytes(*word));
    let sum = words.chain([rest, handle]).fold(offer, |sum, word| {
        // The multiplier of Knuth, so that every bit of a word moves the others.
        (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    let bytes = sum.to_ne_bytes();
    let (halves, _) = bytes.as_chunks::<4>();
    [u32::from_ne_bytes(halves[0]), u32::from_ne_bytes(halves[1])]
}

#[cfg(test)]
mod tests {
    use shoal_wire::stream::Handle;

    use super::*;

    const ME: PeerId = PeerId([1; 20]);

    fn at(index: u32) -> Address {
        Address { worker: 0, handle: Handle { index, generation: 0 } }
    }

    #[test]
    fn an_answer_is_owed_once_by_one_peer_of_one_connection() {
        let mut debts = Debts::default();
        debts.expect(1, true, 10);
        debts.record(OfferKey(5), &ME, at(1), 10);
        for position in 0..20 {
            let mut other = ME;
            other.0[position] ^= 1;
            assert!(!debts.settle(OfferKey(5), &other, at(1), 10), "byte {position}");
        }
        assert!(!debts.settle(OfferKey(5), &ME, at(2), 10));
        assert!(!debts.settle(OfferKey(6), &ME, at(1), 10));
        assert!(debts.settle(OfferKey(5), &ME, at(1), 10));
        assert!(!debts.settle(OfferKey(5), &ME, at(1), 10));
    }

    #[test]
    fn an_answer_may_come_for_two_minutes() {
        for (answered_s, taken) in [(0, true), (120, true), (121, false), (u32::MAX, false)] {
            let mut debts = Debts::default();
            debts.expect(1, true, 0);
            debts.record(OfferKey(5), &ME, at(1), 0);
            assert_eq!(debts.settle(OfferKey(5), &ME, at(1), answered_s), taken, "{answered_s}");
        }
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let mut debts = Debts::default();
        for offer in 0..70 {
            debts.expect(1, true, 0);
            debts.record(OfferKey(offer), &ME, at(1), 0);
        }
        assert_eq!(debts.len(), DEBTS_MAX);
        assert!(!debts.settle(OfferKey(5), &ME, at(1), 0));
        assert!(debts.settle(OfferKey(6), &ME, at(1), 0));
        // As many as are made at once have room.
        debts.expect(100, true, 0);
        (0..100).for_each(|offer| debts.record(OfferKey(offer), &ME, at(1), 0));
        assert_eq!(debts.len(), 100);
    }

    #[test]
    fn what_is_overdue_goes_first_and_its_memory_too() {
        let mut debts = Debts::default();
        debts.expect(2, true, 0);
        debts.record(OfferKey(1), &ME, at(1), 0);
        debts.record(OfferKey(2), &ME, at(1), 50);
        debts.relax(150);
        debts.expect(1, true, 150);
        assert_eq!(debts.len(), 1);
        debts.relax(171);
        assert_eq!(debts.0.capacity(), 0);
    }

    #[test]
    fn without_memory_the_oldest_make_room() {
        let mut debts = Debts::default();
        assert_eq!((debts.expect(5, false, 0), debts.memory_bytes()), (0, 0));
        assert_eq!(debts.expect(3, true, 0), 3);
        (0..3).for_each(|offer| debts.record(OfferKey(offer), &ME, at(1), 0));
        assert_eq!((debts.expect(2, false, 0), debts.memory_bytes()), (2, 36));
        assert_eq!(debts.len(), 1);
        assert!(debts.settle(OfferKey(2), &ME, at(1), 0));
        assert_eq!(debts.expect(5, false, 0), 3);
    }
}
