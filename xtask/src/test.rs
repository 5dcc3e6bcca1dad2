//! All tests, each in a process of its own with a time limit, by cargo-nextest; `.config/nextest.toml` says how.
//!
//! A message of a test about being skipped is not lost: in CI it is an error, elsewhere a warning.

mod report;

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail, ensure};
use shoal_interop::tools;

pub(crate) use report::Counts;

use crate::setup;
use crate::shell::{self, command, in_ci, output, root, title};

/// The tests whose durations are printed.
const SLOWEST: usize = 20;

/// Longest time that the tests in documentation, or the benchmarks, may take in all.
const REST_TIME_MAX_S: &str = "900";

/// The threads of a core, by which `.config/nextest.toml` weighs tests.
const THREADS_PER_CORE: usize = 4;

pub(crate) fn run() -> Result<()> {
    setup::run()?;
    build()?;
    run_built().map(drop)
}

/// Builds the tests, and the programs that they start.
pub(crate) fn build() -> Result<()> {
    title("build");
    shell::run(nextest("run")?.arg("--no-run"))
}

/// Runs the tests that [`build`] built, and prints which of them are the slowest.
pub(crate) fn run_built() -> Result<Counts> {
    title("tests");
    // Nextest runs neither tests in documentation nor benchmarks, which run tiny here and list no tests.
    for kind in [&["--doc"][..], &["--bench", "*"]] {
        let mut cargo_test =
            command("timeout", &[REST_TIME_MAX_S, "cargo", "test", "--workspace", "--locked"]);
        let outcome = shell::run(cargo_test.args(["--quiet", "--no-fail-fast"]).args(kind));
        outcome.with_context(|| format!("exit status 124 means that it took {REST_TIME_MAX_S} s"))?;
    }
    let ignored = output(nextest("list")?.args(["--run-ignored", "only", "--message-format", "oneline"]))?;
    let path = root().join(tools::target_directory()?).join("nextest/default/junit.xml");
    remove(&path)?;
    let mut tests = nextest("run")?;
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    tests.args(["--test-threads", &(THREADS_PER_CORE * cores).to_string()]);
    // Otherwise the harness of the real clients would build a tracker of its own, with fewer features.
    tests.env("TEST_SHOAL_BINARY", tools::target_directory()?.join("debug/shoal"));
    let outcome = shell::run(&mut tests).context("there are failed tests, see above");
    let report = File::open(&path).with_context(|| format!("nextest left no report in {}", path.display()));
    let report = match report {
        Ok(file) => report::read(BufReader::new(file))?,
        Err(error) => return Err(outcome.err().unwrap_or(error)),
    };
    eprintln!("\nThe slowest tests:");
    report.slowest(SLOWEST).for_each(|test| eprintln!("  {test}"));
    outcome?;
    ensure!(report.counts.passed > 0, "there were no tests");
    let skipped = ignored.lines().map(|test| format!("{test} is ignored")).chain(report.skipped);
    report_skipped(&skipped.collect::<Vec<_>>())?;
    Ok(report.counts)
}

/// Returns a command of nextest for all tests of all packages.
fn nextest(task: &str) -> Result<Command> {
    let mut command = Command::new(setup::tool("cargo-nextest")?);
    command.args(["nextest", task, "--workspace", "--locked"]);
    command.args(["--lib", "--bins", "--examples", "--test", "*"]).current_dir(root());
    Ok(command)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn report_skipped(skipped: &[String]) -> Result<()> {
    if skipped.is_empty() {
        return Ok(());
    }
    eprintln!("\nTests were skipped:");
    skipped.iter().for_each(|line| eprintln!("  {line}"));
    if in_ci() {
        bail!("CI runs every test: it has to provide what they lack");
    }
    Ok(())
}
