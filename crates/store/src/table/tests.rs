//! Tables compared with a naive model, with entries of every kind, chosen at random or by an attacker that knows the
//! order.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_types::{InfoHash, PeerV4, PeerV6};

use super::*;
use crate::arena::Arena;
use crate::family::{Family, PeerRow, Stored};
use crate::peer_line::{PeerEntry, PeerLine};
use crate::rows::work;
use crate::stamp::Stamp;
use crate::swarm_line::{self, Swarm, SwarmLine};

/// Maximum number of lines that one operation of a table may examine: a search of both generations, an insertion, a
/// removal, and steps or moves. The worst case is the sum of the bounds in ARCHITECTURE.md; the actual maximum is less.
const LINES_PER_OPERATION_MAX: u64 = 20_000;

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

impl<P: Family> Numbered for SwarmLine<P> {
    fn numbered(number: u32) -> Self::Entry {
        let peer = P::read_from_bytes(&vec![1; size_of::<P>()]).unwrap();
        let entry = PeerEntry { peer, stamp: Stamp(1) };
        Swarm::new(&info_hash(number), 0, entry, true)
    }

    fn hash_of(number: u32, key: &HashKey) -> u64 {
        swarm_line::hash(&info_hash(number), key)
    }

    fn slot_of(&self, number: u32) -> Option<usize> {
        self.slot(&info_hash(number))
    }

    fn number(&self, slot: usize) -> u32 {
        last_word(&self.info_hash(slot).0)
    }
}

fn key() -> HashKey {
    HashKey::new([1, 2, 3, 4])
}

fn memory(pages: u64) -> Memory {
    Memory::new(Arc::new(Arena::new(pages * 4096).unwrap()))
}

/// A table and its model, with a key and memory of its own.
struct World<B: Numbered> {
    table: Table<B>,
    memory: Memory,
    key: HashKey,
    model: BTreeMap<u32, ()>,
    renewals: u32,
    refused: u32,
    lines_max: u64,
}

impl<B: Numbered> World<B> {
    fn new(pages: u64) -> Self {
        Self {
            table: Table::new(key().seed(1, 1)),
            memory: memory(pages),
            key: key(),
            model: BTreeMap::new(),
            renewals: 0,
            refused: 0,
            lines_max: 0,
        }
    }

    fn renew_if_due(&mut self) {
        if self.table.is_due() {
            self.table.renew(self.key.seed(self.table.seed().name(), 1));
            self.renewals += 1;
        }
    }

    fn find(&self, number: u32) -> Option<At> {
        self.table.find(&self.memory, B::hash_of(number, &self.key), |line| line.slot_of(number))
    }

    /// Performs an announce (or a stop) of one entry, with everything that the store does with a table.
    fn operate(&mut self, number: u32, comes: bool) {
        let (lines, ()) = work::lines_of(|| self.apply(number, comes));
        assert!(lines <= LINES_PER_OPERATION_MAX, "an operation examined {lines} lines");
        self.lines_max = self.lines_max.max(lines);
    }

    fn apply(&mut self, number: u32, comes: bool) {
        let found = self.find(number);
        assert_eq!(found.is_some(), self.model.contains_key(&number));
        match found {
            None if comes && self.memory.has_room_for(Purpose::Growing) => {
                let (hash, entry) = (B::hash_of(number, &self.key), B::numbered(number));
                let mut at = self.table.insert(&mut self.memory, hash, &entry);
                if at.is_none() {
                    self.renew_if_due();
                    at = self.table.insert(&mut self.memory, hash, &entry);
                }
                match at {
                    Some(at) => {
                        let line = self.table.line(&self.memory, at).unwrap();
                        assert_eq!(line.number(at.slot), number);
                        self.model.insert(number, ());
                    }
                    None => self.refused += 1,
                }
            }
            Some(at) if !comes => {
                self.table.remove(&mut self.memory, &self.key, at);
                self.model.remove(&number);
            }
            _ => {}
        }
        self.renew_if_due();
        self.table.settle(&mut self.memory, &self.key);
    }

    /// Checks that every entry is present once and is found, and that windows of the order show each once.
    fn check(&self) {
        let mut seen = BTreeMap::new();
        for number in 0..self.table.end() {
            let place = self.table.place(number);
            let Some(line) = self.table.line(&self.memory, place) else { continue };
            for slot in 0..Bucket::len(line) {
                let number = line.number(slot);
                assert!(seen.insert(number, ()).is_none(), "{number} is present twice");
                assert_eq!(self.find(number), Some(At { slot, ..place }));
            }
        }
        assert_eq!(seen, self.model);
        assert_eq!(self.table.len() as usize, self.model.len());
        if self.table.former().is_none() {
            self.check_windows(23);
        }
    }

    fn check_windows(&self, windows: u32) {
        let mut seen = BTreeMap::new();
        let width = u32::MAX / windows;
        for window in 0..=windows {
            let first = window * width;
            let last = first.saturating_add(width - 1);
            self.table.visit_between(&self.memory, &self.key, first..=last, |line, slot| {
                assert!(seen.insert(line.number(slot), ()).is_none());
            });
        }
        assert_eq!(seen, self.model);
    }

    /// Returns the numbers below `count` in the current order of the table.
    fn in_order(&self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..count).collect();
        numbers.sort_by_key(|&number| self.position(number));
        numbers
    }

    fn position(&self, number: u32) -> u32 {
        self.table.seed().position(B::hash_of(number, &self.key))
    }

    /// Lets the table settle, and checks that all entries can be removed and that all memory is released.
    fn finish(mut self) {
        self.check();
        let numbers: Vec<u32> = self.model.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.operate(number, false));
        while self.table.settle(&mut self.memory, &self.key) {}
        self.check();
        assert_eq!(self.table.len(), 0);
        self.table.release(&mut self.memory);
    }
}

/// Runs a test with every kind of line.
macro_rules! for_every_line {
    ($($name:ident: $test:ident;)*) => {$(
        #[test]
        fn $name() {
            $test::<PeerLine<PeerV4, 9>>();
            $test::<PeerLine<PeerV6, 10>>();
            $test::<SwarmLine<PeerV4>>();
            $test::<SwarmLine<PeerV6>>();
        }
    )*};
}

for_every_line! {
    random_entries_come_and_go: random;
    random_entries_renew_nothing: random_entries;
    a_table_that_finds_no_room_to_grow_stays_correct: without_memory;
    a_run_of_neighbours_is_broken_up: neighbours;
    neighbours_at_the_end_of_the_table_are_broken_up: neighbours_at_the_end;
    entries_of_one_home_line_are_bounded: equal_homes;
    repeated_steps_at_a_border_cost_little: repeated_steps_at_the_border;
    a_long_run_that_is_only_just_full_is_bounded: dense_run;
    visits_of_a_long_run_are_charged: visits_of_a_run;
    a_renewal_at_the_ceiling_stays_correct: renewal_at_the_ceiling;
    a_renewal_amid_growth_and_shrinking_stays_correct: renewal_amid_changes;
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
    for numbers in [40, 500, 9000] {
        let mut world = World::<B>::new(1 << 14);
        churn(&mut world, u64::from(numbers), numbers, 30_000);
        assert_eq!((world.renewals, world.refused), (0, 0));
        world.finish();
    }
}

fn without_memory<B: Numbered>() {
    for pages in [10, 14, 20] {
        let mut world = World::<B>::new(pages);
        churn(&mut world, pages, 20_000, 30_000);
        world.finish();
    }
}

/// Announces all ports, learns their order, and keeps a run of neighbours only.
fn neighbours<B: Numbered>() {
    const PORTS: u32 = 65_000;
    let mut world = World::<B>::new(1 << 16);
    (0..PORTS).for_each(|number| world.operate(number, true));
    let order = world.in_order(PORTS);
    order[20_000..].iter().for_each(|&number| world.operate(number, false));
    world.check();
    assert!(world.renewals > 0, "20,000 neighbours are a run of full lines");
    // The learned order is now useless.
    let renewals = world.renewals;
    for round in 0..3 {
        order[..20_000].iter().for_each(|&number| world.operate(number, round % 2 == 1));
    }
    assert!(world.renewals <= renewals + 1, "{} renewals", world.renewals);
    assert_eq!(world.refused, 0);
    world.finish();
}

/// As above, with the last neighbours of the order, and a table that consists of nothing else.
fn neighbours_at_the_end<B: Numbered>() {
    let mut world = World::<B>::new(1 << 16);
    let order = world.in_order(60_000);
    order[45_000..].iter().rev().for_each(|&number| world.operate(number, true));
    world.check();
    assert!(world.renewals > 0 && world.refused == 0);
    world.finish();
}

/// Each new entry is the one whose position in the current order is nearest to a fixed one.
fn equal_homes<B: Numbered>() {
    let mut world = World::<B>::new(1 << 16);
    for round in 0..6 {
        // A real attacker could not do this: the order is learned again after every renewal, without an announce.
        let target = u32::MAX / 6 * round;
        let mut order = world.in_order(200_000);
        order.sort_by_key(|&number| world.position(number).abs_diff(target));
        for &number in &order[..9000] {
            world.operate(number, true);
        }
        world.check();
    }
    assert!(world.renewals > 0);
    world.finish();
}

/// Repeatedly visits a run that is long but allowed, as refused announces of a source do.
fn visits_of_a_run<B: Numbered>() {
    let mut world = World::<B>::new(1 << 16);
    let target = u32::MAX / 2;
    let mut order = world.in_order(200_000);
    order.sort_by_key(|&number| world.position(number).abs_diff(target));
    let entries = B::SLOTS * 400;
    for &number in &order[..entries] {
        let hash = B::hash_of(number, &world.key);
        assert!(world.memory.has_room_for(Purpose::Growing));
        world.table.insert(&mut world.memory, hash, &B::numbered(number)).unwrap();
    }
    world.table.reset_cost();
    let hash = B::hash_of(order[0], &world.key);
    let mut visits = 0;
    while !world.table.is_due() && visits < 1_000_000 {
        world.table.visit_run(&world.memory, hash, |_| {});
        visits += 1;
    }
    assert!(world.table.is_due(), "{visits} visits");
    world.table.release(&mut world.memory);
}

/// A run at the border between the zones, and entries that make the table grow and shrink across it.
fn repeated_steps_at_the_border<B: Numbered>() {
    let mut world = World::<B>::new(1 << 16);
    (0..10_000).for_each(|number| world.operate(number, true));
    for _ in 0..6 {
        let border = world.table.rows().border();
        let mut order: Vec<u32> = (100_000..250_000).collect();
        order.sort_by_key(|&number| world.position(number).abs_diff(border));
        order[..1500].iter().for_each(|&number| world.operate(number, true));
        world.check();
        let mut lines = 0;
        for round in 0..40 {
            let (count, ()) = work::lines_of(|| {
                order[1500..1600].iter().for_each(|&number| world.operate(number, round % 2 == 0));
            });
            lines += count;
        }
        assert!(lines < 4000 * 400, "{} lines an operation", lines / 4000);
        order[..1500].iter().for_each(|&number| world.operate(number, false));
    }
    world.finish();
}

/// Nine entries for each home line, so that a run is thousands of lines long while no entry is far from home.
fn dense_run<B: Numbered>() {
    let mut world = World::<B>::new(1 << 16);
    let order = world.in_order(400_000);
    // An exact share of the positions for each line that the table will have in the end.
    let entries = 40_000 / B::SLOTS * B::SLOTS;
    let width = u32::MAX / world.lines_at(entries);
    let mut homes = BTreeMap::<u32, usize>::new();
    let chosen: Vec<u32> = order
        .iter()
        .copied()
        .filter(|&number| {
            let home = homes.entry(world.position(number) / width).or_default();
            *home += 1;
            *home <= B::SLOTS + 1
        })
        .take(entries)
        .collect();
    chosen.iter().for_each(|&number| world.operate(number, true));
    world.check();
    // The first entries of the run are removed, so that all entries behind them could be pulled back.
    chosen.iter().for_each(|&number| world.operate(number, false));
    assert_eq!(world.refused, 0);
    world.finish();
}

fn renewal_at_the_ceiling<B: Numbered>() {
    let mut world = World::<B>::new(300);
    let mut number = 0;
    while world.memory.has_room_for(Purpose::Growing) {
        world.operate(number, true);
        number += 1;
    }
    for round in 0..4 {
        if world.table.former().is_none() {
            world.table.renew(world.key.seed(round, 7));
        }
        churn(&mut world, round, number, 6000);
    }
    world.finish();
}

fn renewal_amid_changes<B: Numbered>() {
    let mut world = World::<B>::new(1 << 14);
    for round in 0..12 {
        if world.table.former().is_none() {
            world.table.renew(world.key.seed(round, 7));
        }
        let numbers = [300, 4000, 20_000][usize::try_from(round).unwrap() % 3];
        churn(&mut world, round, numbers, 5000);
    }
    assert_eq!((world.renewals, world.refused), (0, 0));
    world.finish();
}

impl<B: Numbered> World<B> {
    /// Returns the number of lines of a table with this number of entries.
    fn lines_at(&self, entries: usize) -> u32 {
        Rows::<B>::lines_for(u32::try_from(entries).unwrap())
    }
}

/// Grows and shrinks over many sizes: random entries make no table due, even if its cost is never reset.
fn random_entries<B: Numbered>() {
    let mut world = World::<B>::new(1 << 16);
    (0..150_000).for_each(|number| world.operate(number, true));
    (0..150_000).for_each(|number| world.operate(number, false));
    assert_eq!((world.renewals, world.refused), (0, 0));
    world.finish();
}
