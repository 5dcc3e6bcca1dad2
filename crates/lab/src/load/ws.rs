//! `shoal-lab load ws`.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;
use shoal_load::ws::{PRESETS, Preset, WsSettings, open};
use shoal_load::{Plan, Population};
use shoal_net::Backend;

use super::course::{Course, Subject, USAGE};
use super::generator::{Generator, allow_many_descriptors};
use super::spelling::rate;
use super::target::Target;
use super::tls::{Tls, version_in_words};
use crate::output;
use crate::shape::Shape;

/// Put load on a WebTorrent tracker, over WebSockets, plain or by TLS: open all connections, fill it with peers, then
/// measure.
///
/// Each peer announces itself with offers, which the tracker relays to other peers; all of these are of this generator,
/// and answer some. So it is seen of every offer and answer whether it arrived, whole and where it belongs, and how long
/// that took. Without --rate the loop is closed: every connection announces again when the reply to its announce has come;
/// this finds the most that the tracker relays. With --rate the loop is open: announces leave at a fixed rate, and
/// latencies count from the moment at which each should have left.
///
/// Nothing is measured before all connections stand, which --ramp makes slower and more like real life. Connections of
/// --hold stand beside the others and do nothing; at the end each has to answer a ping. Those of --deaf announce
/// themselves once and never read a byte again, as a stuck browser would: a tracker has to bear them, and the others
/// should not feel it.
///
/// Good replies to announces and scrapes make the headline. Offers and answers are told apart, with their latency; so are
/// errors (a failure reason), replies that break a rule, requests that are lost, and connections that fail.
///
/// TLS is asked for as by load http. Ctrl-C ends the run early with what was measured. Exit code 0: measured; 1: failed,
/// or the tracker fell silent, or not one reply was good; 2: the command line is wrong; 130: Ctrl-C before anything was
/// measured, or twice.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    mut_arg("preset", |arg| arg
        .default_value(PRESETS[0].shape.name)
        .help("A load with a name: ws (256 connections), ws-published and wss-published (1,020 connections, the latter \
               by TLS 1.3), or wss-published-large (49,152 connections by TLS 1.3)")
        .value_parser(preset)),
    mut_arg("peers", |arg| arg
        .help("Number of peers, over all torrents; several on a connection share its peer id [default: one for each \
               connection]")),
    // There are no addresses in it.
    mut_arg("tolerate_own_address", |arg| arg.hide(true)),
)]
pub(crate) struct Ws {
    /// The tracker, as ws://HOST:PORT/PATH, wss://HOST:PORT/PATH, or HOST:PORT (port 6969 and /announce unless given)
    #[arg(value_name = "URL", value_parser = Target::web_socket)]
    target: Target,

    #[command(flatten)]
    course: Course,

    #[command(flatten)]
    transport: Transport,

    #[command(flatten)]
    trade: Trade,

    #[command(flatten)]
    shape: Shape,

    #[command(flatten)]
    generator: Generator,
}

/// How connections get to the tracker.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The connections")]
struct Transport {
    /// Connections on which peers announce themselves, of all threads together [default: that of the preset]
    #[arg(long, value_name = "N")]
    connections: Option<NonZeroUsize>,

    /// Open so many connections a second, handshakes included [default: as fast as it goes]
    #[arg(long, value_name = "PER-SECOND", value_parser = rate)]
    ramp: Option<f64>,

    /// Hold so many more connections that do nothing, and ping them at the end
    #[arg(long, value_name = "N", default_value = "0")]
    hold: usize,

    /// Have a peer announce itself, once, on each connection that is held: it then takes offers
    #[arg(long, requires = "hold")]
    hold_announce: bool,

    /// So many more connections on which a peer announces itself once, and which are never read again
    #[arg(long, value_name = "N", default_value = "0")]
    deaf: usize,

    #[command(flatten)]
    tls: Tls,

    /// Where the WebSocket is asked for, if the address does not say it [default: /announce]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,

    /// What the header Origin says: the scheme and host of the page on which a peer lives [default: none]
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
}

/// What peers tell each other.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The load")]
struct Trade {
    /// Offers of each announce
    #[arg(long, value_name = "N")]
    offers: Option<usize>,

    /// Bytes of the session description of an offer or answer; browsers have about 2048, mere data channels from 256
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
  shoal-lab load ws wss://tracker.example.org/ --rate 20 --no-fill --origin https://example.org
  shoal-lab load ws 127.0.0.1:6969 --rate 200 --deaf 1000
  shoal-lab load ws 127.0.0.1:6969 --tls --connections 100 --hold 15000 --ramp 2000 --json";

/// How the JSON spells the load.
#[derive(Serialize)]
struct LoadDocument {
    population: Population,
    mix: shoal_load::Mix,
    numwant: i32,
    scrape_hashes_max: usize,
    seed: u64,
    workers: usize,
    connections: usize,
    ramp: Option<f64>,
    held: usize,
    held_announce: bool,
    deaf: usize,
    offers: usize,
    sdp_bytes: usize,
    answer_share: f64,
    tls: Option<&'static str>,
    key_exchange: Option<&'static str>,
    resumption: bool,
    certificates_verified: bool,
    path: String,
    origin: Option<String>,
    first_source: IpAddr,
    source_addresses: usize,
    timeout_s: f64,
}

impl Ws {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let settings = match self.settings() {
            Ok(settings) => settings,
            Err(error) => {
                output::tell(&format!("shoal-lab: {error}"));
                return Ok(ExitCode::from(USAGE));
            }
        };
        let plan = self.plan(&settings)?;
        allow_many_descriptors();
        let subject = Subject {
            target: self.target.url(settings.tls.is_some(), &settings.path),
            plan: &plan,
            window: settings.connections.get().div_ceil(plan.workers.len().max(1)),
            load: document(&plan, &settings),
        };
        self.course.measure(&subject, || open(&plan, &settings))
    }

    fn settings(&self) -> Result<WsSettings> {
        let Transport { connections, ramp, hold, hold_announce, deaf, tls, path, origin } = &self.transport;
        let preset = Preset::find(self.shape.preset.name).context("the command line takes no other")?;
        let of_preset = usize::try_from(preset.shape.population.peers).ok().and_then(NonZeroUsize::new);
        let path = path.as_ref().or(self.target.path.as_ref());
        Ok(WsSettings {
            host: self.target.host.clone(),
            path: path.map_or_else(|| "/announce".to_owned(), Clone::clone),
            origin: origin.clone(),
            tls: tls.settings(&self.target, preset.tls)?,
            connections: connections.or(of_preset).unwrap_or(NonZeroUsize::MIN),
            ramp: *ramp,
            offers: self.trade.offers.unwrap_or(preset.offers),
            sdp_bytes: self.trade.sdp_bytes.unwrap_or(preset.sdp_bytes),
            answer_share: self.trade.answers.unwrap_or(preset.answer_share),
            held: *hold,
            held_announce: *hold_announce,
            slow_readers: *deaf,
        })
    }

    fn plan(&self, settings: &WsSettings) -> Result<Plan> {
        let load = self.shape.load();
        let connections = settings.connections.get();
        let peers = self.shape.peers.unwrap_or_else(|| u32::try_from(connections).unwrap_or(u32::MAX));
        let seats = connections.saturating_add(settings.held).saturating_add(settings.slow_readers);
        // An address has about 28,000 ports for one tracker; a share of that leaves some for whoever dials again.
        let fitting = seats.div_ceil(8192);
        Ok(Plan {
            target: self.target.address,
            population: Population { peers, ..load.population },
            mix: load.mix,
            numwant: load.numwant,
            scrape_hashes_max: load.scrape_hashes_max,
            sources: self.generator.sources(self.target.address, fitting)?,
            workers: self.generator.threads.workers(),
            seed: self.shape.seed,
            io: Backend::ALL[0],
            timeout: self.generator.timeout,
            own_address_is_wrong: true,
        })
    }
}

fn document(plan: &Plan, settings: &WsSettings) -> LoadDocument {
    let tls = settings.tls.as_ref();
    LoadDocument {
        population: plan.population,
        mix: plan.mix,
        numwant: plan.numwant,
        scrape_hashes_max: plan.scrape_hashes_max,
        seed: plan.seed,
        workers: plan.workers.len(),
        connections: settings.connections.get(),
        ramp: settings.ramp,
        held: settings.held,
        held_announce: settings.held_announce,
        deaf: settings.slow_readers,
        offers: settings.offers,
        sdp_bytes: settings.sdp_bytes,
        answer_share: settings.answer_share,
        tls: tls.map(version_in_words),
        key_exchange: tls.map(|_| "X25519"),
        resumption: tls.is_some_and(|tls| tls.resumption),
        certificates_verified: tls.is_some_and(|tls| tls.trusted.is_some()),
        path: settings.path.clone(),
        origin: settings.origin.clone(),
        first_source: plan.sources.first,
        source_addresses: plan.sources.addresses.get(),
        timeout_s: plan.timeout.as_secs_f64(),
    }
}

fn preset(name: &str) -> Result<shoal_load::Preset> {
    let names = || PRESETS.map(|preset| preset.shape.name).join(", ");
    let found =
        Preset::find(name).with_context(|| format!("there is no preset {name:?}: use {}", names()))?;
    Ok(found.shape)
}
