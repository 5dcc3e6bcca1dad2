//! `shoal-lab compare`.

mod modes;
mod plan;
mod progress;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use shoal_compare::comparison;
use shoal_compare::cpu_assignment::CpuMode;
use shoal_compare::load::preset::ComparisonPreset;
use shoal_compare::plan::{ComparisonPlan, Interrupt, StopTime};
use shoal_compare::report::Columns;
use shoal_compare::result::Comparison;
use shoal_net::Backend;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::load::LoopBackend;
use crate::load::args::{duration, positive};
use crate::process::or_usage;
use crate::shape::ShapeArgs;
use crate::terminal;

/// The options of `compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
#[command(mut_arg("preset", |preset| preset.help(PRESET).value_parser(preset_shape)))]
pub(crate) struct CompareArgs {
    /// Only these trackers, by name, such as shoal-mmsg,opentracker,echo-mmsg [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    trackers: Vec<String>,

    /// Add the tracker that is described in this file (see --print-tracker); may be given several times
    #[arg(long, value_name = "FILE")]
    tracker_file: Vec<PathBuf>,

    /// The program of a tracker, such as opentracker=/opt/opentracker; may be given several times
    #[arg(long, value_name = "NAME=PATH", value_parser = program)]
    program: Vec<(String, PathBuf)>,

    /// The folder in which --install puts tools, and which is searched [default: shoal-lab/tools in the user's cache]
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,

    #[command(flatten)]
    processors: ProcessorArgs,

    #[command(flatten)]
    shape: ShapeArgs,

    #[command(flatten)]
    measurement: MeasurementArgs,

    #[command(flatten)]
    results: ResultArgs,

    #[command(flatten)]
    mode: ModeArgs,
}

/// The options of the processors.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Processors")]
struct ProcessorArgs {
    /// Numbers of cores of the tracker, with one comparison for each, such as 1,2,4
    #[arg(long, value_name = "LIST", default_value = "1", value_delimiter = ',')]
    cores: Vec<usize>,

    /// How cores are assigned: subsequent, split-pairs, subsequent-pairs, subsequent-one-per-pair
    #[arg(long, value_name = "MODE", default_value_t = CpuMode::default())]
    cpu_mode: CpuMode,

    /// The number of cores of the load, the highest ones [default: all that the tracker does not have]
    #[arg(long, value_name = "N")]
    load_cores: Option<usize>,

    /// Let tracker and load share processors; the figures are then of little value
    #[arg(long)]
    allow_overlap: bool,
}

/// The options of the measurement.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The measurement")]
struct MeasurementArgs {
    /// The number of rounds
    #[arg(long, value_name = "N", default_value = "5", value_parser = positive)]
    rounds: NonZeroUsize,

    /// How long each closed loop lasts
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,

    /// Requests in flight in the closed loop, for each processor of the tracker; over HTTP, connections; with
    /// WebTorrent, announces, at most one per connection [default: that of the preset]
    #[arg(long, value_name = "N", value_parser = positive)]
    window: Option<NonZeroUsize>,

    /// Threads that spin on each processor of the tracker in the closed loop: with N of them, the tracker has about one
    /// (N+1)th of it, and a load that needs as much more time can still keep it busy [default: that of the preset]
    #[arg(long, value_name = "N")]
    spinners: Option<usize>,

    /// Requests a second in the open loop, which measures latency; 0: no open loop [default: that of the preset]
    #[arg(long, value_name = "PER-SECOND", value_parser = latency_rate)]
    latency_rate: Option<f64>,

    /// How long each open loop lasts
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    latency_duration: Duration,

    /// How long to wait for a reply until the request counts as lost [default: that of the preset]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,

    /// The number of idle connections for http-idle and similar presets [default: 10000, with WebTorrent 100000, or
    /// as many as open files allow], or of connections on which WebTorrent peers announce [default: that of the
    /// preset]
    #[arg(long, value_name = "N", value_parser = positive)]
    connections: Option<NonZeroUsize>,

    /// Sockets of each thread of the load, at most 64; over HTTP and with WebTorrent, addresses of its connections
    /// [default: that of the preset]
    #[arg(long, value_name = "N", value_parser = positive)]
    sockets: Option<NonZeroUsize>,

    /// The back end that moves the datagrams of a load over UDP: mmsg or uring
    #[arg(long, value_name = "BACKEND", default_value_t = Backend::ALL[0])]
    io: Backend,

    /// The network between load and tracker: loopback, or a pair of virtual Ethernet interfaces between two network
    /// namespaces (veth), for UDP, one core and root: receive work is then done on the processor of the side that receives,
    /// as with real cards
    #[arg(long, value_name = "NETWORK", default_value = "loopback")]
    net: Net,

    /// Where the closed loop over UDP runs: behind sockets, or as an eBPF program at the driver hook (xdp), for --net veth
    /// [default: xdp with --net veth, otherwise sockets]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<LoopBackend>,

    /// The port of all trackers, which run one after another [default: any free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

/// The network between load and tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Net {
    /// The loopback interface.
    Loopback,
    /// A pair of virtual Ethernet interfaces.
    Veth,
}

/// The options of the result.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Results")]
struct ResultArgs {
    /// The parent of the result's folder, which is named after the date and --name
    #[arg(long, value_name = "DIR", default_value = "bench-runs")]
    output: PathBuf,

    /// The name of the folder behind the date [default: the preset]
    #[arg(long, value_name = "NAME", value_parser = folder_name)]
    name: Option<String>,

    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,

    /// Print all columns of the table, with ranges; without it, the table fits 80 columns
    #[arg(long, conflicts_with = "json")]
    wide: bool,
}

impl ResultArgs {
    fn columns(&self) -> Columns {
        if self.wide { Columns::All } else { Columns::Few }
    }
}

/// The modes other than a comparison.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Instead of a comparison")]
#[group(multiple = false)]
struct ModeArgs {
    /// List all trackers, whether they are installed, and their versions
    #[arg(long)]
    list: bool,

    /// Print the description of a tracker, as an example for your own
    #[arg(long, value_name = "NAME")]
    print_tracker: Option<String>,

    /// Install rivals from package registries into the tools folder: all, or those named
    #[arg(long, value_name = "NAMES", value_delimiter = ',', num_args = 0.., conflicts_with = "trackers")]
    install: Option<Vec<String>>,

    /// Write the report of the result in this folder again
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// The end of the help, with a paragraph per line: clap wraps it to the terminal.
const NOTES: &str = "\
Each tracker is started on its own processors, filled, loaded from the other processors as fast as it answers, timed at a \
fixed rate, and stopped. Rounds of all trackers are interleaved. The result contains the replies a second by kind, the CPU \
time per reply, memory and latency; with WebTorrent, messages instead of replies. It is a folder with raw data, \
configurations, tables, plots and an HTML page.

Trackers that are not installed are reported as absent. The failure of a tracker does not affect the others. Ctrl-C ends \
the comparison after the current run, a second one at once; the measurements are kept. No tracker keeps running, even if \
shoal-lab itself is killed (SIGKILL), as long as `setpriv` of util-linux is on the PATH.

Exit codes: 0 if anything was measured, 1 if nothing was or the result could not be written, 2 for an invalid command line.

Examples:
  shoal-lab compare --install
  shoal-lab compare --list
  shoal-lab compare --trackers shoal-mmsg,opentracker,aquatic_udp-mio,echo-mmsg --rounds 7
  shoal-lab compare --cores 1,2,4,8 --cpu-mode subsequent-one-per-pair --preset announces
  shoal-lab compare --preset http-keep-alive --trackers shoal-epoll,aquatic_http,echo-epoll
  shoal-lab compare --preset https-idle --connections 10000
  shoal-lab compare --preset webtorrent-tls --trackers shoal-epoll,aquatic_ws
  shoal-lab compare --print-tracker opentracker > mine.toml";

/// The help of --preset.
const PRESET: &str = "A named load. UDP: published, published-churn, announces, ten-million. HTTP: http-keep-alive, http-connections (one for \
                      each request), https-handshakes (likewise), https-resumption, https-published (10,000 torrents, a \
                      handshake for each announce), and memory: http-idle, https-idle. WebTorrent: webtorrent-tls, \
                      webtorrent, webtorrent-small (offers of 256 B), webtorrent-published (1,020 connections over TLS), \
                      webtorrent-published-large (49,152), webtorrent-desktop and webtorrent-desktop-tls (18,000, each \
                      with 100 torrents), ws-slow-readers (with 1,000 connections that never read), and \
                      memory: ws-idle, wss-idle";

impl CompareArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(names) = &self.mode.install {
            return or_usage(modes::chosen(names), |tools| modes::install(&tools, &self.tools_folder()?));
        }
        if let Some(name) = &self.mode.print_tracker {
            return or_usage(modes::description(name), |text| {
                terminal::print(text).map(|()| ExitCode::SUCCESS)
            });
        }
        if let Some(folder) = &self.mode.report {
            return self.write_report(&comparison::load(folder)?, folder);
        }
        if self.mode.list {
            return or_usage(self.contenders(), |contenders| {
                modes::list(&contenders, self.results.json, self.results.columns())
            });
        }
        or_usage(self.plan(), |plan| self.compare(plan))
    }

    fn compare(&self, mut plan: ComparisonPlan) -> Result<ExitCode> {
        if plan.contenders.iter().all(|contender| contender.installation.is_err()) {
            let reasons = plan.contenders.iter().filter_map(|contender| {
                Some(format!(
                    "\n  {}: {}",
                    contender.description.name,
                    contender.installation.as_ref().err()?
                ))
            });
            bail!("none of the trackers is installed:{}", reasons.collect::<String>());
        }
        let name = self.results.name.as_deref().unwrap_or(self.shape.preset.name);
        plan.folder = comparison::new_folder(&self.results.output, name).context("--output")?;
        let interrupt = interrupt_on_signals()?;
        let mut display = progress::ProgressDisplay::new();
        let compared = comparison::run(&plan, &interrupt, &mut |event| display.show(event));
        display.end();
        let comparison = compared?;
        // If the disk is full, hours of measurements are at least shown.
        let saved = comparison::save(&comparison, &plan.folder);
        let code = self.write_report(&comparison, &plan.folder);
        saved?;
        let code = code?;
        if comparison.partial {
            terminal::note("Interrupted: the result is marked as partial.");
        }
        Ok(code)
    }

    /// Returns the preset without the options that override it.
    fn preset(&self) -> Result<ComparisonPreset> {
        Ok(ComparisonPreset::find(self.shape.preset.name)?)
    }

    /// Writes the report and prints the result.
    fn write_report(&self, comparison: &Comparison, folder: &Path) -> Result<ExitCode> {
        let written = shoal_compare::report::write(comparison, folder);
        if self.results.json {
            terminal::print(&(serde_json::to_string_pretty(comparison)? + "\n"))?;
        } else {
            terminal::print(&modes::summary(comparison, self.results.columns()))?;
        }
        written.with_context(|| format!("the report in {} could not be written", folder.display()))?;
        terminal::note(&format!("The result is in {}", folder.display()));
        let is_good = |round: &shoal_compare::result::Round| round.failure.is_none();
        let measured = comparison.cells.iter().any(|cell| cell.rounds.iter().any(is_good));
        Ok(if measured { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Returns an interrupt for signals. Ctrl-C stops after the current run, a second one or SIGTERM stops at once.
fn interrupt_on_signals() -> Result<Arc<Interrupt>> {
    let interrupt = Arc::new(Interrupt::default());
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
    let requested = Arc::clone(&interrupt);
    let wait = move || {
        for signal in signals.forever() {
            if signal != SIGINT {
                requested.request_at_once();
            } else if requested.request() == StopTime::AfterThisRun {
                terminal::note("\nEnds after this run. Ctrl-C again ends it at once.");
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("cannot start a thread")?;
    Ok(interrupt)
}

fn program(text: &str) -> Result<(String, PathBuf)> {
    let (name, path) =
        text.split_once('=').context("give NAME=PATH, such as opentracker=/opt/opentracker")?;
    Ok((name.to_owned(), path.into()))
}

/// Finds the load of a preset. The rest of the preset is looked up again by its name.
fn preset_shape(name: &str) -> Result<shoal_load::Preset> {
    Ok(ComparisonPreset::find(name)?.shape)
}

fn latency_rate(text: &str) -> Result<f64> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate == 0.0 || (0.001..=1e8).contains(rate));
    rate.context("give requests a second, from 0.001 to 100000000, or 0 for none")
}

fn folder_name(text: &str) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_good = !text.is_empty() && text.bytes().all(is_plain);
    is_good.then(|| text.to_owned()).context("give letters, digits, \"-\", \"_\" and \".\"")
}

/// A tracker's address with which a plan is checked before the tracker runs.
const ANY_TRACKER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 6969);
