//! Runs all tests with cargo-nextest, each in its own process with a time limit (`.config/nextest.toml`).
//!
//! If a test reports that it was skipped, that is an error in CI and a warning elsewhere.

mod report;

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail, ensure};
use shoal_testkit::tools;

pub(crate) use report::Counts;

use crate::setup;
use crate::shell::{self, cargo, command, in_ci, output, root, title};

/// The number of tests whose durations are printed, the slowest first.
const SLOWEST: usize = 20;

/// The time limit of all tests in documentation together, and of all benchmarks together.
const REST_TIME_MAX_S: &str = "900";

/// The number of test threads for each core. `.config/nextest.toml` gives slow tests several of them.
const THREADS_PER_CORE: usize = 5;

/// All tests of all packages that nextest runs.
const BUILT: [&str; 7] = ["--workspace", "--locked", "--lib", "--bins", "--examples", "--test", "*"];

pub(crate) fn run() -> Result<()> {
    setup::run()?;
    build()?;
    run_examples()?;
    run_built().map(drop)
}

/// Builds the tests and the programs that they start, and lists them for [`nextest_of_built`].
pub(crate) fn build() -> Result<()> {
    title("build");
    shell::run(nextest("run")?.args(BUILT).arg("--no-run"))?;
    // Makes the manual pages of the Debian package. As one of the workspace, it shares the dependencies of the tests.
    shell::run(&mut cargo(&["build", "--workspace", "--locked", "--example", "manual"]))?;
    let mut list = nextest("list")?;
    let binaries =
        output(list.args(BUILT).args(["--list-type", "binaries-only", "--message-format", "json"]))?;
    let metadata = output(&mut cargo(&["metadata", "--format-version", "1", "--all-features", "--no-deps"]))?;
    for (path, text) in [(binaries_file(), binaries), (metadata_file(), metadata)] {
        fs::create_dir_all(path.parent().unwrap_or(root()))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Runs what nextest does not: the tests in documentation, and the benchmarks, which run with tiny sizes here.
pub(crate) fn run_examples() -> Result<()> {
    title("examples");
    for kind in [&["--doc"][..], &["--bench", "*"]] {
        let mut cargo_test =
            command("timeout", &[REST_TIME_MAX_S, "cargo", "test", "--workspace", "--locked"]);
        let outcome = shell::run(cargo_test.args(["--quiet", "--no-fail-fast"]).args(kind));
        outcome.with_context(|| {
            format!("exit status 124 means that the time limit of {REST_TIME_MAX_S} s has passed")
        })?;
    }
    Ok(())
}

/// Checks that the program can be built without its optional parts, and runs its unit tests.
pub(crate) fn without_features() -> Result<()> {
    title("without features");
    shell::run(&mut cargo(&["check", "--locked", "--package", "shoal", "--no-default-features"]))?;
    // As one of the workspace, the program shares its dependencies with the other tests. A profile has a report of its own.
    let mut tests = nextest("run")?;
    tests.args([
        "--profile",
        "without-features",
        "--workspace",
        "--locked",
        "--no-default-features",
        "--lib",
    ]);
    shell::run(tests.args(["--filterset", "package(shoal)"]))
}

/// Runs the tests that [`build`] has built, and prints the slowest.
pub(crate) fn run_built() -> Result<Counts> {
    title("tests");
    let ignored =
        output(nextest_of_built("list")?.args(["--run-ignored", "only", "--message-format", "oneline"]))?;
    // nextest keeps its reports in the workspace, wherever the target folder is.
    let path = root().join("target/nextest/default/junit.xml");
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot remove {}", path.display()));
    }
    let mut tests = nextest_of_built("run")?;
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    tests.args(["--test-threads", &(THREADS_PER_CORE * cores).to_string()]);
    // Otherwise the interoperability tests would build another tracker, with fewer features.
    tests.env("TEST_SHOAL_BINARY", tools::target_directory()?.join("debug/shoal"));
    let outcome = shell::run(&mut tests).context("some tests failed, see above");
    let report = File::open(&path).with_context(|| format!("nextest left no report in {}", path.display()));
    let report = match report {
        Ok(file) => report::read(BufReader::new(file))?,
        Err(error) => return Err(outcome.err().unwrap_or(error)),
    };
    eprintln!("\nThe slowest tests:");
    report.slowest(SLOWEST).for_each(|test| eprintln!("  {test}"));
    if !report.flaky.is_empty() {
        eprintln!("\nFLAKY: these tests failed at first and passed when they were repeated:");
        report.flaky.iter().for_each(|test| eprintln!("  {test}"));
    }
    outcome?;
    ensure!(report.counts.passed > 0, "there were no tests");
    let skipped = ignored.lines().map(|test| format!("{test} is ignored")).chain(report.skipped);
    report_skipped(&skipped.collect::<Vec<_>>())?;
    Ok(report.counts)
}

fn nextest(task: &str) -> Result<Command> {
    let mut command = Command::new(setup::tool("cargo-nextest")?);
    command.args(["nextest", task]).current_dir(root());
    Ok(command)
}

/// Returns a command of nextest for what [`build`] has built. It does not ask cargo, whose target folder another build may
/// have locked.
fn nextest_of_built(task: &str) -> Result<Command> {
    let mut command = nextest(task)?;
    command.arg("--binaries-metadata").arg(binaries_file()).arg("--cargo-metadata").arg(metadata_file());
    Ok(command)
}

fn binaries_file() -> PathBuf {
    root().join("target/nextest/binaries.json")
}

fn metadata_file() -> PathBuf {
    root().join("target/nextest/metadata.json")
}

fn report_skipped(skipped: &[String]) -> Result<()> {
    if skipped.is_empty() {
        return Ok(());
    }
    eprintln!("\nTests were skipped:");
    skipped.iter().for_each(|line| eprintln!("  {line}"));
    if in_ci() {
        bail!("CI must run every test: provide what the tests lack");
    }
    Ok(())
}
