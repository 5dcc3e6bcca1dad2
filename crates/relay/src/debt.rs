//! Answers that are owed to a peer.
//!
//! An answer is relayed only where an offer went before, so that nobody can write to a peer that did not ask for it.

use shoal_protocol::PeerId;

use crate::address::Address;
use crate::key::OfferKey;

/// Seconds for which an answer may be waited for. Clients give an offer up after about a minute.
pub(crate) const DEBT_S: u32 = 120;

/// Most answers owed to one peer, unless it makes more offers at once. Beyond it the oldest are given up.
const DEBTS_MAX: usize = 64;

/// One offer that was relayed and not answered yet.
#[derive(Clone, Copy, Debug)]
struct Debt {
    /// Which offer, and to which peer of the debtor it went.
    key: u64,
    debtor: Address,
    /// The last second at which the answer is taken.
    until_s: u32,
}

/// All that is owed to a peer, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Debts(Vec<Debt>);

impl Debts {
    /// Makes room for so many, at the expense of those that are overdue, and then of the oldest.
    pub(crate) fn expect(&mut self, more: usize, now_s: u32) {
        let overdue = self.0.iter().take_while(|debt| debt.until_s < now_s).count();
        let excess = (self.0.len() - overdue + more).saturating_sub(DEBTS_MAX);
        self.0.drain(..(overdue + excess).min(self.0.len()));
        if self.0.capacity() - self.0.len() < more {
            self.0.reserve_exact(more);
        }
    }

    /// Notes that an answer is owed by the peer `peer_id` of the connection `debtor`.
    pub(crate) fn record(&mut self, offer: OfferKey, peer_id: &PeerId, debtor: Address, now_s: u32) {
        let until_s = now_s.saturating_add(DEBT_S);
        self.0.push(Debt { key: key(offer, peer_id), debtor, until_s });
    }

    /// Takes note of an answer, once. Returns whether it was owed.
    pub(crate) fn settle(&mut self, offer: OfferKey, peer_id: &PeerId, debtor: Address, now_s: u32) -> bool {
        let key = key(offer, peer_id);
        let owed = |debt: &Debt| debt.key == key && debt.debtor == debtor && debt.until_s >= now_s;
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

/// The key of an offer to one peer, so that it is answered under the name to which it went. The hash of the offer id is
/// keyed, so a peer id cannot be chosen to go with another offer.
fn key(OfferKey(offer): OfferKey, PeerId(peer_id): &PeerId) -> u64 {
    let (words, rest) = peer_id.as_chunks::<8>();
    let rest = rest.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    words.iter().fold(offer ^ rest, |sum, &word| {
        // The multiplier of Knuth, so that every bit of a word moves the others.
        (sum ^ u64::from_ne_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
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
        debts.expect(1, 10);
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
            debts.expect(1, 0);
            debts.record(OfferKey(5), &ME, at(1), 0);
            assert_eq!(debts.settle(OfferKey(5), &ME, at(1), answered_s), taken, "{answered_s}");
        }
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let mut debts = Debts::default();
        for offer in 0..70 {
            debts.expect(1, 0);
            debts.record(OfferKey(offer), &ME, at(1), 0);
        }
        assert_eq!(debts.len(), DEBTS_MAX);
        assert!(!debts.settle(OfferKey(5), &ME, at(1), 0));
        assert!(debts.settle(OfferKey(6), &ME, at(1), 0));
        // As many as are made at once have room.
        debts.expect(100, 0);
        (0..100).for_each(|offer| debts.record(OfferKey(offer), &ME, at(1), 0));
        assert_eq!(debts.len(), 100);
    }

    #[test]
    fn what_is_overdue_goes_first_and_its_memory_too() {
        let mut debts = Debts::default();
        debts.expect(2, 0);
        debts.record(OfferKey(1), &ME, at(1), 0);
        debts.record(OfferKey(2), &ME, at(1), 50);
        debts.relax(150);
        debts.expect(1, 150);
        assert_eq!(debts.len(), 1);
        debts.relax(171);
        assert_eq!(debts.0.capacity(), 0);
    }
}
