//! The command line of the siege. `cargo xtask siege` builds the tracker and calls it.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shoal_siege::{ATTACKS, Attack, Form, Program, Report, list, list_markdown, namespace, run};

/// Attacks the tracker at PROGRAM, which the siege starts itself in a network of its own, with honest clients beside.
///
/// Exit codes: 0 if every attack was held, 1 if one got through, 2 if one could not be run.
#[derive(Parser)]
#[command(name = "shoal-siege")]
struct Arguments {
    /// The tracker's program
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    program: Option<PathBuf>,
    /// Small budgets, and verdicts that rest on counts and state rather than on time
    #[arg(long)]
    short: bool,
    /// Only attacks whose name contains TEXT. Can be repeated
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Print the attacks and what is promised about each; with --json as a table in Markdown
    #[arg(long)]
    list: bool,
    /// Write siege.json and siege.md into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// A setting of the tracker that wins over those of the attacks, to see an attack get through. Can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    setting: Vec<(String, String)>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("siege: {error:#}");
            ExitCode::from(2)
        }
    }
}

impl Arguments {
    fn run(&self) -> Result<ExitCode> {
        let attacks = self.attacks()?;
        if self.list {
            print(&if self.json { list_markdown(&attacks) } else { list(&attacks) })?;
            return Ok(ExitCode::SUCCESS);
        }
        if !namespace::is_inside()? {
            return namespace::enter();
        }
        namespace::prepare()?;
        raise_open_files()?;
        let report = self.besiege(&attacks)?;
        print(&if self.json { report.json()? } else { report.text(is_coloured()) })?;
        if let Some(folder) = &self.out {
            save(&report, folder)?;
        }
        Ok(ExitCode::from(report.exit_code()))
    }

    fn attacks(&self) -> Result<Vec<&'static Attack>> {
        let is_chosen = |attack: &&Attack| {
            self.filter.is_empty() || self.filter.iter().any(|text| attack.id().contains(text.as_str()))
        };
        let chosen: Vec<&Attack> = ATTACKS.iter().copied().flatten().filter(is_chosen).collect();
        ensure!(!chosen.is_empty(), "no attack is called like that; --list prints their names");
        Ok(chosen)
    }

    fn besiege(&self, attacks: &[&'static Attack]) -> Result<Report> {
        let form = if self.short { Form::Short } else { Form::Full };
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let path = self.program.as_deref().context("--program is missing")?;
        let program = Program::find(path, folder.path())?;
        if let Some((key, _)) = self.setting.iter().find(|(key, _)| !program.knows(key)) {
            bail!("--setting: the tracker has no key {key}");
        }
        let mut report = Report::new(form);
        let bar = ProgressBar::new(attacks.len() as u64);
        bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")?);
        for attack in attacks {
            bar.set_message(attack.id());
            match run(attack, &program, form, &self.setting) {
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

fn save(report: &Report, folder: &PathBuf) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, text) in [("siege.json", report.json()?), ("siege.md", report.markdown())] {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Thousands of connections are held at a time.
fn raise_open_files() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .context("cannot raise the limit on open files")
}

fn is_coloured() -> bool {
    let is_refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stdout().is_terminal() && !is_refused
}

fn setting(text: &str) -> Result<(String, String)> {
    let (key, value) = text.split_once('=').context("give KEY=VALUE, such as http.connections_max=64")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn print(text: &str) -> Result<()> {
    stdout().lock().write_all(text.as_bytes()).context("cannot write to standard output")
}
