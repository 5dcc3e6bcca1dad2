//! `shoal-lab load udp`.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use shoal_load::udp::{self, WINDOW_MAX};
use shoal_load::{Plan, Preset, Sources};
use shoal_net::Backend;

use super::address::{Addresses, source_for};
use super::args::{Threads, duration, positive};
use super::herd::{self, HerdArgs};
use super::measure::{LoadRun, MeasureArgs};
use crate::shape::ShapeArgs;

/// Put load on a UDP tracker (BEP 15): fill it with peers, then measure.
///
/// Without --rate, the loop is closed: a fixed number of requests is in flight, and each reply makes room for the
/// next. This finds the most that the tracker can answer. With --rate, the loop is open: requests are sent at a fixed
/// rate, and latency counts from the scheduled time of each request, so that a stall of the tracker shows in full.
///
/// Only good replies count as responses and for the latency. Errors, replies that break a rule, and lost requests are
/// counted separately.
///
/// With --herd, every client asks once and retransmits, and the report says after how many retries they were answered.
///
/// Ctrl-C ends the run early and keeps the measurements. Exit code 0: measured; 1: failed, or the tracker fell silent,
/// or not one reply was good, or a client of a herd was not answered; 2: the command line is invalid; 130: Ctrl-C
/// before the first measurement, or twice.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UdpArgs {
    /// The tracker, as HOST:PORT or udp://HOST:PORT
    #[arg(value_name = "ADDR", value_parser = target)]
    target: Addresses,

    /// Requests in flight in the closed loop, per worker. Requests beyond the tracker's socket buffer are lost
    #[arg(long, value_name = "N", default_value = "256", conflicts_with = "rate", value_parser = window)]
    window: usize,

    #[command(flatten)]
    measurement: MeasureArgs,

    #[command(flatten)]
    herd: HerdArgs,

    #[command(flatten)]
    shape: ShapeArgs,

    #[command(flatten)]
    generator: UdpGeneratorArgs,
}

/// The options of the generator.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The generator")]
struct UdpGeneratorArgs {
    #[command(flatten)]
    threads: Threads,

    /// Sockets per thread, each with its own port, at most 64
    #[arg(long, value_name = "N", default_value = "8", value_parser = positive)]
    sockets: NonZeroUsize,

    /// The first source address [default: 127.0.0.1 towards a loopback address, otherwise the one of the route]
    #[arg(long, value_name = "IP")]
    source: Option<IpAddr>,

    /// The number of consecutive source addresses, at most one per socket; more than one must be in 127.0.0.0/8
    /// [default: one per socket towards an IPv4 loopback address, otherwise 1]
    #[arg(long, value_name = "N", value_parser = positive)]
    sources: Option<NonZeroUsize>,

    /// How long to wait for a reply until the request counts as lost
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    timeout: Duration,

    /// The back end that moves the datagrams: mmsg or uring
    #[arg(long, value_name = "BACKEND", default_value_t = Backend::ALL[0])]
    io: Backend,

    /// Where the closed loop runs: behind sockets, or as an eBPF program at the driver hook of the interface to the tracker
    /// (xdp), which turns each reply into the next request. The latter takes root, IPv4 and one thread, and keeps at most
    /// 224 requests in flight; the fill and an open loop use sockets
    #[arg(long, value_name = "BACKEND", default_value = "sockets")]
    backend: LoopBackend,

    /// The interface to the tracker, for --backend xdp [default: the one with the source address]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
}

/// Where the closed loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LoopBackend {
    /// Behind sockets.
    Sockets,
    /// At the driver hook.
    Xdp,
}

const EXAMPLES: &str = "\
Examples:
  shoal-lab load udp 127.0.0.1:6969 --torrents 100000 --peers 200000
  shoal-lab load udp tracker.example.org:6969 --rate 1000 --duration 30s --no-fill
  shoal-lab load udp 127.0.0.1:6969 --herd 1000000 --within 10s --sockets 64
  shoal-lab load udp 198.51.100.1:6969 --backend xdp --interface eth1 --cpus 1
  shoal-lab load udp [::1]:6969 --mix 0:1:0 --popularity zipf:1.0 --announces-per-life 20 --json";

/// The load that is particular to UDP, in the JSON result.
#[derive(Serialize)]
struct UdpDocument {
    sockets_per_worker: usize,
    io: String,
    own_address_is_wrong: bool,
}

impl UdpArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let plan = self.plan()?;
        if let Some(herd) = self.herd.herd() {
            return herd::run(&plan, &herd, self.measurement.json);
        }
        let load = UdpDocument {
            sockets_per_worker: plan.sources.sockets_per_worker.get(),
            io: plan.io.to_string(),
            own_address_is_wrong: plan.own_address_is_wrong,
        };
        let target = plan.target.to_string();
        let run = LoadRun { target, plan: &plan, window: self.window, load };
        match self.generator.backend {
            LoopBackend::Sockets => self.measurement.run(&run, || udp::open(&plan)),
            LoopBackend::Xdp => {
                let of_source =
                    || udp::interface_of(plan.sources.first).context("give the --interface to the tracker");
                let interface = self.generator.interface.clone().map_or_else(of_source, Ok)?;
                let hook = udp::DriverHook::attach(&interface)?;
                self.measurement.run(&run, || udp::open_at_driver(&plan, &hook))
            }
        }
    }

    fn plan(&self) -> Result<Plan> {
        let Preset { population, mix, numwant, scrape_hashes_max, .. } = self.shape.load();
        let UdpGeneratorArgs { threads, sockets, source, sources, timeout, io, .. } = &self.generator;
        let workers = threads.workers();
        let address = self.target.choose_udp(*source)?;
        let first = match source {
            Some(source) => *source,
            None => source_for(address)?,
        };
        let many = first.is_ipv4() && first.is_loopback();
        let all_sockets = NonZeroUsize::new(workers.len() * sockets.get()).unwrap_or(NonZeroUsize::MIN);
        let addresses = sources.unwrap_or(if many { all_sockets } else { NonZeroUsize::MIN });
        Ok(Plan {
            target: address,
            population,
            mix,
            numwant,
            scrape_hashes_max,
            sources: Sources { first, addresses, sockets_per_worker: *sockets },
            workers,
            seed: self.shape.seed,
            io: *io,
            timeout: *timeout,
            own_address_is_wrong: !self.measurement.tolerate_own_address,
        })
    }
}

fn target(text: &str) -> Result<Addresses> {
    let host = text.strip_prefix("udp://").unwrap_or(text);
    let host = host.split('/').next().unwrap_or(host);
    Addresses::resolve(host, "give HOST:PORT, such as 127.0.0.1:6969, [::1]:6969 or tracker.example.org:6969")
}

fn window(text: &str) -> Result<usize> {
    let window = text.parse().ok().filter(|window| (1..=WINDOW_MAX).contains(window));
    window.with_context(|| format!("give an integer from 1 to {WINDOW_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_parsed_or_refused() {
        let read = |text: &str| target(text).unwrap().choose_udp(None).unwrap().to_string();
        assert_eq!(read("127.0.0.1:80"), "127.0.0.1:80");
        assert_eq!(read("udp://[::1]:6969/announce"), "[::1]:6969");
        for refused in ["", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", "http://127.0.0.1:80"] {
            assert!(target(refused).is_err(), "{refused}");
        }
    }
}
