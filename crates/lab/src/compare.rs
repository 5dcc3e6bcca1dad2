//! `shoal-lab compare`.

mod descriptors;
mod order;
mod screen;
mod table;
mod tools;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use shoal_compare::comparison;
use shoal_compare::division::CpuMode;
use shoal_compare::order::{Asked, Interrupt, Order};
use shoal_compare::preset::Preset;
use shoal_compare::result::Comparison;
use shoal_net::Backend;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::load::udp::duration;
use crate::output;
use crate::shape::Shape;

/// The arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
#[command(mut_arg("preset", |preset| preset.help(PRESET).value_parser(preset_shape)))]
pub(crate) struct Compare {
    /// Only these trackers, by name, such as shoal-mmsg,opentracker,echo-mmsg [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    trackers: Vec<String>,

    /// One more tracker, described in this file (see --print-tracker); may be given several times
    #[arg(long, value_name = "FILE")]
    tracker_file: Vec<PathBuf>,

    /// Where the program of a tracker is, such as opentracker=/opt/opentracker; may be given several times
    #[arg(long, value_name = "NAME=PATH", value_parser = program)]
    program: Vec<(String, PathBuf)>,

    /// Where --install puts tools, and where they are looked for [default: shoal-lab/tools in the user's cache]
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,

    #[command(flatten)]
    processors: Processors,

    #[command(flatten)]
    shape: Shape,

    #[command(flatten)]
    measurement: Measurement,

    #[command(flatten)]
    results: Results,

    #[command(flatten)]
    instead: Instead,
}

/// Who runs where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Processors")]
struct Processors {
    /// How many cores the tracker has, one comparison for each number, such as 1,2,4
    #[arg(long, value_name = "LIST", default_value = "1", value_delimiter = ',')]
    cores: Vec<usize>,

    /// How cores are taken: subsequent, split-pairs, subsequent-pairs, subsequent-one-per-pair
    #[arg(long, value_name = "MODE", default_value_t = CpuMode::default())]
    cpu_mode: CpuMode,

    /// How many cores the load has, the highest ones [default: all that the tracker has not]
    #[arg(long, value_name = "N")]
    load_cores: Option<usize>,

    /// Let tracker and load share processors; then the figures say little
    #[arg(long)]
    allow_overlap: bool,
}

/// How it is measured.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The measurement")]
struct Measurement {
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: NonZeroUsize,

    /// How long each closed loop lasts
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,

    /// Requests in flight in the closed loop, for each processor of the tracker; over HTTP, connections; of WebTorrent,
    /// announces, one on a connection at most [default: by the preset]
    #[arg(long, value_name = "N")]
    window: Option<NonZeroUsize>,

    /// Requests a second of the open loop, in which latency is measured; 0: none [default: by the preset]
    #[arg(long, value_name = "PER-SECOND", value_parser = latency_rate)]
    latency_rate: Option<f64>,

    /// How long each open loop lasts
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    latency_duration: Duration,

    /// A request that is not answered within this time is lost [default: by the preset]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,

    /// Connections: those that do nothing, of http-idle and its like [default: 10000, of WebTorrent 100000, or as many as
    /// open files allow], or those of WebTorrent that peers announce themselves on [default: by the preset]
    #[arg(long, value_name = "N")]
    connections: Option<NonZeroUsize>,

    /// Sockets of each thread of the load, up to 64; over HTTP and of WebTorrent, addresses that its connections come
    /// from [default: by the preset]
    #[arg(long, value_name = "N")]
    sockets: Option<NonZeroUsize>,

    /// What moves the datagrams of a load over UDP: mmsg or uring
    #[arg(long, value_name = "BACKEND", default_value_t = Backend::ALL[0])]
    io: Backend,

    /// The port of the trackers, one after the other [default: any free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

/// Where results go.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Results")]
struct Results {
    /// A folder named by date and --name is made in this one
    #[arg(long, value_name = "DIR", default_value = "bench-runs")]
    output: PathBuf,

    /// What the folder is called besides its date [default: the preset]
    #[arg(long, value_name = "NAME", value_parser = folder_name)]
    name: Option<String>,

    /// Print the result as JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// What to do instead of a comparison.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Instead of a comparison")]
#[group(multiple = false)]
struct Instead {
    /// List all trackers, whether they are there, and their versions
    #[arg(long)]
    list: bool,

    /// Print the description of a tracker, as an example for one of your own
    #[arg(long, value_name = "NAME")]
    print_tracker: Option<String>,

    /// Bring the rivals that package registries have into the tools folder: all, or those named
    #[arg(long, value_name = "NAMES", value_delimiter = ',', num_args = 0..)]
    install: Option<Vec<String>>,

    /// Draw the book of the result in this folder again
    #[arg(long, value_name = "DIR")]
    book: Option<PathBuf>,
}

/// What `--help` adds, a paragraph in a line: clap fits it to the terminal.
const NOTES: &str = "\
Each tracker is started pinned to its processors, filled, loaded from the other processors as hard as it answers, then \
timed at a fixed rate, and stopped. Rounds of all trackers are interleaved. What is read: replies a second by kind, CPU \
time of a reply, memory, latency; of WebTorrent, messages in place of replies. The result is a folder with raw data, configurations, tables, plots and a page.

Trackers that are not there are reported as absent. What goes wrong with one does not keep the others from being \
measured. Ctrl-C ends after the present run, a second one at once; what was measured is kept. No tracker is left \
behind, even if the laboratory itself is killed (SIGKILL), as long as `setpriv` of util-linux is on the PATH.

Exit codes: 0 if anything was measured, 1 if nothing was or the result could not be written, 2 for a command line that \
makes no sense.

Examples:
  shoal-lab compare --install
  shoal-lab compare --list
  shoal-lab compare --trackers shoal-mmsg,opentracker,aquatic_udp-mio,echo-mmsg --rounds 7
  shoal-lab compare --cores 1,2,4,8 --cpu-mode subsequent-one-per-pair --preset announces
  shoal-lab compare --preset http-keep-alive --trackers shoal-epoll,shoal-uring,aquatic_http,echo-epoll
  shoal-lab compare --preset https-idle --connections 10000
  shoal-lab compare --preset webtorrent-tls --trackers shoal-epoll,shoal-uring,aquatic_ws
  shoal-lab compare --print-tracker opentracker > mine.toml";

/// The help of --preset.
const PRESET: &str = "A load with a name. UDP: published, announces, ten-million. HTTP: http-keep-alive, http-connections \
                      (one for each request), https-handshakes (likewise), https-resumption, https-published (10,000 \
                      torrents, a handshake for each announce), and memory: http-idle, https-idle. WebTorrent: \
                      webtorrent-tls, webtorrent, webtorrent-small (offers of 256 B), webtorrent-published (1,020 \
                      connections by TLS), webtorrent-published-large (49,152), ws-deaf (beside 1,000 connections that \
                      are never read), and memory: ws-idle, wss-idle";

/// The exit code of a command line that makes no sense.
const USAGE: u8 = 2;

impl Compare {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(names) = &self.instead.install {
            return with(tools::chosen(names), |tools| tools::install(&tools, &self.tools_folder()?));
        }
        if let Some(name) = &self.instead.print_tracker {
            return with(tools::description(name), tools::print_description);
        }
        if let Some(folder) = &self.instead.book {
            return self.draw(&comparison::load(folder)?, folder);
        }
        if self.instead.list {
            return with(self.contenders(), |contenders| tools::list(&contenders, self.results.json));
        }
        with(self.order(), |order| self.compare(order))
    }

    fn compare(&self, mut order: Order) -> Result<ExitCode> {
        if order.contenders.iter().all(|contender| contender.found.is_err()) {
            let reasons = order.contenders.iter().filter_map(|contender| {
                Some(format!("\n  {}: {}", contender.description.name, contender.found.as_ref().err()?))
            });
            bail!("none of the trackers is there:{}", reasons.collect::<String>());
        }
        order.folder =
            comparison::new_folder(&self.results.output, &self.folder_name()).context("--output")?;
        let interrupt = listen()?;
        let mut screen = screen::Screen::new();
        let made = comparison::make(&order, &interrupt, &mut |event| screen.show(event));
        screen.end();
        let comparison = made?;
        // Where there is no space any more, hours of measurements are shown at least.
        let saved = comparison::save(&comparison, &order.folder);
        let code = self.draw(&comparison, &order.folder);
        saved?;
        let code = code?;
        if comparison.partial {
            output::tell("Ended early, as asked: the result is marked as partial.");
        }
        Ok(code)
    }

    fn folder_name(&self) -> String {
        self.results.name.clone().unwrap_or_else(|| self.shape.preset.name.to_owned())
    }

    /// The preset, without what departs from it.
    fn preset(&self) -> Result<Preset> {
        Ok(Preset::find(self.shape.preset.name)?)
    }

    /// Draws the book, and tells the result.
    fn draw(&self, comparison: &Comparison, folder: &Path) -> Result<ExitCode> {
        let drawn = shoal_compare::book::write(comparison, folder);
        if self.results.json {
            output::print(&(serde_json::to_string_pretty(comparison)? + "\n"))?;
        } else {
            output::print(&table::text(comparison))?;
        }
        drawn.with_context(|| format!("the book of {} could not be drawn", folder.display()))?;
        output::tell(&format!("The result is in {}", folder.display()));
        let is_good = |round: &shoal_compare::result::Round| round.failure.is_none();
        let measured = comparison.cells.iter().any(|cell| cell.rounds.iter().any(is_good));
        Ok(if measured { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Goes on with what the command line says, or tells why it makes no sense.
fn with<T>(said: Result<T>, go_on: impl FnOnce(T) -> Result<ExitCode>) -> Result<ExitCode> {
    match said {
        Ok(said) => go_on(said),
        Err(error) => {
            eprintln!("shoal-lab: {error:#}");
            Ok(ExitCode::from(USAGE))
        }
    }
}

/// Ctrl-C is a request to end after the present run, and a second one to end at once, as is SIGTERM.
fn listen() -> Result<Arc<Interrupt>> {
    let interrupt = Arc::new(Interrupt::default());
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
    let asked = Arc::clone(&interrupt);
    let wait = move || {
        for signal in signals.forever() {
            if signal != SIGINT {
                asked.ask_at_once();
            } else if asked.ask() == Asked::AfterThisRun {
                output::tell("\nEnds after this run. Ctrl-C again ends it at once.");
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

/// More presets than a load on one tracker has. What is not shape is looked up again by the name.
fn preset_shape(name: &str) -> Result<shoal_load::Preset> {
    Ok(Preset::find(name)?.shape)
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

/// An address of a tracker, to check a plan by before there is one.
const ANY_TRACKER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 6969);
