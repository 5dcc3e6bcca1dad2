//! `shoal-lab load http`.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use shoal_load::http::{HttpSettings, PRESETS, Preset, Reuse, open};

use super::args::positive;
use super::generator::{ConnectionGeneratorArgs, SOURCES_MAX};
use super::measure::{LoadRun, MeasureArgs};
use super::target::{LoadTarget, scrape_path};
use super::tls::TlsArgs;
use crate::process::{or_usage, raise_open_files_limit};
use crate::shape::ShapeArgs;

/// Put load on an HTTP tracker (BEP 3), plain or with TLS: fill it with peers, then measure.
///
/// Without --rate, the loop is closed: every connection carries a request (or --pipelining of them), and each reply
/// makes room for the next. This finds the most that the tracker can answer. With --rate, the loop is open: requests
/// are sent at a fixed rate, and latency counts from the scheduled time of each request, so that a stall of the
/// tracker, or a wait for a connection, shows in full.
///
/// Connections stay open for all requests, or carry one each with --connection-per-request; the tracker is filled over
/// persistent connections in any case. With --hold, only the number of idle connections that the tracker holds is
/// measured: each carries one announce and is then idle until the time is up.
///
/// Over TLS, every tracker gets the same handshake: TLS 1.3 (or --tls 1.2) with X25519, and a full one for each
/// connection unless --resumption is given. Certificates are verified only with --ca, since verification costs the
/// generator as much as the signature costs the tracker.
///
/// Only good replies count as responses and for the latency. Refusals (a failure reason), replies that break a rule
/// (status, bencoding, keys, too many peers, the announcer among them, impossible counts), lost requests, and failed
/// connections are counted separately.
///
/// Ctrl-C ends the run early and keeps the measurements. Exit code 0: measured; 1: failed, or the tracker fell
/// silent, or not one reply was good; 2: the command line is invalid; 130: Ctrl-C before the first measurement, or
/// twice.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    mut_arg("preset", |arg| arg
        .default_value(PRESETS[0].shape.name)
        .help("A named load: http, or https-published (10,000 torrents by a gamma distribution, TLS 1.3 and a \
               connection for each announce)")
        .value_parser(preset)),
)]
pub(crate) struct HttpArgs {
    /// The tracker, as http://HOST:PORT/PATH, https://HOST:PORT/PATH, or HOST:PORT (default: port 6969 and /announce)
    #[arg(value_name = "URL", value_parser = LoadTarget::http)]
    target: LoadTarget,

    #[command(flatten)]
    measurement: MeasureArgs,

    #[command(flatten)]
    transport: HttpTransportArgs,

    #[command(flatten)]
    shape: ShapeArgs,

    #[command(flatten)]
    generator: ConnectionGeneratorArgs,
}

/// The options of the connections.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The connections")]
struct HttpTransportArgs {
    /// Connections per worker
    #[arg(long, value_name = "N", default_value = "64", value_parser = positive)]
    connections: NonZeroUsize,

    /// Open a connection for each request
    #[arg(long)]
    connection_per_request: bool,

    /// Requests in flight on a connection
    #[arg(long, value_name = "N", default_value = "1", conflicts_with_all = ["connection_per_request", "rate"], value_parser = positive)]
    pipelining: NonZeroUsize,

    /// Open this many connections, announce one peer on each, and hold them until the time is up
    #[arg(long, value_name = "N",
        conflicts_with_all = ["connections", "connection_per_request", "pipelining", "rate", "requests"], value_parser = positive)]
    hold: Option<NonZeroUsize>,

    /// Close connections by a reset: no host keeps them in TIME-WAIT for a minute, but ordinary clients do not do this
    #[arg(long)]
    reset: bool,

    #[command(flatten)]
    tls: TlsArgs,

    /// The path of announces, if the URL has none [default: /announce]. BEP 48 defines the path of scrapes
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  shoal-lab load http http://127.0.0.1:6969/announce --torrents 2000 --peers 100000
  shoal-lab load http 127.0.0.1:3000 --tls --connection-per-request --resumption
  shoal-lab load http https://tracker.example.org/announce --rate 100 --duration 30s --no-fill --ca authority.pem
  shoal-lab load http 127.0.0.1:6969 --hold 10000 --duration 30s";

/// Connections that are opened at the same time if they are to be held.
const HOLD_WINDOW: usize = 64;

/// The load that is particular to HTTP, in the JSON result.
#[derive(Serialize)]
struct HttpDocument<'s> {
    #[serde(flatten)]
    settings: &'s HttpSettings,
    connection_per_request: bool,
    held: bool,
    own_address_is_wrong: bool,
}

impl HttpArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        or_usage(self.settings(), |settings| {
            let fitting = match settings.reuse {
                Reuse::PerRequest => SOURCES_MAX,
                Reuse::KeepAlive => settings.connections.get(),
                Reuse::Held => self.transport.hold.map_or(1, NonZeroUsize::get),
            };
            let mut plan = self.generator.plan(&self.target, &self.shape, fitting)?;
            plan.own_address_is_wrong = !self.measurement.tolerate_own_address;
            raise_open_files_limit();
            let (connections, depth) = (settings.connections.get(), settings.pipelining.get());
            let window = if settings.reuse == Reuse::Held { HOLD_WINDOW } else { connections * depth };
            let load = HttpDocument {
                settings: &settings,
                connection_per_request: settings.reuse == Reuse::PerRequest,
                held: settings.reuse == Reuse::Held,
                own_address_is_wrong: plan.own_address_is_wrong,
            };
            let run = LoadRun {
                target: self.target.url(settings.tls.is_some(), &settings.announce_path),
                plan: &plan,
                window,
                load,
            };
            self.measurement.run(&run, || open(&plan, &settings))
        })
    }

    fn settings(&self) -> Result<HttpSettings> {
        let HttpTransportArgs { connections, pipelining, hold, reset, tls, path, .. } = &self.transport;
        let target = &self.target;
        let path = path.as_ref().or(target.path.as_ref());
        let path = path.map_or_else(|| "/announce".to_owned(), Clone::clone);
        let scrape_path = scrape_path(&path);
        ensure!(
            scrape_path.is_some() || self.shape.load().mix.scrape == 0,
            "{path} has no path for scrapes (BEP 48): give a path whose last part begins with announce, or a mix without \
             scrapes"
        );
        let preset = Preset::find(self.shape.preset.name);
        let tls = tls.settings(target, preset.is_some_and(|preset| preset.tls))?;
        let reuse = match hold {
            Some(_) => Reuse::Held,
            None if self.transport.connection_per_request => Reuse::PerRequest,
            None => preset.map_or(Reuse::KeepAlive, |preset| preset.reuse),
        };
        let workers = self.generator.threads.workers().len().max(1);
        let share = |held: NonZeroUsize| NonZeroUsize::new(held.get().div_ceil(workers)).unwrap_or(held);
        Ok(HttpSettings {
            host: target.host.clone(),
            announce_path: path.clone(),
            scrape_path: scrape_path.unwrap_or(path),
            tls,
            connections: hold.map_or(*connections, share),
            pipelining: *pipelining,
            reuse,
            reset: *reset,
        })
    }
}

fn preset(name: &str) -> Result<shoal_load::Preset> {
    let names = || PRESETS.map(|preset| preset.shape.name).join(", ");
    let found =
        Preset::find(name).with_context(|| format!("there is no preset {name:?}: use {}", names()))?;
    Ok(found.shape)
}
