//! The XDP data path against trackers behind sockets, and against an echo at the same hook, over a pair of virtual Ethernet
//! interfaces whose receive work is done on the core of each side.
//!
//! `cargo xtask bench xdp [--json] [--filter TEXT] [--rounds N] [--duration TIME] [--trackers NAMES]`. It takes root, two
//! processors, and nothing else that runs on them. Trackers that are not installed take no part.

#![allow(clippy::unwrap_used, reason = "a benchmark may end by a panic")]

mod flood;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use shoal_compare::result::{Cell, Comparison, Round};

struct Case {
    name: &'static str,
    /// Options of `shoal-lab compare`.
    load: &'static [&'static str],
    /// The trackers, unless others are named.
    trackers: &'static str,
    /// The least ratio to the responses of the best tracker behind sockets.
    bar: f64,
    /// The least ratio to the responses of the echo, if it has a bar.
    echo_bar: Option<f64>,
    /// The highest ratio to the least time of the whole core of a tracker behind sockets, if it has a bar.
    core_bar: Option<f64>,
}

const CASES: [Case; 4] = [
    Case {
        name: "published",
        load: &["--preset", "published"],
        trackers: TRACKERS,
        bar: 6.0,
        echo_bar: Some(0.7),
        core_bar: Some(0.17),
    },
    Case {
        name: "announces",
        load: &["--preset", "announces"],
        trackers: TRACKERS,
        bar: 4.0,
        echo_bar: None,
        core_bar: None,
    },
    Case {
        name: "announces-10m",
        load: &["--preset", "ten-million", "--mix", "0:1:0"],
        // A fill takes minutes.
        trackers: "shoal-xdp,shoal-mmsg,shoal-uring",
        bar: 3.5,
        echo_bar: None,
        core_bar: None,
    },
    Case {
        name: "connects",
        load: &["--preset", "published", "--mix", "1:0:0", "--torrents", "1000", "--peers", "2000"],
        trackers: TRACKERS,
        bar: 20.0,
        echo_bar: None,
        core_bar: None,
    },
];

/// The most time of the tracker's core for a datagram from a denied network.
const DENIED_NS_MAX: f64 = 100.0;

const XDP: &str = "shoal-xdp";
const ECHO: &str = "echo-xdp";
const TRACKERS: &str =
    "shoal-xdp,shoal-mmsg,shoal-uring,opentracker,aquatic_udp-mio,aquatic_udp-io_uring,echo-xdp";

/// The values of all rounds that count.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

struct Measured {
    name: String,
    per_s: Spread,
    core_us: Spread,
    /// The share of time that the generator's processor was idle.
    slack: Spread,
    /// Requests without a good reply, of all rounds together.
    failed_share: f64,
}

struct Output {
    json: bool,
    has_missed: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let after = |name: &str| {
        arguments.iter().position(|argument| argument == name).map(|at| arguments[at + 1].clone())
    };
    if !has("--bench") {
        return ExitCode::SUCCESS;
    }
    let lab = after("--lab").unwrap();
    let or = |name: &str, default: &str| after(name).unwrap_or_else(|| default.to_owned());
    let (rounds, duration) = (or("--rounds", "5"), or("--duration", "5s"));
    let mut output = Output { json: has("--json"), has_missed: false };
    for case in CASES.iter().filter(|case| after("--filter").is_none_or(|text| case.name.contains(&text))) {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(&lab);
        command.args(["compare", "--net", "veth", "--json", "--latency-rate", "0"]).args(case.load);
        command.args([
            "--rounds",
            &rounds,
            "--duration",
            &duration,
            "--trackers",
            &or("--trackers", case.trackers),
        ]);
        command.arg("--output").arg(folder.path());
        let compared = command.stderr(Stdio::inherit()).output().unwrap();
        assert!(compared.status.success(), "shoal-lab compare failed: {}", compared.status);
        output.report(case, &serde_json::from_slice(&compared.stdout).unwrap());
    }
    if after("--filter").is_none_or(|text| "flood".contains(&text)) {
        output.report_floods(&flood::measure(&Path::new(&lab).with_file_name("shoal")));
    }
    if output.has_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

impl Output {
    fn report(&mut self, case: &Case, comparison: &Comparison) {
        let measured: Vec<Measured> =
            comparison.cells.iter().filter_map(|cell| self.measured(case, cell)).collect();
        for tracker in &measured {
            self.spread(case, &format!("{}/responses", tracker.name), &tracker.per_s, "/s");
            self.spread(case, &format!("{}/core", tracker.name), &tracker.core_us, "µs");
            self.spread(case, &format!("{}/generator-slack", tracker.name), &tracker.slack, "share");
            self.print(case, &format!("{}/failed", tracker.name), tracker.failed_share, "share");
        }
        let find = |name: &str| measured.iter().find(|tracker| tracker.name == name);
        let Some(xdp) = find(XDP) else {
            eprintln!("{}: {XDP} was not measured", case.name);
            self.has_missed = true;
            return;
        };
        let behind_sockets = || measured.iter().filter(|tracker| tracker.name != XDP && tracker.name != ECHO);
        let fastest = behind_sockets().map(|tracker| tracker.per_s.median).reduce(f64::max);
        let cheapest = behind_sockets().map(|tracker| tracker.core_us.median).reduce(f64::min);
        if let Some(fastest) = fastest {
            self.judge(case, "ratio", xdp.per_s.median / fastest, Some(case.bar), |value, bar| value >= bar);
        }
        if let Some(cheapest) = cheapest {
            let ratio = xdp.core_us.median / cheapest;
            self.judge(case, "core-ratio", ratio, case.core_bar, |value, bar| value <= bar);
        }
        if let Some(echo) = find(ECHO) {
            let ratio = xdp.per_s.median / echo.per_s.median;
            self.judge(case, "echo-ratio", ratio, case.echo_bar, |value, bar| value >= bar);
        }
        self.print(case, "generator-slack", xdp.slack.median, "share");
    }

    fn report_floods(&mut self, floods: &flood::Floods) {
        #[expect(clippy::cast_precision_loss, reason = "there are a few thousand")]
        let float = |count: u64| count as f64;
        self.line("xdp/flood/connects", floods.answered_per_s, "/s");
        self.line("xdp/flood/honest-announces", float(floods.honest), "");
        self.line("xdp/flood/honest-unanswered", float(floods.unanswered), "");
        for (name, dropped) in [("denied", &floods.denied), ("floor", &floods.floor)] {
            self.line(&format!("xdp/flood/{name}"), dropped.per_s, "/s");
            self.line(&format!("xdp/flood/{name}-busy"), dropped.busy, "share");
            self.line(&format!("xdp/flood/{name}-core"), dropped.ns, "ns");
        }
        self.line("xdp/flood/denied-core/bar", DENIED_NS_MAX, "ns");
        self.has_missed |= floods.unanswered > 0 || floods.denied.ns > DENIED_NS_MAX;
    }

    /// Returns the figures of a tracker. Tells about rounds that failed.
    fn measured(&self, case: &Case, cell: &Cell) -> Option<Measured> {
        for round in &cell.rounds {
            if let Some(failure) = &round.failure {
                eprintln!("{}: round {} of {}: {failure}", case.name, round.round, cell.tracker);
            }
        }
        let rounds: Vec<&Round> = cell.rounds.iter().filter(|round| round.failure.is_none()).collect();
        let spread = |value: &dyn Fn(&Round) -> Option<f64>| {
            Spread::of(rounds.iter().filter_map(|round| value(round)).collect())
        };
        let usage_of = |round: &Round, processors: &[usize]| round.usage.as_ref()?.busy_share_of(processors);
        let counts = rounds.iter().filter_map(|round| round.load.as_ref());
        let (good, failed) = counts.fold((0, 0), |(good, failed), load| {
            (good + load.responses.total(), failed + load.lost + load.errors + load.wrong.total())
        });
        #[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
        let failed_share = failed as f64 / ((good + failed) as f64).max(1.0);
        Some(Measured {
            name: cell.tracker.clone(),
            per_s: spread(&|round| Some(round.load.as_ref()?.responses_per_s))?,
            core_us: spread(&|round| {
                round.usage.as_ref()?.core_us(round.load.as_ref()?, &cell.tracker_cpus)
            })?,
            slack: spread(&|round| Some(1.0 - usage_of(round, &cell.load_cpus)?))?,
            failed_share,
        })
    }

    fn spread(&self, case: &Case, name: &str, spread: &Spread, unit: &str) {
        let Spread { median, least, most } = *spread;
        self.print(case, name, median, unit);
        self.print(case, &format!("{name}/least"), least, unit);
        self.print(case, &format!("{name}/most"), most, unit);
    }

    /// Prints a ratio, and its bar if it has one.
    fn judge(&mut self, case: &Case, name: &str, value: f64, bar: Option<f64>, holds: fn(f64, f64) -> bool) {
        self.print(case, name, value, "×");
        if let Some(bar) = bar {
            self.print(case, &format!("{name}/bar"), bar, "×");
            self.has_missed |= !holds(value, bar);
        }
    }

    fn print(&self, case: &Case, name: &str, value: f64, unit: &str) {
        self.line(&format!("xdp/{}/{name}", case.name), value, unit);
    }

    fn line(&self, name: &str, value: f64, unit: &str) {
        if self.json {
            println!("{}", serde_json::json!({ "name": name, "value": value, "unit": unit }));
        } else {
            println!("{name:<56} {value:>14.3} {unit}");
        }
    }
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self { median, least, most })
    }
}
