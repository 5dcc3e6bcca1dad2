//! Prefetches for a batch: each pass prefetches the lines whose addresses the previous pass has loaded.

use shoal_base::Action;

use super::Shard;
use crate::api::Announce;
use crate::family::Family;
use crate::memory::prefetch::prefetch;
use crate::swarm::line::{Form, SwarmRow};
use crate::{Place, sample};

impl<P: Family> Shard<P> {
    /// Prefetches the two lines in which the swarm may be, and notes them in `place`.
    #[inline(always)]
    pub(crate) fn prefetch_swarm(&self, place: &mut Place) {
        place.lines = self.swarms.prefetch(&self.memory, place.hash);
    }

    /// Prefetches the entry of the swarm after `prefetch_swarm`, and notes its probable location in `place`: only the tag
    /// is compared, since the rest of the identity is not loaded yet.
    #[inline(always)]
    pub(crate) fn prefetch_entry(&self, place: &mut Place) {
        let id = &place.id;
        let found = self.swarms.find_in_lines(&self.memory, place.lines, |line| line.candidate(id));
        if let Some((at, line)) = found {
            line.prefetch_entry(at.slot());
            place.hint = Some(at);
        }
    }

    /// Prefetches the peers of a small swarm, or the header of a large one, after `prefetch_entry`. If another swarm is at
    /// the place by now, its peers are prefetched instead: the announce compares the identity anyway.
    #[inline(always)]
    pub(crate) fn prefetch_found(&self, place: &mut Place) {
        match place.hint.and_then(|at| self.form(at)) {
            None | Some(Form::Single { .. }) => {}
            Some(Form::Small { block, class, .. }) => self.memory.prefetch_whole_block(block, class),
            Some(Form::Large { index }) => {
                prefetch(self.larges.large(index));
                place.large = Some(index);
            }
        }
    }

    /// Prefetches the lines of the peer in a large swarm, and those that an announce with an equal `rng` will sample. A
    /// peer that renews its announce is looked for in its role only.
    #[inline]
    pub(crate) fn prefetch_peers(
        &self,
        place: &Place,
        announce: &Announce<P>,
        joins: bool,
        rng: &mut fastrand::Rng,
    ) {
        let Some(large) = place.large.and_then(|index| self.larges.get(index)) else { return };
        let memory = &self.memory;
        let hash = announce.peer.hash(&self.key);
        if joins || announce.action != Action::Leech {
            large.seeders.prefetch(memory, hash);
        }
        if joins || announce.action != Action::Seed {
            large.leechers.prefetch(memory, hash);
        }
        let wanted = announce.peers_wanted;
        match announce.action {
            Action::Stop => {}
            Action::Seed | Action::Complete => sample::prefetch_table(&large.leechers, memory, wanted, rng),
            Action::Leech => {
                let (seeders, leechers) = (large.seeders.len(), large.leechers.len());
                let share = sample::share_of_seeders(wanted, seeders as usize, leechers as usize, rng);
                sample::prefetch_table(&large.seeders, memory, share, rng);
                sample::prefetch_table(&large.leechers, memory, wanted - share, rng);
            }
        }
    }
}
