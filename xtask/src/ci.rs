//! All checks and all tests. The quick checks run first and the tests last, so that the output ends with their results.

use std::thread;

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::book;
use crate::bpf::Bpf;
use crate::setup::tool;
use crate::shell::{self, cargo, command, output, title};
use crate::steps::Steps;
use crate::{setup, siege, test, tidy};

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::default();
    let result = run_steps(&mut steps);
    title("durations");
    eprint!("{steps}");
    let counts = result?;
    println!("\n{counts}");
    Ok(())
}

/// Runs all steps. They share one profile, except that instructions are counted in an optimised build; and the siege and
/// the tests share one build. The siege mostly waits, so instructions, which no other load changes, are counted meanwhile.
fn run_steps(steps: &mut Steps) -> Result<test::Counts> {
    steps.run("set-up", setup::run)?;
    steps.run("format", format)?;
    steps.run("tidy", tidy::run)?;
    steps.run("book", book::run)?;
    steps.run("lints", lint)?;
    steps.run("documentation", document)?;
    steps.run("dependencies", deny)?;
    steps.run("XDP program", || Bpf::COMPARE.run())?;
    steps.run("without features", test::without_features)?;
    steps.run("build", test::build)?;
    steps.run("siege, counts", || {
        thread::scope(|scope| {
            let siege = scope.spawn(siege::run_short);
            Bench::instructions().run()?;
            siege.join().expect("the siege returns its errors")
        })
    })?;
    let mut counts = test::Counts::default();
    steps.run("tests", || test::run_built().map(|result| counts = result))?;
    Ok(counts)
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
