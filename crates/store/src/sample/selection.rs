//! The selection of peers for a reply from a swarm in which some source has several peers: a few of each source.
//!
//! One address has 65,535 ports, so without this selection it could take almost all places of a reply. A swarm that has
//! never had several peers of one source is sampled directly, at no additional cost.
//!
//! Candidates are drawn like any sample; in a small swarm, all peers are candidates. A few random candidates of each
//! source are retained, and the reply is a uniform choice from them. If very few are retained, as in a home network
//! behind one address or in a laboratory, the others fill up the reply.
//!
//! A swarm is marked for good once some source has three peers in it. Up to 256 candidates are drawn, two of each
//! source are retained, and the others fill up the reply if fewer than 16 are retained. A swarm that no longer fits in
//! a block counts one slot only, so a source can have two peers a slot without the mark: some ten by chance.
//!
//! The selection does not help against many networks: each source within its share has at most two candidates, but a
//! hundred sources have two hundred.

use shoal_base::PeerV6;
use zerocopy::{FromZeros, IntoBytes};

use crate::family::Family;

/// Maximum number of candidates. Every small swarm fits in completely.
const CANDIDATES_MAX: usize = 256;

/// Maximum number of retained candidates of one source.
const PEERS_PER_SOURCE_MAX: u8 = 2;

/// If fewer candidates than this are retained, the others fill up the reply.
const RETAINED_MIN: usize = 16;

/// Number of slots, as a power of two, of the table that counts sources. Half of them stay empty.
const SLOTS_BITS: u32 = 9;

const _: () = {
    assert!(CANDIDATES_MAX * 2 <= 1 << SLOTS_BITS);
    assert!(CANDIDATES_MAX * size_of::<PeerV6>() <= 8192, "candidates lie on the stack");
};

/// Writes up to `wanted` peers, few of each source, and returns the number of bytes written. `sample` writes a sample
/// of at most the given number of peers and returns its size in bytes.
#[cold]
#[inline(never)]
pub(crate) fn select<P: Family>(
    wanted: usize,
    rng: &mut fastrand::Rng,
    out: &mut [u8],
    sample: impl Fn(usize, &mut fastrand::Rng, &mut [u8]) -> usize,
) -> usize {
    if wanted == 0 {
        return 0;
    }
    let mut candidates = <[P; CANDIDATES_MAX]>::new_zeroed();
    let count = sample(CANDIDATES_MAX, rng, candidates.as_mut_bytes()) / size_of::<P>();
    let candidates = &mut candidates[..count];
    rng.shuffle(candidates);
    let retained = bring_forward(candidates, rng);
    let selected = match retained {
        RETAINED_MIN.. => wanted.min(retained),
        _ if wanted <= CANDIDATES_MAX => wanted.min(count),
        _ => return sample(wanted, rng, out),
    };
    if retained >= RETAINED_MIN {
        // Peers of a source with many candidates are likely to be near the front, so the order is drawn again.
        (0..selected).for_each(|place| candidates.swap(place, rng.usize(place..retained)));
    }
    let bytes = candidates[..selected].as_bytes();
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

/// Moves the first few candidates of each source to the front. Returns their number.
fn bring_forward<P: Family>(candidates: &mut [P], rng: &mut fastrand::Rng) -> usize {
    let mut sources = Sources::new(rng);
    let mut retained = 0;
    for index in 0..candidates.len() {
        if sources.count(candidates[index].source()) <= PEERS_PER_SOURCE_MAX {
            candidates.swap(retained, index);
            retained += 1;
        }
    }
    retained
}

/// The number of occurrences of each source: a table with linear probing.
struct Sources {
    slots: [(u64, u8); 1 << SLOTS_BITS],
    /// Multiplier of the hash, drawn for each reply, so that collisions occur only by chance.
    multiplier: u64,
}

impl Sources {
    fn new(rng: &mut fastrand::Rng) -> Self {
        Self { slots: [(0, 0); 1 << SLOTS_BITS], multiplier: rng.u64(..) | 1 }
    }

    /// Counts an occurrence of a source. Returns the source's count.
    fn count(&mut self, source: u64) -> u8 {
        let hash = source.wrapping_mul(self.multiplier) >> (u64::BITS - SLOTS_BITS);
        let mut slot = usize::try_from(hash).unwrap_or(0);
        loop {
            let (other, count) = &mut self.slots[slot];
            if *count == 0 || *other == source {
                *other = source;
                *count = count.saturating_add(1);
                return *count;
            }
            slot = (slot + 1) % self.slots.len();
        }
    }
}
