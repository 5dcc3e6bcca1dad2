//! `shoal-lab conform`.

use std::process::ExitCode;

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Conform {}

impl Conform {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        anyhow::bail!("conform is not there yet")
    }
}
