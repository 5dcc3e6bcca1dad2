//! Samples of the swarms of a shard, by the form of the swarm. Swarms in which sources have several peers are sampled by
//! the rules of [`crate::sample::selection`].

use crate::family::Family;
use crate::sample;
use crate::sample::selection::select;
use crate::shard::Shard;
use crate::swarm::Location;
use crate::swarm::large::Large;
use crate::swarm::line::Form;
use crate::swarm::small::{Small, copy_peers};
use crate::table::At;

impl<P: Family> Shard<P> {
    /// Samples peers of a swarm for one of its members. Returns their number.
    pub(super) fn sample(
        &self,
        form: &Form<P>,
        location: &Location,
        wanted: usize,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> usize {
        if wanted == 0 {
            return 0;
        }
        let bytes = match (form, location) {
            (Form::Small { block, class, is_skewed }, Location::Small(index)) => {
                let small = Small::<P>::read(self.memory.block(*block, *class));
                let seeds = *index < small.seeders;
                sample_small(&small, *is_skewed, seeds, Some(*index), wanted, rng, out)
            }
            (Form::Large { index }, Location::Large(at)) => {
                self.sample_large(self.larges.large(*index), at.seeds, Some(at.at), wanted, rng, out)
            }
            _ => 0,
        };
        bytes / size_of::<P>()
    }

    /// Samples peers of a swarm for a peer that is no member. Returns their number.
    pub(super) fn sample_for_non_member(
        &self,
        form: &Form<P>,
        seeds: bool,
        wanted: usize,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> usize {
        if wanted == 0 {
            return 0;
        }
        let bytes = match form {
            Form::Single { seeds: stored_seeds, .. } if seeds && *stored_seeds => 0,
            Form::Single { entry, .. } => copy_peers(&[entry.peer], out),
            Form::Small { block, class, is_skewed } => {
                let small = Small::<P>::read(self.memory.block(*block, *class));
                sample_small(&small, *is_skewed, seeds, None, wanted, rng, out)
            }
            Form::Large { index } => {
                self.sample_large(self.larges.large(*index), seeds, None, wanted, rng, out)
            }
        };
        bytes / size_of::<P>()
    }

    /// Like `sample_small`, for a large swarm.
    #[inline(always)]
    pub(super) fn sample_large(
        &self,
        large: &Large<P>,
        seeds: bool,
        member: Option<At>,
        wanted: usize,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> usize {
        if !large.is_skewed {
            return sample::sample_large_for(large, &self.memory, seeds, member, wanted, rng, out);
        }
        select::<P>(wanted, rng, out, |wanted, rng, out| {
            sample::sample_large_for(large, &self.memory, seeds, member, wanted, rng, out)
        })
    }
}

/// Samples a small swarm, by the rules for skewed swarms if it is skewed. Returns the number of bytes written.
#[inline(always)]
pub(super) fn sample_small<P: Family>(
    small: &Small<'_, P>,
    is_skewed: bool,
    seeds: bool,
    member: Option<usize>,
    wanted: usize,
    rng: &mut fastrand::Rng,
    out: &mut [u8],
) -> usize {
    if !is_skewed {
        return sample::sample_small_for(small, seeds, member, wanted, rng, out);
    }
    select::<P>(wanted, rng, out, |wanted, rng, out| {
        sample::sample_small_for(small, seeds, member, wanted, rng, out)
    })
}
