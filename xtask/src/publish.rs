//! The crates that others can use: those with `publish = true` in their manifests, in the order of their dependencies.
//!
//! Cargo packs them and resolves each with the packages of those before it, so no crate must be published to check the
//! next. A full check also compiles each package by itself, with nothing of the workspace around it. That takes as long as
//! a debug build of the laboratory, so CI only packs.

use anyhow::Result;
use clap::Args;

use crate::shell::{cargo, run, title};

/// How the crates are published.
#[derive(Args)]
pub(crate) struct Publish {
    /// Pack and compile the crates, but upload nothing
    #[arg(long)]
    dry_run: bool,
}

impl Publish {
    pub(crate) fn run(&self) -> Result<()> {
        title("crates for others");
        let mut publish = cargo(&["publish", "--workspace", "--locked"]);
        run(publish.args(self.dry_run.then_some("--dry-run")))
    }
}

/// Packs the crates, with the changes of a tree that is not committed yet.
pub(crate) fn pack() -> Result<()> {
    title("crates for others");
    let pack = ["publish", "--workspace", "--locked", "--dry-run", "--no-verify", "--allow-dirty", "--quiet"];
    run(&mut cargo(&pack))
}
