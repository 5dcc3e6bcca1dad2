//! `shoal-lab siege`. `cargo xtask siege` builds the tracker and calls it.

use std::env;
use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use shoal_trial::siege::{ATTACKS, Attack, Mode, Program, Report, list, namespace, run};
use shoal_trial::write_file;

use crate::process::{or_usage, raise_open_files_limit};
use crate::terminal::{note, print};

/// Attack Shoal in a network of its own, while honest clients use it
///
/// The siege starts the tracker at PROGRAM and knows its keys, so it can attack Shoal alone.
///
/// Exit codes: 0 if the tracker held against every attack, 1 if one got through, 2 if one could not be run.
#[derive(Debug, clap::Args)]
pub(crate) struct SiegeArgs {
    /// The program of the tracker
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    program: Option<PathBuf>,
    /// Use small budgets, and base verdicts on counts and state rather than on time
    #[arg(long)]
    short: bool,
    /// Run only attacks whose name contains TEXT. Can be repeated
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Print the attacks and the promise about each
    #[arg(long)]
    list: bool,
    /// Write siege.json and siege.md to this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Replace the generated parts of this page, docs/siege.md, by the attacks on each promise and the results of all attacks
    #[arg(long, value_name = "FILE", conflicts_with_all = ["filter", "setting"])]
    page: Option<PathBuf>,
    /// A setting of the tracker that overrides those of the attacks, to see an attack get through. Can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    setting: Vec<(String, String)>,
}

impl SiegeArgs {
    /// An attack that cannot be run has the exit code of an invalid command line.
    pub(crate) fn run(self) -> Result<ExitCode> {
        or_usage(self.attack(), Ok)
    }

    fn attack(&self) -> Result<ExitCode> {
        let attacks = self.attacks()?;
        if self.list {
            print(&list(&attacks))?;
            return Ok(ExitCode::SUCCESS);
        }
        if !namespace::is_inside()? {
            return namespace::enter();
        }
        namespace::prepare()?;
        // Thousands of connections are open at a time.
        raise_open_files_limit();
        let report = self.run_attacks(&possible(attacks))?;
        let has_no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_coloured = stdout().is_terminal() && !has_no_color;
        print(&if self.json { report.json()? } else { report.text(is_coloured) })?;
        if let Some(folder) = &self.out {
            write_file(folder, "siege.json", &report.json()?)?;
            write_file(folder, "siege.md", &report.markdown())?;
        }
        if let Some(page) = &self.page {
            let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
            let program = self.program.as_deref().context("--program is missing")?;
            let text = report.page(&text, &Program::version(program)?)?;
            fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))?;
        }
        Ok(ExitCode::from(report.exit_code()))
    }

    fn attacks(&self) -> Result<Vec<&'static Attack>> {
        let is_chosen = |attack: &&Attack| {
            self.filter.is_empty() || self.filter.iter().any(|text| attack.id().contains(text.as_str()))
        };
        let chosen: Vec<&Attack> = ATTACKS.iter().copied().flatten().filter(is_chosen).collect();
        ensure!(!chosen.is_empty(), "no attack has such a name; --list prints the names");
        Ok(chosen)
    }

    fn run_attacks(&self, attacks: &[&'static Attack]) -> Result<Report> {
        let mode = if self.short { Mode::Short } else { Mode::Full };
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let path = self.program.as_deref().context("--program is missing")?;
        let program = Program::find(path, folder.path())?;
        if let Some((key, _)) = self.setting.iter().find(|(key, _)| !program.knows(key)) {
            bail!("--setting: the tracker has no key {key}");
        }
        let mut report = Report::new(mode);
        let bar = ProgressBar::new(attacks.len() as u64);
        bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")?);
        for attack in attacks {
            bar.set_message(attack.id());
            match run(attack, &program, mode, &self.setting) {
                Ok(outcome) => {
                    let verdict = if outcome.has_held() { "held" } else { "GOT THROUGH" };
                    bar.suspend(|| eprintln!("{verdict:11} {}", outcome.id));
                    report.add(outcome);
                }
                Err(error) => {
                    bar.suspend(|| eprintln!("NOT RUN     {}: {error:#}", attack.id()));
                    report.add_not_run(attack, &error);
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(report)
    }
}

/// Leaves out the attacks that take root.
fn possible(mut attacks: Vec<&'static Attack>) -> Vec<&'static Attack> {
    let all = attacks.len();
    attacks.retain(|attack| !attack.is_on_wire || namespace::is_privileged());
    if attacks.len() < all {
        note(&format!("{} attacks on the XDP data path are left out: they take root", all - attacks.len()));
    }
    attacks
}

fn setting(text: &str) -> Result<(String, String)> {
    let (key, value) = text.split_once('=').context("use KEY=VALUE, such as http.connections_max=64")?;
    Ok((key.to_owned(), value.to_owned()))
}
