//! Offers of a peer that wait for an answer.
//!
//! An answer is relayed only to a peer that made the offer, so that a client cannot write to a peer that did not ask
//! for it.

use shoal_types::PeerId;

use crate::api::{Address, PendingOfferState};
use crate::key::OfferKey;

/// Seconds for which an offer waits for its answer. Clients abandon an offer after about a minute.
pub const PENDING_OFFER_S: u32 = 120;

/// Maximum number of pending offers of one peer, unless it makes more at once. Beyond it, the oldest are forgotten.
const PENDING_OFFERS_MAX: usize = 64;

/// Maximum memory of the pending offers of one peer, unless it makes more at once.
pub(crate) const PENDING_OFFERS_BYTES_MAX: u64 = (PENDING_OFFERS_MAX * size_of::<PendingOffer>()) as u64;

/// An offer that was relayed and has no answer yet.
#[derive(Clone, Copy, Debug)]
struct PendingOffer {
    /// The key of the offer and its receiver: 64 bits in two halves, so that alignment wastes no memory.
    key: [u32; 2],
    /// The last second at which the answer is accepted.
    until_s: u32,
}

const _: () = assert!(size_of::<PendingOffer>() == 12, "as `Settings::memory_bytes_max` says");

/// The pending offers of one peer, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingOffers(Vec<PendingOffer>);

impl PendingOffers {
    /// Makes room for `more` offers: first removes those that have expired, then the oldest. Allocates no memory unless
    /// `may_grow`. Returns the number of offers for which there is room.
    pub(crate) fn reserve(&mut self, more: usize, may_grow: bool, now_s: u32) -> usize {
        let more = if may_grow { more } else { more.min(self.0.capacity()) };
        let offers_max =
            if may_grow { PENDING_OFFERS_MAX } else { PENDING_OFFERS_MAX.min(self.0.capacity()) };
        let expired = self.0.iter().take_while(|offer| offer.until_s < now_s).count();
        let excess = (self.0.len() - expired + more).saturating_sub(offers_max);
        self.0.drain(..(expired + excess).min(self.0.len()));
        if self.0.capacity() - self.0.len() < more {
            self.0.reserve_exact(more);
        }
        more
    }

    /// Returns the size of the memory that the list takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<PendingOffer>()) as u64
    }

    /// Records that an offer was relayed to the peer `peer_id` of the connection `receiver`.
    pub(crate) fn push(&mut self, offer: OfferKey, peer_id: &PeerId, receiver: Address, now_s: u32) {
        let until_s = now_s.saturating_add(PENDING_OFFER_S);
        self.0.push(PendingOffer { key: key(offer, peer_id, receiver), until_s });
    }

    /// Removes the offer that the peer `peer_id` of the connection `receiver` answers. Returns whether it was pending.
    pub(crate) fn take(&mut self, offer: OfferKey, peer_id: &PeerId, receiver: Address, now_s: u32) -> bool {
        let key = key(offer, peer_id, receiver);
        let position = self.0.iter().position(|offer| offer.key == key && offer.until_s >= now_s);
        if let Some(position) = position {
            self.0.remove(position);
        }
        position.is_some()
    }

    /// Returns the offers for [`resume`](Self::resume) in another process: the newest if there are too many.
    pub(crate) fn state(&self, now_s: u32) -> Vec<PendingOfferState> {
        let newest = &self.0[self.0.len().saturating_sub(PENDING_OFFERS_MAX)..];
        let pending = newest.iter().filter(|offer| offer.until_s >= now_s);
        pending.map(|offer| PendingOfferState { key: offer.key, left_s: offer.until_s - now_s }).collect()
    }

    /// Adds the offers of a peer that continues from another process, up to the maximum.
    pub(crate) fn resume(&mut self, offers: &[PendingOfferState], now_s: u32) {
        let newest = &offers[offers.len().saturating_sub(PENDING_OFFERS_MAX)..];
        self.0.reserve_exact(newest.len());
        self.0.extend(newest.iter().map(|&PendingOfferState { key, left_s }| PendingOffer {
            key,
            until_s: now_s.saturating_add(left_s.min(PENDING_OFFER_S)),
        }));
    }

    /// Frees the memory if no offer is pending any more.
    pub(crate) fn trim(&mut self, now_s: u32) {
        if self.0.iter().all(|offer| offer.until_s < now_s) {
            self.0 = Vec::new();
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Returns the key of an offer to one peer of one connection, so that only this peer can answer it, and only on this
/// connection. The hash of the offer id is keyed, so a client can choose neither a peer id nor a connection that fits
/// another offer.
fn key(OfferKey(offer): OfferKey, PeerId(peer_id): &PeerId, receiver: Address) -> [u32; 2] {
    let (words, rest) = peer_id.as_chunks::<8>();
    let rest = rest.iter().fold(u64::from(receiver.worker), |sum, &byte| sum << 8 | u64::from(byte));
    let handle = u64::from(receiver.handle.generation) << 32 | u64::from(receiver.handle.index);
    let words = words.iter().map(|word| u64::from_ne_bytes(*word));
    let sum = words.chain([rest, handle]).fold(offer, |sum, word| {
        // Knuth's multiplier: every bit of a word affects the others.
        (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    let bytes = sum.to_ne_bytes();
    let (halves, _) = bytes.as_chunks::<4>();
    [u32::from_ne_bytes(halves[0]), u32::from_ne_bytes(halves[1])]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: PeerId = PeerId([1; 20]);

    fn at(index: u32) -> Address {
        Address { worker: 0, handle: shoal_transport::stream::Handle { index, generation: 0 } }
    }

    #[test]
    fn an_offer_is_answered_once_by_one_peer_of_one_connection() {
        let mut offers = PendingOffers::default();
        offers.reserve(1, true, 10);
        offers.push(OfferKey(5), &ME, at(1), 10);
        for position in 0..20 {
            let mut other = ME;
            other.0[position] ^= 1;
            assert!(!offers.take(OfferKey(5), &other, at(1), 10), "byte {position}");
        }
        assert!(!offers.take(OfferKey(5), &ME, at(2), 10));
        assert!(!offers.take(OfferKey(6), &ME, at(1), 10));
        assert!(offers.take(OfferKey(5), &ME, at(1), 10));
        assert!(!offers.take(OfferKey(5), &ME, at(1), 10));
    }

    #[test]
    fn an_answer_is_accepted_for_two_minutes() {
        for (answered_s, is_accepted) in [(0, true), (120, true), (121, false), (u32::MAX, false)] {
            let mut offers = PendingOffers::default();
            offers.reserve(1, true, 0);
            offers.push(OfferKey(5), &ME, at(1), 0);
            assert_eq!(offers.take(OfferKey(5), &ME, at(1), answered_s), is_accepted, "{answered_s}");
        }
    }

    #[test]
    fn the_oldest_are_forgotten_when_there_are_too_many() {
        let mut offers = PendingOffers::default();
        for offer in 0..70 {
            offers.reserve(1, true, 0);
            offers.push(OfferKey(offer), &ME, at(1), 0);
        }
        assert_eq!(offers.len(), PENDING_OFFERS_MAX);
        assert!(!offers.take(OfferKey(5), &ME, at(1), 0));
        assert!(offers.take(OfferKey(6), &ME, at(1), 0));
        // All offers that are made at once fit.
        offers.reserve(100, true, 0);
        (0..100).for_each(|offer| offers.push(OfferKey(offer), &ME, at(1), 0));
        assert_eq!(offers.len(), 100);
    }

    #[test]
    fn expired_offers_go_first_and_their_memory_is_freed() {
        let mut offers = PendingOffers::default();
        offers.reserve(2, true, 0);
        offers.push(OfferKey(1), &ME, at(1), 0);
        offers.push(OfferKey(2), &ME, at(1), 50);
        offers.trim(150);
        offers.reserve(1, true, 150);
        assert_eq!(offers.len(), 1);
        offers.trim(171);
        assert_eq!(offers.0.capacity(), 0);
    }

    #[test]
    fn without_memory_the_oldest_make_room() {
        let mut offers = PendingOffers::default();
        assert_eq!((offers.reserve(5, false, 0), offers.memory_bytes()), (0, 0));
        assert_eq!(offers.reserve(3, true, 0), 3);
        (0..3).for_each(|offer| offers.push(OfferKey(offer), &ME, at(1), 0));
        assert_eq!((offers.reserve(2, false, 0), offers.memory_bytes()), (2, 36));
        assert_eq!(offers.len(), 1);
        assert!(offers.take(OfferKey(2), &ME, at(1), 0));
        assert_eq!(offers.reserve(5, false, 0), 3);
    }
}
