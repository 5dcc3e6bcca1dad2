//! Offers of peers that cannot be found by their peer id alone.
//!
//! An answer names the peer id of the offerer, not its connection. The first connection of this node with a peer id is
//! found by that id, and its list tells whether it made the offer. Any number of other connections may have a peer with
//! the same id, perhaps chosen by an attacker, and peers of other nodes may have it too. Their pending offers are
//! therefore found by the keys of the offers. So an answer costs one look-up, whatever others have announced, and goes
//! only to the connection that made the offer.
//!
//! Any number of connections may announce the same id: one tracker under two URLs, or a client that returns before the
//! tracker notices the end of its old connection. None waits or is refused. When the first connection leaves, the next
//! one that announces takes its place. A new connection with a known id makes the tracker ping the first one. If that
//! stays silent for `webtorrent.ping_interval_s`, it ends as after any ping. A connection that owes a pong is not
//! pinged again, so another client cannot delay its end. A connection with a backlog is pinged when it has read that.
//!
//! In an earlier design a peer id belonged to one connection, and others waited until a ping showed whether that was
//! alive. It took queues of claims with their own limits, questions to the kernel about slow clients, and messages
//! between nodes, and it still refused clients with two connections.

use crate::index::Index;
use crate::swarm::Peer;

/// The pending offers of a shard whose offerers are not found by their peer ids.
#[derive(Debug, Default)]
pub(crate) struct NamesakeOffers {
    /// `None` in most shards.
    by_key: Option<Index<NamesakeOffer>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NamesakeOffer {
    /// The key of the offer, as in the list of its peer.
    key: u64,
    /// The hash of the peer that made it, in the swarm of the answer.
    offerer: u64,
}

const _: () = assert!(size_of::<NamesakeOffer>() == 16, "as `Peer::offer_bytes` assumes");

impl NamesakeOffers {
    /// Records an offer of a peer. If two connections make the same offer with the same peer id to the same receiver,
    /// the first gets the answer.
    pub(crate) fn insert(&mut self, key: u64, offerer: u64) {
        let by_key = self.by_key.get_or_insert_with(Index::new);
        if by_key.find(key, |offer| offer.key == key).is_none() {
            by_key.insert(key, NamesakeOffer { key, offerer }, |offer| offer.key);
        }
    }

    /// Returns the hash of the peer that made the offer.
    pub(crate) fn find(&self, key: u64) -> Option<u64> {
        Some(self.by_key.as_ref()?.find(key, |offer| offer.key == key)?.offerer)
    }

    pub(crate) fn remove(&mut self, key: u64, offerer: u64) {
        if let Some(by_key) = &mut self.by_key {
            by_key.remove(key, NamesakeOffer { key, offerer }, |offer| offer.key);
        }
    }

    pub(crate) fn remove_all(&mut self, peer: &Peer) {
        if peer.is_by_address {
            peer.pending_offers.keys().for_each(|key| self.remove(key, peer.hash()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_two_equal_offers_stays() {
        let mut offers = NamesakeOffers::default();
        assert_eq!(offers.find(7), None);
        offers.insert(7, 1);
        offers.insert(7, 2);
        offers.insert(8, 2);
        assert_eq!((offers.find(7), offers.find(8)), (Some(1), Some(2)));
        offers.remove(7, 2);
        assert_eq!(offers.find(7), Some(1), "the second one was not recorded");
        offers.remove(7, 1);
        assert_eq!((offers.find(7), offers.find(8)), (None, Some(2)));
    }
}
