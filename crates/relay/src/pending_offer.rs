//! Offers of a peer that wait for an answer.
//!
//! An answer is relayed only to a peer that made the offer, so that a client cannot write to a peer that did not ask.
//!
//! An answer is relayed once, within two minutes. An offer is remembered by a keyed hash of its id, of the peer id that
//! made it, and of the peer and the connection that received it.

use shoal_base::PeerId;

use crate::api::{Address, PendingOfferState};
use crate::key::OfferKey;

/// Seconds for which an offer waits for its answer. Clients abandon an offer after about a minute.
pub const PENDING_OFFER_S: u32 = 120;

/// Maximum number of pending offers of one peer, unless it makes more at once. Beyond it, the oldest are forgotten.
pub(crate) const PENDING_OFFERS_MAX: usize = 64;

/// Maximum number of pending offers of a peer that is found by its address. Each takes four times the memory, so the
/// maximum in bytes is the same.
pub(crate) const PENDING_OFFERS_BY_ADDRESS_MAX: usize = PENDING_OFFERS_MAX / 4;

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
    /// Makes room for `more` offers: first removes expired ones, then the oldest. Allocates memory only if `may_grow`.
    /// Calls `forget` with the keys of the removed ones. Returns for how many offers there is room.
    pub(crate) fn reserve(
        &mut self,
        more: usize,
        offers_max: usize,
        may_grow: bool,
        now_s: u32,
        forget: impl FnMut(u64),
    ) -> usize {
        let more = if may_grow { more } else { more.min(self.0.capacity()) };
        let offers_max = if may_grow { offers_max } else { offers_max.min(self.0.capacity()) };
        let expired = self.0.iter().take_while(|offer| offer.until_s < now_s).count();
        let excess = (self.0.len() - expired + more).saturating_sub(offers_max);
        let removed = self.0.drain(..(expired + excess).min(self.0.len()));
        removed.map(|offer| whole(offer.key)).for_each(forget);
        if self.0.capacity() - self.0.len() < more {
            self.0.reserve_exact(more);
        }
        more
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<PendingOffer>()) as u64
    }

    pub(crate) fn push(&mut self, key: u64, now_s: u32) {
        self.0.push(PendingOffer { key: halves(key), until_s: now_s.saturating_add(PENDING_OFFER_S) });
    }

    /// Removes the offer with this key, which has been answered. Returns whether it was pending.
    pub(crate) fn take(&mut self, key: u64, now_s: u32) -> bool {
        let key = halves(key);
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

    /// Adds the offers of a peer that comes from another process, up to the maximum.
    pub(crate) fn resume(&mut self, offers: &[PendingOfferState], offers_max: usize, now_s: u32) {
        let newest = &offers[offers.len().saturating_sub(offers_max)..];
        self.0.reserve_exact(newest.len());
        self.0.extend(newest.iter().map(|&PendingOfferState { key, left_s }| PendingOffer {
            key,
            until_s: now_s.saturating_add(left_s.min(PENDING_OFFER_S)),
        }));
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|offer| whole(offer.key))
    }

    /// Returns whether there is memory to free: no offer is pending.
    pub(crate) fn is_outdated(&self, now_s: u32) -> bool {
        self.0.capacity() > 0 && self.0.iter().all(|offer| offer.until_s < now_s)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Returns the key of an offer to the peer `peer_id` of the connection `receiver`, so that only this peer can answer
/// it, and only on this connection. The hash of the offer id is keyed, so a client cannot choose a peer id or a
/// connection that fits another offer.
pub(crate) fn key(OfferKey(offer): OfferKey, PeerId(peer_id): &PeerId, receiver: Address) -> u64 {
    let (words, rest) = peer_id.as_chunks::<8>();
    let rest = rest.iter().fold(u64::from(receiver.worker), |sum, &byte| sum << 8 | u64::from(byte));
    let handle = u64::from(receiver.handle.generation) << 32 | u64::from(receiver.handle.index);
    let words = words.iter().map(|word| u64::from_ne_bytes(*word));
    words.chain([rest, handle]).fold(offer, |sum, word| {
        // Knuth's multiplier: every bit of a word affects the others.
        (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

fn halves(key: u64) -> [u32; 2] {
    let bytes = key.to_ne_bytes();
    let (halves, _) = bytes.as_chunks::<4>();
    [u32::from_ne_bytes(halves[0]), u32::from_ne_bytes(halves[1])]
}

fn whole([first, second]: [u32; 2]) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: PeerId = PeerId([1; 20]);

    fn at(index: u32) -> Address {
        Address { worker: 0, handle: shoal_base::transport::stream::Handle { index, generation: 0 } }
    }

    fn reserve(offers: &mut PendingOffers, more: usize, may_grow: bool, now_s: u32) -> usize {
        offers.reserve(more, PENDING_OFFERS_MAX, may_grow, now_s, |_| {})
    }

    #[test]
    fn an_offer_is_answered_once_by_one_peer_of_one_connection() {
        let mut offers = PendingOffers::default();
        reserve(&mut offers, 1, true, 10);
        offers.push(key(OfferKey(5), &ME, at(1)), 10);
        for position in 0..20 {
            let mut other = ME;
            other.0[position] ^= 1;
            assert!(!offers.take(key(OfferKey(5), &other, at(1)), 10), "byte {position}");
        }
        assert!(!offers.take(key(OfferKey(5), &ME, at(2)), 10));
        assert!(!offers.take(key(OfferKey(6), &ME, at(1)), 10));
        assert!(offers.take(key(OfferKey(5), &ME, at(1)), 10));
        assert!(!offers.take(key(OfferKey(5), &ME, at(1)), 10));
    }

    #[test]
    fn an_answer_is_accepted_for_two_minutes() {
        for (answered_s, is_accepted) in [(0, true), (120, true), (121, false), (u32::MAX, false)] {
            let mut offers = PendingOffers::default();
            reserve(&mut offers, 1, true, 0);
            offers.push(5, 0);
            assert_eq!(offers.take(5, answered_s), is_accepted, "{answered_s}");
        }
    }

    #[test]
    fn the_oldest_are_forgotten_when_there_are_too_many() {
        let mut offers = PendingOffers::default();
        let mut forgotten = Vec::new();
        for offer in 0..70 {
            offers.reserve(1, PENDING_OFFERS_MAX, true, 0, |key| forgotten.push(key));
            offers.push(offer << 30, 0);
        }
        assert_eq!(offers.len(), PENDING_OFFERS_MAX);
        assert_eq!(forgotten, (0..6).map(|offer| offer << 30).collect::<Vec<u64>>());
        assert!(!offers.take(5 << 30, 0));
        assert!(offers.take(6 << 30, 0));
        // All offers that are made at once fit.
        reserve(&mut offers, 100, true, 0);
        (0..100).for_each(|offer| offers.push(offer, 0));
        assert_eq!(offers.len(), 100);
    }

    #[test]
    fn expired_offers_go_first() {
        let mut offers = PendingOffers::default();
        reserve(&mut offers, 2, true, 0);
        offers.push(1, 0);
        offers.push(2, 50);
        assert!(!offers.is_outdated(150));
        reserve(&mut offers, 1, true, 150);
        assert_eq!(offers.len(), 1);
        assert!(offers.is_outdated(171));
    }

    #[test]
    fn without_memory_the_oldest_make_room() {
        let mut offers = PendingOffers::default();
        assert_eq!((reserve(&mut offers, 5, false, 0), offers.memory_bytes()), (0, 0));
        assert_eq!(reserve(&mut offers, 3, true, 0), 3);
        (0..3).for_each(|offer| offers.push(offer, 0));
        assert_eq!((reserve(&mut offers, 2, false, 0), offers.memory_bytes()), (2, 36));
        assert_eq!(offers.len(), 1);
        assert!(offers.take(2, 0));
        assert_eq!(reserve(&mut offers, 5, false, 0), 3);
    }
}
