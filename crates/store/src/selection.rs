//! The selection for a reply out of a swarm in which some source has several peers: a few of each source.
//!
//! One address has 65,535 ports, so without this it could have almost all places of a reply. A swarm that never had
//! several peers of one source is sampled as it is, and costs nothing more.
//!
//! Candidates are drawn like any sample, all peers of a small swarm. Of each source a few of them stay, drawn at random,
//! and the reply is a uniform choice of what stays. Where hardly anything stays, as in a home network behind one address
//! or in a laboratory, the rest fills the reply up.

use shoal_types::PeerV6;
use zerocopy::{FromZeros, IntoBytes};

use crate::family::Family;

/// Most candidates. All peers of every small swarm are.
const CANDIDATES_MAX: usize = 256;

/// Most candidates of one source that stay.
const PEERS_PER_SOURCE_MAX: u8 = 2;

/// Where fewer than this stay, the reply is filled up with the rest.
const STAYING_MIN: usize = 16;

/// Slots of the table in which sources are counted: half of them stay empty.
const SLOTS_BITS: u32 = 9;

const _: () = {
    assert!(CANDIDATES_MAX * 2 <= 1 << SLOTS_BITS);
    assert!(CANDIDATES_MAX * size_of::<PeerV6>() <= 8192, "candidates lie on the stack");
};

/// Writes up to `wanted` peers, few of each source. `sample` writes a sample of up to so many peers as it is told and
/// returns its bytes. Returns the bytes written.
#[cold]
pub(crate) fn select<P: Family>(
    wanted: usize,
    rng: &mut fastrand::Rng,
    out: &mut [u8],
    sample: impl Fn(usize, &mut fastrand::Rng, &mut [u8]) -> usize,
) -> usize {
    let mut candidates = <[P; CANDIDATES_MAX]>::new_zeroed();
    let count = sample(CANDIDATES_MAX, rng, candidates.as_mut_bytes()) / size_of::<P>();
    let candidates = &mut candidates[..count];
    rng.shuffle(candidates);
    let staying = bring_forward(candidates, rng);
    let selected = match staying {
        STAYING_MIN.. => wanted.min(staying),
        _ if wanted <= CANDIDATES_MAX => wanted.min(count),
        _ => return sample(wanted, rng, out),
    };
    if staying >= STAYING_MIN {
        // Those of a source with many candidates stand near the front, as the first of many do: drawn anew.
        (0..selected).for_each(|place| candidates.swap(place, rng.usize(place..staying)));
    }
    let bytes = candidates[..selected].as_bytes();
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

/// Moves the first few candidates of each source to the front. Returns how many these are.
fn bring_forward<P: Family>(candidates: &mut [P], rng: &mut fastrand::Rng) -> usize {
    let mut sources = Sources::new(rng);
    let mut staying = 0;
    for index in 0..candidates.len() {
        if sources.count(candidates[index].source()) <= PEERS_PER_SOURCE_MAX {
            candidates.swap(staying, index);
            staying += 1;
        }
    }
    staying
}

/// How often each source has been met: a table with linear probing.
struct Sources {
    slots: [(u64, u8); 1 << SLOTS_BITS],
    /// Multiplier of the hash, drawn for each reply, so that sources that fall together once do so by chance.
    multiplier: u64,
}

impl Sources {
    fn new(rng: &mut fastrand::Rng) -> Self {
        Self { slots: [(0, 0); 1 << SLOTS_BITS], multiplier: rng.u64(..) | 1 }
    }

    /// Counts a source once more. Returns how often it has been met.
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
