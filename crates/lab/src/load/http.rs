//! `shoal-lab load http`.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use shoal_load::Plan;
use shoal_load::http::{HttpSettings, PRESETS, Preset, Reuse, open};
use shoal_net::Backend;

use super::course::{Course, Subject, USAGE};
use super::generator::{Generator, SOURCES_MAX, allow_many_descriptors};
use super::target::{Target, scrape_path};
use super::tls::{Tls, version_in_words};
use crate::output;
use crate::shape::Shape;

/// Put load on an HTTP tracker (BEP 3), plain or by TLS: fill it with peers, then measure.
///
/// Without --rate the loop is closed: every connection carries a request (or --pipelining of them), and each reply
/// makes room for the next; this finds the most that the tracker answers. With --rate the loop is open: requests leave
/// at a fixed rate, and latency counts from the moment at which each should have left, so that a stall of the tracker,
/// or a wait for a connection, shows in full.
///
/// Connections stay for all requests, or with --connection-per-request carry one each; the tracker is filled over
/// connections that stay in any case. With --hold nothing is measured but how many connections a tracker holds that do
/// nothing: each carries one announce and is then left alone, until the time is up.
///
/// By TLS every tracker is asked for the same: TLS 1.3 (or --tls 1.2) with X25519, a full handshake for each connection
/// unless --resumption is given. Certificates are not verified unless --ca says whom to trust, since that would cost
/// the generator as much as its signature costs the tracker.
///
/// Good replies make the headline, and theirs is the latency. Refusals (a failure reason), replies that break a rule
/// (status, bencoding, keys, too many peers, oneself among them, counts that cannot be), requests that are lost, and
/// connections that fail are counted apart.
///
/// Ctrl-C ends the run early with what was measured. Exit code 0: measured; 1: failed, or the tracker fell silent, or
/// not one reply was good; 2: the command line is wrong; 130: Ctrl-C before anything was measured, or twice.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    mut_arg("preset", |arg| arg
        .default_value(PRESETS[0].shape.name)
        .help("A load with a name: http, or https-published (10,000 torrents by a gamma distribution, TLS 1.3 and a \
               connection for each announce)")
        .value_parser(preset)),
)]
pub(crate) struct Http {
    /// The tracker, as http://HOST:PORT/PATH, https://HOST:PORT/PATH, or HOST:PORT (port 6969 and /announce unless given)
    #[arg(value_name = "URL", value_parser = Target::http)]
    target: Target,

    #[command(flatten)]
    course: Course,

    #[command(flatten)]
    transport: Transport,

    #[command(flatten)]
    shape: Shape,

    #[command(flatten)]
    generator: Generator,
}

/// How requests get to the tracker.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The connections")]
struct Transport {
    /// Connections of each worker
    #[arg(long, value_name = "N", default_value = "64")]
    connections: NonZeroUsize,

    /// A connection for each request, instead of connections that stay
    #[arg(long)]
    connection_per_request: bool,

    /// Requests under way on a connection at once
    #[arg(long, value_name = "N", default_value = "1", conflicts_with_all = ["connection_per_request", "rate"])]
    pipelining: NonZeroUsize,

    /// Open so many connections, on each of which one peer announces itself, and hold them until the time is up
    #[arg(long, value_name = "N",
        conflicts_with_all = ["connections", "connection_per_request", "pipelining", "rate", "requests"])]
    hold: Option<NonZeroUsize>,

    /// End connections by a reset: neither host then remembers a connection for a minute, but it is not what clients do
    #[arg(long)]
    reset: bool,

    #[command(flatten)]
    tls: Tls,

    /// Where announces go, if the address does not say it [default: /announce]. Scrapes go where BEP 48 says
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  shoal-lab load http http://127.0.0.1:6969/announce --torrents 2000 --peers 100000
  shoal-lab load http 127.0.0.1:3000 --tls --connection-per-request --resumption
  shoal-lab load http https://tracker.example.org/announce --rate 100 --duration 30s --no-fill --ca authority.pem
  shoal-lab load http 127.0.0.1:6969 --hold 10000 --duration 30s";

/// Connections that are opened at once where they are to be held.
const HOLD_WINDOW: usize = 64;

/// How the JSON spells the load.
#[derive(Serialize)]
struct LoadDocument {
    population: shoal_load::Population,
    mix: shoal_load::Mix,
    numwant: i32,
    scrape_hashes_max: usize,
    seed: u64,
    workers: usize,
    connections_per_worker: usize,
    connection_per_request: bool,
    held: bool,
    pipelining: usize,
    reset: bool,
    tls: Option<&'static str>,
    key_exchange: Option<&'static str>,
    resumption: bool,
    certificates_verified: bool,
    announce_path: String,
    first_source: IpAddr,
    source_addresses: usize,
    timeout_s: f64,
    own_address_is_wrong: bool,
}

impl Http {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let settings = match self.settings() {
            Ok(settings) => settings,
            Err(error) => {
                output::tell(&format!("shoal-lab: {error}"));
                return Ok(ExitCode::from(USAGE));
            }
        };
        let plan = self.plan()?;
        allow_many_descriptors();
        let (connections, depth) = (settings.connections.get(), settings.pipelining.get());
        let window = if settings.reuse == Reuse::Held { HOLD_WINDOW } else { connections * depth };
        let subject = Subject {
            target: self.target.url(settings.tls.is_some(), &settings.announce_path),
            plan: &plan,
            window,
            load: document(&plan, &settings),
        };
        self.course.measure(&subject, || open(&plan, &settings))
    }

    /// What connections are used for, the preset included.
    fn reuse(&self) -> Reuse {
        match self.transport.hold {
            Some(_) => Reuse::Held,
            None if self.transport.connection_per_request => Reuse::PerRequest,
            None => self.preset().map_or(Reuse::Kept, |preset| preset.reuse),
        }
    }

    fn preset(&self) -> Option<Preset> {
        Preset::find(self.shape.preset.name)
    }

    fn settings(&self) -> Result<HttpSettings> {
        let Transport { connections, pipelining, hold, reset, tls, path, .. } = &self.transport;
        let target = &self.target;
        let path = match (path, &target.path) {
            (Some(path), _) => path.clone(),
            (None, Some(path)) => path.clone(),
            (None, None) => "/announce".to_owned(),
        };
        let scrape_path = scrape_path(&path);
        ensure!(
            scrape_path.is_some() || self.shape.load().mix.scrape == 0,
            "{path} has no place for scrapes (BEP 48): give a path whose last part begins with announce, or a mix \
             without scrapes"
        );
        let tls = tls.settings(target, self.preset().is_some_and(|preset| preset.tls))?;
        Ok(HttpSettings {
            host: target.host.clone(),
            announce_path: path.clone(),
            scrape_path: scrape_path.unwrap_or(path),
            tls,
            connections: hold.map_or(*connections, |hold| self.share_of(hold)),
            pipelining: *pipelining,
            reuse: self.reuse(),
            reset: *reset,
        })
    }

    /// What each worker has to hold of so many connections.
    fn share_of(&self, hold: NonZeroUsize) -> NonZeroUsize {
        let workers = self.generator.threads.workers().len().max(1);
        NonZeroUsize::new(hold.get().div_ceil(workers)).unwrap_or(hold)
    }

    fn plan(&self) -> Result<Plan> {
        let load = self.shape.load();
        let Generator { threads, timeout, .. } = &self.generator;
        let address = self.target.address;
        let fitting = match self.reuse() {
            Reuse::PerRequest => SOURCES_MAX,
            Reuse::Kept => self.transport.connections.get(),
            Reuse::Held => self.transport.hold.map_or(1, NonZeroUsize::get),
        };
        Ok(Plan {
            target: address,
            population: load.population,
            mix: load.mix,
            numwant: load.numwant,
            scrape_hashes_max: load.scrape_hashes_max,
            sources: self.generator.sources(address, fitting)?,
            workers: threads.workers(),
            seed: self.shape.seed,
            io: Backend::ALL[0],
            timeout: *timeout,
            own_address_is_wrong: !self.course.tolerate_own_address,
        })
    }
}

fn document(plan: &Plan, settings: &HttpSettings) -> LoadDocument {
    let tls = settings.tls.as_ref();
    LoadDocument {
        population: plan.population,
        mix: plan.mix,
        numwant: plan.numwant,
        scrape_hashes_max: plan.scrape_hashes_max,
        seed: plan.seed,
        workers: plan.workers.len(),
        connections_per_worker: settings.connections.get(),
        connection_per_request: settings.reuse == Reuse::PerRequest,
        held: settings.reuse == Reuse::Held,
        pipelining: settings.pipelining.get(),
        reset: settings.reset,
        tls: tls.map(version_in_words),
        key_exchange: tls.map(|_| "X25519"),
        resumption: tls.is_some_and(|tls| tls.resumption),
        certificates_verified: tls.is_some_and(|tls| tls.trusted.is_some()),
        announce_path: settings.announce_path.clone(),
        first_source: plan.sources.first,
        source_addresses: plan.sources.addresses.get(),
        timeout_s: plan.timeout.as_secs_f64(),
        own_address_is_wrong: plan.own_address_is_wrong,
    }
}

fn preset(name: &str) -> Result<shoal_load::Preset> {
    let names = || PRESETS.map(|preset| preset.shape.name).join(", ");
    let found =
        Preset::find(name).with_context(|| format!("there is no preset {name:?}: use {}", names()))?;
    Ok(found.shape)
}
