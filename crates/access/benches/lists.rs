//! Micro-benchmarks of the lists of torrents: the time to read a list of ten million and its memory, and the time of a
//! look-up, alone and in batches.
//!
//! `cargo bench -p shoal-access --bench lists -- [--json]`; without `--bench` (as under `cargo test`) every case runs once
//! at a tiny size, so that the tests cover it.
//!
//! Times are CPU time of the thread, so that other processes do not count.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use shoal_access::HashKey;
use shoal_access::torrents::{ListReader, TorrentLists, TorrentTable};
use shoal_store::prefetch;
use shoal_types::InfoHash;

const KEY: HashKey = HashKey::new([0x9e37, 0x79b9, 0x7f4a, 0x7c15]);

/// Size of the pieces in which a list is read, as the tracker does.
const PIECE_BYTES: usize = 256 << 10;

/// Look-ups at a time, as many as datagrams in a batch.
const BATCH: usize = 64;

/// Returns the CPU time that the thread has used.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let (torrents, look_ups) = if has("--bench") { (10_000_000, 4_000_000) } else { (5000, 6400) };
    let print = |name: &str, value: f64, unit: &str| {
        if has("--json") {
            println!("{{\"name\":\"lists/{name}\",\"value\":{value:.2},\"unit\":\"{unit}\"}}");
        } else {
            println!("lists/{name:<24} {value:>9.2} {unit}");
        }
    };
    let mut rng = fastrand::Rng::with_seed(7);
    let hashes: Vec<InfoHash> =
        (0..torrents).map(|_| InfoHash(core::array::from_fn(|_| rng.u8(..)))).collect();
    let (table, seconds) = read(&hashes);
    print("read", seconds, "s");
    print("memory", table.bytes() as f64 / table.len() as f64, "bytes a torrent");
    let lists = TorrentLists::new(KEY, Some(vec![Arc::new(table)]), Vec::new());
    let listed: Vec<InfoHash> = (0..look_ups).map(|_| hashes[rng.usize(..hashes.len())]).collect();
    let others: Vec<InfoHash> =
        (0..look_ups).map(|_| InfoHash(core::array::from_fn(|_| rng.u8(..)))).collect();
    for (name, asked) in [("listed", &listed), ("other", &others)] {
        print(&format!("look-up/{name}/alone"), look_up(&lists, asked, 1), "ns");
        print(&format!("look-up/{name}/batch"), look_up(&lists, asked, BATCH), "ns");
    }
}

/// Reads the hashes as a list in hexadecimal. Returns the table, and the seconds that this takes without reading a file.
fn read(hashes: &[InfoHash]) -> (TorrentTable, f64) {
    let (mut reader, mut text, mut ns) = (ListReader::default(), String::new(), 0);
    for hashes in hashes.chunks(PIECE_BYTES / 41) {
        text.clear();
        for info_hash in hashes {
            text.push_str(&format!("{info_hash:?}\n"));
        }
        let begin = cpu_ns();
        reader.read(text.as_bytes());
        ns += cpu_ns() - begin;
    }
    let begin = cpu_ns();
    let (table, fault) = reader.finish(&KEY);
    ns += cpu_ns() - begin;
    assert!(fault.is_none() && table.len() == hashes.len(), "every line is read");
    (table, ns as f64 / 1e9)
}

/// Returns the time of a look-up, in batches of this size.
fn look_up(lists: &TorrentLists, asked: &[InfoHash], batch: usize) -> f64 {
    let begin = cpu_ns();
    let mut found = 0_usize;
    for asked in asked.chunks(batch) {
        if batch > 1 {
            for info_hash in asked {
                lists.bounds(lists.hash(info_hash)).for_each(prefetch);
            }
            for info_hash in asked {
                lists.entries(lists.hash(info_hash)).for_each(prefetch);
            }
        }
        found += asked.iter().filter(|info_hash| lists.check(info_hash).is_ok()).count();
    }
    black_box(found);
    (cpu_ns() - begin) as f64 / asked.len() as f64
}
