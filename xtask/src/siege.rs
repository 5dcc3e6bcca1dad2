//! The siege: builds the tracker and `shoal-lab`, the program that attacks it.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;
use shoal_testkit::tools;

use crate::shell::{self, cargo, title};

/// The arguments of `shoal-lab siege`, which declares and documents them.
#[derive(Args)]
pub(crate) struct Siege {
    /// Options of `shoal-lab siege`, such as --list, --short, --filter TEXT and --json; `cargo run -p shoal-lab siege --help`
    /// explains all
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    arguments: Vec<String>,
}

const NOT_RUN: u8 = 2;

/// Runs short mode as a step of CI, with the programs that were built for the tests.
pub(crate) fn run_short() -> Result<()> {
    title("siege");
    let mut command = Siege { arguments: vec!["--short".to_owned()] }.attack()?;
    shell::run(&mut command)
}

impl Siege {
    pub(crate) fn run(self) -> ExitCode {
        let status = self.command().and_then(|mut command| command.status().context("cannot run shoal-lab"));
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
        let mut packages = vec!["shoal-lab"];
        if !self.has_any(&["--list"]) {
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
        let mut command = Command::new(folder.join("shoal-lab"));
        command.args(["siege", "--program"]).arg(folder.join("shoal"));
        command.args(&self.arguments);
        Ok(command)
    }

    /// Returns whether the debug build is used: short mode judges no times, and a list attacks nothing.
    fn is_debug(&self) -> bool {
        self.has_any(&["--short", "--list"])
    }

    fn has_any(&self, options: &[&str]) -> bool {
        self.arguments.iter().any(|argument| options.contains(&argument.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Vec<String>, ErrorKind> {
        let command = Siege::augment_args(clap::Command::new("siege"));
        let matches = command.try_get_matches_from([&["siege"][..], arguments].concat());
        let matches = matches.map_err(|error| error.kind())?;
        Ok(matches.get_many::<String>("arguments").into_iter().flatten().cloned().collect())
    }

    #[test]
    fn help_is_printed_before_anything_is_built() {
        assert_eq!(parse(&["--help"]), Err(ErrorKind::DisplayHelp));
        let options = ["--short", "--filter", "udp"];
        assert_eq!(parse(&options), Ok(options.map(str::to_owned).to_vec()));
    }
}
