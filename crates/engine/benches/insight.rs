//! The cost of what an operator watches: the feed of changes at 100,000 changed torrents a second, and the look-up of the
//! candidates for the largest of ten million swarms.
//!
//! `cargo bench -p shoal-engine --bench insight -- [--json]`; without `--bench` (as under `cargo test`) everything runs once
//! at a tiny size, so that the tests cover it.
//!
//! Times are CPU time of the thread, so that other processes do not count. Interrupts still do.
#![forbid(unsafe_code)]

use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use shoal_base::{Action, Counts, InfoHash, PeerV4};
use shoal_engine::insight::{ChangeLog, Changes};
use shoal_store::{Announce, Settings, Store};

/// Number of shards of a tracker with one or two workers.
const SHARDS: usize = 8;

/// Changed torrents in a second, and rounds of the thread that collects them.
const CHANGES_PER_S: u32 = 100_000;
const ROUNDS_PER_S: u32 = 20;

/// Changes that the feed remembers by default.
const CHANGES_MAX: usize = 262_144;

/// Candidates for the largest swarms.
const CANDIDATES: u32 = 1024;

/// The extent of a run.
struct Size {
    /// Torrents of which some change.
    torrents: u32,
    seconds: u32,
    /// Torrents among which the largest are looked up.
    torrents_of_top: u32,
}

const FULL: Size = Size { torrents: 1_000_000, seconds: 20, torrents_of_top: 10_000_000 };
const TINY: Size = Size { torrents: 20_000, seconds: 1, torrents_of_top: 20_000 };

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let (size, report) = (if flag("--bench") { FULL } else { TINY }, Report { json: flag("--json") });
    feed(&size, &report);
    top(&size, &report);
}

struct Report {
    json: bool,
}

impl Report {
    fn print(&self, name: &str, value: u64, unit: &str) {
        if self.json {
            println!(r#"{{"name":"insight/{name}","value":{value},"unit":"{unit}"}}"#);
        } else {
            println!("insight/{name:<32} {value:>12} {unit}");
        }
    }
}

/// Returns the CPU time that the thread has used.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

/// Adds the CPU time of `work` to `total_ns`.
fn timed<T>(total_ns: &mut u64, work: impl FnOnce() -> T) -> T {
    let begin_ns = cpu_ns();
    let result = work();
    *total_ns += cpu_ns() - begin_ns;
    result
}

/// Creates a store of torrents with one peer each.
fn store(torrents: u32) -> Arc<Store> {
    let settings = Settings {
        peers_per_source_max: 64,
        ..Settings::new(4 << 30, 2700, [0x9e37_79b9, 0x7f4a_7c15, 0x2545_f491, 0x4f6c_dd1d])
    };
    let store = Arc::new(Store::with_shards(&settings, SHARDS).expect("there is address space"));
    (0..torrents).for_each(|torrent| announce(&store, torrent, 0, Action::Leech));
    store
}

fn info_hash(number: u32) -> InfoHash {
    let mut rng = fastrand::Rng::with_seed(number.into());
    let mut bytes = [0; 20];
    rng.fill(&mut bytes);
    InfoHash(bytes)
}

fn announce(store: &Store, torrent: u32, peer: u8, action: Action) {
    let place = store.v4.locate(&info_hash(torrent));
    let announce = Announce { peer: PeerV4([10, 0, 0, peer, 1, 1]), action, peers_wanted: 0 };
    let rng = &mut fastrand::Rng::with_seed(1);
    store.v4.announce(&place, &announce, 1000, rng, &mut []).expect("there is room");
}

/// Lets torrents change, with and without a watch, and follows them.
fn feed(size: &Size, report: &Report) {
    let store = store(size.torrents);
    let (mut unwatched_ns, mut watched_ns, mut collect_ns, mut read_ns) = (0, 0, 0, 0);
    let mut log = ChangeLog::new(CHANGES_MAX, [1, 2, 3]);
    let (mut cursor, mut spare) = (log.end(), Vec::new());
    let (mut changes, mut told) = (0, 0);
    let of_a_round = CHANGES_PER_S / ROUNDS_PER_S;
    // A torrent changes by a peer that joins in one round over all of them, and leaves in the next.
    let change = |first: u32| {
        for number in first..first + of_a_round {
            let joins = (number / size.torrents).is_multiple_of(2);
            announce(&store, number % size.torrents, 1, if joins { Action::Leech } else { Action::Stop });
        }
    };
    let mut first = 0;
    for _ in 0..size.seconds * ROUNDS_PER_S {
        // The two ways alternate, so that the drift of a machine affects both.
        timed(&mut unwatched_ns, || change(first));
        store.watch_changes();
        timed(&mut watched_ns, || change(first + of_a_round));
        first += 2 * of_a_round;
        changes += u64::from(of_a_round);
        let has_lost = timed(&mut collect_ns, || {
            store.take_changes(&mut spare, |some| some.iter().for_each(|info_hash| log.append(info_hash)))
        });
        assert!(!has_lost, "the buffers hold the changes of a round");
        store.ignore_changes();
        timed(&mut read_ns, || {
            loop {
                let Changes::Changed { info_hashes, cursor: next, has_more } = log.read(Some(cursor), 1000)
                else {
                    panic!("the reader keeps up");
                };
                cursor = next;
                told += info_hashes.len() as u64;
                for some in info_hashes.chunks(32) {
                    some.iter().for_each(|info_hash| store.prefetch_counts(info_hash));
                    let counts = some.iter().map(|info_hash| store.counts(info_hash)[0]);
                    assert!(counts.fold(Counts::default(), Counts::plus).leechers > 0);
                }
                if !has_more {
                    break;
                }
            }
        });
    }
    assert_eq!(told, changes, "every change is told once");
    report.print("announce-unwatched", unwatched_ns / changes, "ns per change");
    report.print("announce-watched", watched_ns / changes, "ns per change");
    report.print("collect", collect_ns / changes, "ns per change");
    report.print("read-and-look-up", read_ns / changes, "ns per change");
    report.print("watch-bytes", Store::watch_bytes(SHARDS) as u64, "bytes");
    report.print("log-bytes", ChangeLog::bytes(CHANGES_MAX) as u64, "bytes");
}

/// Looks up the candidates for the largest swarms, as the control plane does for a request.
fn top(size: &Size, report: &Report) {
    const ROUNDS: u32 = 20;
    let store = store(size.torrents_of_top);
    let (mut total_ns, mut longest_ns, mut overhead_ns) = (0, 0, u64::MAX);
    for round in 0..ROUNDS {
        for candidate in 0..CANDIDATES {
            let number = (round * CANDIDATES + candidate).wrapping_mul(7919) % size.torrents_of_top;
            let info_hash = info_hash(number);
            let mut ns = 0;
            timed(&mut ns, || ());
            overhead_ns = overhead_ns.min(ns);
            ns = 0;
            let counts = timed(&mut ns, || store.counts(&info_hash));
            assert_eq!(counts[0].leechers, 1);
            total_ns += ns;
            longest_ns = longest_ns.max(ns);
        }
    }
    let look_ups = u64::from(ROUNDS * CANDIDATES);
    report.print("look-up", (total_ns / look_ups).saturating_sub(overhead_ns), "ns");
    report.print("look-up-longest", longest_ns.saturating_sub(overhead_ns), "ns");
    report.print(
        "top",
        (total_ns / u64::from(ROUNDS)).saturating_sub(overhead_ns * u64::from(CANDIDATES)) / 1000,
        "us per request",
    );
}
