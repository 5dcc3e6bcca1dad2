//! The siege: attacks on the built tracker. The program that attacks is `shoal-siege`; this builds it and the tracker.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;
use shoal_clients::tools;

use crate::shell::{self, cargo, title};

/// Attacks, and how their outcome is told.
#[derive(Args, Default)]
pub(crate) struct Siege {
    /// All attacks with small budgets in about four minutes, against the debug build, as in CI; verdicts rest on counts
    /// and state rather than on time
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
    #[arg(long, value_name = "KEY=VALUE")]
    setting: Vec<String>,
}

/// The exit code of a siege that could not be run.
const NOT_RUN: u8 = 2;

/// Runs short mode as a step of CI, with the programs that the build of the tests has left.
pub(crate) fn run_short() -> Result<()> {
    title("siege");
    let mut command = Siege { short: true, ..Siege::default() }.attack()?;
    shell::run(&mut command)
}

impl Siege {
    pub(crate) fn run(self) -> ExitCode {
        let status =
            self.command().and_then(|mut command| command.status().context("cannot run shoal-siege"));
        match status {
            Ok(status) => {
                ExitCode::from(status.code().and_then(|code| code.try_into().ok()).unwrap_or(NOT_RUN))
            }
            Err(error) => {
                eprintln!("xtask: {error:#}");
                ExitCode::from(NOT_RUN)
            }
        }
    }

    /// Builds the tracker and the program that attacks it, and returns the command that does so.
    fn command(&self) -> Result<Command> {
        self.build()?;
        self.attack()
    }

    fn build(&self) -> Result<()> {
        let mut packages = vec!["shoal-siege"];
        if !self.list {
            packages.push("shoal");
        }
        let profile: &[&str] = if self.is_debug() { &[] } else { &["--release"] };
        // One after the other, so that neither is built with features that only the other needs.
        for package in packages {
            let mut build = cargo(&["build", "--locked", "--quiet", "--package", package]);
            let status = build.args(profile).status().context("cannot run cargo")?;
            ensure!(status.success(), "`{}` failed", shell::line(&build));
        }
        Ok(())
    }

    /// Returns the command that attacks the tracker. Both programs are built.
    fn attack(&self) -> Result<Command> {
        let folder = tools::target_directory()?.join(if self.is_debug() { "debug" } else { "release" });
        let mut command = Command::new(folder.join("shoal-siege"));
        command.arg("--program").arg(folder.join("shoal"));
        for (name, is_set) in [("--short", self.short), ("--json", self.json), ("--list", self.list)] {
            command.args(is_set.then_some(name));
        }
        self.filter.iter().for_each(|text| _ = command.args(["--filter", text]));
        self.setting.iter().for_each(|setting| _ = command.args(["--setting", setting]));
        self.out.iter().for_each(|folder| _ = command.arg("--out").arg(folder));
        Ok(command)
    }

    const fn is_debug(&self) -> bool {
        self.short || self.list
    }
}
