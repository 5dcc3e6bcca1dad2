//! Fuzzing with cargo-fuzz, which requires a nightly compiler.

use std::fs;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::setup::cargo_tool;
use crate::shell::{command, output, root, run, title};

/// The fuzz targets to run, and the time for each.
#[derive(Args)]
pub(crate) struct Fuzz {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// The target [default: all]
    target: Option<String>,
}

impl Fuzz {
    pub(crate) fn run(self) -> Result<()> {
        if !output(&mut command("rustup", &["toolchain", "list"]))?.contains("nightly") {
            title("a nightly toolchain");
            run(&mut command("rustup", &["toolchain", "install", "nightly", "--profile", "minimal"]))?;
        }
        cargo_tool("cargo-fuzz")?;
        let list = output(&mut command("cargo", &["+nightly", "fuzz", "list"]))?;
        let targets: Vec<String> = list.lines().map(str::to_owned).collect();
        let chosen = match self.target {
            None => targets,
            Some(target) => {
                ensure!(
                    targets.contains(&target),
                    "there is no fuzz target {target}; there are {}",
                    targets.join(", ")
                );
                vec![target]
            }
        };
        chosen.iter().try_for_each(|target| fuzz(target, self.seconds))
    }
}

/// Runs a target. New inputs go to a directory that git ignores, and the corpus of the repository is only read.
fn fuzz(target: &str, seconds: u32) -> Result<()> {
    title(&format!("fuzzing {target} for {seconds} s"));
    let found = root().join("fuzz/target/found").join(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot create {}", found.display()))?;
    let mut fuzz = command("cargo", &["+nightly", "fuzz", "run", target]);
    fuzz.arg(found).arg(root().join("fuzz/corpus").join(target));
    run(fuzz.arg("--").arg(format!("-max_total_time={seconds}")))
        .with_context(|| format!("the input that broke {target} is in fuzz/artifacts/{target}"))
}
