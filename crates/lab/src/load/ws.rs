//! `shoal-lab load ws`.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::{Context, Result};
use shoal_load::ws::{PRESETS, Preset, WsSettings, open};

use super::args::{positive, rate};
use super::generator::ConnectionGeneratorArgs;
use super::measure::{LoadRun, MeasureArgs};
use super::target::LoadTarget;
use super::tls::TlsArgs;
use crate::process::{or_usage, raise_open_files_limit};
use crate::shape::ShapeArgs;

/// Put load on a WebTorrent tracker over WebSockets, plain or with TLS: open all connections, fill it with peers, then
/// measure.
///
/// Each peer announces itself with offers, which the tracker relays to other peers. All peers belong to this
/// generator and answer some of the offers. So the generator knows for every offer and answer whether it arrived,
/// intact and at the right peer, and how long that took. Without --rate, the loop is closed: every connection
/// announces again when it has the reply to its announce. This finds the most that the tracker can relay. With
/// --rate, the loop is open: announces are sent at a fixed rate, and latencies count from the scheduled time of each
/// announce.
///
/// The measurement begins when all connections are open, which --ramp makes slower and more realistic. Connections of
/// --hold stay open beside the others and are idle; at the end each has to answer a ping. Connections of --slow-readers
/// announce once and never read again, like a browser that hangs: a tracker has to tolerate them, and they should not
/// affect the others.
///
/// Good replies to announces and scrapes count as responses. Offers and answers are reported separately with their
/// latency, and so are errors (a failure reason), replies that break a rule, lost requests, and failed connections.
///
/// The options for TLS are those of load http. Ctrl-C ends the run early and keeps the measurements. Exit code 0:
/// measured; 1: failed, or the tracker fell silent, or not one reply was good; 2: the command line is invalid; 130:
/// Ctrl-C before the first measurement, or twice.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    mut_arg("preset", |arg| arg
        .default_value(PRESETS[0].shape.name)
        .help("A named load: ws (256 connections), ws-published and wss-published (1,020 connections, the latter \
               over TLS 1.3), wss-published-large (49,152 connections over TLS 1.3), or desktop (100 connections over TLS \
               1.3, each of a client with 200 torrents)")
        .value_parser(preset)),
    mut_arg("peers", |arg| arg
        .help("Number of peers, over all torrents; peers on the same connection share its peer id [default: one for each \
               connection; with desktop 200]")),
    // Replies contain no addresses.
    mut_arg("tolerate_own_address", |arg| arg.hide(true)),
)]
pub(crate) struct WsArgs {
    /// The tracker, as ws://HOST:PORT/PATH, wss://HOST:PORT/PATH, or HOST:PORT (default: port 6969 and /announce)
    #[arg(value_name = "URL", value_parser = LoadTarget::web_socket)]
    target: LoadTarget,

    #[command(flatten)]
    measurement: MeasureArgs,

    #[command(flatten)]
    transport: WsTransportArgs,

    #[command(flatten)]
    signalling: SignallingArgs,

    #[command(flatten)]
    shape: ShapeArgs,

    #[command(flatten)]
    generator: ConnectionGeneratorArgs,
}

/// The options of the connections.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The connections")]
struct WsTransportArgs {
    /// Connections on which peers announce, of all threads together [default: that of the preset]
    #[arg(long, value_name = "N", value_parser = positive)]
    connections: Option<NonZeroUsize>,

    /// Open this many connections a second, including handshakes [default: as fast as possible]
    #[arg(long, value_name = "PER-SECOND", value_parser = rate)]
    ramp: Option<f64>,

    /// Average number of announces on a connection, which is then closed and opened again; 0: none is closed [default: that of
    /// the preset]
    #[arg(long, value_name = "N")]
    announces_per_connection: Option<u32>,

    /// Hold this many additional idle connections, and ping them at the end
    #[arg(long, value_name = "N", default_value = "0")]
    hold: usize,

    /// Announce a peer once on each held connection, which then receives offers
    #[arg(long, requires = "hold")]
    hold_announce: bool,

    /// Open this many additional connections that announce a peer once and never read again
    #[arg(long, value_name = "N", default_value = "0")]
    slow_readers: usize,

    #[command(flatten)]
    tls: TlsArgs,

    /// The path of the WebSocket, if the URL has none [default: /announce]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,

    /// The Origin header: scheme and host of the page of the peers [default: none]
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
}

/// The options of offers and answers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The load")]
struct SignallingArgs {
    /// Offers in each announce
    #[arg(long, value_name = "N")]
    offers: Option<usize>,

    /// Bytes of the session description in an offer or answer; browsers have about 2048, plain data channels from 256
    #[arg(long, value_name = "BYTES")]
    sdp_bytes: Option<usize>,

    /// Share of the relayed offers that are answered, 0 to 1
    #[arg(long, value_name = "SHARE")]
    answers: Option<f64>,
}

const EXAMPLES: &str = "\
Examples:
  shoal-lab load ws ws://127.0.0.1:6969/announce --torrents 20 --connections 500
  shoal-lab load ws 127.0.0.1:3000 --preset wss-published --duration 30s
  shoal-lab load ws wss://127.0.0.1:443/announce --preset desktop --rate 11
  shoal-lab load ws wss://tracker.example.org/ --rate 20 --no-fill --origin https://example.org
  shoal-lab load ws 127.0.0.1:6969 --rate 200 --slow-readers 1000
  shoal-lab load ws 127.0.0.1:6969 --tls --connections 100 --hold 15000 --ramp 2000 --json";

impl WsArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        or_usage(self.settings(), |settings| {
            let connections = settings.connections.get();
            let all = connections.saturating_add(settings.held).saturating_add(settings.slow_readers);
            // An address has about 28,000 ports for one tracker. A part of them stays free for reconnects.
            let mut plan = self.generator.plan(&self.target, &self.shape, all.div_ceil(8192))?;
            let preset = self.preset()?;
            let by_default = || {
                let connections = u32::try_from(connections).unwrap_or(u32::MAX);
                connections.saturating_mul(preset.peers_per_connection)
            };
            plan.population.peers = self.shape.peers.unwrap_or_else(by_default);
            raise_open_files_limit();
            let run = LoadRun {
                target: self.target.url(settings.tls.is_some(), &settings.path),
                plan: &plan,
                window: connections.div_ceil(plan.workers.len().max(1)),
                load: &settings,
            };
            self.measurement.run(&run, || open(&plan, &settings))
        })
    }

    fn preset(&self) -> Result<Preset> {
        Preset::find(self.shape.preset.name).context("the value parser accepts no other")
    }

    fn settings(&self) -> Result<WsSettings> {
        let WsTransportArgs {
            connections,
            ramp,
            announces_per_connection,
            hold,
            hold_announce,
            slow_readers,
            tls,
            path,
            origin,
        } = &self.transport;
        let preset = self.preset()?;
        let path = path.as_ref().or(self.target.path.as_ref());
        Ok(WsSettings {
            host: self.target.host.clone(),
            path: path.map_or_else(|| "/announce".to_owned(), Clone::clone),
            origin: origin.clone(),
            tls: tls.settings(&self.target, preset.tls)?,
            connections: connections.unwrap_or_else(|| preset.connections()),
            ramp: *ramp,
            offers: self.signalling.offers.unwrap_or(preset.offers),
            sdp_bytes: self.signalling.sdp_bytes.unwrap_or(preset.sdp_bytes),
            answer_share: self.signalling.answers.unwrap_or(preset.answer_share),
            announces_per_connection: announces_per_connection.unwrap_or(preset.announces_per_connection),
            held: *hold,
            held_announce: *hold_announce,
            slow_readers: *slow_readers,
        })
    }
}

fn preset(name: &str) -> Result<shoal_load::Preset> {
    let names = || PRESETS.map(|preset| preset.shape.name).join(", ");
    let found =
        Preset::find(name).with_context(|| format!("there is no preset {name:?}: use {}", names()))?;
    Ok(found.shape)
}
