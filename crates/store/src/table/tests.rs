//! Tables compared with a naive model, with entries of every kind, chosen at random or by an attacker that knows the
//! order.

use std::collections::BTreeSet;
use std::sync::Arc;

use shoal_base::{InfoHash, PeerV4, PeerV6};

use super::*;
use crate::age::AgeClock;
use crate::family::{Family, PeerRow, Stored};
use crate::memory::OPERATION_PAGES_MAX;
use crate::memory::arena::{Arena, PAGE_BYTES};
use crate::memory::slab::Class;
use crate::stamp::Stamp;
use crate::swarm::line::{Swarm, SwarmLine, SwarmRow};
use crate::swarm::peer_line::{PeerEntry, PeerLine};
use crate::table::info_hash;
use crate::table::segment::{segment_len_max, work};

/// A kind of line whose entries can be numbered.
trait Numbered: Bucket {
    fn numbered(number: u32) -> Self::Entry;
    fn hash_of(number: u32, key: &HashKey) -> u64;
    fn slot_of(&self, number: u32) -> Option<usize>;
    fn number(&self, slot: usize) -> u32;
}

/// Sequential ports of consecutive addresses, the likeliest keys of an attacker.
fn peer_v4(number: u32) -> PeerV4 {
    let [a, b, high, low] = number.to_be_bytes();
    PeerV4([10, 0, a, b, high, low])
}

fn peer_v6(number: u32) -> PeerV6 {
    let mut bytes = [0x20; 18];
    bytes[14..].copy_from_slice(&number.to_be_bytes());
    PeerV6(bytes)
}

fn info_hash(number: u32) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[16..].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

fn last_word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[bytes.len() - 4..].try_into().unwrap())
}

impl Numbered for PeerLine<PeerV4, 9> {
    fn numbered(number: u32) -> Self::Entry {
        PeerEntry { peer: peer_v4(number), stamp: Stamp(1) }
    }

    fn hash_of(number: u32, key: &HashKey) -> u64 {
        peer_v4(number).hash(key)
    }

    fn slot_of(&self, number: u32) -> Option<usize> {
        self.peers().iter().position(|peer| *peer == peer_v4(number))
    }

    fn number(&self, slot: usize) -> u32 {
        last_word(&self.peers()[slot].0)
    }
}

impl Numbered for PeerLine<PeerV6, 10> {
    fn numbered(number: u32) -> Self::Entry {
        PeerEntry { peer: peer_v6(number), stamp: Stamp(1) }
    }

    fn hash_of(number: u32, key: &HashKey) -> u64 {
        peer_v6(number).hash(key)
    }

    fn slot_of(&self, number: u32) -> Option<usize> {
        self.peers().iter().position(|peer| *peer == peer_v6(number))
    }

    fn number(&self, slot: usize) -> u32 {
        last_word(&self.peers()[slot].0)
    }
}

impl<P: Family, const N: usize, const PAD: usize> Numbered for SwarmLine<P, N, PAD> {
    fn numbered(number: u32) -> Self::Entry {
        let peer = P::read_from_bytes(&vec![1; size_of::<P>()]).unwrap();
        let entry = PeerEntry { peer, stamp: Stamp(1) };
        Swarm::new(&info_hash(number), 0, entry, true, AgeClock::new(60).stamp(0))
    }

    fn hash_of(number: u32, key: &HashKey) -> u64 {
        info_hash::hash(&info_hash(number), key)
    }

    fn slot_of(&self, number: u32) -> Option<usize> {
        self.slot(&info_hash(number))
    }

    fn number(&self, slot: usize) -> u32 {
        last_word(&self.id(slot).0)
    }
}

fn key() -> HashKey {
    HashKey::new([1, 2, 3, 4])
}

/// A table and its model, with memory of its own.
struct World<B: Numbered> {
    table: Table<B>,
    memory: Memory,
    key: HashKey,
    model: BTreeSet<u32>,
    refused: u32,
    lines_max: u64,
}

impl<B: Numbered> World<B> {
    fn new(pages: u64) -> Self {
        let memory = Memory::new(Arc::new(Arena::new(pages * PAGE_BYTES as u64, None).unwrap()));
        let table = Table::new(key().seed(1, 1));
        Self { table, memory, key: key(), model: BTreeSet::new(), refused: 0, lines_max: 0 }
    }

    fn find(&self, number: u32) -> Option<At> {
        let hash = B::hash_of(number, &self.key);
        self.table.find(&self.memory, hash, |line| line.slot_of(number)).map(|(at, _line)| at)
    }

    /// Performs an announce (or a stop) of one entry, with everything that the store does with a table.
    fn operate(&mut self, number: u32, comes: bool) {
        let (lines, ()) = work::lines_of(|| self.apply(number, comes));
        self.lines_max = self.lines_max.max(lines);
        // A search, five rebuilds of one or two segments, and searches for an entry that can make room.
        let lines_max = lines_max::<B>() as u64 * 16;
        assert!(lines <= lines_max, "an operation examined or filled {lines} lines");
    }

    fn apply(&mut self, number: u32, comes: bool) {
        let found = self.find(number);
        assert_eq!(found.is_some(), self.model.contains(&number));
        match found {
            None if comes && self.memory.has_room_for(Purpose::Growing) => {
                let (hash, entry) = (B::hash_of(number, &self.key), B::numbered(number));
                match self.table.insert(&mut self.memory, &self.key, hash, &entry) {
                    Some(at) => {
                        let line = self.table.line(&self.memory, at.line).unwrap();
                        assert_eq!(line.number(at.slot()), number);
                        self.model.insert(number);
                    }
                    None => self.refused += 1,
                }
            }
            Some(at) if !comes => {
                self.table.remove(&mut self.memory, at);
                self.model.remove(&number);
                self.table.settle_sometimes(&mut self.memory, &self.key, at.line);
            }
            _ => {}
        }
    }

    /// Lets all segments settle, as the end of a sweep does, until nothing changes.
    fn settle(&mut self) {
        let mut before = (usize::MAX, 0);
        while before != self.table.extent() {
            before = self.table.extent();
            let mut left = u32::MAX;
            while self.table.settle_next(&mut self.memory, &self.key, &mut left, &mut 1) {}
        }
    }

    /// Checks that every entry is present once and is found, and that the windows of a walk show each once.
    fn check(&self) {
        let mut seen = BTreeSet::new();
        let (mut number, mut lines) = (0, 0_usize);
        while number < self.table.end() {
            if let Some(line) = self.table.line(&self.memory, number) {
                for slot in 0..Bucket::len(line) {
                    assert!(seen.insert(line.number(slot)), "{} is present twice", line.number(slot));
                    assert_eq!(self.find(line.number(slot)), Some(At::new(number, slot)));
                }
                lines += 1;
            }
            number = self.table.number_after(number);
        }
        assert_eq!(seen, self.model);
        assert_eq!(self.table.len() as usize, self.model.len());
        assert_eq!(lines, self.table.segments_slice().iter().map(Segment::lines).sum::<usize>());
        self.check_walk();
        self.check_directory();
    }

    fn check_walk(&self) {
        let (mut seen, mut next) = (BTreeSet::new(), Some(0));
        while let Some(first) = next {
            let last = self.table.last_selector(first);
            let visited = self.table.visit_segment(&self.memory, &self.key, first..=last, |line, slot| {
                assert!(seen.insert(line.number(slot)));
            });
            assert_eq!(visited, last);
            next = last.checked_add(1);
        }
        assert_eq!(seen, self.model);
    }

    fn check_directory(&self) {
        let Segments::Many(directory) = &self.table.segments else { return };
        assert_eq!(directory.index.len(), 1 << directory.depth);
        let depths = directory.segments.iter().map(|segment| segment.depth);
        assert_eq!(depths.clone().max(), Some(directory.depth));
        let mut of_depth = [0; DEPTH_MAX as usize + 1];
        depths.for_each(|depth| of_depth[usize::from(depth)] += 1);
        assert_eq!(directory.of_depth, of_depth);
        for (entry, &index) in directory.index.iter().enumerate() {
            let segment = &directory.segments[index as usize];
            assert_eq!(entry >> (directory.depth - segment.depth), segment.prefix as usize);
        }
    }

    /// Returns the numbers below `count` in the order of their selectors.
    fn in_order(&self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..count).collect();
        let selector = |&number: &u32| self.table.seed.mix(B::hash_of(number, &self.key)).selector();
        numbers.sort_by_key(selector);
        numbers
    }

    /// Checks that all entries can be removed and that all memory is released.
    fn finish(mut self) {
        self.check();
        let numbers: Vec<u32> = self.model.iter().copied().collect();
        numbers.into_iter().for_each(|number| self.operate(number, false));
        self.settle();
        self.check();
        assert_eq!((self.table.len(), self.table.has_directory()), (0, false));
        assert!(self.table.extent().1 <= 1, "at most one line is left");
        self.table.release(&mut self.memory);
    }
}

/// Runs a test with every kind of line.
macro_rules! for_every_line {
    ($($name:ident: $test:ident;)*) => {$(
        #[test]
        fn $name() {
            $test::<PeerLine<PeerV4, 9>>();
            $test::<<PeerV6 as Stored>::Line>();
            $test::<<PeerV4 as Stored>::SwarmLine>();
            $test::<<PeerV6 as Stored>::SwarmLine>();
        }
    )*};
}

for_every_line! {
    random_entries_come_and_go: random;
    random_entries_fill_their_lines: fill;
    a_table_that_finds_no_room_to_grow_stays_correct: without_memory;
    neighbours_share_few_segments: neighbours;
    entries_that_fill_the_deepest_segment_are_refused: deepest_segment;
    splits_and_merges_are_far_apart: thrash;
    splits_and_merges_find_pages: reserve;
}

fn churn<B: Numbered>(world: &mut World<B>, seed: u64, numbers: u32, steps: u32) {
    let mut rng = fastrand::Rng::with_seed(seed);
    for step in 0..steps {
        // In every other stretch, more entries are added than removed.
        let comes = rng.u32(..100) < if (step / (steps / 5)).is_multiple_of(2) { 75 } else { 30 };
        world.operate(rng.u32(..numbers), comes);
        let is_small = world.model.len() < 1000;
        if is_small && step < 300 || step.is_multiple_of(997) {
            world.check();
        }
    }
}

fn random<B: Numbered>() {
    for numbers in [40, 500, 9000, 60_000] {
        let mut world = World::<B>::new(1 << 14);
        churn(&mut world, u64::from(numbers), numbers, 30_000.max(2 * numbers));
        assert_eq!(world.refused, 0);
        world.finish();
    }
}

/// Lines are nearly four fifths full at least at every size above a few lines.
fn fill<B: Numbered>() {
    let mut world = World::<B>::new(1 << 14);
    for number in 0..30_000 {
        world.operate(number, true);
        let lines: usize = world.table.segments_slice().iter().map(Segment::lines).sum();
        if number as usize > 20 * B::SLOTS {
            let fill = f64::from(world.table.len()) / (lines * B::SLOTS) as f64;
            assert!(fill > 0.78, "{number} entries: {fill}");
        }
    }
    world.finish();
}

fn without_memory<B: Numbered>() {
    for pages in [10, 14, 20] {
        let mut world = World::<B>::new(pages);
        churn(&mut world, pages, 20_000, 30_000);
        let numbers: Vec<u32> = world.model.iter().copied().collect();
        world.check();
        numbers.into_iter().for_each(|number| world.operate(number, false));
        assert_eq!(world.table.len(), 0);
        world.table.release(&mut world.memory);
    }
}

/// Keeps only the entries that share their first bits, as a client could that knows which those are.
fn neighbours<B: Numbered>() {
    const NUMBERS: u32 = 65_000;
    let mut world = World::<B>::new(1 << 16);
    (0..NUMBERS).for_each(|number| world.operate(number, true));
    let order = world.in_order(NUMBERS);
    order[4000..].iter().for_each(|&number| world.operate(number, false));
    world.settle();
    world.check();
    let segments = world.table.extent().0;
    assert!(segments <= 4000 / (segment_len_max::<B>() / 4) + 12, "{segments} segments");
    for round in 0..3 {
        order[..4000].iter().for_each(|&number| world.operate(number, round % 2 == 1));
    }
    assert_eq!(world.refused, 0);
    world.finish();
}

/// Returns numbers of entries whose mixed hashes have this many first bits in common.
fn crowd<B: Numbered>(bits: u32, count: usize) -> Vec<u32> {
    let selector = |number| key().seed(1, 1).mix(B::hash_of(number, &key())).selector();
    (0..).filter(|&number| selector(number) >> (u32::BITS - bits) == 5).take(count).collect()
}

/// Fills a segment at the maximum depth. Twelve segments, as many as one of eleven bits needs, may have eleven.
fn deepest_segment<B: Numbered>() {
    let mut world = World::<B>::new(1 << 14);
    let chosen = crowd::<B>(12, 2 * segment_len_max::<B>());
    chosen.iter().for_each(|&number| world.operate(number, true));
    let stored = world.model.len();
    assert!(
        (segment_len_max::<B>() * 19 / 20..=segment_len_max::<B>()).contains(&stored),
        "{stored} entries"
    );
    assert_eq!(world.refused as usize, chosen.len() - stored);
    assert_eq!(world.table.segments_slice().iter().map(|segment| segment.depth).max(), Some(11));
    // The other segments are as usable as before.
    (0..1000).for_each(|number| world.operate(number, true));
    assert!(world.refused as usize <= chosen.len() - stored + 20);
    world.finish();
}

/// Eight ports of one slot of each source, all of which lie in the same two lines.
fn crowded_peer(number: u32) -> PeerV4 {
    let [_, a, b, c] = (number / 8).to_be_bytes();
    PeerV4([77, a, b, c, 1, 16 * u8::try_from(number % 8).unwrap()])
}

#[test]
fn entries_that_lie_badly_cost_as_much_as_a_few_rebuilds_now_and_then() {
    let key = key().with_slots(16);
    for count in [300, 600, 1000, 3000] {
        let mut memory = Memory::new(Arc::new(Arena::new(1 << 28, None).unwrap()));
        let mut table = Table::<PeerLine<PeerV4, 9>>::new(key.seed(1, 1));
        let mut rng = fastrand::Rng::with_seed(u64::from(count));
        let mut announce = |number: u32, comes: bool| {
            let peer = crowded_peer(number);
            let hash = peer.hash(&key);
            let found = table.find(&memory, hash, |line| peer.index_in(line.peers())).map(|(at, _line)| at);
            match found {
                None if comes => {
                    let entry = PeerEntry { peer, stamp: Stamp(1) };
                    let _refused = table.insert(&mut memory, &key, hash, &entry);
                }
                Some(at) if !comes => {
                    table.remove(&mut memory, at);
                    table.settle_sometimes(&mut memory, &key, at.line);
                }
                _ => {}
            }
        };
        (0..count).for_each(|number| announce(number, true));
        let (lines, ()) = work::lines_of(|| {
            for _ in 0..20_000 {
                let number = rng.u32(..count);
                announce(number, false);
                announce(number, true);
            }
        });
        let lines_each = lines / 40_000;
        assert!(lines_each <= 8, "{lines_each} lines for each announce of {count}");
    }
}

/// Adds entries until a segment is split, removes them until one is merged, and so on, without a pause.
fn thrash<B: Numbered>() {
    for bits in [3, 7] {
        let mut world = World::<B>::new(1 << 14);
        let chosen = crowd::<B>(bits, 2 * segment_len_max::<B>());
        let (mut present, mut distances) = (0, Vec::new());
        for change in 0..20 {
            let (before, mut operations) = (world.table.extent().0, 0);
            while world.table.extent().0 == before {
                let comes = change % 2 == 0;
                present -= usize::from(!comes);
                world.operate(chosen[present], comes);
                present += usize::from(comes);
                // The attempt that only chance would bring otherwise.
                let at = world.find(chosen[0]).unwrap();
                world.table.settle(&mut world.memory, &world.key, at.line);
                operations += 1;
            }
            distances.push(operations);
        }
        let least = *distances.iter().min().unwrap();
        assert!(least >= segment_len_max::<B>() * 3 / 8, "{least} announces between two changes");
        assert!(world.refused == 0 && present < chosen.len());
    }
}

/// Checks the number of pages that any split needs, however uneven its halves are.
fn reserve<B: Numbered>() {
    let pages = |halves: [usize; 2]| {
        let mut blocks = std::collections::BTreeMap::<usize, usize>::new();
        for lines in halves {
            let full = lines / B::CHUNK_LINES;
            for (count, lines) in [(full, B::CHUNK_LINES), (1, lines % B::CHUNK_LINES)] {
                let class = Class::holding(lines * size_of::<B>()).unwrap();
                *blocks.entry(class.bytes()).or_default() += if lines == 0 { 0 } else { count };
            }
        }
        blocks.into_iter().map(|(bytes, count)| count.div_ceil(PAGE_BYTES / bytes)).sum::<usize>()
    };
    let len = segment_len_max::<B>();
    let needed = (0..=len).flat_map(|ones| (0..GROWTHS_MAX).map(move |steps| (ones, steps)));
    let needed = needed.map(|(ones, steps)| pages(lines_of_halves::<B>([len - ones, ones], steps)));
    assert!(needed.max().unwrap() <= OPERATION_PAGES_MAX);
}
