//! The limit on the number of peers of one source in a swarm.
//!
//! A source is an IPv4 address or an IPv6 /48 ([`Stored::source`](crate::family::Stored::source)). In a small swarm,
//! all peers of a source are counted. In a large one, they have only a few positions, the slots of the source. All
//! peers of a slot lie together, so the search for a new peer has already read the peers of its slot. A slot accepts
//! its part of the limit without a check of the other slots. Beyond that, the other slots are counted too, and the slot
//! accepts at most twice its part, so that clients whose ports collide by chance reach the limit about as late as
//! others. So a source can have half as many peers again as the limit says, or twice as many if it has too many slots
//! to count.
//!
//! A source may also be limited to a share of a swarm's peers. If the share allows less than the limit, up to 16 slots
//! are counted for each new peer, and stand for further slots. A swarm that shrinks keeps its peers, so the share of a
//! source in it can grow.

use shoal_base::source::{Excess, SWARM_SHARE_PEERS_MIN, swarm_share};

use crate::family::Family;
use crate::hash::HashKey;

/// Number of peers per slot, from which the number of slots follows. All peers of a slot lie in two lines of a table,
/// so they should fill less than half of these.
const PEERS_PER_SLOT: u32 = 4;

/// Number of peers of a source from which a swarm counts as skewed. Two are common: a restarted client.
pub(crate) const SEVERAL: usize = 3;

/// Maximum number of a source's slots that are counted in a large swarm.
pub(crate) const SLOTS_COUNTED_MAX: u64 = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceLimit {
    /// Maximum number of peers of a source in one swarm.
    peers_max: usize,
    peers_per_slot: usize,
    /// Number of slots of a source, a power of two.
    pub(crate) slots: u64,
    /// Maximum share of the peers of a swarm, in per cent; zero if there is no limit.
    share_max: u32,
}

impl SourceLimit {
    /// Creates the limit; a `peers_max` of 0 means none, and a `share_max` of 0 no limit on the share.
    pub(crate) fn new(peers_max: u32, share_max: u32) -> Option<Self> {
        if peers_max == 0 {
            return None;
        }
        let slots = peers_max.div_ceil(PEERS_PER_SLOT).next_power_of_two();
        let usize_of = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Some(Self {
            peers_max: usize_of(peers_max),
            peers_per_slot: usize_of(peers_max.div_ceil(slots)),
            slots: u64::from(slots),
            share_max,
        })
    }

    /// Checks a new peer in a small swarm with `count` peers of its source.
    #[inline]
    pub(crate) fn check<P: Family>(
        &self,
        new_peer: &P,
        peers: &[P],
        count: usize,
        key: &HashKey,
    ) -> Result<(), Excess> {
        if count < SWARM_SHARE_PEERS_MIN.min(self.peers_per_slot) {
            return Ok(());
        }
        self.check_share(count, peers.len())?;
        if count < self.peers_per_slot {
            return Ok(());
        }
        let slot = new_peer.slot(key);
        let is_in_slot = |peer: &&P| peer.source() == new_peer.source() && peer.slot(key) == slot;
        if count >= self.peers_max || self.is_slot_full(peers.iter().filter(is_in_slot).count()) {
            return Err(Excess::PeersInSwarm);
        }
        Ok(())
    }

    /// Returns whether a slot with `count` peers is full at any content of the other slots.
    fn is_slot_full(&self, count: usize) -> bool {
        count >= 2 * self.peers_per_slot
    }

    /// Checks a new peer in a large swarm of `len` peers. Its slot holds `in_slot` peers of its source, and
    /// `count_elsewhere` counts the other slots.
    pub(crate) fn check_in_slots(
        &self,
        in_slot: usize,
        len: u32,
        count_elsewhere: impl FnOnce() -> usize,
    ) -> Result<(), Excess> {
        // In a swarm of this size, the share is no stricter than the limit.
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let has_share = swarm_share(len, self.share_max) < self.peers_max;
        if in_slot < self.peers_per_slot && !has_share {
            return Ok(());
        }
        if self.is_slot_full(in_slot) {
            return Err(Excess::PeersInSwarm);
        }
        let all_are_counted = self.slots <= SLOTS_COUNTED_MAX;
        if !all_are_counted && !has_share {
            return Ok(());
        }
        let counted = in_slot + count_elsewhere();
        if all_are_counted && in_slot >= self.peers_per_slot && counted >= self.peers_max {
            return Err(Excess::PeersInSwarm);
        }
        // The counted slots stand for all, if there are more.
        let parts = usize::try_from(self.slots.div_ceil(SLOTS_COUNTED_MAX)).unwrap_or(usize::MAX);
        let count = if counted < SWARM_SHARE_PEERS_MIN { counted } else { counted.saturating_mul(parts) };
        self.check_share(count, len)
    }

    /// Checks a new peer of a source that has `count` of the `len` peers of a swarm.
    fn check_share(&self, count: usize, len: usize) -> Result<(), Excess> {
        if count >= swarm_share(len, self.share_max) { Err(Excess::ShareOfSwarm) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_share_the_limit() {
        let limit =
            |peers_max| SourceLimit::new(peers_max, 0).map(|limit| (limit.slots, limit.peers_per_slot));
        assert_eq!(limit(0), None);
        assert_eq!(limit(1), Some((1, 1)));
        assert_eq!(limit(15), Some((4, 4)));
        assert_eq!(limit(64), Some((16, 4)));
        assert_eq!(limit(100), Some((32, 4)));
        assert_eq!(limit(65_535), Some((16_384, 4)));
    }
}
