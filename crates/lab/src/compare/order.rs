//! From the command line to what is to be compared. Everything that can be wrong is found here, before anything runs.

use std::env;
use std::fs;
use std::iter;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use shoal_compare::description::Description;
use shoal_compare::division::Division;
use shoal_compare::find::Places;
use shoal_compare::idle;
use shoal_compare::install;
use shoal_compare::load::{Http, Load, Measure, Transport, Ws};
use shoal_compare::order::{Contender, Order};
use shoal_compare::preset::Preset;
use shoal_compare::topology::Topology;
use shoal_load::Population;

use super::{ANY_TRACKER, Compare, descriptors};

impl Compare {
    /// What is to be compared. The folder of the result is yet to be made.
    pub(super) fn order(&self) -> Result<Order> {
        let preset = Preset { shape: self.shape.load(), ..self.preset()? };
        let mut load = self.load(&preset);
        let (divisions, mut doubts) = self.divisions()?;
        doubts.extend(self.limit_connections(&mut load)?);
        for division in &divisions {
            load.check(ANY_TRACKER, division)?;
        }
        let contenders = self.contenders()?;
        Ok(Order {
            title: title(&load),
            command: command(),
            load,
            cpu_mode: self.processors.cpu_mode,
            divisions,
            doubts,
            rounds: self.measurement.rounds.get(),
            contenders,
            port: self.measurement.port,
            folder: PathBuf::new(),
        })
    }

    /// Who takes part: those that were named, or all; and those of the user's files.
    pub(super) fn contenders(&self) -> Result<Vec<Contender>> {
        let places = self.places()?;
        let mut all = Description::shipped().context("a shipped description")?;
        let shipped = all.len();
        for file in &self.tracker_file {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            let own = Description::parse(&text).with_context(|| format!("{}", file.display()))?;
            ensure!(
                all.iter().all(|other| other.name != own.name),
                "{}: name = {:?}: there is a tracker of this name already",
                file.display(),
                own.name
            );
            all.push(own);
        }
        let names: Vec<&str> = all.iter().map(|description| description.name.as_str()).collect();
        let named = self.trackers.iter().chain(self.program.iter().map(|(name, _)| name));
        for name in named {
            ensure!(names.contains(&name.as_str()), "there is no tracker {name:?}: use {}", names.join(", "));
        }
        let is_own = |index: usize| index >= shipped;
        let protocol = self.preset()?.transport.protocol();
        let chosen = |index: usize, description: &Description| {
            let is_meant = self.trackers.is_empty() && description.protocols.contains(&protocol);
            is_meant || self.trackers.contains(&description.name) || is_own(index)
        };
        let chosen = all.into_iter().enumerate().filter(|(index, description)| chosen(*index, description));
        Ok(chosen.map(|(_, description)| Contender::look_for(description, protocol, &places)).collect())
    }

    pub(super) fn tools_folder(&self) -> Result<PathBuf> {
        self.tools.clone().map_or_else(install::default_folder, Ok)
    }

    fn places(&self) -> Result<Places> {
        let this_program = env::current_exe().context("cannot find out where this program is")?;
        // Without a home there are no tools, and those on the PATH may do.
        let tools = self.tools_folder().unwrap_or_default();
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let chosen = self.program.iter().map(|(name, path)| (name.clone(), absolute(path))).collect();
        Ok(Places { tools: absolute(&tools), this_program, chosen })
    }

    fn divisions(&self) -> Result<(Vec<Division>, Vec<String>)> {
        let topology = Topology::of_this_machine().context("cannot find out which processors there are")?;
        let processors = &self.processors;
        let divide = |cores: &usize| {
            let (mode, overlap) = (processors.cpu_mode, processors.allow_overlap);
            Division::new(&topology, mode, *cores, processors.load_cores, overlap)
        };
        let mut cores = processors.cores.clone();
        cores.sort_unstable();
        cores.dedup();
        let divisions = cores.iter().map(divide).collect::<Result<Vec<_>, _>>()?;
        let doubts = divisions.iter().filter_map(|division| division.doubt(&topology)).collect();
        Ok((divisions, doubts))
    }

    fn load(&self, preset: &Preset) -> Load {
        let measurement = &self.measurement;
        let rate = measurement.latency_rate.unwrap_or(preset.latency_rate);
        Load {
            window: measurement.window.map_or(preset.window, NonZeroUsize::get),
            duration: measurement.duration,
            latency: (rate > 0.0).then_some((rate, measurement.latency_duration)),
            seed: self.shape.seed,
            io: measurement.io,
            timeout: measurement.timeout.unwrap_or(preset.timeout),
            sockets_per_worker: measurement.sockets.unwrap_or(preset.sockets),
            ..Load::of(preset)
        }
    }
}

impl Compare {
    /// Each connection takes a descriptor of this process and one of the tracker. What was asked for and cannot be is
    /// refused; of what nobody asked for there are as many as can be, where it is all the same how many.
    fn limit_connections(&self, load: &mut Load) -> Result<Option<String>> {
        let descriptors = descriptors::raise();
        let most = idle::connections_max(descriptors);
        let asked = self.measurement.connections;
        if let Some(asked) = asked {
            ensure!(
                asked.get() <= most,
                "--connections {asked}: at most {descriptors} files may be open, and that is room for {most}; raise the \
                 limit (ulimit -n)"
            );
        }
        if let Measure::Idle { connections } = &mut load.measure {
            *connections = asked.map_or(*connections, NonZeroUsize::get);
            let wanted = *connections;
            *connections = wanted.min(most);
            return Ok((wanted > most).then(|| {
                format!(
                    "{most} connections in place of {wanted}: no more than {descriptors} files may be open"
                )
            }));
        }
        if let Transport::Ws(ws) = &mut load.transport {
            self.set_traders(ws, &mut load.population)?;
        }
        let standing = load.transport.standing();
        ensure!(
            standing <= most,
            "{standing} connections: at most {descriptors} files may be open, and that is room for {most}; raise the limit \
             (ulimit -n), or give fewer (--connections)"
        );
        Ok(None)
    }

    /// Every connection has a peer at least, so that who gives one of the numbers means both.
    fn set_traders(&self, ws: &mut Ws, population: &mut Population) -> Result<()> {
        let peers = NonZeroUsize::new(usize::try_from(population.peers)?).unwrap_or(NonZeroUsize::MIN);
        match (self.measurement.connections, self.shape.peers) {
            (None, _) => ws.connections = ws.connections.min(peers),
            (Some(asked), None) => {
                population.peers = u32::try_from(asked.get()).context("--connections: too many")?;
                ws.connections = asked;
            }
            (Some(asked), Some(peers)) => {
                ensure!(
                    asked.get() <= peers as usize,
                    "--connections {asked}: give as many --peers at least"
                );
                ws.connections = asked;
            }
        }
        Ok(())
    }
}

/// The command line. Names of files need not be text, and then they are shown as well as can be.
fn command() -> Vec<String> {
    let words = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    iter::once("shoal-lab".to_owned()).chain(words).collect()
}

fn title(load: &Load) -> String {
    let shoal_load::Mix { connect, announce, scrape } = load.mix;
    let carrier = carrier(load.transport);
    if let Measure::Idle { connections } = load.measure {
        return format!("{carrier}: {connections} idle connections");
    }
    let mix = match load.transport {
        _ if (connect, scrape) == (0, 0) => "announces only".to_owned(),
        Transport::Udp => format!("{connect} connects : {announce} announces : {scrape} scrapes"),
        Transport::Http(_) | Transport::Ws(_) => format!("{announce} announces : {scrape} scrapes"),
    };
    if let Transport::Ws(Ws { connections, offers, sdp_bytes, deaf, .. }) = load.transport {
        let torrents = count(load.population.torrents);
        let beside =
            if deaf > 0 { format!(", without and with {deaf} that are never read") } else { String::new() };
        return format!(
            "{carrier}: {connections} connections, {mix}, {offers} offers of {sdp_bytes} bytes each, {torrents} \
             torrents{beside}"
        );
    }
    let (torrents, peers) = (count(load.population.torrents), count(load.population.peers));
    format!("{carrier}: {mix}, {torrents} torrents, {peers} peers, {} wanted", load.numwant)
}

fn carrier(transport: Transport) -> &'static str {
    match transport {
        Transport::Udp => "UDP",
        Transport::Http(Http { tls: false, keep_alive: true, .. }) => "HTTP, keep-alive",
        Transport::Http(Http { tls: false, keep_alive: false, .. }) => "HTTP, a connection for each request",
        Transport::Http(Http { tls: true, keep_alive: true, .. }) => "HTTPS, keep-alive",
        Transport::Http(Http { tls: true, resumption: false, .. }) => {
            "HTTPS, a full handshake for each request"
        }
        Transport::Http(Http { tls: true, resumption: true, .. }) => {
            "HTTPS, a resumed session for each request"
        }
        Transport::Ws(Ws { tls: false, .. }) => "WebTorrent over WS",
        Transport::Ws(Ws { tls: true, .. }) => "WebTorrent over WSS",
    }
}

/// A count for people: millions and thousands where they are whole.
fn count(number: u32) -> String {
    match number {
        millions if millions > 0 && millions % 1_000_000 == 0 => format!("{} M", millions / 1_000_000),
        thousands if thousands > 0 && thousands % 1000 == 0 => format!("{} k", thousands / 1000),
        number => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_says_what_is_compared() {
        let of = |name: &str| Load::of(&Preset::find(name).unwrap());
        let mut load = of("published");
        assert_eq!(
            title(&load),
            "UDP: 50 connects : 50 announces : 1 scrapes, 1 M torrents, 2 M peers, 30 wanted"
        );
        load.mix = shoal_load::Mix { connect: 0, announce: 1, scrape: 0 };
        load.population.torrents = 1500;
        assert_eq!(title(&load), "UDP: announces only, 1500 torrents, 2 M peers, 30 wanted");
        assert_eq!(
            title(&of("https-published")),
            "HTTPS, a full handshake for each request: announces only, 10 k torrents, 20 k peers, 50 wanted"
        );
        assert_eq!(title(&of("https-idle")), "HTTPS, keep-alive: 10000 idle connections");
        assert_eq!(
            title(&of("webtorrent-tls")),
            "WebTorrent over WSS: 1000 connections, announces only, 10 offers of 2048 bytes each, 20 torrents"
        );
        assert!(title(&of("ws-deaf")).ends_with(", without and with 1000 that are never read"));
    }
}
