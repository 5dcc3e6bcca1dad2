//! `shoal-lab chaos`.

mod plan;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use shoal_load::Popularity;
use shoal_trial::chaos::event::EventKind;
use shoal_trial::chaos::report;
use shoal_trial::chaos::run::{ChaosPlan, RunEvent};
use shoal_trial::chaos::threshold::Threshold;

use crate::load::args::{duration, rate};
use crate::process::{Cancellation, or_usage};
use crate::shape::popularity;
use crate::terminal::{self, ProgressLine};

/// The options of `chaos`.
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(crate) struct ChaosArgs {
    /// The name of a tracker, as in `compare --list`
    #[arg(long, value_name = "NAME", default_value = "shoal-mmsg", conflicts_with = "tracker_file")]
    tracker: String,

    /// The tracker that is described in this file, with the table "chaos" (see compare --print-tracker shoal-mmsg)
    #[arg(long, value_name = "FILE")]
    tracker_file: Option<PathBuf>,

    /// The program of the tracker, such as /opt/opentracker; also as NAME=PATH, as in `compare`
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,

    /// The folder in which `compare --install` puts tools [default: shoal-lab/tools in the user's cache]
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,

    /// The number of cores of the tracker
    #[arg(long, value_name = "N", default_value = "1")]
    cores: usize,

    /// Let tracker and load share processors; gaps and latencies are then of little value
    #[arg(long)]
    allow_overlap: bool,

    #[command(flatten)]
    load: ChaosLoadArgs,

    #[command(flatten)]
    events: EventArgs,

    /// Write the result, a page and plots into this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,

    /// Any other tracker: its program and arguments, with placeholders such as {port} and {folder}
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["tracker", "tracker_file", "program"])]
    command: Vec<String>,
}

/// The options of the load.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The load")]
struct ChaosLoadArgs {
    /// The number of torrents
    #[arg(long, value_name = "N", default_value = "100000", value_parser = clap::value_parser!(u32).range(2..))]
    torrents: u32,

    /// The number of peers, over all torrents
    #[arg(long, value_name = "N", default_value = "200000", value_parser = clap::value_parser!(u32).range(1..))]
    peers: u32,

    /// The distribution of peers over torrents, as in `load`
    #[arg(long, value_name = "KIND", default_value = "uniform", value_parser = popularity)]
    popularity: Popularity,

    /// Requests a second over UDP
    #[arg(long, value_name = "PER-SECOND", default_value = "10000", value_parser = rate)]
    rate: f64,

    /// The rate over UDP as a share of what the tracker answers in a closed loop, 0 to 1, instead of --rate
    #[arg(long, value_name = "SHARE", conflicts_with = "rate", value_parser = share)]
    share: Option<f64>,

    /// Requests a second over HTTP: half on connections that stay open, half on a connection each; 0: none
    #[arg(long, value_name = "PER-SECOND", default_value = "1000", value_parser = rate_or_none)]
    http_rate: f64,

    /// Connections that stay open
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,

    /// WebTorrent clients that stay connected
    #[arg(long, value_name = "N", default_value = "0")]
    websockets: usize,

    /// A request counts as lost after this time without an answer; none is sent again
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    timeout: Duration,

    /// The seed of torrents and peers
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

/// The options of the events.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The events")]
struct EventArgs {
    /// The events, in this order: pause, snapshot, disk-full, reload, deny, down, upgrade, restart, kill, damage, truncate
    /// [default: all that the description of the tracker supports]
    #[arg(long = "events", value_name = "NAMES", value_delimiter = ',')]
    names: Vec<EventKind>,

    /// Repeat the events until this time is over
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,

    /// The time of load before an event, and after it
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    settle: Duration,

    /// The length of a pause
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pause: Duration,

    /// Most torrents whose peers are counted before and after an event
    #[arg(long, value_name = "N", default_value = "20000", value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,

    /// The most that a figure may be, such as upgrade.gap_ms=100; may be given several times
    #[arg(long, value_name = "EVENT.FIGURE=N")]
    threshold: Vec<Threshold>,
}

/// The end of the help, with a paragraph per line: clap wraps it to the terminal.
const NOTES: &str = "\
The tracker is started and filled with peers. Then requests are sent on a schedule that does not depend on answers, over \
UDP and HTTP at once, while one event happens after the other. Each request is counted: without an answer, with more than \
one, refused. The peers of torrents that this load does not touch are counted before and after, by scrapes.

The tracker shoal-xdp has full load instead: a pair of virtual Ethernet interfaces, with 224 requests in flight from the driver \
hook, of which only --torrents, --peers and --seed can be chosen. After each event, all frames must be free and every request \
must be answered or be counted as dropped. It takes root and Linux 6.4.

Exit codes: 0 if every figure is within its threshold, 1 if one is not or the run failed, 2 for an invalid command line.

Examples:
  shoal-lab chaos --output chaos-result
  shoal-lab chaos --events kill,restart --torrents 1000000 --peers 2000000 --share 0.5
  shoal-lab chaos --tracker opentracker
  shoal-lab chaos --tracker shoal-xdp --duration 10m
  shoal-lab chaos --http-rate 0 -- ./mytracker --udp-port {port}";

impl ChaosArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        or_usage(self.plan(), |plan| self.run_plan(&plan))
    }

    fn run_plan(&self, plan: &ChaosPlan) -> Result<ExitCode> {
        shoal_trial::chaos::run::prepare(&plan.events)?;
        let cancellation = Cancellation::on_signals()?;
        let on_terminal = io::stderr().is_terminal();
        let mut display = Display { on_terminal, events: plan.events.len(), line: None };
        let outcome =
            shoal_trial::chaos::run::run(plan, cancellation.flag(), &mut |event| display.show(event));
        display.end();
        let outcome = outcome?;
        let json = serde_json::to_string_pretty(&outcome.result)? + "\n";
        if self.json {
            terminal::print(&json)?;
        } else {
            terminal::print(&report::text(&outcome.result))?;
        }
        if let Some(folder) = &self.output {
            report::write(&outcome, &json, folder)?;
            terminal::note(&format!("The result is in {}", folder.display()));
        }
        Ok(if outcome.result.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

struct Display {
    on_terminal: bool,
    events: usize,
    line: Option<(&'static str, ProgressLine)>,
}

impl Display {
    fn show(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Starting => terminal::note("The tracker starts."),
            RunEvent::Filling(progress) => self.progress("fill", progress),
            RunEvent::Measuring(progress) => self.progress("load", progress),
            RunEvent::Event(event, before) => {
                self.end();
                // They may be repeated.
                let of_all = if *before < self.events { format!("/{}", self.events) } else { String::new() };
                terminal::note(&format!("[{}{of_all}] {event}", before + 1));
            }
            RunEvent::Computing => {
                self.end();
                terminal::note("The last answers are awaited.");
            }
        }
    }

    fn progress(&mut self, name: &'static str, progress: &shoal_load::Progress) {
        if self.line.as_ref().is_none_or(|(of, _)| *of != name) {
            self.end();
            self.line = Some((name, ProgressLine::new(name, self.on_terminal)));
        }
        if let Some((_, line)) = &self.line {
            line.show(progress);
        }
    }

    fn end(&mut self) {
        if let Some((_, line)) = self.line.take() {
            line.end();
        }
    }
}

fn share(text: &str) -> Result<f64> {
    let share = text.parse().ok().filter(|share: &f64| (0.001..=1.0).contains(share));
    anyhow::Context::context(share, "give a share from 0.001 to 1")
}

fn rate_or_none(text: &str) -> Result<f64> {
    if text == "0" { Ok(0.0) } else { rate(text) }
}
