//! The memory that a process holds: resident set and allocations, with an empty store and after it is filled.
//!
//! Each size runs in a process of its own. `memory/v4/swarms/worst` measures every size from 100,000 up, in steps of 1
//! %. `memory/v4/swarm-of=N` holds about a million peers in swarms of N, and `memory/v4/middle` is the worst of these
//! between 100 and 100,000, in steps of 7 %. All swarms of such a process have one size, so no size hides behind others.

use shoal_base::{Action, PeerV4, PeerV6};
use shoal_store::Store;

use crate::data::{self, Random};
use crate::report::{self, Case, Figure};

const M: usize = 1_000_000;

/// Smallest number of entries at which `worst` measures.
const SMALLEST: usize = 100_000;

const BATCH: usize = 64;

/// Number of entries of the store that is filled before the measured one: enough to split segments, so that all code is
/// loaded.
const WARM_UP: usize = 20_000;

/// Sizes of swarms, each with a row of its own.
const SWARM_SIZES: [usize; 13] = [1, 2, 5, 20, 100, 150, 300, 500, 1000, 2500, 10_000, 50_000, M];

/// Limits of `middle`, and the percentage of each step between them.
const MIDDLE: (usize, usize) = (100, 100_000);
const MIDDLE_STEP_PERCENT: usize = 7;

/// The content with which a store is filled.
#[derive(Clone, Copy)]
enum Fill {
    /// Many swarms of one seeder.
    Swarms,
    /// One swarm of many peers, half of them seeders.
    Peers,
    /// Swarms of this many peers, half of the peers seeders.
    SwarmsOf(usize),
}

impl Fill {
    fn name(self) -> &'static str {
        match self {
            Self::Swarms => "swarms",
            Self::Peers => "peers",
            Self::SwarmsOf(_) => "swarm-of",
        }
    }

    /// Returns the entries in the order in which they arrive, each as the number of its swarm and its action. Peers of
    /// many swarms arrive in random order.
    fn entries(self, size: usize) -> Box<dyn Iterator<Item = (usize, Action)>> {
        let alternating = |number: usize| if number.is_multiple_of(2) { Action::Seed } else { Action::Leech };
        match self {
            Self::Swarms => Box::new((0..size).map(|number| (number, Action::Seed))),
            Self::Peers => Box::new((0..size).map(move |number| (0, alternating(number)))),
            Self::SwarmsOf(peers) => {
                let mut numbers: Vec<u32> = (0..u32::try_from(size).expect("a few million")).collect();
                fastrand::Rng::with_seed(6).shuffle(&mut numbers);
                let numbers = numbers.into_iter().map(|number| number as usize);
                Box::new(numbers.map(move |number| (number / peers, alternating(number))))
            }
        }
    }
}

pub(crate) fn cases(tiny: bool) -> Vec<Case> {
    let swarms = if tiny { vec![2000] } else { vec![M / 10, M / 2, M, 2 * M, 3 * M, 5 * M, 7 * M, 10 * M] };
    let peers =
        if tiny { vec![4000] } else { vec![M / 10, M / 2, M, 2 * M, 5 * M, 10 * M, 20 * M, 35 * M, 50 * M] };
    let peers_v6: Vec<_> = peers.iter().copied().filter(|&size| size <= 20 * M).collect();
    let mut cases = Vec::new();
    add::<PeerV4>(&mut cases, Fill::Swarms, &swarms);
    add::<PeerV6>(&mut cases, Fill::Swarms, &swarms);
    add::<PeerV4>(&mut cases, Fill::Peers, &peers);
    add::<PeerV6>(&mut cases, Fill::Peers, &peers_v6);
    add_swarm_sizes::<PeerV4>(&mut cases, tiny);
    add_swarm_sizes::<PeerV6>(&mut cases, tiny);
    cases
}

/// Adds a case for each size of swarms, and the worst of the middle sizes.
fn add_swarm_sizes<P: Random + 'static>(cases: &mut Vec<Case>, tiny: bool) {
    let (in_all, (first, last)) = if tiny { (2000, (100, 150)) } else { (M, MIDDLE) };
    let step =
        |size: &usize| Some((size + size * MIDDLE_STEP_PERCENT / 100).min(last)).filter(|next| next > size);
    let middle: Vec<usize> = std::iter::successors(Some(first), step).collect();
    let name = |size: usize| format!("memory/{}/swarm-of={size}", P::NAME);
    let case = |size: usize| {
        let peers = (in_all / size).max(1) * size;
        Case::new(name(size), move || measure::<P>(&name(size), Fill::SwarmsOf(size), peers)).in_own_process()
    };
    let sizes = SWARM_SIZES.into_iter().filter(|size| *size <= in_all);
    cases.extend(sizes.clone().map(case));
    let unlisted = middle.iter().copied().filter(|size| !sizes.clone().any(|listed| listed == *size));
    cases.extend(unlisted.map(|size| case(size).unlisted()));
    let middle_name = format!("memory/{}/middle", P::NAME);
    let run = move || {
        let measured = middle.iter().map(|&size| {
            let figures = report::run_child(&name(size), tiny).expect("the process measures its size");
            (figures[0].value, size)
        });
        let (worst, worst_at) = measured.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there is a first size");
        worst_figures(&format!("memory/{}/middle", P::NAME), worst, worst_at, "peers a swarm")
    };
    cases.push(Case::new(middle_name, run).in_own_process());
}

fn add<P: Random + 'static>(cases: &mut Vec<Case>, fill: Fill, sizes: &[usize]) {
    let prefix = format!("memory/{}/{}", P::NAME, fill.name());
    for &size in sizes {
        let name = format!("{prefix}={size}");
        cases.push(Case::new(name.clone(), move || measure::<P>(&name, fill, size)).in_own_process());
    }
    let (name, largest) = (format!("{prefix}/worst"), sizes[sizes.len() - 1]);
    cases.push(Case::new(name.clone(), move || worst::<P>(&name, fill, largest)).in_own_process());
}

/// Fills a store to `size`. Returns the bytes per entry, and the time per entry to insert it.
fn measure<P: Random>(name: &str, fill: Fill, size: usize) -> Vec<Figure> {
    let mut entries = fill.entries(size);
    let (store, before, heap_before) = ready::<P>(fill);
    let elapsed = data::with_memory_thread(&store, || {
        let start = data::thread_time();
        fill_up::<P>(&store, &mut entries, |_| {});
        data::thread_time() - start
    });
    // The tracker's memory thread returns what is free within a second.
    while store.trim() {}
    crate::counting::trim();
    let resident = resident_bytes() - before;
    // Pages of the arena, and the heap in addition to them.
    let allocated = P::swarms(&store).totals().bytes as f64 + heap_bytes() - heap_before;
    // The order of the entries is part of the memory before and after.
    drop(entries);
    let each = |bytes: f64| bytes / size as f64;
    let time_name = name.replace("memory/", "fill/");
    vec![
        Figure::new(name, each(resident), "bytes resident each"),
        Figure::new(format!("{name}/allocated"), each(allocated), "bytes allocated each"),
        Figure::new(time_name, elapsed.as_secs_f64() * 1e9 / size as f64, "ns each"),
    ]
}

/// Returns the maximum number of bytes per entry at any size up to `largest`, and the size at which it occurs.
fn worst<P: Random>(name: &str, fill: Fill, largest: usize) -> Vec<Figure> {
    let (store, before, _) = ready::<P>(fill);
    let (mut next, mut worst, mut worst_at) = (SMALLEST.min(largest / 2), 0.0, 0);
    fill_up::<P>(&store, &mut fill.entries(largest), |size| {
        if size < next {
            return;
        }
        next = size + size / 100;
        let each = (resident_bytes() - before) / size as f64;
        if each > worst {
            (worst, worst_at) = (each, size);
        }
    });
    worst_figures(name, worst, worst_at, "entries")
}

fn worst_figures(name: &str, worst: f64, at: usize, unit: &str) -> Vec<Figure> {
    vec![Figure::new(name, worst, "bytes resident each"), Figure::new(format!("{name}/at"), at as f64, unit)]
}

/// Returns an empty store, and the memory of the process with it. A fill of another store first loads code, libraries
/// and the thread's stack, so that any further memory is due to the entries, as in a tracker that has started but has
/// received no announce.
fn ready<P: Random>(fill: Fill) -> (Store, f64, f64) {
    let other = data::store();
    data::with_memory_thread(&other, || fill_up::<P>(&other, &mut fill.entries(WARM_UP), |_| {}));
    // Otherwise its memory would hide a part of what the entries take.
    drop(other);
    crate::counting::trim();
    let store = data::store();
    (store, resident_bytes(), heap_bytes())
}

/// Adds entries, each the number of its swarm and its action.
fn fill_up<P: Random>(
    store: &Store,
    entries: &mut dyn Iterator<Item = (usize, Action)>,
    mut each_batch: impl FnMut(usize),
) {
    let mut rng = fastrand::Rng::with_seed(7);
    let swarms = P::swarms(store);
    let (mut batch, mut size) = (Vec::with_capacity(BATCH), 0);
    loop {
        batch.extend(entries.take(BATCH).map(|(swarm, action)| {
            let info_hash = data::info_hash(&mut fastrand::Rng::with_seed(swarm as u64));
            (info_hash, P::random(&mut rng), action)
        }));
        if batch.is_empty() {
            break;
        }
        size += batch.len();
        data::put_batch(swarms, &batch, &mut rng);
        batch.clear();
        each_batch(size);
    }
    let totals = swarms.totals();
    // Two random peers out of 2^48 may coincide.
    assert!(totals.seeders + totals.leechers >= (size - size / 1000) as u64, "everything is in");
}

/// Returns the resident set of this process as the kernel reports it (proc(5), statm).
fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("proc is mounted");
    let pages: f64 =
        text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("statm has seven numbers");
    pages * rustix::param::page_size() as f64
}

/// Returns the number of bytes that this process has allocated on the heap.
fn heap_bytes() -> f64 {
    crate::counting::LIVE_BYTES.load(std::sync::atomic::Ordering::Relaxed) as f64
}
