//! Converts the command line to the plan of a comparison. All errors in it are found here, before anything runs.

use std::env;
use std::fs;
use std::iter;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use shoal_compare::cpu_assignment::CpuAssignment;
use shoal_compare::description::Description;
use shoal_compare::idle;
use shoal_compare::installation::SearchPaths;
use shoal_compare::installation::install;
use shoal_compare::load::preset::ComparisonPreset;
use shoal_compare::load::{HttpTransport, LoadSpec, Measure, Transport, WsTransport};
use shoal_compare::network::NetworkKind;
use shoal_compare::plan::{ComparisonPlan, Contender};
use shoal_compare::topology::Topology;
use shoal_load::Population;

use super::{ANY_TRACKER, CompareArgs, Net};
use crate::load::LoopBackend;
use crate::process::raise_open_files_limit;
use crate::terminal::{self, counted};

impl CompareArgs {
    /// Returns the plan of the comparison. Its folder is still to be created.
    pub(super) fn plan(&self) -> Result<ComparisonPlan> {
        let preset = ComparisonPreset { shape: self.shape.load(), ..self.preset()? };
        let mut load = self.load(&preset);
        let (assignments, mut warnings) = self.assignments()?;
        self.check_network(&load)?;
        warnings.extend(self.limit_connections(&mut load)?);
        for assignment in &assignments {
            load.check(ANY_TRACKER, assignment)?;
        }
        let contenders = self.contenders()?;
        Ok(ComparisonPlan {
            title: title(&load),
            command: command(),
            load,
            cpu_mode: self.processors.cpu_mode,
            assignments,
            warnings,
            rounds: self.measurement.rounds.get(),
            contenders,
            port: self.measurement.port,
            folder: PathBuf::new(),
        })
    }

    /// Returns the contenders: the named trackers, or all of them, and those of the user's files.
    pub(super) fn contenders(&self) -> Result<Vec<Contender>> {
        let search_paths = self.search_paths()?;
        let mut all = Description::built_in().context("a built-in description")?;
        let built_in = all.len();
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
            ensure!(names.contains(&name.as_str()), terminal::unknown("tracker", name, &names));
        }
        let is_own = |index: usize| index >= built_in;
        let protocol = self.preset()?.transport.protocol();
        let chosen = |index: usize, description: &Description| {
            let is_possible = !description.veth || self.measurement.net == Net::Veth;
            let by_default =
                self.trackers.is_empty() && is_possible && description.protocols.contains(&protocol);
            by_default || self.trackers.contains(&description.name) || is_own(index)
        };
        let chosen = all.into_iter().enumerate().filter(|(index, description)| chosen(*index, description));
        Ok(chosen.map(|(_, description)| Contender::look_for(description, protocol, &search_paths)).collect())
    }

    pub(super) fn tools_folder(&self) -> Result<PathBuf> {
        self.tools.clone().map_or_else(install::default_folder, Ok)
    }

    fn search_paths(&self) -> Result<SearchPaths> {
        let this_program = env::current_exe().context("cannot find the path of this program")?;
        // Without a home directory there are no tools, but those on the PATH may suffice.
        let tools = self.tools_folder().unwrap_or_default();
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let chosen = self.program.iter().map(|(name, path)| (name.clone(), absolute(path))).collect();
        Ok(SearchPaths { tools: absolute(&tools), this_program, chosen })
    }

    fn assignments(&self) -> Result<(Vec<CpuAssignment>, Vec<String>)> {
        let topology = Topology::of_this_machine().context("cannot find out which processors there are")?;
        let processors = &self.processors;
        let assign = |cores: &usize| {
            let (mode, overlap) = (processors.cpu_mode, processors.allow_overlap);
            CpuAssignment::new(&topology, mode, *cores, processors.load_cores, overlap)
        };
        let mut cores = processors.cores.clone();
        cores.sort_unstable();
        cores.dedup();
        let assignments = cores.iter().map(assign).collect::<Result<Vec<_>, _>>()?;
        let warnings = assignments.iter().filter_map(|assignment| assignment.warning(&topology)).collect();
        Ok((assignments, warnings))
    }

    /// Checks that the network fits the load.
    fn check_network(&self, load: &LoadSpec) -> Result<()> {
        if load.network == NetworkKind::Veth {
            ensure!(load.transport == Transport::Udp, "--net veth: for loads over UDP");
            ensure!(
                self.processors.cores == [1],
                "--net veth: an interface has one queue, so the tracker has one core (--cores 1)"
            );
        } else {
            ensure!(!load.at_driver, "--backend xdp: for --net veth");
        }
        Ok(())
    }

    fn load(&self, preset: &ComparisonPreset) -> LoadSpec {
        let measurement = &self.measurement;
        let rate = measurement.latency_rate.unwrap_or(preset.latency_rate);
        LoadSpec {
            window: measurement.window.map_or(preset.window, NonZeroUsize::get),
            spinners: measurement.spinners.unwrap_or(preset.spinners),
            duration: measurement.duration,
            latency: (rate > 0.0).then_some((rate, measurement.latency_duration)),
            seed: self.shape.seed,
            io: measurement.io,
            network: match measurement.net {
                Net::Loopback => NetworkKind::Loopback,
                Net::Veth => NetworkKind::Veth,
            },
            at_driver: match measurement.backend {
                None => measurement.net == Net::Veth,
                Some(backend) => backend == LoopBackend::Xdp,
            },
            timeout: measurement.timeout.unwrap_or(preset.timeout),
            sockets_per_worker: measurement.sockets.unwrap_or(preset.sockets),
            ..LoadSpec::of(preset)
        }
    }
    /// Limits the connections to the open files, since each takes a descriptor of this process and one of the tracker.
    /// Refuses a larger number on the command line. Reduces the default number of idle ones, and returns a warning.
    fn limit_connections(&self, load: &mut LoadSpec) -> Result<Option<String>> {
        let descriptors = raise_open_files_limit();
        let most = idle::connections_max(descriptors);
        let asked = self.measurement.connections;
        if let Some(asked) = asked {
            ensure!(
                asked.get() <= most,
                "--connections {asked}: the limit of {descriptors} open files leaves room for {most}; raise the limit (ulimit -n)"
            );
        }
        if let Measure::Idle { connections } = &mut load.measure {
            *connections = asked.map_or(*connections, NonZeroUsize::get);
            let wanted = *connections;
            *connections = wanted.min(most);
            return Ok((wanted > most).then(|| {
                format!(
                    "{most} connections instead of {wanted}: the limit of {descriptors} open files allows no more"
                )
            }));
        }
        if let Transport::Ws(ws) = &mut load.transport {
            self.set_connections(ws, &mut load.population)?;
        }
        let open = load.transport.open_connections();
        ensure!(
            open <= most,
            "{open} connections: the limit of {descriptors} open files leaves room for {most}; raise the limit (ulimit -n), \
             or give fewer (--connections)"
        );
        Ok(None)
    }

    /// Sets the numbers of connections and peers. Every connection has at least one peer, so one number determines the
    /// other unless both are given.
    fn set_connections(&self, ws: &mut WsTransport, population: &mut Population) -> Result<()> {
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
                    "--connections {asked}: give at least as many --peers"
                );
                ws.connections = asked;
            }
        }
        Ok(())
    }
}

/// Returns the command line. File names that are not valid text are shown approximately.
fn command() -> Vec<String> {
    let words = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    iter::once("shoal-lab".to_owned()).chain(words).collect()
}

fn title(load: &LoadSpec) -> String {
    let shoal_load::Mix { connect, announce, scrape } = load.mix;
    let transport = transport_name(load.transport);
    if let Measure::Idle { connections } = load.measure {
        return format!("{transport}: {connections} idle connections");
    }
    let announces = counted(announce, "announce", "announces");
    let scrapes = counted(scrape, "scrape", "scrapes");
    let mix = match load.transport {
        _ if (connect, scrape) == (0, 0) => "announces only".to_owned(),
        Transport::Udp => format!("{} : {announces} : {scrapes}", counted(connect, "connect", "connects")),
        Transport::Http(_) | Transport::Ws(_) => format!("{announces} : {scrapes}"),
    };
    if let Transport::Ws(WsTransport { connections, offers, sdp_bytes, slow_readers, .. }) = load.transport {
        let torrents = count(load.population.torrents);
        let suffix = match slow_readers {
            0 => String::new(),
            slow_readers => format!(", without and with {slow_readers} slow readers"),
        };
        return format!(
            "{transport}: {connections} connections, {mix}, {offers} offers of {sdp_bytes} bytes each, {torrents} \
             torrents{suffix}"
        );
    }
    let (torrents, peers) = (count(load.population.torrents), count(load.population.peers));
    format!("{transport}: {mix}, {torrents} torrents, {peers} peers, {} wanted", load.numwant)
}

fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Udp => "UDP",
        Transport::Http(HttpTransport { tls: false, keep_alive: true, .. }) => "HTTP, keep-alive",
        Transport::Http(HttpTransport { tls: false, keep_alive: false, .. }) => {
            "HTTP, a connection for each request"
        }
        Transport::Http(HttpTransport { tls: true, keep_alive: true, .. }) => "HTTPS, keep-alive",
        Transport::Http(HttpTransport { tls: true, resumption: false, .. }) => {
            "HTTPS, a full handshake for each request"
        }
        Transport::Http(HttpTransport { tls: true, resumption: true, .. }) => {
            "HTTPS, a resumed session for each request"
        }
        Transport::Ws(WsTransport { tls: false, .. }) => "WebTorrent over WS",
        Transport::Ws(WsTransport { tls: true, .. }) => "WebTorrent over WSS",
    }
}

/// Formats a count, in whole millions or thousands if possible.
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
    fn a_title_describes_the_comparison() {
        let of = |name: &str| LoadSpec::of(&ComparisonPreset::find(name).unwrap());
        let mut load = of("published");
        assert_eq!(
            title(&load),
            "UDP: 50 connects : 50 announces : 1 scrape, 1 M torrents, 2 M peers, 30 wanted"
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
        assert!(title(&of("ws-slow-readers")).ends_with(", without and with 1000 slow readers"));
    }
}
