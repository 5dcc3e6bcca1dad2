//! Converts the command line to the plan of a run. All errors in it are found here, before anything runs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use shoal_compare::cpu_assignment::{CpuAssignment, CpuMode};
use shoal_compare::description::{ChaosOptions, Description, Protocol};
use shoal_compare::installation::SearchPaths;
use shoal_compare::installation::install;
use shoal_compare::load::LoadSpec;
use shoal_compare::load::preset::ComparisonPreset;
use shoal_compare::topology::Topology;
use shoal_load::Population;
use shoal_trial::chaos::event::EventKind;
use shoal_trial::chaos::full_load::at_driver;
use shoal_trial::chaos::record::Lane;
use shoal_trial::chaos::run::ChaosPlan;
use shoal_trial::chaos::threshold::Threshold;
use shoal_trial::chaos::tracker::Subject;

use super::ChaosArgs;
use crate::process::raise_open_files_limit;
use crate::terminal;

/// The name of a tracker that is given as a command.
const COMMAND: &str = "command";

/// Descriptors that are not connections of the load.
const OTHER_DESCRIPTORS: u64 = 5000;

impl ChaosArgs {
    /// Returns the plan of the run.
    pub(super) fn plan(&self) -> Result<ChaosPlan> {
        let descriptors = raise_open_files_limit();
        let connections = self.load.websockets as u64 + u64::from(self.load.connections);
        ensure!(
            connections.saturating_add(OTHER_DESCRIPTORS) <= descriptors,
            "--websockets {}: the limit of {descriptors} open files leaves room for {}; raise the limit (ulimit -n)",
            self.load.websockets,
            descriptors.saturating_sub(OTHER_DESCRIPTORS + u64::from(self.load.connections))
        );
        let subject = self.subject()?;
        let serves = |protocol| subject.options.protocols.contains(&protocol);
        ensure!(
            self.load.websockets == 0 || serves(Protocol::Ws),
            "--websockets {}: the tracker is not described for WebTorrent",
            self.load.websockets
        );
        let http_rate = if serves(Protocol::Http) { self.load.http_rate / 2.0 } else { 0.0 };
        let is_full = subject.options.full_load;
        ensure!(!is_full || self.load.share.is_none(), "--share: {} has full load", subject.description.name);
        let load = self.fill_spec(is_full)?;
        let thresholds = if is_full { Threshold::of_full_load() } else { Threshold::defaults() };
        let rates = [
            (Lane::Udp, self.load.rate),
            (Lane::HttpKeepAlive, http_rate),
            (Lane::HttpConnections, http_rate),
        ];
        Ok(ChaosPlan {
            timeout: if is_full { load.timeout } else { self.load.timeout },
            load,
            rates: rates.into_iter().filter(|(_, rate)| *rate > 0.0 && !is_full).collect(),
            share: self.load.share,
            connections: self.load.connections.into(),
            websockets: self.load.websockets,
            events: self.event_kinds(&subject.options)?,
            duration: self.events.duration.unwrap_or_default(),
            settle: self.events.settle,
            pause: self.events.pause,
            sample: self.events.sample,
            thresholds: Threshold::with(thresholds, &self.events.threshold),
            subject,
        })
    }

    fn subject(&self) -> Result<Subject> {
        let description = self.description()?;
        let name = description.name.clone();
        let (description, options) = description
            .for_chaos()
            .with_context(|| format!("the description of {name} has no table [chaos]"))?;
        let this_program = env::current_exe().context("cannot find the path of this program")?;
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let tools = self.tools.clone().map_or_else(install::default_folder, Ok).unwrap_or_default();
        let program = self.program.as_deref().map(|program| without_name(program, &name));
        let program = program.or_else(|| self.command.first().map(PathBuf::from));
        let chosen = program.into_iter().map(|program| (name.clone(), absolute(program))).collect();
        let search_paths = SearchPaths { tools: absolute(tools), this_program, chosen };
        let mut searched = description.clone();
        searched.protocols = vec![Protocol::Udp];
        let installation = search_paths
            .find(&searched, Protocol::Udp)
            .map_err(|reason| anyhow!("the tracker {name} cannot take part: {reason}"))?;
        let topology = Topology::of_this_machine().context("cannot find out which processors there are")?;
        let mode = CpuMode::default();
        let assignment = CpuAssignment::new(&topology, mode, self.cores, None, self.allow_overlap)?;
        Ok(Subject { description, options, installation, assignment })
    }

    fn description(&self) -> Result<Description> {
        if let Some(file) = &self.tracker_file {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            return Description::parse(&text).with_context(|| format!("{}", file.display()));
        }
        let mut all = Description::built_in().context("a built-in description")?;
        if let Some((program, arguments)) = self.command.split_first() {
            let mut description = all.swap_remove(0);
            description.name = COMMAND.to_owned();
            description.title.clone_from(program);
            description.version.arguments.clear();
            description.files.clear();
            description.start.arguments = arguments.to_vec();
            let protocols = vec![Protocol::Udp, Protocol::Http, Protocol::Ws];
            description.chaos = Some(ChaosOptions { protocols, ..ChaosOptions::default() });
            return Ok(description);
        }
        let with_chaos = |description: &&Description| description.chaos.is_some();
        let names: Vec<&str> =
            all.iter().filter(with_chaos).map(|description| description.name.as_str()).collect();
        let unknown = terminal::unknown("tracker for chaos", &self.tracker, &names);
        let found = all.iter().filter(with_chaos).find(|description| description.name == self.tracker);
        found.cloned().with_context(|| format!("{unknown}, --tracker-file, or -- COMMAND"))
    }

    fn fill_spec(&self, is_full: bool) -> Result<LoadSpec> {
        let mut spec = LoadSpec::of(&ComparisonPreset::find("published")?);
        spec.seed = self.load.seed;
        spec.population = Population {
            torrents: self.load.torrents,
            peers: self.load.peers,
            popularity: if is_full { spec.population.popularity } else { self.load.popularity },
            ..spec.population
        };
        Ok(if is_full { at_driver(spec) } else { spec })
    }

    fn event_kinds(&self, options: &ChaosOptions) -> Result<Vec<EventKind>> {
        for event in &self.events.names {
            if let Some(key) = event.missing_key(options) {
                return Err(anyhow!("--events {event}: the description of the tracker lacks {key}"));
            }
        }
        Ok(if self.events.names.is_empty() {
            EventKind::supported(options)
        } else {
            self.events.names.clone()
        })
    }
}

/// Returns the path of `NAME=PATH`, the form that `compare` requires, and any other path as it is.
fn without_name(program: &Path, name: &str) -> PathBuf {
    let path = program.to_str().and_then(|text| text.strip_prefix(name)?.strip_prefix('='));
    path.map_or_else(|| program.to_owned(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_the_name_of_its_tracker() {
        for (given, path) in
            [("mine=./t", "./t"), ("./t", "./t"), ("other=./t", "other=./t"), ("mine", "mine")]
        {
            assert_eq!(without_name(Path::new(given), "mine"), Path::new(path));
        }
    }
}
