//! All checks and all tests. The quick checks run first and the tests last, so that the output ends with their results.

use std::thread;

use anyhow::{Context, Result};
use rustix::process::nice;

use crate::bench::Bench;
use crate::book;
use crate::bpf::Bpf;
use crate::setup::tool;
use crate::shell::{self, cargo, command, output, title};
use crate::steps::Steps;
use crate::{publish, setup, siege, test, tidy};

/// The priority of checks that run beside the siege and the tests, which mostly wait: they take what is left of the cores.
const BESIDE_NICE: i32 = 19;

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::default();
    let result = run_steps(&mut steps);
    title("durations");
    eprint!("{steps}");
    let counts = result?;
    println!("\n{counts}");
    Ok(())
}

fn run_steps(steps: &mut Steps) -> Result<test::Counts> {
    steps.run("set-up", setup::run)?;
    steps.run("format", format)?;
    steps.run("tidy", tidy::run)?;
    steps.run("dependencies", deny)?;
    steps.run("packages", publish::pack)?;
    steps.run("XDP program", || Bpf::COMPARE.run())?;
    steps.run("build", test::build)?;
    steps.run("examples", test::run_examples)?;
    let mut counts = test::Counts::default();
    let mut beside = Steps::default();
    let outcome = thread::scope(|scope| {
        let beside = scope.spawn(|| run_beside(&mut beside));
        let outcome = steps
            .run("siege", siege::run_short)
            .and_then(|()| steps.run("tests", || test::run_built().map(|result| counts = result)));
        outcome.and(beside.join().expect("the steps return their errors"))
    });
    steps.append(beside);
    outcome.map(|()| counts)
}

/// Compiles what neither the siege nor the tests need, at a low priority. The siege judges shares and the tests judge no
/// times, so they notice little of it; and no load changes a count of instructions.
fn run_beside(steps: &mut Steps) -> Result<()> {
    nice(BESIDE_NICE).context("cannot lower the priority")?;
    steps.run("lints", lint)?;
    steps.run("documentation", document)?;
    steps.run("without features", test::without_features)?;
    steps.run("book", book::run)?;
    steps.run("instructions", || Bench::instructions().run())
}

fn format() -> Result<()> {
    title("format");
    shell::run(&mut cargo(&["fmt", "--all", "--check"])).context("run `cargo fmt --all`")
}

fn lint() -> Result<()> {
    title("lints");
    shell::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
}

fn document() -> Result<()> {
    title("documentation");
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
    shell::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Checks licences, sources, duplicates and known vulnerabilities of all dependencies.
pub(crate) fn deny() -> Result<()> {
    title("dependencies");
    let cargo_deny = tool("cargo-deny")?.display().to_string();
    shell::run(&mut command(&cargo_deny, &["--locked", "check", "licenses", "bans", "sources"]))?;
    // The database of advisories comes from GitHub, which not every machine can reach.
    if let Err(error) = output(&mut command("timeout", &["60", &cargo_deny, "fetch", "db"])) {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default();
        eprintln!("advisories NOT checked, because their database cannot be fetched: {reason}");
        return Ok(());
    }
    shell::run(&mut command(&cargo_deny, &["--locked", "check", "--disable-fetch", "advisories"]))
}
