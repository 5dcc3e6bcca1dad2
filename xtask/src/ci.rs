//! All checks and all tests. The quick ones come first, the tests last, so that their results end the output.

use anyhow::{Context, Result};

use crate::shell::{self, cargo, title};
use crate::steps::Steps;
use crate::{deny, setup, siege, test, tidy};

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::default();
    let result = run_steps(&mut steps);
    title("durations");
    eprint!("{steps}");
    let counts = result?;
    println!("\n{counts}");
    Ok(())
}

/// Everything that builds shares one profile, and the siege and the tests share one build.
fn run_steps(steps: &mut Steps) -> Result<test::Counts> {
    steps.run("set-up", setup::run)?;
    steps.run("format", format)?;
    steps.run("tidy", tidy::run)?;
    steps.run("lints", lint)?;
    steps.run("documentation", document)?;
    steps.run("dependencies", deny::run)?;
    steps.run("build", test::build)?;
    steps.run("siege", siege::run_short)?;
    let mut counts = test::Counts::default();
    steps.run("tests", || test::run_built().map(|result| counts = result))?;
    Ok(counts)
}

fn format() -> Result<()> {
    title("format");
    shell::run(&mut cargo(&["fmt", "--all", "--check"])).context("`cargo fmt --all` puts it right")
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
