//! The time of a takedown, and the cost of reading a long list again, on a running tracker.
//!
//! `cargo xtask bench takedown [--json] [--filter TEXT]`; without `--bench` (as under `cargo test`) each case runs once, small
//! and without load, so that the tests cover it.
//!
//! **takedown**: clients of every protocol announce one torrent without a pause, while `shoal-lab load` puts load on the
//! tracker (`--scale N` for N times as much). Then `shoal access add --deny` runs. The figures are the milliseconds from its
//! start, and from its end, until a client received the last reply or offer of the torrent.
//!
//! **reload**: `shoal-lab load udp` asks at a fixed rate (open loop), by turns without and with a list of ten million torrents
//! that is replaced all the while. The figures are the lost requests and the latencies of both, and the time of a reload.
//!
//! The tracker runs on processor 0 of two.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says where, and that is enough")]

mod clients;
#[path = "../support/figures.rs"]
mod figures;
mod lab;
#[path = "../support/tracker.rs"]
mod tracker;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use self::clients::Probe;
use self::figures::Figures;
use self::lab::{Lab, Measured, deny_torrent, wait_for_entries};
use self::tracker::{Tracker, now_ms};

/// Prints the median and the worst of some values.
fn print_all(figures: &Figures, name: &str, mut values: Vec<f64>, unit: &str) {
    values.sort_by(f64::total_cmp);
    let Some(worst) = values.last() else { return };
    figures.print(&format!("{name}/median"), values[values.len() / 2], unit);
    figures.print(&format!("{name}/worst"), *worst, unit);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let after = |name: &str| {
        arguments.iter().position(|argument| argument == name).map(|at| arguments[at + 1].clone())
    };
    let is_chosen = |name: &str| after("--filter").is_none_or(|text| name.contains(&text));
    let lab = after("--lab").map(|path| Lab { program: path.into() });
    let figures = Figures { json: has("--json") };
    if is_chosen("takedown") {
        let rounds = if has("--bench") { 20 } else { 1 };
        let scale = after("--scale").and_then(|scale| scale.parse().ok()).unwrap_or(1);
        takedown(&figures, lab.as_ref(), rounds, scale);
    }
    if is_chosen("reload") {
        let torrents = if has("--bench") { 10_000_000 } else { 20_000 };
        reload(&figures, lab.as_ref(), torrents, after("--rate").and_then(|rate| rate.parse().ok()));
    }
}

/// Number of measurements without and with reloads.
const RELOAD_ROUNDS: usize = 5;

/// Denies a torrent `rounds` times while clients announce it.
fn takedown(figures: &Figures, lab: Option<&Lab>, rounds: usize, scale: u32) {
    let directory = tempfile::tempdir().unwrap();
    let deny = directory.path().join("deny");
    fs::write(&deny, "").unwrap();
    let tracker = Tracker::start(directory.path(), &[("access.torrents_deny", &format!("[{deny:?}]"))]);
    let loads: Vec<_> = lab.iter().flat_map(|lab| lab.load_every_protocol(&tracker, scale)).collect();
    let mut times: Vec<(&str, Vec<f64>, Vec<f64>)> =
        Probe::NAMES.map(|name| (name, Vec::new(), Vec::new())).into();
    for _ in 0..rounds {
        let info_hash: [u8; 20] = core::array::from_fn(|_| fastrand::u8(..));
        let probes = Probe::start_all(&tracker, info_hash);
        probes.iter().for_each(Probe::wait_until_served);
        let begin_ms = now_ms();
        deny_torrent(directory.path(), &info_hash);
        let end_ms = now_ms();
        for ((_, since_begin, since_end), probe) in times.iter_mut().zip(probes) {
            let last_ms = probe.last_served_ms();
            since_begin.push(last_ms - begin_ms);
            since_end.push((last_ms - end_ms).max(0.0));
        }
    }
    drop(loads);
    for (name, since_begin, since_end) in times {
        print_all(figures, &format!("takedown/{name}/from-the-start"), since_begin, "ms");
        print_all(figures, &format!("takedown/{name}/from-the-end"), since_end, "ms");
    }
}

/// Compares the replies without and with reloads of a list of this number of torrents, in turn. The tracker and what it reads
/// have processor 0, the load has processor 1.
fn reload(figures: &Figures, lab: Option<&Lab>, torrents: usize, rate: Option<u32>) {
    let directory = tempfile::tempdir().unwrap();
    let mut list = Alternating::new(directory.path(), torrents);
    let deny = format!("[{:?}]", list.path);
    let tracker = Tracker::start(directory.path(), &[("access.torrents_deny", &deny)]);
    wait_for_entries(&tracker, torrents);
    let Some(lab) = lab else {
        print_all(figures, "reload/time", vec![list.change(&tracker)], "s");
        return;
    };
    let (mut seconds, mut without, mut with) = (Vec::new(), Vec::new(), Vec::new());
    // The first one fills the tracker.
    lab.measure_udp(&tracker, rate);
    for _ in 0..RELOAD_ROUNDS {
        without.push(lab.measure_udp(&tracker, rate));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    seconds.push(list.change(&tracker));
                }
            });
            with.push(lab.measure_udp(&tracker, rate));
            is_over.store(true, Ordering::Relaxed);
        });
    }
    print_all(figures, "reload/time", seconds, "s");
    let ratios = without.iter().zip(&with).map(|(without, with)| with.p99_us / without.p99_us).collect();
    for (name, measured) in [("without", without), ("with", with)] {
        let all = |read: fn(&Measured) -> f64| measured.iter().map(read).collect();
        print_all(figures, &format!("reload/{name}/responses"), all(|run| run.responses_per_s), "per s");
        print_all(figures, &format!("reload/{name}/lost"), all(|run| run.lost), "requests");
        print_all(figures, &format!("reload/{name}/p50"), all(|run| run.p50_us), "us");
        print_all(figures, &format!("reload/{name}/p99"), all(|run| run.p99_us), "us");
    }
    print_all(figures, "reload/p99-ratio", ratios, "x");
}

/// A list that changes between two contents, which are written beforehand.
struct Alternating {
    path: PathBuf,
    contents: [PathBuf; 2],
    /// The number of entries of each content, which tells the one that applies.
    entries: [usize; 2],
    current: usize,
}

impl Alternating {
    fn new(directory: &Path, torrents: usize) -> Self {
        let (path, entries) = (directory.join("deny"), [torrents, torrents + 1]);
        let contents = [0, 1].map(|version| directory.join(format!("content-{version}")));
        for (version, content) in contents.iter().enumerate() {
            write_list(content, entries[version], version);
        }
        fs::hard_link(&contents[0], &path).unwrap();
        Self { path, contents, entries, current: 0 }
    }

    /// Replaces the list, and returns the seconds until the other one applies.
    fn change(&mut self, tracker: &Tracker) -> f64 {
        self.current = 1 - self.current;
        let new = self.path.with_extension("new");
        fs::hard_link(&self.contents[self.current], &new).unwrap();
        let begin_ms = now_ms();
        fs::rename(&new, &self.path).unwrap();
        wait_for_entries(tracker, self.entries[self.current]);
        (now_ms() - begin_ms) / 1000.0
    }
}

/// Writes a list of so many torrents, of which one depends on the `version`.
fn write_list(path: &Path, torrents: usize, version: usize) {
    let mut file = std::io::BufWriter::new(fs::File::create(path).unwrap());
    writeln!(file, "{:040x}", u128::MAX - version as u128).unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 1..torrents {
        writeln!(file, "{:032x}{:08x}", rng.u128(..), rng.u32(..)).unwrap();
    }
    file.flush().unwrap();
}
