//! The memory that a process holds: resident set and allocations, with an empty store and after it is filled.
//!
//! Each size runs in a process of its own. `memory/v4/swarms/worst` measures every size from 100,000 up, in steps of 1
//! %.

use shoal_store::Store;
use shoal_types::{Action, InfoHash, PeerV4, PeerV6};

use crate::data::{self, Random};
use crate::report::{Case, Figure};

/// Smallest size that is measured.
const SMALLEST: usize = 100_000;

const BATCH: usize = 64;

/// The content with which a store is filled.
#[derive(Clone, Copy)]
enum Fill {
    /// Many swarms of one seeder.
    Swarms,
    /// One swarm of many peers, half of them seeders.
    Peers,
}

impl Fill {
    fn name(self) -> &'static str {
        match self {
            Self::Swarms => "swarms",
            Self::Peers => "peers",
        }
    }
}

pub(crate) fn cases(tiny: bool) -> Vec<Case> {
    const M: usize = 1_000_000;
    let swarms = if tiny { vec![2000] } else { vec![M / 10, M / 2, M, 2 * M, 3 * M, 5 * M, 7 * M, 10 * M] };
    let peers =
        if tiny { vec![4000] } else { vec![M / 10, M / 2, M, 2 * M, 5 * M, 10 * M, 20 * M, 35 * M, 50 * M] };
    let peers_v6: Vec<_> = peers.iter().copied().filter(|&size| size <= 20 * M).collect();
    let mut cases = Vec::new();
    add::<PeerV4>(&mut cases, Fill::Swarms, &swarms);
    add::<PeerV6>(&mut cases, Fill::Swarms, &swarms);
    add::<PeerV4>(&mut cases, Fill::Peers, &peers);
    add::<PeerV6>(&mut cases, Fill::Peers, &peers_v6);
    cases
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
    let (store, before, heap_before) = ready::<P>(fill);
    let elapsed = data::with_keeper(&store, || {
        let start = data::thread_time();
        fill_up::<P>(&store, fill, size, |_| {});
        data::thread_time() - start
    });
    let resident = resident_bytes() - before;
    // Pages of the arena, and the heap in addition to them.
    let allocated = P::swarms(&store).totals().bytes as f64 + heap_bytes() - heap_before;
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
    fill_up::<P>(&store, fill, largest, |size| {
        if size < next {
            return;
        }
        next = size + size / 100;
        let each = (resident_bytes() - before) / size as f64;
        if each > worst {
            (worst, worst_at) = (each, size);
        }
    });
    vec![
        Figure::new(name, worst, "bytes resident each"),
        Figure::new(format!("{name}/at"), worst_at as f64, "entries"),
    ]
}

/// Returns an empty store, and the memory of the process with it. A fill of another store first loads code, libraries
/// and the keeper's stack, so that any further memory is due to the entries, as in a tracker that has started but has
/// received no announce.
fn ready<P: Random>(fill: Fill) -> (Store, f64, f64) {
    let other = data::store();
    data::with_keeper(&other, || fill_up::<P>(&other, fill, 1000, |_| {}));
    let store = data::store();
    (store, resident_bytes(), heap_bytes())
}

fn fill_up<P: Random>(store: &Store, fill: Fill, size: usize, mut each_batch: impl FnMut(usize)) {
    let mut rng = fastrand::Rng::with_seed(7);
    let (swarms, one) = (P::swarms(store), InfoHash([0x11; 20]));
    let mut batch = Vec::with_capacity(BATCH);
    for number in 0..size {
        let (info_hash, action) = match fill {
            Fill::Swarms => (data::info_hash(&mut rng), Action::Seed),
            Fill::Peers if number % 2 == 0 => (one, Action::Seed),
            Fill::Peers => (one, Action::Leech),
        };
        batch.push((info_hash, P::random(&mut rng), action));
        if batch.len() == BATCH || number + 1 == size {
            data::put_batch(swarms, &batch, &mut rng);
            batch.clear();
            each_batch(number + 1);
        }
    }
    let totals = swarms.totals();
    let expected = match fill {
        Fill::Swarms => totals.swarms,
        Fill::Peers => totals.seeders + totals.leechers,
    };
    // Two random peers out of 2^48 may coincide.
    assert!(expected >= (size - size / 1000) as u64, "everything is in");
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
