//! `shoal-lab load udp`.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use shoal_load::udp::{WINDOW_MAX, open};
use shoal_load::{Plan, Preset, Sources};
use shoal_net::Backend;

use super::course::{Course, Subject};
pub(crate) use super::spelling::duration;
use super::spelling::{Threads, resolve, source_for};
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

    /// Requests in flight in the closed loop, of each worker. More than the tracker's socket buffer holds are lost
    #[arg(long, value_name = "N", default_value = "256", conflicts_with = "rate", value_parser = window)]
    window: usize,

    #[command(flatten)]
    course: Course,

    #[command(flatten)]
    shape: Shape,

    #[command(flatten)]
    generator: Generator,
}

/// How the generator works.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The generator")]
struct Generator {
    #[command(flatten)]
    threads: Threads,

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

const EXAMPLES: &str = "\
Examples:
  shoal-lab load udp 127.0.0.1:6969 --torrents 100000 --peers 200000
  shoal-lab load udp tracker.example.org:6969 --rate 1000 --duration 30s --no-fill
  shoal-lab load udp [::1]:6969 --mix 0:1:0 --popularity zipf:1.0 --announces-per-life 20 --json";

/// How the JSON spells the load.
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
        let subject = Subject { target: plan.target.to_string(), plan: &plan, window: self.window, load };
        self.course.measure(&subject, || open(&plan))
    }

    fn plan(&self) -> Result<Plan> {
        let Preset { population, mix, numwant, scrape_hashes_max, .. } = self.shape.load();
        let Generator { threads, sockets, source, sources, timeout, io } = &self.generator;
        let workers = threads.workers();
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
            own_address_is_wrong: !self.course.tolerate_own_address,
        })
    }
}

fn target(text: &str) -> Result<SocketAddr> {
    let host = text.strip_prefix("udp://").unwrap_or(text);
    let host = host.split('/').next().unwrap_or(host);
    resolve(host, "give HOST:PORT, such as 127.0.0.1:6969, [::1]:6969 or tracker.example.org:6969")
}

fn window(text: &str) -> Result<usize> {
    let window = text.parse().ok().filter(|window| (1..=WINDOW_MAX).contains(window));
    window.with_context(|| format!("give a whole number from 1 to {WINDOW_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_or_refused() {
        assert_eq!(target("127.0.0.1:80").unwrap(), "127.0.0.1:80".parse().unwrap());
        assert_eq!(target("udp://[::1]:6969/announce").unwrap(), "[::1]:6969".parse().unwrap());
        for refused in ["", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", "http://127.0.0.1:80"] {
            assert!(target(refused).is_err(), "{refused}");
        }
    }
}
