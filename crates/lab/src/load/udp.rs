//! `shoal-lab load udp`.

use std::io::{self, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use shoal_load::udp::{OpenError, Session, WINDOW_MAX};
use shoal_load::{Pace, Plan, Preset, Report, Sources, Stop, Verdict, Watch};
use shoal_net::Backend;

use super::{live, table};
use crate::interrupt::Interrupt;
use crate::output;
use crate::shape::Shape;

/// Put load on a UDP tracker (BEP 15): fill it with peers, then measure.
///
/// Without --rate the loop is closed: so many requests are in flight, and each reply makes room for the next; this
/// finds the most that the tracker answers. With --rate the loop is open: requests leave at a fixed rate, and latency
/// counts from the moment at which each should have left, so that a stall of the tracker shows in full.
///
/// Good replies make the headline, and theirs is the latency. Errors, replies that break a rule, and requests that are
/// lost are counted apart.
///
/// Ctrl-C ends the run early with what was measured. Exit code 0: measured; 1: failed, or the tracker fell silent, or
/// not one reply was good; 2: the command line is wrong; 130: Ctrl-C before anything was measured, or twice.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Udp {
    /// The tracker, as HOST:PORT or udp://HOST:PORT
    #[arg(value_name = "ADDR", value_parser = target)]
    target: SocketAddr,

    /// Send so many requests a second, whatever comes back (open loop)
    #[arg(long, value_name = "PER-SECOND", value_parser = rate)]
    rate: Option<f64>,

    /// Requests in flight in the closed loop, of each worker. More than the tracker's socket buffer holds are lost
    #[arg(long, value_name = "N", default_value = "256", conflicts_with = "rate", value_parser = window)]
    window: usize,

    /// Measure for so long, such as 10s, 500ms or 2m [default: 10s, unless --requests is given]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,

    /// Measure with so many requests
    #[arg(long, value_name = "N")]
    requests: Option<u64>,

    /// Do not fill the tracker first: what is measured begins with an empty one
    #[arg(long)]
    no_fill: bool,

    #[command(flatten)]
    shape: Shape,

    #[command(flatten)]
    generator: Generator,

    /// Do not count it as wrong that a peer is handed to itself; some trackers do that by design
    #[arg(long)]
    tolerate_own_address: bool,

    /// Print the result as JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// How the generator works.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The generator")]
struct Generator {
    /// Threads
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "cpus")]
    workers: NonZeroUsize,

    /// One thread on each of these processors, such as 2,3
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cpus: Vec<usize>,

    /// Sockets of each thread, each with a port of its own, up to 64
    #[arg(long, value_name = "N", default_value = "8")]
    sockets: NonZeroUsize,

    /// The address to send from, or the first of them [default: 127.0.0.1 to a loopback address, else the one that the
    /// route takes]
    #[arg(long, value_name = "IP")]
    source: Option<IpAddr>,

    /// How many addresses to send from, beginning with the first, at most one for each socket; more than one must be in
    /// 127.0.0.0/8 [default: one for each socket to a loopback address of IPv4, else 1]
    #[arg(long, value_name = "N")]
    sources: Option<NonZeroUsize>,

    /// A request that is not answered within this time is lost
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    timeout: Duration,

    /// What moves the datagrams: mmsg or uring
    #[arg(long, value_name = "BACKEND", default_value_t = Backend::ALL[0])]
    io: Backend,
}

/// The exit code of a command line that asks for the impossible.
const USAGE: u8 = 2;

/// The exit code where Ctrl-C came before there was a result, as shells have it.
const INTERRUPTED: u8 = 130;

const EXAMPLES: &str = "\
Examples:
  shoal-lab load udp 127.0.0.1:6969 --torrents 100000 --peers 200000
  shoal-lab load udp tracker.example.org:6969 --rate 1000 --duration 30s --no-fill
  shoal-lab load udp [::1]:6969 --mix 0:1:0 --popularity zipf:1.0 --announces-per-life 20 --json";

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    schema_version: u32,
    target: String,
    pace: Pace,
    load: LoadDocument,
    fill: Option<&'d Report>,
    run: &'d Report,
}

#[derive(Serialize)]
struct LoadDocument {
    population: shoal_load::Population,
    mix: shoal_load::Mix,
    numwant: i32,
    scrape_hashes_max: usize,
    seed: u64,
    workers: usize,
    sockets_per_worker: usize,
    first_source: IpAddr,
    source_addresses: usize,
    io: String,
    timeout_s: f64,
    own_address_is_wrong: bool,
}

impl Udp {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let plan = self.plan()?;
        let pace = match self.rate {
            Some(rate) => Pace::Open { rate },
            None => Pace::Closed { window: self.window },
        };
        let after =
            self.duration.or(if self.requests.is_none() { Some(Duration::from_secs(10)) } else { None });
        let stop = Stop { after, requests: self.requests };
        let interrupt = Interrupt::listen()?;
        let mut session = match Session::open(&plan) {
            Err(error @ (OpenError::Plan(_) | OpenError::Processor { .. })) => {
                output::tell(&format!("shoal-lab: {error}"));
                return Ok(ExitCode::from(USAGE));
            }
            opened => opened?,
        };
        let fill =
            if self.no_fill { None } else { Some(watch("fill", &interrupt, |watch| session.fill(watch))) };
        if interrupt.flag().load(Ordering::Relaxed) {
            output::tell("shoal-lab: ended while the tracker was filled, before anything was measured");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        if let Some(reason) = fill.as_ref().and_then(why_not_filled) {
            return Err(anyhow!("the tracker could not be filled: {reason}"));
        }
        let run = watch("load", &interrupt, |watch| session.run(pace, stop, watch));
        drop(session);
        self.print(&plan, pace, fill.as_ref(), &run)?;
        let is_good =
            run.failure.is_none() && run.responses.total() > 0 && run.verdict != Verdict::Unanswered;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn plan(&self) -> Result<Plan> {
        let Preset { population, mix, numwant, scrape_hashes_max, .. } = self.shape.load();
        let Generator { workers, cpus, sockets, source, sources, timeout, io } = &self.generator;
        let workers: Vec<Option<usize>> = if cpus.is_empty() {
            vec![None; workers.get()]
        } else {
            cpus.iter().copied().map(Some).collect()
        };
        let first = match source {
            Some(source) => *source,
            None => source_for(self.target)?,
        };
        let many = first.is_ipv4() && first.is_loopback();
        let all_sockets = NonZeroUsize::new(workers.len() * sockets.get()).unwrap_or(NonZeroUsize::MIN);
        let addresses = sources.unwrap_or(if many { all_sockets } else { NonZeroUsize::MIN });
        Ok(Plan {
            target: self.target,
            population,
            mix,
            numwant,
            scrape_hashes_max,
            sources: Sources { first, addresses, sockets_per_worker: *sockets },
            workers,
            seed: self.shape.seed,
            io: *io,
            timeout: *timeout,
            own_address_is_wrong: !self.tolerate_own_address,
        })
    }

    fn print(&self, plan: &Plan, pace: Pace, fill: Option<&Report>, run: &Report) -> Result<()> {
        let text = if self.json {
            let load = LoadDocument {
                population: plan.population,
                mix: plan.mix,
                numwant: plan.numwant,
                scrape_hashes_max: plan.scrape_hashes_max,
                seed: plan.seed,
                workers: plan.workers.len(),
                sockets_per_worker: plan.sources.sockets_per_worker.get(),
                first_source: plan.sources.first,
                source_addresses: plan.sources.addresses.get(),
                io: plan.io.to_string(),
                timeout_s: plan.timeout.as_secs_f64(),
                own_address_is_wrong: plan.own_address_is_wrong,
            };
            let target = plan.target.to_string();
            let document = Document { schema_version: run.schema_version, target, pace, load, fill, run };
            serde_json::to_string_pretty(&document)? + "\n"
        } else {
            table::text(pace, plan.population.peers, fill, run)
        };
        output::print(&text)
    }
}

/// Why a fill is not good enough to go on.
fn why_not_filled(fill: &Report) -> Option<String> {
    let Report { failure, first_error, responses, wrong, .. } = fill;
    if let Some(failure) = failure {
        return Some(failure.clone());
    }
    if responses.announce > 0 {
        return None;
    }
    let error = first_error.as_ref().map(|words| format!("it answers with the error \"{words}\""));
    Some(error.unwrap_or_else(|| format!("no reply was good, {} wrong", table::wrong(wrong))))
}

/// Runs something of a session while a live line shows how it goes.
fn watch(name: &str, interrupt: &Interrupt, run: impl FnOnce(&mut Watch<'_>) -> Report) -> Report {
    let line = live::Line::new(name, io::stderr().is_terminal());
    let cancel: &Arc<AtomicBool> = interrupt.flag();
    let report = run(&mut Watch { cancel, progress: &mut |progress| line.show(progress) });
    line.end();
    if cancel.load(Ordering::Relaxed) {
        output::tell(&format!("{name}: ended early, as asked"));
    }
    report
}

/// The address from which this host would send to `target`.
fn source_for(target: SocketAddr) -> Result<IpAddr> {
    let loopback = target.ip().is_loopback();
    match target {
        SocketAddr::V4(_) if loopback => Ok(Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(_) if loopback => Ok(Ipv6Addr::LOCALHOST.into()),
        _ => {
            let any: IpAddr =
                if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let route = UdpSocket::bind((any, 0)).and_then(|socket| {
                socket.connect(target)?;
                socket.local_addr()
            });
            Ok(route.with_context(|| format!("no way leads to {target}"))?.ip())
        }
    }
}

fn target(text: &str) -> Result<SocketAddr> {
    let host = text.strip_prefix("udp://").unwrap_or(text);
    let host = host.split('/').next().unwrap_or(host);
    let accepted = "give HOST:PORT, such as 127.0.0.1:6969, [::1]:6969 or tracker.example.org:6969";
    let mut addresses = host.to_socket_addrs().map_err(|error| anyhow!("{error}; {accepted}"))?;
    let address = addresses.next().with_context(|| format!("the name has no address; {accepted}"))?;
    if address.port() == 0 {
        return Err(anyhow!("port 0 is no port; {accepted}"));
    }
    Ok(address)
}

fn window(text: &str) -> Result<usize> {
    let window = text.parse().ok().filter(|window| (1..=WINDOW_MAX).contains(window));
    window.with_context(|| format!("give a whole number from 1 to {WINDOW_MAX}"))
}

fn rate(text: &str) -> Result<f64> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.001..=1e8).contains(rate));
    rate.context("give requests a second, from 0.001 to 100000000")
}

/// Reads a time such as `10s`, `500ms`, `2m` or `1.5s`.
pub(crate) fn duration(text: &str) -> Result<Duration> {
    let accepted = "give a time such as 500ms, 10s or 2m, of at most a day";
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(anyhow!(accepted)),
    };
    let time: f64 = number.parse::<f64>().ok().context(accepted)? * seconds;
    if !(0.001..=86_400.0).contains(&time) {
        return Err(anyhow!(accepted));
    }
    Ok(Duration::from_secs_f64(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_or_refused() {
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("2m").unwrap(), Duration::from_secs(120));
        for refused in ["", "s", "0s", "-1s", "10 s", "10 years", "1e9s", "0.0001ms", "2000h", "1.2.3s"] {
            assert!(duration(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn targets_are_read_or_refused() {
        assert_eq!(target("127.0.0.1:80").unwrap(), "127.0.0.1:80".parse().unwrap());
        assert_eq!(target("udp://[::1]:6969/announce").unwrap(), "[::1]:6969".parse().unwrap());
        for refused in ["", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", "http://127.0.0.1:80"] {
            assert!(target(refused).is_err(), "{refused}");
        }
    }
}
