//! `shoal-lab soak`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shoal_trial::soak::{self, SoakPlan};

use crate::load::args::duration;
use crate::process::{Cancellation, or_usage};
use crate::terminal;

/// The options of `soak`.
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(crate) struct SoakArgs {
    /// The program of the tracker [default: shoal beside this program]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,

    /// How long it lasts; every disturbance happens once at least
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    duration: Duration,

    /// The duration of the load between two pauses
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    round: Duration,

    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// The end of the help, with a paragraph per line: clap wraps it to the terminal.
const NOTES: &str = "\
It takes root and Linux 6.4. The tracker, which is Shoal with its XDP data path, and the load are at the two ends of a pair of \
virtual Ethernet interfaces. In each round, the load keeps 224 requests in flight from the driver hook, while the tracker is \
reloaded, upgraded, stopped (SIGTERM) or killed (SIGKILL), or its interface goes down. After each round, all frames must be free \
and every request must be answered or be counted as dropped.

Exit codes: 0 if that is so in every round, 1 if it is not or the run failed, 2 for an invalid command line.";

impl SoakArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        or_usage(self.plan(), |plan| self.run_plan(&plan))
    }

    fn plan(&self) -> Result<SoakPlan> {
        let beside = || -> Result<PathBuf> {
            let own = std::env::current_exe().context("cannot locate this program")?;
            Ok(own.with_file_name("shoal"))
        };
        let shoal = self.program.clone().map_or_else(beside, Ok)?;
        ensure!(shoal.is_file(), "there is no tracker at {}: give --program", shoal.display());
        let shoal = shoal.canonicalize()?;
        Ok(SoakPlan { shoal, duration: self.duration, round: self.round })
    }

    fn run_plan(&self, plan: &SoakPlan) -> Result<ExitCode> {
        let cancellation = Cancellation::on_signals()?;
        let mut rounds = 0;
        let result = soak::run(plan, cancellation.flag(), &mut |round, share| {
            rounds += 1;
            terminal::note(&format!("[{rounds:>3} {:>3.0} %] {round}", share * 100.0));
        })?;
        let json = || serde_json::to_string_pretty(&result).map(|json| json + "\n");
        terminal::print(&if self.json { json()? } else { result.summary() })?;
        Ok(if result.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
