//! Micro-benchmarks of the operator's lists. Of torrents: the time to read a list of ten million, its memory, and the time
//! of a look-up, alone and in batches. Of networks: the time to build a table of 100,000, and that of a look-up; and the time to read a table of owners and to
//! build the table of the million networks in it that rules name, with its memory.
//!
//! `cargo bench -p shoal-access --bench lists -- [--json]`; without `--bench` (as under `cargo test`) every case runs once
//! at a tiny size, so that the tests cover it.
//!
//! Times are CPU time of the thread, so that other processes do not count.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use shoal_access::HashKey;
use shoal_access::budget::Budget;
use shoal_access::networks::{Network, NetworkTable, read_owners};
use shoal_access::rules::NamedNetworks;
use shoal_access::torrents::{ListReader, TorrentLists, TorrentTable};
use shoal_base::InfoHash;
use shoal_store::prefetch;

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
    let (torrents, networks, look_ups) =
        if has("--bench") { (10_000_000, 100_000, 4_000_000) } else { (5000, 500, 6400) };
    let print = |name: &str, value: f64, unit: &str| {
        if has("--json") {
            println!("{{\"name\":\"lists/{name}\",\"value\":{value:.2},\"unit\":\"{unit}\"}}");
        } else {
            println!("lists/{name:<26} {value:>9.2} {unit}");
        }
    };
    let mut rng = fastrand::Rng::with_seed(7);
    let hashes: Vec<InfoHash> =
        (0..torrents).map(|_| InfoHash(core::array::from_fn(|_| rng.u8(..)))).collect();
    let before = resident_bytes();
    let (table, seconds) = read(&hashes);
    let resident = resident_bytes().saturating_sub(before);
    print("read", seconds, "s");
    print("memory/accounted", table.bytes() as f64 / table.len() as f64, "bytes a torrent");
    print("memory/resident", resident as f64 / table.len() as f64, "bytes a torrent");
    let lists = TorrentLists::new(KEY, Some(vec![Arc::new(table)]), Vec::new());
    let listed: Vec<InfoHash> = (0..look_ups).map(|_| hashes[rng.usize(..hashes.len())]).collect();
    let others: Vec<InfoHash> =
        (0..look_ups).map(|_| InfoHash(core::array::from_fn(|_| rng.u8(..)))).collect();
    for (name, asked) in [("listed", &listed), ("other", &others)] {
        print(&format!("look-up/{name}/alone"), look_up(&lists, asked, 1), "ns");
        print(&format!("look-up/{name}/batch"), look_up(&lists, asked, BATCH), "ns");
    }
    bench_networks(networks, look_ups, &mut rng, print);
    bench_owners(10 * networks, print);
}

/// Measures a table of owners, a third of it of IPv6, in which rules name every network.
fn bench_owners(networks: usize, print: impl Fn(&str, f64, &str)) {
    let mut table = String::new();
    for number in 0..networks {
        // Adjacent networks have different owners, so that each of them counts.
        let number = u32::try_from(number).expect("it is less than four million");
        let system = 64512 + number % 2;
        if number.is_multiple_of(3) {
            let first = 0x2001 << 112 | u128::from(number) << 80;
            let [first, last] = [first, first | u128::MAX >> 48].map(Ipv6Addr::from_bits);
            table.push_str(&format!("{first}\t{last}\t{system}\tZZ\tSome Company\n"));
        } else {
            let [first, last] = [number << 8, number << 8 | 0xff].map(Ipv4Addr::from_bits);
            table.push_str(&format!("{first}\t{last}\t{system}\tZZ\tSome Company\n"));
        }
    }
    let rules = ["as 64512 drop", "as 64513 refuse"].map(|rule| rule.parse().expect("it is a rule"));
    let named = NamedNetworks::of(&rules);
    let begin = cpu_ns();
    let owners = read_owners(&mut table.as_bytes(), u64::MAX, &named, &Budget::default());
    let owners = owners.expect("it is a table").networks;
    let none = None::<core::iter::Empty<Network>>;
    let table = NetworkTable::with_rules(none, core::iter::empty(), owners.ruled());
    print("owners/load", (cpu_ns() - begin) as f64 / 1e9, "s");
    assert_eq!(owners.len(), networks, "rules name every network");
    print("owners/memory", table.memory_bytes() as f64 / networks as f64, "bytes a network");
}

/// Measures a table of denied networks of both families.
fn bench_networks(
    networks: usize,
    look_ups: usize,
    rng: &mut fastrand::Rng,
    print: impl Fn(&str, f64, &str),
) {
    let v4 = |rng: &mut fastrand::Rng| IpAddr::from(Ipv4Addr::from_bits(rng.u32(..)));
    // As much of the address space as is in use.
    let v6 =
        |rng: &mut fastrand::Rng| IpAddr::from(Ipv6Addr::from_bits(rng.u128(0x2001 << 112..0x2c10 << 112)));
    let denied: Vec<Network> = (0..networks)
        .filter_map(|number| match number % 3 {
            0 => Network::new(v6(rng), rng.u8(29..=64)),
            _ => Network::new(v4(rng), rng.u8(16..=32)),
        })
        .collect();
    let begin = cpu_ns();
    let table = NetworkTable::new(None, &denied);
    print("networks/build", (cpu_ns() - begin) as f64 / 1e9, "s");
    let draw = |address: &dyn Fn(&mut fastrand::Rng) -> IpAddr, rng: &mut fastrand::Rng| -> Vec<IpAddr> {
        (0..look_ups).map(|_| address(rng)).collect()
    };
    let in_denied = |rng: &mut fastrand::Rng| denied[rng.usize(..denied.len())].first();
    for (name, asked) in [("v4", draw(&v4, rng)), ("v6", draw(&v6, rng)), ("denied", draw(&in_denied, rng))] {
        let begin = cpu_ns();
        let served = asked.iter().filter(|ip| table.serves(**ip)).count();
        let ns = cpu_ns() - begin;
        assert!(name != "denied" || served == 0, "the first address of a denied network is not served");
        print(&format!("networks/look-up/{name}"), ns as f64 / asked.len() as f64, "ns");
    }
    print("networks/memory", table.memory_bytes() as f64 / networks as f64, "bytes a network");
}

/// Returns the resident memory of the process (proc(5), "VmRSS").
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().map_or(0, |kib: u64| kib << 10)
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
    let (table, faults) = reader.finish(&KEY).expect("the list fits");
    ns += cpu_ns() - begin;
    assert!(faults.faulty == 0 && table.len() == hashes.len(), "every line is read");
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
