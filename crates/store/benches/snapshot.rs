//! The cost of a snapshot of the store: the export of ten million torrents with twenty million peers, and their return into
//! an empty store by one and two threads. And the cost of a hand-over: the image of the store, and a second store that
//! continues with it in the same memory.
//!
//! `cargo bench -p shoal-store --bench snapshot -- [--json]`; without `--bench` (as under `cargo test`) everything runs once
//! at a tiny size, so that the tests cover it. CPU time is that of all threads.
#![forbid(unsafe_code)]

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::time::{ClockId, clock_gettime};
use shoal_base::{Action, InfoHash, PeerV4};
use shoal_store::{Ages, Announce, Export, MemoryFile, Settings, Store, SwarmPart, SwarmSet};

/// Number of shards of a tracker with one or two workers.
const SHARDS: usize = 8;

const TIMEOUT_S: u32 = 2700;
const NOW_S: u32 = 10_000;

/// Swarms that are restored in one call.
const BATCH: usize = 1024;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let (torrents, json) = (if flag("--bench") { 10_000_000 } else { 20_000 }, flag("--json"));
    let print = |name: &str, value: u64, unit: &str| {
        if json {
            println!(r#"{{"name":"snapshot/{name}","value":{value},"unit":"{unit}"}}"#);
        } else {
            println!("snapshot/{name:<32} {value:>12} {unit}");
        }
    };
    let keys = [[1, 2, 3, 4], [5, 6, 7, 8]];
    let from = filled(torrents, keys[0]);
    print("peers", peers(&from), "");
    print("store", from.totals()[0].bytes, "bytes");
    let (mut export_ns, mut longest_ns) = (0, 0);
    hand_over(&from, keys[0], print);
    let mut parts = Parts::default();
    let mut export = Export::default();
    while export.set().is_some() {
        let begin_ns = cpu_ns();
        export.next(&from, NOW_S, |part| parts.push(part));
        let took_ns = cpu_ns() - begin_ns;
        export_ns += took_ns;
        longest_ns = longest_ns.max(took_ns);
    }
    print("export", export_ns / 1_000_000, "ms");
    print("export/longest-call", longest_ns / 1000, "us");
    print("export/size", (parts.bytes.len() + parts.heads.len() * 26) as u64, "bytes");
    let before = peers(&from);
    drop(from);
    for (name, key) in [("same-key", keys[0]), ("other-key", keys[1])] {
        for threads in [1, 2] {
            let to = store(key);
            let begin_ns = cpu_ns();
            let begin = clock_gettime(ClockId::Monotonic);
            to.reserve(SwarmSet::V4, u64::from(torrents));
            let reserve_ns = cpu_ns() - begin_ns;
            restore(&to, &parts, threads);
            let end = clock_gettime(ClockId::Monotonic);
            assert_eq!(peers(&to), before);
            let wall_ms = (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1_000_000;
            print(&format!("restore/{name}/{threads}/reserve"), reserve_ns / 1_000_000, "ms");
            print(&format!("restore/{name}/{threads}"), (cpu_ns() - begin_ns) / 1_000_000, "ms");
            print(&format!("restore/{name}/{threads}/wall"), u64::try_from(wall_ms).unwrap_or(0), "ms");
            print(&format!("restore/{name}/{threads}/store"), to.totals()[0].bytes, "bytes");
        }
    }
}

/// Measures the image of a store in a memory file, and a store that continues with it. In the meantime no request is answered.
fn hand_over(from: &Store, hash_key: [u64; 4], print: impl Fn(&str, u64, &str)) {
    let begin_ns = wall_ns();
    let Some((file, image)) = from.freeze(|file, image| (copy_of(file), image.to_vec())) else { return };
    print("hand-over/image", (wall_ns() - begin_ns) / 1000, "us");
    print("hand-over/image/size", image.len() as u64, "bytes");
    let mut to = Store::in_file(&settings(hash_key), SHARDS, file).expect("the file can be mapped");
    let begin_ns = wall_ns();
    to.resume(&image).expect("the settings are the same");
    print("hand-over/resume", (wall_ns() - begin_ns) / 1000, "us");
    assert_eq!(peers(&to), peers(from));
    // Its pages are those of the other store.
    std::mem::forget(to);
}

fn copy_of(file: &MemoryFile) -> MemoryFile {
    file.as_fd().try_clone_to_owned().expect("there are descriptors").into()
}

fn wall_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

/// Returns the CPU time that the process has used.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

fn peers(store: &Store) -> u64 {
    store.totals().iter().map(|totals| totals.seeders + totals.leechers).sum()
}

fn settings(hash_key: [u64; 4]) -> Settings {
    Settings { peers_per_source_max: 64, swarm_share_max: 50, ..Settings::new(4 << 30, TIMEOUT_S, hash_key) }
}

/// Creates an empty store in a memory file, as a tracker does, or in private memory if the kernel cannot.
fn store(hash_key: [u64; 4]) -> Store {
    let settings = settings(hash_key);
    let store = match MemoryFile::create() {
        Ok(file) => Store::in_file(&settings, SHARDS, file),
        Err(_) => Store::with_shards(&settings, SHARDS),
    };
    store.expect("the kernel reserves address space")
}

/// Creates a store of torrents with one to three peers each, and a few with many.
fn filled(torrents: u32, hash_key: [u64; 4]) -> Store {
    let store = store(hash_key);
    let mut rng = fastrand::Rng::with_seed(1);
    for torrent in 0..torrents {
        let mut info_hash = InfoHash([0; 20]);
        fastrand::Rng::with_seed(torrent.into()).fill(&mut info_hash.0);
        let place = store.v4.locate(&info_hash);
        let count = if torrent % 100_000 == 99 { 10_000 } else { 1 + torrent % 3 };
        for _ in 0..count {
            let mut peer = PeerV4([0; 6]);
            rng.fill(&mut peer.0);
            let action = if rng.bool() { Action::Seed } else { Action::Leech };
            let announce = Announce { peer, action, peers_wanted: 0 };
            // A peer that is refused is not exported either.
            let _ = store.v4.announce(&place, &announce, NOW_S, &mut rng, &mut []);
        }
    }
    store
}

/// Parts in one buffer.
#[derive(Default)]
struct Parts {
    bytes: Vec<u8>,
    heads: Vec<Head>,
}

struct Head {
    id: InfoHash,
    completed: u32,
    age_s: u32,
    seeders: usize,
    count: usize,
    start: usize,
}

impl Parts {
    fn push(&mut self, part: &SwarmPart<'_>) {
        let SwarmPart { id, completed, age_s, seeders, peers, ages } = *part;
        let start = self.bytes.len();
        self.heads.push(Head { id, completed, age_s, seeders, count: ages.len(), start });
        self.bytes.extend_from_slice(peers);
        self.bytes.extend_from_slice(ages);
    }

    fn part(&self, head: &Head) -> SwarmPart<'_> {
        let middle = head.start + head.count * size_of::<PeerV4>();
        SwarmPart {
            id: head.id,
            completed: head.completed,
            age_s: head.age_s,
            seeders: head.seeders,
            peers: &self.bytes[head.start..middle],
            ages: &self.bytes[middle..middle + head.count],
        }
    }
}

fn restore(to: &Store, parts: &Parts, threads: usize) {
    let (next, ages) = (AtomicUsize::new(0), Ages::new(TIMEOUT_S, TIMEOUT_S, 10));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let batch = parts.heads.chunks(BATCH).nth(next.fetch_add(1, Ordering::Relaxed));
                    let Some(batch) = batch else { return };
                    let batch: Vec<_> = batch.iter().map(|head| parts.part(head)).collect();
                    to.restore(SwarmSet::V4, &batch, &ages, NOW_S);
                }
            });
        }
    });
}
