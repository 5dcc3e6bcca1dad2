//! The selection of peers for a reply: as many as wanted, each other peer equally likely, none twice, never the
//! announcer itself.
//!
//! The peers of a table form a ring, in the order of its lines. A sample is a few runs of neighbours. Each run starts
//! at a uniformly chosen peer, and is drawn again if it would overlap an earlier one. No position in the ring is
//! preferred, so every peer is equally likely, while the sample touches only a few cache lines.
//!
//! A run has at least 15 neighbours. The draws of one sample are not independent: neighbours come together, so a reply
//! of 30 peers shows two neighbourhoods. The neighbours of a peer change whenever its segment is rebuilt. Runs of nine
//! took a quarter more instructions. A sample of whole lines would be simpler, but favours peers of emptier lines by a
//! few per cent.

pub(crate) mod selection;

use arrayvec::ArrayVec;
use zerocopy::IntoBytes;

use crate::family::{Family, PeerRow};
use crate::memory::Memory;
use crate::swarm::large::Large;
use crate::swarm::small::{Small, copy_peers};
use crate::table::{At, Bucket, Table};

/// Maximum number of runs of a sample. More would be slightly more random and touch more lines.
const RUNS_MAX: usize = 8;

/// Number of lines to prefetch for each run: as many as it copies without a branch.
const RUN_LINES: usize = 3;

/// Maximum number of lines to prefetch for a single long run.
const LONG_RUN_LINES_MAX: usize = 8;

/// Number of draws after which a sample without a free range becomes a single run. Only a table that expiry has almost
/// emptied needs so many.
const DRAWS_MAX: usize = 256;

/// Number of lines that a single run may cross beyond one for each wanted peer.
const SPARE_LINES_MAX: usize = 512;

/// Number of peers that stay together in a sample of a small swarm: about a cache line of IPv4 peers.
const CHUNK: usize = 8;

/// Maximum number of chunks of a small swarm.
const CHUNKS_MAX: usize = 32;

/// The numbers of all chunks, in order.
const CHUNK_NUMBERS: [u8; CHUNKS_MAX] = {
    let mut numbers = [0; CHUNKS_MAX];
    let mut number = 0;
    while number < CHUNKS_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "a const context has no try_from")]
        let value = number as u8;
        numbers[number] = value;
        number += 1;
    }
    numbers
};

/// Splits a sample of `wanted` peers between seeders and leechers, so that the expected share of each is exact. Returns
/// the number of seeders.
pub(crate) fn share_of_seeders(
    wanted: usize,
    seeders: usize,
    leechers: usize,
    rng: &mut fastrand::Rng,
) -> usize {
    let others = seeders + leechers;
    if wanted >= others {
        return seeders;
    }
    let (whole, rest) = (wanted * seeders / others, wanted * seeders % others);
    whole + usize::from(rng.usize(..others) < rest)
}

/// Samples a small swarm for a seeder, which gets leechers only, or for a leecher, which gets a mix. `member` is the
/// index of the announcer, if it is in the swarm. Returns the number of bytes written.
#[inline]
pub(crate) fn sample_small_for<P: Family>(
    small: &Small<'_, P>,
    seeds: bool,
    member: Option<usize>,
    wanted: usize,
    rng: &mut fastrand::Rng,
    out: &mut [u8],
) -> usize {
    if seeds {
        sample_small(&small.peers[small.seeders..], None, wanted, rng, out)
    } else {
        sample_small(small.peers, member, wanted, rng, out)
    }
}

/// Like [`sample_small_for`], for a large swarm. A member is in the table of its role.
#[inline]
pub(crate) fn sample_large_for<P: Family>(
    large: &Large<P>,
    memory: &Memory,
    seeds: bool,
    member: Option<At>,
    wanted: usize,
    rng: &mut fastrand::Rng,
    out: &mut [u8],
) -> usize {
    if seeds {
        return sample_table(&large.leechers, memory, None, wanted, rng, out);
    }
    let (seeders, leechers) = (large.seeders.len() as usize, large.leechers.len() as usize);
    let share = share_of_seeders(wanted, seeders, leechers - usize::from(member.is_some()), rng);
    let written = sample_table(&large.seeders, memory, None, share, rng, out);
    written + sample_table(&large.leechers, memory, member, wanted - share, rng, &mut out[written..])
}

/// Samples `peers` except the one at `skip`. Returns the number of bytes written.
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
    // Takes chunks of neighbours in random order. The ring is rotated at random, so that chunk borders have no fixed
    // position.
    let rotation = rng.usize(..others);
    let chunks = others.div_ceil(CHUNK);
    let mut order: [u8; CHUNKS_MAX] = CHUNK_NUMBERS;
    let mut left = wanted;
    let mut written = 0;
    for taken in 0..chunks {
        if left == 0 {
            break;
        }
        order.swap(taken, rng.usize(taken..chunks));
        let first = usize::from(order[taken]) * CHUNK;
        let count = CHUNK.min(others - first).min(left);
        let mut start = first + rotation;
        start = if start < others { start } else { start - others };
        written += copy_of_ring(peers, skip, start, count, &mut out[written..]);
        left -= count;
    }
    written
}

/// Copies `count` peers from `start` on, in the ring of all peers except the one at `skip`. Returns the number of bytes
/// written. The rest of `out` is unspecified.
#[inline]
fn copy_of_ring<P: Family>(
    peers: &[P],
    skip: Option<usize>,
    start: usize,
    count: usize,
    out: &mut [u8],
) -> usize {
    let skip_at = skip.unwrap_or(peers.len());
    let first = start + usize::from(start >= skip_at);
    let is_whole = first + CHUNK <= peers.len() && (first > skip_at || first + count <= skip_at);
    // A copy of constant size is fastest. The excess bytes are overwritten or ignored.
    if let Some((chunk, out)) = peers.get(first..first + CHUNK).zip(out.get_mut(..CHUNK * size_of::<P>()))
        && is_whole
    {
        out.copy_from_slice(chunk.as_bytes());
        return count * size_of::<P>();
    }
    let others = peers.len() - usize::from(skip.is_some());
    for taken in 0..count {
        let index = if start + taken < others { start + taken } else { start + taken - others };
        let peer = &peers[index + usize::from(index >= skip_at)];
        out[taken * size_of::<P>()..][..size_of::<P>()].copy_from_slice(peer.as_bytes());
    }
    count * size_of::<P>()
}

/// Samples a table without the peer at `skip`. Returns the number of bytes written.
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
    // Each table has its own random numbers, so that `prefetch_table` draws the same ones.
    let rng = &mut rng.fork();
    let others = table.len() as usize - usize::from(skip.is_some());
    let wanted = wanted.min(others);
    if wanted == 0 {
        return 0;
    }
    let ring = Ring::new(table, memory, skip);
    if has_space_for_runs(wanted, others) && ring.sample_runs(wanted, rng, out) {
        return wanted * size_of::<P>();
    }
    // Expiry may have just emptied most lines of the table. The reply then has the peers of only a few lines, so that
    // no request waits for a long walk.
    let (_, written) = ring.sample_run(ring.start(rng), wanted, wanted + SPARE_LINES_MAX, out);
    written
}

/// Prefetches the lines that [`sample_table`] will first examine with the same `wanted` and an equal `rng`. If the
/// table changes in between, these are just the wrong lines.
pub(crate) fn prefetch_table<B: Bucket>(
    table: &Table<B>,
    memory: &Memory,
    wanted: usize,
    rng: &mut fastrand::Rng,
) {
    let rng = &mut rng.fork();
    let others = table.len() as usize;
    let wanted = wanted.min(others);
    if wanted == 0 {
        return;
    }
    let ring = Ring::new(table, memory, None);
    if has_space_for_runs(wanted, others) {
        let runs = wanted.div_ceil(Ring::<B>::run_length(wanted));
        // Some of the drawn starting points are empty slots.
        for _ in 0..runs * 3 / 2 {
            table.prefetch_lines(memory, ring.draw(rng).line, RUN_LINES);
        }
    } else {
        // A single run has all wanted peers. Its first line is used in part, and the others are not full.
        let lines = (1 + (wanted * 4 / 3).div_ceil(B::SLOTS)).min(LONG_RUN_LINES_MAX);
        table.prefetch_lines(memory, ring.draw(rng).line, lines);
    }
}

/// Returns whether there is enough space between runs to place them at random.
fn has_space_for_runs(wanted: usize, others: usize) -> bool {
    wanted * 3 <= others
}

/// Returns a number below `range` from the first bits of a random number, and the other bits.
#[inline]
fn scaled(random: u64, range: usize) -> (usize, u64) {
    let high = ((u128::from(random) * range as u128) >> 64) as u64;
    (usize::try_from(high).unwrap_or(0), random.wrapping_mul(range as u64))
}

struct Ring<'a, B> {
    table: &'a Table<B>,
    memory: &'a Memory,
    skip: Option<At>,
    /// The number of segments, and the maximum number of lines of one.
    extent: (usize, usize),
}

/// The ring index of a run's first slot, and the number of slots from there to its last one.
#[derive(Clone, Copy, Default)]
struct Run {
    first: u64,
    span: u64,
}

impl Run {
    #[inline]
    fn touches(&self, other: &Self, ring_len: u64) -> bool {
        self.contains(other.first, ring_len) | other.contains(self.first, ring_len)
    }

    #[inline]
    fn contains(&self, index: u64, ring_len: u64) -> bool {
        distance(self.first, index, ring_len) < self.span
    }
}

#[inline]
fn distance(from: u64, to: u64, ring_len: u64) -> u64 {
    if to < from { to + ring_len - from } else { to - from }
}

impl<'a, B: Bucket> Ring<'a, B> {
    fn new(table: &'a Table<B>, memory: &'a Memory, skip: Option<At>) -> Self {
        Self { table, memory, skip, extent: table.extent() }
    }

    /// Samples several runs. Returns `false` if they find no free ranges.
    fn sample_runs<P: Family>(&self, wanted: usize, rng: &mut fastrand::Rng, out: &mut [u8]) -> bool
    where
        B: PeerRow<P>,
    {
        let length = Self::run_length(wanted);
        let mut runs = ArrayVec::<Run, RUNS_MAX>::new();
        let (mut left, mut written) = (wanted, 0);
        for _ in 0..DRAWS_MAX {
            let start = self.draw(rng);
            let count = length.min(left);
            let Some(run) = self.run_from(start, count, &mut out[written..]) else { continue };
            if runs.iter().any(|earlier| earlier.touches(&run, self.len())) {
                continue;
            }
            left -= count;
            if left == 0 {
                return true;
            }
            runs.push(run);
            written += count * size_of::<P>();
        }
        false
    }

    /// Returns the number of peers in a run: at least the average content of two or three lines, so that the usual 30
    /// or 50 peers take two to four runs.
    fn run_length(wanted: usize) -> usize {
        wanted.div_ceil(RUNS_MAX).max(B::SLOTS * 5 / 3)
    }

    /// Writes `count` peers from `start` on, by the fastest applicable method. Returns `None` if `start` is not a peer.
    #[inline]
    fn run_from<P: Family>(&self, start: At, count: usize, out: &mut [u8]) -> Option<Run>
    where
        B: PeerRow<P>,
    {
        let Some(lines) = self.table.three_lines(self.memory, start.line) else {
            return self.is_peer(start).then(|| self.sample_run(start, count, usize::MAX, out).0);
        };
        if start.slot() >= lines[0].len() || self.skips(start) {
            return None;
        }
        self.copy_short_run(start, lines, count, out)
            .or_else(|| Some(self.sample_run(start, count, usize::MAX, out).0))
    }

    /// Like `sample_run`, but every copy has the size of a whole line, because no processor can predict where in a line
    /// the run begins. Returns `None` if the run is too long for that, if it comes near the announcer, or if `out` has
    /// no space for whole lines. It may overwrite bytes after the run in `out`.
    #[inline]
    fn copy_short_run<P: Family>(
        &self,
        start: At,
        lines: &[B; 3],
        count: usize,
        out: &mut [u8],
    ) -> Option<Run>
    where
        B: PeerRow<P>,
    {
        let [first, second, third] = lines;
        let (peer_bytes, line_bytes) = (size_of::<P>(), size_of::<B::Slots>());
        let from_first = first.len() - start.slot();
        let from_two = from_first + second.len();
        let near_skip = self.skip.is_some_and(|skip| skip.line.wrapping_sub(start.line) < 3);
        if near_skip || count > from_two + third.len() || out.len() < from_two * peer_bytes + line_bytes {
            return None;
        }
        // The next copy overwrites the bytes after the last peer of a line.
        out[..line_bytes].copy_from_slice(&lines.as_bytes()[start.slot() * peer_bytes..][..line_bytes]);
        out[from_first * peer_bytes..][..line_bytes].copy_from_slice(second.slots().as_bytes());
        if count > from_two {
            out[from_two * peer_bytes..][..line_bytes].copy_from_slice(third.slots().as_bytes());
        }
        // The number of the run's lines before its last one, and of its peers in them.
        let (lines_before, before) = if count <= from_first {
            (0, 0)
        } else if count <= from_two {
            (1, from_first)
        } else {
            (2, from_two)
        };
        let slots_before = if lines_before == 0 { 0 } else { lines_before * B::SLOTS - start.slot() };
        Some(Run { first: Self::ring_index(start), span: (slots_before + count - before) as u64 })
    }

    /// Writes `count` peers from `start` on, from at most `lines_max` lines. Returns the run, and the number of bytes
    /// written.
    fn sample_run<P: Family>(&self, start: At, count: usize, lines_max: usize, out: &mut [u8]) -> (Run, usize)
    where
        B: PeerRow<P>,
    {
        let (mut from, mut left, mut written) = (start.slot(), count, 0);
        for (line, row) in self.table.ring(self.memory, start.line).take(lines_max) {
            let peers = row.map_or(&[][..], PeerRow::peers);
            let out = &mut out[written..];
            let (copied, end) = if self.skip.is_some_and(|skip| skip.line == line && skip.slot() >= from) {
                self.copy_around_skip(peers, from, left, out)
            } else {
                let copied = left.min(peers.len() - from);
                // A copy of constant size is fastest. The excess bytes are overwritten or ignored.
                match row.zip(out.get_mut(..size_of::<B::Slots>())).filter(|_| from == 0) {
                    Some((row, out)) => out.copy_from_slice(row.slots().as_bytes()),
                    None => _ = copy_peers(&peers[from..][..copied], out),
                }
                (copied, from + copied)
            };
            written += copied * size_of::<P>();
            left -= copied;
            if left == 0 {
                let (first, last) =
                    (Self::ring_index(start), Self::ring_index(At::new(line, end.saturating_sub(1))));
                return (Run { first, span: distance(first, last, self.len()) + 1 }, written);
            }
            from = 0;
        }
        (Run::default(), written)
    }

    /// Writes up to `count` peers of the announcer's line from slot `from` on, without the announcer. Returns their
    /// number, and the slot after the last one.
    #[cold]
    fn copy_around_skip<P: Family>(
        &self,
        peers: &[P],
        from: usize,
        count: usize,
        out: &mut [u8],
    ) -> (usize, usize) {
        let skip = self.skip.map_or(0, |skip| skip.slot());
        let before = &peers[from..skip];
        let before = &before[..count.min(before.len())];
        let written = copy_peers(before, out);
        let after = &peers[skip + 1..];
        let after = &after[..(count - before.len()).min(after.len())];
        copy_peers(after, &mut out[written..]);
        let end = if after.is_empty() { from + before.len() } else { skip + 1 + after.len() };
        (before.len() + after.len(), end)
    }

    /// Draws a peer, each equally likely. In an almost empty table, draws any line.
    fn start(&self, rng: &mut fastrand::Rng) -> At {
        let peer = (0..DRAWS_MAX).map(|_| self.draw(rng)).find(|&at| self.is_peer(at));
        peer.unwrap_or_else(|| At::new(self.draw(rng).line, 0))
    }

    /// Draws a slot, each equally likely, with or without a peer. It may be in a line that does not exist.
    #[inline]
    fn draw(&self, rng: &mut fastrand::Rng) -> At {
        // One random number serves for all: each step takes what the previous one has left of it.
        let (segments, lines) = self.extent;
        let (segment, rest) = scaled(rng.u64(..), segments);
        let (line, rest) = scaled(rest, lines);
        let (slot, _) = scaled(rest, B::SLOTS);
        At::new(Table::<B>::number(segment, line), slot)
    }

    /// Returns whether a slot holds a peer other than the announcer.
    fn is_peer(&self, at: At) -> bool {
        !self.skips(at) && self.table.line(self.memory, at.line).is_some_and(|line| at.slot() < line.len())
    }

    #[inline]
    fn skips(&self, at: At) -> bool {
        self.skip.is_some_and(|skip| skip.line == at.line && skip.slot() == at.slot())
    }

    /// Returns the number of slots, including those of lines that do not exist.
    #[inline]
    fn len(&self) -> u64 {
        u64::from(Table::<B>::number(self.extent.0, 0)) * B::SLOTS as u64
    }

    fn ring_index(at: At) -> u64 {
        u64::from(at.line) * B::SLOTS as u64 + at.slot() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use shoal_base::PeerV4;

    use super::*;
    use crate::family::Stored;
    use crate::hash::HashKey;
    use crate::memory::arena::Arena;
    use crate::stamp::Stamp;
    use crate::swarm::peer_line::PeerEntry;

    fn peer(number: u16) -> PeerV4 {
        let [high, low] = number.to_be_bytes();
        PeerV4([10, 0, 0, 1, high, low])
    }

    /// Samples a table, after some peers have left it, and compares the frequency of each peer with its expectation.
    fn check(peers: u16, left: u16, wanted: usize, skips: bool) {
        const ROUNDS: u32 = 6000;
        let key = HashKey::new([5, 6, 7, 8]);
        let mut memory = Memory::new(Arc::new(Arena::new(1 << 26, None).unwrap()));
        let mut table = Table::<<PeerV4 as Stored>::Line>::new(key.seed(1, 1));
        let find = |table: &Table<<PeerV4 as Stored>::Line>, memory: &Memory, number| {
            table
                .find(memory, peer(number).hash(&key), |line| {
                    line.peers().iter().position(|other| *other == peer(number))
                })
                .map(|(at, _line)| at)
        };
        for number in 0..peers + left {
            let entry = PeerEntry { peer: peer(number), stamp: Stamp(0) };
            assert!(memory.has_room());
            table.insert(&mut memory, &key, peer(number).hash(&key), &entry).unwrap();
        }
        for number in peers..peers + left {
            let at = find(&table, &memory, number).unwrap();
            table.remove(&mut memory, at);
        }
        for announcer in [0, 1, 2, 3] {
            let at = find(&table, &memory, announcer);
            let skip = at.filter(|_| skips);
            assert!(at.is_some());
            let (mut rng, mut out) = (fastrand::Rng::with_seed(9), [0; 300 * 6]);
            let mut seen = BTreeMap::new();
            for _ in 0..ROUNDS {
                let written = sample_table(&table, &memory, skip, wanted, &mut rng, &mut out);
                let mut sample: Vec<PeerV4> =
                    out[..written].chunks_exact(6).map(|bytes| PeerV4(bytes.try_into().unwrap())).collect();
                sample.iter().for_each(|&peer| *seen.entry(peer).or_insert(0_u32) += 1);
                sample.sort_unstable();
                sample.dedup();
                assert_eq!(sample.len(), wanted, "no peer twice");
            }
            let others = usize::from(peers) - usize::from(skips);
            assert_eq!(seen.len(), others);
            assert_eq!(seen.contains_key(&peer(announcer)), !skips);
            let chance = wanted as f64 / others as f64;
            let (mean, variance) = (f64::from(ROUNDS) * chance, f64::from(ROUNDS) * chance * (1.0 - chance));
            let worst = seen.values().map(|&count| (f64::from(count) - mean).abs() / variance.sqrt());
            let worst = worst.fold(0.0, f64::max);
            assert!(worst < 5.5, "a peer is {worst} standard deviations off: {peers}, {left}, {wanted}");
        }
        table.release(&mut memory);
    }

    #[test]
    fn a_prefetch_draws_the_same_numbers_as_the_sample() {
        let key = HashKey::new([5, 6, 7, 8]);
        let mut memory = Memory::new(Arc::new(Arena::new(1 << 26, None).unwrap()));
        let mut table = Table::<<PeerV4 as Stored>::Line>::new(key.seed(1, 1));
        for number in 0..500 {
            let entry = PeerEntry { peer: peer(number), stamp: Stamp(0) };
            assert!(memory.has_room());
            table.insert(&mut memory, &key, peer(number).hash(&key), &entry).unwrap();
        }
        for seed in 0..100 {
            let [mut sampled, mut prefetched] = [(); 2].map(|()| fastrand::Rng::with_seed(seed));
            for wanted in [0, 7, 30, 50, 300] {
                sample_table(&table, &memory, None, wanted, &mut sampled, &mut [0; 300 * 6]);
                prefetch_table(&table, &memory, wanted, &mut prefetched);
                assert_eq!(sampled.get_seed(), prefetched.get_seed(), "after a table of {wanted}");
            }
        }
        table.release(&mut memory);
    }

    #[test]
    fn each_peer_of_a_table_has_the_same_chance() {
        for skips in [false, true] {
            check(230, 0, 50, skips);
            check(400, 500, 50, skips);
            check(1500, 0, 50, skips);
            check(1500, 1100, 74, skips);
            check(2600, 400, 30, skips);
        }
    }
}
