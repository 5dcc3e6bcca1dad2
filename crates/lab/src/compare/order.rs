//! From the command line to what is to be compared. Everything that can be wrong is found here, before anything runs.

use std::env;
use std::fs;
use std::iter;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use shoal_compare::description::Description;
use shoal_compare::division::Division;
use shoal_compare::find::Places;
use shoal_compare::install;
use shoal_compare::load::Load;
use shoal_compare::order::{Contender, Order};
use shoal_compare::topology::Topology;
use shoal_load::Preset;

use super::{ANY_TRACKER, Compare};

impl Compare {
    /// What is to be compared. The folder of the result is yet to be made.
    pub(super) fn order(&self) -> Result<Order> {
        let preset = self.shape.load();
        let load = self.load(&preset);
        let (divisions, doubts) = self.divisions()?;
        for division in &divisions {
            load.plan(ANY_TRACKER, division, true).check()?;
        }
        let contenders = self.contenders()?;
        Ok(Order {
            title: title(&preset),
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
        let chosen = |index: usize, name: &String| {
            self.trackers.is_empty() || self.trackers.contains(name) || is_own(index)
        };
        let chosen =
            all.into_iter().enumerate().filter(|(index, description)| chosen(*index, &description.name));
        Ok(chosen.map(|(_, description)| Contender::look_for(description, &places)).collect())
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
        let latency = (measurement.latency_rate, measurement.latency_duration);
        Load {
            window: measurement.window.get(),
            duration: measurement.duration,
            latency: (latency.0 > 0.0).then_some(latency),
            seed: self.shape.seed,
            io: measurement.io,
            timeout: measurement.timeout,
            sockets_per_worker: measurement.sockets,
            ..Load::of(preset)
        }
    }
}

/// The command line. Names of files need not be text, and then they are shown as well as can be.
fn command() -> Vec<String> {
    let words = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    iter::once("shoal-lab".to_owned()).chain(words).collect()
}

fn title(preset: &Preset) -> String {
    let shoal_load::Mix { connect, announce, scrape } = preset.mix;
    let population = preset.population;
    let mix = if (connect, scrape) == (0, 0) {
        "announces only".to_owned()
    } else {
        format!("{connect} connects : {announce} announces : {scrape} scrapes")
    };
    let (torrents, peers, numwant) = (count(population.torrents), count(population.peers), preset.numwant);
    format!("UDP: {mix}, {torrents} torrents, {peers} peers, {numwant} wanted")
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
        let mut preset = shoal_load::PRESETS[0];
        assert_eq!(
            title(&preset),
            "UDP: 50 connects : 50 announces : 1 scrapes, 1 M torrents, 2 M peers, 30 wanted"
        );
        preset.mix = shoal_load::Mix { connect: 0, announce: 1, scrape: 0 };
        preset.population.torrents = 1500;
        assert_eq!(title(&preset), "UDP: announces only, 1500 torrents, 2 M peers, 30 wanted");
    }
}
