//! Which peers an announcer is handed: as many as wanted, each other peer equally likely, none twice, never itself.
//!
//! The peers of a table lie in a ring, in the order of their keyed hash. A sample is a few runs of neighbours, each
//! from a peer chosen uniformly; a run that would touch an earlier one is drawn again. Nothing in this prefers one
//! place of the ring to another, so every peer is equally likely, while only a few cache lines are touched.

use crate::family::{Family, PeerRow};
use crate::memory::Memory;
use crate::small::copy_peers;
use crate::table::{At, Bucket, Table};

/// Most runs of a sample. More would be a little more random and touch more lines.
const RUNS_MAX: usize = 8;

/// Starting points that are drawn, and whose lines are prefetched, before the first is looked at: some of them fall
/// on an empty slot.
const STARTS_PREFETCHED: usize = RUNS_MAX + RUNS_MAX / 2;

/// Draws after which a sample that finds no free places becomes a single run. Never reached in practice.
const DRAWS_MAX: usize = 256;

/// Peers that stay together in a sample of a small swarm: a cache line of IPv4.
const CHUNK: usize = 8;

/// Most chunks of a small swarm.
const CHUNKS_MAX: usize = 32;

/// Splits a sample of `wanted` between seeders and leechers so that on average each has its share to the last
/// fraction. Returns the part of the seeders.
pub(crate) fn share_of_seeders(wanted: usize, seeders: usize, leechers: usize, rng: &mut fastrand::Rng) -> usize {
    let others = seeders + leechers;
    if wanted >= others {
        return seeders;
    }
    let (whole, rest) = (wanted * seeders / others, wanted * seeders % others);
    whole + usize::from(rng.usize(..others) < rest)
}

/// Samples part of a small swarm: `peers` without the one at `skip`. Returns the bytes written.
pub(crate) fn sample_small<P: Family>(
    peers: &[P],
    skip: Option<usize>,
    wanted: usize,
    rng: &mut fastrand::Rng,
    out: &mut [u8],
) -> usize {
    let others = peers.len() - usize::from(skip.is_some());
    if wanted >= others {
        let (before, after) = match skip {
            Some(skip) => (&peers[..skip], &peers[skip + 1..]),
            None => (peers, &peers[..0]),
        };
        let written = copy_peers(before, out);
        return written + copy_peers(after, &mut out[written..]);
    }
    // Chunks of neighbours in random order; the ring is turned at random, so that chunk borders are everywhere alike.
    let turn = rng.usize(..others);
    let chunks = others.div_ceil(CHUNK);
    let mut order: [usize; CHUNKS_MAX] = core::array::from_fn(|chunk| chunk);
    let mut written = 0;
    for taken in 0..chunks {
        order.swap(taken, rng.usize(taken..chunks));
        let first = order[taken] * CHUNK;
        for place in first..(first + CHUNK).min(others) {
            if written == wanted * size_of::<P>() {
                return written;
            }
            let place = if place + turn < others { place + turn } else { place + turn - others };
            let index = place + usize::from(skip.is_some_and(|skip| place >= skip));
            out[written..written + size_of::<P>()].copy_from_slice(peers[index].as_bytes());
            written += size_of::<P>();
        }
    }
    written
}

/// Samples a table without the peer at `skip`. Returns the bytes written.
pub(crate) fn sample_table<B, P>(
    table: &Table<B>,
    memory: &Memory,
    skip: Option<At>,
    wanted: usize,
    rng: &mut fastrand::Rng,
    out: &mut [u8],
) -> usize
where
    P: Family,
    B: Bucket + PeerRow<P>,
{
    let others = table.len() as usize - usize::from(skip.is_some());
    let wanted = wanted.min(others);
    if wanted == 0 {
        return 0;
    }
    let ring = Ring { table, memory, skip };
    // Runs need space between them to be placed at random.
    if wanted * 3 <= others && ring.sample_runs(wanted, rng, out) {
        return wanted * size_of::<P>();
    }
    ring.sample_run(ring.start(rng), wanted, out);
    wanted * size_of::<P>()
}

/// The peers of a table as a ring of lines.
struct Ring<'a, B> {
    table: &'a Table<B>,
    memory: &'a Memory,
    skip: Option<At>,
}

/// First and last place of a run. The last comes before the first where the run goes through the end of the table.
#[derive(Clone, Copy, Default)]
struct Run {
    first: u64,
    last: u64,
}

impl Run {
    fn holds(&self, place: u64) -> bool {
        if self.first <= self.last {
            (self.first..=self.last).contains(&place)
        } else {
            place >= self.first || place <= self.last
        }
    }

    fn touches(&self, other: &Self) -> bool {
        self.holds(other.first) || other.holds(self.first)
    }
}

impl<B: Bucket> Ring<'_, B> {
    /// Samples several runs; false if they found no place.
    fn sample_runs<P: Family>(&self, wanted: usize, rng: &mut fastrand::Rng, out: &mut [u8]) -> bool
    where
        B: PeerRow<P>,
    {
        let length = wanted.div_ceil(RUNS_MAX).max(B::SLOTS);
        let starts: [At; STARTS_PREFETCHED] = core::array::from_fn(|_| self.draw(rng));
        for start in starts.iter().take(wanted.div_ceil(length) * 3 / 2) {
            self.table.prefetch_line(self.memory, start.line);
            self.table.prefetch_line(self.memory, start.line + 1);
        }
        let mut runs = [Run::default(); RUNS_MAX];
        let (mut placed, mut written) = (0, 0);
        for draw in 0..DRAWS_MAX {
            let start = starts.get(draw).copied().unwrap_or_else(|| self.draw(rng));
            if !self.is_peer(start) {
                continue;
            }
            let count = length.min(wanted - written / size_of::<P>());
            let run = self.sample_run(start, count, &mut out[written..]);
            if runs[..placed].iter().any(|earlier| earlier.touches(&run)) {
                continue;
            }
            runs[placed] = run;
            placed += 1;
            written += count * size_of::<P>();
            if written == wanted * size_of::<P>() {
                return true;
            }
        }
        false
    }

    /// Writes `count` peers from `start` on; there are that many.
    fn sample_run<P: Family>(&self, start: At, count: usize, out: &mut [u8]) -> Run
    where
        B: PeerRow<P>,
    {
        let (mut line, mut from) = (start.line, start.slot);
        let (mut left, mut written) = (count, 0);
        loop {
            let peers = self.table.line(self.memory, line).map_or(&[][..], PeerRow::peers);
            let skip = self.skip.filter(|skip| skip.line == line && skip.slot >= from).map(|skip| skip.slot);
            let before = &peers[from..skip.unwrap_or(peers.len())];
            let before = &before[..left.min(before.len())];
            written += copy_peers(before, &mut out[written..]);
            left -= before.len();
            let mut last = from + before.len();
            if let Some(skip) = skip.filter(|_| left > 0) {
                let after = &peers[skip + 1..];
                let after = &after[..left.min(after.len())];
                written += copy_peers(after, &mut out[written..]);
                left -= after.len();
                last = skip + 1 + after.len();
            }
            if left == 0 {
                let last = At { line, slot: last.saturating_sub(1) };
                return Run { first: Self::place(start), last: Self::place(last) };
            }
            line = self.table.line_after(line, peers.is_empty());
            from = 0;
        }
    }

    /// A peer, each equally likely.
    fn start(&self, rng: &mut fastrand::Rng) -> At {
        loop {
            let at = self.draw(rng);
            if self.is_peer(at) {
                return at;
            }
        }
    }

    /// A slot, each equally likely, with or without a peer.
    fn draw(&self, rng: &mut fastrand::Rng) -> At {
        At { line: rng.u32(..self.table.end()), slot: rng.usize(..B::SLOTS) }
    }

    /// Whether a slot holds a peer that may be handed out.
    fn is_peer(&self, at: At) -> bool {
        self.skip != Some(at) && self.table.line(self.memory, at.line).is_some_and(|line| at.slot < line.len())
    }

    fn place(at: At) -> u64 {
        u64::from(at.line) * B::SLOTS as u64 + at.slot as u64
    }
}
