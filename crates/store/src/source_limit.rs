//! How many peers of one source a swarm takes in.
//!
//! A source is an IPv4 address or an IPv6 /48 ([`Stored::source`](crate::family::Stored::source)). In a small swarm its
//! peers are counted by looking at all. In a large one they have only a few positions, the slots of the source: all
//! peers of a slot lie together, so a newcomer's slot is counted where the newcomer itself was just looked for. A slot
//! takes its part of the limit unseen. Beyond that the other slots are counted too, and it takes at most twice its part,
//! so that clients whose ports fall together by chance reach the limit about as late as others. A source can so have
//! half as many peers again as the limit says; with so many slots that they are not all counted, twice as many.

use crate::family::Family;
use crate::hash::HashKey;

/// Peers of a slot for which slots are made: about a line of a table.
const PEERS_PER_SLOT: u32 = 8;

/// A source has several peers in a swarm from this number on. Two are common: a client that was started again.
pub(crate) const SEVERAL: usize = 3;

/// Most slots of a source that are counted in a large swarm.
pub(crate) const SLOTS_COUNTED_MAX: u64 = 16;

/// The limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceLimit {
    /// Most peers of a source in one swarm.
    peers_max: usize,
    /// The part of a slot.
    peers_per_slot: usize,
    /// Slots of a source, a power of two.
    pub(crate) slots: u64,
}

impl SourceLimit {
    /// The limit that the operator has set, if any: 0 is none.
    pub(crate) fn new(peers_max: u32) -> Option<Self> {
        if peers_max == 0 {
            return None;
        }
        let slots = (peers_max / PEERS_PER_SLOT).max(1).next_power_of_two();
        let usize_of = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Some(Self {
            peers_max: usize_of(peers_max),
            peers_per_slot: usize_of(peers_max.div_ceil(slots)),
            slots: u64::from(slots),
        })
    }

    /// Whether a newcomer is one too many for a small swarm, in which its source has `count` of the peers.
    #[inline]
    pub(crate) fn is_reached<P: Family>(
        &self,
        newcomer: &P,
        peers: &[P],
        count: usize,
        key: &HashKey,
    ) -> bool {
        if count < self.peers_per_slot {
            return false;
        }
        let slot = newcomer.slot(key);
        let is_beside = |peer: &&P| peer.source() == newcomer.source() && peer.slot(key) == slot;
        count >= self.peers_max || self.is_slot_full(peers.iter().filter(is_beside).count())
    }

    /// Whether a slot with `count` peers takes no more, whatever the others hold.
    fn is_slot_full(&self, count: usize) -> bool {
        count >= 2 * self.peers_per_slot
    }

    /// Whether a newcomer is one too many for a large swarm, in which its slot holds `beside`, and the others what
    /// `count_elsewhere` tells.
    pub(crate) fn is_reached_in_slots(&self, beside: usize, count_elsewhere: impl FnOnce() -> usize) -> bool {
        if beside < self.peers_per_slot {
            return false;
        }
        let all_are_counted = self.slots <= SLOTS_COUNTED_MAX;
        self.is_slot_full(beside) || (all_are_counted && beside + count_elsewhere() >= self.peers_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_share_the_limit() {
        let limit = |peers_max| SourceLimit::new(peers_max).map(|limit| (limit.slots, limit.peers_per_slot));
        assert_eq!(limit(0), None);
        assert_eq!(limit(1), Some((1, 1)));
        assert_eq!(limit(15), Some((1, 15)));
        assert_eq!(limit(64), Some((8, 8)));
        assert_eq!(limit(100), Some((16, 7)));
        assert_eq!(limit(65_535), Some((8192, 8)));
    }
}
