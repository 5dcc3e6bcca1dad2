//! An invented comparison. Its figures resemble real ones, so that the plots can be judged.

use shoal_compare::result::{Cell, Comparison, CpuTime, Machine, Round, SCHEMA_VERSION, Tracker, Usage};
use shoal_load::{Bottleneck, Kinds, LatencySummary, Percentile, Report, WrongReplies};

/// Name, title, and the figures on one core: responses a second, µs in user mode, µs in the kernel, MB, median µs.
type Line = (&'static str, &'static str, f64, f64, f64, u64, f64);

const LINES: [Line; 9] = [
    ("echo-mmsg", "Ceiling (mmsg)", 262_000.0, 0.12, 3.6, 4, 61.0),
    ("echo-uring", "Ceiling (io_uring)", 255_000.0, 0.15, 3.7, 6, 64.0),
    ("shoal-mmsg", "Shoal (mmsg)", 248_000.0, 0.35, 3.6, 44, 66.0),
    ("shoal-uring", "Shoal (io_uring)", 241_000.0, 0.33, 3.7, 46, 69.0),
    ("aquatic_udp-io_uring", "aquatic_udp (io_uring)", 202_000.0, 0.82, 4.2, 182, 84.0),
    ("aquatic_udp-mio", "aquatic_udp (mio)", 171_000.0, 1.05, 4.8, 158, 95.0),
    ("opentracker", "opentracker", 198_000.0, 1.17, 3.8, 92, 88.0),
    ("chihaya", "chihaya", 56_000.0, 9.1, 8.6, 199, 240.0),
    ("torrust-tracker", "torrust-tracker", 91_000.0, 5.2, 5.5, 729, 150.0),
];

/// Creates a comparison of eight trackers and two ceilings: mochi is absent, torrust-tracker fails in all rounds,
/// chihaya fails in one round, aquatic_udp (mio) is faster than the generator, and the hypervisor takes time away
/// once.
pub(crate) fn comparison(core_counts: &[usize]) -> Comparison {
    let mut trackers: Vec<Tracker> = LINES.iter().map(|line| tracker(line.0, line.1)).collect();
    trackers.insert(
        8,
        Tracker { absent: Some("no program `mochi` on PATH".into()), ..tracker("mochi", "mochi") },
    );
    Comparison {
        schema_version: SCHEMA_VERSION,
        title: "UDP trackers, the published mix".into(),
        began: "2026-03-01T12:00:00+00:00".into(),
        command: ["shoal-lab", "compare", "--rounds", "5", "--title", "a mix"].map(String::from).to_vec(),
        commit: "0123abcd".into(),
        machine: Machine {
            processor: "Example 9000".into(),
            processors: 8,
            memory_bytes: 32 << 30,
            kernel: "Linux 6.18.0".into(),
            virtualised: Some("KVM".into()),
        },
        load: vec![
            ("mix".into(), "50 connects : 50 announces : 1 scrape".into()),
            ("torrents".into(), "1,000,000".into()),
        ],
        cpu_mode: "subsequent".into(),
        rounds: 5,
        trackers,
        cells: core_counts.iter().flat_map(|cores| LINES.iter().map(|line| cell(line, *cores))).collect(),
        partial: true,
    }
}

pub(crate) fn cell_of<'a>(comparison: &'a mut Comparison, tracker: &str, cores: usize) -> &'a mut Cell {
    comparison.cells.iter_mut().find(|cell| cell.tracker == tracker && cell.cores == cores).unwrap()
}

pub(crate) fn empty_round(round: usize) -> Round {
    Round { round, began: "2026-03-01T12:00:01+00:00".into(), ..Round::default() }
}

/// Creates a load report of ten seconds with these numbers of good replies.
pub(crate) fn report(responses: Kinds) -> Report {
    Report {
        schema_version: shoal_load::SCHEMA_VERSION,
        elapsed_s: 10.0,
        requests: responses,
        responses,
        responses_per_s: f64::from(u32::try_from(responses.total()).unwrap()) / 10.0,
        lost: 0,
        unsent: 0,
        receive_drops: 0,
        repeated: 0,
        late: 0,
        errors: 0,
        first_error: None,
        wrong: WrongReplies::default(),
        unregistered: 0,
        own_address_tolerated: 0,
        send_failures: 0,
        peers_per_announce: 28.5,
        announce_reply_bytes: 191.0,
        connections: None,
        relays: None,
        latency: LatencySummary::default(),
        latency_curve: vec![],
        send_delay: None,
        generator_cpu_s: 7.0,
        generator_busy: 0.7,
        verdict: Bottleneck::Tracker,
        limit: None,
        ended_early: false,
        failure: None,
    }
}

/// Creates the usage of a tracker on processor 0 with the load on processor 4.
pub(crate) fn usage(user_s: f64, system_s: f64, exact_s: Option<f64>) -> Usage {
    // The tracker used all of the time of one processor.
    let elapsed_s = exact_s.unwrap_or(user_s + system_s);
    Usage {
        cpu: CpuTime { elapsed_s, user_s, system_s, exact_s, sampled_user_s: None, user_error_s: None },
        processors: vec![(0, 1.0), (4, 0.7)],
        steal: 0.01,
        at_work: None,
        ready_share: None,
        spinners: 0,
        receive_s: None,
    }
}

fn tracker(name: &str, title: &str) -> Tracker {
    Tracker {
        name: name.into(),
        title: title.into(),
        version: Some("1.2.3".into()),
        is_ceiling: name.starts_with("echo"),
        absent: None,
        configuration: format!("# configuration of {name}\nworkers = 1\n"),
        notes: vec![],
    }
}

fn cell(line: &Line, cores: usize) -> Cell {
    let rounds = (1..=5).map(|number| round(line, cores, number)).collect();
    Cell {
        tracker: line.0.into(),
        cores,
        tracker_cpus: (0..cores).collect(),
        load_cpus: (4..8).collect(),
        rounds,
    }
}

fn round(line: &Line, cores: usize, number: usize) -> Round {
    let &(name, _, rate, user_us, system_us, megabytes, p50_us) = line;
    // A deviation of a few per cent, with a different sequence for each tracker.
    let deviation = 1.0 + 0.03 * f64::from(i32::try_from((number * 7 + name.len() * 3) % 5).unwrap() - 2);
    let cores_f64 = f64::from(u32::try_from(cores).unwrap());
    let scaling = if name == "chihaya" { cores_f64.min(2.2) } else { cores_f64.powf(0.96) };
    let each = whole(rate * scaling * deviation * 10.0 / 101.0);
    let good = Kinds { connect: each * 50, announce: each * 50, scrape: each };
    let replies = f64::from(u32::try_from(good.total()).unwrap());
    let mut load = report(good);
    load.lost = good.total() / 400;
    load.requests.announce += load.lost;
    if name == "aquatic_udp-mio" && cores == 4 {
        load.verdict = Bottleneck::GeneratorBound;
    }
    let mut used = usage(replies * user_us * deviation / 1e6, replies * system_us / deviation / 1e6, None);
    used.processors = (0..cores).map(|cpu| (cpu, 0.99)).chain((4..8).map(|cpu| (cpu, 0.6))).collect();
    if name == "opentracker" && number == 2 {
        used.steal = 0.17;
    }
    let fails = name == "torrust-tracker" || (name == "chihaya" && number == 3);
    Round {
        failure: fails.then(|| {
            "the tracker ended in the middle of the load: signal 11 (SIGSEGV), 3 s after the start".into()
        }),
        fill: (!name.starts_with("echo")).then(|| report(good)),
        load: Some(load),
        latency: Some(open_loop(p50_us * deviation)),
        usage: Some(used),
        resident_before_bytes: Some(3_000_000),
        resident_filled_bytes: Some(megabytes * 1_000_000 + u64::try_from(number).unwrap() * 400_000),
        ..empty_round(number)
    }
}

fn open_loop(p50_us: f64) -> Report {
    let mut report = report(Kinds { connect: 250_000, announce: 250_000, scrape: 5_000 });
    let at = |rarity: f64| p50_us * (0.55 + 0.45 * rarity.log2().powf(1.6));
    report.latency = LatencySummary {
        p50_us: at(2.0),
        p90_us: at(10.0),
        p99_us: at(100.0),
        p99_9_us: at(1000.0),
        max_us: at(500_000.0),
        mean_us: at(2.5),
    };
    let rarities = (0..=570).map(|step| 10f64.powf(f64::from(step) / 100.0));
    report.latency_curve = rarities
        .map(|rarity| Percentile { percentile: 100.0 - 100.0 / rarity, latency_us: at(rarity) })
        .chain([Percentile { percentile: 100.0, latency_us: at(500_000.0) }])
        .collect();
    report
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "invented counts are small and positive"
)]
fn whole(value: f64) -> u64 {
    value as u64
}
